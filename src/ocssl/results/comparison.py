"""Results of several runs side by side, as ``ocssl compare`` shows them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path

from ocssl.common.console import short_count
from ocssl.results.build import KNN, NUMBERS, named_seeds
from ocssl.results.differences import seed_mean
from ocssl.results.labels import measured_words, row_labels
from ocssl.results.names import heading, setting_text
from ocssl.results.read import Group, ResultFile
from ocssl.results.render.figures import Line
from ocssl.results.render.terminal import sparkline
from ocssl.results.result import Result
from ocssl.results.sections import BOUNDS, ENCODERS, FLOORS, best_groups, floor_group, floor_settings
from ocssl.results.table import Table, TableColumn, TableRow, Value


def group_runs(results: dict[Path, Result]) -> tuple[str, dict[str, Group]]:
    """The words that all runs share, and the runs by their other words; seeds of one experiment stand together."""
    files = [ResultFile(path, result) for path, result in results.items()]
    copies = Counter((file.experiment, file.result.seed) for file in files)
    together: list[list[ResultFile]] = []
    for file in files:
        same = [group for group in together if group[0].experiment == file.experiment]
        alike = [group for group in same if group[0].result.same_stream(file.result)]
        if alike and copies[file.experiment, file.result.seed] == 1:
            alike[0].append(file)
        else:
            together.append([file])
    title, labels = _labels({group[0].path: [file.result for file in group] for group in together})
    return title, {label: Group(tuple(group)) for label, group in zip(labels, together, strict=True)}


def _labels(results: dict[Path, list[Result]]) -> tuple[str, list[str]]:
    """The words that all groups share, and the others of each; with a part of its path where these are the same."""
    rows, settings = row_labels([group[0] for group in results.values()])
    said = [measured_words(*group) for group in results.values()]
    shared = [place for place, parts in enumerate(zip(*said, strict=True)) if len(set(parts)) == 1]
    title = ", ".join([*(said[0][place] for place in shared if said[0][place]), *settings])
    others = [[part for place, part in enumerate(own) if part and place not in shared] for own in said]
    labels = [", ".join([row, *parts]) for row, parts in zip(rows, others, strict=True)]
    folder = os.path.commonpath([path.parent for path in results])
    return title, [
        label if labels.count(label) == 1 else f"{label} ({os.path.relpath(path, folder)})"
        for label, path in zip(labels, results, strict=True)
    ]


def comparison_table(title: str, groups: dict[str, Group]) -> Table:
    """A row for each experiment, and for each floor that the runs measured."""
    numbers = {number: f"{name} %" for number, name in {**NUMBERS, **KNN}.items()}
    ranked = {label: group for label, group in groups.items() if group.files[0].result.strategy not in BOUNDS}
    best = {number: best_groups(ranked, number) for number in numbers}
    rows = []
    for label, group in groups.items():
        values = [Value.over(getattr(group, number), best=label in best[number]) for number in numbers]
        values += [Value.over(group.forgetting), named_seeds(group.runs)]
        spent = round(group.cbp or 0)
        values += [Value(spent, text=short_count(spent))]
        values += [Value(text=sparkline(group.curve["mean"] if group.curve else []))]
        rows.append(TableRow(label, tuple(values), ranked=label in ranked))
    for label, floor in _floors(groups):
        values = [Value.over(getattr(floor, number)) for number in numbers]
        values += [Value(text=""), named_seeds(floor.final), Value(text=""), Value(text="")]
        problems = tuple(problem.sentence for problem in floor.problems)
        rows.append(TableRow(label, tuple(values), ranked=False, problems=problems))
    numeric = [TableColumn(name) for name in (*numbers.values(), "forgetting")]
    seeds, along = (TableColumn(name, align="left") for name in ("seeds", "along the stream"))
    return Table(title, (*numeric, seeds, TableColumn("CBP"), along), tuple(rows), label="run")


def comparison_lines(groups: dict[str, Group]) -> list[Line]:
    """A curve for each experiment, and a level line for each encoder that one began with."""
    curves = {label: group.curve for label, group in groups.items() if group.curve}
    lines = [Line(label, one["x"], one["mean"], one["low"], one["high"]) for label, one in curves.items()]
    for label, floor in _floors(groups):
        if floor.floor in ENCODERS and floor.final:
            lines.append(Line(label, (), [seed_mean(floor.final)], dash="2 3"))
    return lines


def _floors(groups: dict[str, Group]) -> Iterator[tuple[str, Group]]:
    """Each floor that was measured, once for each data set, protocol, kind of images and way to measure it."""
    files = [file for group in groups.values() for file in group.files]
    measured: dict[tuple[str, str, str, str], list[ResultFile]] = {}
    for file in files:
        for name in file.result.references:
            measured.setdefault((*file.result.measure[:3], name), []).append(file)
    protocols, images = ({getattr(file.result, name) for file in files} for name in ("protocol", "measured_on"))
    for (dataset, protocol, kind, name), having in measured.items():
        label = [f"{heading(dataset)} {FLOORS.get(name, f'{name} encoder')}"]
        label += [f"{heading(protocol)} protocol"] if len(protocols) > 1 else []
        label += [f"{kind} images"] if len(images) > 1 else []
        for differing, alike in _measured_alike(having, name).items():
            yield ", ".join([*label, *differing]), floor_group(name, alike)


def _measured_alike(files: list[ResultFile], floor: str) -> dict[tuple[str, ...], list[ResultFile]]:
    """Files that measured a floor in the same way, by the settings that tell the ways apart."""
    settings = [floor_settings(file.result, floor) for file in files]
    names = dict.fromkeys(name for own in settings for name in own)
    differing = [name for name in names if any(own.get(name) != settings[0].get(name) for own in settings)]
    found: dict[tuple[str, ...], list[ResultFile]] = {}
    for file, own in zip(files, settings, strict=True):
        found.setdefault(tuple(setting_text(name, own.get(name)) for name in differing), []).append(file)
    return found


def incomparable(results: Iterable[Result]) -> Iterator[str]:
    """Sentences on why the numbers of some of these results do not compare."""
    results = list(results)
    if len({result.protocol for result in results}) > 1:
        yield "These runs follow different protocols; their numbers do not compare."
    if len({result.measured_on for result in results}) > 1:
        yield "Some of these runs were measured on validation images, others on test images."
    if len({result.crops for result in results}) > 1:
        yield "Some of these runs were measured with several crops of each image; their numbers do not compare."
    online = [result for result in results if result.strategy != "iid"]
    if not all(one.dataset == other.dataset and one.same_stream(other) for one, other in combinations(online, 2)):
        yield "These runs saw different streams."
