"""Variants of the strategies, as subclasses.

``authors``: the choices of the CLA paper's public code, to reproduce its numbers. ``original``: a compared method as in
its own paper or code. ``docs/variants.md`` compares all choices. A strategy without an entry here is the same in every
variant.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ocssl.options
from ocssl.batch import Batch, Step, StepOutput
from ocssl.errors import ConfigError
from ocssl.losses import full
from ocssl.memory import Column, Memory
from ocssl.methods import Dims, Method
from ocssl.nn import Encoder, Features, mlp
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

Distance = Literal["cosine", "method", "original"]


class AlignedVariant(Aligned):
    """Settings that the variants of all alignment strategies share."""

    class Options(ocssl.options.Options):
        joint_target: bool = setting(
            True, "Pass all views together through target and aligner, also where the encoder passes each view alone."
        )
        distance: Distance = setting(
            "cosine",
            "Alignment distance: the negative cosine, the loss of the method ('method'), or the distillation loss of "
            "CaSSLe's own code ('original').",
        )

    options: Any

    def __init__(self, setup: Setup, options: Any, *args: Any) -> None:
        super().__init__(setup, options, *args)
        self.hook = {"cosine": None, "method": "distance", "original": "distillation"}[options.distance]
        self.cosine = self.hook is None
        if self.hook and getattr(type(self.method), self.hook) is getattr(Method, self.hook):
            method = type(self.method).__name__
            raise ConfigError(f"method '{method}' has no {self.hook}(), so distance must be 'cosine'")

    def penalty(self, step: Step) -> dict[str, Tensor]:
        """As the default, with the views passed together where ``joint_target`` is set."""
        joint = step.features.joint or self.options.joint_target
        return super().penalty(replace(step, features=replace(step.features, joint=joint)))

    def distance(self, predicted: Tensor, target: Tensor) -> Tensor:
        """The negative cosine, the method's own distance, or its distillation loss in CaSSLe's own code."""
        if self.hook is None:
            return super().distance(predicted, target)
        found: Tensor = getattr(self.method, self.hook)(predicted, target.expand_as(predicted))
        return found


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
        from_start: bool = setting(True, CaSSLe.Options.model_fields["from_start"].description or "")


@register("cassle", variant="original")
class CaSSLeOriginal(CaSSLeAuthors):
    """Aligns through an aligner of width 2048, by 2 − 2 cos with SimSiam and by a contrastive loss with SimCLR."""

    class Options(CaSSLeAuthors.Options):
        aligner_dim: int | None = CaSSLe.Options.with_default("aligner_dim", 2048)
        joint_target: bool = AlignedVariant.Options.with_default("joint_target", False)
        distance: Distance = AlignedVariant.Options.with_default("distance", "original")
        from_start: bool = CaSSLeAuthors.Options.with_default("from_start", False)


@register("cassle-r", variant="authors")
class CaSSLeRAuthors(CaSSLeAuthors, CaSSLeR):
    """Aligns to the untrained network in the first experience."""


@register("cassle-r", variant="original")
class CaSSLeROriginal(CaSSLeOriginal, CaSSLeR):
    """Aligns through an aligner of width 2048, by 2 − 2 cos with SimSiam and by a contrastive loss with SimCLR."""


@register("pfr", variant="original")
class PfrOriginal(AlignedVariant, Pfr):
    """The default algorithm, with a choice of the distance."""

    class Options(AlignedVariant.Options, Pfr.Options):
        joint_target: bool = AlignedVariant.Options.with_default("joint_target", False)


# ---------------------------------------------------------------------- MinRed


@register("minred", variant="authors")
class MinimumRedundancyAuthors(MinimumRedundancy):
    """All new samples enter the memory, and training batches come from it from the first minibatch on."""

    class Options(Strategy.Options):
        insert_mode: Literal["evaluation", "training"] = setting(
            "training",
            "Mode of the network in the extra pass over new samples; in training mode the running statistics change.",
        )
        partial_batches: bool = setting(
            True, "Train on all samples of the memory while it holds fewer than a batch takes, not on the stream."
        )

    options: Options

    memory_variant = "authors"

    def features_before(self, plain: Tensor, encoder: Encoder) -> dict[str, Tensor]:
        """Features of the normalised images; of a single image in evaluation mode, because batch norm needs two."""
        if self.options.insert_mode == "evaluation" or len(plain) == 1:
            return super().features_before(plain, encoder)
        return {"features": encoder(plain[None], joint=True).projected[0]}

    def replay_count(self, stream: int, memory: Memory) -> int:
        """A full batch, or all samples that there are."""
        return min(self.replay_batch, len(memory)) if self.options.partial_batches else self.replay_batch

    def graph_key(self, memory: Memory | None) -> Hashable:
        """Changes with the number of samples in a batch."""
        return super().graph_key(memory), 0 if memory is None else self.replay_count(0, memory)

    @classmethod
    def replay_start(cls, options: Any, replay_size: int) -> int:
        """At once, or with one sample more than a batch takes."""
        return 1 if options.partial_batches else replay_size + 1


@register("minred", variant="original")
class MinimumRedundancyOriginal(MinimumRedundancy):
    """New samples have no feature until they are first replayed; stored features have length 1."""

    class Options(Strategy.Options):
        insert_features: bool = setting(False, "Compute features of new samples in an extra forward pass.")
        normalize_features: bool = setting(True, "Scale stored features to length 1.")

    options: Options

    memory_variant = "original"

    def features_before(self, plain: Tensor, encoder: Encoder) -> dict[str, Tensor]:
        """No features, or those of an extra pass."""
        columns = super().features_before(plain, encoder) if self.options.insert_features else {}
        return {name: self._scaled(features) for name, features in columns.items()}

    def after_step(self, output: StepOutput, encoder: Encoder, memory: Memory | None) -> None:
        """Update the stored features of the replayed samples."""
        slots = output.batch.slots
        if memory is not None and slots is not None:
            replayed = self._scaled(output.features.projected[:, output.batch.replay].mean(0))
            memory.update_features(slots, replayed, normalize=self.options.normalize_features)

    def _scaled(self, features: Tensor) -> Tensor:
        return F.normalize(features, dim=-1) if self.options.normalize_features else features


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
        """New views, but the stored second one."""
        new = super().replay_views(views, batch)
        return torch.stack([new[0], batch.recalled["view"], *new[2:]]) if self.stored_view else new

    def features_after(self, output: StepOutput) -> dict[str, Tensor]:
        """The features of the blend, and the second view of the stream samples where it is stored."""
        view = {"view": output.views[1, output.batch.fresh]} if self.stored_view else {}
        return {**super().features_after(output), **view}

    @classmethod
    def replay_start(cls, options: Any, replay_size: int) -> int:
        """One batch, or one sample more."""
        return replay_size + (not options.early_replay)


# ---------------------------------------------------------------------- SCALE


OWN_OFFSET = -1000.0  # added to the logit of a sample and itself in the public codes


@dataclass(frozen=True)
class ScaleFeatures(Features):
    """Features of a batch, and those from further passes.

    Attributes:
        compared: ``(views, n, feature_dim)``, backbone features by which pairs are found.
        past: ``(n, output_dim)``, the first view through the past backbone and the current projector; None: the past
            model has its own projector.
    """

    compared: Tensor
    past: Tensor | None


@register("scale", variant="authors")
class ScaleAuthors(Scale):
    """Anchors are replay samples, and the past model is that of the previous pass.

    In the authors' code replay samples come first in the batch, and the first b_s rows are the anchors. Pairs are found
    by raw features of an extra pass over both views together. The past model has the current projector, and the
    gradient of the forgetting loss reaches it on both sides. The first view passes once more for the similarities;
    where each view passes alone, its features are those of the training pass, so only the running statistics change.
    The further passes have no backward pass.
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
        joint_pairs: bool = setting(
            True, "Find pseudo-positive pairs by features of an extra pass over both views together."
        )
        relation_pass: bool = setting(
            True, "Pass the first view once more in training mode, which updates the running statistics."
        )
        own_pair: Literal["excluded", "lowered"] = setting(
            "lowered", "The pair of a sample and itself, where pairs are found: excluded, or its logit lowered by 1000."
        )
        past_head: Literal["copied", "shared"] = setting(
            "shared", "Projector of the past model: a frozen copy, or the current one, which also takes the gradient."
        )

    options: Options

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup, options)
        if options.own_pair == "lowered":
            self.own_offset = OWN_OFFSET

    def encode(self, encoder: Encoder, views: Tensor, joint: bool) -> Features:
        """The further passes, in the order of the authors' code, then the pass that trains."""
        # Gradients stay on here: under autocast, weights cast without gradients would be used again by the last pass.
        if self.options.relation_pass and views.shape[1] > 1:  # batch norm needs two rows
            encoder(views[:1], joint)
        past = None
        if self.options.past_head == "shared":
            with torch.no_grad():
                past_backbone = self.past(views[:1], joint).backbone[0]
            past = encoder.projector(past_backbone)
        together = encoder(views, joint=True).backbone.detach() if self.options.joint_pairs else None
        features = encoder(views, joint)
        compared = features.backbone if together is None else together
        return ScaleFeatures(features.backbone, features.projected, joint, compared, past)

    def first_anchor(self, batch: Batch) -> int:
        """The first row of the stream, or of the replay samples."""
        return batch.stream if self.options.anchors == "replay" and batch.slots is not None else 0

    def compared(self, features: Features) -> Tensor:
        """Backbone features of the pass for pairs, L2-normalised or not."""
        assert isinstance(features, ScaleFeatures), "the features of encode()"
        normalize = self.options.normalize_features
        return F.normalize(full(features.compared), dim=-1) if normalize else features.compared

    def past_features(self, views: Tensor, features: Features) -> Tensor:
        """Through the current projector, or through the past model's own."""
        assert isinstance(features, ScaleFeatures), "the features of encode()"
        return super().past_features(views, features) if features.past is None else features.past

    def after_step(self, output: StepOutput, encoder: Encoder, memory: Memory | None) -> None:
        """The current model becomes the past model of the next pass."""
        super().after_step(output, encoder, memory)
        if self.options.teacher_update == "pass":
            copy_weights(self.past, encoder)

    def after_minibatch(self, encoder: Encoder) -> None:
        """The current model becomes the past model of the next minibatch."""
        if self.options.teacher_update == "minibatch":
            super().after_minibatch(encoder)


