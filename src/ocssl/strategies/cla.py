"""Continual Latent Alignment: L = L_SSL + ω · mean over views of −cos(a(z), ẑ).

CLA-b and CLA-E take ẑ from a moving average of the encoder, CLA-R from the memory. CLA-b aligns stream samples and has
no memory; CLA-E and CLA-R align replay samples.

Giacomo Cignoni, Andrea Cossu, Alexandra Gomez-Villa, Joost van de Weijer and Antonio Carta. CLA: Latent Alignment for
Online Continual Self-Supervised Learning. CoLLAs 2025. arXiv:2507.10434.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ocssl.memory import Column
from ocssl.options import setting
from ocssl.strategies.alignment import Aligned, Rows
from ocssl.strategies.base import ByBatch, Setup, register
from ocssl.strategies.targets import EmaTeacher, StoredFeature


@register("cla-b")
class ClaB(Aligned):
    """Aligns stream features to a moving average of the encoder; no memory.

    Source: Cignoni et al., CoLLAs 2025, arXiv:2507.10434.
    """

    label = "CLA-b"
    defaults: ClassVar[Mapping[str, Any]] = {"sgd.lr": 0.1}  # with ω 1, as tuned on validation images at batches of 10

    class Options(Aligned.Options):
        tau: float = setting(0.999, "Decay of the moving average of the encoder.", symbol="τ", ge=0, le=1)

    aligned: ClassVar[Rows] = "stream"

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup, options, EmaTeacher(setup.encoder, options.tau))


@register("cla-e")
class ClaE(ClaB):
    """Aligns replay features to a moving average of the encoder.

    Source: Cignoni et al., CoLLAs 2025, arXiv:2507.10434.
    """

    label = "CLA-E"
    defaults: ClassVar[Mapping[str, Any]] = {"sgd.lr": ByBatch(0.2, 0.3)}

    class Options(ClaB.Options):
        omega: float = Aligned.Options.with_default("omega", 0.3)

    composition = "stream+replay"
    default_memory = "fifo"
    aligned = "replay"


@register("cla-r")
class ClaR(Aligned):
    """Aligns replay features to the features stored with them: after each step, z* ← ½ z* + ½ z.

    Source: Cignoni et al., CoLLAs 2025, arXiv:2507.10434.
    """

    label = "CLA-R"
    defaults: ClassVar[Mapping[str, Any]] = {"sgd.lr": ByBatch(0.2, 0.3)}
    composition = "stream+replay"
    default_memory = "fifo"

    def __init__(self, setup: Setup, options: Aligned.Options) -> None:
        super().__init__(setup, options, StoredFeature())

    def columns(self) -> dict[str, Column]:
        """z* of each sample."""
        return {"features": Column((self.output_dim,))}
