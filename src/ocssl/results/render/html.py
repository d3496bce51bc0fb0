"""A report as one HTML page that needs no other file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from html import escape
from importlib import resources
from itertools import groupby
from pathlib import Path
from string import Template

from ocssl.common.console import number_of
from ocssl.results.build import LEGEND, report_table, runs_table
from ocssl.results.charts import chart_data, to_script
from ocssl.results.claims import BASIS, claims
from ocssl.results.names import STYLES, heading, without_folders
from ocssl.results.read import Problem
from ocssl.results.render.claim_plots import MARKS, claim_html
from ocssl.results.report import Report
from ocssl.results.sections import Section
from ocssl.results.summary import TERMS, summary
from ocssl.results.table import Table, TableColumn, TableRow, Value

PAGE_STYLES = ("style.css", "charts.css")
SCRIPTS = ("dom", "state", "details", "tip", "plot", "bars", "stream", "matrix", "scatter", "filters", "tables", "main")
N_P = "n<sub>p</sub>"
PART = re.compile(r'<section id="(\w+)"[^>]*>\s*<h2>(.*?)</h2>')
"""A part of the page: its id and its title."""
Names = Mapping[Path, str]
"""The names of runs in the page's data, by the paths of their files."""


def html_report(report: Report) -> str:
    """The whole page. Tables are in its markup; its script draws the figures from JSON inside it."""
    page, names, found = _file("page.html"), report.run_names, _found(report)
    sections = "\n".join(_section(section, names) for section in report.sections)
    colours = "".join(f"--style-{name}: light-dark({s.colour}, {s.dark or s.colour});" for name, s in STYLES.items())
    scripts = "\n".join(_file(f"script/{name}.js") for name in SCRIPTS)
    return Template(page).substitute(
        title=escape(report.title),
        lede=_lede(report),
        style="\n".join([*map(_file, PAGE_STYLES), f":root {{{colours}}}"]),
        legend=escape(" ".join(LEGEND)),
        problems=_problems(report) if report.problems else "",
        found=found,
        contents=_contents(report, PART.findall(found + page)),
        sections=sections or '<p class="note">No complete result yet.</p>',
        runs=_scrolling(to_html(runs_table(report), names), "Every run", "scroll tall"),
        data=to_script(chart_data(report)),
        script=f"(() => {{\n'use strict';\n{scripts}\n}})();",
    )


def to_html(table: Table, names: Names | None = None) -> str:
    """The table alone, without its title and notes; its numbers open the runs that have names."""
    groups = "".join(
        f'<th colspan="{len(list(together))}" scope="colgroup">{escape(group)}</th>'
        for group, together in groupby(table.columns, key=lambda column: column.group)
    )
    above = f'<tr class="groups"><th></th>{groups}</tr>' if any(column.group for column in table.columns) else ""
    heads = "".join(map(_head, (TableColumn(table.label or "strategy", align="left"), *table.columns)))
    rows = "\n".join(_row(row, table.columns, names or {}) for row in table.rows)
    return f"<table><thead>{above}<tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _file(name: str) -> str:
    return (resources.files("ocssl.results.render") / "page" / name).read_text(encoding="utf-8")


def _lede(report: Report) -> str:
    protocols = sorted({file.result.protocol for file in report.files}, reverse=True)
    words = [number_of(len(report.files), "run")]
    if protocols:
        words.append(f"{' and '.join(map(heading, protocols))} protocol{'s' if len(protocols) > 1 else ''}")
    if report.latest:
        words.append(f"newest result of {report.latest}")
    return " · ".join(f"<span>{escape(word)}</span>" for word in words)


def _found(report: Report) -> str:
    """The opening: what the tables say, and the paper's claims with their answers."""
    said = "".join(f"<li>{escape(sentence)}</li>" for sentence in summary(report.sections))
    parts = [f'<p class="note">{escape(TERMS)}</p><ul>{said}</ul>'] if said else []
    answered = claims(report.store)
    if any(claim.comparisons for claim in answered):
        basis = f"{BASIS} {MARKS}"
        parts.append(f'<h3>The paper’s claims</h3><p class="note">{escape(basis)}</p>')
        parts.append(f'<dl class="claims">{"".join(map(claim_html, answered))}</dl>')
    if not parts:
        return ""
    return f'<section id="found"><h2>What was found</h2>{"".join(parts)}</section>'


def _contents(report: Report, parts: Iterable[tuple[str, str]]) -> str:
    """Links to the parts of the page; those of tables and figures vanish with what they lead to."""
    tables = "".join(
        f'<li><a href="#{escape(section.id)}">{escape(section.title)}, {escape(heading(section.protocol))}</a></li>'
        for section in report.sections
    )
    links = "".join(
        f'<li><a href="#{name}">{title}</a>{f"<ul>{tables}</ul>" if name == "tables" and tables else ""}</li>'
        for name, title in parts
    )
    listed = f"<details open><summary>Contents</summary><ul>{links}</ul></details>"
    return f'<nav class="contents" aria-label="Contents">{listed}</nav>'


