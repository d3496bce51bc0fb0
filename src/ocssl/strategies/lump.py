"""LUMP: train on blends of stream and replay samples."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ocssl.batch import Batch, StepOutput
from ocssl.errors import ConfigError
from ocssl.memory import Column, Memory
from ocssl.nn import Encoder
from ocssl.registry import unknown
from ocssl.strategies.base import Setup, Strategy, register


def draw_beta(alpha: float, generator: torch.Generator) -> Tensor:
    """One draw from Beta(alpha, alpha), a scalar: a draw t of Student's law, folded into ½ + ½ t / √(2 alpha + t²).

    Bailey's polar formula gives t from two uniforms without rejection. Fixed shapes and an explicit generator make it
    fit for a captured graph, unlike torch's own distribution.

    >>> bool(0 <= draw_beta(0.4, torch.Generator().manual_seed(0)) <= 1)
    True
    """
    radius, turn = torch.rand(2, generator=generator, device=generator.device, dtype=torch.float64)
    power, cosine = radius ** (1 / alpha), torch.cos(2 * math.pi * turn)
    folded = cosine * torch.sqrt((1 - power) / (power + (1 - power) * cosine**2))
    return (0.5 + 0.5 * folded).clamp(0, 1).float()


@register("lump")
class Lump(Strategy):
    """Both views become λ · stream + (1 − λ) · replay, λ ~ Beta(α, α) once per minibatch.

    Args:
        alpha: of the Beta distribution.
        second_view: where the replay sample's second view comes from: augmented anew (``"fresh"``, authors) or the
            augmented view that entered the memory with it (``"stored"``, origin).
        eager: blend as soon as the memory holds one batch, instead of one more (origin).
    """

    composition = "mixed"
    default_memory = "reservoir"
    variants = {"origin": {"second_view": "stored", "eager": True}}

    def __init__(self, setup: Setup, *, alpha: float = 0.4, second_view: str = "fresh", eager: bool = False) -> None:
        super().__init__(setup)
        if second_view not in ("fresh", "stored"):
            raise unknown("second_view", second_view, ("fresh", "stored"))
        if alpha <= 0:
            raise ConfigError(f"alpha must be positive, not {alpha}")
        self.alpha = alpha
        self.stored_view = second_view == "stored"
        self.eager = eager
        self.image_size = setup.image_size

    def columns(self) -> dict[str, Column]:
        """The second augmented view, where that is replayed."""
        return {"view": Column((3, self.image_size, self.image_size))} if self.stored_view else {}

    def mix(self, views: Tensor, batch: Batch, generator: torch.Generator) -> Tensor:
        """Blend the stream's half of the views with the replay's half."""
        if batch.slots is None:
            return views
        share = draw_beta(self.alpha, generator)
        replay = views[:, batch.replay]
        if self.stored_view:
            replay = torch.stack([replay[0], batch.recalled["view"]])
        return share * views[:, batch.fresh] + (1 - share) * replay

    def after_step(self, output: StepOutput, encoder: Encoder, memory: Memory | None) -> None:
        """Replay samples have no features of their own here: nothing to update."""

    def features_after(self, output: StepOutput) -> dict[str, Tensor]:
        """What the memory may keep: features of the blend, and the stream's second view."""
        return {
            "features": output.features.projected.mean(0),
            "view": output.views[1, output.batch.fresh],
        }

    @property
    def replay_after(self) -> int:
        """One batch in the memory, or one sample more."""
        return self.replay_batch + (not self.eager)
