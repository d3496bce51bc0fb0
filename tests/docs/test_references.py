"""Every part has its source: in its docstring, on the page of references, and in the BibTeX file."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from ocssl import memory, methods, strategies
from ocssl.cli import app
from ocssl.data import catalog
from ocssl.evaluation import diagnostics
from ocssl.registry import Registry, source
from ocssl.version import __version__

ROOT = Path(__file__).parents[2]
REGISTRIES = {"Strategies": strategies.registry, "Methods": methods.registry, "Memories": memory.registry}
MEASURES = {"budget", "final", "avg", "forgetting", "linear_probe", "knn_probe"}
NO_MEASURES = {"collapsed", "diagnose_features"}  # they combine the measures
ARXIV = re.compile(r"arXiv:(\d{4}\.\d{5})")


def ours(registry: Registry[type]) -> dict[str, type]:
    """The parts of this package by name, unlisted ones included."""
    return {name: part for name, part in registry._entries.items() if part.__module__.startswith("ocssl.")}


PARTS = [(title, name, part) for title, registry in REGISTRIES.items() for name, part in ours(registry).items()]
VARIANTS = [part for registry in REGISTRIES.values() for part in registry._variants.values()]


def page() -> dict[str, dict[str, tuple[str, list[str]]]]:
    """By heading and name: the source, and its keys."""
    text = (ROOT / "docs" / "references.md").read_text(encoding="utf-8")
    found: dict[str, dict[str, tuple[str, list[str]]]] = {}
    for section in text.split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        for names, cited, keys in re.findall(r"^\| (.+?) \| (.+) \| (.+?) \|$", body, flags=re.M):
            for name in re.findall(r"`([^`]+)`", names):
                found.setdefault(title, {})[name] = cited, re.findall(r"`([^`]+)`", keys)
    return found


def bibliography() -> dict[str, str]:
    """The entries of the BibTeX file by key."""
    text = (ROOT / "docs" / "references.bib").read_text(encoding="utf-8")
    return dict(re.findall(r"^@\w+\{(\S+),\n(.*?)^\}", text, flags=re.M | re.S))


@pytest.mark.parametrize(("title", "name", "part"), PARTS, ids=lambda value: value if isinstance(value, str) else "")
def test_every_part_has_its_source(title: str, name: str, part: type) -> None:
    docstring = inspect.cleandoc(part.__doc__ or "")
    assert "\nSource: " in docstring, f"the docstring of {part.__name__} lacks a line 'Source: …'"
    assert name in page()[title], f"docs/references.md lacks a row for `{name}` below {title}"
    cited, keys = page()[title][name]
    assert keys, f"the row of `{name}` has no key of docs/references.bib"
    entries = "".join(bibliography()[key] for key in keys)
    module = importlib.import_module(part.__module__).__doc__ or ""
    for number in ARXIV.findall(source(part)):
        assert number in cited
        assert number in entries
        assert number in module
    author = re.search(r"[A-Z][\w-]+(?=( et al\.| and |,))", source(part))
    assert author is not None
    assert author[0] in entries


def test_the_walk_meets_every_kind_of_part() -> None:
    assert {name for _, name, _ in PARTS} >= {"cla-e", "pfr", "simsiam", "fifo", "part-and-select"}
    assert [title for title in REGISTRIES if not ours(REGISTRIES[title])] == []


def test_a_variant_has_the_source_of_its_strategy() -> None:
    assert len(VARIANTS) > 10
    assert [part.__name__ for part in VARIANTS if not source(part)] == []


def test_every_data_set_and_measure_has_its_row() -> None:
    found = page()
    assert [name for name in catalog.registry._entries if name not in found["Data sets"]] == []
    own = {name for name, item in vars(diagnostics).items() if getattr(item, "__module__", "") == diagnostics.__name__}
    measures = {name for name in own if not name.startswith("_")} - NO_MEASURES | MEASURES
    assert sorted(measures - set(found["Measures"])) == []


def test_page_and_file_have_the_same_sources() -> None:
    entries, found = bibliography(), page()
    cited = {key for rows in found.values() for _, keys in rows.values() for key in keys}
    assert cited - set(entries) == set()
    assert set(entries) - cited <= {"akiba2019optuna"}  # its row has no name in code
    for rows in found.values():
        for name, (text, keys) in rows.items():
            numbers = {number for key in keys for number in ARXIV.findall(entries[key])}
            assert set(ARXIV.findall(text)) == numbers, name
    for label, address in re.findall(r"\[arXiv:([\d.]+)\]\((.*?)\)", (ROOT / "docs" / "references.md").read_text()):
        assert address == f"https://arxiv.org/abs/{label}"


@pytest.mark.parametrize("name", ["README.md", "docs/references.md"])
def test_the_paper_is_named_before_the_software(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    paper = yaml.safe_load((ROOT / "CITATION.cff").read_text())["preferred-citation"]
    flat = " ".join(text.split())
    for author in paper["authors"]:
        names = (author["given-names"], author.get("name-particle"), author["family-names"])
        assert " ".join(filter(None, names)) in flat
    assert paper["url"] in text
    assert text.index("@inproceedings{cignoni2025cla") < text.index("@software{ocssl")
    assert re.search(rf"version += \{{{re.escape(__version__)}\}}", text), "the version to cite is an old one"
    for key in ("cignoni2025cla", "ocssl"):
        (printed,) = re.findall(rf"^@\w+\{{{key},\n(.*?)^\}}", text, flags=re.M | re.S)
        assert "".join(printed.split()) == "".join(bibliography()[key].split()), f"{name} and references.bib differ"


def test_lists_show_the_source() -> None:
    listed = CliRunner().invoke(app, ["list", "strategies", "lump"])
    assert "Source: Madaan et al., ICLR 2022, arXiv:2110.06976" in " ".join(listed.output.split())
