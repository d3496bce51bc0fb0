"""SCALE: an objective of its own, from pseudo-positive pairs, and distillation of pairwise relations."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ocssl.batch import Batch, StepOutput
from ocssl.losses import full, relation_distillation, supervised_contrastive
from ocssl.memory import Memory
from ocssl.methods import Dims
from ocssl.nn import Encoder, Features, mlp
from ocssl.nn.ema import copy_weights, frozen_copy
from ocssl.registry import unknown
from ocssl.strategies.base import Setup, Strategy, register


@torch.no_grad()
def pseudo_positives(features: Tensor, temperature: float = 0.1, threshold: float = 0.1) -> Tensor:
    """Pairs of samples that look alike enough to count as positives: ``(n, n)`` bool, the diagonal always.

    The likeness of two samples is a symmetric softmax of minus their squared distance over the others, averaged over
    all pairs of views; a pair passes above mean + threshold · (max − mean).

    Args:
        features: ``(views, n, d)``; squared distances are right where they are L2-normalised.

    >>> f = F.normalize(torch.tensor([[[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0]]]), dim=-1)
    >>> pseudo_positives(f).int().tolist()
    [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    """
    features = full(features)
    n = features.shape[1]
    own = torch.eye(n, dtype=torch.bool, device=features.device)
    distance = 2 - 2 * torch.einsum("vid,wjd->vwij", features, features)
    logits = (-distance / temperature).masked_fill(own, float("-inf"))
    likeness = ((logits.softmax(-1) + logits.softmax(-2)) / 2).mean((0, 1))
    others = ~own
    mean = likeness.sum() / (n * (n - 1))
    return (likeness > mean + threshold * (likeness.amax() - mean)) & others | own


@register("scale")
class Scale(Strategy):
    """Contrast of pseudo-positive pairs plus cross-entropy to a past model's pairwise relations.

    Pairs are sought among the anchors, by their backbone features; all other samples repel. Relations are those within
    the first view, and the past model is in evaluation mode.

    Args:
        anchors: whose rows count as anchors: ``"stream"`` (origin), or as many ``"replay"`` rows, which is what the
            authors' order of rows amounts to.
        past: when the past model is copied: once per stream ``"minibatch"`` (origin) or before every ``"pass"``.
        raw: take backbone features as they come to tell who is alike (authors), instead of scaled to length 1.
        share: weight of the forgetting part, fixed on the first step with three samples or more so that it is this
            share of the contrast.
    """

    composition = "stream+replay"
    default_memory = "reservoir"
    own_loss = True
    variants = {"authors": {"anchors": "replay", "past": "pass", "raw": True}, "origin": {}}
    variant_memories = {"origin": "part-and-select"}

    def __init__(
        self,
        setup: Setup,
        *,
        anchors: str = "stream",
        past: str = "minibatch",
        raw: bool = False,
        share: float = 0.15,
    ) -> None:
        super().__init__(setup)
        for option, value, known in (
            ("anchors", anchors, ("stream", "replay")),
            ("past", past, ("minibatch", "pass")),
        ):
            if value not in known:
                raise unknown(option, value, known)
        self.anchors, self.copies, self.raw, self.share = anchors, past, raw, share
        self.past = frozen_copy(setup.encoder).eval()
        self.weight: Tensor
        self.register_buffer("weight", torch.tensor(float("nan")))

    @classmethod
    def projector(cls, dims: Dims) -> nn.Module:
        """512 → 512 → 128, without batch norm."""
        return mlp(dims.feature, dims.hidden, min(128, dims.output), hidden_norm=False)

    def train(self, mode: bool = True) -> Scale:
        """As every module, but the past model stays in evaluation mode."""
        super().train(mode)
        self.past.eval()
        return self

    def losses(self, batch: Batch, views: Tensor, features: Features) -> dict[str, Tensor]:
        """Contrast and forgetting."""
        current = F.normalize(full(features.projected), dim=-1)
        with torch.no_grad():
            past = F.normalize(full(self.past(views[:1], features.joint).projected), dim=-1)
        contrast = self._contrast(current, features.backbone, batch)
        forget = relation_distillation(current[0], past[0])
        with torch.no_grad():  # fewer than three samples have no relations to weigh
            begins = self.weight.isnan() & (forget > 0)
            self.weight.copy_(torch.where(begins, self.share * contrast / forget, self.weight))
        return {"contrast": contrast, "forgetting": self.weight.nan_to_num() * forget}

    def _contrast(self, projected: Tensor, backbone: Tensor, batch: Batch) -> Tensor:
        views, n, _ = projected.shape
        first = batch.stream if self.anchors == "replay" and batch.slots is not None else 0
        row = torch.arange(n, device=projected.device)
        anchors = (row >= first) & (row < first + batch.stream)
        positives = pseudo_positives(backbone if self.raw else F.normalize(full(backbone), dim=-1))
        positives &= anchors[:, None] & anchors[None]
        return supervised_contrastive(projected.flatten(0, 1), positives.repeat(views, views), anchors.repeat(views))

    def after_step(self, output: StepOutput, encoder: Encoder, memory: Memory | None) -> None:
        """The past model of the next pass, where each pass has its own."""
        super().after_step(output, encoder, memory)
        if self.copies == "pass":
            copy_weights(self.past, encoder)

    def after_minibatch(self, encoder: Encoder) -> None:
        """The past model of the next minibatch."""
        if self.copies == "minibatch":
            copy_weights(self.past, encoder)
