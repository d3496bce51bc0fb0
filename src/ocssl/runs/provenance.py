"""Where the numbers of a run come from: the images, their order, and code outside ocssl."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ValidationError

from ocssl.errors import CheckpointError
from ocssl.plugins import Plugin, changed
from ocssl.runs.config import RunConfig
from ocssl.runs.data import Schedule, Splits


class Provenance(BaseModel):
    """What a run must find unchanged when it is resumed; saved with each checkpoint, and in the result.

    Attributes:
        fingerprint: of the order of the stream.
        images: number of images by split.
        pixels: digest of images and labels by split.
        plugins: modules outside ocssl that its parts come from.
    """

    fingerprint: str
    images: dict[str, int]
    pixels: dict[str, str]
    plugins: list[Plugin]

    @classmethod
    def of(cls, config: RunConfig, splits: Splits, schedule: Schedule) -> Provenance:
        """Of a run that is about to begin or go on; reads every image once."""
        sets = splits.sources
        return cls(
            fingerprint=schedule.fingerprint,
            images={split: len(images) for split, images in sets.items()},
            pixels={split: images.digest() for split, images in sets.items()},
            plugins=config.plugins(),
        )

    @classmethod
    def from_state(cls, saved: dict[str, Any]) -> Provenance | None:
        """That of a checkpoint; None for one of an earlier version, which does not say."""
        if saved.get("provenance") is None:
            return None
        try:
            return cls.model_validate(saved["provenance"])
        except ValidationError as error:
            raise CheckpointError("the checkpoint's provenance does not fit this version of ocssl") from error

    def difference(self, before: Provenance) -> str | None:
        """The first thing that is not as before, as a clause; None where all is."""
        if code := changed(before.plugins, self.plugins):
            return code
        for split, count in self.images.items():
            if count != before.images.get(split):
                return f"the number of {split} images changed from {before.images.get(split)} to {count}"
        for split, digest in self.pixels.items():
            if digest != before.pixels.get(split):
                return f"the pixels or labels of the {split} images changed"
        return "the order of the stream changed" if self.fingerprint != before.fingerprint else None
