"""From nothing to the first captured step: seconds, part by part, each time in a fresh process.

    python benchmarks/start.py --executions graph compiled --output start.json
    python benchmarks/start.py --device cpu --executions eager --backbone convnet-w8 --batch 24    # a rehearsal

Kernels that earlier runs compiled count, the driver's own too, unless ``--fresh`` gives every process empty caches. The
last figure is taken after the start: what the first optimiser of ``torch.optim`` costs, which a learner does without
(``ocssl.optim``).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH")


def start(arguments: argparse.Namespace, execution: str) -> dict[str, float]:
    """Seconds of each part of a start, in this process, which must have imported nothing yet."""
    found: dict[str, float] = {}
    last = time.perf_counter()

    def lap(part: str) -> None:
        nonlocal last
        if arguments.device != "cpu":
            torch.cuda.synchronize()
        now = time.perf_counter()
        found[part] = round(now - last, 2)
        last = now

    import torch

    import ocssl

    images = torch.randint(0, 256, (arguments.batch + 40, 3, 32, 32), dtype=torch.uint8)
    found["imports"] = round(time.perf_counter() - last, 2)
    last = time.perf_counter()
    images = images.to(arguments.device)
    lap("device")
    learner = ocssl.Learner(
        strategy=arguments.strategy, backbone=arguments.backbone, batch=arguments.batch, passes=3,
        device=arguments.device, execution=execution,
    )  # fmt: skip
    lap("learner")
    learner.partial_fit(images[: learner.stream_batch])
    lap("first steps")
    before_replay = arguments.batch - arguments.batch % learner.stream_batch
    learner.partial_fit(images[learner.stream_batch : before_replay])
    lap("until replay")
    learner.partial_fit(images[before_replay:])
    lap("kernels and capture")
    found["from device to captured"] = round(sum(found.values()) - found["imports"], 2)
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    lap("spared: torch.optim")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", default="cla-e")
    parser.add_argument("--backbone", default="resnet18")
    parser.add_argument("--batch", type=int, default=138)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--executions", nargs="+", default=["graph", "compiled"])
    parser.add_argument("--fresh", action="store_true", help="no compiled kernels of earlier runs")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(start(arguments, arguments.executions[0])))
        return
    rows = {}
    for execution in arguments.executions:
        with tempfile.TemporaryDirectory() as empty:
            caches = dict.fromkeys(CACHES, empty) if arguments.fresh else {}
            command = [sys.executable, __file__, "--child", "--executions", execution]
            for option in ("strategy", "backbone", "batch", "device"):
                command += [f"--{option}", str(getattr(arguments, option))]
            said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | caches)
        rows[execution] = json.loads(said.stdout.splitlines()[-1])
        print(execution, "  ".join(f"{part} {seconds}" for part, seconds in rows[execution].items()), flush=True)
    if arguments.output:
        about = {"strategy": arguments.strategy, "batch": arguments.batch, "fresh": arguments.fresh}
        arguments.output.write_text(json.dumps({**about, "seconds": rows}, indent=1))


if __name__ == "__main__":
    main()
