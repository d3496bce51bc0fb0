"""Where the time of one training step goes: milliseconds of the device, stage by stage.

Kernels are counted where they were launched, so the numbers are the device's own work, without the gaps that eager
execution leaves between them; the last column is what a step takes by the clock.

    python benchmarks/stages.py --strategy cla-e --output stages.json
    python benchmarks/stages.py --device cpu --backbone convnet-w8 --batch 24    # a rehearsal
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

import ocssl

STAGES = ("compose", "views", "mix", "forward", "losses", "optimiser", "after the step", "memory")
REST = "backward"  # runs in threads of its own and is what is left


def labelled(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with its name in the profile."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with record_function(f"stage: {name}"):
            return function(*args, **kwargs)

    return wrapped


def label(learner: ocssl.Learner) -> None:
    """Put the stages' names on the parts of a learner's step."""
    machine, strategy = learner.machine, learner.machine.strategy
    strategy.compose = labelled("compose", strategy.compose)  # type: ignore[method-assign]
    strategy.mix = labelled("mix", strategy.mix)  # type: ignore[method-assign]
    strategy.losses = labelled("losses", strategy.losses)  # type: ignore[method-assign]
    strategy.after_step = labelled("after the step", strategy.after_step)  # type: ignore[method-assign]
    machine.optimizer.step = labelled("optimiser", machine.optimizer.step)  # type: ignore[method-assign]
    machine.encoder.forward = labelled("forward", machine.encoder.forward)  # type: ignore[method-assign]
    machine.augment.apply = labelled("views", machine.augment.apply)  # type: ignore[method-assign]
    machine.augment.draw = labelled("views", machine.augment.draw)  # type: ignore[method-assign]
    if machine.memory is not None:
        machine.memory.insert = labelled("memory", machine.memory.insert)  # type: ignore[method-assign]


def stages(arguments: argparse.Namespace, precision: str) -> dict[str, float]:
    """Device milliseconds of each stage of a step, eagerly run, and the step's milliseconds by the clock."""
    learner = make(arguments, precision, "eager")
    images = torch.randint(0, 256, (20 * 10, 3, 32, 32), dtype=torch.uint8, device=learner.machine.device)
    learner.partial_fit(images)
    label(learner)
    on_gpu = learner.machine.device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as found:
        learner.partial_fit(images[:50])
        synchronise(on_gpu)
    steps = 5 * learner.passes
    spent = {event.key: (event.device_time_total if on_gpu else event.cpu_time_total) for event in found.key_averages()}
    whole = sum(
        event.self_device_time_total if on_gpu else event.self_cpu_time_total
        for event in found.key_averages()
        if not event.key.startswith("stage: ")
    )
    parts = {name: spent.get(f"stage: {name}", 0.0) / steps / 1000 for name in STAGES}
    return parts | {REST: whole / steps / 1000 - sum(parts.values()), "by the clock": clock(learner, images, on_gpu)}


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
    rows = {
        f"eager {precision}": stages(arguments, precision) for precision in (("fp32", "bf16") if on_gpu else ("fp32",))
    }
    for execution in ("graph", "compiled") if on_gpu else ():
        learner = make(arguments, "bf16", execution)
        images = torch.randint(0, 256, (20 * 10, 3, 32, 32), dtype=torch.uint8, device="cuda")
        rows[f"{execution} bf16"] = {"by the clock": clock(learner.partial_fit(images), images, on_gpu)}
    names = [*STAGES, REST, "by the clock"]
    print(f"{'':16}" + "".join(f"{name:>16}" for name in names))
    for title, row in rows.items():
        print(f"{title:16}" + "".join(f"{row[name]:16.3f}" if name in row else f"{'':16}" for name in names))
    if arguments.output:
        about = {"strategy": arguments.strategy, "batch": arguments.batch, "torch": torch.__version__}
        arguments.output.write_text(json.dumps({**about, "milliseconds": rows}, indent=1))


if __name__ == "__main__":
    main()
