"""Writes the tables of `results/` into reproduction.md and README.md: `python docs/tables.py`, or `make docs-files`."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from ocssl.results import read_report
from ocssl.results.render import write_report

ROOT = Path(__file__).parents[1]
README_COLUMNS = ("Final ours", "Avg ours", "k-NN Final", "k-NN Avg", "forgetting", "Final paper", "Avg paper")
TABLE = re.compile(r"(?:^\|.*\n)+", flags=re.M)


def rounded(cell: str) -> str:
    """A number without its spread, with one digit, as bold as it was."""
    number = re.search(r"\d+\.\d+", cell)
    if number is None:
        return cell
    text = f"{float(number[0]):.1f}"
    return f"**{text}**" if "**" in cell else text


def main() -> None:
    """Replace the tables between the first heading of a data set and the legend, then README's."""
    with tempfile.TemporaryDirectory() as folder:
        write_report(read_report(ROOT / "results"), Path(folder), ["markdown"])
        report = (Path(folder) / "report.md").read_text()
    start, end = "# CIFAR-100, ", "Accuracies are in percent"
    tables = TABLE.findall(report[report.index(start) : report.index(end)])
    page = ROOT / "docs" / "reproduction.md"
    text = page.read_text()
    first, last = text.index(start), text.index(end)
    old = TABLE.findall(text[first:last])
    if len(old) != len(tables):
        raise SystemExit(f"{page} has {len(old)} tables, the report {len(tables)}: add or remove headings by hand")
    filled = iter(tables)
    page.write_text(text[:first] + TABLE.sub(lambda _: next(filled), text[first:last]) + text[last:])

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
