"""Reading a batch's signs of health on one core, against all that torch takes by itself.

python benchmarks/diagnosis.py --rows 138 --cores 2
"""

from __future__ import annotations

import argparse
import time

import torch

from ocssl.evaluation import effective_rank, feature_std


def milliseconds(features: torch.Tensor, cores: int, repeats: int) -> float:
    """Of one reading, the median of many that do not follow at once upon each other, as in a run."""
    torch.set_num_threads(cores)
    times = []
    for _ in range(repeats):
        time.sleep(0.02)
        began = time.perf_counter()
        feature_std(features)
        effective_rank(features)
        times.append(1000 * (time.perf_counter() - began))
    return sorted(times)[repeats // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=138)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--cores", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=50)
    arguments = parser.parse_args()
    features = torch.randn(arguments.rows, arguments.dim, generator=torch.Generator().manual_seed(0))
    one, all_of_them = (milliseconds(features, cores, arguments.repeats) for cores in (1, arguments.cores))
    print(f"1 core {one:.1f} ms  {arguments.cores} cores {all_of_them:.1f} ms  ratio {all_of_them / one:.1f}")


if __name__ == "__main__":
    main()
