"""Variants of the strategies, as subclasses.

``authors``: the choices of the CLA paper's public code, to reproduce its numbers. ``original``: a compared method as in
its own paper or code. ``docs/variants.md`` compares all choices. A strategy without an entry here is the same in every
variant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

import ocssl.options
from ocssl.batch import Batch, StepOutput
from ocssl.memory import Column, Memory
from ocssl.nn import Encoder, Features
from ocssl.nn.ema import copy_weights
from ocssl.optim import Optimizer
from ocssl.options import setting
from ocssl.strategies.alignment import Aligned, CaSSLe, CaSSLeR
from ocssl.strategies.base import Setup, Strategy, register
from ocssl.strategies.cla import ClaB, ClaE, ClaR
from ocssl.strategies.lump import Lump
from ocssl.strategies.osiris import OsirisR
from ocssl.strategies.pfr import Pfr
from ocssl.strategies.replay import MinimumRedundancy
from ocssl.strategies.scale import Scale

# ---------------------------------------------------------------------- alignment: CLA, CaSSLe, PFR

Distance = Literal["cosine", "method"]


class AlignedVariant(Aligned):
    """Settings that the variants of all alignment strategies share."""

    class Options(ocssl.options.Options):
        joint_target: bool = setting(
            True, "Pass all views together through target and aligner, also where the encoder passes each view alone."
        )
        distance: Distance = setting(
            "cosine", "Alignment distance: the negative cosine, or the loss of the method ('method')."
        )

    def __init__(self, setup: Setup, options: Any, *args: Any) -> None:
        super().__init__(setup, options, *args)
        self.joint_target = options.joint_target
        self.cosine = options.distance == "cosine"

    def penalty(self, batch: Batch, views: Tensor, features: Features) -> dict[str, Tensor]:
        """As the default, with the views passed together where ``joint_target`` is set."""
        return super().penalty(batch, views, replace(features, joint=features.joint or self.joint_target))

    def distance(self, predicted: Tensor, target: Tensor) -> Tensor:
        """The negative cosine, or the method's own distance."""
        if not self.cosine and self.method is not None:
            return self.method.distance(predicted, target.expand_as(predicted))
        return super().distance(predicted, target)


@register("cla-b", variant="authors")
class ClaBAuthors(AlignedVariant, ClaB):
    """Passes all views together through target and aligner."""

    class Options(AlignedVariant.Options, ClaB.Options):
        """Settings of the variant."""


@register("cla-e", variant="authors")
class ClaEAuthors(AlignedVariant, ClaE):
    """Passes all views together through target and aligner."""

    class Options(AlignedVariant.Options, ClaE.Options):
        """Settings of the variant."""


@register("cla-r", variant="authors")
class ClaRAuthors(AlignedVariant, ClaR):
    """Passes all views together through target and aligner."""

    class Options(AlignedVariant.Options, ClaR.Options):
        """Settings of the variant."""


@register("cassle", variant="authors")
class CaSSLeAuthors(AlignedVariant, CaSSLe):
    """Aligns to the untrained network in the first experience."""

    class Options(AlignedVariant.Options, CaSSLe.Options):
        from_start: bool = setting(True, "Align to the untrained network in the first experience.")

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup, options)
        self.target.ready = options.from_start


@register("cassle", variant="original")
class CaSSLeOriginal(CaSSLeAuthors):
    """Aligns by the loss of the method, through an aligner of width 2048."""

    class Options(CaSSLeAuthors.Options):
        aligner_dim: int | None = CaSSLe.Options.with_default("aligner_dim", 2048)
        joint_target: bool = AlignedVariant.Options.with_default("joint_target", False)
        distance: Distance = AlignedVariant.Options.with_default("distance", "method")
        from_start: bool = CaSSLeAuthors.Options.with_default("from_start", False)


@register("cassle-r", variant="authors")
class CaSSLeRAuthors(CaSSLeAuthors, CaSSLeR):
    """Aligns to the untrained network in the first experience."""


@register("cassle-r", variant="original")
class CaSSLeROriginal(CaSSLeOriginal, CaSSLeR):
    """Aligns by the loss of the method, through an aligner of width 2048."""


@register("pfr", variant="original")
class PfrOriginal(AlignedVariant, Pfr):
    """The default algorithm, with a choice of the distance."""

    class Options(AlignedVariant.Options, Pfr.Options):
        joint_target: bool = AlignedVariant.Options.with_default("joint_target", False)


# ---------------------------------------------------------------------- MinRed


@register("minred", variant="original")
class MinimumRedundancyOriginal(MinimumRedundancy):
    """New samples have no feature until they are first replayed; stored features have length 1."""

    class Options(Strategy.Options):
        insert_features: bool = setting(False, "Compute features of new samples in an extra forward pass.")
        normalize_features: bool = setting(True, "Scale stored features to length 1.")

    memory_variant = "original"

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup, options)
        self.insert_features, self.normalize = options.insert_features, options.normalize_features

    def features_before(self, plain: Tensor, encoder: Encoder) -> dict[str, Tensor]:
        """No features, or those of an extra pass."""
        columns = super().features_before(plain, encoder) if self.insert_features else {}
        return {name: self._scaled(features) for name, features in columns.items()}

    def after_step(self, output: StepOutput, encoder: Encoder, memory: Memory | None) -> None:
        """Update the stored features of the replayed samples."""
        slots = output.batch.slots
        if memory is not None and slots is not None:
            replayed = self._scaled(output.features.projected[:, output.batch.replay].mean(0))
            memory.update_features(slots, replayed, normalize=self.normalize)

    def _scaled(self, features: Tensor) -> Tensor:
        return F.normalize(features, dim=-1) if self.normalize else features


