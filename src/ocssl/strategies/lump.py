"""LUMP: L = L_SSL(x), the loss of the method on blends x = λ x_stream + (1 − λ) x_replay with λ ~ Beta(α, α).

Divyam Madaan, Jaehong Yoon, Yuanchun Li, Yunxin Liu and Sung Ju Hwang. Representational Continuity for Unsupervised
Continual Learning. ICLR 2022. arXiv:2110.06976.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ocssl.batch import Batch, StepOutput
from ocssl.memory import Memory
from ocssl.nn import Encoder
from ocssl.options import setting
from ocssl.strategies.base import Strategy, register


def draw_beta(alpha: float, generator: torch.Generator) -> Tensor:
    """One draw from Beta(α, α), a scalar: ½ + ½ t / √(2α + t²), where t has Student's distribution.

    Bailey's polar method gives t from two uniform numbers without rejection. Unlike torch's own distribution, it has
    fixed shapes and an explicit generator, so a graph can capture it.

    >>> bool(0 <= draw_beta(0.4, torch.Generator().manual_seed(0)) <= 1)
    True
    """
    radius, turn = torch.rand(2, generator=generator, device=generator.device, dtype=torch.float64)
    power, cosine = radius ** (1 / alpha), torch.cos(2 * math.pi * turn)
    folded = cosine * torch.sqrt((1 - power) / (power + (1 - power) * cosine**2))
    return (0.5 + 0.5 * folded).clamp(0, 1).float()


@register("lump")
class Lump(Strategy):
    """Blends both views of each stream sample with those of a replay sample; λ is drawn once per pass.

    Source: Madaan et al., ICLR 2022, arXiv:2110.06976.
    """

    label = "LUMP"

    class Options(Strategy.Options):
        alpha: float = setting(0.4, "Both parameters of the Beta distribution of λ.", symbol="α", gt=0)

    options: Options

    composition = "mixed"
    default_memory = "reservoir"

    def mix(self, views: Tensor, batch: Batch, generator: torch.Generator) -> Tensor:
        """The blended views, ``(views, b_s, 3, s, s)``."""
        if batch.slots is None:
            return views
        share = draw_beta(self.options.alpha, generator)
        return share * views[:, batch.fresh] + (1 - share) * self.replay_views(views, batch)

    def replay_views(self, views: Tensor, batch: Batch) -> Tensor:
        """The views of the replay samples, ``(views, b_s, 3, s, s)``."""
        return views[:, batch.replay]

    def after_step(self, output: StepOutput, encoder: Encoder, memory: Memory | None) -> None:
        """Nothing: replay samples have no features of their own."""

    def features_after(self, output: StepOutput) -> dict[str, Tensor]:
        """The features of the blend."""
        return {"features": output.features.projected.mean(0)}
