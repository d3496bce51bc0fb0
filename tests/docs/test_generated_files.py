"""The files in docs/ that are made from the code are up to date; ``make docs-files`` writes them."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import yaml

from ocssl.cli.lists import settings_page
from ocssl.results.result import schema
from ocssl.runs.config import settings
from ocssl.version import __version__

DOCS = Path(__file__).parents[2] / "docs"
OUTDATED = "run: make docs-files"


def test_the_page_of_settings_is_that_of_the_declarations() -> None:
    assert (DOCS / "settings.md").read_text(encoding="utf-8") == settings_page(), OUTDATED


def test_the_page_of_settings_has_every_setting() -> None:
    page = settings_page()
    assert [name for name in settings() if f"| `{name}`" not in page and name != "probe"] == []
    assert "| `probe.lr` |" in page


def test_the_schema_of_results_is_that_of_the_class() -> None:
    assert json.loads((DOCS / "result.schema.json").read_text()) == schema(), OUTDATED


def test_the_version_is_written_once_and_the_other_files_agree() -> None:
    root = DOCS.parent
    project = tomllib.loads((root / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "ocssl.version.__version__"}
    assert yaml.safe_load((root / "CITATION.cff").read_text())["version"] == __version__
    assert f"# Changes\n\n## {__version__}\n" in (root / "CHANGELOG.md").read_text()
