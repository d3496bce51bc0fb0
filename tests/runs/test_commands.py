"""The commands that read runs and registries: show, compare, list, budget."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from helpers.command import SHORT, Command, as_options, refused
from ocssl.config import REGISTRIES
from ocssl.data import catalog, streams
from ocssl.errors import DataError
from ocssl.results import read_result
from ocssl.runs.folder import RunFolder


def test_show_tells_what_a_finished_run_found(ocssl: Command, runs: list[Path]) -> None:
    code, out, _ = ocssl("show", runs[0], "--matrix", "--settings")
    result = read_result(runs[0])
    assert code == 0
    for words in (f"{result.final:.2f} %", f"{result.cbp_spent:,} of", "untrained", "pixels", "k-NN", "momentum: 0.9"):
        assert words in out
    assert out.split().count("e2") == 2  # the matrix: a column and a row


def test_show_tells_how_far_an_unfinished_run_got(ocssl: Command, tmp_path: Path) -> None:
    ocssl("run", "-q", "-o", "run", *as_options(SHORT | {"checkpoint_samples": 80, "log_every": 2}), die_at_sync=8)
    code, out, _ = ocssl("show", "run")
    assert code == 0
    for words in ("not finished", "got to", "checkpoints/000001", "ocssl run --resume run"):
        assert words in out
    first = next(line for line in RunFolder(tmp_path / "run").metrics.read() if line.get("point") == "1")
    assert f"{first['linear']:.1f}" in out
    assert f"log         {(tmp_path / 'run' / 'log.txt').read_text().splitlines()[-1]}" in out.splitlines()


def test_compare_puts_runs_side_by_side_and_draws_them(ocssl: Command, tmp_path: Path, runs: list[Path]) -> None:
    from PIL import Image

    code, out, err = ocssl("compare", *runs, "--plot", "curves.png")
    assert code == 0, err
    for run in runs:
        assert f"{read_result(run).final:.2f}" in out
    assert "shapes untrained encoder" in out
    assert Image.open(tmp_path / "curves.png").size == (1050, 630)


def test_compare_draws_no_empty_plot(ocssl: Command, tmp_path: Path) -> None:
    assert ocssl("run", "-q", "-o", "unmeasured", *as_options(SHORT | {"evaluate": "never"}))[0] == 0
    line = refused(ocssl, "compare", "unmeasured", "--plot", "curves.png")
    assert line == "ocssl: none of these runs was measured, so there is nothing to draw; leave --plot out\n"
    assert not (tmp_path / "curves.png").exists()


def test_compare_refuses_half_a_result(ocssl: Command, tmp_path: Path, runs: list[Path]) -> None:
    text = (runs[0] / "result.json").read_text()
    (tmp_path / "half.json").write_text(text[: len(text) // 2])
    code, _, err = ocssl("compare", "half.json")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "is not a complete result" in err
    whole = json.loads(text)
    lacking = whole | {"config": {name: value for name, value in whole["config"].items() if name != "protocol"}}
    for poor, words in (
        ({name: value for name, value in whole.items() if name != "final"}, "final: Field required"),
        (lacking, "the setting 'protocol' is missing"),
        (whole | {"format": 3}, "format"),
    ):
        (tmp_path / "poor.json").write_text(json.dumps(poor))
        with pytest.raises(DataError, match=words):
            read_result(tmp_path / "poor.json")


def test_compare_says_when_protocols_differ(ocssl: Command, tmp_path: Path, runs: list[Path]) -> None:
    other = json.loads((runs[0] / "result.json").read_text())
    other["config"]["protocol"] = "authors"
    (tmp_path / "authors.json").write_text(json.dumps(other))
    assert "do not compare" in ocssl("compare", runs[0], "authors.json")[1]
    assert "do not compare" not in ocssl("compare", *runs)[1]


def test_compare_tells_runs_apart_that_differ_in_their_folders_alone(
    ocssl: Command, tmp_path: Path, runs: list[Path]
) -> None:
    twins = [tmp_path / lr / "seed0" for lr in ("lr0.1", "lr0.3")]
    for twin in twins:
        shutil.copytree(runs[0], twin)
    code, out, err = ocssl("compare", *twins, "--plot", "curves.svg")
    assert code == 0, err
    drawn = (tmp_path / "curves.svg").read_text()
    for name in ("(lr0.1/seed0)", "(lr0.3/seed0)"):
        assert name in out
        assert name in drawn


def test_numbers_of_validation_images_are_called_that(ocssl: Command, runs: list[Path]) -> None:
    code, out, err = ocssl("run", "-q", "-o", "run", *as_options(SHORT | {"measure_on": "validation"}))
    assert code == 0, err
    assert "validation images" in out
    assert "validation" in ocssl("show", "run")[1]
    assert "validation" not in ocssl("show", runs[0])[1]
    assert "measured on validation images, others on test images" in ocssl("compare", runs[0], "run")[1]
    assert "of 180 test images" in ocssl("probe", "run", "-q")[1]  # ten of each class


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        ("strategies", REGISTRIES["strategy"].names()),
        ("methods", REGISTRIES["method"].names()),
        ("memories", REGISTRIES["memory"].names()),
        ("streams", streams.registry.names()),
        ("datasets", catalog.names()),
    ],
)
def test_list_has_every_name_with_a_line_on_it(ocssl: Command, kind: str, known: list[str]) -> None:
    code, out, _ = ocssl("list", kind)
    first_words = {line.split()[0]: line.split()[1:] for line in out.splitlines() if not line.startswith(" ")}
    assert code == 0
    assert list(first_words) == known
    assert all(first_words.values())


def test_budget_knows_the_papers_two(ocssl: Command) -> None:
    rows = [line.split() for line in ocssl("budget")[1].splitlines()]
    assert ["3", "138", "128", "13,500", "3,726,000", "42"] in rows
    rows = [line.split() for line in ocssl("budget", "--cbp", 270_000)[1].splitlines()]
    assert rows[1:] == [
        ["1", "30", "20", "4,500", "270,000", "3"],
        ["2", "15", "5", "9,000", "270,000", "3"],
        ["3", "10", "0", "13,500", "270,000", "3"],
    ]
    assert "3,726,000" in ocssl("budget", "--batch", 138, "--passes", 3)[1]


def test_budget_refuses_what_buys_nothing(ocssl: Command) -> None:
    code, _, err = ocssl("budget", "--cbp", 10)
    assert (code, err) == (2, "ocssl: 10 CBP do not pay for that; the least is 90000\n")
