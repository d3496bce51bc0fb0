"""MoCo: L = −mean over ordered pairs of views of log( exp(q₁·k₂/t) / (exp(q₁·k₂/t) + Σₖ exp(q₁·k/t)) ).

q are the features of the encoder and k₂ those of the target network, at length 1; the sum is over the keys of a queue,
and t is the temperature. The target network is a moving average of the encoder. After a step its features of all views
enter the queue. Loss, head and temperature are those of version 2. There only the first view is a query; here every
view is one, and the batch is not shuffled for the target's batch norm.

Kaiming He, Haoqi Fan, Yuxin Wu, Saining Xie and Ross Girshick. Momentum Contrast for Unsupervised Visual Representation
Learning. CVPR 2020. arXiv:1911.05722.

Version 2: Xinlei Chen, Haoqi Fan, Ross Girshick and Kaiming He. Improved Baselines with Momentum Contrastive Learning.
2020. arXiv:2003.04297.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ocssl.batch import Step, StepOutput
from ocssl.losses import contrastive_distillation, full, info_nce, info_nce_losses
from ocssl.methods.base import Dims, register
from ocssl.methods.target import TargetMethod
from ocssl.nn import Encoder, mlp
from ocssl.options import setting


@register("moco")
class MoCo(TargetMethod):
    """Tells the other views of a sample from the features of earlier samples in a queue.

    Source: He et al., CVPR 2020, arXiv:1911.05722; version 2, Chen et al., 2020, arXiv:2003.04297.
    """

    class Options(TargetMethod.Options):
        target_tau: float = TargetMethod.Options.with_default("target_tau", 0.999)
        temperature: float = setting(0.2, "Divisor of the cosine similarities in the contrastive loss.", gt=0)
        queue_size: int = setting(4096, "Features in the queue, which are the negatives.", ge=1, le=524_288)

    options: Options
    queue: Tensor
    pointer: Tensor

    def __init__(self, dims: Dims, options: Options | None = None) -> None:
        super().__init__(dims, options)
        self.register_buffer("queue", F.normalize(torch.randn(self.options.queue_size, dims.output), dim=-1))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.int64))
        self._keys: Tensor | None = None  # from the loss of a step to its end

    def projector(self) -> nn.Module:
        """Two layers without batch norm."""
        return mlp(self.dims.feature, self.dims.hidden, self.dims.output, hidden_norm=False)

    def loss(self, step: Step) -> Tensor:
        """InfoNCE of each view and the target network's features of the other views."""
        self._keys = self.target_features(step).projected
        others = self._others(self._keys)
        return info_nce(step.features.projected, others, self.queue, temperature=self.options.temperature)

    def sample_losses(self, step: Step) -> Tensor:
        """InfoNCE of each sample."""
        others = self._others(self.target_features(step).projected)
        return info_nce_losses(step.features.projected, others, self.queue, self.options.temperature).mean((0, 1))

    @staticmethod
    def _others(keys: Tensor) -> Tensor:
        """For each view, the keys of every other view in turn: ``(views − 1, views, n, d)``."""
        return torch.stack([keys.roll(shift, 0) for shift in range(1, len(keys))])

    def after_step(self, output: StepOutput, encoder: Encoder) -> None:
        """Move the target network, and put the keys into the queue, in place of the oldest."""
        super().after_step(output, encoder)
        if self._keys is not None:
            self.enqueue(self._keys)
            self._keys = None

    def enqueue(self, keys: Tensor) -> None:
        """Write keys ``(views, n, d)`` into the queue, all views of a sample after each other.

        Where there are more keys than slots, the last ones remain.
        """
        size = len(self.queue)
        rows = F.normalize(full(keys), dim=-1).transpose(0, 1).flatten(0, 1)[-size:]
        slots = (self.pointer + torch.arange(len(rows), device=rows.device)) % size
        self.queue.index_copy_(0, slots, rows.to(self.queue.dtype))
        self.pointer.copy_((self.pointer + len(rows)) % size)

    def distance(self, predicted: Tensor, target: Tensor) -> Tensor:
        """InfoNCE of prediction and target, with the queue as negatives."""
        return info_nce(predicted, target, self.queue, temperature=self.options.temperature)

    def distillation(self, predicted: Tensor, target: Tensor) -> Tensor:
        """Predictions against targets over all views at once, at temperature 0.2, as for SimCLR."""
        return contrastive_distillation(predicted, target)
