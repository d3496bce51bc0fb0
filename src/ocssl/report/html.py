"""A report as one HTML page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from html import escape
from importlib import resources
from itertools import groupby
from string import Template

from ocssl.paper import Problem, Stored
from ocssl.report.columns import Column, Entry, columns, notes, seconds_entry
from ocssl.report.model import Line, Report, Sheet
from ocssl.report.names import label, spell
from ocssl.report.palette import LOOKS, look_name
from ocssl.report.payload import payload, to_script
from ocssl.runs.presets import row_name

STYLES = ("style.css", "charts.css")
SCRIPTS = (
    "dom.js",
    "state.js",
    "details.js",
    "tip.js",
    "plot.js",
    "bars.js",
    "stream.js",
    "scatter.js",
    "filters.js",
    "tables.js",
    "main.js",
)
PLACES = {"best": "best", "second": "second best"}
"""What screen readers say of numbers that stand out to the eye."""

FEW_PATHS = 3
N_P = "n<sub>p</sub>"


def to_html(report: Report) -> str:
    """The whole page. Tables are in its markup; figures are drawn by its script from JSON inside it."""
    values = payload(report)
    names = {run["path"]: name for name, run in values["runs"].items()}
    return Template(_file("page.html")).substitute(
        title=escape(report.title),
        lede=_lede(report),
        style="\n".join([*map(_file, STYLES), *_colours()]),
        problems=_problems(report.problems) if report.problems else "",
        sheets="\n".join(_sheet(sheet, names) for sheet in report.sheets) or '<p class="note">No whole result yet.</p>',
        runs=_runs(report, names),
        data=to_script(values),
        script="(() => {\n'use strict';\n" + "\n".join(_file(f"script/{name}") for name in SCRIPTS) + "\n})();",
    )


def _file(name: str) -> str:
    return (resources.files("ocssl.report") / "page" / name).read_text(encoding="utf-8")


def _colours() -> Iterator[str]:
    for name in LOOKS:
        yield f":root {{ --look-{name}: light-dark({LOOKS[name].colour}, {LOOKS[name].on_dark}); }}"


def _lede(report: Report) -> str:
    runs = len(report.results)
    protocols = sorted({stored.result.protocol for stored in report.results}, reverse=True)
    words = [f"{runs} run{'' if runs == 1 else 's'}"]
    words += [f"{' and '.join(map(spell, protocols))} protocol{'s' if len(protocols) > 1 else ''}"] if protocols else []
    words += [f"newest result of {report.latest}"] if report.latest else []
    return " · ".join(f"<span>{escape(word)}</span>" for word in words)


def _problems(problems: tuple[Problem, ...]) -> str:
    many = len(problems) > 1
    return (
        '<section class="problems" id="problems" aria-labelledby="problems-title">'
        f'<h2 id="problems-title">{len(problems)} problem{"s" if many else ""} to look at</h2>'
        "<p>What is wrong or in dispute did not enter a number on this page.</p>"
        f"<ul>{''.join(f'<li>{_problem(problem)}</li>' for problem in problems)}</ul></section>"
    )


def _problem(problem: Problem) -> str:
    untold = [str(path) for path in problem.paths if str(path) not in problem.sentence]
    if not untold:
        return escape(problem.sentence)
    files = "<br>".join(escape(path) for path in untold)
    return (
        f"{escape(problem.sentence)}<details{' open' if len(untold) <= FEW_PATHS else ''}>"
        f"<summary>{len(untold)} file{'s' if len(untold) > 1 else ''}</summary>{files}</details>"
    )


def _sheet(sheet: Sheet, names: dict[str, str]) -> str:
    shown = columns(sheet)
    facets = _facets(dataset=sheet.dataset, method=sheet.method, budget=sheet.budget, protocol=sheet.protocol)
    rows = "\n".join(_line(sheet, line, shown, names) for line in sheet.lines)
    heads = "".join(_head(column.title, note=column.note) for column in shown)
    title, protocol = escape(sheet.title), escape(spell(sheet.protocol))
    return (
        f'<div class="sheet" id="{escape(sheet.id)}" {facets}>'
        f'<div class="heading"><h3>{title}</h3>{_badge(sheet.protocol)}{_block(sheet)}</div>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{title}, {protocol} protocol">'
        f"<table><thead>{_groups(shown)}<tr>{_head('strategy', 'ascending')}{heads}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>{_notes(sheet)}</div>"
    )


def _notes(sheet: Sheet) -> str:
    return "".join(f'<p class="note">{escape(note)}</p>' for note in notes(sheet))


def _block(sheet: Sheet) -> str:
    if not sheet.block:
        return ""
    return '<span class="block">b<sub>s</sub> = {}, b = {}, {} = {}</span>'.format(
        *sheet.block[:2], N_P, sheet.block[2]
    )


def _groups(shown: list[Column]) -> str:
    cells = "".join(
        f'<th colspan="{len(list(together))}" scope="colgroup">{escape(group)}</th>'
        for group, together in groupby(shown, key=lambda column: column.group)
    )
    return f'<tr class="groups"><th></th>{cells}</tr>'


def _head(title: str, first: str = "descending", note: str = "") -> str:
    """A heading that sorts, `first` this way; words stand on the left and begin at A."""
    text = escape(title).replace("n_p", N_P)
    hint = f' title="{escape(note)}"' if note else ""
    button = f'<button type="button" class="sort"{hint}>{text}</button>'
    side = ' class="text"' if first == "ascending" else ""
    return f'<th scope="col"{side} aria-sort="none" data-first="{first}">{button}</th>'


def _line(sheet: Sheet, line: Line, shown: list[Column], names: dict[str, str]) -> str:
    name = sheet.label(line)
    classes = ["" if line.contends else "bound", "" if any(cell.runs for cell in line.cells) else "unrun"]
    head = _row_head(line.look, name, escape(name).replace("n_p", N_P) + _dispute(line))
    entries = "".join(_entry(column.entry(line), names, "paper" if column.title == "paper" else "") for column in shown)
    return f'<tr class="{" ".join(filter(None, classes))}">{head}{entries}</tr>'


def _dispute(line: Line) -> str:
    sentences = " ".join(problem.sentence for cell in line.cells for problem in cell.problems)
    return f' <a class="flag" href="#problems" title="{escape(sentences)}">in dispute</a>' if sentences else ""


def _row_head(look: str, name: str, content: str) -> str:
    swatch = f'<span class="key" style="--c: var(--look-{look})"></span>'
    return f'<th scope="row" data-sort="{escape(name)}">{swatch}{content}</th>'


def _entry(entry: Entry, names: dict[str, str], kind: str = "") -> str:
    if entry.number is None:
        return '<td class="unrun">–</td>'
    std = f'<span class="std">±{entry.spread_text()}</span>' if entry.spread is not None else ""
    text = f'<span class="value {entry.place or ""}">{escape(entry.plain())}</span>{std}'
    text += f'<span class="unseen">, {PLACES[entry.place]}</span>' if entry.place else ""
    runs = [names[str(run.path)] for run in entry.cell.runs.values()] if entry.cell else []
    if runs:
        text = f'<button type="button" class="open" data-runs="{" ".join(runs)}">{text}</button>'
    return f'<td class="{kind}" data-sort="{entry.number}">{text}</td>'


def _runs(report: Report, names: dict[str, str]) -> str:
    words, numbers = ("data set", "objective", "budget", "protocol"), ("seed", "Final, %", "Avg, %", "CBP", "time, s")
    heads = "".join(_head(title, "ascending") for title in ("strategy", *words))
    heads += "".join(_head(title) for title in numbers)
    rows = "\n".join(_run(stored, names[str(stored.path)], stored.path in report.disputed) for stored in report.results)
    return (
        '<p class="note runs-count"></p><div class="scroll tall" tabindex="0" role="region" aria-label="Every run">'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _run(stored: Stored, id: str, disputed: bool) -> str:
    result, row = stored.result, row_name(stored.config)
    facets = {
        "dataset": result.dataset,
        "method": result.method or "",
        "budget": result.budget,
        "protocol": result.protocol,
    }
    words = "".join(
        f'<td class="text" data-sort="{escape(value)}">{escape(spell(value)) or "own"}</td>'
        for value in facets.values()
    )
    values = (
        Entry(result.seed, text=str(result.seed)),
        Entry(result.final),
        Entry(result.avg),
        Entry(result.cbp_spent, text=f"{result.cbp_spent:,}"),
        _time(stored),
    )
    numbers = "".join(_entry(value, {}) for value in values)
    name = label(row)
    link = f'<button type="button" class="open" data-runs="{id}"><span class="value">{escape(name)}</span></button>'
    images = stored.config.measure_on
    link += f' <span class="flag">on {images} images</span>' if images != "test" else ""
    link += ' <span class="flag">disagrees with another file</span>' if disputed else ""
    return f"<tr {_facets(**facets)}>{_row_head(look_name(row), name, link)}{words}{numbers}</tr>"


def _time(stored: Stored) -> Entry:
    """The time of a run, and where others were on its device, how many in all."""
    alone = seconds_entry(stored.result.train_seconds)
    return alone if stored.at_once == 1 else replace(alone, text=f"{alone.plain()}, {stored.at_once} at once")


def _badge(protocol: str) -> str:
    return f'<span class="badge {escape(protocol)}">{escape(spell(protocol))} protocol</span>'


def _facets(**values: str) -> str:
    return " ".join(
        f'data-{name}="{escape(value)}" data-{name}-name="{escape(spell(value))}"' for name, value in values.items()
    )
