"""Multi-crop: small crops besides the views, which cost less (Caron et al., NeurIPS 2020, arXiv:2006.09882)."""

from __future__ import annotations

from fractions import Fraction

from pydantic import field_validator

from ocssl.methods.base import Dims, Method
from ocssl.options import Pair, setting


class MultiCrop(Method):
    """Base of methods that also learn from small crops: a step has their features as ``step.small``.

    Small crops pass through the encoder alone, in a pass of their own. Their cost is their share of a view's pixels.
    """

    class Options(Method.Options):
        small_views: int = setting(4, "Small crops of each image in a step, besides the views.", ge=1, le=64)
        small_side: float = setting(0.5, "Side of a small crop, as a share of image_size.", gt=0, le=1)
        small_scale: Pair = setting(
            (0.05, 0.4), "Smallest and largest area of a small crop, as fractions of the image."
        )

        @field_validator("small_scale")
        @classmethod
        def _small_ordered(cls, ends: tuple[float, float]) -> tuple[float, float]:
            if not 0 < ends[0] <= ends[1] <= 1:
                raise ValueError(f"small_scale must be two numbers above 0 and at most 1, low and high, not {ends}")
            return ends

        def small_size(self, image_size: int) -> int:
            """Side of a small crop in pixels.

            >>> MultiCrop.Options(small_side=0.43).small_size(224)
            96
            """
            return max(1, round(self.small_side * image_size))

        def small_cost(self, image_size: int) -> Fraction:
            """Backward passes of the small crops of an image: their share of a view's pixels."""
            return self.small_views * Fraction(self.small_size(image_size), image_size) ** 2

    options: Options

    def __init__(self, dims: Dims, options: Options | None = None) -> None:
        super().__init__(dims, options)
        self.small_views = self.options.small_views
