"""What the page's figures and dialogs are drawn from, as plain values for one JSON text inside the page."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

from ocssl.paper import Cell, Score, Stored
from ocssl.report.columns import spent_by
from ocssl.report.model import Line, Report, Sheet
from ocssl.report.names import label, spell
from ocssl.report.palette import LOOKS
from ocssl.runs.presets import row_name

UNSHOWN = {"matrix", "experiences", "borders", "curve", "knn", "config", "versions", "hardware", "references", "format"}
"""Of a result, what the page either shows elsewhere or not at all."""


def payload(report: Report) -> dict[str, Any]:
    """What is drawn, runs with their configuration, and a look for each strategy.

    Sheets and families (cells that may stand in one figure against CBP) name their series by number.
    """
    names = {stored.path: f"r{number}" for number, stored in enumerate(report.results)}
    looks = dict.fromkeys(line.look for sheet in report.sheets for line in sheet.lines)
    series: list[dict[str, Any]] = []
    sheets: list[dict[str, Any]] = []
    families: dict[tuple[str, ...], dict[str, Any]] = {}
    for sheet in report.sheets:
        first = len(series)
        series += [_series(sheet, line, cell, names) for line in sheet.lines for cell in line.drawn]
        facets = {"dataset": sheet.dataset, "method": sheet.method, "protocol": sheet.protocol}
        facets["protocolName"] = spell(sheet.protocol)
        numbers = list(range(first, len(series)))
        sheets.append(_sheet(sheet) | facets | {"series": numbers})
        if sheet.compares_budgets:
            start = {"title": sheet.family, "joined": not sheet.is_other, **facets, "series": []}
            family = families.setdefault((sheet.family, sheet.protocol), start)
            shown = {_identity(series[number]) for number in family["series"]}
            family["series"] += [number for number in numbers if _identity(series[number]) not in shown]
    return {
        "series": series,
        "sheets": sheets,
        "families": list(families.values()),
        "runs": {names[stored.path]: _run(stored, stored.path in report.disputed) for stored in report.results},
        "looks": {
            name: {"label": label(name), "marker": LOOKS[name].marker, "dash": LOOKS[name].dash} for name in looks
        },
    }


def to_script(values: dict[str, Any]) -> str:
    """JSON that no HTML parser takes for markup, whatever strings are in it, and any JSON parser reads.

    >>> to_script({"path": "</script>"})
    '{"path":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(_finite(values), separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity; nothing can be drawn of them either."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _sheet(sheet: Sheet) -> dict[str, Any]:
    return {
        "id": sheet.id,
        "title": sheet.title,
        "budget": sheet.budget,
        "bars": not sheet.is_ablation or not sheet.compares_budgets,
        "stream": not sheet.is_ablation,
    }


def _identity(series: dict[str, Any]) -> tuple[Any, ...]:
    """Cells of several tables are one in a figure if they hold the same runs."""
    return series["look"], series["tuned"], *series["runs"]


def _series(sheet: Sheet, line: Line, cell: Cell, names: dict[Path, str]) -> dict[str, Any]:
    name = sheet.label(line)
    return {
        "label": name if cell.tuning == "paper" else f"{name}, tuned",
        "look": line.look,
        "tuned": cell.tuning == "own",
        "contends": line.contends,
        "budget": budget_of(cell),
        "block": None if cell.block is None else f"b = {cell.block[1]}, n_p = {cell.block[2]}",
        "final": _score(cell.final),
        "avg": _score(cell.avg),
        "curve": None if cell.config is None else curve_of(cell),
        "cbp": spent_by(cell),
        "seconds": _score(cell.seconds),
        "step": step_milliseconds(cell),
        "device": next(iter(cell.devices)) if len(cell.devices) == 1 and cell.config else None,
        "runs": [names[run.path] for run in cell.runs.values()],
    }


def _score(score: Score) -> dict[str, Any]:
    published = score.published
    return {
        "mean": score.mean,
        "std": score.std,
        "seeds": {str(seed): value for seed, value in score.by_seed.items()},
        "paper": published.mean if published else None,
        "paperStd": published.std if published else None,
    }


def _run(stored: Stored, disputed: bool) -> dict[str, Any]:
    result = stored.result
    return {
        "name": run_title(stored),
        "facts": {name: getattr(result, name) for name in ("strategy", "method", "memory", "dataset", "budget")},
        "path": str(stored.path),
        "disputed": disputed,
        "result": {name: value for name, value in result.model_dump(mode="json").items() if name not in UNSHOWN},
        "knn": result.knn and {"final": result.knn.final, "avg": result.knn.avg},
        "references": result.references,
        "config": result.config,
        "versions": result.versions,
        "hardware": result.hardware,
    }


def run_title(stored: Stored) -> str:
    """A run in a few words."""
    result = stored.result
    words = [label(row_name(stored.config)), result.method and spell(result.method), spell(result.dataset)]
    return ", ".join(word for word in words if word) + f", seed {result.seed}"


def budget_of(cell: Cell) -> str:
    """``high`` or ``low`` as the cell's results say, ``custom`` where they do not agree with a name of the paper's."""
    said = {run.result.budget for run in cell.runs.values()}
    return said.pop() if len(said) == 1 else str(cell.table.settings.get("budget", "custom"))


def curve_of(cell: Cell) -> dict[str, list[float]] | None:
    """Mean, lowest and highest accuracy over seeds at each border of the stream.

    None where seeds were measured at different borders: there is no mean of those.
    """
    runs = [run.result for run in cell.runs.values() if run.result.curve]
    if not runs or len({tuple(run.borders) for run in runs}) > 1 or len({len(run.curve) for run in runs}) > 1:
        return None
    along = list(zip(*(run.curve for run in runs), strict=True))
    return {
        "x": [float(border) for border in runs[0].borders[-len(along) :]],
        "mean": [statistics.fmean(values) for values in along],
        "low": [min(values) for values in along],
        "high": [max(values) for values in along],
    }


def step_milliseconds(cell: Cell) -> float | None:
    """Training time of one step; None where times of runs do not compare."""
    if not cell.seconds.by_seed:
        return None
    return 1000 * statistics.fmean(run.result.train_seconds / _steps(run) for run in cell.timed.values())


def _steps(run: Stored) -> float:
    """As the paper counts them: n_p · N / b_s, and for i.i.d. training one for each batch of b."""
    config = run.config
    each = 1 / config["batch"] if config.iid else config["passes"] / config["stream_batch"]
    return float(run.result.samples * each)
