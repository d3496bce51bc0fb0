"""Tables as Markdown and LaTeX."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from ocssl.errors import ConfigError
from ocssl.results import Curve, Report, Table, TableColumn, TableRow, Value, read_report, read_result
from ocssl.results.build import report_table, section_differences, terminal_table
from ocssl.results.claims import claims
from ocssl.results.differences import paired_difference
from ocssl.results.render import to_csv, to_latex, to_markdown, to_rich
from ocssl.results.render.html import html_report, to_html
from ocssl.results.render.latex import escape, latex_report
from ocssl.results.render.markdown import markdown_report
from ocssl.results.summary import summary

CLA_E = "cifar100-simsiam-cla-e-fifo-high-clean-seed{}.json"
GREEK = "ΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩαβγδεζηθικλμνξοπρςστυφχψω"


def test_markdown_shows_ours_the_papers_and_the_difference(few: Path) -> None:
    finals = [read_result(few / CLA_E.format(seed)).final or 0 for seed in (0, 1)]
    mean = sum(finals) / 2
    spread = abs(finals[0] - finals[1]) / 2**0.5
    text = markdown_report(read_report(few))
    (row,) = [line for line in text.splitlines() if line.startswith("| CLA-E |")]
    assert row.startswith(f"| CLA-E | {mean:.2f} ± {spread:.2f} | 43.1 ± 0.3 | {mean - 43.1:+.1f} |")
    assert "\n\nb_s = 10, b = 138, n_p = 3.\n" in text


def test_markdown_opens_with_what_was_found(report: Report) -> None:
    """The same sentences as on the page."""
    headings = re.findall("^## (.*)$", markdown_report(report), flags=re.M)
    assert headings[:2] == ["What was found", "The paper’s claims"]
    opening = markdown_report(report).partition("\n## CIFAR-100")[0]
    for claim in claims(report.store):
        said = [f"- {claim.text} **{claim.said.capitalize()}.**", *(f"    - {one}" for one in claim.evidence)]
        assert "\n".join(said).replace("_", "\\_") in opening
    assert all(sentence in opening for sentence in summary(report.sections))


def test_markdown_rows_have_as_many_entries_as_their_heading(report: Report) -> None:
    widths = [line.count("|") for line in markdown_report(report).splitlines() if line.startswith("|")]
    heads = [line.count("|") for line in markdown_report(report).splitlines() if line.startswith("| ---")]
    assert len(heads) == len(report.sections)
    assert set(widths) == set(heads)


def rows_of(text: str) -> dict[str, dict[str, str]]:
    """A page's first Markdown table: entries by row and heading."""
    table = next(re.finditer(r"(?:^\|.*\n)+", text, flags=re.M))[0].splitlines()
    heads, _, *rows = [[entry.strip() for entry in line.strip("|").split("|")] for line in table]
    return {row[0]: dict(zip(heads, row, strict=True)) for row in rows}


def test_markdown_shows_tuned_runs_in_columns_with_their_own_seeds(tuned: Path) -> None:
    text = markdown_report(read_report(tuned))
    rows = rows_of(text)
    both, alone, none = rows["CLA-E"], rows["ER w/ FIFO"], rows["MinRed"]
    assert (both["seeds"], both["tuned seeds"]) == ("0 1", "2")
    assert both["Final tuned"] == "55.50"
    assert both["Final ours"] != both["Final tuned"]
    assert (alone["seeds"], alone["CBP"], alone["time, s"]) == ("–", "–", "–")
    assert (alone["Final ours"], alone["Final tuned"]) == ("–", "54.50 ± 0.71")
    assert (alone["tuned seeds"], alone["tuned CBP"]) == ("3 4", both["CBP"])
    assert alone["tuned time, s"] != "–"
    assert {none[head] for head in none if "tuned" in head} == {"–"}
    assert "\n\nTuned: ours with lr and ω that we tuned. ER w/ FIFO: lr 0.2; CLA-E: lr 0.3, ω 0.5.\n" in text


def test_without_tuned_runs_there_is_no_word_of_them(few: Path) -> None:
    report = read_report(few)
    assert "uned" not in markdown_report(report).replace("finetuning", "") + latex_report(report).replace(
        "finetuning", ""
    )