def _problems(report: Report) -> str:
    problems = report.problems
    return (
        '<section class="problems" id="problems" aria-labelledby="problems-title">'
        f'<h2 id="problems-title">{number_of(len(problems), "problem")} to look at</h2>'
        "<p>Files with a problem and results in conflict did not enter a number on this page.</p>"
        f"<ul>{''.join(f'<li>{_problem(problem, report)}</li>' for problem in problems)}</ul></section>"
    )


def _problem(problem: Problem, report: Report) -> str:
    sentence = report.sentence(problem)
    unnamed = [escape(report.place(path)) for path in problem.paths if str(path) not in problem.sentence]
    if not unnamed:
        return escape(sentence)
    summary = f"<summary>{number_of(len(unnamed), 'file')}</summary>{'<br>'.join(unnamed)}"
    return f"{escape(sentence)}<details{' open' if len(unnamed) <= 3 else ''}>{summary}</details>"


def _section(section: Section, names: Names) -> str:
    table, protocol = report_table(section), escape(heading(section.protocol))
    facets = {"dataset": section.dataset, "method": section.method, "budget": section.table.budget}
    title = f"<h3>{escape(table.title)}</h3>"
    title += f'<span class="badge {escape(section.protocol)}">{protocol} protocol</span>'
    if section.block:
        block = "b<sub>s</sub> = {}, b = {}, {} = {}".format(*section.block[:2], N_P, section.block[2])
        title += f'<span class="block">{block}</span>'
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in table.notes)
    return (
        f'<div class="sheet" id="{escape(section.id)}" {_facets(facets | {"protocol": section.protocol})}>'
        f'<div class="heading">{title}</div>'
        f"{_scrolling(to_html(table, names), f'{escape(table.title)}, {protocol} protocol')}{notes}</div>"
    )


def _scrolling(content: str, name: str, classes: str = "scroll") -> str:
    return f'<div class="{classes}" tabindex="0" role="region" aria-label="{name}">{content}</div>'


def _head(column: TableColumn) -> str:
    """A heading that sorts: words from A on, numbers from the largest on."""
    hint = f' title="{escape(column.note)}"' if column.note else ""
    side, first = (' class="text"', "ascending") if column.align == "left" else ("", "descending")
    text = escape(column.title).replace("n_p", N_P)
    button = f'<button type="button" class="sort"{hint}>{text}</button>'
    return f'<th scope="col"{side} aria-sort="none" data-first="{first}">{button}</th>'


def _row(row: TableRow, columns: tuple[TableColumn, ...], names: Names) -> str:
    label = escape(row.label).replace("n_p", N_P)
    label = _opens(f'<span class="value">{label}</span>', row.files, names) if row.files else label
    if row.problems:
        sentences = escape(without_folders(" ".join(row.problems)))
        label += f' <a class="flag" href="#problems" title="{sentences}">in conflict</a>'
    label += "".join(f' <span class="flag">{escape(flag)}</span>' for flag in row.flags)
    key = f'<span class="key" style="--c: var(--style-{row.style})"></span>' if row.style else ""
    cells = "".join(_cell(value, column, names) for value, column in zip(row.values, columns, strict=True))
    empty = not row.files and not any(value.files for value in row.values)
    head = f'<th scope="row" data-sort="{escape(row.label)}">{key}{label}</th>'
    classes = f"{'' if row.ranked else 'bound'} {'unrun' if empty else ''}".strip()
    return f'<tr class="{classes}" {_facets(row.facets)}>{head}{cells}</tr>'


def _cell(value: Value, column: TableColumn, names: Names) -> str:
    text = escape(value.plain())
    if column.align == "left":
        return f'<td class="text" data-sort="{text}">{text}</td>'
    if value.empty:
        return f'<td class="unrun">{text}</td>'
    text = f'<span class="value{" best" if value.best else ""}">{text}</span>'
    text += f'<span class="std">{value.spread("±")}</span>' if value.std is not None else ""
    text += '<span class="unseen">, best or level with it</span>' if value.best else ""
    kind = "paper" if column.title == "paper" else ""
    return f'<td class="{kind}" data-sort="{value.mean}">{_opens(text, value.files, names)}</td>'


def _opens(text: str, files: tuple[Path, ...], names: Names) -> str:
    runs = " ".join(names[path] for path in files if path in names)
    return f'<button type="button" class="open" data-runs="{runs}">{text}</button>' if runs else text


def _facets(values: Mapping[str, str]) -> str:
    return " ".join(
        f'data-{name}="{escape(value)}" data-{name}-name="{escape(heading(value))}"' for name, value in values.items()
    )
