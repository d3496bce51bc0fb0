"""A new strategy, checked and compared with CLA-E and experience replay at the same budget.

python examples/own_strategy.py
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

from ocssl import Learner, data, strategies
from ocssl.batch import Step
from ocssl.checks import check_strategy
from ocssl.evaluation import knn_probe
from ocssl.options import setting
from ocssl.strategies import ExperienceReplay


@strategies.register("spread-replay")
class SpreadReplay(ExperienceReplay):
    """Experience replay with the variance term of VICReg: a penalty on features whose standard deviation is below 1."""

    class Options(ExperienceReplay.Options):
        """Settings of the strategy."""

        spread: float = setting(0.1, "Weight of the variance term.", ge=0)

    options: Options

    def penalty(self, step: Step) -> dict[str, Tensor]:
        """The hinge of the variance term, over all rows of a view."""
        std = (step.features.projected.var(dim=1) + 1e-4).sqrt()
        return {"spread": self.options.spread * torch.relu(1 - std).mean()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=3000)
    parser.add_argument("--experiences", type=int, default=6)
    parser.add_argument("--backbone", default="convnet")
    options = parser.parse_args()

    check_strategy("spread-replay")  # seeding, saving, budget, bounded memory: one line

    source, test = data.load("shapes"), data.load("shapes", split="test")
    assert source.labels is not None
    assert test.labels is not None
    stream = data.streams.class_incremental(
        source.labels, experiences=options.experiences, indices=torch.arange(options.images)
    )
    for name in ("er", "cla-e", "spread-replay"):
        learner = Learner(
            strategy=name,
            backbone=options.backbone,
            batch=42,
            passes=1,
            hidden_dim=128,
            output_dim=256,
            memory_size=500,
        )
        for minibatch in stream:
            learner.partial_fit(source.images(minibatch))
        seen = range(options.images)
        accuracy = knn_probe(
            learner.transform(source.images(seen)),
            source.labels[: options.images],
            learner.transform(test.images(range(len(test)))),
            test.labels,
            k=20,
        )
        print(f"{name:14s} CBP {learner.budget.spent:,}   k-NN {accuracy.percent:.1f} %")


if __name__ == "__main__":
    main()
