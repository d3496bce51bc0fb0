"""What the learner adds to a bare PyTorch step on CPU: same network, same batch, same optimiser, in one run.

The bare step has its views ready and knows nothing of streams, replay or augmentation. Steps of the two alternate, so
that whatever else the machine does touches both alike; the medians are compared.

    python benchmarks/overhead.py
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

import ocssl
from ocssl.losses import negative_cosine
from ocssl.nn import Encoder, ResNet18, predictor, projector

WIDTH, BATCH, STREAM_BATCH = 16, 30, 10


def bare_step() -> Callable[[], object]:
    """SimSiam on resident random views."""
    torch.manual_seed(0)
    encoder = Encoder(ResNet18(WIDTH), projector(8 * WIDTH, 512, 2048), 8 * WIDTH)
    head = predictor(2048, 512)
    optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.03, momentum=0.9, weight_decay=1e-4)
    views = torch.randn(2, BATCH, 3, 32, 32)

    def step() -> None:
        features = encoder(views, joint=True)
        loss = negative_cosine(features.through(head), features.projected.flip(0))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def our_step(strategy: str) -> Callable[[], object]:
    """One stream minibatch with one pass, replay under way: composition, views, step, memory."""
    learner = ocssl.Learner(
        strategy=strategy, backbone=f"resnet18-w{WIDTH}", stream_batch=STREAM_BATCH, batch=BATCH, passes=1,
        memory_size=200, lr=0.03, device="cpu",
    )  # fmt: skip
    images = torch.randint(0, 256, (STREAM_BATCH, 3, 32, 32), dtype=torch.uint8)
    for _ in range(4):
        learner.partial_fit(images)
    return lambda: learner.partial_fit(images)


def timed(step: Callable[[], object]) -> float:
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", default="er", help="replays, but adds no network pass to the bare step's")
    parser.add_argument("--steps", type=int, default=30)
    arguments = parser.parse_args()
    ours, bare = our_step(arguments.strategy), bare_step()
    bare()
    pairs = [(timed(ours), timed(bare)) for _ in range(arguments.steps)]
    our_time, bare_time = (statistics.median(times) for times in zip(*pairs, strict=True))
    print(f"{arguments.strategy}: {our_time * 1000:.1f} ms a step, bare {bare_time * 1000:.1f} ms")
    print(f"ratio {our_time / bare_time:.3f}")


if __name__ == "__main__":
    main()
