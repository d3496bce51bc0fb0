"""Our training step against a bare one with the same network, batch and optimiser, in one process on one GPU.

The bare step is the ceiling: views that lie ready on the device, forward, loss, backward, fused SGD, captured as a
CUDA graph (and compiled, where ours is). It has no stream, no memory, no augmentation, no teacher update. Where the
strategy's loss needs more than plain training (a teacher's forward pass, an aligner, a second head, Osiris' four
contrasts), so does the bare step.

A minibatch is measured at several numbers of passes, so that what a run costs can be drawn against its CBP
(``benchmarks/times.py``).

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
from ocssl.losses import cross_contrast, negative_cosine, nt_xent
from ocssl.nn import Encoder, ResNet18, channels_last, frozen_copy, predictor, projector

PASSES = (1, 3, 6)
ALIGNED = {"cla-b": "stream", "cassle": "stream", "pfr": "stream", "cla-e": "replay", "cassle-r": "replay"}
TEACHERS = {**ALIGNED, "scale": "all"}  # which rows a frozen or trailing copy sees too
ALIGNERS = {**ALIGNED, "cla-r": "replay"}  # and which pass a head that predicts older features
GRID = [
    *((strategy, batch) for batch in (138, 30) for strategy in ocssl.strategies.names()),
    *((strategy, 10) for strategy in ("er", "cla-r", "cla-e", "cla-b", "cassle", "pfr", "lump", "finetune")),
]


def stream_rows(strategy: str, batch: int) -> int:
    """How many rows of a batch come from the stream: the paper's ten, a third of a batch that small, or all."""
    whole = ocssl.strategies.get(strategy).composition in ("stream", "mixed")
    return batch if whole else min(10, batch // 3)


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
    first = stream_rows(strategy, batch)
    rows = {"stream": slice(0, first), "replay": slice(first, batch), "all": slice(0, batch)}
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

    def osiris(stream: Tensor, both: Tensor) -> Tensor:
        fresh, replay = both[:, rows["stream"]], both[:, rows["replay"]]
        across = cross_contrast(fresh, replay) + cross_contrast(replay, fresh)
        return nt_xent(stream[0], stream[1]) + across + nt_xent(replay[0], replay[1])

    def step() -> Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            features = encoder(views, joint=True)
            if strategy == "osiris-r":
                loss = osiris(features.projected[:, rows["stream"]], features.through(second, features.backbone))
            else:
                loss = negative_cosine(features.through(head), features.projected.flip(0))
            target = stored
            if strategy in TEACHERS:
                with torch.no_grad():
                    seen = views[:1] if strategy == "scale" else views  # its past model sees the first view only
                    target = teacher(seen[:, rows[TEACHERS[strategy]]], joint=True).projected
            if strategy in ALIGNERS:
                chosen = rows[ALIGNERS[strategy]]
                target = target if strategy in TEACHERS else target[:, chosen]
                loss = loss + negative_cosine(features.through(aligner, features.projected[:, chosen]), target)
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
    """A learner whose memory is full, and the seconds from nothing to the first captured replay step."""
    started = time.perf_counter()
    newcomers = stream_rows(strategy, batch)
    learner = ocssl.Learner(
        strategy=strategy, stream_batch=newcomers, batch=batch, passes=3, lr=0.03, execution=execution,
        memory_size=2000, device="cuda",
    )  # fmt: skip
    images = torch.randint(0, 256, (2200, 3, 32, 32), dtype=torch.uint8, device="cuda")
    learner.partial_fit(images[: batch + 5 * newcomers])
    torch.cuda.synchronize()
    cold = time.perf_counter() - started
    learner.boundary()  # from here on CaSSLe has a teacher
    learner.passes = 1
    learner.partial_fit(images)
    torch.cuda.synchronize()
    return learner, cold


def measure_ours(strategy: str, batch: int, execution: str, repeats: int) -> dict[str, Any]:
    """Milliseconds a step and a minibatch in the steady state, seconds to get there, and the memory it took."""
    torch.cuda.reset_peak_memory_stats()
    learner, cold = our_learner(strategy, batch, execution)
    minibatches = 10
    shape = (minibatches * learner.stream_batch, 3, 32, 32)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, device="cuda")
    spent = {}
    for learner.passes in PASSES:
        spent[learner.passes] = median_ms(lambda: learner.partial_fit(images), repeats) / minibatches
    return {
        "step_ms": round(spent[3] / 3, 3),
        "minibatch_ms": {str(passes): round(milliseconds, 3) for passes, milliseconds in spent.items()},
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
    row = {"strategy": strategy, "batch": batch, "stream_batch": stream_rows(strategy, batch), "execution": execution}
    return {**row, "bare_ms": round(bare, 3), "ratio": ratio, **ours}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", nargs="+", help="only these")
    parser.add_argument("--batches", nargs="+", type=int, help="only these batch sizes")
    parser.add_argument("--executions", nargs="+", default=["graph", "compiled"])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--output", type=Path, help="write the rows as JSON")
    arguments = parser.parse_args()

    about = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "ocssl": ocssl.__version__,
        "python": platform.python_version(),
    }  # fmt: skip
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
            if arguments.output:  # each row at once: the next may take long
                arguments.output.write_text(json.dumps({**about, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
