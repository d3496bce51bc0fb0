"""Figures of a report as plain values, from which matplotlib draws files and the page's script draws the page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from ocssl.results.build import difference
from ocssl.results.names import STYLES, dashed, heading, row_label, without_folders
from ocssl.results.read import Group, ResultFile
from ocssl.results.report import Report
from ocssl.results.sections import SAME_BUDGET, Row, Section
from ocssl.results.table import Value

Values = dict[str, Any]

FINAL = {"number": "final", "title": "Final accuracy, %", "x": "CBP", "unit": "%", "zero": False}
PLOTS: dict[str, list[Values]] = {
    "bars": [FINAL, {"number": "avg", "title": "Average accuracy, %"}],
    "stream": [{"number": "curve", "title": "linear probe, all classes, %", "x": "stream images seen"}],
    "matrix": [{"number": "matrix", "title": "after each experience, on the classes of each, %"}],
    "budget": [FINAL],
    "times": [
        {"number": "seconds", "title": "seconds per run", "x": "CBP", "unit": "s", "zero": True},
        {"number": "step", "title": "milliseconds per step", "x": "CBP", "unit": "ms", "zero": True},
    ],
}
"""The plots of each kind of figure: the number of a series that they show, and their axes."""

CAUTION = (
    "The paper’s numbers are of the authors’ protocol, ours here of the clean one. Compare our bars with each other. "
    "What reproduces the paper is under the authors’ protocol."
)
"""Said where a figure has the paper's numbers beside ours of another protocol."""

MAX_MATRICES = 8  # of runs outside the paper's tables, which may be very many


def chart_data(report: Report) -> Values:
    """Series, figures that name their series by number, runs with their settings, and a style for each strategy.

    Numbers have their texts beside them, since a script rounds in another way.
    """
    series: list[Values] = []
    figures: list[Values] = []
    families: dict[tuple[str, str], Values] = {}  # by title and protocol
    for section in report.sections:
        measured = "seconds" if section.table.shows == "seconds" else "final"
        shown = [(row, group) for row in section.rows for group in row.distinct if getattr(group, measured)]
        own = [_series(section, row, group, report.run_names) for row, group in shown]
        numbers = list(range(len(series), len(series) + len(own)))
        series += own
        figures += _section_figures(section, own, numbers)
        if _is_against_cbp(section):
            family = _family(section)
            family = families.setdefault((family["title"], section.protocol), family)
            known = [_identity(series[number]) for number in family["series"]]
            family["series"] += [number for number in numbers if _identity(series[number]) not in known]
    styles = dict.fromkeys(row.style for section in report.sections for row in section.rows)
    return {
        "series": series,
        "figures": [*figures, *_against_cbp(families.values(), series)],
        "runs": {report.run_names[file.path]: _run(file, report) for file in report.files},
        "styles": {
            name: {"label": row_label(name), "marker": STYLES[name].marker, "dash": STYLES[name].dash}
            for name in styles
        },
    }


def _is_ablation(section: Section) -> bool:
    """Whether rows are variants of a few strategies, which colours cannot tell apart."""
    return not section.is_unlisted and len({row.style for row in section.rows}) < len(section.rows) - 1


def _is_against_cbp(section: Section) -> bool:
    """Whether a section is part of the figures against CBP.

    Rows with other settings than the paper's would be second points of their strategies at the same CBP.
    """
    changed = not section.is_unlisted and all(row.declared for row in section.table.rows)
    plain = not changed and not _is_ablation(section)
    return plain or section.table.shows == "seconds" or section.table.id.startswith("passes")


def _facets(section: Section) -> Values:
    facets = {"dataset": section.dataset, "method": section.method, "protocol": section.protocol}
    return {**facets, "protocolName": heading(section.protocol)}


def _section_figures(section: Section, series: list[Values], numbers: list[int]) -> Iterator[Values]:
    """Bars, curves along the stream and matrices of one section."""
    values = {**_facets(section), "title": section.title, "budget": section.table.budget, "series": numbers}
    ablation = _is_ablation(section)
    if len(series) > 1 and section.table.shows != "seconds" and not (ablation and _is_against_cbp(section)):
        differs = section.protocol != "authors" and any(row.published for row in section.rows)
        yield _figure("bars", section.id, {**values, "caution": CAUTION if differs else ""})
    if not ablation and any(map(is_curve, series)):
        yield _figure("stream", section.id, values)
    few = not section.is_unlisted or len(series) <= MAX_MATRICES
    matrices = [one["matrix"] for one in series if len(one["matrix"] or ()) > 1]
    if few and not ablation and matrices:
        cells = [accuracy for matrix in matrices for row in matrix for accuracy in row]
        yield _figure("matrix", section.id, {**values, "range": [min(cells), max(cells)]})


def _family(section: Section) -> Values:
    """What the figures against CBP say of a section; sections of one data set and objective share these figures."""
    title = ", ".join(map(heading, filter(None, (section.dataset, section.method))))
    title = section.title if section.is_unlisted else title
    return {**_facets(section), "title": title, "joined": not section.is_unlisted, "series": []}


def is_curve(series: Mapping[str, Any]) -> bool:
    """Whether a series was measured along the stream, and not only at its end."""
    return series["curve"] is not None and len(series["curve"]["x"]) > 1


def _figure(kind: str, name: str, values: Values) -> Values:
    return {"kind": kind, "name": f"{kind}-{name}", "plots": PLOTS[kind], **values}


