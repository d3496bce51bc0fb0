"""What an optimiser is: parameters, a step, a learning rate that may change, and a state of named tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import ocssl.options
from ocssl.errors import ConfigError
from ocssl.options import setting
from ocssl.registry import Registry

registry: Registry[type[Optimizer]] = Registry("optimizer", group="ocssl.optimizers")
register = registry.register


LONG_AGO = 2**62  # steps, more than any anneal takes


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters whose learning rate is a share of the optimiser's.

    Attributes:
        share: scalar on the device of the parameters, read anew in each step. At 0 the parameters stay as they are.
    """

    parameters: Sequence[nn.Parameter]
    share: Tensor


class Optimizer:
    """Base of every optimiser. A subclass implements :meth:`update` and :meth:`moments`.

    An update must be tensor work of fixed shape without reading values back, so that it can be captured as a graph.

    Args:
        parameters: what is trained.
        options: settings of the optimiser.
        fused: whether all parameters may be updated in one kernel (on a GPU).
    """

    class Options(ocssl.options.Options):
        lr: float = setting(
            0.1,
            "Learning rate. Unset: the strategy's, as tuned for SGD, smaller for small batches; else the optimiser's.",
            common=True,
            ge=0,
        )
        warmup: int = setting(0, "Steps in which the learning rate rises to lr.", ge=0, since="0.2")
        anneal: int = setting(
            0,
            "Steps in which the learning rate falls to 0 at the end of a run, or when `Learner.anneal` is called.",
            ge=0,
            since="0.2",
        )

    def __init__(self, parameters: Iterable[nn.Parameter], options: Options, *, fused: bool = False) -> None:
        self.parameters = list(parameters)
        self.options = options
        changes = options.warmup or options.anneal
        self.schedule = Plateau(options, self.parameters[0].device) if changes else None
        self._groups: list[tuple[Sequence[int], Tensor | None]] = [(range(len(self.parameters)), None)]
        self._present: Sequence[int] = self._groups[0][0]

    @property
    def schedule(self) -> Any:
        """Of the learning rate: :class:`Plateau`, or an object with its ``next()`` and ``state_dict()``; None: none."""
        return self._schedule

    @schedule.setter
    def schedule(self, schedule: Any) -> None:
        if not isinstance(schedule, Plateau | None) and (self.options.warmup or self.options.anneal):
            raise ConfigError(
                f"{registry.describe(type(self))} has a schedule of its own and does not read warmup and anneal; leave "
                "them out"
            )
        self._schedule = schedule

    def divide(self, groups: Sequence[ParameterGroup]) -> None:
        """Give parameters a share of the learning rate; those in no group have all of it.

        >>> from ocssl.optim import SGD
        >>> head, body = (nn.Parameter(torch.ones(1)) for _ in range(2))
        >>> optimizer = SGD([head, body], SGD.Options(lr=0.5, weight_decay=0.0))
        >>> optimizer.divide([ParameterGroup([body], torch.tensor(0.1))])
        >>> head.grad = body.grad = torch.ones(1)
        >>> optimizer.step()
        >>> head.item(), round(body.item(), 6)
        (0.5, 0.95)
        """
        numbers = {parameter: i for i, parameter in enumerate(self.parameters)}
        divided = _members(groups, numbers)
        taken = {i for members, _ in divided for i in members}
        self._groups = [([i for i in numbers.values() if i not in taken], None), *divided]

    def zero_grad(self) -> None:
        """Remove the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def step(self) -> None:
        """Update every parameter that has a gradient."""
        self.update_groups(self.options.lr if self.schedule is None else self.schedule.next())

    def update_groups(self, lr: float | Tensor) -> None:
        """:meth:`update` each group with its share of the learning rate."""
        for members, share in self._groups:
            self._present = members
            if self.moved():
                self.update(lr if share is None else (lr * share).float())

    def update(self, lr: float | Tensor) -> None:
        """Update what :meth:`moved` returns, with this learning rate, a scalar."""
        raise NotImplementedError

    def moved(self) -> list[tuple[nn.Parameter, Tensor, int]]:
        """Each parameter of the present group that has a gradient, with the gradient and the parameter's number."""
        numbered = ((self.parameters[i], i) for i in self._present)
        return [(parameter, parameter.grad, i) for parameter, i in numbered if parameter.grad is not None]

    def moments(self) -> dict[str, Tensor]:
        """What earlier gradients left, by name, zeros at the start; references, not copies.

        An optimiser with other tensors at the start overrides :meth:`reset`, too.
        """
        return {}

    def reset(self) -> None:
        """Forget earlier gradients, as a new optimiser of the same parameters; the learning rate goes on as it was."""
        for tensor in self.moments().values():
            tensor.zero_()

    def anneal(self) -> None:
        """Let the learning rate fall to 0 in the next steps; then it is back at ``lr``."""
        if not isinstance(self.schedule, Plateau | None):
            raise ConfigError(f"{registry.describe(type(self))} has a schedule of its own and cannot anneal")
        if self.schedule is None or not self.options.anneal:
            raise ConfigError("this learner's anneal is 0; set the number of steps, e.g. anneal=500")
        self.schedule.begin_anneal()

    def state_dict(self) -> dict[str, Tensor]:
        """Every tensor that later steps depend on, by name; references, not copies."""
        return self.moments() | ({} if self.schedule is None else self.schedule.state_dict())

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Copy a saved state into :meth:`state_dict`."""
        for name, tensor in self.state_dict().items():
            tensor.copy_(state[name])


def _members(groups: object, trained: Mapping[nn.Parameter, int]) -> list[tuple[list[int], Tensor]]:
    """The numbers of each group's parameters and its share; refused where an update would fail or move one twice."""
    culprit = "groups() of the strategy"
    must = f"{culprit} must return a list of ParameterGroup(parameters, share), not"
    if not isinstance(groups, list | tuple):
        raise ConfigError(f"{must} {type(groups).__name__}")
    divided: list[tuple[list[int], Tensor]] = []
    taken: set[int] = set()
    for group in groups:
        if not isinstance(group, ParameterGroup):
            raise ConfigError(f"{must} one of {type(group).__name__}")
        members: list[int] = []
        if not isinstance(group.share, Tensor) or group.share.ndim:
            what = f"one of shape {tuple(group.share.shape)}" if isinstance(group.share, Tensor) else repr(group.share)
            raise ConfigError(f"{culprit} must give shares as tensors of one number, torch.tensor(0.1), not {what}")
        for parameter in group.parameters:
            what = (
                f"of shape {tuple(parameter.shape)}"
                if isinstance(parameter, Tensor)
                else f"of type {type(parameter).__name__}"
            )
            number = trained.get(parameter)
            if number is None:
                raise ConfigError(f"{culprit} has a parameter {what} that is not trained; leave it out")
            if number in taken:
                raise ConfigError(f"{culprit} has the parameter {what} more than once; put it into one group")
            taken.add(number)
            members.append(number)
        divided.append((members, group.share))
    return divided


