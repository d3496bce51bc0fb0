"""What the demo runs: one stream, one budget, and what each strategy makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DemoPlan:
    """The numbers of the demo.

    Every strategy trains on ``batch`` samples for each ``stream_batch`` that arrive, so all spend the same budget.
    Replay strategies fill the batch from memory; finetuning has no memory and goes over each minibatch more often
    instead. Learning rates go with the size of a batch, 0.05 for 10 samples and 0.3 for 60: the best of a few tried.

    Args:
        stream: images in the stream; each arrives once.
        experiences: stretches of the stream, with classes of their own.
        probes: how often along the stream, evenly, the encoder is measured.
        stream_batch: images that arrive at once.
        batch: images trained on for each of those.
        memory_size: images that replay strategies may keep.
        width: of the encoder.
        train, val, test: further drawn images, with labels, for the probes alone.
    """

    stream: int = 3600
    experiences: int = 18
    probes: int = 6
    stream_batch: int = 10
    batch: int = 60
    memory_size: int = 1800
    width: int = 16
    train: int = 1800
    val: int = 540
    test: int = 1260

    @classmethod
    def quick(cls) -> DemoPlan:
        """A rehearsal of seconds: everything is there, nothing is learnt."""
        return cls(stream=360, probes=2, batch=20, memory_size=120, width=4, train=180, val=90, test=90)

    def contenders(self) -> dict[str, dict[str, Any]]:
        """The settings of each strategy, by the name it has in tables."""
        common: dict[str, Any] = {
            "method": "simclr",
            "image_size": 32,
            "stream_batch": self.stream_batch,
            "hidden_dim": 128,
            "output_dim": 256,
            "device": "cpu",
        }
        alone = {"batch": self.stream_batch, "passes": self.batch // self.stream_batch, "lr": 0.05}
        replay = {"batch": self.batch, "passes": 1, "memory": "fifo", "memory_size": self.memory_size, "lr": 0.3}
        return {
            "finetune": {"strategy": "finetune", **common, **alone},
            "ER": {"strategy": "er", **common, **replay},
            "CLA-E": {"strategy": "cla-e", **common, **replay, "omega": 0.3, "tau": 0.999},
        }
