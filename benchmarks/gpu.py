"""Our training step against a bare one with the same network, batch and optimiser, in one process on one GPU.

The bare step is the ceiling: views that lie ready on the device, forward, loss, backward, optimiser, captured as a
CUDA graph (and compiled, where ours is). It has no stream, no memory, no augmentation, no teacher update. Where the
strategy's loss needs more than plain training (a teacher's forward pass, an aligner, a second head, Osiris' four
contrasts), so does the bare step. The loss of a method, with its heads and its target's forward pass, is the same in
both.

A minibatch is measured at several numbers of passes, so that what a run costs can be drawn against its CBP
(``benchmarks/times.py``).

    python benchmarks/gpu.py --output gpu.json            # all strategies, graph and compiled
    python benchmarks/gpu.py --strategies er cla-e --batches 138 --executions graph
    python benchmarks/gpu.py --methods all                # every method with replay, 2 views of 138 and 8 of 34 images
    python benchmarks/gpu.py --strategies multiview-r --executions compiled
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
from ocssl.batch import Batch, Step
from ocssl.losses import cross_contrast, negative_cosine, nt_xent
from ocssl.methods import Dims
from ocssl.nn import Encoder, ResNet18, channels_last, frozen_copy, predictor, projector
from ocssl.optim import LARS
from ocssl.options import validate

PASSES = (1, 3, 6)
ALIGNED = {"cla-b": "stream", "cassle": "stream", "pfr": "stream", "cla-e": "replay", "cassle-r": "replay"}
TEACHERS = {**ALIGNED, "scale": "all"}  # which rows a frozen or trailing copy sees too
ALIGNERS = {**ALIGNED, "cla-r": "replay", "multiview-r": "replay"}  # and which pass a head that predicts older features
SMALL = ("er", "cla-r", "cla-e", "cla-b", "cassle", "pfr", "lump", "finetune")
PAPER = (*SMALL, "minred", "cassle-r", "scale", "osiris-r")
Row = tuple[str, str, int, int]  # strategy, method, views, batch
GRID: list[Row] = [
    *((strategy, "simsiam", 2, batch) for batch in (138, 30) for strategy in PAPER),
    *((strategy, "simsiam", 2, 10) for strategy in SMALL),
    *(("multiview-r", "emp", views, batch) for views, batch in ((8, 34), (4, 34), (2, 30))),
]


def stream_rows(strategy: str, batch: int) -> int:
    """How many rows of a batch come from the stream: the paper's ten, a third of a batch that small, or all."""
    whole = ocssl.strategies.registry.get(strategy).composition in ("stream", "mixed")
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


