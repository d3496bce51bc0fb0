"""A row says the strategy and memory that ran, by one name in every table, and then only what tells rows apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.cli import Ocssl
from helpers.results import content, put
from ocssl.results import read_report, read_result
from ocssl.results.comparison import group_runs
from ocssl.results.labels import row_labels
from ocssl.results.names import SYMBOLS
from ocssl.results.read import read_results
from ocssl.results.result import Result
from ocssl.runs.config import settings
from ocssl.runs.naming import run_name
from ocssl.runs.presets import resolve
from ocssl.sweeps.log import Trial, TrialLog
from ocssl.sweeps.plan import parse_sweep
from ocssl.sweeps.report import trial_table

RAN = [
    ({"strategy": "er", "memory": "minred"}, "ER w/ MinRed", "er-minred"),
    ({"strategy": "er", "memory": "reservoir"}, "ER w/ reservoir", "er-reservoir"),
    ({"strategy": "cla-e", "memory": "reservoir"}, "CLA-E, reservoir", "cla-e-reservoir"),
    ({"strategy": "cla-e", "memory": "fifo"}, "CLA-E", "cla-e-fifo"),
]


@pytest.mark.parametrize(("ran", "label", "folder"), RAN)
def test_the_memory_that_ran_is_named_everywhere(
    ocssl: Ocssl, tmp_path: Path, ran: dict[str, str], label: str, folder: str
) -> None:
    """In the paper's tables, the report, a comparison, a sweep's table and the names of folders."""
    lr = {"lr": 0.2}
    files = [put(tmp_path / "results", f"seed{seed}", content(final=58.6, seed=seed, **ran, **lr)) for seed in (0, 1)]

    _, shown = ocssl("paper", "show", "high-simsiam", "--results", tmp_path / "results")
    assert "58.6" not in shown, "lr 0.2 is in no row of the paper's table"
    papers = tmp_path / "papers"
    put(papers, "seed0", content(final=57.3, **ran))
    _, shown = ocssl("paper", "show", "high-simsiam", "--results", papers)
    rows = [line for line in shown.splitlines() if "57.3" in line]
    assert [line.split("  ")[0] for line in rows] == ([label] if label in ("ER w/ reservoir", "CLA-E") else [])

    ocssl("report", tmp_path / "results", "-o", tmp_path / "report", "--format", "markdown")
    report = "\n".join(path.read_text() for path in (tmp_path / "report").rglob("*.md"))
    assert f"| {label}, lr 0.2 |" in report.replace("**", "")

    _, shown = ocssl("compare", *files)
    assert any(line.startswith(label) for line in shown.splitlines())

    plan = parse_sweep({"settings": ran, "space": {"lr": [0.1, 0.3]}})
    log = TrialLog(tmp_path / "trials.jsonl")
    log.trials.append(Trial.new(1, {"lr": 0.1}, [0]))
    assert [row.values[0].text for row in trial_table(plan, log).rows] == [label]

    assert f"-{folder}-" in run_name(resolve(ran))


def of(**given: object) -> Result:
    """A result with these settings."""
    return Result.model_validate(content(**given))  # type: ignore[arg-type]


def test_rows_say_first_what_tells_them_apart_and_nothing_that_all_share() -> None:
    probe = {"probe": {"max_epochs": 3}}
    results = [
        of(strategy="cla-e", tau=0.99, **probe),
        of(strategy="cla-e", **probe),
        of(strategy="er", memory="minred", momentum=0.8, **probe),
        of(strategy="er", memory="fifo", passes=6, **probe),
        of(strategy="er", memory="fifo", **probe),
    ]
    labels, shared = row_labels(results)
    assert labels == [
        "CLA-E, τ 0.99",
        "CLA-E, τ 0.999",
        "ER w/ MinRed, momentum 0.8",
        "ER w/ FIFO, n_p 6",
        "ER w/ FIFO, n_p 3",
    ]
    assert shared == ["probe.max_epochs 3"]
    assert row_labels(results[:1]) == (["CLA-E, probe.max_epochs 3, τ 0.99"], [])


def test_a_row_has_no_setting_that_its_own_parts_do_not_read() -> None:
    results = [of(strategy="er", memory="fifo", momentum=0.8), of(strategy="er", memory="fifo", optimizer="adamw")]
    sgd, adamw = row_labels(results)[0]
    assert "momentum 0.8" in sgd
    assert "optimizer adamw" in adamw
    assert "momentum" not in adamw


def test_the_report_has_what_all_rows_share_in_its_caption(ocssl: Ocssl, tmp_path: Path) -> None:
    for lr in (0.2, 0.4):
        put(tmp_path / "results", f"lr{lr}", content(lr=lr, momentum=0.8))
    assert ocssl("report", tmp_path / "results", "-o", tmp_path / "report", "--format", "markdown")[0] == 0
    report = "\n".join(path.read_text() for path in (tmp_path / "report").rglob("*.md"))
    assert "All rows: momentum 0.8." in report
    assert len(read_results(tmp_path / "results").groups) == 2
    for lr in (0.2, 0.4):
        assert f"| CLA-E, lr {lr} |" in report.replace("**", "")


def test_symbols_are_those_of_the_settings() -> None:
    declared = {name: entry.marks.symbol for name, entry in settings().items() if entry.marks.symbol}
    assert declared == SYMBOLS


def test_rows_that_differ_only_in_when_they_were_measured_are_told_apart(ocssl: Ocssl, tmp_path: Path) -> None:
    end = content(lr=0.2, evaluate="final")
    end |= {"avg": None, "curve": end["curve"][-1:]}
    found = [content(lr=0.2), content(lr=0.2, seed=1), end, content(lr=0.4)]
    files = [put(tmp_path / "results", str(number), one) for number, one in enumerate(found)]
    ocssl("report", tmp_path / "results", "-o", tmp_path / "report", "--format", "markdown")
    report = (tmp_path / "report" / "report.md").read_text().replace("**", "")
    labels = ["CLA-E, lr 0.2, evaluate each", "CLA-E, lr 0.2, evaluate final", "CLA-E, lr 0.4, evaluate each"]
    assert all(report.count(f"| {label} |") == 1 for label in labels)
    compared = group_runs({path: read_result(path) for path in files})[1]
    assert [label.removesuffix(", seed 0").removesuffix(", seeds 0 1") for label in compared] == labels


def test_rows_of_one_name_have_the_key_of_their_experiment(tmp_path: Path) -> None:
    """Nothing but the code of a plugin tells them apart, say."""
    for key in ("a" * 16, "b" * 16):
        put(tmp_path, key, content(lr=0.2) | {"key": key})
    (section,) = read_report(tmp_path).sections
    assert [row.label for row in section.rows] == ["CLA-E, key aaaaaaaa", "CLA-E, key bbbbbbbb"]
