"""What a strategy is: a handful of hooks around one training step, each taking values and returning values."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from ocssl.batch import Batch, StepOutput
from ocssl.errors import ConfigError
from ocssl.memory import Column, Memory
from ocssl.methods import Dims, Method
from ocssl.nn import Encoder, Features
from ocssl.registry import Registry

_registry: Registry[type[Strategy]] = Registry("strategy", group="ocssl.strategies")
register = _registry.register
names = _registry.names
get = _registry.get


@dataclass(frozen=True)
class Setup:
    """What a strategy is built from.

    Attributes:
        encoder: the network in training; a strategy may copy it, never keep it.
        method: the objective, or None for a strategy that brings its own.
        dims: widths of the networks.
        output_dim: width of the encoder's projected features.
        image_size: side of the views.
        stream_batch, batch: the paper's b_s and b.
        omega: strength of the strategy's penalty; None asks for the strategy's own default.
        tau: decay of moving averages.
    """

    encoder: Encoder
    method: Method | None
    dims: Dims
    output_dim: int
    image_size: int
    stream_batch: int
    batch: int
    omega: float | None = None
    tau: float = 0.999


class Strategy(nn.Module):
    """Base of every strategy. As it stands it trains on the stream alone.

    A subclass declares what it is in class attributes and overrides the hooks it needs; keyword-only arguments of its
    constructor are its options. Modules it creates are saved with the learner, and their parameters are trained unless
    they require no gradient.
    """

    composition: ClassVar[Literal["stream", "stream+replay", "replay", "mixed"]] = "stream"
    """What a batch is made of. ``mixed`` composes as many replay as stream samples for :meth:`mix` to blend."""

    default_memory: ClassVar[str | None] = None
    """The memory used unless the user names another. None: the strategy keeps nothing."""

    insert_at: ClassVar[Literal["before", "after"]] = "after"
    """Whether a stream minibatch insert_at the memory before or after the passes over it."""

    own_loss: ClassVar[bool] = False
    """Whether the strategy has an objective of its own and refuses a method."""

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Options that the learner's ``variant`` sets: ``"authors"`` and ``"origin"``."""

    variant_memories: ClassVar[Mapping[str, str]] = {}
    """Memories that a variant prefers to the default one."""

    memory_variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """The same for the options of the default memory."""

    update_repeats: int = 1
    """How often each update is applied; other than 1 only to reproduce somebody's numbers."""

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        self.method = setup.method
        self.replay_batch = self._replay_batch(setup.stream_batch, setup.batch)

    @classmethod
    def projector(cls, dims: Dims) -> nn.Module:
        """The projector for a strategy that brings its own objective; others use their method's."""
        raise NotImplementedError

    @property
    def views(self) -> int:
        """How many views of each sample a step needs."""
        return 2 if self.method is None else self.method.views

    def columns(self) -> dict[str, Column]:
        """What the memory keeps of each sample besides the image. Replay samples bring it back in the batch."""
        return {}

    # ------------------------------------------------------------------ one step, in this order

    def compose(self, stream: Tensor, memory: Memory | None, generator: torch.Generator) -> Batch:
        """The samples of a step: the stream minibatch ``(n, 3, h, w)`` uint8, replay samples, or both."""
        if memory is None or not self.replaying(memory):
            return Batch(stream, stream=len(stream))
        count = len(stream) if self.composition == "mixed" else self.replay_batch
        slots = memory.sample(count, generator)
        images, recalled = memory.recall(slots, self.columns())
        if self.composition == "replay":
            return Batch(images, stream=0, slots=slots, recalled=recalled)
        return Batch(torch.cat([stream, images]), stream=len(stream), slots=slots, recalled=recalled)

    def mix(self, views: Tensor, batch: Batch, generator: torch.Generator) -> Tensor:
        """Change the views ``(views, b, 3, s, s)`` before the network sees them."""
        return views

    def losses(self, batch: Batch, views: Tensor, features: Features) -> dict[str, Tensor]:
        """Every part of the loss by name; their sum is minimised."""
        if self.method is None:
            raise NotImplementedError(f"{type(self).__name__} brings its own objective and must implement losses()")
        return {"ssl": self.method.loss(features, batch), **self.penalty(batch, views, features)}

    def penalty(self, batch: Batch, views: Tensor, features: Features) -> dict[str, Tensor]:
        """Further parts of the loss, weighted already."""
        return {}

    def after_step(self, output: StepOutput, encoder: Encoder, memory: Memory | None) -> None:
        """Update teachers and stored features, once per pass. Gradients are off."""
        slots = output.batch.slots
        if memory is not None and slots is not None and "features" in memory.columns:
            memory.update_features(slots, output.features.projected[:, output.batch.replay].mean(0))

    # ------------------------------------------------------------------ once per stream minibatch

    def features_before(self, plain: Tensor, encoder: Encoder) -> dict[str, Tensor]:
        """Columns for newcomers that enter before the passes; ``plain`` are the images, normalised only."""
        return {}

    def features_after(self, output: StepOutput) -> dict[str, Tensor]:
        """Columns for newcomers that enter after the passes, from the last of them."""
        return {"features": output.features.projected[:, output.batch.fresh].mean(0)}

    def after_minibatch(self, encoder: Encoder) -> None:
        """All passes over a stream minibatch are done. Gradients are off."""

    def boundary(self, encoder: Encoder) -> None:
        """An experience has ended. Only strategies that the paper calls not quite online listen."""

    # ------------------------------------------------------------------ what the host knows

    def replaying(self, memory: Memory) -> bool:
        """Whether replay has begun."""
        return len(memory) >= self.replay_after

    @property
    def replay_after(self) -> int:
        """How many samples the memory must hold for replay: one more than a batch takes from it."""
        return self.replay_batch + 1

    def graph_key(self, memory: Memory | None) -> Hashable:
        """Changes whenever the same step would do different work; an executor prepares each graph_key once."""
        return memory is not None and self.replaying(memory)

    def host_state(self) -> dict[str, int | float | bool]:
        """Facts kept outside tensors that a saved learner must remember."""
        return {}

    def load_host_state(self, state: Mapping[str, int | float | bool]) -> None:
        """Take over :meth:`host_state`."""

    def _replay_batch(self, stream_batch: int, batch: int) -> int:
        """How many replay samples a batch takes; a batch that the composition cannot have is refused."""
        match self.composition:
            case "stream" | "mixed" if batch != stream_batch:
                raise ConfigError(
                    f"{type(self).__name__} trains on stream minibatches as they are: batch ({batch}) must equal "
                    f"stream_batch ({stream_batch})"
                )
            case "stream+replay" if batch <= stream_batch:
                raise ConfigError(
                    f"{type(self).__name__} adds replay samples to the stream minibatch: batch ({batch}) must be "
                    f"larger than stream_batch ({stream_batch})"
                )
            case "stream":
                return 0
            case "stream+replay":
                return batch - stream_batch
            case _:
                return batch
