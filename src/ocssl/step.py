"""One training step, the same for every strategy, and the two moments around the passes over a minibatch.

Everything here is tensor work of fixed shape on one device. No value is read back to the host, so an executor may run
these functions eagerly or capture them once and replay them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ocssl.augment import Augmentation
from ocssl.batch import Outcome
from ocssl.distributed import Group
from ocssl.losses import full
from ocssl.memory import Memory
from ocssl.nn import Encoder
from ocssl.optimizer import SGD
from ocssl.strategies import Strategy

ALARM_BITS = 16  # how many parts of a loss an alarm can tell apart


@dataclass(frozen=True)
class Machine:
    """Everything a step reads and changes.

    Attributes:
        autocast: the low precision of the forward pass, or None for float32 throughout.
        joint_views: all views in one forward pass, or each in its own.
        group: the processes that train together.
        alarm: scalar int64 on the device, 0 while every loss was finite; see :meth:`watch`.
    """

    encoder: Encoder
    strategy: Strategy
    memory: Memory | None
    augment: Augmentation
    optimizer: SGD
    generator: torch.Generator
    autocast: torch.dtype | None
    joint_views: bool
    group: Group
    steps: Tensor
    alarm: Tensor

    @property
    def device(self) -> torch.device:
        """Where everything lives."""
        return self.generator.device

    def watch(self, losses: list[Tensor]) -> None:
        """Count the step; at the first loss that is not finite, note which step and, as low bits, which parts."""
        bad = torch.stack([(~loss.isfinite()).long() << i for i, loss in enumerate(losses)]).sum()
        self.steps.add_(1)
        self.alarm.copy_(torch.where((self.alarm == 0) & (bad > 0), (self.steps << ALARM_BITS) + bad, self.alarm))

    def average(self) -> None:
        """Bring the processes of a group together again after their own passes: the same step for everybody.

        Statistics that each batch norm took of its own rows alone are averaged too.
        """
        if not self.group.alone:
            gradients = (parameter.grad for parameter in self.optimizer.parameters)
            self.group.average(gradient for gradient in gradients if gradient is not None)
            self.group.average(
                buffer
                for network in (self.encoder, self.strategy)
                for buffer in network.buffers()
                if buffer.is_floating_point()
            )


def train_step(machine: Machine, stream: Tensor) -> Outcome:
    """One pass over a stream minibatch.

    Args:
        stream: ``(n, 3, s, s)`` uint8, on the machine's device.
    """
    strategy, encoder = machine.strategy, machine.encoder
    batch = strategy.compose(stream, machine.memory, machine.generator)
    views = machine.augment(batch.images, views=strategy.views, generator=machine.generator)
    mixed = strategy.mix(views, batch, machine.generator)

    with torch.autocast(machine.device.type, dtype=machine.autocast, enabled=machine.autocast is not None):
        features = encoder(mixed, machine.joint_views)
        losses = strategy.losses(batch, mixed, features)
    total = torch.stack([full(loss) for loss in losses.values()]).sum()

    machine.optimizer.zero_grad()
    total.backward()
    machine.average()
    for _ in range(strategy.optimizer_repeats):
        machine.optimizer.step()

    with torch.no_grad():
        parts = {name: loss.detach() for name, loss in losses.items()}
        machine.watch([*parts.values()])
        outcome = Outcome(batch, views, features.detach(), parts | {"total": total.detach()})
        strategy.after_step(outcome, encoder, machine.memory)
    return outcome


@torch.no_grad()
def arrive(machine: Machine, stream: Tensor) -> None:
    """Before the passes: some strategies let newcomers into the memory at once."""
    if machine.memory is not None and machine.strategy.enters == "before":
        with torch.autocast(machine.device.type, dtype=machine.autocast, enabled=machine.autocast is not None):
            columns = machine.strategy.on_arrival(machine.augment.normalize(stream), machine.encoder)
        machine.memory.insert(stream, columns, machine.generator)


@torch.no_grad()
def depart(machine: Machine, stream: Tensor, outcome: Outcome) -> None:
    """After the passes: the others let them in now, with what the last pass knew of them."""
    if machine.memory is not None and machine.strategy.enters == "after":
        machine.memory.insert(stream, machine.strategy.on_departure(outcome), machine.generator)
    machine.strategy.after_minibatch(machine.encoder)
