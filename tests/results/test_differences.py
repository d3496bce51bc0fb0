"""Paired differences and their intervals, against scipy; and which rows of a table are marked."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
from scipy import stats

from helpers.cli import Ocssl
from helpers.results import PUBLISHED, content, put
from ocssl.errors import ConfigError
from ocssl.results import Group, ResultFile, Section, find_table, read_result, read_results, sections_of
from ocssl.results.build import UNPAIRED, differences_table
from ocssl.results.comparison import comparison_table
from ocssl.results.differences import best_rows, paired_difference, t_quantile
from ocssl.results.sections import best_groups


@pytest.fixture(scope="module")
def published() -> dict[tuple[str, str], Section]:
    store = read_results(PUBLISHED)
    tables = [find_table(name) for name in ("high-simsiam", "low-simsiam", "high-simclr", "buffers")]
    return {
        (section.table.id, section.protocol): section
        for table in tables
        for section in sections_of(store, table)
        if section.dataset == "cifar100"
    }


@pytest.mark.parametrize("freedom", [*range(1, 41), 99, 100, 1000])
@pytest.mark.parametrize("probability", [0.5, 0.6, 0.9, 0.95, 0.975, 0.995, 0.9995])
def test_quantiles_are_those_of_scipy(probability: float, freedom: int) -> None:
    assert t_quantile(probability, freedom) == pytest.approx(stats.t.ppf(probability, freedom), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("n", [2, 3, 5, 20])
@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
def test_an_interval_is_that_of_scipys_paired_test(n: int, level: float) -> None:
    first, second = numpy.random.default_rng(n).normal(50, 1, (2, n))
    found = paired_difference(dict(enumerate(first)), dict(enumerate(second)), level)
    expected = stats.ttest_rel(first, second).confidence_interval(level)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert (found.mean, found.n) == (pytest.approx(numpy.mean(first - second)), n)


def test_seeds_are_paired_by_number_and_others_left_out() -> None:
    found = paired_difference({2: 5.0, 0: 1.0, 9: 100.0}, {0: 2.0, 2: 3.0, 1: -100.0})
    assert found is not None
    assert (found.mean, found.n) == (0.5, 2)
    assert paired_difference({0: 1.0}, {1: 1.0}) is None
    one = paired_difference({0: 2.0}, {0: 1.0})
    assert one is not None
    assert (one.mean, one.low, one.high, one.excludes_zero) == (1.0, -numpy.inf, numpy.inf, False)


def test_rows_that_cannot_be_told_from_the_best_are_marked_with_it() -> None:
    best = {0: 50.0, 1: 51.0, 2: 52.0}
    near = {0: 50.4, 1: 50.4, 2: 51.6}
    far = {seed: value - 2 for seed, value in best.items()}  # the same lead with every seed
    few = {0: 50.0, 1: 51.0}
    assert best_rows({"best": best, "near": near, "far": far, "few": few}) == {"best", "near"}
    assert best_rows({"best": best, "few": few}) == set()
    assert best_rows({"lucky": {0: 99.0}, "best": best, "far": far}) == set()
    assert best_rows({"best": best, "other seeds": {3: 50.0, 4: 50.0, 5: 50.0}}) == set()
    assert best_rows({}) == set()
    assert best_rows({"best": best, "equal": dict(best)}) == {"best", "equal"}


def test_marked_rows_of_the_published_tables(published: dict[tuple[str, str], Section]) -> None:
    high = published["high-simsiam", "clean"]
    assert {"cla-e", "cla-r"} <= high.best("final")
    assert high.best("avg") == {"cla-r"}
    assert high.best("final", tuned=True) == {"cla-r", "cla-e"}
    assert published["low-simsiam", "clean"].best("final") == {"osiris-r"}
    assert published["high-simclr", "clean"].best("final") == {"cla-r", "cla-e"}
    for one_seed in (("low-simsiam", "authors"), ("high-simsiam", "authors")):  # of the row that is highest
        assert not any(published[one_seed].best(number) for number in ("final", "avg", "knn_final", "knn_avg"))
    assert published["buffers", "clean"].best("avg") == {"cla-r+minred"}


FIFO = [
    PUBLISHED / f"cifar100-simsiam-{name}-fifo-high-clean-seed{seed}.json"
    for name in ("cla-e", "er")
    for seed in range(3)
]


def read(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_compare_averages_seeds_and_writes_what_it_shows(ocssl: Ocssl, tmp_path: Path) -> None:
    code, said = ocssl("compare", *map(str, FIFO), "-o", str(tmp_path / "runs.csv"))
    assert code == 0, said
    assert "50.76±0.27" in said
    assert "divided by n − 1" in said.replace("\n", " ")
    cla_e, er, untrained, pixels = read(tmp_path / "runs.csv")
    assert (cla_e["run"], er["run"], untrained["run"], pixels["run"]) == (
        "CLA-E",
        "ER w/ FIFO",
        "CIFAR-100 untrained encoder",
        "CIFAR-100 raw pixels",
    )
    assert float(cla_e["Final %"]) == pytest.approx(numpy.mean([51.0, 50.82, 50.46]))
    assert float(cla_e["Final % std"]) == pytest.approx(numpy.std([51.0, 50.82, 50.46], ddof=1))
    assert (cla_e["seeds"], pixels["seeds"], pixels["k-NN Final %"]) == ("0 1 2", "0 1 2", "")


def test_compare_ranks_no_row_that_knows_more_than_the_stream() -> None:
    iid = [PUBLISHED / f"cifar100-simsiam-iid-high-clean-seed{seed}.json" for seed in range(3)]
    files = [ResultFile(path, read_result(path)) for path in (*FIFO, *iid)]
    groups = {name: Group(tuple(files[start : start + 3])) for start, name in ((0, "CLA-E"), (3, "ER"), (6, "i.i.d."))}
    final = {row.label: (row.values[0].best, row.ranked) for row in comparison_table("", groups).rows}
    assert {name: final[name] for name in groups} == {
        "CLA-E": (True, True),
        "ER": (False, True),
        "i.i.d.": (False, False),
    }


def test_compare_shows_no_floor_that_two_runs_of_a_seed_disagree_about(ocssl: Ocssl, tmp_path: Path) -> None:
    """Two runs that start from folders of one name, here: only one of the two networks would be shown."""
    pytest.importorskip("matplotlib")
    start = content(init_from="early")
    files = [put(tmp_path, name, start | {"references": {"initial": at}}) for name, at in (("a", 15.0), ("b", 21.0))]
    code, said = ocssl("compare", *files, "-o", tmp_path / "floors.csv", "--plot", tmp_path / "floors.svg")
    assert code == 0, said
    assert "runs of seed 0 have 15.00 and 21.00 for the same initial encoder" in said.replace("\n", " ")
    (floor,) = [row for row in read(tmp_path / "floors.csv") if row["run"] == "CIFAR-100 initial encoder"]
    assert (floor["Final %"], floor["seeds"]) == ("", "")


def test_compare_keeps_floors_that_were_measured_in_two_ways_apart(ocssl: Ocssl, tmp_path: Path) -> None:
    file = PUBLISHED / "cifar100-simsiam-er-fifo-high-clean-seed0.json"
    result = json.loads(file.read_text())
    result["config"]["samples_per_class"] = 24
    result["references"] = {"pixels": 1.25}
    (tmp_path / "few.json").write_text(json.dumps(result))
    code, said = ocssl("compare", str(file), str(tmp_path / "few.json"), "-o", str(tmp_path / "runs.csv"))
    assert code == 0, said
    floors = {row["run"]: row["Final %"] for row in read(tmp_path / "runs.csv") if "pixels" in row["run"]}
    assert list(floors) == [
        "CIFAR-100 raw pixels, samples_per_class unset",
        "CIFAR-100 raw pixels, samples_per_class 24",
    ]
    assert float(floors["CIFAR-100 raw pixels, samples_per_class 24"]) == 1.25


def test_compare_keeps_encoders_apart_that_began_with_other_weights(ocssl: Ocssl, tmp_path: Path) -> None:
    def write(name: str, seed: int, floor: str, value: float, **start: str) -> str:
        result = json.loads((PUBLISHED / f"cifar100-simsiam-er-fifo-high-clean-seed{seed}.json").read_text())
        result["config"] |= start
        result["overrides"] = {
            setting: source.removeprefix("runs/").removesuffix(f"-seed{seed}") for setting, source in start.items()
        }
        result |= {"references": {floor: value}, "key": name}
        (tmp_path / f"{name}-{seed}.json").write_text(json.dumps(result))
        return str(tmp_path / f"{name}-{seed}.json")

    files = [
        write("early", 0, "initial", 20.0, init_from="runs/early-seed0"),
        write("early", 1, "initial", 22.0, init_from="runs/early-seed1"),
        write("late", 0, "initial", 40.0, init_from="runs/late-seed0"),
        write("random", 0, "untrained", 10.0),
        write("timm", 0, "untrained", 60.0, weights="timm:resnet18"),
    ]
    pytest.importorskip("matplotlib")
    code, said = ocssl("compare", *files, "-o", str(tmp_path / "runs.csv"), "--plot", str(tmp_path / "runs.svg"))
    assert code == 0, said
    floors = {
        row["run"]: float(row["Final %"]) for row in read(tmp_path / "runs.csv") if row["run"].startswith("CIFAR-100 ")
    }
    assert floors == {
        "CIFAR-100 initial encoder, init_from early": 21.0,
        "CIFAR-100 initial encoder, init_from late": 40.0,
        "CIFAR-100 untrained encoder, weights unset": 10.0,
        "CIFAR-100 untrained encoder, weights timm:resnet18": 60.0,
    }
    drawn = (tmp_path / "runs.svg").read_text()
    assert drawn.count("<!-- CIFAR-100 initial encoder, ") == drawn.count("<!-- CIFAR-100 untrained encoder, ") == 2


def test_compare_keeps_floors_of_two_protocols_apart(ocssl: Ocssl, tmp_path: Path) -> None:
    names = ("high-clean", "high-authors")
    files = [str(PUBLISHED / f"cifar100-simsiam-er-fifo-{name}-seed0.json") for name in names]
    code, said = ocssl("compare", *files, "-o", str(tmp_path / "runs.csv"))
    assert code == 0, said
    floors = [row["run"] for row in read(tmp_path / "runs.csv") if "untrained" in row["run"]]
    assert floors == ["CIFAR-100 untrained encoder, clean protocol", "CIFAR-100 untrained encoder, authors’ protocol"]


def test_compare_keeps_floors_of_several_crops_apart_but_not_those_without_an_encoder(
    ocssl: Ocssl, tmp_path: Path
) -> None:
    files = [PUBLISHED / "cifar100-simsiam-er-fifo-high-clean-seed0.json", tmp_path / "ten.json"]
    ten = json.loads(files[0].read_text())
    ten["config"]["eval_crops"] = 10
    files[1].write_text(json.dumps(ten))
    code, said = ocssl("compare", *map(str, files), "-o", str(tmp_path / "runs.csv"))
    assert code == 0, said
    floors = [row["run"] for row in read(tmp_path / "runs.csv") if row["run"].startswith("CIFAR-100 ")]
    assert floors == [
        "CIFAR-100 untrained encoder, eval_crops 1",
        "CIFAR-100 untrained encoder, eval_crops 10",
        "CIFAR-100 raw pixels",
    ]


def test_a_file_of_compared_runs_has_their_cbp_unrounded(ocssl: Ocssl, tmp_path: Path) -> None:
    file = PUBLISHED / "cifar100-simsiam-cla-e-fifo-high-clean-seed0.json"
    large = json.loads(file.read_text()) | {"cbp_spent": 123_456_789_012, "key": "another"}
    (tmp_path / "large.json").write_text(json.dumps(large))
    code, said = ocssl("compare", str(file), str(tmp_path / "large.json"), "-o", str(tmp_path / "runs.csv"))
    assert code == 0, said
    assert "3.72M" in said
    assert [row["CBP"] for row in read(tmp_path / "runs.csv") if row["CBP"]] == ["3716016", "123456789012"]


def test_compare_prints_paired_differences_on_request(ocssl: Ocssl, tmp_path: Path) -> None:
    code, said = ocssl("compare", *map(str, FIFO), "--differences", "best", "-o", str(tmp_path / "differences.csv"))
    assert code == 0, said
    assert "Differences to CLA-E" in said
    final = read(tmp_path / "differences.csv")[0]
    finals = [[read_result(path).final for path in paths] for paths in (FIFO[3:], FIFO[:3])]
    interval = stats.ttest_rel(*finals).confidence_interval(0.95)
    assert (final["row"], final["seeds"]) == ("ER w/ FIFO, Final", "0 1 2")
    assert (float(final["from"]), float(final["to"])) == pytest.approx((interval.low, interval.high))
    code, said = ocssl("compare", str(FIFO[0]), "--differences", "best")
    assert (code, "There is no other row to compare with." in said) == (0, True)
    code, said = ocssl("compare", *map(str, FIFO), "--differences", "CLA-EE")
    assert (code, "did you mean 'CLA-E'?" in said) == (2, True)


def test_a_row_without_a_common_seed_is_shown_without_a_difference(ocssl: Ocssl, tmp_path: Path) -> None:
    output = tmp_path / "differences.csv"
    code, said = ocssl("compare", *map(str, (FIFO[0], *FIFO[4:])), "--differences", "best", "-o", str(output))
    assert code == 0, said
    assert UNPAIRED in said.replace("\n", " ")
    rows = read(output)
    assert rows
    assert all((row["difference"], row["seeds"]) == ("", "") for row in rows)


@pytest.mark.parametrize("changed", [{"protocol": "authors"}, {"measure_on": "validation"}, {"eval_crops": 10}])
def test_what_was_measured_otherwise_is_neither_compared_nor_best(changed: dict[str, Any]) -> None:
    files = [ResultFile(path, read_result(path)) for path in FIFO]
    other = [
        replace(file, result=file.result.model_copy(update={"config": file.result.config | changed}))
        for file in files[3:]
    ]
    alike = {"CLA-E": Group(tuple(files[:3])), "ER": Group(tuple(files[3:]))}
    unlike = alike | {"ER": Group(tuple(other))}
    assert best_groups(alike, "final")
    assert best_groups(unlike, "final") == set()
    assert not any(row.values[0].empty for row in differences_table(alike, "CLA-E").rows)
    table = differences_table(unlike, "CLA-E")
    assert all(value.empty for row in table.rows for value in row.values)
    assert table.notes == (UNPAIRED,)
    with pytest.raises(ConfigError, match="no row is the best"):
        differences_table(unlike, "best")


def test_of_runs_without_a_final_none_is_the_best(ocssl: Ocssl) -> None:
    code, said = ocssl("paper", "show", "times", "--results", str(PUBLISHED), "--differences", "best")
    assert (code, "no row is the best, since none has a Final" in said) == (2, True)


def test_a_table_of_the_paper_is_written_with_its_differences(ocssl: Ocssl, tmp_path: Path) -> None:
    show = ("paper", "show", "high-simsiam", "--results", str(PUBLISHED), "-o", str(tmp_path / "table.csv"))
    code, said = ocssl(*show, "--protocol", "clean")
    assert code == 0, said
    rows = {row["row"]: row for row in read(tmp_path / "table.csv")}
    assert (rows["CLA-E"]["seeds"], rows["i.i.d."]["forgetting"]) == ("0 1 2", "")
    assert float(rows["CaSSLe-R"]["k-NN Final"]) > float(rows["CLA-E"]["k-NN Final"])
    assert {"random encoder", "raw pixels", "colour histogram"} <= rows.keys()
    code, said = ocssl(*show, "--protocol", "clean", "--differences", "cla-e", "--force")
    assert code == 0, said
    assert [row["row"] for row in read(tmp_path / "table.csv") if "CLA-R, Final" in row["row"]] == ["CLA-R, Final"]


def test_two_tables_are_not_written_into_one_file(ocssl: Ocssl, store: Path, tmp_path: Path) -> None:
    code, said = ocssl("paper", "show", "high-simsiam", "--results", str(store), "-o", str(tmp_path / "table.csv"))
    assert (code, "more than one table" in said) == (2, True)


@pytest.mark.parametrize("words", [("--dataset", "svhn"), ("--dataset", "imagenet100", "--differences", "best")])
def test_a_table_without_results_is_not_written(ocssl: Ocssl, store: Path, tmp_path: Path, words: tuple[str]) -> None:
    show = ("paper", "show", "high-simsiam", "--results", str(store), "-o", str(tmp_path / "table.csv"))
    code, said = ocssl(*show, *words)
    assert (code, "there is no result to write yet" in said) == (2, True)
    assert not (tmp_path / "table.csv").exists()
