"""Pure functions of features: losses, the losses of each sample, and what they are computed from. No state, no modules.

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


def full_precision(loss: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Decorator: a function of tensors is computed in float32, also where the networks run in bfloat16.

    Products of matrices are rounded under autocast, whatever their inputs are; low temperatures amplify that.

    >>> similarities = full_precision(lambda a, b: a @ b.T)
    >>> with torch.autocast("cpu", dtype=torch.bfloat16):
    ...     (torch.ones(2, 2) @ torch.ones(2, 2)).dtype, similarities(torch.ones(2, 2), torch.ones(2, 2)).dtype
    (torch.bfloat16, torch.float32)
    """

    @functools.wraps(loss)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        device = next(value.device.type for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
        with torch.autocast(device, enabled=False):
            return loss(*map(_raised, args), **{name: _raised(value) for name, value in kwargs.items()})  # type: ignore[arg-type]

    return wrapped


def _raised(value: object) -> object:
    return full(value) if isinstance(value, Tensor) else value


def negative_cosine(predicted: Tensor, target: Tensor) -> Tensor:
    """−cos(predicted, target), averaged over all axes but the last. The target receives no gradient.

    Args:
        predicted: ``(..., d)``.
        target: ``(..., d)``, broadcast against ``predicted``.

    >>> a = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    >>> negative_cosine(a, a).item()
    -1.0
    """
    return cosine_losses(predicted, target.detach()).mean()


@full_precision
def cosine_losses(predicted: Tensor, target: Tensor) -> Tensor:
    """−cos(predicted, target) of rows ``(..., d)``: ``(...)``."""
    return -F.cosine_similarity(predicted, target, dim=-1)


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


@torch.no_grad()
def each_sample(loss: Callable[[Tensor, Tensor], Tensor], predicted: Tensor, target: Tensor) -> Tensor:
    """As :func:`between_views`, but the mean of each sample, ``(n,)``.

    Args:
        loss: of ``(views, n, d)`` and ``(views, n, d)``, to ``(views, n)``.
        predicted, target: ``(views, n, d)``.

    >>> z = torch.eye(2).repeat(2, 1, 1)
    >>> each_sample(cosine_losses, z, z).tolist()
    [-1.0, -1.0]
    """
    return torch.stack([loss(predicted, target.roll(shift, 0)) for shift in range(1, len(predicted))]).mean((0, 1))


def per_view(loss: Callable[[Tensor], Tensor], predicted: Tensor, target: Tensor) -> Tensor:
    """The mean over views of a loss of prediction and target, ``(2, n, d)``; the target receives no gradient."""
    return torch.stack([loss(torch.stack(pair)) for pair in zip(predicted, target.detach(), strict=True)]).mean()


@full_precision
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
    log_shares, partners = _log_shares(views, temperature)
    return torch.stack([F.nll_loss(log_shares, partner) for partner in partners]).mean()


@full_precision
def nt_xent_losses(*views: Tensor, temperature: float = 0.5) -> Tensor:
    """:func:`nt_xent` of each sample, ``(n,)``: the mean over its views.

    >>> nt_xent_losses(torch.eye(2), torch.eye(2), temperature=1.0).mul(10_000).round().tolist()
    [5514.0, 5514.0]
    """
    log_shares, partners = _log_shares(views, temperature)
    losses = torch.stack([F.nll_loss(log_shares, partner, reduction="none") for partner in partners])
    return losses.view(len(partners), len(views), -1).mean((0, 1))


def _log_shares(views: tuple[Tensor, ...], temperature: float) -> tuple[Tensor, list[Tensor]]:
    """For each view of each sample the log softmax of its similarities to all others, and the rows of its partners."""
    rows = F.normalize(torch.cat(views), dim=-1)
    logits = rows @ rows.T / temperature
    logits = logits.masked_fill(torch.eye(len(rows), dtype=torch.bool, device=rows.device), float("-inf"))
    n, row = len(views[0]), torch.arange(len(rows), device=rows.device)
    return logits.log_softmax(dim=1), [row.roll(shift) for shift in range(n, len(rows), n)]


@full_precision
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


@full_precision
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
    own = torch.eye(len(features), dtype=torch.bool, device=features.device)
    logits = features @ features.T / temperature
    log_probability = logits - logits.masked_fill(own, float("-inf")).logsumexp(dim=1, keepdim=True)
    weights = (positives & ~own).to(features.dtype)
    per_anchor = -(weights * log_probability).sum(1) / weights.sum(1).clamp(min=1)
    counted = (anchors & (weights.sum(1) > 0)).to(features.dtype)
    return temperature / base * (per_anchor * counted).sum() / counted.sum().clamp(min=1)


@full_precision
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
    own = torch.eye(len(current), dtype=torch.bool, device=current.device)

    def relations(rows: Tensor, scale: float) -> Tensor:
        return (rows @ rows.T / scale).masked_fill(own, float("-inf"))

    if not past_gradient:
        past = past.detach()
    target = relations(past, past_temperature).softmax(dim=1).masked_fill(own, 0.0)
    log_student = relations(current, temperature).log_softmax(dim=1).masked_fill(own, 0.0)
    return -(target * log_student).sum(dim=1).mean()


@full_precision
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


@full_precision
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


# ---------------------------------------------------------------------- losses of one method each


def info_nce(query: Tensor, key: Tensor, queue: Tensor, temperature: float = 0.2) -> Tensor:
    """Each query finds its key among the vectors of a queue; the mean over all queries and keys.

    Args:
        query: ``(..., n, d)``.
        key: ``(..., n, d)``, broadcast against ``query``; receives no gradient.
        queue: ``(k, d)``, the negatives, of length 1.
        temperature: divides the cosine similarities.

    >>> z = torch.eye(3)
    >>> round(info_nce(z[:1], z[:1], z[1:], temperature=1.0).item(), 4)   # log(e + 2) − 1
    0.5514
    """
    return info_nce_losses(query, key, queue, temperature).mean()


@full_precision
def info_nce_losses(query: Tensor, key: Tensor, queue: Tensor, temperature: float = 0.2) -> Tensor:
    """:func:`info_nce` of each query and key: ``(..., n)``."""
    query, key = F.normalize(query, dim=-1), F.normalize(key.detach(), dim=-1)
    positive = (query * key).sum(-1) / temperature
    negatives = (query @ queue.T / temperature).logsumexp(-1)
    return torch.logaddexp(positive, negatives) - positive


@full_precision
def barlow_twins(views: Tensor, redundancy: float = 0.0051) -> Tensor:
    """Σₖ (1 − Cₖₖ)² + λ Σₖ≠ₗ Cₖₗ² with the cross-correlation C of two views; the mean over all pairs of views.

    The sum of all Cₖₗ² is computed from the n × n products of samples, which is less work than C where n < d.

    Args:
        views: ``(views, n, d)``.
        redundancy: λ.

    >>> z = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    >>> round(barlow_twins(torch.stack([z, z.flip(1)]), redundancy=0.5).item(), 3)   # C = [[0, 1], [1, 0]]
    3.0
    """
    count, n, _ = views.shape
    centred = views - views.mean(1, keepdim=True)
    normal = centred * torch.rsqrt(centred.square().mean(1, keepdim=True) + 1e-5)
    products = normal @ normal.mT / n
    diagonal = torch.einsum("vnd,wnd->vwd", normal, normal) / n
    everything = torch.einsum("vab,wab->vw", products, products)
    pairs = (1 - diagonal).square().sum(-1) + redundancy * (everything - diagonal.square().sum(-1))
    different = 1 - torch.eye(count, dtype=pairs.dtype, device=pairs.device)
    return (pairs * different).sum() / (count * (count - 1))


@full_precision
def vicreg(views: Tensor, invariance: float = 25.0, variance: float = 25.0, covariance: float = 1.0) -> Tensor:
    """Squared distances of the views, a hinge on standard deviations below 1, and squared covariances.

    The mean over pairs of views of their mean squared difference, the mean over views of the hinge, and twice the mean
    over views of the sum of squared covariances divided by d, each with its weight.

    Args:
        views: ``(views, n, d)``.

    >>> z = torch.tensor([[2.0, 2.0], [2.0, -2.0], [-2.0, 2.0], [-2.0, -2.0]])   # deviations above 1, no covariance
    >>> round(vicreg(torch.stack([z, z + 1])).item(), 3)
    25.0
    """
    count, n, d = views.shape
    spread = 2 * count / (count - 1) * (views - views.mean(0)).square().mean()
    centred = views - views.mean(1, keepdim=True)
    variances = centred.square().sum(1) / max(n - 1, 1)
    hinge = F.relu(1 - torch.sqrt(variances + 1e-4)).mean()
    products = centred @ centred.mT / max(n - 1, 1)
    others = (products.square().sum() - variances.square().sum()) / (count * d)
    return invariance * spread + variance * hinge + covariance * 2 * others


@full_precision
def prototype_scores(features: Tensor, prototypes: Tensor) -> Tensor:
    """The cosine of every feature ``(..., n, d)`` and every prototype ``(k, d)``: ``(..., n, k)``."""
    return F.normalize(features, dim=-1) @ F.normalize(prototypes, dim=-1).T


@full_precision
def sinkhorn(scores: Tensor, epsilon: float = 0.05, iterations: int = 3) -> Tensor:
    """Soft assignments of samples to prototypes that use all prototypes about equally, without gradient.

    Columns and rows of exp(scores / ε) are scaled in turn until each prototype has n / k samples; at the end each row
    sums to 1.

    Args:
        scores: ``(..., n, k)``.
        epsilon: ε. A row or column in which every score is more than 100 ε below the largest of all becomes NaN.

    >>> sinkhorn(torch.tensor([[1.0, 0.9], [1.0, 0.0]])).argmax(1).tolist()   # one sample each
    [1, 0]
    """
    scores = scores.detach()
    shares = ((scores - scores.amax((-2, -1), keepdim=True)) / epsilon).exp()
    for _ in range(iterations):
        shares = shares / shares.sum(-2, keepdim=True)
        shares = shares / shares.sum(-1, keepdim=True)
    return shares


def soft_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """−Σₖ target log softmax(logits), averaged over all axes but the last. The target receives no gradient.

    >>> round(soft_cross_entropy(torch.zeros(1, 4), torch.full((1, 4), 0.25)).item(), 4)   # log 4
    1.3863
    """
    return cross_entropies(logits, target.detach()).mean()


@full_precision
def cross_entropies(logits: Tensor, target: Tensor) -> Tensor:
    """−Σₖ target log softmax(logits) of rows ``(..., k)``: ``(...)``."""
    return -(target * logits.log_softmax(-1)).sum(-1)


@full_precision
def mean_agreement(views: Tensor) -> Tensor:
    """The cosine of each view and the mean of all views of a sample, averaged: ``(views, n, d)`` to a scalar.

    Features are taken at length 1. The gradient goes through the mean, too.

    >>> round(mean_agreement(torch.eye(2)[:, None]).item(), 4)   # cos 45°
    0.7071
    """
    unit = F.normalize(views, dim=-1)
    return F.cosine_similarity(unit, unit.mean(0, keepdim=True), dim=-1).mean()


@full_precision
def coding_rate(features: Tensor, epsilon: float = 0.2) -> Tensor:
    """½ log det(I + d/(n ε) Z Zᵀ) of rows Z at length 1, averaged over all axes but the last two.

    The determinant of the n × n matrix equals that of the d × d matrix I + d/(n ε) Zᵀ Z.

    Args:
        features: ``(..., n, d)``.

    >>> round(coding_rate(torch.eye(2), epsilon=1.0).item(), 4)   # ½ log 2²
    0.6931
    """
    n, d = features.shape[-2:]
    # The eigenvalues lie between 1 and 1 + d/ε. In float32 the gradient is off by up to 10⁻⁸ d/ε, 0.1 % at 10⁵, and the
    # factorisation fails at 10⁷. To check it would wait for the device.
    precise = features.double() if d / epsilon > 1e5 else features
    unit = F.normalize(precise, dim=-1)
    matrix = torch.eye(n, dtype=unit.dtype, device=unit.device) + d / (n * epsilon) * unit @ unit.mT
    factor: Tensor = torch.linalg.cholesky_ex(matrix, check_errors=False).L
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1).mean().to(features.dtype)


