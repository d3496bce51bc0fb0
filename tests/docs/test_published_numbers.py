"""The tables in the documentation are those of the published results, to the last digit."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from ocssl.cli import app

ROOT = Path(__file__).parents[2]


def tables(page: str) -> list[str]:
    """The lines of a page that belong to a table of ours beside the paper's."""
    return [line for line in page.splitlines() if line.startswith("|") and line.count("|") > 10]


def test_the_tables_are_those_that_the_report_makes_of_the_results(tmp_path: Path) -> None:
    made = CliRunner().invoke(app, ["report", str(ROOT / "results"), "-o", str(tmp_path), "--format", "markdown"])
    assert made.exit_code == 0, made.output
    reported = tables((tmp_path / "report.md").read_text())
    assert len(reported) > 20
    assert tables((ROOT / "docs" / "reproduction.md").read_text()) == reported
