"""Methods with a target network: a copy of the encoder that follows it as a moving average, θ′ ← τ θ′ + (1 − τ) θ."""

from __future__ import annotations

import torch

from ocssl.batch import Step, StepOutput
from ocssl.methods.base import Dims, Method
from ocssl.nn import Encoder, Features, ema_update, frozen_copy
from ocssl.options import setting


class TargetMethod(Method):
    """Base of the methods that compare the encoder with a moving average of itself.

    The target network has its own running statistics; in training both networks use those of the batch, unless the
    strategy holds them, as ``adapt`` does.
    """

    class Options(Method.Options):
        target_tau: float = setting(0.996, "Decay of the target network, a moving average of the encoder.", ge=0, le=1)

    options: Options
    target: Encoder

    def __init__(self, dims: Dims, options: Options | None = None) -> None:
        super().__init__(dims, options)
        self._seen: tuple[Step, Features] | None = None  # from the loss of a step to its end

    def begin(self, encoder: Encoder) -> None:
        """Copy the encoder."""
        self.target = frozen_copy(encoder)

    @torch.no_grad()
    def target_features(self, step: Step) -> Features:
        """The target network's features of all views of the step, from one pass."""
        if self._seen is None or self._seen[0] is not step:
            self._seen = step, self.target(step.views, step.features.joint)
        return self._seen[1]

    def after_step(self, output: StepOutput, encoder: Encoder) -> None:
        """Move the target network towards the encoder."""
        self._seen = None
        ema_update(self.target, encoder, self.options.target_tau)
