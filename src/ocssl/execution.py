"""How steps are run. Strategies do not know; eager execution is the reference."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import MethodType
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from ocssl.batch import StepOutput
from ocssl.errors import ConfigError, DeviceError
from ocssl.nn import Dropout, Encoder, Head
from ocssl.step import TrainState, after_passes, before_passes, train_step

T = TypeVar("T")

WARM_UPS = 3  # real steps, run eagerly, before a part is captured: libraries choose and allocate in them


class Executor(Protocol):
    """Runs the three parts of a minibatch's training."""

    preparing: float
    """Seconds spent so far on warming up, compiling and capturing."""

    def before_passes(self, stream: Tensor) -> None:
        """Before the passes."""

    def step(self, stream: Tensor) -> StepOutput:
        """One pass."""

    def after_passes(self, stream: Tensor, output: StepOutput) -> None:
        """After the passes."""


class Eager:
    """Operation by operation, as the functions of :mod:`ocssl.step` say."""

    preparing = 0.0

    def __init__(self, state: TrainState) -> None:
        self.state = state

    def before_passes(self, stream: Tensor) -> None:
        """Before the passes."""
        with _kernels(self.state):
            before_passes(self.state, stream)

    def step(self, stream: Tensor) -> StepOutput:
        """One pass."""
        with _kernels(self.state):
            return train_step(self.state, stream)

    def after_passes(self, stream: Tensor, output: StepOutput) -> None:
        """After the passes."""
        after_passes(self.state, stream, output)


@dataclass
class _Captured:
    graph: torch.cuda.CUDAGraph
    stream: Tensor
    result: Any


class Graphs:
    """Each part captured once per graph_key and minibatch size as a CUDA graph, then replayed.

    A replay does the very operations that were captured, on the same addresses, without Python in between. Warm-up runs
    are real ones, so a captured run draws the same numbers and takes the same steps as an eager one.

    Args:
        compile: let torch.compile fuse the networks, augmentation, the average's update and the check of the losses.
    """

    def __init__(self, state: TrainState, compile: bool = False) -> None:
        self.state = state
        self.preparing = 0.0
        self._side = torch.cuda.Stream(state.device)
        self._runs: Counter[Hashable] = Counter()
        self._captured: dict[Hashable, _Captured] = {}
        self._uncompiled: Callable[[], AbstractContextManager[object]] = nullcontext
        if compile:
            self._uncompiled = partial(torch.compiler.set_stance, "force_eager")
            # All heads share one forward function, and each is compiled for itself; what was compiled for learners
            # before this one counts against the limit as well.
            torch.compiler.reset()
            torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 64)
            for root in (state.encoder, state.strategy):
                for layer in root.modules():
                    if isinstance(layer, Dropout):  # torch.compile does not draw from a given generator
                        _wrap(layer, "dropped", torch.compiler.disable)
            for module in _networks(state):
                module.compile(dynamic=False)
            parts = (
                (state.augment, "scaled"),
                (state.augment, "apply"),
                (state.small_augment, "scaled"),
                (state.small_augment, "apply"),
                (state.average, "update"),
                (state, "check_losses"),
            )
            for owner, name in parts:
                _wrap(owner, name, partial(torch.compile, dynamic=False))

    def before_passes(self, stream: Tensor) -> None:
        """Before the passes."""
        if self.state.memory is not None and self.state.strategy.insert_at == "before":
            self._run("before_passes", lambda images: before_passes(self.state, images), stream)

    def step(self, stream: Tensor) -> StepOutput:
        """One pass."""
        return self._run("step", lambda images: train_step(self.state, images), stream)

    def after_passes(self, stream: Tensor, output: StepOutput) -> None:
        """After the passes."""
        if self.state.memory is None or self.state.strategy.insert_at == "before":
            after_passes(self.state, stream, output)  # no work of the memory's to capture
            return
        # The captured part reads the last step's results where that step's graph leaves them.
        captured = any(step.result is output for step in self._captured.values())
        self._run("after_passes", lambda images: after_passes(self.state, images, output), stream, ready=captured)

    def _run(self, part: str, function: Callable[[Tensor], T], stream: Tensor, ready: bool = True) -> T:
        if not self._settled:
            with _kernels(self.state, search=False), self._uncompiled():
                return function(stream)
        key = part, self.state.strategy.graph_key(self.state.memory), len(stream)
        if (captured := self._captured.get(key)) is not None:
            captured.stream.copy_(stream)
            captured.graph.replay()
            result: T = captured.result
            return result
        started = time.perf_counter()
        if ready and self._runs[key] >= WARM_UPS:
            result = self._capture(key, function, stream)
        else:
            self._runs[key] += 1
            result = self._warm_up(function, stream)
        self.preparing += time.perf_counter() - started
        return result

    def _warm_up(self, function: Callable[[Tensor], T], stream: Tensor) -> T:
        """A real run on the stream that the capture will use."""
        self._side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._side), _kernels(self.state):
            result = function(stream)
        torch.cuda.current_stream().wait_stream(self._side)
        return result

    def _capture(self, key: Hashable, function: Callable[[Tensor], T], stream: Tensor) -> T:
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.state.generator)
        static = stream.clone()
        # Other threads, like one that reads images ahead, may go on using the device meanwhile.
        recording = torch.cuda.graph(graph, stream=self._side, capture_error_mode="thread_local")
        with recording, _kernels(self.state):
            result = function(static)
        graph.replay()  # capturing only records: this is the run itself
        self._captured[key] = _Captured(graph, static, result)
        return result

    @property
    def _settled(self) -> bool:
        """Compiling, capturing and the search for kernels pay for thousands of steps, not for those before replay."""
        memory = self.state.memory
        return memory is None or self.state.strategy.replaying(memory)


