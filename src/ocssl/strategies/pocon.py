"""POCON: an expert learns the present, L = L_SSL(expert), and a main network learns from it and from its own past.

The main network minimises −cos(a(f), f_expert) − cos(r(f), f̂), where f are its backbone features, f̂ those of itself at
the end of the last experience, and a and r are two learned maps. At a boundary the backbone of the expert begins anew
as a copy of that of the main network, which is the one that is deployed. The origin trains expert and main network one
after the other on a stored experience; here both learn from each minibatch, since the stream passes once.

Alex Gomez-Villa, Bartlomiej Twardowski, Kai Wang and Joost van de Weijer. Plasticity-Optimized Complementary Networks
for Unsupervised Continual Learning. WACV 2024. arXiv:2309.06086.
"""

from __future__ import annotations

from torch import Tensor, nn

from ocssl.batch import Step
from ocssl.losses import negative_cosine
from ocssl.nn import Encoder, predictor
from ocssl.nn.ema import copy_weights
from ocssl.options import setting
from ocssl.strategies.base import Setup, Strategy, register
from ocssl.strategies.targets import Snapshot


@register("pocon")
class Pocon(Strategy):
    """An expert for the present, and a main network that learns from the expert without forgetting; no memory.

    Source: Gomez-Villa et al., WACV 2024, arXiv:2309.06086.
    """

    label = "POCON"
    backward_passes = 2  # of the expert and of the main network

    class Options(Strategy.Options):
        omega: float = setting(1.0, "Weight of the alignment loss.", symbol="ω", common=True, ge=0)

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup, options)
        self.omega = options.omega
        self.main = setup.trained_copy()
        self.main.projector = nn.Identity()
        self.adaptation, self.retrospection = (predictor(setup.dims.feature, setup.dims.hidden) for _ in range(2))
        self.retrospection.requires_grad_(self.omega > 0)
        self.past = Snapshot(self.main)

    def penalty(self, step: Step) -> dict[str, Tensor]:
        """The main network follows the expert, and from the first boundary on its own past."""
        main = self.main(step.views, step.features.joint)
        followed = main.through(self.adaptation, main.backbone)
        losses = {"adaptation": negative_cosine(followed, step.features.backbone)}
        if self.omega and self.past.ready:
            past = self.past(step.batch, slice(None), step.views, step.features.joint, "backbone")
            kept = main.through(self.retrospection, main.backbone)
            losses["retrospection"] = self.omega * negative_cosine(kept, past)
        return losses

    def boundary(self, encoder: Encoder) -> None:
        """The main network becomes its own past, and the backbone of the expert a copy of it."""
        self.past.boundary(self.main)
        copy_weights(encoder.backbone, self.main.backbone)

    def deployed(self, encoder: Encoder) -> nn.Module:
        """The main network."""
        return self.main.backbone