def bare_step(strategy: str, method: str, n_views: int, batch: int, compile: bool) -> Callable[[], object]:
    """A captured training step on resident random views."""
    torch.manual_seed(0)
    kind, own = ocssl.methods.registry.get(method), ocssl.strategies.registry.get(strategy).defaults
    hidden, output = own.get("hidden_dim", 512), own.get("output_dim", 2048)
    objective = kind(Dims(512, hidden, output), validate(kind.Options, {"views": n_views}))
    encoder = Encoder(ResNet18(), objective.projector(), 512)
    objective.begin(encoder)
    encoder.cuda(), objective.cuda()
    aligner, second = predictor(output, hidden).cuda(), projector(512, hidden, output).cuda()
    teacher = frozen_copy(encoder)
    for module in (encoder, teacher, objective):
        channels_last(module)
    networks = (encoder, objective, aligner, second)
    trained = [parameter for network in networks for parameter in network.parameters() if parameter.requires_grad]
    if own.get("optimizer") == "lars":
        optimizer = LARS(trained, LARS.Options())
    else:
        optimizer = torch.optim.SGD(trained, lr=0.03, momentum=0.9, weight_decay=1e-4, fused=True)
    views = torch.randn(n_views, batch, 3, 32, 32, device="cuda")
    samples = Batch(torch.zeros(batch, 3, 32, 32, dtype=torch.uint8, device="cuda"), stream=batch)
    generator = torch.Generator("cuda").manual_seed(0)
    first = stream_rows(strategy, batch)
    rows = {"stream": slice(0, first), "replay": slice(first, batch), "all": slice(0, batch)}
    stored = torch.randn(1, batch, output, device="cuda")
    if compile:
        for network in (
            encoder.backbone,
            encoder.projector,
            teacher.backbone,
            teacher.projector,
            *objective.children(),
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
                loss = objective.loss(Step(samples, views, features, generator))
            target = stored
            if strategy in TEACHERS:
                with torch.no_grad():
                    seen = views[:1] if strategy == "scale" else views  # its past model sees the first view only
                    target = teacher(seen[:, rows[TEACHERS[strategy]]], joint=True).projected
            if strategy in ALIGNERS:
                chosen = rows[ALIGNERS[strategy]]
                target = target if strategy in TEACHERS else target[:, chosen]
                loss = loss + negative_cosine(features.through(aligner, features.projected[:, chosen]), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.backends.cudnn.flags(enabled=True, benchmark=True):
        for _ in range(3):
            step()
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph, stream=side), torch.backends.cudnn.flags(enabled=True, benchmark=True):
        step()
    return graph.replay


def our_learner(row: Row, execution: str) -> tuple[ocssl.Learner, float]:
    """A learner whose memory is full, and the seconds from nothing to the first captured replay step."""
    started = time.perf_counter()
    strategy, method, views, batch = row
    kind, newcomers = ocssl.strategies.registry.get(strategy), stream_rows(strategy, batch)
    chosen = {} if kind.own_loss else {"method": method, "views": views}
    kept = {} if kind.default_memory is None else {"memory_size": 2000}
    learner = ocssl.Learner(
        strategy=strategy, stream_batch=newcomers, batch=batch, passes=3, lr=0.03, execution=execution,
        device="cuda", joint_views=True, **chosen, **kept,
    )  # fmt: skip
    images = torch.randint(0, 256, (2200, 3, 32, 32), dtype=torch.uint8, device="cuda")
    learner.partial_fit(images[: batch + 5 * newcomers])
    torch.cuda.synchronize()
    cold = time.perf_counter() - started
    learner.boundary()  # from here on CaSSLe has a teacher
    learner.config = learner.config.model_copy(update={"passes": 1})
    learner.partial_fit(images)
    torch.cuda.synchronize()
    return learner, cold


def measure_ours(row: Row, execution: str, repeats: int) -> dict[str, Any]:
    """Milliseconds a step and a minibatch in the steady state, seconds to get there, and the memory it took."""
    torch.cuda.reset_peak_memory_stats()
    learner, cold = our_learner(row, execution)
    minibatches = 10
    shape = (minibatches * learner.config.stream_batch, 3, 32, 32)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, device="cuda")
    spent = {}
    for passes in PASSES:
        learner.config = learner.config.model_copy(update={"passes": passes})
        spent[passes] = median_ms(lambda: learner.partial_fit(images), repeats) / minibatches
    return {
        "step_ms": round(spent[3] / 3, 3),
        "minibatch_ms": {str(passes): round(milliseconds, 3) for passes, milliseconds in spent.items()},
        "cold_seconds": round(cold, 1),
        "preparing_seconds": round(learner.executor.preparing, 1),
        "memory_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
    }


def measure(case: Row, execution: str, repeats: int) -> dict[str, Any]:
    """One row of the report."""
    strategy, method, views, batch = case
    ours = measure_ours(case, execution, repeats)
    bare = median_ms(bare_step(*case, execution == "compiled"), repeats * 10)
    torch.compiler.reset()
    torch.cuda.empty_cache()
    ratio = round(ours["step_ms"] / bare, 3)
    row = {"strategy": strategy, "method": method, "views": views, "batch": batch}
    row |= {"stream_batch": stream_rows(strategy, batch), "execution": execution}
    return {**row, "bare_ms": round(bare, 3), "ratio": ratio, **ours}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", nargs="+", help="only these")
    parser.add_argument("--methods", nargs="+", help="these methods, or all, with replay")
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
    grid = GRID
    if arguments.methods:
        names = ocssl.methods.registry.names() if arguments.methods == ["all"] else arguments.methods
        grid = [("er", name, views, batch) for name in names for views, batch in ((2, 138), (8, 34))]
    for execution in arguments.executions:
        for case in grid:
            if arguments.strategies and case[0] not in arguments.strategies:
                continue
            if arguments.batches and case[-1] not in arguments.batches:
                continue
            row = measure(case, execution, arguments.repeats)
            rows.append(row)
            print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
            if arguments.output:  # each row at once: the next may take long
                arguments.output.write_text(json.dumps({**about, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
