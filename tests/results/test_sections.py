"""What a report shows of a folder of results, and what it refuses to average."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import synthetic

from ocssl.errors import DataError
from ocssl.results import Report, Result, Row, Section, Value, read_report, read_result
from ocssl.results.charts import chart_data
from ocssl.results.differences import best_rows
from ocssl.results.render.html import html_report
from ocssl.results.render.latex import latex_report
from ocssl.results.render.markdown import markdown_report

CLA_E = "cifar100-simsiam-cla-e-fifo-high-clean-seed{}.json"


def section_of(report: Report, table: str, protocol: str = "clean") -> Section:
    (found,) = [section for section in report.sections if section.table.id == table and section.protocol == protocol]
    return found


def row_of(section: Section, name: str) -> Row:
    (found,) = [row for row in section.rows if row.name == name]
    return found


def unlisted_of(folder: Path) -> Section:
    (found,) = [section for section in read_report(folder).sections if section.is_unlisted]
    return found


def final_of(row: Row) -> float:
    return Value.over(row.ours.final).mean or 0.0


def rewrite(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_every_section_has_one_protocol_and_one_data_set(report: Report) -> None:
    for section in report.sections:
        runs = [run.result for group in section.groups for run in group.runs.values()]
        assert {(run.protocol, run.dataset) for run in runs} == {(section.protocol, section.dataset)}


def test_main_tables_are_complete_and_no_run_is_lost(report: Report) -> None:
    assert [section.table.id for section in report.sections if section.protocol == "clean"] == [
        "high-simsiam",
        "low-simsiam",
        "high-simclr",
        "low-simclr",
    ]
    assert set().union(*(section.content for section in report.sections)) == {file.path for file in report.files}
    assert not report.problems


def test_rows_are_compared_among_those_that_only_see_the_stream(report: Report) -> None:
    section = section_of(report, "low-simsiam")
    bounds = {"iid", "iid-b10", "cassle", "cassle-r", "random"}
    compared = {row.name: row.ours.final for row in section.rows if row.name not in bounds}
    assert {row.name for row in section.rows if not row.ranked} == bounds
    assert section.best("final") == best_rows(compared)
    highest = max((row for row in section.rows if row.ranked), key=final_of)
    assert highest.name in section.best("final")
    assert final_of(row_of(section, "cassle-r")) > final_of(highest)


def test_rows_of_different_budgets_are_not_compared(three: Path) -> None:
    base = read_result(three / CLA_E.format(0))
    twice = synthetic.again(base, changes={"budget": "custom", "cbp_planned": 2 * base.cbp_planned}, passes=6)
    (three / "np6.json").write_text(twice.to_json())
    report = read_report(three)
    assert section_of(report, "high-simsiam").best("final")
    assert section_of(report, "passes-simsiam").best("final") == set()


def test_rows_that_saw_different_streams_are_not_compared(three: Path) -> None:
    assert section_of(read_report(three), "high-simsiam").best("final")
    for seed in range(3):
        rewrite(three / CLA_E.format(seed), fingerprint="of fewer images")
    report = read_report(three)
    assert section_of(report, "high-simsiam").best("final") == set()
    assert not report.problems


def test_two_seeds_are_too_few_to_compare(few: Path) -> None:
    assert section_of(read_report(few), "high-simsiam").best("final") == set()


def test_every_table_has_the_floors_that_its_runs_measured(few: Path) -> None:
    for section in read_report(few).sections:
        assert [row.name for row in section.floors] == ["pixels", "histogram"]  # the untrained encoder is a row
        pixels, histogram = section.floors
        assert pixels.ours.final == {0: 18.04, 1: 18.04}
        assert (pixels.ours.knn_final, histogram.ours.final, histogram.ours.knn_final) == ({}, {}, {})


def floors_of(base: Result, **settings: object) -> Result:
    """What ``--evaluate start`` would have written for runs like this one."""
    numbers = {"references": {"untrained": 15.3, "pixels": 18.0, "histogram": 9.0}}
    numbers |= {"knn_references": {"untrained": 8.0, "pixels": 12.0, "histogram": 7.0}}
    none = {"curve": [], "final": None, "avg": None, "cbp_spent": 0}
    return synthetic.again(base, changes=numbers | none, evaluate="start", **settings)


def test_results_of_floors_alone_fill_what_older_results_lack(few: Path) -> None:
    (few / "floors.json").write_text(floors_of(read_result(few / CLA_E.format(0))).to_json())
    report = read_report(few)
    (section,) = report.sections  # no table of its own
    pixels, histogram = section.floors
    assert (pixels.ours.final, pixels.ours.knn_final) == ({0: 18.04, 1: 18.04}, {0: 12.0})
    assert (histogram.ours.final, histogram.ours.knn_final) == ({0: 9.0}, {0: 7.0})
    untrained = row_of(section, "random").ours
    assert (untrained.final[0], untrained.knn_final) == (15.2, {0: 8.0})
    assert few / "floors.json" in section.content
    assert not report.problems


@pytest.mark.parametrize(
    ("changed", "known"),
    [
        ({"width": 32}, {"pixels", "histogram"}),
        ({"data_seed": 3}, set()),
        ({"fit": "squash"}, set()),
        ({"seed": 7}, set()),
    ],
)
def test_floors_count_for_runs_that_were_measured_like_them(few: Path, changed: dict, known: set[str]) -> None:
    (few / "floors.json").write_text(floors_of(read_result(few / CLA_E.format(0)), **changed).to_json())
    (section,) = read_report(few).sections
    assert {
        row.ours.floor for row in (*section.rows, *section.floors) if row.ours.floor and row.ours.knn_final
    } == known


def test_floors_of_other_images_do_not_count(few: Path) -> None:
    for file in few.glob("*.json"):
        rewrite(file, pixels={"test": "a"})
    place = few / "floors.json"
    place.write_text(floors_of(read_result(few / CLA_E.format(0))).to_json())
    for digest, known in (("a", {0: 9.0}), ("b", {})):
        rewrite(place, pixels={"test": digest})
        (section,) = read_report(few).sections
        assert section.floors[1].ours.final == known


def test_rows_of_one_name_are_told_apart(report: Report) -> None:
    section = section_of(report, "low-simsiam")
    labels = [section.label(row) for row in section.rows]
    assert len(set(labels)) == len(labels)
    assert {"i.i.d., b = 10", "i.i.d., b = 30"} <= set(labels)


def test_a_table_appears_once_it_has_a_run_of_its_own(few: Path) -> None:
    assert [section.table.id for section in read_report(few).sections] == ["high-simsiam"]
    longer = synthetic.again(read_result(few / CLA_E.format(0)), changes={"budget": "custom"}, passes=6)
    (few / "np6.json").write_text(longer.to_json())
    assert [section.table.id for section in read_report(few).sections] == ["high-simsiam", "passes-simsiam"]


def test_results_that_disagree_are_reported_and_enter_no_number(few: Path) -> None:
    base = read_result(few / CLA_E.format(1))
    (few / "again.json").write_text(synthetic.again(base, 12.0).to_json())
    report = read_report(few)
    (problem,) = report.problems
    assert "disagree" in problem.sentence
    assert report.conflicting == {few / CLA_E.format(1), few / "again.json"}
    row = row_of(section_of(report, "high-simsiam"), "cla-e")
    assert row.ours.final == {0: read_result(few / CLA_E.format(0)).final}


def test_runs_outside_the_papers_tables_have_rows_named_and_ordered_by_what_sets_them_apart(few: Path) -> None:
    base = read_result(few / CLA_E.format(0))
    for number, lr in enumerate((0.7, 0.05)):
        other = synthetic.again(base, changes={"budget": "custom"}, batch=64, lr=lr)
        (few / f"other{number}.json").write_text(other.to_json())
    assert [row.label for row in unlisted_of(few).rows] == ["CLA-E, lr 0.05", "CLA-E, lr 0.7"]


def test_a_run_outside_the_tables_says_how_it_differs_from_the_papers(few: Path) -> None:
    base = read_result(few / CLA_E.format(0))
    (few / "other.json").write_text(synthetic.again(base, joint_views=False).to_json())
    assert [row.label for row in unlisted_of(few).rows] == ["CLA-E, joint_views false"]


def test_a_copy_of_a_result_changes_nothing(few: Path) -> None:
    before = [(section.id, section.content) for section in read_report(few).sections]
    shutil.copy(few / CLA_E.format(0), few / "zz-copy.json")
    assert [(section.id, section.content) for section in read_report(few).sections] == before


def test_numbers_on_validation_images_stand_in_a_section_of_their_own(few: Path) -> None:
    base = read_result(few / CLA_E.format(0))
    for number, images in enumerate(("test", "validation")):
        other = synthetic.again(base, changes={"budget": "custom"}, batch=64, measure_on=images)
        (few / f"other{number}.json").write_text(other.to_json())
    report = read_report(few)
    others = [section for section in report.sections if section.is_unlisted]
    assert [len(section.rows) for section in others] == [1, 1]
    assert ["validation" in section.title for section in others] == [False, True]
    data = chart_data(report)
    drawn = [[data["series"][number]["runs"] for number in figure["series"]] for figure in data["figures"]]
    behind = [{data["runs"][name]["config"]["measure_on"] for runs in one for name in runs} for one in drawn]
    assert all(len(images) == 1 for images in behind)  # nor do they share a figure


def test_numbers_of_several_crops_meet_no_others(few: Path) -> None:
    base = read_result(few / CLA_E.format(0))
    before = [(section.id, section.content) for section in read_report(few).sections]
    whole, ten = (synthetic.again(base, base.final - 1, eval_crops=crops) for crops in (1, 10))
    assert (whole.key == base.key, ten.key == base.key, ten.label) == (True, False, "CLA-E, 10 crops")
    (few / f"{ten.name}.json").write_text(ten.to_json())
    assert ten.name == "cifar100-simsiam-cla-e-fifo-high-clean-eval_crops10-seed0"
    *others, section = read_report(few).sections
    assert [(other.id, other.content) for other in others] == before
    assert [row.label for row in section.rows] == ["CLA-E, 10 crops"]
    assert section.title == "CIFAR-100, other runs, SimSiam, mean of 10 crops"
    assert [row.ours.final for row in section.floors if row.name == "untrained"] == [{0: ten.references["untrained"]}]


def test_trials_of_a_sweep_are_named_by_what_it_varied_in_one_order(few: Path) -> None:
    base = read_result(few / CLA_E.format(0))
    grid = [{"lr": lr, "omega": omega} for lr in (0.1, 0.3) for omega in (0.3, 1.0)]  # the paper's own is among them
    for number, values in enumerate(grid):
        trial = synthetic.again(base, measure_on="validation", evaluate="final", **values)
        (few / f"trial{number}.json").write_text(trial.to_json())
    labels = [row.label for row in unlisted_of(few).rows]
    assert labels == [f"CLA-E, lr {values['lr']:g}, ω {values['omega']:g}" for values in grid]


def test_experiments_that_differ_in_many_settings_are_named_apart(few: Path) -> None:
    base = read_result(few / CLA_E.format(0))
    near = {"batch": 64, "lr": 0.05, "omega": 0.5, "tau": 0.9}
    far = {"batch": 65, "lr": 0.07, "omega": 0.7, "tau": 0.99}
    others = [near, near | {"tau": 0.99}, far, far | {"memory_size": 77}]
    for number, settings in enumerate(others):
        (few / f"other{number}.json").write_text(synthetic.again(base, **settings).to_json())
    section = unlisted_of(few)
    labels = {section.label(row) for row in section.rows}
    assert len(labels) == len(others)
    assert all("lr" in label for label in labels)


def test_tuned_values_stand_beside_the_papers_in_the_same_row(tuned: Path) -> None:
    report = read_report(tuned)
    row = row_of(section_of(report, "high-simsiam"), "cla-e")
    assert row.tuned is not None
    assert row.tuned.final == {2: 55.5}
    assert 55.5 not in row.ours.final.values()
    assert not report.problems


def test_tuned_runs_are_compared_among_themselves(three: Path) -> None:
    base = {
        name: read_result(three / f"cifar100-simsiam-{name}-fifo-high-clean-seed0.json") for name in ("cla-e", "er")
    }
    for seed in range(3):
        for name, final, settings in (("cla-e", 55.5, {"omega": 0.5}), ("er", 51.0, {"lr": 0.2})):
            run = synthetic.again(base[name], final + seed / 10, seed=seed, **settings)
            (three / f"tuned-{name}-{seed}.json").write_text(run.to_json())
    (three / "tuned").mkdir()
    values = "er-fifo: {lr: 0.2}\ncla-e: {lr: 0.3, omega: 0.5}\n"
    (three / "tuned" / "high-simsiam@cifar100@clean.yaml").write_text(values)
    before = section_of(read_report(three), "high-simsiam")
    assert before.best("final", tuned=True) == {"cla-e"}
    assert before.best("final") == best_rows({row.name: row.ours.final for row in before.rows if row.ranked})


def test_a_table_may_hold_tuned_runs_alone(tuned: Path) -> None:
    for path in tuned.glob("cifar100-*.json"):
        path.unlink()
    for path in tuned.glob("tuned*.json"):
        rewrite(path, references={})
    report = read_report(tuned)
    (section,) = report.sections
    assert section.best("final") == set()
    assert all("55.50" in text for text in (html_report(report), markdown_report(report), latex_report(report)))


def test_one_result_is_enough(tmp_path: Path) -> None:
    row = next(row for row in synthetic.main_rows() if row["method"] == "cla-r")
    synthetic.write(tmp_path, iter([synthetic.one(row, "authors", 0)]))
    (section,) = read_report(tmp_path).sections
    assert section.protocol == "authors"
    assert Value.over(row_of(section, "cla-r").ours.final).std is None


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no results"):
        read_report(tmp_path)
