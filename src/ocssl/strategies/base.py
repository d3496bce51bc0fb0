"""What a strategy is: hooks around one training step, each with values as arguments and values as results."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

import ocssl.options
from ocssl.batch import Batch, Step, StepOutput
from ocssl.errors import ConfigError
from ocssl.memory import Column, Memory
from ocssl.methods import Dims, Method
from ocssl.nn import Average, Encoder, Features, frozen_copy
from ocssl.optim import Optimizer, ParameterGroup
from ocssl.registry import Registry
from ocssl.strategies.targets import Target

registry: Registry[type[Strategy]] = Registry("strategy", group="ocssl.strategies")
register = registry.register

SMALL_BATCH = 32  # up to here the defaults are those of the paper's low budget: each view alone, smaller learning rates
REPLAY_BATCH = 128  # replay samples per batch by default: the paper's 138 with its stream_batch of 10


Composition = Literal["stream", "stream+replay", "replay", "mixed"]


class ByBatch(NamedTuple):
    """A default that depends on the samples per step: up to :data:`SMALL_BATCH`, and more."""

    small: Any
    large: Any


@dataclass(frozen=True)
class Setup:
    """The learner around a strategy.

    Attributes:
        encoder: the network in training. A strategy may copy it, but must not keep a reference.
        method: the self-supervised method, or None for a strategy with its own loss.
        dims: widths of the networks.
        output_dim: width of the encoder's projected features.
        image_size: side of the views.
        stream_batch, batch: the paper's b_s and b.
        average: decay of the moving average that is deployed; 0: none.
        average_power: its power γ, see :class:`ocssl.nn.ema.Average`.
        teacher: a trained network of any architecture, from the encoder's images to ``(n, teacher_dim)``; None: none.
    """

    encoder: Encoder
    method: Method | None
    dims: Dims
    output_dim: int
    image_size: int
    stream_batch: int
    batch: int
    average: float = 0.0
    average_power: float = 0.0
    teacher: nn.Module | None = None
    teacher_dim: int = 0

    def trained_copy(self) -> Encoder:
        """A copy of the encoder for a strategy that trains a second network; its passes are charged too."""
        made = frozen_copy(self.encoder).requires_grad_(True)
        made.second = True
        return made


class TeacherSource(NamedTuple):
    """A trained network that a strategy asks for.

    Attributes:
        network: what it is, as JSON of :func:`ocssl.pretrained.describe_network`.
        weights: the source of its weights; None: those of a saved learner.
    """

    network: str
    weights: str | None


class Strategy(nn.Module):
    """Base of every strategy; by itself it trains on the stream alone.

    A subclass sets class attributes, declares its settings in a class ``Options`` and overrides the hooks it needs. Its
    modules are saved with the learner, and their parameters are trained unless they require no gradient. Targets among
    its modules are told of steps and boundaries.
    """

    class Options(ocssl.options.Options):
        """Settings of the strategy."""

    composition: ClassVar[Composition] = "stream"
    """What a batch consists of. ``mixed``: as many replay as stream samples, which :meth:`mix` blends."""

    label: ClassVar[str] = ""
    """The name in tables and figures, e.g. ``"CLA-E"``; empty: the registered name."""

    default_memory: ClassVar[str | None] = None
    """The memory where no other is chosen. None: the strategy has no memory."""

    defaults: ClassVar[Mapping[str, Any]] = {"sgd.lr": ByBatch(0.03, 0.1)}
    """Settings of other parts where none are given, by name, e.g. ``{"method": "simclr", "temperature": 0.2}``.

    A setting of a part, such as a method, counts only with the one that is named here, and with every one where none
    is; ``sgd.lr`` is that of SGD alone. A subclass adds to those of its bases.
    """

    budgets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Settings for a named compute budget of a run, where the paper has none for the strategy."""

    memory_variant: ClassVar[str] = "default"
    """The variant of the memory, where the memory has it."""

    insert_at: ClassVar[Literal["before", "after"]] = "after"
    """Whether a stream minibatch is inserted into the memory before or after the passes over it."""

    backward_passes: ClassVar[int] = 1
    """Backward passes of each view in a step: 2 where two networks are trained, or one network twice."""

    own_loss: ClassVar[bool] = False
    """Whether the strategy takes no method; it then implements :meth:`losses` and :meth:`projector`."""

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__()
        self.options = options
        self.method = setup.method
        self.output_dim = setup.output_dim
        self.average: Average | None = None
        """Of the backbone, where the strategy keeps it itself, with the decay of the setting ``average``."""
        self.replay_batch = self.replay_size(setup.stream_batch, setup.batch)
        self.replay_after = self.replay_start(options, self.replay_batch)

    @classmethod
    def projector(cls, dims: Dims) -> nn.Module:
        """The projector of a strategy with its own loss; others use their method's."""
        raise NotImplementedError

    @classmethod
    def teacher_source(cls, options: Options) -> TeacherSource | None:
        """The trained network that the strategy is given as ``setup.teacher``; None: none."""
        return None

    def wrap_optimizer(self, optimizer: Optimizer) -> Optimizer:
        """The optimiser that trains the learner, made from the one that the settings describe."""
        return optimizer

    def groups(self, encoder: Encoder) -> list[ParameterGroup]:
        """Parameters with a share of the learning rate; all others have the whole."""
        return []

    @property
    def views(self) -> int:
        """Views of each sample in a step."""
        return 2 if self.method is None else self.method.views

    def columns(self) -> dict[str, Column]:
        """What the memory stores of each sample besides the image. A batch contains it for the replay samples."""
        return {}

    # ------------------------------------------------------------------ one step, in this order

    def compose(self, stream: Tensor, memory: Memory | None, generator: torch.Generator) -> Batch:
        """The samples of a step: the stream minibatch ``(n, 3, h, w)`` uint8, replay samples, or both."""
        if memory is None or not self.replaying(memory):
            return Batch(stream, stream=len(stream))
        slots = memory.sample(self.replay_count(len(stream), memory), generator)
        columns: object = self.columns()
        if not isinstance(columns, Mapping):
            found = type(columns).__name__
            raise ConfigError(f"{type(self).__name__}.columns() must return Columns by name, not {found}")
        images, recalled = memory.recall(slots, columns)
        if self.composition == "replay":
            return Batch(images, stream=0, slots=slots, recalled=recalled)
        return Batch(torch.cat([stream, images]), stream=len(stream), slots=slots, recalled=recalled)

    def replay_count(self, stream: int, memory: Memory) -> int:
        """Samples of the memory in a step with ``stream`` stream samples, known to the host."""
        return stream if self.composition == "mixed" else self.replay_batch

    def mix(self, views: Tensor, batch: Batch, generator: torch.Generator) -> Tensor:
        """Change the views ``(views, b, 3, s, s)`` before the forward pass."""
        return views

    def encode(self, encoder: Encoder, views: Tensor, joint: bool) -> Features:
        """The forward pass: features of the views after mixing, from which :meth:`losses` computes the loss."""
        return encoder(views, joint)  # type: ignore[no-any-return]

    def losses(self, step: Step) -> dict[str, Tensor]:
        """Every term of the loss by name; their sum is minimised."""
        assert self.method is not None, "a strategy with own_loss cannot call super().losses()"
        loss, further = self.method.loss(step), self.penalty(step)
        if not isinstance(further, Mapping) or "ssl" in further:
            what = "a term 'ssl', the method's" if isinstance(further, Mapping) else type(further).__name__
            raise ConfigError(f"{type(self).__name__}.penalty() must return terms of the loss by name, not {what}")
        return {"ssl": loss, **further}

    def penalty(self, step: Step) -> dict[str, Tensor]:
        """Further terms of the loss, with their weights applied."""
        return {}

    def sample_losses(self, step: Step) -> Tensor:
        """The loss of each sample, ``(b,)``, for a memory that selects by it: the method's. Gradients are off."""
        if self.method is None:
            raise ConfigError(f"{type(self).__name__} has no loss of each sample; choose another memory")
        return self.method.sample_losses(step)

    def after_step(self, output: StepOutput, encoder: Encoder, memory: Memory | None) -> None:
        """Update stored features and targets, once per pass. Gradients are off."""
        slots = output.batch.slots
        if memory is not None and slots is not None and "features" in memory.columns:
            memory.update_features(slots, output.features.projected[:, output.batch.replay].mean(0))
        for target in self.targets():
            target.after_step(encoder)

    # ------------------------------------------------------------------ once per stream minibatch

    def features_before(self, plain: Tensor, encoder: Encoder) -> dict[str, Tensor]:
        """Columns of new samples that are inserted before the passes; ``plain`` are the normalised images."""
        return {}

    def features_after(self, output: StepOutput) -> dict[str, Tensor]:
        """Columns of new samples that are inserted after the passes, from the last pass."""
        return {"features": output.features.projected[:, output.batch.fresh].mean(0)}

    def after_minibatch(self, encoder: Encoder) -> None:
        """Called after all passes over a stream minibatch. Gradients are off."""

    def boundary(self, encoder: Encoder) -> None:
        """Called when an experience has ended: update targets that depend on it."""
        for target in self.targets():
            target.boundary(encoder)

    def deployed(self, encoder: Encoder) -> nn.Module:
        """The network that computes features for use, a module of the encoder or of the strategy.

        Images ``(n, 3, s, s)``, normalised, to ``(n, d)``.
        """
        return encoder.backbone

    def yardstick(self) -> Encoder | None:
        """A network that encoders are measured beside, such as a teacher that was given; None: no such network."""
        return None

    # ------------------------------------------------------------------ on the host

    def on_host(self, seen: int, encoder: Encoder, optimizer: Optimizer) -> None:
        """Called after each stream minibatch, ``seen`` images in all. It is never captured and may change weights."""

    def replaying(self, memory: Memory) -> bool:
        """Whether replay has begun."""
        return len(memory) >= self.replay_after

    def graph_key(self, memory: Memory | None) -> Hashable:
        """A value that differs where the step does different work; a graph is captured for each."""
        replaying = memory is not None and self.replaying(memory)
        return replaying, *(target.ready for target in self.targets())

    def host_state(self) -> dict[str, int | float | bool]:
        """State outside tensors that is saved with the learner: that of the targets."""
        return {name: value for target in self.targets() for name, value in target.host_state().items()}

    def load_host_state(self, state: Mapping[str, int | float | bool]) -> None:
        """Restore :meth:`host_state`."""
        for target in self.targets():
            target.load_host_state(state)

    def targets(self) -> list[Target]:
        """Alignment targets among the modules of the strategy."""
        return [module for module in self.children() if isinstance(module, Target)]

    # ------------------------------------------------------------------ sizes, known before a learner is built

    @classmethod
    def default_batch(cls, stream_batch: int) -> int:
        """Samples per step where none are given: the stream minibatch, and with replay 128 more, as in the paper."""
        return stream_batch + (REPLAY_BATCH if cls.composition in ("stream+replay", "replay") else 0)

    @classmethod
    def replay_size(cls, stream_batch: int, batch: int) -> int:
        """Replay samples in a batch; :class:`ConfigError` where the composition cannot have such a batch."""
        if cls.composition not in get_args(Composition):
            raise ConfigError(f"{cls.__name__}.composition must be one of {get_args(Composition)}")
        if cls.insert_at not in ("before", "after"):
            raise ConfigError(f"{cls.__name__}.insert_at must be 'before' or 'after', not '{cls.insert_at}'")
        if cls.composition != "stream" and cls.default_memory is None:
            raise ConfigError(f"{cls.__name__} replays ('{cls.composition}') and needs a default_memory, e.g. 'fifo'")
        if cls.composition in ("stream", "mixed") and batch != stream_batch:
            raise ConfigError(
                f"{registry.describe(cls)} trains on stream minibatches only: batch ({batch}) must equal "
                f"stream_batch ({stream_batch})"
            )
        if cls.composition == "stream+replay" and batch <= stream_batch:
            raise ConfigError(
                f"{registry.describe(cls)} adds replay samples to the stream minibatch: batch ({batch}) must be "
                f"larger than stream_batch ({stream_batch})"
            )
        return {"stream": 0, "stream+replay": batch - stream_batch}.get(cls.composition, batch)

    @classmethod
    def replay_start(cls, options: Options, replay_size: int) -> int:
        """Samples in the memory at which replay begins: one more than a batch takes from it."""
        return replay_size + 1


registry.base = Strategy
registry.required_with = {"own_loss": ("losses", "projector")}
