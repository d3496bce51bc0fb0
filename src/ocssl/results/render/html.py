"""A report as one HTML page that needs no other file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from importlib import resources
from itertools import groupby
from pathlib import Path
from string import Template

from ocssl.results.build import report_table, runs_table
from ocssl.results.charts import chart_data, to_script
from ocssl.results.names import heading
from ocssl.results.read import Problem
from ocssl.results.sections import Report, Section
from ocssl.results.styles import STYLES
from ocssl.results.table import Table, TableColumn, TableRow, Value

PAGE_STYLES = ("style.css", "charts.css")
SCRIPTS = ("dom", "state", "details", "tip", "plot", "bars", "stream", "scatter", "filters", "tables", "main")
RANKS = {1: ("best", "best"), 2: ("second", "second best")}
"""The class of a ranked number, and the words that screen readers say of it."""

FEW_PATHS = 3
N_P = "n<sub>p</sub>"
Names = Mapping[Path, str]
"""The names of runs in the page's data, by the paths of their files."""


def html_report(report: Report) -> str:
    """The whole page. Tables are in its markup; its script draws the figures from JSON inside it."""
    names = {file.path: f"r{number}" for number, file in enumerate(report.files)}
    sections = "\n".join(_section(section, names) for section in report.sections)
    scripts = "\n".join(_file(f"script/{name}.js") for name in SCRIPTS)
    return Template(_file("page.html")).substitute(
        title=escape(report.title),
        lede=_lede(report),
        style="\n".join([*map(_file, PAGE_STYLES), *_colours()]),
        problems=_problems(report.problems) if report.problems else "",
        sections=sections or '<p class="note">No complete result yet.</p>',
        runs=f'<p class="note runs-count"></p>{_scrolling(to_html(runs_table(report), names), "Every run", "scroll tall")}',
        data=to_script(chart_data(report)),
        script=f"(() => {{\n'use strict';\n{scripts}\n}})();",
    )


def to_html(table: Table, names: Names | None = None) -> str:
    """The table alone, without its title and notes.

    Args:
        names: of runs, which their numbers open on the page; without it numbers open nothing.
    """
    heads = "".join(_head(column.title, column.align, column.note) for column in table.columns)
    groups = _groups(table.columns) if any(column.group for column in table.columns) else ""
    rows = "\n".join(_row(row, table.columns, names or {}) for row in table.rows)
    label = _head(table.label or "strategy", "left")
    return f"<table><thead>{groups}<tr>{label}{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _file(name: str) -> str:
    return (resources.files("ocssl.results.render") / "page" / name).read_text(encoding="utf-8")


def _colours() -> Iterator[str]:
    for name, style in STYLES.items():
        yield f":root {{ --style-{name}: light-dark({style.colour}, {style.on_dark}); }}"


def _lede(report: Report) -> str:
    runs = len(report.files)
    protocols = sorted({file.result.protocol for file in report.files}, reverse=True)
    words = [f"{runs} run{'' if runs == 1 else 's'}"]
    if protocols:
        words.append(f"{' and '.join(map(heading, protocols))} protocol{'s' if len(protocols) > 1 else ''}")
    words += [f"newest result of {report.latest}"] if report.latest else []
    return " · ".join(f"<span>{escape(word)}</span>" for word in words)


def _problems(problems: tuple[Problem, ...]) -> str:
    return (
        '<section class="problems" id="problems" aria-labelledby="problems-title">'
        f'<h2 id="problems-title">{len(problems)} problem{"s" if len(problems) > 1 else ""} to look at</h2>'
        "<p>Files with a problem and results in conflict did not enter a number on this page.</p>"
        f"<ul>{''.join(f'<li>{_problem(problem)}</li>' for problem in problems)}</ul></section>"
    )


def _problem(problem: Problem) -> str:
    unnamed = [str(path) for path in problem.paths if str(path) not in problem.sentence]
    if not unnamed:
        return escape(problem.sentence)
    files = "<br>".join(escape(path) for path in unnamed)
    return (
        f"{escape(problem.sentence)}<details{' open' if len(unnamed) <= FEW_PATHS else ''}>"
        f"<summary>{len(unnamed)} file{'s' if len(unnamed) > 1 else ''}</summary>{files}</details>"
    )


