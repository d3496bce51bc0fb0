"""Views through an encoder and its heads: together or one by one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ocssl.nn import Encoder, Features, projector
from ocssl.nn.encoder import over_views


def standardised(x: torch.Tensor) -> torch.Tensor:
    """Batch norm by hand: over the rows, biased variance."""
    return (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt()


def test_joint_views_share_batch_statistics_and_separate_views_have_their_own():
    views = torch.stack([torch.randn(6, 4), 10 + 3 * torch.randn(6, 4)])
    norm = nn.BatchNorm1d(4)
    torch.testing.assert_close(over_views(norm, views, joint=False), torch.stack([standardised(v) for v in views]))
    together = standardised(torch.cat([*views])).view(2, 6, 4)
    torch.testing.assert_close(over_views(norm, views, joint=True), together)
    assert not torch.allclose(over_views(norm, views, joint=False), together, atol=0.1)


def test_running_statistics_move_once_jointly_and_once_per_view_separately():
    views = torch.randn(2, 6, 4) + torch.tensor([0.0, 5.0]).view(2, 1, 1)
    joint, separate = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
    over_views(joint, views, joint=True)
    over_views(separate, views, joint=False)
    torch.testing.assert_close(joint.running_mean, 0.1 * views.mean((0, 1)))
    torch.testing.assert_close(separate.running_mean, 0.9 * 0.1 * views[0].mean(0) + 0.1 * views[1].mean(0))


def small_encoder() -> Encoder:
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.BatchNorm1d(5))
    return Encoder(backbone, projector(5, 6, 7), feature_dim=5)


@pytest.mark.parametrize("joint", [True, False])
def test_the_encoder_gives_backbone_and_projected_features_of_every_view(joint):
    encoder, views = small_encoder(), torch.randn(2, 6, 3, 2, 2)
    assert encoder.output_dim == 7
    features = encoder(views, joint)
    if joint:
        backbone = encoder.backbone(views.flatten(0, 1))
        expected = backbone.view(2, 6, 5), encoder.projector(backbone).view(2, 6, 7)
    else:
        backbones = [encoder.backbone(view) for view in views]
        expected = torch.stack(backbones), torch.stack([encoder.projector(b) for b in backbones])
    torch.testing.assert_close(features.backbone, expected[0])
    torch.testing.assert_close(features.projected, expected[1])


def test_building_an_encoder_leaves_no_trace_in_its_statistics():
    encoder = small_encoder()
    assert encoder.projector.training
    assert all(m.num_batches_tracked == 0 for m in encoder.modules() if isinstance(m, nn.BatchNorm1d))


@pytest.mark.parametrize("joint", [True, False])
def test_heads_treat_views_as_the_encoder_did(joint):
    head, projected = nn.BatchNorm1d(4), torch.randn(2, 6, 4) + torch.tensor([0.0, 9.0]).view(2, 1, 1)
    features = Features(backbone=torch.randn(2, 6, 4), projected=projected, joint=joint)
    torch.testing.assert_close(features.through(head), over_views(head, projected, joint))
    torch.testing.assert_close(features.through(head, features.backbone), over_views(head, features.backbone, joint))


def test_detached_features_have_no_history():
    features = small_encoder()(torch.randn(2, 4, 3, 2, 2), joint=True)
    detached = features.detach()
    assert features.projected.requires_grad
    assert not detached.projected.requires_grad
    assert not detached.backbone.requires_grad
    assert torch.equal(detached.projected, features.projected)
