"""SCALE: L = L_contrast + w · L_forget.

L_contrast is a supervised contrastive loss; its positives are the two views and pseudo-positive pairs of stream
samples. L_forget is the cross-entropy between the pairwise similarities of a past model and those of the current one.

Xiaofan Yu, Yunhui Guo, Sicun Gao and Tajana Rosing. SCALE: Online Self-Supervised Lifelong Learning without Prior
Knowledge. CVPR Workshops 2023. arXiv:2208.11266.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ocssl.batch import Batch, Step
from ocssl.losses import full, relation_distillation, supervised_contrastive
from ocssl.methods import Dims
from ocssl.nn import Encoder, Features, mlp
from ocssl.nn.ema import copy_weights, frozen_copy
from ocssl.options import setting
from ocssl.strategies.base import ByBatch, Setup, Strategy, register


@torch.no_grad()
def pseudo_positives(
    features: Tensor, temperature: float = 0.1, threshold: float = 0.1, own_offset: float = float("-inf")
) -> Tensor:
    """Pairs of samples that are similar enough to be positives: ``(n, n)`` bool, with a diagonal of True.

    The similarity of two samples is the softmax of minus their squared distance, over the other samples, made symmetric
    and averaged over all pairs of views. A pair is positive above mean + threshold · (max − mean).

    Args:
        features: ``(views, n, d)``; squared distances are exact where they are L2-normalised.
        own_offset: added to the logit of a sample and itself; −∞ excludes it from the softmax.

    >>> f = F.normalize(torch.tensor([[[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0]]]), dim=-1)
    >>> pseudo_positives(f).int().tolist()
    [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    """
    features = full(features)
    n = features.shape[1]
    own = torch.eye(n, dtype=torch.bool, device=features.device)
    distance = 2 - 2 * torch.einsum("vid,wjd->vwij", features, features)
    logits = -distance / temperature
    logits = torch.where(own, logits + own_offset, logits)
    similarity = ((logits.softmax(-1) + logits.softmax(-2)) / 2).mean((0, 1)).masked_fill(own, 0.0)
    mean = similarity.sum() / (n * (n - 1))
    return (similarity > mean + threshold * (similarity.amax() - mean)) | own


@register("scale")
class Scale(Strategy):
    """Contrast of pseudo-positive pairs, and distillation of pairwise similarities from the last minibatch's model.

    Pseudo-positive pairs are found among the stream samples by their backbone features; all other samples are
    negatives. Similarities are those of the first view, and the past model is in evaluation mode. The weight w is set
    in the first step with three or more samples, such that w · L_forget = ``forgetting_weight`` · L_contrast there.

    Source: Yu et al., CVPR Workshops 2023, arXiv:2208.11266.
    """

    label = "SCALE"
    defaults: ClassVar[Mapping[str, Any]] = {"sgd.lr": ByBatch(0.003, 0.003)}

    class Options(Strategy.Options):
        forgetting_weight: float = setting(
            0.15, "Initial ratio of the weighted forgetting loss to the contrastive loss.", ge=0
        )

    composition = "stream+replay"
    default_memory = "reservoir"
    own_loss = True

    own_offset = float("-inf")
    """Added to the logit of a sample and itself where pairs are sought."""

    options: Options

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup, options)
        self.past = frozen_copy(setup.encoder).eval()
        self.weight: Tensor
        self.register_buffer("weight", torch.tensor(float("nan")))

    @classmethod
    def projector(cls, dims: Dims) -> nn.Module:
        """Two layers of width 512 and 128, without batch norm."""
        return mlp(dims.feature, dims.hidden, min(128, dims.output), hidden_norm=False)

    def losses(self, step: Step) -> dict[str, Tensor]:
        """L_contrast and w · L_forget."""
        features = step.features
        current = F.normalize(full(features.projected), dim=-1)
        past = F.normalize(full(self.past_features(step.views, features)), dim=-1)
        contrast = self._contrast(current, self.compared(features), step.batch)
        forget = relation_distillation(current[0], past, past_gradient=past.requires_grad)
        with torch.no_grad():  # the loss of fewer than three samples is 0
            begins = self.weight.isnan() & (forget > 0)
            self.weight.copy_(torch.where(begins, self.options.forgetting_weight * contrast / forget, self.weight))
        return {"contrast": contrast, "forgetting": self.weight.nan_to_num() * forget}

    def _contrast(self, projected: Tensor, compared: Tensor, batch: Batch) -> Tensor:
        views, n, _ = projected.shape
        first = self.first_anchor(batch)
        row = torch.arange(n, device=projected.device)
        anchors = (row >= first) & (row < first + batch.stream)
        positives = pseudo_positives(compared, own_offset=self.own_offset)
        positives &= anchors[:, None] & anchors[None]
        return supervised_contrastive(projected.flatten(0, 1), positives.repeat(views, views), anchors.repeat(views))

    def first_anchor(self, batch: Batch) -> int:
        """The first row of the anchors: the stream samples come first."""
        return 0

    def compared(self, features: Features) -> Tensor:
        """Features by which pseudo-positive pairs are found, ``(views, n, d)``: those of the backbone, normalised."""
        return F.normalize(full(features.backbone), dim=-1)

    @torch.no_grad()
    def past_features(self, views: Tensor, features: Features) -> Tensor:
        """The past model's projected features of the first view, ``(n, output_dim)``."""
        return self.past(views[:1], features.joint).projected[0]  # type: ignore[no-any-return]

    def after_minibatch(self, encoder: Encoder) -> None:
        """The current model becomes the past model of the next minibatch."""
        copy_weights(self.past, encoder)
