"""Strategies that only choose what to train on: nothing old, some of it, or the least redundant of it."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from ocssl.batch import StepOutput
from ocssl.memory import Column, Memory
from ocssl.nn import Encoder
from ocssl.registry import unknown
from ocssl.strategies.base import Setup, Strategy, register


@register("finetune")
class Finetune(Strategy):
    """The stream and nothing else; on an i.i.d. stream this is i.i.d. training."""


@register("er")
class ExperienceReplay(Strategy):
    """Each batch is the stream minibatch and samples from the memory."""

    composition = "stream+replay"
    default_memory = "reservoir"


@register("minred")
class MinimumRedundancy(Strategy):
    """The stream goes straight into the memory, and training batches come from the memory alone.

    Args:
        entry: ``"described"``: newcomers enter with features from an extra pass of the plain images (authors);
            ``"bare"``: they have none until they are first replayed (origin).
        normalize: keep stored features at length 1 (origin).
    """

    composition = "replay"
    default_memory = "minred"
    insert_at = "before"
    variants = {"origin": {"entry": "bare", "normalize": True}}
    memory_variants = {"origin": {"drops": "simultaneous"}}

    def __init__(self, setup: Setup, *, entry: str = "described", normalize: bool = False) -> None:
        super().__init__(setup)
        if entry not in ("described", "bare"):
            raise unknown("entry", entry, ("described", "bare"))
        self.entry = entry
        self.normalize = normalize
        self.output_dim = setup.output_dim

    def columns(self) -> dict[str, Column]:
        """One feature per sample."""
        return {"features": Column((self.output_dim,))}

    def features_before(self, plain: Tensor, encoder: Encoder) -> dict[str, Tensor]:
        """Features of the plain images, unless newcomers enter bare.

        In evaluation mode, so that the extra pass leaves the running statistics alone.
        """
        if self.entry == "bare":
            return {}
        encoder.eval()
        features = encoder(plain[None], joint=True).projected[0]
        encoder.train()
        return {"features": F.normalize(features, dim=-1) if self.normalize else features}

    def after_step(self, output: StepOutput, encoder: Encoder, memory: Memory | None) -> None:
        """Replayed samples move their stored feature halfway to the new one."""
        slots = output.batch.slots
        if memory is not None and slots is not None:
            replayed = output.features.projected[:, output.batch.replay].mean(0)
            if self.normalize:
                replayed = F.normalize(replayed, dim=-1)
            memory.update_features(slots, replayed, normalize=self.normalize)
