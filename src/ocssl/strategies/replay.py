"""Strategies that add nothing to the loss of the method: they only choose the training batches."""

from __future__ import annotations

from torch import Tensor

from ocssl.memory import Column
from ocssl.nn import Encoder
from ocssl.strategies.base import Setup, Strategy, register


@register("finetune")
class Finetune(Strategy):
    """Trains on the stream alone; on an i.i.d. stream this is i.i.d. training."""

    label = "finetuning"


@register("er")
class ExperienceReplay(Strategy):
    """Trains on the stream minibatch and samples from the memory."""

    label = "ER"
    composition = "stream+replay"
    default_memory = "reservoir"


@register("minred")
class MinimumRedundancy(Strategy):
    """Inserts the stream into the memory and trains on samples from the memory alone."""

    label = "MinRed"
    composition = "replay"
    default_memory = "minred"
    insert_at = "before"

    def __init__(self, setup: Setup, options: Strategy.Options) -> None:
        super().__init__(setup, options)
        self.output_dim = setup.output_dim

    def columns(self) -> dict[str, Column]:
        """One feature per sample."""
        return {"features": Column((self.output_dim,))}

    def features_before(self, plain: Tensor, encoder: Encoder) -> dict[str, Tensor]:
        """Features of the normalised images, in evaluation mode, so that the running statistics do not change."""
        encoder.eval()
        features = encoder(plain[None], joint=True).projected[0]
        encoder.train()
        return {"features": features}