@full_precision
def sigreg(features: Tensor, directions: Tensor, reach: float = 5.0, knots: int = 17) -> Tensor:
    """Sliced Epps–Pulley statistic: how far features are from an isotropic standard normal distribution.

    n ∫ |φₙ(t) − exp(−t²/2)|² exp(−t²/2) dt over [−reach, reach] by the trapezoidal rule, with the empirical
    characteristic function φₙ of the features along each direction; the mean over directions and over all axes but the
    last two.

    Args:
        features: ``(..., n, d)``.
        directions: ``(d, m)``, each column of any length.
        knots: points of the rule, an odd number.

    >>> round(sigreg(torch.zeros(1, 3), torch.eye(3)).item(), 4)   # √(2π) (1 − 2/√2 + 1/√3)
    0.4089
    """
    t = torch.linspace(0, reach, knots // 2 + 1, dtype=features.dtype, device=features.device)
    normal = torch.exp(-t.square() / 2)
    weight = normal * 2 * reach / (knots // 2)  # both halves of a symmetric integrand
    weight = torch.cat([weight[:1] / 2, weight[1:-1], weight[-1:] / 2])
    angles = (features @ F.normalize(directions, dim=0))[..., None] * t
    error = (angles.cos().mean(-3) - normal).square() + angles.sin().mean(-3).square()
    return features.shape[-2] * (error @ weight).mean()
