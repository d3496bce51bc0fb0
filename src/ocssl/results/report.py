"""A whole report: the paper's tables that have results, then the experiments that are in none of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from ocssl.errors import DataError
from ocssl.results.labels import row_labels
from ocssl.results.names import heading, row_name, style_name, without_folders
from ocssl.results.read import Group, Problem, ResultFile, Store, read_results
from ocssl.results.result import PROTOCOLS
from ocssl.results.sections import BOUNDS, UNLISTED, Row, Section, make_section, sections_of
from ocssl.results.tables import TABLES, PaperTable


@dataclass(frozen=True)
class Report:
    """The content of a report.

    Attributes:
        sections: the paper's tables in its order, then the unlisted experiments.
        problems: files that need attention; what they hold entered no number.
    """

    title: str
    sections: tuple[Section, ...]
    problems: tuple[Problem, ...]
    store: Store
    folder: Path

    @property
    def files(self) -> tuple[ResultFile, ...]:
        """Every complete result, those in conflict included."""
        return self.store.files

    @cached_property
    def conflicting(self) -> set[Path]:
        """Files of results that conflict."""
        groups = self.store.groups.values()
        return {path for group in groups for problem in group.problems for path in problem.paths}

    def place(self, path: Path) -> str:
        """The path of a file from the folder of results on, so that a report names no folder of its machine."""
        return str(path.relative_to(self.folder)) if path.is_relative_to(self.folder) else path.name

    def sentence(self, problem: Problem) -> str:
        """The sentence of a problem, with paths as :meth:`place` has them."""
        return without_folders(problem.sentence.replace(f"{self.folder}/", ""))

    @cached_property
    def run_names(self) -> dict[Path, str]:
        """The names of runs in the page's data, by the paths of their files."""
        return {file.path: f"r{number}" for number, file in enumerate(self.files)}

    @property
    def latest(self) -> str:
        """The day on which the newest result was finished."""
        return max((file.result.finished for file in self.files), default="")[:10]


def read_report(folder: str | Path, title: str = "Online continual self-supervised learning") -> Report:
    """Read a folder of results.

    A section is in the report if it has a result or a problem that no section before it has: some runs belong in many
    tables.
    """
    store = read_results(folder)
    if not store.files and not store.problems:
        raise DataError(f"'{folder}' holds no results; 'ocssl paper run' or 'ocssl run' makes some")
    listed = [found for table in TABLES.values() for found in sections_of(store, table)]
    shown: list[Section] = []
    seen: set[Path | Problem] = set()
    for section in (*listed, *_unlisted(store, listed)):
        if section.content - seen:
            seen |= section.content
            shown.append(section)
    more = {part for part in seen if isinstance(part, Problem)} - set(store.problems)
    problems = (*store.problems, *sorted(more, key=lambda problem: problem.sentence))
    return Report(title, tuple(shown), problems, store, Path(folder))


def _unlisted(store: Store, listed: Iterable[Section]) -> Iterator[Section]:
    """Sections of the experiments in no listed section, one for each :func:`_section_key`."""
    known = {group.experiment for section in listed for group in section.groups}
    left = [
        group
        for experiment, group in store.groups.items()
        if experiment not in known and not group.files[0].result.only_floors
    ]
    for (images, crops, method, dataset, _), together in groupby(sorted(left, key=_section_key), key=_section_key):
        groups = sorted(together, key=_row_order)
        results = [group.files[0].result for group in groups]
        title = "other runs" + (f", {heading(method)}" if method else "")
        title += "" if images == "test" else f", measured on {images} images"
        title += f", mean of {crops} crops" if crops else ""
        table = PaperTable("-".join(filter(None, (UNLISTED, method, images, crops))), title, ())
        labels, shared = row_labels(results)
        labels = [  # the code of a plugin may be all that tells two rows apart
            label if labels.count(label) == 1 else f"{label}, key {result.key[:8]}"
            for label, result in zip(labels, results, strict=True)
        ]
        rows = tuple(map(_unlisted_row, groups, labels))
        yield replace(make_section(store, table, dataset, results[0].protocol, rows), shared=tuple(shared))


def _section_key(group: Group) -> tuple[str, ...]:
    """Images, crops, method, data set and protocol, the clean one first: groups of one section share all of them."""
    result = group.files[0].result
    crops = "" if result.crops == 1 else str(result.crops)
    return result.measured_on, crops, result.method or "", result.dataset, str(PROTOCOLS.index(result.protocol))


def _row_order(group: Group) -> tuple[Any, ...]:
    """Rows of one strategy stand together, in the order of what is usually varied."""
    result = group.files[0].result
    name = row_name(result.strategy, result.memory)
    return name, *result.block[1:], result.config.get("lr") or 0.0, result.config.get("omega") or 0.0


def _unlisted_row(group: Group, label: str) -> Row:
    result = group.files[0].result
    name, ranked = row_name(result.strategy, result.memory), result.strategy not in BOUNDS
    return Row(f"{name}-{result.key[:8]}", label, style_name(name), group, result.block, result.method, ranked)
