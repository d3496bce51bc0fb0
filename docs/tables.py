"""Writes what `results/` hold into reproduction.md and README.md: `python docs/tables.py`, or `make docs-files`.

Tables, the answers to the paper's claims and the summary of each table are made; the rest of the pages is written.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from ocssl.results import read_report
from ocssl.results.claims import claims, summary
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


def between(page: str, name: str, content: str) -> str:
    """A page with the content between the marks of a name replaced."""
    begin, end = f"<!-- {name}: made by docs/tables.py -->", f"<!-- end of {name} -->"
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"the page has no '{begin}' and '{end}'")
    return f"{before}{begin}\n{content}\n{end}{after}"


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
