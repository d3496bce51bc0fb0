"""One training step, the same for every strategy, and the two moments around the passes over a minibatch.

Everything here is tensor work of fixed shape on one device. No value is read back to the host, so an executor may run
these functions eagerly or capture them once and replay them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor, nn

from ocssl.augment import Augmentation
from ocssl.batch import Batch, Step, StepOutput
from ocssl.checkpoint import sub_state
from ocssl.distributed import ProcessGroup
from ocssl.errors import ConfigError
from ocssl.losses import full
from ocssl.memory import Memory
from ocssl.methods import Method, MultiCrop
from ocssl.nn import Average, Encoder, Features
from ocssl.nn.dropout import drawing_from
from ocssl.nn.ema import copy_weights
from ocssl.optim import Optimizer
from ocssl.strategies import Strategy

T = TypeVar("T")

NONFINITE_BITS = 16  # how many parts of a loss `nonfinite` can tell apart


@dataclass
class TrainState:
    """Everything a step reads and changes.

    Attributes:
        autocast: the low precision of the forward pass, or None for float32 throughout.
        joint_views: all views in one forward pass, or each in its own.
        average: of the network that is deployed; None: that network itself is deployed.
        group: the processes that train together.
        nonfinite: scalar int64 on the device, 0 while every loss was finite; see :meth:`check_losses`.
        small_augment: makes the small crops of a method with multi-crop; None: it has none.
    """

    encoder: Encoder
    strategy: Strategy
    memory: Memory | None
    augment: Augmentation
    optimizer: Optimizer
    generator: torch.Generator
    autocast: torch.dtype | None
    joint_views: bool
    average: Average | None
    group: ProcessGroup
    steps: Tensor
    nonfinite: Tensor
    small_augment: Augmentation | None = None

    @property
    def device(self) -> torch.device:
        """Where everything lives."""
        return self.generator.device

    @contextmanager
    def forward_pass(self) -> Iterator[None]:
        """The precision in which networks run, and the generator from which dropout draws."""
        autocast = torch.autocast(self.device.type, dtype=self.autocast, enabled=self.autocast is not None)
        torch.clear_autocast_cache()  # inside of another autocast it outlives this one, with weights of earlier steps
        with autocast, drawing_from(self.generator):
            yield
        torch.clear_autocast_cache()

    def small_features(self, batch: Batch, joint: bool) -> Features | None:
        """The encoder's features of new small crops, ``(small_views, b, …)``; None for a method without multi-crop."""
        method = self.strategy.method
        if self.small_augment is None or not isinstance(method, MultiCrop):
            return None
        crops = self.small_augment(batch.images, views=method.small_views, generator=self.generator)
        return self.encoder(crops, joint)  # type: ignore[no-any-return]

    @cached_property
    def encoders(self) -> list[Encoder]:
        """The encoder, and those inside the strategy and its method: teachers, targets and trained copies."""
        return [m for root in (self.encoder, self.strategy) for m in root.modules() if isinstance(m, Encoder)]

    @property
    def deployed(self) -> nn.Module:
        """The network that computes features for use: images ``(n, 3, s, s)``, normalised, to ``(n, d)``."""
        return self.strategy.deployed(self.encoder) if self.average is None else self.average.network

    def train_average(self) -> None:
        """Let training go on from the averaged weights, where an average of the backbone is kept."""
        average = self.strategy.average
        if average is None and self.strategy.deployed(self.encoder) is self.encoder.backbone:
            average = self.average
        if average is not None:
            copy_weights(self.encoder.backbone, average.network)

    @property
    def deployed_name(self) -> str:
        """What the names of the deployed network's tensors begin with in :meth:`state_dict`."""
        for prefix, root in self._roots().items():
            for name, module in root.named_modules():
                if module is self.deployed:
                    return f"{prefix}.{name}."
        kind = type(self.strategy).__name__
        raise ConfigError(f"{kind}.deployed() must return a module of the encoder or of the strategy")

    def _roots(self) -> dict[str, nn.Module]:
        roots = {"encoder": self.encoder, "strategy": self.strategy, "average": self.average}
        return {name: root for name, root in roots.items() if root is not None}

    def state_dict(self) -> dict[str, Tensor]:
        """Every tensor that going on needs, by name; the strategy's state on the host is apart."""
        tensors = {"generator": self.generator.get_state(), "steps": self.steps}
        for prefix, part in (self._roots() | ({} if self.memory is None else {"memory": self.memory})).items():
            tensors |= {f"{prefix}.{name}": tensor for name, tensor in part.state_dict().items()}
        return tensors | self.optimizer.state_dict()

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore :meth:`state_dict`, but for the generator, whose kind of device may be another."""
        for prefix, root in self._roots().items():
            root.load_state_dict(sub_state(tensors, f"{prefix}."))
        if self.memory is not None:
            self.memory.load_state_dict(sub_state(tensors, "memory."))
        self.optimizer.load_state_dict(tensors)
        self.steps.copy_(tensors["steps"])

    def check_losses(self, losses: list[Tensor]) -> None:
        """Count the step; at the first loss that is not finite, note which step and, as low bits, which parts."""
        bad = torch.stack([(~loss.isfinite()).long() << i for i, loss in enumerate(losses)]).sum()
        self.steps.add_(1)
        self.nonfinite.copy_(
            torch.where((self.nonfinite == 0) & (bad > 0), (self.steps << NONFINITE_BITS) + bad, self.nonfinite)
        )

    def first_nonfinite(self, names: Sequence[str]) -> tuple[int, list[str]] | None:
        """The first step whose loss was not finite and the parts that were not; None where there is none.

        Args:
            names: of the parts, in the order in which they were checked.
        """
        if not (nonfinite := int(self.nonfinite)):
            return None
        return nonfinite >> NONFINITE_BITS, [name for i, name in enumerate(names) if nonfinite >> i & 1]

    def synchronise(self) -> None:
        """Bring the processes of a group together again after their own passes: the same step for everybody.

        Statistics that each batch norm took of its own rows alone are averaged too; all else is made of all rows.
        """
        if not self.group.single:
            gradients = (parameter.grad for parameter in self.optimizer.parameters)
            self.group.average(gradient for gradient in gradients if gradient is not None)
            self.group.average(
                buffer for network in self.encoders for buffer in network.buffers() if buffer.is_floating_point()
            )


def train_step(state: TrainState, stream: Tensor) -> StepOutput:
    """One pass over a stream minibatch.

    Args:
        stream: ``(n, 3, s, s)`` uint8, on the training state's device.
    """
    strategy, encoder = state.strategy, state.encoder
    passes_before = sum(network.cbp for network in state.encoders)
    batch = _returned(strategy, "compose", strategy.compose(stream, state.memory, state.generator), Batch)
    views = state.augment(batch.images, views=strategy.views, generator=state.generator)
    mixed = _views(strategy, "mix", strategy.mix(views, batch, state.generator), len(views))
    if strategy.method is not None:
        mixed = _views(strategy.method, "corrupt", strategy.method.corrupt(mixed, state.generator), len(views))

    with state.forward_pass():
        features = _returned(strategy, "encode", strategy.encode(encoder, mixed, state.joint_views), Features)
        small = state.small_features(batch, state.joint_views)
        step = Step(batch, mixed, features, state.generator, small)
        losses = strategy.losses(step)
        sample_losses = _sample_losses(state, step)
    total = _total(losses)

    state.optimizer.zero_grad()
    total.backward()
    state.synchronise()
    state.optimizer.step()

    with torch.no_grad():
        parts = {name: loss.detach() for name, loss in losses.items()}
        state.check_losses([*parts.values()])
        cbp = math.ceil(sum(network.cbp for network in state.encoders) - passes_before)
        output = StepOutput(batch, views, features.detach(), parts | {"total": total.detach()}, cbp, sample_losses)
        if strategy.method is not None:
            strategy.method.after_step(output, encoder)
        strategy.after_step(output, encoder, state.memory)
        if state.memory is not None:
            if sample_losses is not None and batch.slots is not None:
                state.memory.update_losses(batch.slots, sample_losses[batch.replay])
            state.memory.after_step(output)
        if state.average is not None:
            state.average.update(strategy.deployed(encoder))
    return output


def _returned(part: Strategy | Method, hook: str, value: T, kind: type[T]) -> T:
    """What a hook returned, refused where it is of another kind, such as None."""
    if not isinstance(value, kind):
        found, wanted = type(value).__name__, "columns by name" if kind is dict else f"a {kind.__name__}"
        raise ConfigError(f"{type(part).__name__}.{hook}() must return {wanted}, not {found}")
    return value


def _views(part: Strategy | Method, hook: str, value: Tensor, count: int) -> Tensor:
    """The views that a hook returned, refused where they are not as many as it was given."""
    if len(_returned(part, hook, value, Tensor)) != count:
        raise ConfigError(f"{type(part).__name__}.{hook}() must return {count} views, as many as it is given")
    return value


def _total(losses: Mapping[str, Tensor]) -> Tensor:
    """The sum of the terms of a loss, in full precision; refused where it cannot be minimised."""
    for name, loss in losses.items():
        if not isinstance(loss, Tensor) or loss.shape != ():
            what = f"one of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise ConfigError(f"loss '{name}' must be a tensor of one number, not {what}; take its mean or sum")
    if "total" in losses:
        raise ConfigError("loss 'total' is the sum of all terms; give the term another name")
    total = torch.stack([full(loss) for loss in losses.values()]).sum()
    if not total.requires_grad:
        raise ConfigError(f"no gradient comes from the loss ({', '.join(losses)}); compute it from step.features")
    return total


@torch.no_grad()
def _sample_losses(state: TrainState, step: Step) -> Tensor | None:
    """The loss of each sample, where the memory needs it."""
    if state.memory is None or not state.memory.needs_losses:
        return None
    losses = state.strategy.sample_losses(step)
    if losses.shape != (len(step.batch),):
        raise ConfigError(f"sample_losses() must return ({len(step.batch)},), not {tuple(losses.shape)}")
    return losses


@torch.no_grad()
def before_passes(state: TrainState, stream: Tensor) -> None:
    """Before the passes: some strategies let newcomers into the memory at once."""
    if state.memory is not None and state.strategy.insert_at == "before":
        with state.forward_pass():
            columns = state.strategy.features_before(state.augment.normalize(stream), state.encoder)
        columns = _returned(state.strategy, "features_before", columns, dict)
        state.memory.insert(stream, columns, state.generator)


@torch.no_grad()
def after_passes(state: TrainState, stream: Tensor, output: StepOutput) -> None:
    """After the passes: the others let them in now, with what the last pass knew of them."""
    if state.memory is not None and state.strategy.insert_at == "after":
        columns = _returned(state.strategy, "features_after", state.strategy.features_after(output), dict)
        if output.sample_losses is not None:
            columns = {**columns, "losses": output.sample_losses[output.batch.fresh]}
        state.memory.insert(stream, columns, state.generator)
    state.strategy.after_minibatch(state.encoder)


@torch.no_grad()
def boundary(state: TrainState) -> None:
    """An experience has ended, as the user says."""
    state.strategy.boundary(state.encoder)
    if state.memory is not None:
        state.memory.boundary()


@torch.no_grad()
def on_host(state: TrainState, seen: int) -> None:
    """After each minibatch, ``seen`` images in all; never captured."""
    state.strategy.on_host(seen, state.encoder, state.optimizer)
