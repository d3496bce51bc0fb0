"""Writes what was measured into the pages: `python docs/tables`, or `make docs-files`.

Tables, figures, the answers to the paper's claims and every list of numbers are made; the rest of the pages is written.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import benchmarked
import lists
from lists import listed

from ocssl.results import TABLES, Store, read_report, sections_of
from ocssl.results.build import report_table, section_differences
from ocssl.results.charts import chart_data
from ocssl.results.claims import MAIN, claims
from ocssl.results.render import write_report
from ocssl.results.render.claim_plots import draw_claims
from ocssl.results.render.figures import draw_figure, render
from ocssl.results.render.markdown import claim_lines, to_markdown
from ocssl.results.report import Report
from ocssl.results.summary import summary
from ocssl.results.table import Table, TableColumn
from ocssl.sweeps.driver import read_started
from ocssl.sweeps.log import TrialLog
from ocssl.sweeps.report import trial_table

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "benchmarks" / "measured"
README_COLUMNS = {"Final ours": "Final", "Avg ours": "Avg", "k-NN Final": "k-NN Final", "k-NN Avg": "k-NN Avg",
                  "forgetting": "forgetting", "Final paper": "paper's Final", "Avg paper": "paper's Avg"}  # fmt: skip
"""Columns of a section's table that README.md has, with their titles there."""
SEARCH = (
    "objective", "shape", "memory", "low", "middle", "high", "high-memory", "average", "high-again", "sgd", "high-rate",
)  # fmt: skip
"""The sweeps of multiview-search.md, without what all of them begin with."""
SHOWN_TRIALS = 8
PARTS, WHOLE = "multiview-parts", "multiview-r-middle"
"""The table whose rows are compared with one of them."""
FLOORS = ("random encoder", "raw pixels", "colour histogram")
FIGURES = ("stream-high-simsiam-cifar100-clean", "budget-cifar-100-simsiam-clean", "budget-cifar-100-simclr-clean")
"""The report's figures that README.md and results.md show, besides that of the claims."""


MARKED = re.compile(
    r"(?P<begin><!-- (?P<name>[^:]+): made by docs/tables -->)\n.*?(?P<end><!-- end of (?P=name) -->)", re.DOTALL
)
"""A part of a page that is made."""


def fill(page: str, made: Mapping[str, str]) -> str:
    """The page with the content of every marked part as it was made."""
    names = re.findall("<!-- (.+): made by docs/tables", page)
    found = [part["name"] for part in MARKED.finditer(page)]
    for name in names:
        if name not in made or found.count(name) != names.count(name):
            raise SystemExit(f"the part '{name}' of a page has no end, or nothing makes it")
    return MARKED.sub(lambda part: f"{part['begin']}\n{made[part['name']]}\n{part['end']}", page)


def parts(report: Report) -> dict[str, str]:
    """The content of every marked part, by name."""
    (high,) = lists.sections(report, "high-simsiam", protocol="clean")
    adapted = MEASURED / "adapt"
    made_lists = {
        "summary": summary(report.sections),
        "grids": lists.grids(report.folder / "tuning"),
        "tuned": lists.tuned(report),
        "floors": lists.floors(report),
        "noise": lists.noise(report),
        "against the paper": lists.against_paper(report, *MAIN),
        "against the paper, high": lists.against_paper(report, "high-simsiam", protocol="authors"),
        "past the paper": lists.past_paper(report),
        "views": lists.views(report),
        "CLA-b": lists.cla_b(report),
        "switches": lists.switches(report),
    }
    lines = {
        "claims": claim_lines(claims(report.store)),
        "sharing": lists.sharing(report),
        "adapted": benchmarked.adapted(adapted),
        "choices": benchmarked.choices(adapted),
    }
    return {
        "numbers": "\n" + to_markdown(rounded(report_table(high))),
        "runs": "\n" + lists.runs(report),
        "tables": "\n" + tables(report),
        **{name: listed(made) for name, made in made_lists.items()},
        **{name: "\n" + "\n".join(made).rstrip() + "\n" for name, made in lines.items()},
        **many_views(report.store, report.folder / "tuning"),
    }