registry.base = Optimizer
registry.required = ("update",)


class Plateau:
    """The learning rate rises over ``warmup`` steps and stays. It can fall to 0 over ``anneal`` steps at any time.

    The end of a stream is not known beforehand, so nothing here depends on it.

    >>> schedule = Plateau(Optimizer.Options(lr=1.0, warmup=2, anneal=4), torch.device("cpu"))
    >>> [schedule.next().item() for _ in range(3)]
    [0.5, 1.0, 1.0]
    >>> schedule.begin_anneal()
    >>> [schedule.next().item() for _ in range(5)]
    [1.0, 0.75, 0.5, 0.25, 1.0]
    """

    def __init__(self, options: Optimizer.Options, device: torch.device) -> None:
        self.options = options
        self.steps = torch.zeros((), dtype=torch.int64, device=device)
        self.annealed = torch.full((), -LONG_AGO, dtype=torch.int64, device=device)  # where it began

    def next(self) -> Tensor:
        """The learning rate of the next step, a scalar on the device."""
        rate = torch.full_like(self.steps, 1, dtype=torch.float32) * self.options.lr
        if self.options.warmup:
            rate = rate * ((self.steps + 1) / self.options.warmup).clamp(max=1)
        if self.options.anneal:
            since = (self.steps - self.annealed) / self.options.anneal
            rate = rate * torch.where(since < 1, 1 - since, 1.0)
        self.steps += 1
        return rate

    def begin_anneal(self) -> None:
        """The next step is the first of an anneal."""
        self.annealed.copy_(self.steps)

    def state_dict(self) -> dict[str, Tensor]:
        """Steps so far, and the step at which the last anneal began."""
        return {"schedule.steps": self.steps, "schedule.annealed": self.annealed}
