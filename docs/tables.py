"""Writes what `results/` hold into the documentation and README.md: `python docs/tables.py`, or `make docs-files`.

Tables, the answers to the paper's claims and the summary of each table are made; the rest of the pages is written.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import replace
from pathlib import Path

from ocssl.results import TABLES, Store, read_report, sections_of
from ocssl.results.build import report_table, section_differences
from ocssl.results.claims import claims, summary
from ocssl.results.render import write_report
from ocssl.results.render.markdown import to_markdown
from ocssl.sweeps.driver import read_started
from ocssl.sweeps.log import TrialLog
from ocssl.sweeps.report import trial_table

ROOT = Path(__file__).parents[1]
README_COLUMNS = ("Final ours", "Avg ours", "k-NN Final", "k-NN Avg", "forgetting", "Final paper", "Avg paper")
SEARCH = ("objective", "shape", "memory", "middle", "high", "shape-high")
"""The sweeps of multiview.md, without what all of them begin with."""
SHOWN_TRIALS = 8
PARTS, WHOLE = "multiview-parts", "multiview-r-np3"
"""The table whose rows are compared with one of them."""
TABLE = re.compile(r"(?:^\|.*\n)+", flags=re.M)


def rounded(cell: str) -> str:
    """A number without its spread, with one digit, as bold as it was."""
    number = re.search(r"\d+\.\d+", cell)
    if number is None:
        return cell
    text = f"{float(number[0]):.1f}"
    return f"**{text}**" if "**" in cell else text


def between(page: str, name: str, content: str) -> str:
    """A page with the content between the marks of a name replaced."""
    begin, end = f"<!-- {name}: made by docs/tables.py -->", f"<!-- end of {name} -->"
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"the page has no '{begin}' and '{end}'")
    return f"{before}{begin}\n{content}\n{end}{after}"


def multiview_page(page: str, store: Store, tuning: Path) -> str:
    """multiview.md with its tables and the best trials of its sweeps; what was not run says so.

    Args:
        tuning: folder of the sweeps.
    """
    trials = [_best_trials(tuning / f"multiview-{name}") for name in SEARCH]
    page = between(page, "search", "\n" + "\n".join(trials))
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
    table, over = trial_table(read_started(sweep), log), sum(trial.state != "open" for trial in log.trials)
    best = to_markdown(replace(table, rows=table.rows[:SHOWN_TRIALS]))
    return f"`{sweep.name}`, the best of {over} trials ({len(log.trials)} planned):\n\n{best}"


def main() -> None:
    """Replace the tables between the first heading of a data set and the legend, the claims, then README's table."""
    results = read_report(ROOT / "results")
    with tempfile.TemporaryDirectory() as folder:
        write_report(results, Path(folder), ["markdown"])
        report = (Path(folder) / "report.md").read_text()
    start, end = "## CIFAR-100, ", "Accuracies are in percent"
    made = report[report.index(start) : report.index(end)]
    tables = TABLE.findall(made)
    page = ROOT / "docs" / "reproduction.md"
    text = page.read_text()
    first, last = text.index(f"#{start}"), text.index(end)
    text = text[:first] + re.sub("^## ", "### ", made, flags=re.M) + text[last:]
    answers = "".join(f"| {claim.text} | {claim.answer} | {claim.evidence} |\n" for claim in claims(results.store))
    text = between(text, "claims", f"\n| claim | answer | our numbers |\n|---|---|---|\n{answers}")
    text = between(text, "summary", "\n" + "".join(f"- {line}\n" for line in summary(results.sections)))
    page.write_text(text)
    many = ROOT / "docs" / "multiview.md"
    many.write_text(multiview_page(many.read_text(), results.store, ROOT / "results" / "tuning"))

    titles, _, *lines = [line.strip("|").split("|") for line in tables[0].splitlines()]
    columns = [[title.strip() for title in titles].index(name) for name in README_COLUMNS]
    rows = {line[0].strip(): [rounded(line[column].strip()) for column in columns] for line in lines}
    readme = ROOT / "README.md"
    before, after = readme.read_text().split("## Numbers", 1)
    (printed,) = TABLE.findall(after)[:1]
    head, rule, *body = printed.splitlines()
    names = [line.strip("|").split("|")[0].strip() for line in body]
    new = "\n".join([head, rule, *(f"| {name} | {' | '.join(rows[name])} |" for name in names)]) + "\n"
    readme.write_text(f"{before}## Numbers{after.replace(printed, new)}")


if __name__ == "__main__":
    main()
