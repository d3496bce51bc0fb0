"""What enters a table, what does not, and that a person is told."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from made_up import CLA_E, PUBLISHED, Ocssl, content, put

from ocssl.paper import Cell, Store, cells, find_table, read_store


def cla_e(store: Store, *, protocol: str = "clean", tuning: str = "paper") -> Cell:
    """The cell of CLA-E on CIFAR-100 in the first table."""
    (cell,) = (
        cell
        for cell in cells(store, find_table("high-simsiam"))
        if (cell.row.name, cell.dataset, cell.protocol, cell.tuning) == ("cla-e", "cifar100", protocol, tuning)
    )
    return cell


def test_the_published_results_are_whole_and_stand_in_their_tables() -> None:
    store = read_store(PUBLISHED)
    assert store.problems == ()
    assert store.results
    placed = {
        run.path
        for name in ("high-simsiam", "low-simsiam")
        for cell in cells(store, find_table(name))
        for run in cell.runs.values()
    }
    assert {CLA_E, PUBLISHED / "cifar100-simsiam-cla-e-fifo-low-clean-seed0.json"} <= placed


@pytest.mark.parametrize("table", ["high-simsiam", "low-simsiam"])
def test_the_published_tables_have_three_seeds_of_every_row_from_committed_code(table: str) -> None:
    ours = [
        cell
        for cell in cells(read_store(PUBLISHED), find_table(table))
        if (cell.dataset, cell.protocol) == ("cifar100", "clean")
    ]
    assert {cell.row.name for cell in ours} == {row.name for row in find_table(table).rows}
    assert {(cell.row.name, cell.tuning): cell.seeds for cell in ours if cell.seeds != (0, 1, 2)} == {}
    assert [run.path.name for cell in ours for run in cell.runs.values() if "dirty" in run.result.code] == []


def test_a_cell_has_mean_and_sample_deviation_over_its_seeds(tmp_path: Path) -> None:
    for seed, final, avg in ((0, 50.0, 40.0), (1, 51.0, 43.0), (2, 53.5, 43.0)):
        put(tmp_path, f"a{seed}", content(seed=seed, final=final, avg=avg))
    cell = cla_e(read_store(tmp_path))
    assert cell.seeds == (0, 1, 2)
    assert cell.final.mean == pytest.approx(51.5)
    assert cell.final.std == pytest.approx(math.sqrt((1.5**2 + 0.5**2 + 2.0**2) / 2))
    assert cell.avg.mean == pytest.approx(42.0)
    assert cell.final.difference == pytest.approx(51.5 - 43.1)
    assert cell.avg.published is not None
    assert (cell.avg.published.mean, cell.avg.published.std) == (36.0, 0.2)


def test_one_seed_has_no_deviation(tmp_path: Path) -> None:
    put(tmp_path, "a", content(final=50.0))
    assert cla_e(read_store(tmp_path)).final.std is None


def test_of_a_runs_own_folder_only_the_result_is_read(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "one"
    (run / "checkpoints" / "000001").mkdir(parents=True)
    (run / "config.yaml").write_text("seed: 0\n")
    (run / "checkpoints" / "000001" / "state.json").write_text("{}")
    put(run, "result", content(final=50.0))
    store = read_store(tmp_path)
    assert store.problems == ()
    assert cla_e(store).final.by_seed == {0: 50.0}


def test_protocols_never_meet_in_one_number(tmp_path: Path) -> None:
    put(tmp_path, "clean", content(final=50.0))
    put(tmp_path, "authors", content(final=40.0, protocol="authors"))
    store = read_store(tmp_path)
    assert cla_e(store).final.by_seed == {0: 50.0}
    assert cla_e(store, protocol="authors").final.by_seed == {0: 40.0}


def test_how_fast_a_run_was_made_makes_no_other_experiment_but_everything_else_does(tmp_path: Path) -> None:
    put(tmp_path, "quick", content(seed=0, execution="eager", precision="fp32", device="cpu", data_root="elsewhere"))
    for seed, other in enumerate(
        ({"memory_size": 500}, {"data_seed": 3}, {"measure_on": "validation"}, {"tau": 0.9}), 1
    ):
        put(tmp_path, f"other{seed}", content(seed=seed, **other))
    assert cla_e(read_store(tmp_path)).seeds == (0,)


def test_the_untrained_encoder_is_what_runs_measured_before_their_first_image(tmp_path: Path) -> None:
    put(tmp_path, "a", content(seed=0) | {"references": {"untrained": 15.0}})
    put(tmp_path, "b", content(seed=1) | {"references": {"untrained": 13.0}})
    random = next(cell for cell in cells(read_store(tmp_path), find_table("high-simsiam")) if cell.row.untrained)
    assert random.final.by_seed == {0: 15.0, 1: 13.0}
    assert random.final.published is not None
    assert random.final.published.mean == 15.4


def test_runs_that_disagree_about_the_untrained_encoder_leave_its_row_without_that_seed(tmp_path: Path) -> None:
    put(tmp_path, "a", content() | {"references": {"untrained": 15.0}})
    put(tmp_path, "b", content(strategy="cla-r", omega=1.0) | {"references": {"untrained": 17.0}})
    random = next(cell for cell in cells(read_store(tmp_path), find_table("high-simsiam")) if cell.row.untrained)
    assert random.final.by_seed == {}
    assert "say 15.00 and 17.00 of the same untrained encoder" in random.problems[0].sentence
    assert "their own numbers count" in random.problems[0].sentence


def test_a_result_without_protocol_is_reported_and_does_not_count(tmp_path: Path, ocssl: Ocssl) -> None:
    found = content(final=90.0, seed=1)
    del found["protocol"]
    put(tmp_path / "results", "nameless", found)
    put(tmp_path / "results", "sound", content(final=50.0))
    code, printed = ocssl("paper", "show", "high-simsiam")
    assert code == 0
    assert "nameless.json' does not say its protocol" in printed
    assert cla_e(read_store(tmp_path / "results")).final.by_seed == {0: 50.0}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CLA_E.read_text()[:700], "is not whole JSON"),
        ("", "is not whole JSON"),
        ("[" * 100_000, "is not whole JSON"),
        ("[1, 2]", "is not a complete result"),
        (json.dumps({"strategy": "cla-e", "protocol": "clean"}), "is not a complete result"),
        (json.dumps(content() | {"final": "fifty"}), "is not a complete result: final"),
        (json.dumps(content() | {"protocol": "authors"}), "says protocol authors, but its configuration says clean"),
        (json.dumps(content() | {"seed": 7}), "says seed 7, but its configuration says 0"),
        (json.dumps(content() | {"dataset": "shapes"}), "says dataset shapes, but its configuration says cifar100"),
        (json.dumps(content() | {"dataset": "svhn->cars"}), "says dataset svhn, but its configuration says cifar100"),
        (json.dumps(content() | {"strategy": "er"}), "says strategy er, but its configuration says cla-e"),
        (json.dumps(content() | {"method": "simclr"}), "says method simclr, but its configuration says simsiam"),
        (json.dumps(content() | {"memory": None}), "says memory None, but its configuration says fifo"),
        (json.dumps(content(iid=True)), "says strategy cla-e, but its configuration says iid"),
        (json.dumps(content() | {"final": 61.0}), "says final 61.0, but its curve ends with 50.0"),
        (json.dumps(content() | {"curve": []}), "says final 50.0, but its curve ends with None"),
        (json.dumps(content() | {"borders": [9, 18]}), "has a curve of 20 points, but says where 2 of them were"),
        (json.dumps(content() | {"samples": 0}), "says that its stream had 0 images"),
        (json.dumps(content(final=250.0)), "is not a complete result: final"),
        (json.dumps(content(final=-1.0)), "is not a complete result: final"),
        (json.dumps(content(final=math.nan)), "is not a complete result: final"),
        (json.dumps(content(avg=math.inf)), "is not a complete result: avg"),
        (json.dumps(content() | {"references": {"untrained": math.nan}}), "is not a complete result: references"),
        (json.dumps(content() | {"train_seconds": math.nan}), "is not a complete result: train_seconds"),
        (json.dumps(content(memroy="fifo")), "unknown setting 'memroy'"),
    ],
)
def test_a_half_written_or_wrong_file_is_reported_and_does_not_count(
    tmp_path: Path, ocssl: Ocssl, text: str, said: str
) -> None:
    put(tmp_path / "results", "sound", content(final=50.0, seed=2))
    (tmp_path / "results" / "broken.json").write_text(text)
    code, printed = ocssl("paper", "show", "high-simsiam")
    assert code == 0
    assert said in printed
    assert "broken.json" in printed
    assert cla_e(read_store(tmp_path / "results")).final.by_seed == {2: 50.0}


def test_results_that_disagree_are_reported_and_neither_counts(tmp_path: Path, ocssl: Ocssl) -> None:
    results = tmp_path / "results"
    put(results, "mine", content(final=50.0))
    put(results, "yours", content(final=47.5))
    put(results, "third", content(final=51.0, seed=1))
    cell = cla_e(read_store(results))
    assert cell.final.by_seed == {1: 51.0}
    assert [sorted(path.name for path in problem.paths) for problem in cell.problems] == [["mine.json", "yours.json"]]
    for command in (("show", "high-simsiam"), ("list",)):
        code, printed = ocssl("paper", *command)
        assert code == 0
        assert "results that disagree: Final 50.00 in 'results/mine.json' and 47.50 in 'results/yours.json'" in printed
    (results / "yours.json").unlink()
    assert cla_e(read_store(results)).final.by_seed == {0: 50.0, 1: 51.0}


def test_seeds_that_saw_different_streams_have_no_mean(tmp_path: Path, ocssl: Ocssl) -> None:
    results = tmp_path / "results"
    for seed, stream in enumerate(("whole", "whole", "half")):
        put(results, f"{stream}{seed}", content(seed=seed, final=50.0 + seed) | {"fingerprint": stream})
    put(results, "er", content(strategy="er", lr=0.1, omega=None) | {"fingerprint": "whole"})
    store = read_store(results)
    cell = cla_e(store)
    assert (cell.final.mean, cell.runs) == (None, {})
    assert len(cell.problems) == len(store.problems) == 1
    assert {path.stem for path in cell.problems[0].paths} == {"whole0", "whole1", "half2"}
    said = "one experiment saw different streams: 'results/half2.json' and 'results/whole0.json'"
    assert said in ocssl("paper", "show", "high-simsiam")[1]
    (results / "half2.json").unlink()
    assert cla_e(read_store(results)).final.by_seed == {0: 50.0, 1: 51.0}


def test_a_file_of_tuned_values_with_another_name_is_told_and_not_used(tmp_path: Path) -> None:
    put(tmp_path, "a", content(final=50.0, lr=0.2))
    (tmp_path / "tuned").mkdir()
    for name, lr in (("clean", 0.2), ("clean@old", 0.9)):
        (tmp_path / "tuned" / f"high-simsiam@cifar100@{name}.yaml").write_text(f"cla-e: {{lr: {lr}}}\n")
    store = read_store(tmp_path)
    assert cla_e(store, tuning="own").final.by_seed == {0: 50.0}
    assert ["must be called TABLE@DATASET@PROTOCOL.yaml" in problem.sentence for problem in store.problems] == [True]


def test_copies_of_one_result_count_once_and_trouble_nobody(tmp_path: Path) -> None:
    put(tmp_path, "a", content(final=50.0))
    put(tmp_path / "backup", "a", content(final=50.0))
    store = read_store(tmp_path)
    assert store.problems == ()
    assert cla_e(store).final.by_seed == {0: 50.0}


def test_times_of_different_devices_are_not_averaged(tmp_path: Path) -> None:
    for seed, gpu in enumerate(("one", "another")):
        found = content(seed=seed)
        put(tmp_path, gpu, found | {"hardware": found["hardware"] | {"gpu": gpu}})
    assert cla_e(read_store(tmp_path)).seconds.mean is None
    (tmp_path / "another.json").unlink()
    assert cla_e(read_store(tmp_path)).seconds.mean == content()["train_seconds"]


@pytest.mark.parametrize(
    ("settings", "hardware", "alike"),
    [
        ({"execution": "auto"}, {}, False),
        ({"precision": "fp32"}, {}, False),
        ({}, {"processes": 4}, False),
        ({"precision": "bf16"}, {}, True),
    ],
)
def test_times_of_runs_that_were_run_in_different_ways_are_not_averaged(
    tmp_path: Path, settings: dict[str, str], hardware: dict[str, int], alike: bool
) -> None:
    put(tmp_path, "compiled", content() | {"train_seconds": 80.0})
    found = content(seed=1, **settings)
    put(tmp_path, "otherwise", found | {"train_seconds": 160.0, "hardware": found["hardware"] | hardware})
    cell = cla_e(read_store(tmp_path))
    assert set(cell.final.by_seed) == {0, 1}
    assert cell.seconds.mean == (120.0 if alike else None)


def test_the_time_of_a_run_that_shared_its_device_does_not_count(tmp_path: Path) -> None:
    for seed, seconds in enumerate((80.0, 300.0)):
        found = content(seed=seed)
        hardware = found["hardware"] | {"runs_at_once": 1 + seed}
        put(tmp_path, f"{seed}", found | {"train_seconds": seconds, "hardware": hardware})
    cell = cla_e(read_store(tmp_path))
    assert cell.seconds.by_seed == {0: 80.0}
    assert set(cell.final.by_seed) == {0, 1}


def test_results_of_a_set_that_nobody_here_knows_disturb_nothing(tmp_path: Path) -> None:
    put(tmp_path, "foreign", content(dataset="plankton"))
    put(tmp_path, "ours", content(final=50.0))
    assert cla_e(read_store(tmp_path)).final.by_seed == {0: 50.0}


def test_a_folder_that_is_not_there_is_refused(ocssl: Ocssl) -> None:
    code, said = ocssl("paper", "show", "high-simsiam", "--results", "reslts")
    assert code == 2
    assert "'reslts' is not a folder of results" in said