@register("scale", variant="original")
class ScaleOriginal(ScaleAuthors):
    """As the authors' code, with stream samples as anchors and a memory that is selected by part and select."""

    class Options(ScaleAuthors.Options):
        anchors: Literal["stream", "replay"] = ScaleAuthors.Options.with_default("anchors", "stream")
        teacher_update: Literal["minibatch", "pass"] = ScaleAuthors.Options.with_default("teacher_update", "minibatch")

    default_memory = "part-and-select"


# ---------------------------------------------------------------------- Osiris-R


class RepeatedSteps(Optimizer):
    """Applies each update of another optimiser several times; the learning rate changes once per step."""

    def __init__(self, optimizer: Optimizer, times: int) -> None:
        self.optimizer, self.times = optimizer, times
        self.parameters, self.options, self.schedule = optimizer.parameters, optimizer.options, optimizer.schedule

    def update_groups(self, lr: float | Tensor) -> None:
        """All updates with the same gradients."""
        for _ in range(self.times):
            self.optimizer.update_groups(lr)

    def moments(self) -> dict[str, Tensor]:
        """Those of the other optimiser."""
        return self.optimizer.moments()


@register("osiris-r", variant="authors")
class OsirisRAuthors(OsirisR):
    """h is random and frozen, and each update is applied twice, because the parameters are registered twice.

    Stream and replay samples pass through the heads separately, and through g only stream samples. g is therefore a
    head of the strategy, and the encoder has no projector.
    """

    class Options(OsirisR.Options):
        head: Literal["trained", "copied", "frozen"] = setting(
            "frozen", "h: trained, a trained copy of g from the end of the first experience on, or random and frozen."
        )
        repeat_updates: int = setting(2, "How often each optimiser step is applied.", ge=1, le=10_000)
        separate_heads: bool = setting(
            True, "Pass stream and replay samples through the heads separately, and only stream samples through g."
        )

    options: Options

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup, options)
        self.g, self.h = self.h, self.make_head(setup.dims)  # g is drawn first, as in the default
        self.h.requires_grad_(options.head != "frozen")
        self.first_experience = True

    @classmethod
    def projector(cls, dims: Dims) -> nn.Module:
        """None: g is a head of the strategy."""
        return nn.Identity()

    def make_head(self, dims: Dims) -> nn.Module:
        """A new g or h."""
        return OsirisR.projector(dims)

    def through_g(self, batch: Batch, features: Features) -> Tensor:
        """g of the stream samples, alone or in a pass with the replay samples."""
        if self.options.separate_heads:
            return features.through(self.g, features.backbone[:, batch.fresh])
        return features.through(self.g, features.backbone)[:, batch.fresh]

    def through_h(self, batch: Batch, features: Features) -> tuple[Tensor, Tensor]:
        """h of the stream samples and of the replay samples, in two passes or in one."""
        if not self.options.separate_heads:
            return super().through_h(batch, features)
        fresh, replay = (features.through(self.h, features.backbone[:, rows]) for rows in (batch.fresh, batch.replay))
        return fresh, replay

    def wrap_optimizer(self, optimizer: Optimizer) -> Optimizer:
        """Applies each update ``repeat_updates`` times."""
        return RepeatedSteps(optimizer, self.options.repeat_updates)

    def boundary(self, encoder: Encoder) -> None:
        """At the end of the first experience, h becomes a copy of g."""
        if self.options.head == "copied" and self.first_experience:
            copy_weights(self.h, self.g)
        self.first_experience = False

    def host_state(self) -> dict[str, int | float | bool]:
        """Whether the first experience has not ended."""
        return {"first_experience": self.first_experience}

    def load_host_state(self, state: Mapping[str, int | float | bool]) -> None:
        """Whether the first experience has not ended."""
        self.first_experience = bool(state["first_experience"])


@register("osiris-r", variant="original")
class OsirisROriginal(OsirisRAuthors):
    """h becomes a copy of g at the end of the first experience, and is trained; replay begins there.

    The heads have two layers and no batch norm, so it makes no difference which samples pass through them together.
    """

    class Options(OsirisRAuthors.Options):
        head: Literal["trained", "copied", "frozen"] = OsirisRAuthors.Options.with_default("head", "copied")
        repeat_updates: int = OsirisRAuthors.Options.with_default("repeat_updates", 1)
        plain_heads: bool = setting(
            True, "Heads g and h have two layers of width 2048 and 128 without batch norm, not three layers with it."
        )
        late_replay: bool = setting(True, "Replay nothing before the first experience has ended.")

    options: Options

    def make_head(self, dims: Dims) -> nn.Module:
        """A new g or h."""
        if self.options.plain_heads:
            return mlp(dims.feature, 2048, 128, hidden_norm=False)
        return super().make_head(dims)

    def replaying(self, memory: Memory) -> bool:
        """Whether replay has begun."""
        return super().replaying(memory) and not (self.options.late_replay and self.first_experience)
