"""EMP-SSL and SimCLR in one: L = L_EMP + w · t · L_SimCLR, both over all views.

SimCLR's loss attracts views of one sample with 1/t times their cosine, so times t it attracts as strongly as EMP-SSL
does. The weight w then decides between the two ways to spread features, whatever the temperature t.

Shengbang Tong, Yubei Chen, Yi Ma and Yann LeCun. EMP-SSL: Towards Self-Supervised Learning in One Training Epoch. 2023.
arXiv:2304.03977.

Ting Chen, Simon Kornblith, Mohammad Norouzi and Geoffrey Hinton. A Simple Framework for Contrastive Learning of Visual
Representations. ICML 2020. arXiv:2002.05709.
"""

from __future__ import annotations

from torch import Tensor

from ocssl.batch import Step
from ocssl.losses import nt_xent
from ocssl.methods.base import register
from ocssl.methods.emp import EMP
from ocssl.methods.simclr import SimCLR
from ocssl.options import setting


@register("emp-simclr")
class EMPSimCLR(EMP):
    """Brings views to their mean, fills the space, and tells views of a sample from those of all others.

    Source: our own sum of EMP-SSL (Tong et al., 2023, arXiv:2304.03977) and SimCLR (Chen et al., ICML 2020,
    arXiv:2002.05709).
    """

    class Options(EMP.Options):
        temperature: float = SimCLR.Options.with_default("temperature", 0.2)
        contrast_weight: float = setting(1.0, "Weight of the contrastive loss times its temperature.", ge=0)

    options: Options

    def loss(self, step: Step) -> Tensor:
        """The loss of EMP-SSL and the weighted NT-Xent of all views."""
        temperature = self.options.temperature
        contrast = temperature * nt_xent(*step.features.projected, temperature=temperature)
        return super().loss(step) + self.options.contrast_weight * contrast
