"""Fine-tuning, experience replay and MinRed: L = L_SSL, the loss of the method; they differ in the training batches.

Fine-tuning is the baseline of the CLA paper (arXiv:2507.10434).

Experience replay: Arslan Chaudhry, Marcus Rohrbach, Mohamed Elhoseiny, Thalaiyasingam Ajanthan, Puneet K. Dokania,
Philip H. S. Torr and Marc'Aurelio Ranzato. On Tiny Episodic Memories in Continual Learning. 2019. arXiv:1902.10486.

MinRed: Senthil Purushwalkam, Pedro Morgado and Abhinav Gupta. The Challenges of Continuous Self-Supervised Learning.
ECCV 2022. arXiv:2203.12710.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from ocssl.memory import Column
from ocssl.nn import Encoder
from ocssl.nn.backbones import evaluating
from ocssl.strategies.base import ByBatch, Strategy, register


@register("finetune")
class Finetune(Strategy):
    """Trains on the stream alone; on an i.i.d. stream this is i.i.d. training.

    Source: the baseline of Cignoni et al., CoLLAs 2025, arXiv:2507.10434.
    """

    label = "finetuning"
    defaults: ClassVar[Mapping[str, Any]] = {"sgd.lr": ByBatch(0.01, 0.1)}


@register("er")
class ExperienceReplay(Strategy):
    """Trains on the stream minibatch and samples from the memory.

    Source: Chaudhry et al., 2019, arXiv:1902.10486.
    """

    label = "ER"
    composition = "stream+replay"
    default_memory = "reservoir"


@register("minred")
class MinimumRedundancy(Strategy):
    """Inserts the stream into the memory and trains on samples from the memory alone.

    Source: Purushwalkam et al., ECCV 2022, arXiv:2203.12710.
    """

    label = "MinRed"
    composition = "replay"
    default_memory = "minred"
    insert_at = "before"

    def columns(self) -> dict[str, Column]:
        """One feature per sample."""
        return {"features": Column((self.output_dim,))}

    def features_before(self, plain: Tensor, encoder: Encoder) -> dict[str, Tensor]:
        """Features of the normalised images, in evaluation mode, so that the running statistics do not change."""
        with evaluating(encoder):
            return {"features": encoder(plain[None], joint=True).projected[0]}
