"""Contracts of a step that is captured as a CUDA graph, checked on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ocssl.batch import StepOutput
from ocssl.checks.small import Build, small_stream
from ocssl.learner import Learner


def can_be_captured(build: Build) -> None:
    """A captured step neither replaces tensors nor changes numbers on the host, and reads no number of the device."""
    learner = build()
    train_state, strategy = learner.train_state, learner.train_state.strategy
    if not _captures(learner):
        return

    def addresses() -> dict[str, int]:
        state = train_state.state_dict()
        return {name: tensor.data_ptr() for name, tensor in state.items() if name != "generator"}

    def watched(part: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            before, numbers = addresses(), dict(strategy.host_state())
            with OnDevice() as watch:
                result = part(*given)
            losses = result.losses if isinstance(result, StepOutput) else {}
            apart = [name for name, loss in losses.items() if loss.data_ptr() in map(Tensor.data_ptr, watch.numbers)]
            assert not apart, (
                f"terms {apart} of the loss are made on the CPU, and cannot be added to the others on a GPU; leave "
                "them out, or compute them from step.features"
            )
            replaced = [name for name, address in addresses().items() if before.get(name, address) != address]
            assert not replaced, (
                f"a step replaces {replaced[:5]}, but a captured step goes on with the old tensors; change them in "
                "place, as with copy_()"
            )
            changed = changed_names(numbers, strategy.host_state())
            assert not changed, (
                f"a step changes {changed} of host_state(), but a captured step runs no Python; change them in "
                "on_host()"
            )
            return result

        return run

    for name in ("before_passes", "step", "after_passes"):
        setattr(learner.executor, name, watched(getattr(learner.executor, name)))
    learner.partial_fit(small_stream(20))


def _captures(learner: Learner) -> bool:
    """Whether steps are captured on a GPU, which ``execution="eager"`` and a memory with ``host_work`` exclude."""
    kept = learner.train_state.memory
    return learner.config.execution != "eager" and not (kept is not None and kept.host_work)


def changed_names(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """The names of values that differ, sorted."""
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))


def reads_no_number_of_the_capture(build: Build) -> None:
    """A replay runs no Python: a number on the host stays as it was when the graph of this key was captured."""
    learner = build(passes=1)
    strategy, kept = learner.train_state.strategy, learner.train_state.memory
    if not _captures(learner):
        return
    captured: dict[Hashable, tuple[dict[str, int | float | bool], int]] = {}
    for stream in small_stream(6 * learner.config.stream_batch).split(learner.config.stream_batch):
        if kept is None or strategy.replaying(kept):  # graphs are captured from then on
            now, seen = dict(strategy.host_state()), 0 if kept is None else kept.seen
            then, seen_then = captured.setdefault(strategy.graph_key(kept), (now, seen))
            changed = changed_names(then, now)
            assert not changed or _same_step(learner, stream, host=then), (
                f"a step reads {changed} of host_state(), numbers on the host, but a captured step goes on with those "
                "of its capture; keep them in a buffer that is changed in place"
            )
            assert seen_then == seen or _same_step(learner, stream, seen=seen_then), (
                "a step reads len() or seen of the memory, numbers on the host, but a captured step goes on with those "
                "of its capture; read the tensor self.arrived in a memory, memory.arrived in a strategy"
            )
        learner.partial_fit(stream)


def _same_step(
    learner: Learner, stream: Tensor, host: Mapping[str, int | float | bool] | None = None, seen: int | None = None
) -> bool:
    """Whether a learner's next step is the same with the host's numbers of an earlier moment."""
    facts, tensors = learner._facts(), learner._tensors()
    now, earlier = (Learner._restored(facts["config"], facts, tensors) for _ in range(2))
    state = earlier.train_state
    if host is not None:
        state.strategy.load_host_state(host)
        state.load_state_dict(tensors)  # which may have been changed
    if seen is not None and state.memory is not None:
        state.memory.seen = seen
    for twin in (now, earlier):
        twin.train_state.strategy.on_host = lambda *given: None  # type: ignore[method-assign]  # never captured
        twin._fit(stream)
    mine, theirs = now._tensors(), earlier._tensors()
    return all(torch.equal(tensor, theirs[name]) for name, tensor in mine.items())


class OnDevice(TorchFunctionMode):
    """Refuses calls that read values on the host, copy from it, or make CPU tensors, except of one number.

    Args:
        otherwise: what a part does that needs such calls.

    Attributes:
        numbers: tensors of one number on the CPU, which may be a factor on a GPU, for example.
    """

    reading = "item", "tolist", "cpu", "numpy", "equal", "nonzero", "argwhere", "masked_select", "unique", "bincount"
    converting = "__bool__", "__int__", "__float__", "__index__"
    checking = "linalg_cholesky", "cholesky", "linalg_inv", "inverse", "linalg_solve"
    factoring = (
        *("svd", "pinverse", "linalg_cond", "linalg_lstsq", "linalg_matrix_rank", "linalg_pinv", "linalg_svd"),
        *("linalg_svdvals", "linalg_eig", "linalg_eigh", "linalg_eigvals", "linalg_eigvalsh"),
    )
    norms = "norm", "linalg_norm", "linalg_matrix_norm"
    copying = "tensor", "as_tensor", "asarray", "new_tensor"
    making = "arange", "empty", "eye", "full", "linspace", "ones", "rand", "randint", "randn", "randperm", "zeros"

    def __init__(self, otherwise: str = "give execution='eager' here and in training") -> None:
        super().__init__()
        self.otherwise = otherwise
        self.numbers: list[Tensor] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = function.__name__, kwargs or {}
        how, instead = self._read(name, args, kwargs)
        assert not how, (
            f"a step reads values of a tensor on the host, by {how}, and cannot be captured as a CUDA graph; "
            f"{instead and f'use {instead}, or '}{self.otherwise}"
        )
        result = function(*args, **kwargs)
        copied = self._copied(name, args, kwargs, result)
        assert not copied, (
            f"a step copies numbers from the host, by {copied}, and cannot be captured as a CUDA graph; make the "
            f"tensor in the constructor, as a buffer, or {self.otherwise}"
        )
        elsewhere = name in ("tensor", *self.making) and kwargs.get("device") is None
        if elsewhere and result.ndim == 0:
            self.numbers.append(result)
        assert not (elsewhere and result.ndim), (
            f"a step makes a tensor on the CPU, by {name}() without device, and fails on a GPU; give the device of a "
            "tensor at hand, as device=features.device"
        )
        return result

    def _read(self, name: str, args: Any, kwargs: Any) -> tuple[str, str]:
        """How a call reads values on the host, and what to use instead; empty where it reads none."""
        taken = name == "__getitem__" or (name == "__setitem__" and isinstance(args[2], Tensor) and args[2].ndim > 0)
        if taken and any(isinstance(part, Tensor) and part.dtype == torch.bool for part in _parts(args[1])):
            return "an index of booleans", "torch.where"
        if isinstance(kwargs.get("alpha"), Tensor):  # for which torch needs a number
            return f"{name}(alpha=…)", "a product"
        if name == "one_hot" and len(args) < 2 and "num_classes" not in kwargs:
            return "one_hot() without num_classes", "one_hot() with it"
        if name in self.checking:
            return f"{name}()", "a function of torch.linalg that ends in _ex"
        nuclear = name in self.norms and any(arg == "nuc" for arg in (*args, *kwargs.values()) if isinstance(arg, str))
        if nuclear or name in self.factoring:
            return f"{name}()", ""
        return (f"{name}()", "torch.where") if name in (*self.reading, *self.converting) else ("", "")

    def _copied(self, name: str, args: Any, kwargs: Any, result: Any) -> str:
        """How a call copies numbers from the host to a device; empty where it does not."""
        if name in ("__getitem__", "__setitem__"):
            return "an index that is a list" if any(isinstance(part, list) for part in _parts(args[1])) else ""
        if name not in self.copying or isinstance(args[name == "new_tensor"], Tensor):
            return ""
        return f"{name}()" if result.ndim or kwargs.get("device") is not None else ""


def _parts(index: object) -> tuple[object, ...]:
    return index if isinstance(index, tuple) else (index,)
