"""Adapting a trained network to a stream without losing it: L = L_SSL + ω · mean over views of −cos(A f, f₀).

f are backbone features of the network in training, f₀ those of the original network, which is frozen, and A is a
learned linear map that starts as the identity. What is deployed has the weights α θ̄ + (1 − α) θ₀: θ̄ is a moving average
of the backbone's weights, and θ₀ are the original's. By default ω is 0.

Where ``train=lora:R``, a linear layer has the weights W₀ + B A in training, and only A and B learn. After each step the
backbone gets these sums as its weights, so it is an ordinary network, and average, mixture and exports know nothing of
A and B. A method's target network follows one step later than otherwise.

The strategy is our own. Alignment to the past through a learned map is that of CaSSLe (arXiv:2112.04215) and CLA
(arXiv:2507.10434). Mixed weights come from:

Mitchell Wortsman, Gabriel Ilharco, Jong Wook Kim, Mike Li, Simon Kornblith, Rebecca Roelofs, Raphael Gontijo-Lopes,
Hannaneh Hajishirzi, Ali Farhadi, Hongseok Namkoong and Ludwig Schmidt. Robust Fine-Tuning of Zero-Shot Models. CVPR
2022. arXiv:2109.01903.

LoRA is that of Hu et al., ICLR 2022, arXiv:2106.09685.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Annotated, Any, ClassVar, Literal

import annotated_types
import torch
from torch import Tensor, nn
from torch.func import functional_call

from ocssl.batch import Step, StepOutput
from ocssl.errors import ConfigError
from ocssl.losses import negative_cosine
from ocssl.memory import Memory
from ocssl.methods import TargetMethod
from ocssl.nn import Average, Encoder, Features, Head, frozen_copy
from ocssl.nn.blocks import blocks, select_trained
from ocssl.nn.ema import copy_weights
from ocssl.nn.lora import LowRank
from ocssl.optim import Optimizer, ParameterGroup
from ocssl.options import setting
from ocssl.strategies.base import Setup, Strategy, register
from ocssl.strategies.targets import EncoderCopy

Trained = Annotated[str, annotated_types.doc("'all', 'norms', 'last:N' or 'lora:N' with N of at least 1")]
LORA = "lora:"


class Original(EncoderCopy):
    """The encoder as it was given, without projector, in evaluation mode. It never changes."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder)
        self.network.projector = nn.Identity()
        self.network.eval()


