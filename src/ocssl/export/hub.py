"""A folder for the Hugging Face Hub: weights, configuration, and a card that tells how the encoder came to be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ocssl.errors import CheckpointError
from ocssl.export.encoder import FrozenEncoder
from ocssl.export.formats import export

WEIGHTS = "model.safetensors"


def write_hub_folder(
    encoder: FrozenEncoder, folder: str | Path, *, data: str | None = None, license: str | None = None
) -> Path:
    """Write ``model.safetensors``, ``config.json`` and ``README.md`` into a folder, to be uploaded as it is.

    Args:
        data: a sentence on the images it learned from.
        license: of the weights, as the Hub spells it; left out unless you say it.
    """
    place = Path(folder)
    if place.exists() and not place.is_dir():
        raise CheckpointError(f"'{place}' is a file; choose another place, for a folder")
    strangers = (
        {path.name for path in place.iterdir()} - {WEIGHTS, "config.json", "README.md"} if place.exists() else ()
    )
    if strangers:
        raise CheckpointError(f"'{place}' holds something else, {sorted(strangers)[0]} for one; choose another folder")
    export(encoder, place / WEIGHTS, "safetensors")
    try:
        (place / "config.json").write_text(json.dumps(encoder.facts, indent=1) + "\n")
        card = model_card(encoder, data=data, license=license)
        (place / "README.md").write_bytes(card.encode(errors="backslashreplace"))  # names of folders need not be UTF-8
    except OSError as error:
        raise CheckpointError(f"could not write '{place}': {error.strerror or error}") from error
    return place


def model_card(encoder: FrozenEncoder, *, data: str | None = None, license: str | None = None) -> str:
    """The card's text: protocol, budget and data, in so far as the encoder knows them."""
    facts, size = encoder.facts, encoder.image_size
    settings = {name: value for name, value in facts.get("settings", {}).items() if value is not None}
    licence = f"license: {license}\n" if license else ""
    return f"""---
library_name: ocssl
pipeline_tag: image-feature-extraction
tags:
- self-supervised-learning
- continual-learning
{licence}---

# An encoder learned from a stream

Images of {size}×{size} pixels to features of {encoder.feature_dim} numbers, learned online and without labels, from
images in the order of their arrival.

## How it was learned

| | |
|---|---|
| strategy | {facts.get("strategy")} |
| method | {facts.get("method") or "the strategy's default"} |
| backbone | {facts.get("backbone") or "a module of its own"} |
| protocol | {facts.get("variant")}, one pass |
| images seen | {facts.get("seen", 0):,} |
| cumulative backward passes (CBP) | {facts.get("cbp", 0):,} |
{_rows(settings)}| ocssl | {facts.get("ocssl")} |

## Data

{data or _sources(facts)}

## Use

```python
from ocssl.export import load

encoder = load("{WEIGHTS}")
features = encoder.transform(images)  # a list of PIL images, or uint8 (n, {size}, {size}, 3)
```

The encoder was not evaluated here. Measure it on your own task before you rely on it.
"""


def _rows(settings: dict[str, Any]) -> str:
    return "".join(f"| {name} | {value} |\n" for name, value in settings.items())


def _sources(facts: dict[str, Any]) -> str:
    sources = facts.get("sources") or {}
    if not sources:
        return "Not stated."
    return "\n".join(f"- {name.replace(':', ' ', 1)}: {count:,} images" for name, count in sources.items())