def tables(report: Report) -> str:
    """The tables of the report, without its legend."""
    with tempfile.TemporaryDirectory() as folder:
        write_report(report, Path(folder), ["markdown"])
        text = (Path(folder) / "report.md").read_text()
    return text[text.index("## CIFAR-100, ") : text.index("Accuracies are in percent")].rstrip() + "\n"


def many_views(store: Store, tuning: Path) -> dict[str, str]:
    """The parts of the pages on many views, with the best trials of the sweeps; what was not run says so.

    Args:
        tuning: folder of the sweeps.
    """
    made = {
        "search": "\n" + "\n".join(_best_trials(tuning / f"multiview-{name}") for name in SEARCH),
        "many views": listed(lists.many_views(store)),
        "times": listed(lists.times(store)),
        "steps": "\n" + "\n".join((*benchmarked.steps(MEASURED / "gpu-multiview.json"), "")),
    }
    for name, table in TABLES.items():
        if name.startswith("multiview"):
            filled = [section for section in sections_of(store, table) if section.content]
            shown = [report_table(section) for section in filled]
            shown += [section_differences(section, WHOLE) for section in filled if name == PARTS]
            texts = (
                f"**{table.title}**\n\n{to_markdown(table)}" + "".join(f"\n{n}\n" for n in table.notes)
                for table in shown
            )
            made[name] = "\n" + ("\n".join(texts) or f"*Not run yet:* `ocssl paper run {name} --seeds 0,1,2`\n")
    return made


def _best_trials(sweep: Path) -> str:
    """The best trials of a sweep, and how many there are."""
    if not (sweep / "trials.jsonl").exists():
        return f"`{sweep.name}`: *not run yet.*\n"
    log = TrialLog(sweep / "trials.jsonl")
    plan, over = read_started(sweep), sum(trial.state != "open" for trial in log.trials)
    table = trial_table(plan, log)
    best = to_markdown(replace(table, rows=table.rows[:SHOWN_TRIALS]))
    return f"`{sweep.name}`, the best of {over} trials ({len(plan.listed())} planned):\n\n{best}"


def rounded(table: Table) -> Table:
    """The columns of README.md: numbers with one digit and without spread, the highest Final first."""
    titles = [column.heading for column in table.columns]
    chosen = [titles.index(title) for title in README_COLUMNS]
    columns = tuple(TableColumn(title) for title in README_COLUMNS.values())
    rows = [
        replace(row, values=tuple(replace(row.values[i], digits=1, std=None) for i in chosen)) for row in table.rows
    ]
    floors = [row for row in rows if row.label in FLOORS]
    trained = [row for row in rows if row not in floors]
    trained.sort(key=lambda row: (not row.ranked, -(row.values[0].mean or 0)))
    return replace(table, columns=columns, rows=(*trained, *floors))


def figures(report: Report) -> dict[Path, str]:
    """The figures of the pages, as SVG."""
    data = chart_data(report)
    drawn = {figure["name"]: figure for figure in data["figures"]}
    folder = ROOT / "docs" / "figures"
    draws = {name: partial(draw_figure, data, drawn[name]) for name in FIGURES}
    draws["claims"] = partial(draw_claims, claims(report.store))
    return {folder / f"{name}.svg": render(draw, ["svg"])["svg"].decode() for name, draw in draws.items()}


def pages(report: Report) -> dict[Path, str]:
    """Every page with a part that is made, as it should be."""
    made = parts(report)
    texts = {page: page.read_text() for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}
    return {page: fill(text, made) for page, text in texts.items() if MARKED.search(text)}


if __name__ == "__main__":
    published = read_report(ROOT / "results")
    for place, content in {**pages(published), **figures(published)}.items():
        place.write_text(content)