def _against_cbp(families: Iterable[Values], series: list[Values]) -> Iterator[Values]:
    """Final against CBP, and training time against CBP for each device."""
    taken: Counter[str] = Counter()

    def unique(name: str) -> str:  # names of two data sets or devices may have the same letters
        taken[name] += 1
        return f"{name}-{taken[name]}" if taken[name] > 1 else name

    for family in families:
        spent = [number for number in family["series"] if series[number]["cbp"]]
        scored = [number for number in spent if series[number]["final"]["mean"] is not None]
        name = unique(f"{dashed(family['title'])}-{family['protocol']}")
        if _is_apart(series[number]["cbp"] for number in scored):
            yield _figure("budget", name, {**family, "series": scored})
        for device in sorted({series[number]["device"] for number in spent if series[number]["device"]}):
            timed = [number for number in spent if series[number]["device"] == device]
            title = f"{family['title']}, {device}"
            if _is_apart(series[number]["cbp"] for number in timed):
                yield _figure("times", unique(f"{name}-{dashed(device)}"), {**family, "title": title, "series": timed})


def _is_apart(spent: Iterable[float]) -> bool:
    """Whether there are points at two CBP or more, so that a figure against CBP shows something."""
    values = list(spent)
    return bool(values) and max(values) > SAME_BUDGET * min(values)


def _identity(series: Values) -> tuple[Any, ...]:
    """Rows of several sections are one series of a figure if they have the same runs."""
    return series["style"], series["tuned"], *series["runs"]


def _series(section: Section, row: Row, group: Group, names: Mapping[Path, str]) -> Values:
    budgets = {run.result.budget for run in group.runs.values()}
    steps = [run.result.train_seconds / _steps(run) for run in group.timed.values() if group.seconds]
    step = Value(1000 * fmean(steps) if steps else None)
    return {
        "label": section.group_label(row, group),
        "style": row.style,
        "tuned": group is not row.ours,
        "ranked": row.ranked,
        "budget": budgets.pop() if len(budgets) == 1 else section.table.budget or "custom",
        "block": None if row.block is None else f"b = {row.block[1]}, n_p = {row.block[2]}",
        "final": _score(group.final, row.published.get("final", Value())),
        "avg": _score(group.avg, row.published.get("avg", Value())),
        "curve": group.curve and {**group.curve, "texts": _curve_texts(group.curve)},
        "matrix": group.matrix,
        "cbp": group.cbp,
        "spent": Value.count(group.cbp).plain(),
        "seconds": _score(group.seconds, Value(), digits=1),
        "step": {"mean": step.mean, "std": None, "text": step.plain()},
        "device": group.devices[0] if len(group.devices) == 1 else None,
        "runs": [names[path] for path in group.paths],
    }


def _steps(run: ResultFile) -> float:
    """Optimiser steps, as the paper counts them: n_p · N / b_s, with the passes of the first images."""
    config, samples = run.result.config, run.result.samples
    passes = samples * config["passes"]
    if early := config.get("early_images"):
        passes += min(samples, early) * (config.get("early_passes", config["passes"]) - config["passes"])
    return float(passes / config["stream_batch"])


def _score(values: Mapping[int, float], paper: Value, digits: int = 2) -> Values:
    ours, seeds = Value.over(values, digits=digits), {str(seed): value for seed, value in values.items()}
    texts = {"text": ours.with_std(), "short": Value(ours.mean, digits=1).plain()}
    texts |= {"paperText": paper.with_std(), "difference": difference(ours, paper).plain()}
    return {"mean": ours.mean, "std": ours.std, "seeds": seeds, "paper": paper.mean, **texts}


def _curve_texts(curve: Mapping[str, list[float]]) -> list[str]:
    """The mean at each point, and the lowest and highest where they differ."""
    points = ([f"{curve[name][place]:.1f}" for name in ("mean", "low", "high")] for place in range(len(curve["x"])))
    return [mean if low == high else f"{mean}  ({low}–{high})" for mean, low, high in points]


def _run(file: ResultFile, report: Report) -> Values:
    result, knn = file.result, file.result.knn
    seed = f"seed {result.seed}"
    facts = ("strategy", "method", "memory", "dataset", "budget", "protocol", "seed", "code", "started", "finished")
    others = {"k-NN Final, %": knn.final, "k-NN Avg, %": knn.avg} if knn else {}
    others |= {f"{name}, %": value for name, value in result.references.items()}
    others |= {"forgetting, points": result.forgetting}
    seconds = {"compiling and capturing, s": result.prepare_seconds} if result.prepare_seconds else {}
    seconds |= {"evaluation, s": result.eval_seconds}
    return {
        "name": ", ".join(filter(None, (result.title, *map(heading, (result.method or "", result.dataset)), seed))),
        "numbers": {
            "Final, %": Value(result.final).plain(),
            "Avg, %": Value(result.avg).plain(),
            "CBP spent": Value.count(result.cbp_spent).plain(),
            "training, s": Value(result.train_seconds, digits=1).plain(),
        },
        "others": {name: Value(value).plain() for name, value in others.items()}
        | {"CBP planned": Value.count(result.cbp_planned).plain()}
        | {name: Value(value, digits=1).plain() for name, value in seconds.items()},
        "facts": {**{name: getattr(result, name) for name in facts}, "stream fingerprint": result.fingerprint},
        "path": report.place(file.path),
        "conflicting": file.path in report.conflicting,
        "warnings": [*map(without_folders, result.warnings)],
        **{name: getattr(result, name) for name in ("config", "versions", "hardware")},
    }


def to_script(values: Values) -> str:
    """JSON that any JSON parser reads and no HTML parser takes for markup.

    >>> to_script({"path": "</script>"})
    '{"path":"\\\\u003c/script\\\\u003e"}'
    """
    finite = json.loads(json.dumps(values), parse_constant=lambda name: None)  # JSON has no NaN and no infinity
    text = json.dumps(finite, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
