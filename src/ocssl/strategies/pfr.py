"""PFR, projected functional regularisation: L = L_SSL + ω · mean over views of −cos(a(f), f̂).

f are the backbone's features of stream samples, and f̂ those of the encoder at the end of the last experience. PFR is
not among the compared methods of the CLA paper.

Alex Gomez-Villa, Bartlomiej Twardowski, Lu Yu, Andrew D. Bagdanov and Joost van de Weijer. Continually Learning
Self-Supervised Representations with Projected Functional Regularization. CVPR Workshops 2022. arXiv:2112.15022.
"""

from __future__ import annotations

from ocssl.methods import Dims
from ocssl.options import setting
from ocssl.strategies.alignment import Aligned
from ocssl.strategies.base import Setup, register
from ocssl.strategies.targets import Snapshot


@register("pfr")
class Pfr(Aligned):
    """Aligns backbone features of stream samples to the encoder at the end of the last experience.

    Source: Gomez-Villa et al., CVPR Workshops 2022, arXiv:2112.15022.
    """

    label = "PFR"

    class Options(Aligned.Options):
        aligner_dim: int | None = setting(
            None, "Hidden width of the aligner; unset: half the width of the backbone's features.", ge=1, le=65_536
        )

    aligned = "stream"
    level = "backbone"

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup, options, Snapshot(setup.encoder))

    @staticmethod
    def aligner_width(dims: Dims) -> int:
        """Half the width of the backbone's features."""
        return dims.feature // 2
