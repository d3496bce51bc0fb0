"""A network taught by one that learned before: L = L_SSL + ω · mean over views of −cos(A f, f_T).

f are backbone features of the network in training, f_T those of the teacher, which is frozen and may be of any
architecture, and A is a learned linear map. So a larger network goes on from what a smaller one has learned, while the
self-supervised loss teaches it what the smaller one could not.

The strategy is our own. Alignment to the past through a learned map is that of CaSSLe (arXiv:2112.04215) and CLA
(arXiv:2507.10434). Features of a teacher of another width as a target come from:

Adriana Romero, Nicolas Ballas, Samira Ebrahimi Kahou, Antoine Chassang, Carlo Gatta and Yoshua Bengio. FitNets: Hints
for Thin Deep Nets. ICLR 2015. arXiv:1412.6550.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from ocssl.batch import Step
from ocssl.losses import negative_cosine
from ocssl.nn import Encoder, Head, frozen_copy
from ocssl.options import setting
from ocssl.strategies.base import Setup, Strategy, TeacherSource, register
from ocssl.strategies.targets import EncoderCopy


@register("taught")
class Taught(Strategy):
    """Replay, aligned to a frozen network that learned before, such as a smaller one.

    Source: our own; features of a teacher of another width: Romero et al., ICLR 2015, arXiv:1412.6550; alignment as in
    Fini et al., CVPR 2022, arXiv:2112.04215, and Cignoni et al., CoLLAs 2025, arXiv:2507.10434.
    """

    label = "taught"

    class Options(Strategy.Options):
        omega: float = setting(1.0, "Weight of the alignment loss.", symbol="ω", common=True, ge=0)
        taught_by: str | None = setting(
            None,
            "Teacher; an encoder, state or run of ours, an exported .safetensors file, `timm:NAME`, `hf-hub:NAME` or "
            "`efficientnet-lite0`. It is read once. Image_size, mean, std, fit and pixel_range follow from it where "
            "they are not given. Unset: the encoder as it is at the start.",
            since="0.2",
        )
        teacher_network: str | None = setting(
            None, "What the teacher is, as JSON. It follows from taught_by.", since="0.2"
        )

    composition = "stream+replay"
    default_memory = "reservoir"
    defaults: ClassVar[Mapping[str, Any]] = {
        "method": "emp",
        "views": 2,
        "optimizer": "lars",
        "hidden_dim": 512,
        "output_dim": 256,
    }

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup, options)
        self.omega = options.omega
        network, width = setup.teacher, setup.teacher_dim
        self.given = network is not None
        if network is None:
            network, width = frozen_copy(setup.encoder.backbone), setup.dims.feature
        self.teacher = EncoderCopy(Encoder(network, nn.Identity(), width))
        self.teacher.network.eval()
        self.aligner = Head(nn.Linear(setup.dims.feature, width, bias=False)).requires_grad_(self.omega > 0)

    @classmethod
    def teacher_source(cls, options: Any) -> TeacherSource | None:
        """The teacher that ``taught_by`` names."""
        known = options.teacher_network
        return None if known is None else TeacherSource(known, options.taught_by)

    def yardstick(self) -> Encoder | None:
        """The teacher that was given."""
        return self.teacher.network if self.given else None

    def penalty(self, step: Step) -> dict[str, Tensor]:
        """−ω cos(A f, f_T), for all samples of a step."""
        if not self.omega:
            return {}
        features, rows = step.features, slice(0, len(step.batch))
        known = self.teacher(step.batch, rows, step.views, features.joint, "backbone")
        return {"alignment": self.omega * negative_cosine(features.through(self.aligner, features.backbone), known)}
