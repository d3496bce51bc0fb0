"""Tables as Markdown and LaTeX."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ocssl.experiments.result import read_result
from ocssl.report import Report, read_report
from ocssl.report.latex import to_latex
from ocssl.report.markdown import to_markdown

CLA_E = "cifar100-simsiam-cla-e-fifo-high-b138-clean-seed{}.json"


def test_markdown_shows_ours_the_papers_and_the_difference(few: Path) -> None:
    finals = [read_result(few / CLA_E.format(seed)).final or 0 for seed in (0, 1)]
    mean = sum(finals) / 2
    spread = abs(finals[0] - finals[1]) / 2**0.5
    text = to_markdown(read_report(few))
    (row,) = [line for line in text.splitlines() if line.startswith("| CLA-E |")]
    assert row.startswith(f"| CLA-E | **{mean:.2f}** ± {spread:.2f} | 43.1 ± 0.3 | {mean - 43.1:+.1f} |")
    assert "Protocol **clean**; b_s = 10, b = 138, n_p = 3." in text


def test_markdown_rows_have_as_many_entries_as_their_heading(report: Report) -> None:
    widths = [line.count("|") for line in to_markdown(report).splitlines() if line.startswith("|")]
    heads = [line.count("|") for line in to_markdown(report).splitlines() if line.startswith("| ---")]
    assert len(heads) == len(report.sheets)
    assert set(widths) == set(heads)


def test_problems_stand_before_all_tables(few: Path) -> None:
    (few / CLA_E.format(0)).write_text("{")
    text = to_markdown(read_report(few))
    assert text.index("## Problems") < text.index("seed0.json") < text.index("## CIFAR-100")


def test_latex_tables_have_rows_of_equal_width_and_one_best_per_column(report: Report) -> None:
    text = to_latex(report)
    tables = re.findall(r"\\begin\{tabular\}\{l(r+)\}(.*?)\\end\{tabular\}", text, flags=re.S)
    assert len(tables) == len(report.sheets)
    for columns, body in tables:
        rows = [line for line in body.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
        assert {row.count(" & ") for row in rows} == {len(columns)}
        assert body.count(r"\mathbf") == 2  # Final and Avg
        assert all(rule in body for rule in (r"\toprule", r"\midrule", r"\bottomrule"))


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_latex_compiles(report: Report, tmp_path: Path) -> None:
    (tmp_path / "tables.tex").write_text(to_latex(report))
    document = r"\documentclass{article}\usepackage{booktabs}\begin{document}\input{tables}\end{document}"
    (tmp_path / "main.tex").write_text(document)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "main"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
