"""Replay with many views: L = L_SSL + ω · mean over views of −cos(a(z), z*), and a moving average that is deployed.

L_SSL is by default the loss of EMP-SSL over all views of stream and replay samples. z* are the features stored with a
replay sample, as in CLA-R, or those of a moving average of the encoder, as in CLA-E. The step is theirs, too;
objective, views, optimiser, memory and average differ.

The combination is our own. Its parts:

Shengbang Tong, Yubei Chen, Yi Ma and Yann LeCun. EMP-SSL: Towards Self-Supervised Learning in One Training Epoch. 2023.
arXiv:2304.03977.

Giacomo Cignoni, Andrea Cossu, Alexandra Gomez-Villa, Joost van de Weijer and Antonio Carta. Replay-free Online
Continual Learning with Self-Supervised MultiPatches (CMP). ESANN 2025. arXiv:2502.09140.

Yang You, Igor Gitman and Boris Ginsburg. Large Batch Training of Convolutional Networks (LARS). 2017. arXiv:1708.03888.

Giacomo Cignoni, Andrea Cossu, Alexandra Gomez-Villa, Joost van de Weijer and Antonio Carta. CLA: Latent Alignment for
Online Continual Self-Supervised Learning. CoLLAs 2025. arXiv:2507.10434.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from ocssl.errors import ConfigError
from ocssl.memory import Column
from ocssl.options import setting
from ocssl.strategies.alignment import Aligned
from ocssl.strategies.base import Setup, register
from ocssl.strategies.cla import ClaR
from ocssl.strategies.targets import EmaTeacher, StoredFeature


@register("multiview-r")
class MultiViewR(ClaR):
    """Replays from a reservoir, learns from many views of each sample and deploys a moving average of the network.

    Source: our own, from EMP-SSL (Tong et al., 2023, arXiv:2304.03977), CMP (Cignoni et al., ESANN 2025,
    arXiv:2502.09140), LARS (You et al., 2017, arXiv:1708.03888) and CLA-R (Cignoni et al., CoLLAs 2025,
    arXiv:2507.10434).
    """

    label = "MultiView-R"

    class Options(ClaR.Options):
        omega: float = Aligned.Options.with_default("omega", 1.0)
        align_to: Literal["stored", "average"] = setting(
            "stored",
            "What replay features are aligned to; `stored`: the features that the memory keeps; `average`: those of a "
            "moving average of the encoder, with the decay `average`, as in CLA-E.",
        )

    default_memory = "reservoir"
    defaults: ClassVar[Mapping[str, Any]] = {
        "method": "emp",
        "views": 8,
        "rate_weight": 0.01,
        "optimizer": "lars",
        "hidden_dim": 4096,
        "output_dim": 1024,
        "average": 0.9998,
        "average_power": 19.0,
        "joint_views": True,
    }
    budgets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "low": {"views": 2, "rate_weight": 0.02},
        "high": {"rate_weight": 0.0025},
    }

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup, options)
        if options.align_to == "average":
            if not setup.average:
                raise ConfigError("align_to average needs an average; set average above 0, e.g. 0.999")
            self.target = EmaTeacher(setup.encoder, setup.average)

    def columns(self) -> dict[str, Column]:
        """z* of each sample, where they are aligned to."""
        return super().columns() if isinstance(self.target, StoredFeature) else {}

    @classmethod
    def default_batch(cls, stream_batch: int) -> int:
        """24 replay samples beside the stream minibatch: eight views of 34 cost what two of 136 do."""
        return stream_batch + 24
