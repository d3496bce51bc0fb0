"""How long the linear probes of a CIFAR-100 run take: 45,000 training samples, 512 dimensions, 100 classes.

    python benchmarks/probes.py              # one probe on the CPU
    python benchmarks/probes.py --probes 20 --device cuda

Features are drawn, not learnt: noisy class centres, hard enough that the probe goes through its whole schedule. The
second figure is the worst case, in which no probe stops before the last epoch.
"""

from __future__ import annotations

import argparse
import time

import torch

from ocssl.evaluation import ProbeSchedule, linear_probes

TRAIN, VAL, TEST, DIM, CLASSES = 45_000, 5_000, 10_000, 512, 100


def features_of(encoder: int, labels: torch.Tensor, device: str) -> torch.Tensor:
    centres = torch.randn(CLASSES, DIM, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(len(labels), DIM, generator=torch.Generator().manual_seed(1 + encoder))
    return torch.relu(0.25 * centres[labels] + 1.5 * noise).to(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probes", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()

    labels = torch.arange(TRAIN + VAL + TEST) % CLASSES
    encoders = [features_of(encoder, labels, options.device) for encoder in range(options.probes)]
    splits = [
        part
        for rows in (slice(TRAIN), slice(TRAIN, TRAIN + VAL), slice(TRAIN + VAL, None))
        for part in ([features[rows] for features in encoders], labels[rows])
    ]
    for name, schedule in (("as trained", ProbeSchedule()), ("worst case", ProbeSchedule(patience=100))):
        start = time.perf_counter()
        results = linear_probes(*splits, seed=0, schedule=schedule)
        seconds = time.perf_counter() - start
        epochs, what = max(result.epochs for result in results), f"{options.probes} probe(s) on {options.device}"
        print(f"{name}: {what}: {seconds:.1f} s, {epochs} epochs, {results[0].accuracy:.1f} % right")


if __name__ == "__main__":
    main()
