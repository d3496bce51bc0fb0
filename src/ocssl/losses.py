"""Pure functions from features to a scalar loss. No state, no modules.

Features are float tensors whose last axis is the feature; the axis before it is the batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec

import torch
import torch.nn.functional as F
from torch import Tensor

P = ParamSpec("P")


def full(tensor: Tensor) -> Tensor:
    """float16 and bfloat16 as float32; other types unchanged.

    >>> full(torch.ones(1, dtype=torch.bfloat16)).dtype, full(torch.ones(1, dtype=torch.float64)).dtype
    (torch.float32, torch.float64)
    """
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def _full_precision(loss: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Compute a loss in float32 even under autocast, because low temperatures amplify the rounding of bfloat16."""

    @functools.wraps(loss)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        device = next(value.device.type for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
        with torch.autocast(device, enabled=False):
            return loss(*map(_raised, args), **{name: _raised(value) for name, value in kwargs.items()})  # type: ignore[arg-type]

    return wrapped


def _raised(value: object) -> object:
    return full(value) if isinstance(value, Tensor) else value


@_full_precision
def negative_cosine(predicted: Tensor, target: Tensor) -> Tensor:
    """−cos(predicted, target), averaged over all axes but the last. The target receives no gradient.

    Args:
        predicted: ``(..., d)``.
        target: ``(..., d)``, broadcast against ``predicted``.

    >>> a = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    >>> negative_cosine(a, a).item()
    -1.0
    """
    return -F.cosine_similarity(predicted, target.detach(), dim=-1).mean()


def between_views(loss: Callable[[Tensor, Tensor], Tensor], predicted: Tensor, target: Tensor) -> Tensor:
    """The mean of a loss over all ordered pairs of different views.

    Args:
        loss: of ``(views, n, d)`` and ``(views, n, d)``, a mean over the views.
        predicted, target: ``(views, n, d)``.

    >>> z = torch.eye(3)[:, None]
    >>> between_views(negative_cosine, z, z + 1).item() == negative_cosine(z[0], z[1] + 1).item()
    True
    """
    return torch.stack([loss(predicted, target.roll(shift, 0)) for shift in range(1, len(predicted))]).mean()


@_full_precision
def nt_xent(*views: Tensor, temperature: float = 0.5) -> Tensor:
    """Normalised-temperature cross-entropy: each view of a sample finds the others among all views of the batch.

    The mean over all anchors and over their v − 1 positives; with two views, 2n anchors with 2n − 2 negatives each.

    Args:
        views: two or more, each ``(n, d)``, of the same n samples in the same order.
        temperature: divides the cosine similarities.

    >>> z = torch.eye(2)
    >>> round(nt_xent(z, z, temperature=1.0).item(), 4)   # log(e + 2) − 1
    0.5514
    """
    rows = F.normalize(torch.cat(views), dim=-1)
    logits = rows @ rows.T / temperature
    logits = logits.masked_fill(torch.eye(len(rows), dtype=torch.bool, device=rows.device), float("-inf"))
    row, found = torch.arange(len(rows), device=rows.device), logits.log_softmax(dim=1)
    shifts = range(len(views[0]), len(rows), len(views[0]))
    return torch.stack([F.nll_loss(found, row.roll(shift)) for shift in shifts]).mean()


@_full_precision
def contrastive_distillation(predicted: Tensor, target: Tensor, temperature: float = 0.2) -> Tensor:
    """Contrastive loss between predictions and targets: each finds its partner among all of the other kind.

    The mean of two cross-entropies, one over the targets for each prediction and one over the predictions for each
    target. Predictions are not compared with each other.

    Args:
        predicted: ``(views, n, d)`` or ``(n, d)``.
        target: of the same shape; receives no gradient.
        temperature: divides the cosine similarities.

    >>> z = torch.eye(2)
    >>> round(contrastive_distillation(z, z, temperature=1.0).item(), 4)   # log(e + 1) − 1
    0.3133
    """
    predicted, target = (F.normalize(rows.reshape(-1, rows.shape[-1]), dim=-1) for rows in (predicted, target.detach()))
    logits = predicted @ target.T / temperature
    partner = torch.arange(len(logits), device=logits.device)
    return (F.cross_entropy(logits, partner) + F.cross_entropy(logits.T, partner)) / 2


@_full_precision
def supervised_contrastive(
    features: Tensor, positives: Tensor, anchors: Tensor, temperature: float = 0.1, base: float = 0.07
) -> Tensor:
    """Contrastive loss with several positives per anchor, given by a mask.

    For each anchor row, the mean over its positives of −log softmax of the similarities to all other rows, times
    ``temperature / base``; averaged over the anchors. An anchor without positives contributes nothing.

    Args:
        features: ``(n, d)``, L2-normalised.
        positives: ``(n, n)`` bool; the diagonal is ignored.
        anchors: ``(n,)`` bool, which rows count as anchors.

    >>> f = F.normalize(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), dim=-1)
    >>> pairs = torch.tensor([[0, 1, 0], [1, 0, 0], [0, 0, 0]]).bool()
    >>> round(supervised_contrastive(f, pairs, torch.tensor([True, True, False]), 1.0, 1.0).item(), 4)
    0.3133
    """
    other = ~torch.eye(len(features), dtype=torch.bool, device=features.device)
    logits = features @ features.T / temperature
    log_probability = logits - logits.masked_fill(~other, float("-inf")).logsumexp(dim=1, keepdim=True)
    weights = (positives & other).to(features.dtype)
    per_anchor = -(weights * log_probability).sum(1) / weights.sum(1).clamp(min=1)
    counted = (anchors & (weights.sum(1) > 0)).to(features.dtype)
    return temperature / base * (per_anchor * counted).sum() / counted.sum().clamp(min=1)


@_full_precision
def relation_distillation(
    current: Tensor,
    past: Tensor,
    temperature: float = 0.1,
    past_temperature: float = 0.01,
    past_gradient: bool = False,
) -> Tensor:
    """Cross-entropy between the past and the current model's softmaxed similarities of each sample to the others.

    It is 0 for one or two samples.

    Args:
        current: ``(n, d)``, L2-normalised features of the model in training.
        past: ``(n, d)``, L2-normalised features of the past model.
        past_gradient: let the gradient reach ``past`` too.

    >>> f = F.normalize(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), dim=-1)
    >>> bool(relation_distillation(f, f, 0.1, 0.1) < relation_distillation(f.flip(0).roll(1, 0), f, 0.1, 0.1))
    True
    """
    n = len(current)
    other = ~torch.eye(n, dtype=torch.bool, device=current.device)

    def relations(rows: Tensor, scale: float) -> Tensor:
        return (rows @ rows.T / scale).masked_fill(~other, float("-inf"))

    target = (
        relations(past if past_gradient else past.detach(), past_temperature).softmax(dim=1).masked_fill(~other, 0.0)
    )
    log_student = relations(current, temperature).log_softmax(dim=1).masked_fill(~other, 0.0)
    return -(target * log_student).sum(dim=1).mean()


@_full_precision
def cross_contrast(here: Tensor, there: Tensor, temperature: float = 0.1) -> Tensor:
    """The cross loss of Osiris in one direction: positives are the two views of a sample, negatives the other set.

    Args:
        here: ``(2, n, d)``, both views of the anchors.
        there: ``(2, m, d)``, both views of the negatives.

    >>> here = torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]]])
    >>> there = torch.tensor([[[0.0, 1.0]], [[0.0, 1.0]]])
    >>> round(cross_contrast(here, there, 1.0).item(), 4)   # log(e + 2) − 1
    0.5514
    """
    here, there = F.normalize(here, dim=-1), F.normalize(there, dim=-1)
    negatives = here.flatten(0, 1) @ there.flatten(0, 1).T / temperature
    positive = (here[0] * here[1]).sum(-1).repeat(2) / temperature
    logits = torch.cat([positive[:, None], negatives], dim=1)
    return (logits.logsumexp(dim=1) - positive).mean()


@_full_precision
def contrast_with(anchors: Tensor, positives: Tensor, negatives: tuple[Tensor, ...], temperature: float) -> Tensor:
    """−log softmax of each anchor's similarity to its positive, against given features of all other samples.

    Args:
        anchors, positives: ``(views, n, d)``.
        negatives: each ``(views, n, d)``, of the same n samples; rows of the anchor's own sample are left out.
        temperature: divides the cosine similarities.

    >>> z = torch.eye(2).repeat(2, 1, 1)
    >>> round(contrast_with(z, z, (z,), 1.0).item(), 4)   # log(e + 2) − 1
    0.5514
    """
    views, n, _ = anchors.shape
    rows = F.normalize(anchors, dim=-1).flatten(0, 1)
    positive = (rows * F.normalize(positives, dim=-1).flatten(0, 1)).sum(-1, keepdim=True)
    bank = F.normalize(full(torch.cat([features.flatten(0, 1) for features in negatives])), dim=-1)
    own = torch.eye(n, dtype=torch.bool, device=rows.device).repeat(views, len(bank) // n)
    logits = torch.cat([positive, (rows @ bank.T).masked_fill(own, float("-inf"))], dim=1) / temperature
    return (logits.logsumexp(dim=1) - logits[:, 0]).mean()
