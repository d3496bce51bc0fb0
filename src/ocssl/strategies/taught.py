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

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ocssl.batch import Step
from ocssl.losses import negative_cosine
from ocssl.nn import Encoder, Head, frozen_copy
from ocssl.options import setting
from ocssl.strategies.base import Setup, Strategy, register
from ocssl.strategies.targets import EncoderCopy


class Renormalised(nn.Module):
    """A network for images that were normalised and sized for another one: ``(n, 3, s, s)`` to ``(n, d)``.

    Args:
        size: side of the images that the network takes; None: any.
        scale, shift: of each channel, to the network's own normalisation.

    >>> network = Renormalised(nn.Flatten(), 4, scale=(2, 2, 2), shift=(1, 1, 1))
    >>> network(torch.ones(1, 3, 8, 8)).unique(), network(torch.ones(1, 3, 8, 8)).shape
    (tensor([3.]), torch.Size([1, 48]))
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, network: nn.Module, size: int | None, scale: Sequence[float], shift: Sequence[float]) -> None:
        super().__init__()
        self.network, self.size = network, size
        self.register_buffer("scale", torch.tensor([*scale], dtype=torch.float32).view(3, 1, 1))
        self.register_buffer("shift", torch.tensor([*shift], dtype=torch.float32).view(3, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Features of the network."""
        images = images * self.scale + self.shift
        if self.size is not None and images.shape[-1] != self.size:
            images = nn.functional.interpolate(images, (self.size, self.size), mode="bilinear", antialias=True)
        features: Tensor = self.network(images)
        return features


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
            "`efficientnet-lite0`. It is read once. Image_size, mean, std and fit follow from it where they are not "
            "given. Unset: the encoder as it is at the start.",
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
