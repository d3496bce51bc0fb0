"""The paper's claims are answered by results, one comparison at a time."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import synthetic

from helpers.results import PUBLISHED
from ocssl.paper.plan import configure
from ocssl.results import Result, find_table, read_result, read_results
from ocssl.results.claims import Claim, Comparison, claims
from ocssl.results.report import read_report
from ocssl.results.summary import summary
from ocssl.runs.naming import names_of

CLA_E = "cifar100-simsiam-cla-e-fifo-high-clean-seed{}.json"


@pytest.fixture
def base(few: Path) -> Result:
    return read_result(few / CLA_E.format(0))


def made(base: Result, table: str, row: str, final: float, seed: int = 0, **numbers: object) -> Result:
    """The result of a row of a table."""
    where = find_table(table).datasets[0]
    config = configure(find_table(table).row(row), where, "clean", seed=seed)
    names = names_of(config)
    own = {"dataset": where, "config": config.to_dict(), "final": final, "avg": None, "curve": [final], "knn": None}
    return Result.model_validate(base.model_dump() | names | own | {"forgetting": None, "matrix": []} | numbers)


def answers(folder: Path, results: Iterable[Result]) -> dict[str, Claim]:
    folder.mkdir()
    for number, result in enumerate(results):
        (folder / f"{number}.json").write_text(result.to_json())
    return {claim.name: claim for claim in claims(read_results(folder))}


@pytest.mark.parametrize(
    ("finals", "answer"),
    [
        ({"cla-r": (50, 51, 52), "cla-e": (50, 51, 52), "iid": (40, 41, 42.1)}, "yes"),
        ({"cla-r": (30, 31, 32), "cla-e": (30, 31, 32), "iid": (40, 41, 42.1)}, "no"),
        ({"cla-r": (50, 51, 52), "cla-e": (30, 31, 32), "iid": (40, 41, 42.1)}, "in part"),
        ({"cla-e": (50, 51, 52), "iid": (55, 49, 51)}, "in part"),  # the interval contains 0
        ({"cla-e": (50,), "iid": (49,)}, "yes"),
        ({"cla-e": (50, 51), "iid": (50.1, 50.98)}, "in part"),  # a difference that is printed as 0
        ({"cla-e": (50, 51, 52)}, "not run yet"),
    ],
)
def test_cla_against_iid(base: Result, tmp_path: Path, finals: dict[str, tuple[float, ...]], answer: str) -> None:
    results = [
        made(base, "high-simsiam", row, final, seed)
        for row, values in finals.items()
        for seed, final in enumerate(values)
    ]
    assert answers(tmp_path / "store", results)["iid"].answer == answer


def test_stagnation_is_of_the_stream_and_not_of_iid(base: Result, tmp_path: Path) -> None:
    finals = {"cla-e-np3": 50.0, "cla-e-np6": 50.5, "iid-np3": 48.0, "iid-np6": 53.0}
    results = [made(base, "passes-simsiam", row, final) for row, final in finals.items()]
    claim = answers(tmp_path / "store", results)["passes"]
    assert claim.answer == "yes"
    assert "High CBP, SimSiam, 1 seed: i.i.d. +5.0; CLA-E +0.5." in claim.evidence
    others = [made(base, "passes-simsiam", row, final + 3 * (row == "cla-e-np6")) for row, final in finals.items()]
    assert answers(tmp_path / "other", others)["passes"].answer == "in part"
    level = [made(base, "passes-simsiam", row, 50 + 3 * (row == "cla-e-np6")) for row in finals]
    assert answers(tmp_path / "level", level)["passes"].answer == "no"  # CLA-E rises, and i.i.d. training does not
    assert answers(tmp_path / "none", others[:1])["passes"].answer == "not run yet"
    own = [made(base, table, f"scale-np{n_p}", 33) for table in ("passes-simsiam",) for n_p in (3, 6)]
    (comparison,) = answers(tmp_path / "own", own)["passes"].comparisons  # SCALE has no method: one of both tables
    assert (comparison.where, comparison.text, comparison.seeds) == ("high CBP", "SCALE 0.0", 1)


@pytest.mark.parametrize(
    ("gains", "supports"),
    [((0.2, 0.3, 0.4), True), ((2.2, 2.3, 2.4), False), ((0.0, 1.2, 3.0), None), ((0.5, 0.9, 1.1), None)],
)
def test_stagnation_is_open_where_the_interval_contains_its_limit(
    base: Result, tmp_path: Path, gains: tuple[float, ...], supports: bool | None
) -> None:
    results = [
        made(base, "passes-simsiam", f"cla-e-np{n_p}", 50 + gain * (n_p == 6), seed)
        for seed, gain in enumerate(gains)
        for n_p in (3, 6)
    ]
    (comparison,) = answers(tmp_path / "store", results)["passes"].comparisons
    assert (comparison.supports, comparison.seeds) == (supports, 3)


def test_downstream_and_pretraining(base: Result, tmp_path: Path) -> None:
    results = [
        made(base, "downstream-simsiam", row, final) for row, final in {"cla-r": 60, "er-fifo": 58, "iid": 61}.items()
    ]
    results.append(made(base, "pretraining-simsiam", "iid-whole", 50))
    results.append(made(base, "pretraining-simsiam", "cla-e-iid", 52))
    found = answers(tmp_path / "store", results)
    assert (found["downstream"].answer, found["pretraining"].answer) == ("no", "yes")
    said = "High CBP, SimSiam, 1 seed: CLA-R less i.i.d. −1.0, the highest of the other 2 rows that were run."
    assert said in found["downstream"].evidence
    assert "1 of 2 comparisons were run." in found["downstream"].evidence
    assert (found["downstream"].said, found["time"].said) == ("no, by one seed, so far", "not run yet")


@pytest.mark.parametrize(
    ("finals", "answer"),
    [
        ({"cla-r": (60, 61, 62), "er-fifo": (50, 51, 52.1)}, "yes"),
        ({"cla-r": (60, 61, 62), "er-fifo": (59, 63, 60)}, "in part"),  # the interval contains 0
        ({"cla-r": (50, 51, 52), "er-fifo": (60, 61, 62.1)}, "no"),
        ({"er-fifo": (60, 61, 62)}, "not run yet"),
    ],
)
def test_cla_r_downstream(base: Result, tmp_path: Path, finals: dict[str, tuple[float, ...]], answer: str) -> None:
    results = [
        made(base, "downstream-simclr", row, final, seed)
        for row, values in finals.items()
        for seed, final in enumerate(values)
    ]
    claim = answers(tmp_path / "store", results)["downstream"]
    assert claim.answer == answer
    assert "To run: ocssl paper run downstream-simsiam; ocssl paper run downstream-simclr." in claim.evidence


@pytest.mark.parametrize(
    ("whole", "then", "answer"), [(50, 52, "yes"), (52, 50, "no"), (None, 50, "not run yet"), (50, None, "not run yet")]
)
def test_early_pretraining(base: Result, tmp_path: Path, whole: float | None, then: float | None, answer: str) -> None:
    finals = {"iid-whole": whole, "cla-r-iid": then, "cla-e-iid": then}
    results = [
        made(base, "pretraining-simclr", row, final, seed)
        for row, final in finals.items()
        if final is not None
        for seed in range(2)
    ]
    assert answers(tmp_path / "store", results)["pretraining"].answer == answer


@pytest.mark.parametrize(
    ("fifo", "reservoir", "minred", "answer"),
    [(50, 48, 49, "yes"), (48, 50, 49, "no"), (49, 48, 50, "in part"), (50, None, None, "not run yet")],
)
def test_the_memory_of_cla(
    base: Result, tmp_path: Path, fifo: float, reservoir: float | None, minred: float | None, answer: str
) -> None:
    results = [
        made(base, "buffers", f"{strategy}+{memory}", final)
        for strategy in ("cla-r", "cla-e")
        for memory, final in {"fifo": fifo, "reservoir": reservoir, "minred": minred}.items()
        if final is not None
    ]
    claim = answers(tmp_path / "store", results)["memory"]
    assert claim.answer == answer
    assert (claim.evidence[-1] == "To run: ocssl paper run buffers.") == (reservoir is None)


def test_times_are_compared_per_cbp_on_one_device(base: Result, tmp_path: Path) -> None:
    costs = {"cla-e-np1": (1_000_000, 20.0), "cla-e-np3": (3_000_000, 61.0), "cla-e-np6": (6_000_000, 122.0)}
    results = [
        made(base, "times", row, 50, cbp_spent=cbp, train_seconds=seconds) for row, (cbp, seconds) in costs.items()
    ]
    assert answers(tmp_path / "store", results)["time"].answer == "yes"
    slow = results[-1].model_copy(update={"train_seconds": 200.0})
    assert answers(tmp_path / "slow", [*results[:-1], slow])["time"].answer == "no"
    low = made(base, "times", "cla-e-low", 50, cbp_spent=270_000, train_seconds=13.5)
    claim = answers(tmp_path / "low", [*results, low])["time"]
    assert claim.answer == "in part"
    assert "At low and high CBP, 1 seed: CLA-E 2.46." in claim.evidence
    shared = [one.model_copy(update={"hardware": one.hardware | {"runs_at_once": 8}}) for one in results]
    assert answers(tmp_path / "shared", shared)["time"].answer == "not run yet"
    other = results[-1].model_copy(update={"hardware": base.hardware | {"gpu": "another"}})
    assert answers(tmp_path / "other", [*results[:-1], other])["time"].answer == "not run yet"


def test_learning_rates_are_compared_by_what_is_lost_at_the_largest_that_both_were_tried_with(
    base: Result, few: Path, tmp_path: Path
) -> None:
    er = read_result(few / "cifar100-simsiam-er-fifo-high-clean-seed0.json")
    tried = [(base, 0.1, 47.0), (base, 0.3, 50.0), (er, 0.1, 46.0), (er, 0.3, 40.0)]
    results = [synthetic.again(one, final, lr=lr, measure_on="validation") for one, lr, final in tried]
    claim = answers(tmp_path / "store", results)["lr"]
    assert claim.answer == "yes"
    assert "High CBP, 1 seed: at lr 0.3 CLA-E is 0.0 below its best, ER w/ FIFO 6.0." in claim.evidence
    reservoir = made(base, "high-simsiam", "er-reservoir", 45.0)
    others = [synthetic.again(reservoir, 45.0, lr=0.3, measure_on="validation"), *results]
    assert answers(tmp_path / "reservoir", others)["lr"] == claim, "ER with another memory is not ER w/ FIFO"
    worse = [(base, 0.1, 50.0), (base, 0.3, 40.0), (er, 0.1, 46.0), (er, 0.3, 45.0)]
    results = [synthetic.again(one, final, lr=lr, measure_on="validation") for one, lr, final in worse]
    assert answers(tmp_path / "worse", results)["lr"].answer == "no"
    level = [(base, 0.1, 47.0), (base, 0.3, 50.0), (er, 0.1, 45.0), (er, 0.3, 46.0)]
    equal = [synthetic.again(one, final, lr=lr, measure_on="validation") for one, lr, final in level]
    (comparison,) = answers(tmp_path / "level", equal)["lr"].comparisons
    assert comparison.supports is None, "both are best at the largest lr"
    claim = answers(tmp_path / "alone", results[:2])["lr"]
    assert claim.answer == "not run yet"
    assert claim.commands[0] == "ocssl paper tune high-simsiam --methods er-fifo,cla-r,cassle-r"  # CLA-E was tuned


def test_learning_rates_of_rows_without_replay_are_compared_with_finetuning(base: Result, tmp_path: Path) -> None:
    rows = {name: made(base, "views", name, 20.0, budget="low") for name in ("cla-b", "finetune")}
    tried = [("cla-b", 0.03, 24.0), ("cla-b", 0.1, 25.0), ("finetune", 0.03, 22.0), ("finetune", 0.1, 16.0)]
    results = [synthetic.again(rows[name], final, lr=lr, measure_on="validation") for name, lr, final in tried]
    claim = answers(tmp_path / "store", results)["lr"]
    assert "Low CBP, 1 seed: at lr 0.1 CLA-b is 0.0 below its best, finetuning 6.0." in claim.evidence
    assert claim.commands[1] == "ocssl paper tune views --methods er-fifo,cla-r,cla-e,cassle-r,cassle"


def test_only_tables_with_missing_runs_are_to_be_run(base: Result, tmp_path: Path) -> None:
    high = [made(base, "high-simsiam", row, 50) for row in ("cla-r", "cla-e", "iid")]
    low = [made(base, "low-simsiam", row, 50) for row in ("cla-r", "iid")]
    rows = [row.name for row in find_table("downstream-simsiam").rows]
    probes = [made(base, "downstream-simsiam", row, 60) for row in rows]
    found = answers(tmp_path / "store", [*high, *low, *probes])
    assert found["iid"].commands == tuple(
        f"ocssl paper run {table}" for table in ("low-simsiam", "high-simclr", "low-simclr")
    )
    assert "3 of 8 comparisons were run." in found["iid"].evidence
    assert found["downstream"].commands == ("ocssl paper run downstream-simclr",)
    assert len(answers(tmp_path / "fewer", probes[:-1])["downstream"].commands) == 2


@pytest.mark.parametrize(
    ("seeds", "said"),
    [
        ({"cla-r": 3, "cla-e": 3}, "yes, so far"),
        ({"cla-r": 1, "cla-e": 1}, "yes, by one seed, so far"),
        ({"cla-r": 2, "cla-e": 2}, "yes, by two seeds, so far"),
        ({"cla-r": 1, "cla-e": 2}, "yes, by one or two seeds, so far"),
        ({"cla-r": 1, "cla-e": 3}, "yes, some by one seed, so far"),
    ],
)
def test_an_answer_says_of_how_few_seeds_it_is(base: Result, tmp_path: Path, seeds: dict[str, int], said: str) -> None:
    results = [
        made(base, "high-simsiam", row, (40 if row == "iid" else 50) + seed / 10, seed)
        for row, n in {**seeds, "iid": 3}.items()
        for seed in range(n)
    ]
    assert answers(tmp_path / "store", results)["iid"].said == said


def test_what_was_not_run_says_how_to_run_it() -> None:
    claim = Claim("", "", commands=("ocssl paper run times",))
    assert (claim.answer, claim.evidence) == ("not run yet", ["To run: ocssl paper run times."])
    assert Claim("", "", (Comparison(None, "level"),)).answer == "in part"


def test_the_summary_tells_the_probes_apart() -> None:
    """By k-NN CLA leads in Avg and not in Final."""
    high = summary(read_report(PUBLISHED).sections)[0]
    by_knn = high[high.index("Final by k-NN") :]
    assert "above it: CaSSLe-R" in by_knn.partition("; Avg by k-NN")[0]
    assert by_knn.partition("; Avg by k-NN")[2].startswith(" CLA-R")


def test_the_summary_writes_a_minus_as_tables_do(base: Result, tmp_path: Path) -> None:
    rows = {"er-fifo": -0.3, "cla-e": 1.0}
    answers(tmp_path / "store", (made(base, "high-simsiam", row, 40, forgetting=drop) for row, drop in rows.items()))
    (said,) = summary(read_report(tmp_path / "store").sections)
    assert said.endswith("ER w/ FIFO forgets least: −0.3 points.")


def test_the_summary_names_rows_that_forget_as_little(base: Result, tmp_path: Path) -> None:
    forgotten = {"er-fifo": (0.1, 0.2, 0.3), "cla-e": (0.4, 0.1, 0.2), "minred": (2.0, 2.1, 2.2)}
    answers(
        tmp_path / "store",
        (
            made(base, "high-simsiam", row, 40 + seed, seed, forgetting=drop)
            for row, drops in forgotten.items()
            for seed, drop in enumerate(drops)
        ),
    )
    (said,) = summary(read_report(tmp_path / "store").sections)
    assert said.endswith("ER w/ FIFO forgets least: 0.2 points (level: CLA-E).")


def test_the_summary_says_where_the_highest_mean_is_of_few_seeds() -> None:
    said = summary(read_report(PUBLISHED).sections)
    (one_seed,) = [text for text in said if "high CBP, SimSiam, authors" in text]
    (three,) = [text for text in said if "high CBP, SimSiam, clean" in text]
    assert one_seed.count("1 seed") == 1  # said once for all numbers
    assert "protocol, 1 seed. Highest: " in one_seed
    assert "seed" not in three
