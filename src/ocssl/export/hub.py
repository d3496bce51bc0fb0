"""A folder for the Hugging Face Hub: weights, configuration, and a model card."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from ocssl.common.console import number_of
from ocssl.common.files import MARK, atomic_write, check_output, is_draft, writing
from ocssl.errors import CheckpointError
from ocssl.export.encoder import FrozenEncoder
from ocssl.export.formats import export
from ocssl.pretrained import HUB_WEIGHTS

KINDS = {HUB_WEIGHTS: "safetensors", "config.json": "json", "README.md": "markdown"}


def write_hub_folder(
    encoder: FrozenEncoder,
    folder: str | Path,
    *,
    data: str | None = None,
    license: str | None = None,
    force: bool = False,
) -> Path:
    """Write ``model.safetensors``, ``config.json`` and ``README.md`` into a folder, to be uploaded as it is.

    Args:
        data: a sentence on the images it learned from.
        license: of the weights, as the Hub spells it; left out unless you say it.
        force: replace files of these names that ocssl did not write, too.
    """
    place = Path(folder)
    check_hub_folder(place, force=force)
    export(encoder, place / HUB_WEIGHTS, "safetensors", force=force)
    card = model_card(encoder, data=data, license=license)
    with writing(place):
        atomic_write(place / "config.json", json.dumps(encoder.facts, indent=1) + "\n")
        atomic_write(place / "README.md", card.encode(errors="backslashreplace"))  # folder names need not be UTF-8
    return place


def check_hub_folder(place: Path, *, inputs: Iterable[str | Path] = (), force: bool = False) -> None:
    """Refuse a folder that holds anything but what :func:`write_hub_folder` writes."""
    inputs = list(inputs)
    if place.exists() and not place.is_dir():
        raise CheckpointError(f"'{place}' is a file; choose another place, for a folder")
    others = {
        path.name
        for path in (place.iterdir() if place.exists() else ())
        if not any(path.name == name or is_draft(path, name) for name in KINDS)
    }
    if others:
        raise CheckpointError(f"'{place}' holds something else, {min(others)} for one; choose another folder")
    for name, kind in KINDS.items():
        check_output(place / name, kind, inputs=inputs, force=force)


def model_card(encoder: FrozenEncoder, *, data: str | None = None, license: str | None = None) -> str:
    """The card's text: settings, budget and data, as far as the encoder records them."""
    size, licence = encoder.image_size, yaml.safe_dump({"license": license}) if license else ""
    if encoder.facts.get("seen"):
        tags = "tags:\n- self-supervised-learning\n- continual-learning\n"
        title = "An encoder learned from a stream"
        origin = "It learned online and without labels, from images in the order of their arrival."
    else:
        tags, title, origin = "", "An encoder", "It has not learned from a stream: its weights are those it began with."
    return f"""---
library_name: ocssl
pipeline_tag: image-feature-extraction
{tags}{licence}---

<!-- {MARK} -->

# {title}

Images of {size}×{size} pixels to features of {encoder.feature_dim} numbers. {origin}

## Settings and budget

| | |
|---|---|
{_rows(encoder.facts)}
## Data

{data or _sources(encoder.facts)}

## Use

```python
from ocssl.export import load

encoder = load("{HUB_WEIGHTS}")
features = encoder.transform(images)  # a list of PIL images, or uint8 (n, {size}, {size}, 3)
```

The encoder was not evaluated here. Measure it on your own task before you rely on it.
"""


def _rows(facts: dict[str, Any]) -> str:
    """A table row for every fact that is known; counts have names of their own."""
    named = {
        "images seen": f"{facts.get('seen', 0):,}",
        "cumulative backward passes (CBP)": f"{facts.get('cbp', 0):,}",
        "backbone": facts.get("backbone") or "a module of its own",
    }
    others = {name: value for name, value in facts.items() if name not in ("seen", "cbp", "backbone", "sources")}
    rows = {name: value for name, value in (named | others).items() if value not in (None, {}, [])}
    return "".join(f"| {name} | {value} |\n" for name, value in rows.items())


def _sources(facts: dict[str, Any]) -> str:
    sources = facts.get("sources") or {}
    if not sources:
        return "Not stated."
    return "\n".join(f"- {name.replace(':', ' ', 1)}: {number_of(count, 'image')}" for name, count in sources.items())