def make_executor(name: str, state: TrainState) -> Executor:
    """The executor of that name; ``auto`` captures graphs on a GPU and is eager elsewhere."""
    host_work = state.memory is not None and state.memory.host_work
    if name == "auto":
        captures = state.device.type == "cuda" and not host_work and state.group.single
        name = "graph" if captures else "eager"
    if name == "eager":
        return Eager(state)
    if not state.group.single:
        raise ConfigError(f"execution '{name}' works in one process only; use 'eager' in a group of {state.group.size}")
    if host_work:
        kind = type(state.memory).__name__
        raise ConfigError(f"execution '{name}' cannot capture memory {kind}, which works on the host; use 'eager'")
    if state.device.type != "cuda":
        raise DeviceError(
            f"execution '{name}' needs a CUDA device; this learner is on '{state.device}'; 'auto' fits every device"
        )
    return Graphs(state, compile=name == "compiled")


def _wrap(owner: object, name: str, wrapper: Callable[[Any], Any]) -> None:
    """Wrap a method of one object, where its class has it; an earlier wrapping, as of a copy's original, is undone."""
    if (method := getattr(type(owner), name, None)) is not None:
        setattr(owner, name, wrapper(MethodType(method, owner)))


def _kernels(state: TrainState, search: bool = True) -> AbstractContextManager[object]:
    """How cuDNN picks its kernels: the fastest for these fixed shapes, or, in float32, exact and always the same.

    Args:
        search: try them all, which takes seconds for each new shape.
    """
    if state.device.type != "cuda":
        return nullcontext()
    exact = state.autocast is None
    flags: AbstractContextManager[object] = torch.backends.cudnn.flags(
        enabled=True, benchmark=search and not exact, deterministic=exact, allow_tf32=not exact
    )
    return flags


def _networks(state: TrainState) -> Iterator[nn.Module]:
    """Every network that a step runs: backbones and projectors, the teachers' too, and all heads."""
    for root in (state.encoder, state.strategy):
        for module in root.modules():
            if isinstance(module, Encoder):
                yield module.backbone
                yield module.projector
    for owner in (state.strategy, state.strategy.method):
        if owner is not None:
            yield from (head for head in owner.children() if isinstance(head, Head))