# ---------------------------------------------------------------------- LUMP


@register("lump", variant="original")
class LumpOriginal(Lump):
    """The second view of a replay sample is the one with which it entered the memory."""

    class Options(Lump.Options):
        second_view: Literal["new", "stored"] = setting(
            "stored", "The second view of a replay sample: a new one, or the one stored with the sample."
        )
        early_replay: bool = setting(
            True, "Blend as soon as the memory holds as many samples as a batch takes, not one more."
        )

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup, options)
        self.stored_view = options.second_view == "stored"
        self.image_size = setup.image_size

    def columns(self) -> dict[str, Column]:
        """The second view of each sample."""
        return {"view": Column((3, self.image_size, self.image_size))} if self.stored_view else {}

    def replay_views(self, views: Tensor, batch: Batch) -> Tensor:
        """A new first view and the stored second one."""
        new = super().replay_views(views, batch)
        return torch.stack([new[0], batch.recalled["view"]]) if self.stored_view else new

    def features_after(self, output: StepOutput) -> dict[str, Tensor]:
        """The features of the blend, and the second view of the stream samples."""
        return {**super().features_after(output), "view": output.views[1, output.batch.fresh]}

    @classmethod
    def replay_start(cls, options: Any, replay_size: int) -> int:
        """One batch, or one sample more."""
        return replay_size + (not options.early_replay)


# ---------------------------------------------------------------------- SCALE


@register("scale", variant="authors")
class ScaleAuthors(Scale):
    """Anchors are replay samples, and the past model is that of the previous pass.

    In the authors' code replay samples come first in the batch, and the first b_s rows are the anchors.
    """

    class Options(Scale.Options):
        anchors: Literal["stream", "replay"] = setting(
            "replay", "Anchors of the contrastive loss: the stream samples, or as many replay samples."
        )
        teacher_update: Literal["minibatch", "pass"] = setting(
            "pass", "When the past model is updated: once per stream minibatch, or after every pass."
        )
        normalize_features: bool = setting(
            False, "L2-normalise the backbone features by which pseudo-positive pairs are found."
        )

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup, options)
        self.anchors, self.normalize = options.anchors, options.normalize_features
        self.each_pass = options.teacher_update == "pass"

    def first_anchor(self, batch: Batch) -> int:
        """The first row of the stream, or of the replay samples."""
        return batch.stream if self.anchors == "replay" and batch.slots is not None else 0

    def compared(self, backbone: Tensor) -> Tensor:
        """Backbone features, L2-normalised or not."""
        return super().compared(backbone) if self.normalize else backbone

    def after_step(self, output: StepOutput, encoder: Encoder, memory: Memory | None) -> None:
        """The current model becomes the past model of the next pass."""
        super().after_step(output, encoder, memory)
        if self.each_pass:
            copy_weights(self.past, encoder)

    def after_minibatch(self, encoder: Encoder) -> None:
        """The current model becomes the past model of the next minibatch."""
        if not self.each_pass:
            super().after_minibatch(encoder)


@register("scale", variant="original")
class ScaleOriginal(Scale):
    """The memory is selected by part and select."""

    default_memory = "part-and-select"


# ---------------------------------------------------------------------- Osiris-R


class RepeatedSteps(Optimizer):
    """Applies each step of another optimiser several times."""

    def __init__(self, optimizer: Optimizer, times: int) -> None:
        self.optimizer, self.times = optimizer, times
        self.parameters = optimizer.parameters

    def step(self) -> None:
        """All steps with the same gradients."""
        for _ in range(self.times):
            self.optimizer.step()

    def state_dict(self) -> dict[str, Tensor]:
        """The state of the other optimiser."""
        return self.optimizer.state_dict()


@register("osiris-r", variant="authors")
class OsirisRAuthors(OsirisR):
    """h is random and frozen, and each update is applied twice, because the parameters are registered twice."""

    class Options(OsirisR.Options):
        head: Literal["trained", "copied", "frozen"] = setting(
            "frozen", "h: trained, a trained copy of g from the end of the first experience on, or random and frozen."
        )
        repeat_updates: int = setting(2, "How often each optimiser step is applied.", ge=1)

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup, options)
        self.h.requires_grad_(options.head != "frozen")
        self.awaits_copy = options.head == "copied"
        self.repeat_updates = options.repeat_updates

    def wrap_optimizer(self, optimizer: Optimizer) -> Optimizer:
        """Applies each update ``repeat_updates`` times."""
        return RepeatedSteps(optimizer, self.repeat_updates)

    def boundary(self, encoder: Encoder) -> None:
        """At the end of the first experience, h becomes a copy of g."""
        if self.awaits_copy:
            copy_weights(self.h, encoder.projector)
            self.awaits_copy = False

    def host_state(self) -> dict[str, int | float | bool]:
        """Whether h will be copied."""
        return {"awaits_copy": self.awaits_copy}

    def load_host_state(self, state: Mapping[str, int | float | bool]) -> None:
        """Whether h will be copied."""
        self.awaits_copy = bool(state["awaits_copy"])


@register("osiris-r", variant="original")
class OsirisROriginal(OsirisRAuthors):
    """h becomes a copy of g at the end of the first experience, and is trained."""

    class Options(OsirisRAuthors.Options):
        head: Literal["trained", "copied", "frozen"] = OsirisRAuthors.Options.with_default("head", "copied")
        repeat_updates: int = OsirisRAuthors.Options.with_default("repeat_updates", 1)
