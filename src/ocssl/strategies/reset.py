"""Replay with resets: now and then the encoder goes back towards its weights at the start, θ ← k θ + (1 − k) θ₀.

Networks that learn for long learn new things ever more slowly; a reset is the simplest remedy, and a baseline for all
others. With k > 0 it is the shrink-and-perturb of:

Jordan T. Ash and Ryan P. Adams. On Warm-Starting Neural Network Training. NeurIPS 2020. arXiv:1910.08475.
"""

from __future__ import annotations

from collections.abc import Mapping

from ocssl.nn import Encoder, frozen_copy
from ocssl.nn.ema import copy_weights, ema_update
from ocssl.optim import Optimizer
from ocssl.options import setting
from ocssl.strategies.base import Setup, register
from ocssl.strategies.replay import ExperienceReplay


@register("reset")
class Reset(ExperienceReplay):
    """Replay, and after every so many images the encoder is set back.

    The memory, the heads and target networks of the method, and the average that is deployed stay as they are.

    Source: Ash and Adams, NeurIPS 2020, arXiv:1910.08475.
    """

    label = "ER with resets"

    class Options(ExperienceReplay.Options):
        reset_every: int = setting(10_000, "Images between two resets.", ge=1)
        reset_keep: float = setting(0.0, "Share of the learned weights that a reset keeps.", ge=0, lt=1)

    options: Options

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup, options)
        self.start = frozen_copy(setup.encoder)
        self.resets = 0

    def on_host(self, seen: int, encoder: Encoder, optimizer: Optimizer) -> None:
        """Set the encoder back, and let the optimiser forget, when the next ``reset_every`` images are over."""
        before, self.resets = self.resets, seen // self.options.reset_every
        if self.resets <= before:
            return
        if self.options.reset_keep:
            ema_update(encoder, self.start, self.options.reset_keep)
        else:
            copy_weights(encoder, self.start)
        optimizer.reset()

    def host_state(self) -> dict[str, int | float | bool]:
        """Number of resets so far."""
        return {"resets": self.resets}

    def load_host_state(self, state: Mapping[str, int | float | bool]) -> None:
        """Number of resets so far."""
        self.resets = int(state["resets"])