@register("adapt")
class Adapt(Strategy):
    """Trains a given network gently; its average, mixed with the network as it was given, is deployed.

    Source: our own; alignment as in Fini et al., CVPR 2022, arXiv:2112.04215, and Cignoni et al., CoLLAs 2025,
    arXiv:2507.10434; mixed weights: Wortsman et al., CVPR 2022, arXiv:2109.01903; LoRA: Hu et al., ICLR 2022,
    arXiv:2106.09685.
    """

    label = "adapting"

    class Options(Strategy.Options):
        omega: float = setting(0.0, "Weight of the alignment loss; 0: none.", symbol="ω", common=True, ge=0)
        aligned: Literal["batch", "replay"] = setting(
            "batch", "Samples that are aligned to the original: all of a step, or replay samples only.", since="0.2"
        )
        train: Trained = setting(
            "all",
            "What learns of the backbone: `all`, `norms` (scales and shifts of its norms), `last:N` (its last N "
            "blocks), or `lora:N` (changes of rank N to its linear layers, for transformers).",
            pattern=r"^(all|norms|(last|lora):[1-9]\d{0,4})$",
            since="0.2",
        )
        backbone_lr: float = setting(
            0.03, "Learning rate of the backbone, as a share of lr, the rate of the heads.", ge=0, since="0.2"
        )
        layer_decay: float = setting(
            1.0,
            "Share of its learning rate that each block of the backbone leaves to the one below.",
            gt=0,
            le=1,
            since="0.2",
        )
        heads_first: int = setting(
            60,
            "Steps in which only the heads learn and the backbone stays as it is. They cost no CBP.",
            ge=0,
            since="0.2",
        )
        hold_norm: bool = setting(
            True,
            "The backbone learns in evaluation mode: batch norm keeps its statistics, and nothing is dropped. False: "
            "batch norm follows the stream.",
            since="0.2",
        )
        mix: float = setting(
            0.75,
            "Share of what was learned in the deployed weights; the rest is the original.",
            symbol="α",
            ge=0,
            le=1,
            since="0.2",
        )

    composition = "stream+replay"
    default_memory = "fifo"
    defaults: ClassVar[Mapping[str, Any]] = {
        "method": "simclr",
        "temperature": 0.2,
        "optimizer": "adamw",
        "passes": 1,
        "hidden_dim": 1024,
        "output_dim": 256,
        "average": 0.995,
    }

    average: Average
    steps: Tensor
    rates: Tensor
    shares: Tensor

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup, options)
        self.omega, self.rows, self.hold_norm = options.omega, options.aligned, options.hold_norm
        self.heads_first, self.layer_decay = options.heads_first, options.layer_decay
        self.first = {"mix": options.mix, "backbone_lr": options.backbone_lr, "layer_decay": options.layer_decay}
        """Settings that decide the first share and rates; :meth:`remix` and :meth:`slow_down` change these."""
        backbone, width = setup.encoder.backbone, setup.dims.feature
        rank = options.train.removeprefix(LORA)
        self.low_rank = LowRank(backbone, int(rank)) if options.train != rank else None
        select_trained(backbone, options.train)
        linear = nn.Linear(width, width, bias=False)
        nn.init.eye_(linear.weight)
        self.aligner = Head(linear).requires_grad_(self.omega > 0)
        self.original = Original(setup.encoder)
        self.average = Average(backbone, setup.average, setup.average_power)
        self.mixed = frozen_copy(backbone)
        self.share = options.mix
        """Share of what was learned in the deployed weights; :meth:`remix` changes it."""
        self.warming = options.heads_first > 0
        """Whether only the heads learn, in the minibatch that comes."""
        if self.hold_norm and isinstance(setup.method, TargetMethod):
            setup.method.target.backbone.eval()  # as encode() does with the backbone
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("rates", self._first_rates(len(self._trained(backbone))))
        self.register_buffer("shares", torch.zeros_like(self.rates))
        self._set_shares()

    @classmethod
    def default_batch(cls, stream_batch: int) -> int:
        """64, or twice the stream minibatch where that is more."""
        return max(64, 2 * stream_batch)

    # ------------------------------------------------------------------ one step

    def encode(self, encoder: Encoder, views: Tensor, joint: bool) -> Features:
        """The forward pass, with the backbone in evaluation mode where its norms are held."""
        encoder.backbone.train(not self.hold_norm)
        encoder.heads_only = self.warming
        if self.low_rank is None:
            return super().encode(encoder, views, joint)
        weights = self.low_rank.weights(self.original.network.backbone)
        changed = {f"backbone.{name}": weight for name, weight in weights.items()}
        features: Features = functional_call(encoder, changed, (views, joint))
        return features

    def penalty(self, step: Step) -> dict[str, Tensor]:
        """−ω cos(A f, f₀)."""
        rows = step.batch.replay if self.rows == "replay" else slice(0, len(step.batch))
        if not self.omega or rows.start == rows.stop:
            return {}
        features = step.features
        mapped = features.through(self.aligner, features.backbone[:, rows])
        target = self.original(step.batch, rows, step.views, features.joint, "backbone")
        return {"alignment": self.omega * negative_cosine(mapped, target)}

    def after_step(self, output: StepOutput, encoder: Encoder, memory: Memory | None) -> None:
        """The average includes the new weights; after ``heads_first`` steps the backbone begins to learn."""
        super().after_step(output, encoder, memory)
        if self.low_rank is not None:
            for name, weight in self.low_rank.weights(self.original.network.backbone).items():
                encoder.backbone.get_parameter(name).copy_(weight)
        self.average.update(encoder.backbone)
        self.steps.add_(1)
        self._set_shares()

    # ------------------------------------------------------------------ learning rates

    def groups(self, encoder: Encoder) -> list[ParameterGroup]:
        """The backbone: one group, or one for each block where rates decay."""
        trained = self._trained(encoder.backbone)
        return [ParameterGroup(parameters, self.shares[i]) for i, parameters in enumerate(trained)]

    def slow_down(self, factor: float) -> None:
        """Multiply the learning rate of the backbone, from the next step on."""
        if not 0 <= factor < math.inf:
            raise ConfigError(f"factor must be a number of at least 0, not {factor!r}")
        self.rates.mul_(factor)
        self._set_shares()

    def _trained(self, backbone: nn.Module) -> list[list[nn.Parameter]]:
        """Trained parameters by group, from the bottom up; a group without any has no place."""
        groups = blocks(backbone) if self.layer_decay < 1 else [list(backbone.parameters())]
        learns = {p: [p] for p in backbone.parameters() if p.requires_grad}
        learns |= {} if self.low_rank is None else self.low_rank.factors(backbone)
        return [kept for group in groups if (kept := [one for p in group for one in learns.get(p, ())])]

    def _first_rates(self, groups: int) -> Tensor:
        return self.first["backbone_lr"] * self.layer_decay ** torch.arange(groups).flip(0)

    def _set_shares(self) -> None:
        self.shares.copy_(self.rates * (self.steps >= self.heads_first))

    # ------------------------------------------------------------------ what is deployed

    def deployed(self, encoder: Encoder) -> nn.Module:
        """The average, mixed with the original."""
        return self.mixed

    def on_host(self, seen: int, encoder: Encoder, optimizer: Optimizer) -> None:
        """Mix anew after each minibatch; the backbone learns once the first steps are over."""
        self.remix(self.share)
        self.warming = self.warming and int(self.steps) < self.heads_first  # it waits for the device only at first

    def graph_key(self, memory: Memory | None) -> Hashable:
        """It differs while only the heads learn."""
        return super().graph_key(memory), self.warming

    @torch.no_grad()
    def remix(self, share: float) -> None:
        """Deploy ``share`` · average + (1 − ``share``) · original, now and from now on; nothing is trained.

        Statistics of batch norm are mixed too, and integers are those of the average. It costs less than a step, so
        several shares can be tried on one learner; in another thread, while its :meth:`~ocssl.Learner.lock` is held.

        >>> from ocssl.checks import small_learner, small_stream
        >>> learner = small_learner("adapt").partial_fit(small_stream(20))
        >>> learner.train_state.strategy.remix(0.5)
        >>> learner.transform(small_stream(2)).shape
        (2, 16)
        """
        if not 0 <= share <= 1:
            raise ConfigError(f"share must be a number from 0 to 1, not {share!r}")
        self.share = float(share)
        copy_weights(self.mixed, self.original.network.backbone)
        torch._foreach_lerp_([*self.mixed.parameters()], [*self.average.network.parameters()], self.share)
        for mixed, learned in zip(self.mixed.buffers(), self.average.network.buffers(), strict=True):
            if mixed.is_floating_point():
                mixed.lerp_(learned, self.share)
            else:
                mixed.copy_(learned)

    def host_state(self) -> dict[str, int | float | bool]:
        """The share of what was learned, and the settings from which it and the rates began."""
        return {"share": self.share, **self.first}

    def load_host_state(self, state: Mapping[str, int | float | bool]) -> None:
        """The share and the rates, but from settings that have changed since; steps so far tell what learns."""
        changed = {name for name, value in self.first.items() if state.get(name, value) != value}
        self.warming = int(self.steps) < self.heads_first
        if changed - {"mix"}:
            self.rates.copy_(self._first_rates(len(self.rates)))
        self._set_shares()
        if "mix" in changed:
            self.remix(self.first["mix"])
        else:
            self.share = float(state["share"])
