"""Which results enter a table, which do not, and that the rest are reported."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from helpers.cli import Ocssl
from helpers.results import CLA_E, PUBLISHED, content, put
from ocssl.results import Group, Row, Store, find_table, read_report, read_result, read_results, sections_of
from ocssl.results.charts import chart_data
from ocssl.results.claims import claims
from ocssl.results.result import schema
from ocssl.results.table import Value

OLD = Path(__file__).parents[1] / "data_0_1" / "results" / "cifar100-simsiam-cla-e-fifo-high-authors-seed0.json"


def row_of(store: Store, name: str = "cla-e", *, protocol: str = "clean") -> Row:
    """A row of the high SimSiam table on CIFAR-100."""
    (section,) = (
        section
        for section in sections_of(store, find_table("high-simsiam"))
        if (section.dataset, section.protocol) == ("cifar100", protocol)
    )
    (row,) = (row for row in section.rows if row.name == name)
    return row


def cla_e(folder: Path) -> Group:
    """The results of CLA-E in the first table."""
    return row_of(read_results(folder)).ours


def with_setting(**settings: object) -> dict[str, object]:
    found = content()
    return found | {"config": found["config"] | settings}


def without(name: str, *names: str) -> dict[str, object]:
    """A result without a key or, below `config`, without a setting."""
    found = content()
    if names:
        del found[name][names[0]]
    else:
        del found[name]
    return found


def test_the_published_results_are_complete_and_stand_in_their_tables() -> None:
    store = read_results(PUBLISHED)
    assert store.problems == ()
    placed = {
        path
        for name in ("high-simsiam", "low-simsiam")
        for section in sections_of(store, find_table(name))
        for group in section.groups
        for path in group.paths
    }
    assert {CLA_E, PUBLISHED / "cifar100-simsiam-cla-e-fifo-low-clean-seed0.json"} <= placed


@pytest.mark.parametrize("table", ["high-simsiam", "low-simsiam"])
def test_the_published_tables_have_three_seeds_of_every_row_from_committed_code(table: str) -> None:
    (ours,) = [
        section
        for section in sections_of(read_results(PUBLISHED), find_table(table))
        if (section.dataset, section.protocol) == ("cifar100", "clean")
    ]
    assert [row.name for row in ours.rows] == [row.name for row in find_table(table).rows]
    assert [row.name for row in ours.rows for group in row.groups if tuple(group.runs) != (0, 1, 2)] == []
    assert [run.path for group in ours.groups for run in group.runs.values() if "dirty" in run.result.code] == []


def test_the_published_files_are_called_as_their_results_are() -> None:
    files = [file for file in read_results(PUBLISHED).files if file.path.parent == PUBLISHED]
    assert len(files) > 100
    assert [file.path.stem for file in files] == [file.result.name for file in files]


def test_a_result_is_the_same_after_writing_and_reading(tmp_path: Path) -> None:
    result = read_result(CLA_E)
    (tmp_path / "again.json").write_text(result.to_json())
    assert read_result(tmp_path / "again.json") == result
    assert (result.strategy, result.method, result.memory, result.protocol, result.seed, result.block) == (
        "cla-e",
        "simsiam",
        "fifo",
        "clean",
        0,
        (10, 138, 3),
    )


def test_the_schema_takes_a_result_and_refuses_one_without_its_protocol() -> None:
    jsonschema.validate(content(), schema())
    spoiled = without("config", "protocol"), with_setting(protocol="mine"), without("overrides"), content(final=120.0)
    for found in spoiled:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(found, schema())


def test_results_are_read_and_joined_without_torch(tmp_path: Path) -> None:
    put(tmp_path, "a", content(final=50.0))
    program = (
        "import sys; from ocssl.results import read_report; from ocssl.results.render.html import html_report; "
        f"assert '50.00' in html_report(read_report({str(tmp_path)!r})); "
        "print(*[name for name in ('torch', 'ocssl.runs', 'ocssl.learner') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_row_has_mean_and_sample_deviation_over_its_seeds(tmp_path: Path) -> None:
    for seed, final, avg in ((0, 50.0, 40.0), (1, 51.0, 43.0), (2, 53.5, 43.0)):
        put(tmp_path, f"a{seed}", content(seed=seed, final=final, avg=avg))
    row = row_of(read_results(tmp_path))
    final, avg = Value.over(row.ours.final), Value.over(row.ours.avg)
    assert list(row.ours.runs) == [0, 1, 2]
    assert final.mean == pytest.approx(51.5)
    assert final.std == pytest.approx(math.sqrt((1.5**2 + 0.5**2 + 2.0**2) / 2))
    assert avg.mean == pytest.approx(42.0)
    assert row.published["final"].mean == 43.1
    assert (row.published["avg"].mean, row.published["avg"].std) == (36.0, 0.2)


def test_one_seed_has_no_deviation(tmp_path: Path) -> None:
    put(tmp_path, "a", content(final=50.0))
    assert Value.over(cla_e(tmp_path).final).std is None


def test_of_a_runs_own_folder_only_the_result_is_read(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "one"
    (run / "checkpoints" / "000001").mkdir(parents=True)
    (run / "config.yaml").write_text("seed: 0\n")
    (run / "checkpoints" / "000001" / "state.json").write_text("{}")
    put(run, "result", content(final=50.0))
    assert read_results(tmp_path).problems == ()
    assert cla_e(tmp_path).final == {0: 50.0}


def test_protocols_never_meet_in_one_number(tmp_path: Path) -> None:
    put(tmp_path, "clean", content(final=50.0))
    put(tmp_path, "authors", content(final=40.0, protocol="authors"))
    store = read_results(tmp_path)
    assert row_of(store).ours.final == {0: 50.0}
    assert row_of(store, protocol="authors").ours.final == {0: 40.0}


def test_how_fast_a_run_was_made_makes_no_other_experiment_but_everything_else_does(tmp_path: Path) -> None:
    put(tmp_path, "quick", content(seed=0, execution="eager", precision="fp32", device="cpu", data_root="elsewhere"))
    for seed, other in enumerate(
        ({"memory_size": 500}, {"data_seed": 3}, {"measure_on": "validation"}, {"tau": 0.9}), 1
    ):
        put(tmp_path, f"other{seed}", content(seed=seed, **other))
    assert list(cla_e(tmp_path).runs) == [0]


def test_the_untrained_encoder_is_what_runs_measured_before_their_first_image(tmp_path: Path) -> None:
    put(tmp_path, "a", content(seed=0) | {"references": {"untrained": 15.0}})
    put(tmp_path, "b", content(seed=1) | {"references": {"untrained": 13.0}})
    random = row_of(read_results(tmp_path), "random")
    assert random.ours.final == {0: 15.0, 1: 13.0}
    assert (random.ours.avg, random.ours.cbp, random.ours.curve, random.ours.seconds) == ({}, None, None, {})
    assert random.published["final"].mean == 15.4


def test_a_result_older_than_the_setting_of_conv1_began_with_the_same_untrained_encoder(tmp_path: Path) -> None:
    older = without("config", "conv1_init") | {"references": {"untrained": 15.0}}
    put(tmp_path, "older", older)
    put(tmp_path, "b", content(seed=1) | {"references": {"untrained": 13.0}})
    assert "conv1_init" not in older["config"]
    assert row_of(read_results(tmp_path), "random").ours.final == {0: 15.0, 1: 13.0}


def test_runs_that_disagree_about_the_untrained_encoder_leave_its_row_without_that_seed(tmp_path: Path) -> None:
    put(tmp_path, "a", content() | {"references": {"untrained": 15.0}})
    put(tmp_path, "b", content(strategy="cla-r") | {"references": {"untrained": 17.0}})
    random = row_of(read_results(tmp_path), "random").ours
    assert random.final == {}
    assert "have 15.00 and 17.00 for the same untrained encoder" in random.problems[0].sentence
    assert cla_e(tmp_path).final == {0: 50.0}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CLA_E.read_text()[:700], "not whole JSON"),
        ("", "not whole JSON"),
        ("[" * 100_000, "not whole JSON"),
        ("[1, 2]", "is not a complete result: not a JSON object"),
        (json.dumps({"strategy": "cla-e", "protocol": "clean"}), "is not a complete result"),
        (json.dumps(without("key")), "is not a complete result: key"),
        (
            json.dumps(content() | {"mood": 1}),
            "is not a complete result: mood: unknown to this version of ocssl; upgrade it",
        ),
        (json.dumps(without("config", "protocol")), "complete result: config: the setting 'protocol' is missing"),
        (json.dumps(content() | {"final": "fifty"}), "is not a complete result: final"),
        (json.dumps(content() | {"hardware": {"threads": "many"}}), "threads must be a whole number, not 'many'"),
        (json.dumps(with_setting(eval_crops=None)), "eval_crops must be a whole number, not None"),
        (json.dumps(with_setting(early_images="ten")), "early_images must be a whole number, not 'ten'"),
        (json.dumps(with_setting(passes=0)), "passes must be a whole number of at least 1, not 0"),
        (json.dumps(with_setting(stream_batch="ten")), "stream_batch must be a whole number of at least 1, not 'ten'"),
        (json.dumps(with_setting(lr="high")), "lr must be a number, not 'high'"),
        (json.dumps(with_setting(omega=[1])), "omega must be a number, not [1]"),
        (json.dumps(with_setting(init_from=3)), "init_from must be a name, not 3"),
        (json.dumps(content() | {"dataset": "shapes"}), "dataset is shapes, but the run trained on cifar100"),
        (json.dumps(content() | {"dataset": "svhn->cars"}), "dataset is svhn->cars, but the run trained on cifar100"),
        (json.dumps(content() | {"final": 61.0}), "final is 61.0, but the curve ends with 50.0"),
        (json.dumps(content() | {"curve": []}), "final is 50.0, but the curve ends with None"),
        (json.dumps(content() | {"avg": 44.0}), "avg is 44.0, but the mean of the curve is 43."),
        (
            json.dumps(content() | {"knn": {"final": 9.0, "avg": None, "curve": [8.0]}}),
            "knn: final is 9.0, but the curve",
        ),
        (json.dumps(content() | {"knn": {"final": 8.0, "avg": 7.0, "curve": [8.0]}}), "knn: avg is 7.0, but the mean"),
        (json.dumps(content() | {"borders": [9, 18]}), "the curve has 20 points, but borders only 2"),
        (json.dumps(content() | {"samples": 0}), "is not a complete result: samples"),
        (json.dumps(content(final=250.0)), "is not a complete result: final"),
        (json.dumps(content(final=-1.0)), "is not a complete result: final"),
        (json.dumps(content(final=math.nan)), "is not a complete result: final"),
        (json.dumps(content(avg=math.inf)), "is not a complete result: avg"),
        (json.dumps(content() | {"references": {"untrained": math.nan}}), "is not a complete result: references"),
        (json.dumps(content() | {"train_seconds": math.nan}), "is not a complete result: train_seconds"),
        (json.dumps(content() | {"format": 3}), "is of format 3, and this version of ocssl reads 1 and 2; upgrade it"),
        (OLD.read_text().replace('"strategy": "cla-e"', '"strategy": "cla-ee"'), "unknown strategy 'cla-ee'"),
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
    assert cla_e(tmp_path / "results").final == {2: 50.0}


def test_results_that_disagree_are_reported_and_neither_counts(tmp_path: Path, ocssl: Ocssl) -> None:
    results = tmp_path / "results"
    put(results, "mine", content(final=50.0))
    put(results, "yours", content(final=47.5))
    put(results, "third", content(final=51.0, seed=1))
    group = cla_e(results)
    assert group.final == {1: 51.0}
    assert [sorted(path.name for path in problem.paths) for problem in group.problems] == [["mine.json", "yours.json"]]
    for command in (("show", "high-simsiam"), ("list",)):
        code, printed = ocssl("paper", *command)
        assert code == 0
        assert "results that disagree: Final 50.00 in 'results/mine.json' and 47.50 in 'results/yours.json'" in printed
    (results / "yours.json").unlink()
    assert cla_e(results).final == {0: 50.0, 1: 51.0}


def test_results_that_disagree_by_knn_alone_do_not_count_and_one_without_knn_is_a_copy(tmp_path: Path) -> None:
    put(tmp_path, "mine", content(final=50.0))
    put(tmp_path, "none", content(final=50.0) | {"knn": None})
    group = cla_e(tmp_path)
    assert (group.problems, group.final, set(group.knn_final)) == ((), {0: 50.0}, {0})
    put(tmp_path, "yours", content(final=50.0) | {"knn": {"final": 9.0, "avg": None, "curve": [9.0]}})
    group = cla_e(tmp_path)
    assert (group.final, group.knn_final) == ({}, {})
    (problem,) = group.problems
    assert f"k-NN Final {content()['knn']['final']:.2f} in '{tmp_path / 'mine.json'}' and" in problem.sentence


def test_seeds_that_saw_different_streams_have_no_mean(tmp_path: Path, ocssl: Ocssl) -> None:
    results = tmp_path / "results"
    for seed, stream in enumerate(("whole", "whole", "half")):
        put(results, f"{stream}{seed}", content(seed=seed, final=50.0 + seed) | {"fingerprint": stream})
    put(results, "er", content(strategy="er", memory="fifo") | {"fingerprint": "whole"})
    store = read_results(results)
    group = row_of(store).ours
    assert (group.final, group.runs) == ({}, {})
    assert len(group.problems) == len(store.problems) == 1
    assert {path.stem for path in group.problems[0].paths} == {"whole0", "whole1", "half2"}
    assert list(row_of(store, "er-fifo").ours.runs) == [0]
    said = "one experiment saw different streams: 'results/half2.json' and 'results/whole0.json'"
    assert said in ocssl("paper", "show", "high-simsiam")[1]
    (results / "half2.json").unlink()
    assert cla_e(results).final == {0: 50.0, 1: 51.0}


def test_seeds_with_an_order_of_their_own_have_a_mean(tmp_path: Path) -> None:
    for seed in range(3):
        mine = content(seed=seed, final=50.0 + seed) | {"fingerprint": f"of seed {seed}"}
        mine["config"]["sample_order"] = "seed"
        put(tmp_path, f"mine{seed}", mine)
    (group,) = read_results(tmp_path).groups.values()
    assert (group.final, group.problems) == ({0: 50.0, 1: 51.0, 2: 52.0}, ())
    put(tmp_path, "again", mine | {"fingerprint": "another"})
    (group,) = read_results(tmp_path).groups.values()
    assert group.final == {}


def test_seeds_that_saw_other_pixels_have_no_mean(tmp_path: Path) -> None:
    for seed, pixels in enumerate(("a", "a", None)):
        known = None if pixels is None else {"train": pixels}
        put(tmp_path, f"mine{seed}", content(seed=seed, final=50.0 + seed) | {"pixels": known})
    assert cla_e(tmp_path).final == {0: 50.0, 1: 51.0, 2: 52.0}
    put(tmp_path, "other", content(seed=3, final=50.0) | {"pixels": {"train": "b"}})
    assert cla_e(tmp_path).final == {}


def test_a_file_of_tuned_values_with_another_name_is_reported_and_not_used(tmp_path: Path) -> None:
    put(tmp_path, "a", content(final=50.0, lr=0.2))
    (tmp_path / "tuned").mkdir()
    for name, lr in (("clean", 0.2), ("clean@old", 0.9)):
        (tmp_path / "tuned" / f"high-simsiam@cifar100@{name}.yaml").write_text(f"cla-e: {{lr: {lr}}}\n")
    store = read_results(tmp_path)
    row = row_of(store)
    assert row.tuned is not None
    assert (row.ours.final, row.tuned.final) == ({}, {0: 50.0})
    assert row.tuned_values == {"lr": 0.2, "omega": 0.3}
    assert ["must be called TABLE@DATASET@PROTOCOL.yaml" in problem.sentence for problem in store.problems] == [True]


def test_copies_of_one_result_count_once_and_are_no_problem(tmp_path: Path) -> None:
    put(tmp_path, "a", content(final=50.0))
    put(tmp_path / "backup", "a", content(final=50.0))
    assert read_results(tmp_path).problems == ()
    assert cla_e(tmp_path).final == {0: 50.0}


def test_times_of_different_devices_are_not_averaged(tmp_path: Path) -> None:
    for seed, gpu in enumerate(("one", "another")):
        found = content(seed=seed)
        put(tmp_path, gpu, found | {"hardware": found["hardware"] | {"gpu": gpu}})
    assert cla_e(tmp_path).seconds == {}
    (tmp_path / "another.json").unlink()
    assert cla_e(tmp_path).seconds == {0: content()["train_seconds"]}


@pytest.mark.parametrize(("gpu", "alike"), [(None, False), ("one", True)])
def test_times_of_a_cpu_are_of_one_number_of_threads(tmp_path: Path, gpu: str | None, alike: bool) -> None:
    for seed, threads in enumerate((1, 8)):
        put(tmp_path, f"{threads}", content(seed=seed) | {"hardware": {"cpu": "a", "gpu": gpu, "threads": threads}})
    group = cla_e(tmp_path)
    assert (len(group.devices), len(group.seconds)) == ((1, 2) if alike else (2, 0))


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
    group = cla_e(tmp_path)
    assert set(group.final) == {0, 1}
    assert group.seconds == ({0: 80.0, 1: 160.0} if alike else {})


def test_the_time_of_a_run_that_shared_its_device_does_not_count(tmp_path: Path) -> None:
    for seed, seconds in enumerate((80.0, 300.0)):
        found = content(seed=seed)
        hardware = found["hardware"] | {"runs_at_once": 1 + seed}
        put(tmp_path, f"{seed}", found | {"train_seconds": seconds, "hardware": hardware})
    group = cla_e(tmp_path)
    assert group.seconds == {0: 80.0}
    assert set(group.final) == {0, 1}


def test_a_run_that_took_no_time_has_no_time(tmp_path: Path) -> None:
    put(tmp_path, "0", content() | {"train_seconds": 0.0})
    for path in PUBLISHED.glob("cifar100-simsiam-cla-e-*-evaluatenever-samples_per_class50-seed0.json"):
        put(tmp_path, path.stem, json.loads(path.read_text()) | {"train_seconds": 0.0})
    group = cla_e(tmp_path)
    assert (group.seconds, group.devices, set(group.final)) == ({}, (), {0})
    assert {claim.name: claim.answer for claim in claims(read_results(tmp_path))}["time"] == "not run yet"


def test_a_result_may_lack_the_settings_of_parts_that_others_have(tmp_path: Path) -> None:
    for name, changes in {"tried": {"measure_on": "validation"}, "early": {"early_images": 10}}.items():
        found = with_setting(**changes)
        for missing in ("lr", "omega", "early_passes"):
            found["config"].pop(missing, None)
        put(tmp_path / name, name, found)
        report = read_report(tmp_path / name)
        assert not report.problems
        assert {claim.name: claim.answer for claim in claims(report.store)}["lr"] == "not run yet"
        assert any(one["step"]["mean"] for one in chart_data(report)["series"])


def test_results_of_an_unknown_data_set_have_sections_of_their_own(tmp_path: Path) -> None:
    found = content(final=70.0)
    put(tmp_path, "foreign", found | {"dataset": "plankton", "config": found["config"] | {"dataset": "plankton"}})
    put(tmp_path, "ours", content(final=50.0))
    store = read_results(tmp_path)
    assert row_of(store).ours.final == {0: 50.0}
    found = [section for section in sections_of(store, find_table("high-simsiam")) if section.dataset == "plankton"]
    assert [section.protocol for section in found] == ["clean"]
    assert [row.ours.final for row in found[0].rows if row.name == "cla-e"] == [{0: 70.0}]


def test_a_folder_that_is_not_there_is_refused(ocssl: Ocssl) -> None:
    code, said = ocssl("paper", "show", "high-simsiam", "--results", "reslts")
    assert code == 2
    assert "'reslts' is not a folder of results" in said
