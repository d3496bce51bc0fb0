"""Several learners on one GPU, a process each: their steps a second together, against one alone, in one call.

python benchmarks/sharing.py --processes 3 6 --batch 30         # with and without nvidia-cuda-mps-control -d
python benchmarks/sharing.py --device cpu --backbone convnet-w8 --batch 24 --steps 30    # a rehearsal
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

import torch

import ocssl


def train(arguments: argparse.Namespace, ready: Barrier, done: Barrier) -> None:
    """The life of a process: past the warm-up, then so many steps when all are ready."""
    learner = ocssl.Learner(
        strategy=arguments.strategy, backbone=arguments.backbone, batch=arguments.batch, passes=3, lr=0.03,
        device=arguments.device,
    )  # fmt: skip
    shape = (3 * arguments.batch + 100, 3, 32, 32)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, device=arguments.device)
    learner.partial_fit(images)
    some = images[: 10 * learner.stream_batch]
    ready.wait()
    for _ in range(arguments.steps // 30):
        learner.partial_fit(some)
    if arguments.device != "cpu":
        torch.cuda.synchronize()
    done.wait()


def steps_a_second(arguments: argparse.Namespace, processes: int) -> float:
    """Of so many processes together."""
    context = multiprocessing.get_context("spawn")
    ready, done = context.Barrier(processes + 1), context.Barrier(processes + 1)
    crew = [context.Process(target=train, args=(arguments, ready, done)) for _ in range(processes)]
    for member in crew:
        member.start()
    ready.wait()
    began = time.perf_counter()
    done.wait()
    seconds = time.perf_counter() - began
    for member in crew:
        member.join()
    return processes * (arguments.steps // 30 * 30) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=[2])
    parser.add_argument("--strategy", default="er")
    parser.add_argument("--backbone", default="resnet18")
    parser.add_argument("--batch", type=int, default=138)
    parser.add_argument("--steps", type=int, default=1500, help="of each process, in thirties")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    alone = steps_a_second(arguments, 1)
    rows = []
    for processes in arguments.processes:
        together = steps_a_second(arguments, processes)
        rows.append({"processes": processes, "together": round(together, 1), "ratio": round(together / alone, 3)})
        print("  ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    pipes = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps")
    found = {
        "strategy": arguments.strategy, "batch": arguments.batch, "mps": (pipes / "control").exists(),
        "torch": torch.__version__, "alone": round(alone, 1), "steps_a_second": rows,
    }  # fmt: skip
    if arguments.output:
        arguments.output.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
