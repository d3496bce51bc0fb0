"""Heads: their layers are those of the papers."""

from __future__ import annotations

import torch
from torch import nn

from ocssl.methods import EMP, Dims, SimCLR
from ocssl.nn import mlp, predictor, projector


def described(head: nn.Sequential) -> list[str]:
    words = []
    for layer in head:
        match layer:
            case nn.Linear():
                words.append(f"{layer.in_features}→{layer.out_features}" + (" bias" if layer.bias is not None else ""))
            case nn.BatchNorm1d():
                words.append(f"norm {layer.num_features}" + (" affine" if layer.affine else ""))
            case nn.ReLU():
                words.append("relu")
    return words


def test_the_projector_is_that_of_the_paper():
    hidden = ["512→512", "norm 512 affine", "relu"]
    assert described(projector(512, 512, 2048)) == [*hidden, *hidden, "512→2048", "norm 2048"]


def test_simclr_takes_the_projector_of_emp_instead():
    dims = Dims(512, 4096, 1024)
    two = ["512→4096", "norm 4096 affine", "relu", "4096→1024 bias"]
    assert described(EMP(dims).projector()) == two
    assert described(SimCLR(dims, SimCLR.Options(projector_layers=2)).projector()) == two
    assert described(SimCLR(dims).projector())[-1] == "norm 1024"


def test_predictor_and_aligner_are_the_bottleneck_of_the_paper():
    assert described(predictor(2048, 512)) == ["2048→512", "norm 512 affine", "relu", "512→2048 bias"]


def test_an_mlp_without_norms_is_plain_linear_layers_with_bias():
    assert described(mlp(512, 512, 128, hidden_norm=False)) == ["512→512 bias", "relu", "512→128 bias"]


def test_projected_features_have_mean_zero_and_variance_one_over_the_batch():
    out = projector(6, 8, 10)(torch.randn(50, 6))
    torch.testing.assert_close(out.mean(0), torch.zeros(10), atol=1e-5, rtol=0)
    torch.testing.assert_close(out.var(0, unbiased=False), torch.ones(10), atol=1e-2, rtol=0)
