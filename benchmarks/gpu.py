"""Our training step against a bare one with the same network, batch and optimiser, in one process on one GPU.

The bare step is the ceiling: views that lie ready on the device, forward, loss, backward, fused SGD, captured as a
CUDA graph (and compiled, where ours is). It has no stream, no memory, no augmentation, no teacher update. Where the
strategy's loss needs more network passes than plain training (a teacher's forward pass, an aligner, a second head), so
does the bare step.

    python benchmarks/gpu.py --output gpu.json            # all strategies, graph and compiled
    python benchmarks/gpu.py --strategies er cla-e --batches 138 --executions graph
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import ocssl
from ocssl.losses import negative_cosine
from ocssl.nn import Encoder, ResNet18, channels_last, frozen_copy, predictor, projector

STREAM_BATCH = 10
PASSES = 3
TEACHERS = {"cla-b": "stream", "cla-e": "replay", "cassle-r": "replay", "scale": "all"}
ALIGNERS = {"cla-b": "stream", "cla-e": "replay", "cla-r": "replay", "cassle-r": "replay"}
GRID = [
    ("er", 138), ("cla-r", 138), ("cla-e", 138), ("cassle-r", 138), ("osiris-r", 138), ("minred", 138), ("scale", 138),
    ("er", 30), ("cla-r", 30), ("cla-e", 30), ("cla-b", 10), ("lump", 10),
]  # fmt: skip


def median_ms(run: Callable[[], object], repeats: int) -> float:
    """Milliseconds of one call, by device events, the median of many."""
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def bare_step(strategy: str, batch: int, compile: bool) -> Callable[[], object]:
    """A captured training step on resident random views."""
    torch.manual_seed(0)
    encoder = Encoder(ResNet18(), projector(512, 512, 2048), 512).cuda()
    head, aligner, second = predictor(2048, 512).cuda(), predictor(2048, 512).cuda(), projector(512, 512, 2048).cuda()
    teacher = frozen_copy(encoder)
    for module in (encoder, teacher):
        channels_last(module)
    trained = [*encoder.parameters(), *head.parameters(), *aligner.parameters(), *second.parameters()]
    optimizer = torch.optim.SGD(trained, lr=0.03, momentum=0.9, weight_decay=1e-4, fused=True)
    views = torch.randn(2, batch, 3, 32, 32, device="cuda")
    rows = {"stream": slice(0, STREAM_BATCH), "replay": slice(STREAM_BATCH, batch), "all": slice(0, batch)}
    stored = torch.randn(1, batch, 2048, device="cuda")
    if compile:
        for network in (
            encoder.backbone,
            encoder.projector,
            teacher.backbone,
            teacher.projector,
            head,
            aligner,
            second,
        ):
            network.compile(dynamic=False)

    def step() -> Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            features = encoder(views, joint=True)
            loss = negative_cosine(features.through(head), features.projected.flip(0))
            target = stored
            if strategy in TEACHERS:
                with torch.no_grad():
                    target = teacher(views[:, rows[TEACHERS[strategy]]], joint=True).projected
            if strategy in ALIGNERS:
                chosen = rows[ALIGNERS[strategy]]
                target = target if strategy in TEACHERS else target[:, chosen]
                loss = loss + negative_cosine(features.through(aligner, features.projected[:, chosen]), target)
            if strategy == "osiris-r":
                again = features.through(second, features.backbone)
                loss = loss + negative_cosine(again, again.flip(0))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.backends.cudnn.flags(enabled=True, benchmark=True):
        for _ in range(3):
            step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side), torch.backends.cudnn.flags(enabled=True, benchmark=True):
        step()
    return graph.replay


def our_learner(strategy: str, batch: int, execution: str) -> tuple[ocssl.Learner, float]:
    """A learner past its warm-up phase, and the seconds from nothing to the first captured replay step."""
    started = time.perf_counter()
    replays = ocssl.strategies.get(strategy).default_memory is not None
    learner = ocssl.Learner(
        strategy=strategy, stream_batch=STREAM_BATCH, batch=batch, passes=PASSES, lr=0.03, execution=execution,
        memory_size=2000, device="cuda",
    )  # fmt: skip
    images = torch.randint(0, 256, (2200, 3, 32, 32), dtype=torch.uint8, device="cuda")
    learner.partial_fit(images[: (batch + 4 * STREAM_BATCH) if replays else 5 * STREAM_BATCH])
    torch.cuda.synchronize()
    cold = time.perf_counter() - started
    learner.partial_fit(images)  # a full memory: the costliest state
    torch.cuda.synchronize()
    return learner, cold


def measure_ours(strategy: str, batch: int, execution: str, repeats: int) -> dict[str, float]:
    """Milliseconds a step in the steady state, seconds to get there, and the memory it took."""
    torch.cuda.reset_peak_memory_stats()
    learner, cold = our_learner(strategy, batch, execution)
    minibatches = 20
    images = torch.randint(0, 256, (minibatches * STREAM_BATCH, 3, 32, 32), dtype=torch.uint8, device="cuda")
    milliseconds = median_ms(lambda: learner.partial_fit(images), repeats) / (minibatches * PASSES)
    return {
        "step_ms": round(milliseconds, 3),
        "cold_seconds": round(cold, 1),
        "preparing_seconds": round(learner.executor.preparing, 1),
        "memory_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
    }


def measure(strategy: str, batch: int, execution: str, repeats: int) -> dict[str, Any]:
    """One row of the report."""
    ours = measure_ours(strategy, batch, execution, repeats)
    bare = median_ms(bare_step(strategy, batch, execution == "compiled"), repeats * 10)
    torch.compiler.reset()
    torch.cuda.empty_cache()
    ratio = round(ours["step_ms"] / bare, 3)
    row = {"strategy": strategy, "batch": batch, "execution": execution}
    return {**row, "bare_ms": round(bare, 3), "ratio": ratio, **ours}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", nargs="+", help="only these")
    parser.add_argument("--batches", nargs="+", type=int, help="only these batch sizes")
    parser.add_argument("--executions", nargs="+", default=["graph", "compiled"])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--output", type=Path, help="write the rows as JSON")
    arguments = parser.parse_args()

    rows = []
    for execution in arguments.executions:
        for strategy, batch in GRID:
            if arguments.strategies and strategy not in arguments.strategies:
                continue
            if arguments.batches and batch not in arguments.batches:
                continue
            row = measure(strategy, batch, execution, arguments.repeats)
            rows.append(row)
            print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    if arguments.output:
        about = {
            "device": torch.cuda.get_device_name(), "torch": torch.__version__, "ocssl": ocssl.__version__,
            "python": platform.python_version(), "stream_batch": STREAM_BATCH, "passes": PASSES,
        }  # fmt: skip
        arguments.output.write_text(json.dumps({**about, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