def _section(section: Section, names: Names) -> str:
    table, protocol = report_table(section), heading(section.protocol)
    facets = {name: getattr(section, name) for name in ("dataset", "method", "budget", "protocol")}
    block = ""
    if section.block:
        b_s, b, n_p = section.block
        block = f'<span class="block">b<sub>s</sub> = {b_s}, b = {b}, {N_P} = {n_p}</span>'
    badge = f'<span class="badge {escape(section.protocol)}">{escape(protocol)} protocol</span>'
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in table.notes)
    return (
        f'<div class="sheet" id="{escape(section.id)}" {_facets(facets)}>'
        f'<div class="heading"><h3>{escape(table.title)}</h3>{badge}{block}</div>'
        f"{_scrolling(to_html(table, names), f'{table.title}, {protocol} protocol')}{notes}</div>"
    )


def _scrolling(content: str, name: str, classes: str = "scroll") -> str:
    return f'<div class="{classes}" tabindex="0" role="region" aria-label="{escape(name)}">{content}</div>'


def _groups(columns: tuple[TableColumn, ...]) -> str:
    cells = "".join(
        f'<th colspan="{len(list(together))}" scope="colgroup">{escape(group)}</th>'
        for group, together in groupby(columns, key=lambda column: column.group)
    )
    return f'<tr class="groups"><th></th>{cells}</tr>'


def _head(title: str, align: str, note: str = "") -> str:
    """A heading that sorts: words from A on, numbers from the largest on."""
    text = escape(title).replace("n_p", N_P)
    hint = f' title="{escape(note)}"' if note else ""
    side, first = (' class="text"', "ascending") if align == "left" else ("", "descending")
    button = f'<button type="button" class="sort"{hint}>{text}</button>'
    return f'<th scope="col"{side} aria-sort="none" data-first="{first}">{button}</th>'


def _row(row: TableRow, columns: tuple[TableColumn, ...], names: Names) -> str:
    label = escape(row.label).replace("n_p", N_P)
    if row.files:
        label = _opens(f'<span class="value">{label}</span>', row.files, names)
    if row.problems:
        sentences = escape(" ".join(row.problems))
        label += f' <a class="flag" href="#problems" title="{sentences}">in conflict</a>'
    label += "".join(f' <span class="flag">{escape(flag)}</span>' for flag in row.flags)
    key = f'<span class="key" style="--c: var(--style-{row.style})"></span>' if row.style else ""
    cells = "".join(_cell(value, column, names) for value, column in zip(row.values, columns, strict=True))
    run = row.files or any(value.files for value in row.values)
    classes = " ".join(filter(None, ("" if row.ranked else "bound", "" if run else "unrun")))
    facets = f" {_facets(row.facets)}" if row.facets else ""
    head = f'<th scope="row" data-sort="{escape(row.label)}">{key}{label}</th>'
    return f'<tr class="{classes}"{facets}>{head}{cells}</tr>'


def _cell(value: Value, column: TableColumn, names: Names) -> str:
    if column.align == "left":
        return f'<td class="text" data-sort="{escape(value.plain())}">{escape(value.plain())}</td>'
    if value.empty:
        return f'<td class="unrun">{value.plain()}</td>'
    place, words = RANKS.get(value.rank or 0, ("", ""))
    std = f'<span class="std">±{value.spread()}</span>' if value.std is not None else ""
    text = f'<span class="value {place}">{escape(value.plain())}</span>{std}'
    text += f'<span class="unseen">, {words}</span>' if words else ""
    text = _opens(text, value.files, names) if value.files else text
    return f'<td class="{"paper" if column.title == "paper" else ""}" data-sort="{value.mean}">{text}</td>'


def _opens(text: str, files: tuple[Path, ...], names: Names) -> str:
    runs = " ".join(names[path] for path in files if path in names)
    return f'<button type="button" class="open" data-runs="{runs}">{text}</button>' if runs else text


def _facets(values: Mapping[str, str]) -> str:
    return " ".join(
        f'data-{name}="{escape(value)}" data-{name}-name="{escape(heading(value))}"' for name, value in values.items()
    )
