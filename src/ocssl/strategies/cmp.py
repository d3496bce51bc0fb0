"""CMP, continual multi-patches: L = L_SSL − λ · R, over many views of stream samples; nothing is stored.

L_SSL is the loss of the method over all pairs of views, and R the coding rate of the projected features, which keeps
them from collapsing in minibatches of a few samples. In the paper L_SSL compares each view with the mean of the
projected features of all views.

Giacomo Cignoni, Andrea Cossu, Alexandra Gomez-Villa, Joost van de Weijer and Antonio Carta. Replay-free Online
Continual Learning with Self-Supervised MultiPatches. ESANN 2025. arXiv:2502.09140.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from ocssl.batch import Step
from ocssl.losses import coding_rate
from ocssl.options import setting
from ocssl.strategies.base import Strategy, register


@register("cmp")
class Cmp(Strategy):
    """Many views of the stream samples in the place of a memory, and a coding rate against collapse.

    Source: Cignoni et al., ESANN 2025, arXiv:2502.09140.
    """

    label = "CMP"
    defaults: ClassVar[Mapping[str, Any]] = {"views": 8}

    class Options(Strategy.Options):
        spread: float = setting(0.005, "Weight of the coding rate of the views.", ge=0)

    options: Options

    def penalty(self, step: Step) -> dict[str, Tensor]:
        """−λ times the coding rate of each view, averaged over the views."""
        return {"spread": -self.options.spread * coding_rate(step.features.projected)}