def test_latex_heads_tuned_columns_and_names_what_was_tuned(tuned: Path) -> None:
    text = latex_report(read_report(tuned))
    assert " & ours & paper & diff. & tuned & ours & paper & diff. & tuned \\\\" in text
    assert r"ER w/ FIFO: lr 0.2; CLA-E: lr 0.3, $\omega$ 0.5." in text


def test_problems_stand_before_all_tables(few: Path) -> None:
    (few / CLA_E.format(0)).write_text("{")
    text = markdown_report(read_report(few))
    assert text.index("## Problems") < text.index("seed0.json") < text.index("## CIFAR-100")


def test_latex_tables_have_rows_of_equal_width_and_mark_the_best(report: Report) -> None:
    text = latex_report(report)
    tables = re.findall(r"\\begin\{tabular\}\{l(r+)\}(.*?)\\end\{tabular\}", text, flags=re.S)
    assert len(tables) == len(report.sections)
    for section, (columns, body) in zip(report.sections, tables, strict=True):
        rows = [line for line in body.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
        assert {row.count(" & ") for row in rows} == {len(columns)}
        assert body.count(r"\mathbf") == len(section.best("final")) + len(section.best("avg")) > 0
        assert all(rule in body for rule in (r"\toprule", r"\midrule", r"\bottomrule"))


def test_latex_rows_do_not_begin_with_a_bracket_which_a_line_break_takes_for_its_own() -> None:
    rows = tuple(TableRow(label, (Value(1.0),)) for label in ("first", "[2, 4] crops"))
    text = to_latex(Table("", (TableColumn("Final"),), rows))
    assert "\n{[}2, 4] crops & $1.00$" in text


def test_latex_spells_every_greek_letter() -> None:
    assert escape(GREEK).isascii()


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
@pytest.mark.parametrize("kind", ["main tables", "tuned and Greek"])
def test_latex_compiles(kind: str, report: Report, tuned: Path, tmp_path: Path) -> None:
    base = read_result(tuned / CLA_E.format(0))
    other = base.model_copy(update={"key": GREEK, "config": base.config | {"strategy": GREEK}})
    (tuned / "greek.json").write_text(other.to_json())
    text = latex_report(report if kind == "main tables" else read_report(tuned))
    assert (escape(GREEK) in text) == (kind != "main tables")
    (tmp_path / "tables.tex").write_text(text)
    document = r"\documentclass{article}\usepackage{booktabs}\begin{document}\input{tables}\end{document}"
    (tmp_path / "main.tex").write_text(document)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "main"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout


TABLE = Table(
    "Scores",
    (TableColumn("Final", "ours, %"), TableColumn("state", align="left")),
    (
        TableRow("a|b_c", (Value(50.126, 0.254, best=True), Value(text="finished")), bold=True),
        TableRow("<plain>", (Value(), Value(text="failed: [red] & co")), ranked=False, problems=("no number",)),
    ),
    label="trial",
)


def test_any_table_has_the_same_numbers_in_every_format() -> None:
    assert to_markdown(TABLE).splitlines() == [
        "| trial | ours Final | state |",
        "| --- | --: | --- |",
        r"| a\|b\_c | **50.13** ± 0.25 | finished |",
        r"| *&lt;plain>* | – | failed: \[red\] &amp; co |",
    ]
    assert r"a\textbar{}b\_c & $\mathbf{50.13} \pm {\scriptstyle 0.25}$ & finished \\" in to_latex(TABLE)
    assert r"\textit{\textless{}plain\textgreater{}} & -- & failed: {[}red] \& co \\" in to_latex(TABLE)
    assert to_csv(TABLE).splitlines() == [
        "trial,ours Final,ours Final std,state",
        "a|b_c,50.126,0.254,finished",
        "<plain>,,,failed: [red] & co",
    ]
    html = to_html(TABLE)
    assert '<span class="value best">50.13</span><span class="std">±0.25</span>' in html
    assert "<plain>" not in html
    assert html.count('<button type="button" class="sort"') == 3


def test_a_terminal_shows_any_table_without_markup() -> None:
    console = Console(width=80, record=True, file=StringIO())
    console.print(to_rich(TABLE))
    lines = [line.split() for line in console.export_text(styles=False).splitlines()]
    assert lines == [
        ["trial", "ours", "Final", "state"],
        ["a|b_c", "50.13±0.25", "finished"],
        ["<plain>", "–", "failed:", "[red]", "&", "co"],
    ]


def test_every_format_says_what_bold_and_the_spread_are(three: Path) -> None:
    report = read_report(three)
    for text in (markdown_report(report), latex_report(report), html_report(report)):
        assert "n − 1" in text or "n $-$ 1" in text
        assert "t-interval that contains 0" in text
    assert any("**" in line for line in markdown_report(report).splitlines() if line.startswith("|"))


def test_latex_has_k_nn_and_forgetting_below_the_linear_probe(few: Path) -> None:
    for seed in (0, 1):
        path = few / CLA_E.format(seed)
        measured = {"knn": Curve(final=30.0 + seed, avg=20.0, curve=[10.0 - seed, 30.0 + seed]), "forgetting": 2.0}
        path.write_text(read_result(path).model_copy(update=measured).to_json())
    first, second = re.findall(r"\\begin\{tabular\}(.*?)\\end\{tabular\}", latex_report(read_report(few)), flags=re.S)
    assert "k-NN" not in first
    assert r"CLA-E & $30.50 \pm {\scriptstyle 0.71}$ & $20.00 \pm {\scriptstyle 0.00}$ & $2.00" in second
    rows = rows_of(markdown_report(read_report(few)))
    assert [rows["CLA-E"][head] for head in ("k-NN Final", "k-NN Avg", "forgetting")] == [
        "30.50 ± 0.71",
        "20.00 ± 0.00",
        "2.00 ± 0.00",
    ]


def test_differences_are_paired_and_written_as_numbers(three: Path) -> None:
    (section,) = read_report(three).sections
    table = section_differences(section, "cla-e")
    heads, *lines = csv.reader(StringIO(to_csv(table)))
    assert heads == ["row", "difference", "from", "to", "seeds"]
    rows = {row.name: row.ours for row in section.rows}
    expected = paired_difference(rows["er-fifo"].final, rows["cla-e"].final)
    (line,) = [line for line in lines if line[0] == "ER w/ FIFO, Final"]
    assert expected is not None
    assert [float(cell) for cell in line[1:4]] == pytest.approx([expected.mean, expected.low, expected.high])
    assert line[4] == "0 1 2"
    assert not any(line[0].startswith("CLA-E") for line in lines)
    with pytest.raises(ConfigError, match="unknown row 'cla-ee'"):
        section_differences(section, "cla-ee")


def test_csv_has_the_numbers_of_the_report_unrounded(few: Path) -> None:
    (section,) = read_report(few).sections
    heads, *lines = csv.reader(StringIO(to_csv(report_table(section))))
    (line,) = [dict(zip(heads, line, strict=True)) for line in lines if line[0] == "CLA-E"]
    finals = [read_result(few / CLA_E.format(seed)).final or 0 for seed in (0, 1)]
    assert float(line["Final ours"]) == pytest.approx(sum(finals) / 2)
    assert (line["Final paper"], line["Final paper std"], line["seeds"]) == ("43.1", "0.3", "0 1")


def test_a_terminal_has_the_same_rows_in_italics_as_a_report(three: Path) -> None:
    (section,) = read_report(three).sections
    italics = {row.label for row in terminal_table(section).rows if not row.ranked}
    assert italics == {row.label for row in report_table(section).rows if not row.ranked}
    assert {"i.i.d.", "raw pixels"} <= italics


def test_a_terminals_csv_has_differences_to_the_paper_unrounded(few: Path) -> None:
    (section,) = read_report(few).sections
    heads, *lines = csv.reader(StringIO(to_csv(terminal_table(section))))
    (line,) = [line for line in lines if line[0] == "CLA-E"]
    ours, paper, difference = (float(line[heads.index(head)]) for head in ("Final %", "paper", "diff"))
    assert difference == pytest.approx(ours - paper, abs=1e-6)


def test_latex_says_which_seeds_its_numbers_are_of(few: Path) -> None:
    assert "Seeds: 0 1.\n" in latex_report(read_report(few))
    (few / CLA_E.format(1)).unlink()
    said = latex_report(read_report(few))
    assert "Seeds 0: CLA-E." in said
    assert "ER w/ FIFO" in said.partition("Seeds 0 1: ")[2].partition("Seeds 0: ")[0]
