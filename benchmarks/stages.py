"""Where the time of one training step goes: milliseconds of the device, stage by stage.

Every kernel counts once, for the stage during which it was launched, so the numbers are the device's own work, without
the gaps that Python leaves between kernels; the last column is what a step takes by the clock. A captured step runs the
very kernels of the uncaptured one, without gaps.

    python benchmarks/stages.py --strategy cla-e --output stages.json
    python benchmarks/stages.py --device cpu --backbone convnet-w8 --batch 24    # a rehearsal
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

import ocssl
import ocssl.execution

STAGES = ("compose", "views", "mix", "forward", "losses", "optimiser", "after the step", "memory")
REST = "backward"  # runs in threads of its own and is what is left
UNPLACED = "unplaced"  # kernels whose launch the profiler does not know
CLOCK = "by the clock"
MARK = "stage: "
RUNTIME = "cu"  # cudaLaunchKernel and its like
PROFILED = 2  # minibatches
CASES = [("eager", "fp32"), ("eager", "bf16"), ("compiled", "bf16")]  # as it was, as it became


def labelled(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with its name in the profile."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with record_function(f"{MARK}{name}"):
            return function(*args, **kwargs)

    return wrapped


def label(learner: ocssl.Learner) -> None:
    """Put the stages' names on the parts of a learner's step."""
    train_state, strategy = learner.train_state, learner.train_state.strategy
    strategy.compose = labelled("compose", strategy.compose)  # type: ignore[method-assign]
    strategy.mix = labelled("mix", strategy.mix)  # type: ignore[method-assign]
    strategy.losses = labelled("losses", strategy.losses)  # type: ignore[method-assign]
    strategy.after_step = labelled("after the step", strategy.after_step)  # type: ignore[method-assign]
    train_state.optimizer.step = labelled("optimiser", train_state.optimizer.step)  # type: ignore[method-assign]
    train_state.encoder.forward = labelled("forward", train_state.encoder.forward)  # type: ignore[method-assign]
    train_state.augment.apply = labelled("views", train_state.augment.apply)  # type: ignore[method-assign]
    train_state.augment.draw = labelled("views", train_state.augment.draw)  # type: ignore[method-assign]
    if train_state.memory is not None:
        train_state.memory.insert = labelled("memory", train_state.memory.insert)  # type: ignore[method-assign]


def stages(arguments: argparse.Namespace, execution: str, precision: str) -> dict[str, float]:
    """Device milliseconds of each stage of a step that is not captured, and the step's milliseconds by the clock."""
    learner = make(arguments, precision, execution)
    images = torch.randint(0, 256, (20 * 10, 3, 32, 32), dtype=torch.uint8, device=learner.train_state.device)
    learner.partial_fit(images)
    label(learner)
    learner.partial_fit(images[:10])
    on_gpu = learner.train_state.device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as found:
        learner.partial_fit(images[: 10 * PROFILED])
        synchronise(on_gpu)
    parts = of_kernels(found) if on_gpu else of_operations(found)
    steps = PROFILED * learner.passes
    return {name: spent / steps for name, spent in parts.items()} | {CLOCK: clock(learner, images, on_gpu)}


def of_kernels(found: profile) -> dict[str, float]:
    """Milliseconds of the device for each stage: a kernel belongs to the innermost stage that was open at its launch.

    The backward pass launches from a thread of its own, while the one with the stages waits outside all of them.
    """
    assert found.profiler is not None
    events = found.profiler.kineto_results.events()
    on_host = [event for event in events if event.device_type() == DeviceType.CPU]
    marks = [event for event in on_host if event.name().startswith(MARK)]
    launched = {event.correlation_id(): event.start_ns() for event in on_host if event.name().startswith(RUNTIME)}
    parts = dict.fromkeys((*STAGES, REST, UNPLACED), 0.0)
    for event in events:
        if event.device_type() == DeviceType.CUDA and not event.is_user_annotation():
            at = launched.get(event.correlation_id())
            opened = [mark for mark in marks if at is not None and mark.start_ns() <= at <= mark.end_ns()]
            innermost = max(opened, key=lambda mark: mark.start_ns(), default=None)
            name = innermost.name().removeprefix(MARK) if innermost else REST if at is not None else UNPLACED
            parts[name] += event.duration_ns() / 1e6
    return parts


def of_operations(found: profile) -> dict[str, float]:
    """The same on a CPU, where an operation is its own kernel."""
    parts = dict.fromkeys((*STAGES, REST), 0.0)
    for event in found.events():
        if not event.name.startswith(MARK):
            caller = event.cpu_parent
            while caller is not None and not caller.name.startswith(MARK):
                caller = caller.cpu_parent
            parts[REST if caller is None else caller.name.removeprefix(MARK)] += event.self_cpu_time_total / 1000
    return parts


def make(arguments: argparse.Namespace, precision: str, execution: str) -> ocssl.Learner:
    """A learner at the high budget."""
    return ocssl.Learner(
        strategy=arguments.strategy, backbone=arguments.backbone, batch=arguments.batch, passes=3, precision=precision,
        execution=execution, device=arguments.device,
    )  # fmt: skip


def clock(learner: ocssl.Learner, images: torch.Tensor, on_gpu: bool) -> float:
    """Milliseconds a step takes."""
    learner.partial_fit(images)
    synchronise(on_gpu)
    began = time.perf_counter()
    learner.partial_fit(images)
    synchronise(on_gpu)
    return (time.perf_counter() - began) * 1000 / (len(images) / learner.stream_batch * learner.passes)


def synchronise(on_gpu: bool) -> None:
    """Wait for the device."""
    if on_gpu:
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", default="cla-e")
    parser.add_argument("--backbone", default="resnet18")
    parser.add_argument("--batch", type=int, default=138)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    on_gpu = arguments.device != "cpu"
    names = [*STAGES, REST, UNPLACED, CLOCK]
    print(f"{'':18}" + "".join(f"{name:>16}" for name in names))
    rows: dict[str, dict[str, float]] = {}

    def show(title: str, row: dict[str, float]) -> None:
        rows[title] = row
        print(
            f"{title:18}" + "".join(f"{row[name]:16.3f}" if name in row else f"{'':16}" for name in names), flush=True
        )

    for execution, precision in CASES if on_gpu else [("eager", "fp32")]:
        with patch.object(ocssl.execution, "WARM_UPS", sys.maxsize):  # nothing is ever captured
            show(f"{execution} {precision}", stages(arguments, execution, precision))
    for execution in ("graph", "compiled") if on_gpu else ():
        learner = make(arguments, "bf16", execution)
        images = torch.randint(0, 256, (20 * 10, 3, 32, 32), dtype=torch.uint8, device="cuda")
        show(f"{execution} captured", {CLOCK: clock(learner.partial_fit(images), images, on_gpu)})
    if arguments.output:
        about = {"strategy": arguments.strategy, "batch": arguments.batch, "torch": torch.__version__}
        arguments.output.write_text(json.dumps({**about, "milliseconds": rows}, indent=1))


if __name__ == "__main__":
    main()
