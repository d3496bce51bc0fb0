"""Writes what was measured into the pages: `python docs/tables`, or `make docs-files`.

Tables, figures, the answers to the paper's claims and every list of numbers are made; the rest of the pages is written.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import benchmarked
import lists
from lists import listed

from ocssl.results import TABLES, Store, read_report, sections_of
from ocssl.results.build import report_table, section_differences
from ocssl.results.charts import chart_data
from ocssl.results.claims import MAIN, claims
from ocssl.results.render import write_report
from ocssl.results.render.figures import render_figure
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
"""The sweeps of multiview.md, without what all of them begin with."""
SHOWN_TRIALS = 8
PARTS, WHOLE = "multiview-parts", "multiview-r-middle"
"""The table whose rows are compared with one of them."""
FLOORS = ("random encoder", "raw pixels", "colour histogram")
FIGURES = ("stream-high-simsiam-cifar100-clean", "budget-cifar-100-simsiam-clean", "budget-cifar-100-simclr-clean")
"""The report's figures that README.md and results.md show."""


def between(page: str, name: str, content: str) -> str:
    """A page with the content between the marks of a name replaced."""
    begin, end = f"<!-- {name}: made by docs/tables -->", f"<!-- end of {name} -->"
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"the page has no '{begin}' and '{end}'")
    return f"{before}{begin}\n{content}\n{end}{after}"


def results(text: str, report: Report) -> str:
    """The page of results with the claims and every list as the results have them."""
    made_lists = {
        "summary": summary(report.sections),
        "grids": lists.grids(report.folder / "tuning"),
        "tuned": lists.tuned(report),
        "floors": lists.floors(report),
        "noise": lists.noise(report),
        "against the paper": lists.against_paper(report, *MAIN),
        "views": lists.views(report),
        "CLA-b": lists.cla_b(report),
        "switches": lists.switches(report),
    }
    text = between(text, "claims", "\n" + "\n".join((*claim_lines(claims(report.store)), "")))
    for name, lines in made_lists.items():
        text = between(text, name, listed(lines))
    return text


def result_tables(text: str, report: Report, made: str) -> str:
    """The page with how much was run, and with every table.

    Args:
        made: the tables of the report.
    """
    first, last = text.index("## CIFAR-100, "), text.index("Accuracies are in percent")
    return between(text[:first] + made + text[last:], "runs", "\n" + lists.runs(report))


def multiview(page: str, store: Store, tuning: Path) -> str:
    """The page with its tables and the best trials of its sweeps; what was not run says so.

    Args:
        tuning: folder of the sweeps.
    """
    trials = [_best_trials(tuning / f"multiview-{name}") for name in SEARCH]
    page = between(page, "search", "\n" + "\n".join(trials))
    page = between(page, "many views", listed(lists.many_views(store)))
    page = between(page, "times", listed(lists.times(store)))
    page = between(page, "steps", "\n" + "\n".join((*benchmarked.steps(MEASURED / "gpu-multiview.json"), "")))
    for name, table in TABLES.items():
        if name.startswith("multiview"):
            filled = [section for section in sections_of(store, table) if section.content]
            made = [report_table(section) for section in filled]
            made += [section_differences(section, WHOLE) for section in filled if name == PARTS]
            shown = (
                f"**{table.title}**\n\n{to_markdown(table)}" + "".join(f"\n{n}\n" for n in table.notes)
                for table in made
            )
            empty = f"*Not run yet:* `ocssl paper run {name} --seeds 0,1,2`\n"
            page = between(page, name, "\n" + ("\n".join(shown) or empty))
    return page


def _best_trials(sweep: Path) -> str:
    """The best trials of a sweep, and how many there are."""
    if not (sweep / "trials.jsonl").exists():
        return f"`{sweep.name}`: *not run yet.*\n"
    log = TrialLog(sweep / "trials.jsonl")
    plan, over = read_started(sweep), sum(trial.state != "open" for trial in log.trials)
    table = trial_table(plan, log)
    best = to_markdown(replace(table, rows=table.rows[:SHOWN_TRIALS]))
    return f"`{sweep.name}`, the best of {over} trials ({len(plan.listed())} planned):\n\n{best}"


def readme(text: str, report: Report) -> str:
    """The page with its table and lists as the results have them."""
    (section,) = lists.sections(report, "high-simsiam", protocol="clean")
    text = between(text, "numbers", "\n" + to_markdown(rounded(report_table(section))))
    text = between(text, "against the paper", listed(lists.against_paper(report, "high-simsiam", protocol="authors")))
    text = between(text, "past the paper", listed(lists.past_paper(report)))
    return between(text, "tuned", listed(lists.tuned(report)))


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
    return {folder / f"{name}.svg": render_figure(data, drawn[name], ["svg"])["svg"].decode() for name in FIGURES}


def pages(report: Report) -> dict[Path, str]:
    """The pages as they should be."""
    with tempfile.TemporaryDirectory() as folder:
        write_report(report, Path(folder), ["markdown"])
        written = (Path(folder) / "report.md").read_text()
    made = written[written.index("## CIFAR-100, ") : written.index("Accuracies are in percent")]
    found, every = ROOT / "docs" / "results.md", ROOT / "docs" / "result-tables.md"
    many, front = ROOT / "docs" / "multiview.md", ROOT / "README.md"
    adapt, adapted = ROOT / "docs" / "pretrained.md", MEASURED / "adapt"
    speed = ROOT / "docs" / "performance.md"
    return {
        found: results(found.read_text(), report),
        every: result_tables(every.read_text(), report, made),
        many: multiview(many.read_text(), report.store, report.folder / "tuning"),
        adapt: between(
            between(adapt.read_text(), "adapted", "\n" + "\n".join(benchmarked.adapted(adapted))),
            *("choices", "\n" + "\n".join((*benchmarked.choices(adapted), ""))),
        ),
        speed: between(speed.read_text(), "sharing", "\n" + "\n".join((*lists.sharing(report), ""))),
        front: readme(front.read_text(), report),
    }


if __name__ == "__main__":
    published = read_report(ROOT / "results")
    for place, content in {**pages(published), **figures(published)}.items():
        place.write_text(content)
