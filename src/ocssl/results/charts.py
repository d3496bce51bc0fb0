"""Figures of a report as plain values. :mod:`ocssl.results.render.figures` draws them into files, the page's script on the
page."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ocssl.results.names import dashed, describe, heading, row_label
from ocssl.results.read import Group, ResultFile
from ocssl.results.sections import Report, Row, Section
from ocssl.results.styles import STYLES
from ocssl.results.table import Value

Values = dict[str, Any]

PLOTS: dict[str, list[Values]] = {
    "bars": [
        {"number": "final", "title": "Final accuracy, %"},
        {"number": "avg", "title": "Average accuracy, %"},
    ],
    "stream": [{"number": "curve", "title": "linear probe, all classes, %", "x": "stream images seen"}],
    "budget": [{"number": "final", "title": "Final accuracy, %", "x": "CBP", "unit": "%", "digits": 2}],
    "times": [
        {"number": "seconds", "title": "seconds per run", "x": "CBP", "unit": "s", "digits": 1, "zero": True},
        {"number": "step", "title": "milliseconds per step", "x": "CBP", "unit": "ms", "digits": 2, "zero": True},
    ],
}
"""The plots of each kind of figure: the number of a series that they show, their axes, and whether these start at zero."""

UNSHOWN = {"matrix", "experiences", "borders", "curve", "knn", "config", "versions", "hardware", "references", "format"}
"""Parts of a result that the page shows elsewhere or not at all."""


def chart_data(report: Report) -> Values:
    """Series, figures that name their series by number, runs with their configuration, and a style for each strategy."""
    names = {file.path: f"r{number}" for number, file in enumerate(report.files)}
    series: list[Values] = []
    figures: list[Values] = []
    families: dict[tuple[str, str], Values] = {}
    for section in report.sections:
        start = len(series)
        series += [_series(section, row, group, names) for row in section.rows for group in row.distinct if group.final]
        numbers = list(range(start, len(series)))
        facets = {"dataset": section.dataset, "method": section.method, "protocol": section.protocol}
        facets["protocolName"] = heading(section.protocol)
        figures += _section_figures(section, facets, series, numbers)
        if section.compares_budgets:
            first = {"title": section.family, "joined": not section.is_unlisted, **facets, "series": []}
            family = families.setdefault((section.family, section.protocol), first)
            shown = {_identity(series[number]) for number in family["series"]}
            family["series"] += [number for number in numbers if _identity(series[number]) not in shown]
    styles = dict.fromkeys(row.style for section in report.sections for row in section.rows)
    return {
        "series": series,
        "figures": [*figures, *_family_figures(families.values(), series)],
        "runs": {names[file.path]: _run(file, file.path in report.conflicting) for file in report.files},
        "styles": {
            name: {"label": row_label(name), "marker": STYLES[name].marker, "dash": STYLES[name].dash}
            for name in styles
        },
    }


def is_curve(series: Mapping[str, Any]) -> bool:
    """Whether a series was measured along the stream, and not only at its end."""
    return series["curve"] is not None and len(series["curve"]["x"]) > 1


def _section_figures(section: Section, facets: Values, series: list[Values], numbers: list[int]) -> Iterator[Values]:
    facets = {**facets, "title": section.title, "budget": section.budget, "series": numbers}
    if numbers and (not section.is_ablation or not section.compares_budgets):
        yield {"kind": "bars", "name": f"bars-{section.id}", "plots": PLOTS["bars"], **facets}
    if not section.is_ablation and any(is_curve(series[number]) for number in numbers):
        yield {"kind": "stream", "name": f"stream-{section.id}", "plots": PLOTS["stream"], **facets}


def _family_figures(families: Iterable[Values], series: list[Values]) -> Iterator[Values]:
    """Final against CBP, and training time against CBP for each device."""
    taken: Counter[str] = Counter()
    for family in families:
        spent = [number for number in family["series"] if series[number]["cbp"]]
        name = f"{dashed(family['title'])}-{family['protocol']}"
        taken[name] += 1
        name += f"-{taken[name]}" if taken[name] > 1 else ""  # the names of two data sets may have the same letters
        if spent:
            yield {**family, "kind": "budget", "name": f"budget-{name}", "plots": PLOTS["budget"], "series": spent}
        for device in sorted({series[number]["device"] for number in spent if series[number]["device"]}):
            yield {
                **family,
                "kind": "times",
                "name": f"times-{name}-{dashed(device)}",
                "title": f"{family['title']}, {device}",
                "plots": PLOTS["times"],
                "series": [number for number in spent if series[number]["device"] == device],
            }


def _identity(series: Values) -> tuple[Any, ...]:
    """Rows of several sections are one series of a figure if they have the same runs."""
    return series["style"], series["tuned"], *series["runs"]


def _series(section: Section, row: Row, group: Group, names: Mapping[Path, str]) -> Values:
    tuned = group is not row.ours
    devices = group.devices
    return {
        "label": section.label(row) + (", tuned" if tuned else ""),
        "style": row.style,
        "tuned": tuned,
        "ranked": row.ranked,
        "budget": _budget(section, group),
        "block": None if row.block is None else f"b = {row.block[1]}, n_p = {row.block[2]}",
        "final": _score(group.final, row.published.get("final")),
        "avg": _score(group.avg, row.published.get("avg")),
        "curve": group.curve,
        "cbp": group.cbp,
        "seconds": _score(group.seconds),
        "step": {"mean": group.step_milliseconds, "std": None},
        "device": devices[0] if len(devices) == 1 else None,
        "runs": [names[run.path] for run in group.runs.values()],
    }


def _score(values: Mapping[int, float], paper: Value | None = None) -> Values:
    ours = Value.over(values)
    return {
        "mean": ours.mean,
        "std": ours.std,
        "seeds": {str(seed): value for seed, value in values.items()},
        "paper": paper.mean if paper else None,
        "paperStd": paper.std if paper else None,
    }


def _budget(section: Section, group: Group) -> str:
    """The budget of a group's results; the section's, else ``custom``, where they differ."""
    found = {run.result.budget for run in group.runs.values()}
    return found.pop() if len(found) == 1 else section.budget or "custom"


def _run(file: ResultFile, conflicting: bool) -> Values:
    result = file.result
    return {
        "name": describe(result),
        "facts": {name: getattr(result, name) for name in ("strategy", "method", "memory", "dataset", "budget")},
        "path": str(file.path),
        "conflicting": conflicting,
        "seed": result.seed,
        "protocol": result.protocol,
        "result": result.model_dump(mode="json", exclude=UNSHOWN),
        "knn": result.knn and {"final": result.knn.final, "avg": result.knn.avg},
        "references": result.references,
        "config": result.config,
        "versions": result.versions,
        "hardware": result.hardware,
    }


def to_script(values: Values) -> str:
    """JSON that any JSON parser reads and no HTML parser takes for markup.

    >>> to_script({"path": "</script>"})
    '{"path":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(_finite(values), separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
