"""What a report shows of a folder of results, and what it refuses to average."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from statistics import fmean, stdev

import pytest
import synthetic

from ocssl.errors import DataError
from ocssl.report import Line, Report, Sheet, read_report
from ocssl.report.html import to_html
from ocssl.report.latex import to_latex
from ocssl.report.markdown import to_markdown
from ocssl.runs.result import Result, read_result

CLA_E = "cifar100-simsiam-cla-e-fifo-high-b138-clean-seed{}.json"


def sheet_of(report: Report, table: str, protocol: str = "clean") -> Sheet:
    (found,) = [sheet for sheet in report.sheets if sheet.table.id == table and sheet.protocol == protocol]
    return found


def line_of(sheet: Sheet, row: str) -> Line:
    (found,) = [line for line in sheet.lines if line.cell.row.name == row]
    return found


def rewrite(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_number_is_the_mean_over_its_own_seeds_and_protocol(report: Report, store: Path) -> None:
    for protocol in ("clean", "authors"):
        cell = line_of(sheet_of(report, "high-simsiam", protocol), "cla-e").cell
        files = [store / CLA_E.format(seed).replace("clean", protocol) for seed in range(3)]
        finals = [read_result(path).final for path in files]
        assert cell.final.mean == pytest.approx(fmean(finals))
        assert cell.final.std == pytest.approx(stdev(finals))
        assert cell.final.published is not None
        assert cell.final.published.mean == 43.1


def test_every_sheet_has_one_protocol_and_one_data_set(report: Report) -> None:
    for sheet in report.sheets:
        runs = [run.result for line in sheet.lines for cell in line.cells for run in cell.runs.values()]
        assert {(run.protocol, run.dataset) for run in runs} == {(sheet.protocol, sheet.dataset)}


def test_main_tables_are_complete_and_no_run_is_lost(report: Report) -> None:
    assert [sheet.table.id for sheet in report.sheets if sheet.protocol == "clean"] == [
        "high-simsiam",
        "low-simsiam",
        "high-simclr",
        "low-simclr",
    ]
    assert set().union(*(sheet.runs() for sheet in report.sheets)) == {stored.path for stored in report.results}
    assert not report.problems


def test_best_and_second_are_sought_among_those_that_only_see_the_stream(report: Report) -> None:
    sheet = sheet_of(report, "low-simsiam")
    contest = {
        line.cell.row.name: line.cell.final.mean
        for line in sheet.lines
        if line.cell.row.name not in {"iid", "iid-b10", "cassle", "cassle-r", "random"}
    }
    ranking = sorted(contest, key=lambda row: contest[row] or 0, reverse=True)
    assert sheet.podium("final") == {ranking[0]: "best", ranking[1]: "second"}
    bound = line_of(sheet, "cassle-r").cell.final.mean
    assert bound is not None
    assert bound > (contest[ranking[0]] or 0)


def test_there_is_no_best_among_rows_of_different_budgets(few: Path) -> None:
    base = read_result(few / CLA_E.format(0))
    twice = {"budget": "custom", "cbp_planned": 2 * base.cbp_planned, "config": base.config | {"passes": 6}}
    (few / "np6.json").write_text(Result.model_validate(base.model_dump() | twice).to_json())
    report = read_report(few)
    assert set(sheet_of(report, "high-simsiam").podium("final").values()) == {"best", "second"}
    assert sheet_of(report, "passes-simsiam").podium("final") == {}


def test_there_is_no_best_among_rows_that_saw_different_streams(few: Path) -> None:
    assert sheet_of(read_report(few), "high-simsiam").podium("final")
    for seed in (0, 1):
        rewrite(few / CLA_E.format(seed), fingerprint="of fewer images")
    report = read_report(few)
    assert sheet_of(report, "high-simsiam").podium("final") == {}
    assert not report.problems


def test_rows_of_one_name_are_told_apart(report: Report) -> None:
    sheet = sheet_of(report, "low-simsiam")
    labels = [sheet.label(line) for line in sheet.lines]
    assert len(set(labels)) == len(labels)
    assert {"i.i.d., b = 10", "i.i.d., b = 30"} <= set(labels)


def test_a_table_appears_once_it_has_a_run_of_its_own(few: Path) -> None:
    assert [sheet.table.id for sheet in read_report(few).sheets] == ["high-simsiam"]
    base = read_result(few / CLA_E.format(0))
    longer = Result.model_validate(base.model_dump() | {"budget": "custom", "config": base.config | {"passes": 6}})
    (few / "np6.json").write_text(longer.to_json())
    assert [sheet.table.id for sheet in read_report(few).sheets] == ["high-simsiam", "passes-simsiam"]


def test_results_that_disagree_are_told_and_enter_no_number(few: Path) -> None:
    base = read_result(few / CLA_E.format(1))
    (few / "again.json").write_text(synthetic.again(base, 12.0).to_json())
    report = read_report(few)
    (problem,) = report.problems
    assert "disagree" in problem.sentence
    assert report.disputed == {few / CLA_E.format(1), few / "again.json"}
    cell = line_of(sheet_of(report, "high-simsiam"), "cla-e").cell
    assert cell.final.by_seed == {0: read_result(few / CLA_E.format(0)).final}


def test_a_cut_file_and_one_without_protocol_are_told_and_enter_no_number(few: Path) -> None:
    cut, nameless = few / CLA_E.format(0), few / CLA_E.format(1)
    cut.write_text(cut.read_text()[:400])
    rewrite(nameless, protocol=None)
    report = read_report(few)
    assert [problem.paths for problem in report.problems] == [(cut,), (nameless,)]
    assert line_of(sheet_of(report, "high-simsiam"), "cla-e").cell.final.by_seed == {}


def test_runs_outside_the_papers_tables_have_rows_named_and_ordered_by_what_sets_them_apart(few: Path) -> None:
    base = read_result(few / CLA_E.format(0))
    for number, lr in enumerate((0.7, 0.05)):
        other = base.model_dump() | {"budget": "custom", "config": base.config | {"batch": 64, "lr": lr}}
        (few / f"other{number}.json").write_text(Result.model_validate(other).to_json())
    (sheet,) = [sheet for sheet in read_report(few).sheets if sheet.is_other]
    assert [line.cell.label for line in sheet.lines] == ["CLA-E, lr 0.05", "CLA-E, lr 0.7"]


def test_a_run_outside_the_tables_says_how_it_differs_from_the_papers(few: Path) -> None:
    base = read_result(few / CLA_E.format(0))
    (few / "other.json").write_text(synthetic.again(base, joint_views=False).to_json())
    (sheet,) = [sheet for sheet in read_report(few).sheets if sheet.is_other]
    assert [line.cell.label for line in sheet.lines] == ["CLA-E, joint_views False"]


def test_a_copy_of_a_result_changes_nothing(few: Path) -> None:
    before = [(sheet.id, sheet.lines) for sheet in read_report(few).sheets]
    shutil.copy(few / CLA_E.format(0), few / "zz-copy.json")
    assert [(sheet.id, sheet.lines) for sheet in read_report(few).sheets] == before


def test_numbers_on_validation_images_stand_in_a_table_of_their_own(few: Path) -> None:
    base = read_result(few / CLA_E.format(0))
    for number, images in enumerate(("test", "validation")):
        config = base.config | {"batch": 64, "measure_on": images}
        other = Result.model_validate(base.model_dump() | {"budget": "custom", "config": config})
        (few / f"other{number}.json").write_text(other.to_json())
    others = [sheet for sheet in read_report(few).sheets if sheet.is_other]
    assert [len(sheet.lines) for sheet in others] == [1, 1]
    assert ["validation" in sheet.title for sheet in others] == [False, True]
    assert len({"CIFAR-100, SimSiam", *(sheet.family for sheet in others)}) == 3  # nor do they share a figure


def test_trials_of_a_sweep_are_named_by_what_it_varied_in_one_order(few: Path) -> None:
    base = read_result(few / CLA_E.format(0))
    grid = [{"lr": lr, "omega": omega} for lr in (0.1, 0.3) for omega in (0.3, 1.0)]  # the paper's own is among them
    for number, values in enumerate(grid):
        trial = synthetic.again(base, measure_on="validation", evaluate="final", **values)
        (few / f"trial{number}.json").write_text(trial.to_json())
    (sheet,) = [sheet for sheet in read_report(few).sheets if sheet.is_other]
    labels = [line.cell.label for line in sheet.lines]
    assert labels == [f"CLA-E, lr {values['lr']:g}, ω {values['omega']:g}" for values in grid]


def test_experiments_that_differ_in_many_settings_are_named_apart(few: Path) -> None:
    base = read_result(few / CLA_E.format(0))
    near = {"batch": 64, "lr": 0.05, "omega": 0.5, "tau": 0.9}
    far = {"batch": 65, "lr": 0.07, "omega": 0.7, "tau": 0.99}
    others = [near, near | {"tau": 0.99}, far, far | {"memory_size": 77}]
    for number, settings in enumerate(others):
        (few / f"other{number}.json").write_text(synthetic.again(base, **settings).to_json())
    (sheet,) = [sheet for sheet in read_report(few).sheets if sheet.is_other]
    labels = {sheet.label(line) for line in sheet.lines}
    assert len(labels) == len(others)
    assert all("lr" in label for label in labels)


def test_tuned_values_stand_beside_the_papers_in_the_same_row(tuned: Path) -> None:
    report = read_report(tuned)
    line = line_of(sheet_of(report, "high-simsiam"), "cla-e")
    assert line.tuned is not None
    assert line.tuned.final.by_seed == {2: 55.5}
    assert 55.5 not in line.cell.final.by_seed.values()
    assert not report.problems


def test_tuned_runs_have_a_contest_of_their_own(tuned: Path) -> None:
    sheet = sheet_of(read_report(tuned), "high-simsiam")
    assert sheet.podium("final", tuned=True) == {"cla-e": "best", "er-fifo": "second"}
    assert set(sheet.podium("final").values()) == {"best", "second"}
    assert "er-fifo" not in sheet.podium("final")


def test_a_table_may_hold_tuned_runs_alone(tuned: Path) -> None:
    for path in tuned.glob("cifar100-*.json"):
        path.unlink()
    for path in tuned.glob("tuned*.json"):
        rewrite(path, references={})
    report = read_report(tuned)
    (sheet,) = report.sheets
    assert sheet.podium("final", tuned=True) == {"cla-e": "best", "er-fifo": "second"}
    assert sheet.podium("final") == {}
    assert all("55.50" in text for text in (to_html(report), to_markdown(report), to_latex(report)))


def test_one_result_is_enough(tmp_path: Path) -> None:
    row = next(row for row in synthetic.main_rows() if row["method"] == "cla-r")
    synthetic.write(tmp_path, iter([synthetic.one(row, "authors", 0)]))
    (sheet,) = read_report(tmp_path).sheets
    assert sheet.protocol == "authors"
    assert line_of(sheet, "cla-r").cell.final.std is None


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no results"):
        read_report(tmp_path)
