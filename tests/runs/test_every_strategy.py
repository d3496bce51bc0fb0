"""Every strategy through the command line, on drawn and on real images, to a result that fits the published schema."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from helpers.command import TINY, Command, as_options
from ocssl import strategies
from ocssl.results.result import Result, read_result
from ocssl.runs.config import read_names
from ocssl.runs.folder import RunFolder
from ocssl.runs.naming import names_of

FIRST_KEYS = (
    *("key", "label", "name", "overrides", "dataset", "budget", "final", "avg", "curve"),
    *("cbp_planned", "cbp_spent", "train_seconds", "eval_seconds"),
)
STRATEGIES = strategies.registry.names()
SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "result.schema.json").read_text())
SHORT = TINY | {"samples_per_class": 10, "experiences": 2, "stream_batch": 8, "batch": 16, "references": False}
REAL = SHORT | {
    "dataset": "cifar100",
    "samples_per_class": None,
    "image_size": 32,
    "backbone": "convnet-w4",
    "stream_batch": 55,
    "batch": 64,
    "memory_size": 100,
    "evaluate": "final",
}


def fitting(strategy: str, settings: dict[str, object]) -> dict[str, object]:
    """The settings that the strategy reads, with a batch that it can have."""
    replays = strategies.registry.get(strategy).composition in ("stream+replay", "replay")
    read = read_names({"strategy": strategy})
    chosen = {name: value for name, value in {**settings, "heads_first": 2}.items() if name in read}
    return chosen | {"strategy": strategy, "batch": settings["batch"] if replays else None}


def check_complete(run: Path) -> Result:
    folder = RunFolder(run)
    for file in (folder.config, folder.metrics.path, folder.log, folder.encoder, folder.result):
        assert file.stat().st_size > 0
    assert folder.checkpoints.complete()
    written = json.loads(folder.result.read_text())
    jsonschema.validate(written, SCHEMA)
    assert tuple(written)[: len(FIRST_KEYS)] == FIRST_KEYS
    config = folder.read_config()
    assert written["config"] == config.to_dict() | {"data_root": None}  # a place on this machine
    assert {name: written[name] for name in FIRST_KEYS[:4]} == names_of(config)
    assert written["format"] == 2
    return read_result(run)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_run_on_shapes_ends_with_a_complete_result(ocssl: Command, tmp_path: Path, strategy: str) -> None:
    code, out, err = ocssl("run", "--quiet", "-o", "run", *as_options(fitting(strategy, SHORT)))
    assert code == 0, err
    result = check_complete(tmp_path / "run")
    assert f"Final {result.final:.2f} %" in out
    assert (result.strategy, result.dataset, result.budget) == (strategy, "shapes", "custom")
    assert len(result.curve) == len(result.matrix) == 2
    assert result.final == result.curve[-1]
    assert result.avg == pytest.approx(sum(result.curve) / 2)
    assert 0 < result.cbp_spent <= result.cbp_planned


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_run_on_real_images_ends_with_a_complete_result(
    ocssl: Command, tmp_path: Path, cifar100: Path, strategy: str
) -> None:
    options = as_options(fitting(strategy, REAL))
    code, _, err = ocssl("run", "--quiet", "--data-root", cifar100, "-o", "run", *options)
    assert code == 0, err
    result = check_complete(tmp_path / "run")
    assert (result.strategy, result.dataset, result.samples) == (strategy, "cifar100", 1100)
