"""Sweep files: strict to read, and exact about which runs they mean."""

from __future__ import annotations

import math
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ocssl.common.yaml import assignments
from ocssl.errors import ConfigError
from ocssl.methods import Method
from ocssl.results.names import row_name
from ocssl.results.published import read_csv
from ocssl.runs.config import read_settings
from ocssl.runs.presets import online_cost, resolve
from ocssl.sweeps.driver import read_started
from ocssl.sweeps.log import TrialLog
from ocssl.sweeps.plan import Sweep, parse_sweep, read_sweep, shipped
from ocssl.sweeps.space import Range, Scalar

EXAMPLES = Path(__file__).parents[2] / "examples" / "slurm"
PUBLISHED = Path(__file__).parents[2] / "results" / "tuning" / "high-simsiam-clean"
GRID = {"settings": {"strategy": "cla-e"}, "space": {"lr": [0.1, 0.3], "omega": [0.3, 1.0, 3.0]}}


def test_a_grid_is_every_combination_once_with_the_last_setting_fastest() -> None:
    listed = parse_sweep(GRID).listed()
    assert [(values["lr"], values["omega"]) for values in listed] == [
        (0.1, 0.3),
        (0.1, 1.0),
        (0.1, 3.0),
        (0.3, 0.3),
        (0.3, 1.0),
        (0.3, 3.0),
    ]


def test_runs_of_a_sweep_are_judged_on_validation_images_only() -> None:
    sweep = parse_sweep(GRID)
    config = resolve(sweep.run_settings({"lr": 0.1, "omega": 1.0}, seed=7))
    found = config.to_dict()
    assert (config.measure_on, found["seed"], found["lr"], found["omega"]) == ("validation", 7, 0.1, 1.0)
    assert resolve(sweep.configuration({"lr": 0.1, "omega": 1.0})).measure_on == "test"


def test_a_dot_reaches_into_a_group_and_leaves_the_rest_of_it() -> None:
    settings = {"strategy": "lump", "batch": 10, "probe": {"batch": 32}}
    sweep = parse_sweep({"settings": settings, "space": {"alpha": [0.2, 0.4], "probe.lr": [0.1]}})
    values = sweep.listed()[1]
    assert values == {"alpha": 0.4, "probe.lr": 0.1}
    config = resolve(sweep.run_settings(values, seed=0))
    assert config.to_dict()["alpha"] == 0.4
    assert (config.probe.lr, config.probe.batch) == (0.1, 32)
    assert resolve(sweep.configuration(values)).to_dict()["alpha"] == 0.4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"spaec": {}}, "unknown setting 'spaec'; did you mean 'space'"),
        ({"search": "gird"}, "search must be 'grid', 'random' or 'tpe', not 'gird'"),
        ({"settings": {"stratgey": "er"}}, "unknown setting 'stratgey'; did you mean 'strategy'"),
        ({"settings": {"strategy": "cla-f"}}, "unknown strategy 'cla-f'; did you mean 'cla-"),
        ({"space": {"omgea": [1.0]}}, "unknown setting 'omgea'; did you mean 'omega'"),
        ({"space": {}}, "space is empty"),
        ({"space": {"lr": []}}, "space.lr is empty"),
        ({"space": {"lr": 0.1}}, "space.lr must be a list of values"),
        ({"space": {"lr": [0.1, [0.2]]}}, "space.lr must list plain values"),
        ({"space": {"lr": [0.1, float("nan")]}}, "space.lr must list finite numbers"),
        ({"space": {"lr": [0.1, 0.1]}}, "space.lr lists a value twice"),
        ({"space": {"lr": [0.1, "fast"]}}, "lr must be a number of at least 0, not "),
        ({"space": {"lr": {"low": 0.1, "high": 1}}}, "grid search needs a list of values for space.lr"),
        ({"space": {"lr": {"low": 0.1, "hihg": 1}}}, "unknown setting 'space.lr.hihg'; did you mean 'space.lr.high'"),
        ({"space": {"lr": {"low": 1, "high": 0.1}}, "search": "random", "trials": 2}, "low < high"),
        ({"space": {"lr": {"low": 0, "high": 1, "scale": "log"}}}, "0 < low < high"),
        ({"space": {"lr": {"low": 0.1}}}, "space.lr.high must be a number"),
        ({"space": {"lr": {"low": 0.1, "high": True}}}, "space.lr.high must be a number, not True"),
        (
            {"space": {"lr": {"low": 0.1, "high": 1, "scale": "lgo"}}},
            "space.lr.scale must be 'linear' or 'log', not 'lgo'",
        ),
        ({"space": {"lr": {"low": 0.1, "high": 1, "whole": 1}}}, "space.lr.whole must be True or False, not 1"),
        ({"space": ["lr"]}, "space must be"),
        ({"search": "random", "trials": 2, "space": {"batch": {"low": 20.5, "high": 30}}}, "high must be whole, too"),
        ({"space": {"tau": [0.9, 5.0]}}, "tau must be a number from 0 to 1, not 5.0"),
        ({"space": {"momentum": [0.9, -1.0]}}, "momentum must be a number of at least 0, not -1.0"),
        ({"space": {"backbone": ["convnet-w4", "resnet17"]}}, "unknown backbone 'resnet17'"),
        ({"space": {"memory_size": [500, 100]}}, "memory_size (100) is too small for strategy 'cla-e' to ever replay"),
        (
            {"settings": {"batch": 32}, "space": {"strategy": ["er", "cla-e", "finetune"]}},
            "batch (32) must equal stream_batch (10)",
        ),
        (
            {"settings": {"strategy": "er", "foo": 1}, "space": {"lr": [0.1]}},
            "unknown setting 'foo'",
        ),
        ({"settings": {"strategy": "er"}}, "strategy 'er' does not read omega"),
        ({"search": "tpe", "trials": 2, "space": {"lr": [0.1, "fast"]}}, "lr must be a number of at least 0, not "),
        ({"search": "tpe", "trials": 2, "space": {"tau": {"low": 0.5, "high": 2}}}, "tau must be a number from 0 to 1"),
        ({"space": {"temprature": [0.1]}}, "unknown setting 'temprature'; did you mean 'temperature'"),
        ({"space": {"temperature": [0.1]}}, "does not read temperature"),
        ({"space": {"porbe.lr": [0.1]}}, "unknown setting 'porbe'; did you mean 'probe'"),
        ({"space": {"probe.rl": [0.1]}}, "unknown setting 'probe.rl'; did you mean 'probe.lr'"),
        ({"space": {"lr.fast": [0.1]}}, "lr must be a number of at least 0, not "),
        (
            {"settings": {"probe": {"lr": 1.0}}, "space": {"probe.lr": [0.1]}},
            "'probe.lr' is fixed under settings and varies under space",
        ),
        ({"space": {"probe": [1], "probe.lr": [0.1]}}, "'probe' varies under space as a whole and as"),
        (
            {"settings": {"strategy": "lump"}, "space": {"alpha": [0.4, "much"]}},
            "alpha must be a number above 0, not 'much'",
        ),
        ({"space": {"seed": [0, 1]}}, "'seed' cannot be set in a sweep: list it under seeds"),
        ({"settings": {"measure_on": "test"}}, "scored on the validation images, always"),
        ({"settings": {"lr": 0.1}}, "'lr' is fixed under settings and varies under space"),
        ({"settings": {"evaluate": "never"}}, "score 'final' needs evaluate: final, not never"),
        ({"settings": {"evaluate": "final"}, "score": "avg"}, "score 'avg' needs evaluate: each, not final"),
        ({"seeds": []}, "seeds must be a list"),
        ({"seeds": 3}, "seeds must be a list, each a whole number of at least 0, not 3"),
        ({"seeds": [0, -1]}, "seeds must be a list, each a whole number of at least 0, not -1"),
        ({"seeds": [1, 1]}, "seeds lists one twice"),
        ({"seeds": [0, 2**80]}, "seed must be a whole number from 0 to "),
        ({"trials": 5}, "leave trials out"),
        ({"search": "random"}, "random search needs trials"),
        ({"search": "random", "trials": 7}, "the space has 6 configurations, so trials cannot be 7"),
        ({"search": "tpe", "trials": 7}, "the space has 6 configurations, so trials cannot be 7"),
        ({"extra": [{"lr": 1.0}]}, "extra must give each of lr, omega, and nothing else, not {'lr': 1.0}"),
        ({"extra": [{"lr": "fast", "omega": 1.0}]}, "lr must be a number of at least 0, not "),
        ({"extra": [{"lr": [1.0], "omega": 1.0}]}, "extra must be a list"),
        ({"extra": {"lr": 1.0, "omega": 1.0}}, "extra must be a list"),
        ({"search": "random", "trials": 2, "extra": [{"lr": 1.0, "omega": 1.0}]}, "extra is for a grid"),
        ({"extra": [], "also": [{"lr": 1.0, "omega": 1.0}]}, "also is the name of extra in version 0.1"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_sweep(GRID | change)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_missing_file_is_refused_with_the_names_of_those_that_are_shipped(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="paper-tuning, paper-tuning-lr, shapes-tuning"):
        read_sweep(tmp_path / "nothing.yaml")
    with pytest.raises(ConfigError, match="paper-tuning"):
        read_sweep("paper-tunning")


@pytest.mark.parametrize("contents", [b"", b"- grid\n", b"\xff\xfe"])
def test_a_started_sweep_whose_file_was_spoilt_is_named(tmp_path: Path, contents: bytes) -> None:
    (tmp_path / "sweep.yaml").write_bytes(contents)
    with pytest.raises(ConfigError, match=f"'{tmp_path / 'sweep.yaml'}'"):
        read_started(tmp_path)


def drawn(space: dict[str, Any], trials: int, seed: int = 0, **settings: object) -> list[dict[str, Scalar]]:
    return Sweep(search="random", space=space, trials=trials, seed=seed, settings=settings).listed()


def test_random_draws_are_different_from_each_other_and_the_same_for_a_seed() -> None:
    space = {"lr": {"low": 0.001, "high": 1, "scale": "log"}, "memory": ["fifo", "reservoir"]}
    assert drawn(space, 50, seed=3) == drawn(space, 50, seed=3)
    assert drawn(space, 50, seed=3) != drawn(space, 50, seed=4)
    assert len({tuple(values.values()) for values in drawn(space, 50)}) == 50
    assert len(drawn({"lr": [1, 2], "omega": [1, 2]}, 4)) == 4


STRATEGIES = {"strategy": ["er", "cla-e", "cla-r"], "omega": [0.3, 1.0], "tau": [0.9]}


def test_a_setting_is_left_out_where_it_is_not_read_and_equal_configurations_are_tried_once() -> None:
    assert parse_sweep({"space": STRATEGIES}).listed() == [
        {"strategy": "er"},
        {"strategy": "cla-e", "omega": 0.3, "tau": 0.9},
        {"strategy": "cla-e", "omega": 1.0, "tau": 0.9},
        {"strategy": "cla-r", "omega": 0.3},
        {"strategy": "cla-r", "omega": 1.0},
    ]
    wider = parse_sweep({"space": STRATEGIES, "extra": [{"strategy": "minred", "omega": 1.0, "tau": 0.9}]})
    assert wider.listed()[-1] == {"strategy": "minred"}


def test_random_configurations_differ_though_settings_are_left_out() -> None:
    found = drawn(STRATEGIES, 5)
    assert len(found) == 5
    assert all(values in parse_sweep({"space": STRATEGIES}).listed() for values in found)
    with pytest.raises(ConfigError, match="the space has 5 configurations, so trials cannot be 6"):
        parse_sweep({"search": "random", "trials": 6, "space": STRATEGIES})
    whole = STRATEGIES | {"passes": {"low": 1, "high": 2}}
    assert len(parse_sweep({"search": "random", "trials": 10, "space": whole}).listed()) == 10
    with pytest.raises(ConfigError, match="the space has 10 configurations, so trials cannot be 11"):
        parse_sweep({"search": "random", "trials": 11, "space": whole})


@pytest.mark.parametrize("search", ["random", "tpe"])
def test_the_range_of_a_setting_of_whole_numbers_is_of_whole_numbers(search: str) -> None:
    ends = {"low": 20, "high": 60}
    space = {
        "batch": ends,
        "cbp": ends,
        "probe.batch": ends,
        "lr": {"low": 1, "high": 2},
        "omega": {"low": 1, "high": 2},
    }
    sweep = parse_sweep({"search": search, "trials": 3, "space": space})
    assert {name for name, entry in sweep.space.items() if entry.whole} == {"batch", "cbp", "probe.batch"}
    # Files of earlier versions say so themselves, for settings of any numbers, too.
    said = {name: entry | {"whole": True} for name, entry in space.items()}
    assert all(entry.whole for entry in parse_sweep({"search": search, "trials": 3, "space": said}).space.values())


def test_what_no_configuration_reads_is_refused_and_not_left_out() -> None:
    with pytest.raises(ConfigError, match="'er' does not read omega"):
        parse_sweep({"settings": {"strategy": "er"}, "space": {"memory": ["fifo", "reservoir"], "omega": [1.0, 3.0]}})


def test_sweeps_of_version_0_1_are_read() -> None:
    found = {folder.name: read_started(folder) for folder in PUBLISHED.iterdir()}
    assert found["cla-e"].extra == [{"lr": 1.0, "omega": 0.3}]
    for name, sweep in found.items():
        log = TrialLog(PUBLISHED / name / "trials.jsonl")
        values = [trial.values for trial in log.trials if trial.state == "done"]
        assert sorted(map(str, values)) == sorted(map(str, sweep.listed()))
    assert parse_sweep(GRID | {"search": "adaptive", "trials": 2}).search == "tpe"


@pytest.mark.parametrize(
    ("given", "quantiles"),
    [
        (Range(low=0.001, high=10.0, scale="log"), [0.01, 0.1, 1.0]),
        (Range(low=-2.0, high=6.0), [0.0, 2.0, 4.0]),
    ],
)
def test_draws_are_uniform_on_their_scale(given: Range, quantiles: list[float]) -> None:
    rng = np.random.default_rng(0)
    values = [given.draw(rng) for _ in range(4000)]
    assert given.low <= min(values)
    assert max(values) <= given.high
    shares = [np.mean(np.array(values) < border) for border in quantiles]
    assert np.allclose(shares, [0.25, 0.5, 0.75], atol=0.03)


def test_whole_numbers_include_both_ends_with_equal_chance() -> None:
    rng = np.random.default_rng(0)
    values = [Range(low=1, high=4, whole=True).draw(rng) for _ in range(4000)]
    assert {type(value) for value in values} == {int}
    assert np.allclose([values.count(number) / 4000 for number in (1, 2, 3, 4)], 0.25, atol=0.03)


def test_a_sweep_survives_its_file(tmp_path: Path) -> None:
    given = GRID | {
        "search": "random",
        "trials": 3,
        "seeds": [0, 5],
        "space": {"lr": {"low": 1e-3, "high": 1, "scale": "log"}, "omega": [1.0]},
    }
    (tmp_path / "sweep.yaml").write_text(parse_sweep(given).to_yaml())
    assert read_sweep(tmp_path / "sweep.yaml") == parse_sweep(given)


def test_settings_given_beside_the_file_win() -> None:
    sweep = read_sweep("paper-tuning", {"strategy": "cla-r", "budget": "low"})
    assert (sweep.settings["strategy"], sweep.settings["budget"], sweep.settings["method"]) == (
        "cla-r",
        "low",
        "simsiam",
    )


def test_the_best_of_an_earlier_sweep_lies_beneath_the_files_own_settings() -> None:
    base = {"strategy": "cla-r", "budget": "low", "lr": 7.0, "omega": 7.0, "memory_size": 500}
    sweep = read_sweep("paper-tuning", {"budget": "low"}, base)
    assert sweep.settings == {
        "memory_size": 500, "dataset": "cifar100", "strategy": "cla-e", "method": "simsiam", "budget": "low"
    }  # fmt: skip
    assert len(sweep.listed()) == 28  # lr and ω vary


MULTIVIEW = {
    "multiview-objective": 270_000,
    "multiview-shape": 270_000,
    "multiview-memory": 270_000,
    "multiview-low": 270_000,
    "multiview-middle": 1_242_000,
    "multiview-high": 3_726_000,
    "multiview-high-memory": 3_726_000,
    "multiview-average": 1_242_000,
    "multiview-high-again": 3_726_000,
    "multiview-sgd": 1_242_000,
    "multiview-high-rate": 3_726_000,
}
BEST = {
    "method": "simclr", "temperature": 0.1, "projector_layers": 2, "budget": "low", "views": 3, "batch": 20,
    "passes": 1, "early_passes": 1, "early_images": 0, "warmup": 200, "memory": "hybrid", "align_to": "average",
    "omega": 0.3,
}  # fmt: skip


TUNING = Path(__file__).parents[2] / "results" / "tuning"
BEFORE = {
    "multiview-shape": "multiview-objective",
    "multiview-memory": "multiview-shape",
    "multiview-low": "multiview-shape",
    "multiview-middle": "multiview-low",
    "multiview-high": "multiview-low",
    "multiview-high-memory": "multiview-high",
    "multiview-average": "multiview-middle",
    "multiview-high-again": "multiview-high-memory",
    "multiview-sgd": "multiview-middle",
    "multiview-high-rate": "multiview-high-again",
}
OWN_BASE = {"multiview-low", "multiview-high-memory", "multiview-average", "multiview-sgd"}  # one objective or shape


def base_of(name: str, kind: str) -> dict[str, Any] | None:
    """What a sweep of the search builds on: nothing, another objective and memory, or what the part before found."""
    if kind == "found":
        return read_settings(TUNING / BEFORE[name] / "best.yaml")
    return BEST if kind == "other" else None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (name, kind)
        for name in BEFORE
        for kind in ("alone", "other", "found")
        if kind != "other" or name not in OWN_BASE
    ],
)
def test_every_run_of_the_search_for_many_views_costs_the_same(name: str, kind: str) -> None:
    base = base_of(name, kind)
    sweep = read_sweep(name, base=base)
    configs = [resolve(sweep.run_settings(values, seed=0)) for values in sweep.listed()]
    assert len({config.digest() for config in configs}) == len(configs)
    for config in configs:
        learner = config.learner
        steps = sum(learner.passes_at(seen) for seen in range(0, 45_000, 10))
        assert 0.98 * MULTIVIEW[name] < learner.select(Method.Options).views * learner.batch * steps <= MULTIVIEW[name]
        assert (config.measure_on, config.evaluate) == ("validation", "each" if sweep.score == "avg" else "final")
        if base is not None and "memory" not in sweep.space:
            assert learner.memory == base.get("memory", "reservoir")


def test_the_search_for_many_views_begins_with_every_objective() -> None:
    sweep = read_sweep("multiview-objective")
    found = Counter(values["method"] for values in sweep.listed())
    assert found == {"emp": 6, "simclr": 5, "emp-simclr": 7, "vicreg": 2, "simsiam": 2}
    costs = {(v["views"], resolve(sweep.run_settings(v, seed=0)).learner.batch) for v in sweep.listed()}
    assert costs == {(2, 30), (3, 20), (4, 15)}


@pytest.mark.parametrize("name", ["paper-tuning", "paper-tuning-lr"])
def test_the_papers_tuning_holds_every_value_that_the_paper_chose(name: str) -> None:
    sweep = read_sweep(name)
    assert (sweep.search, sweep.score) == ("grid", "final")
    assert resolve(sweep.run_settings(sweep.listed()[0], seed=0)).validation_fraction == 0.1
    for setting in sweep.space:
        chosen = {float(row[setting]) for row in read_csv("hyperparameters") if row[setting]}
        assert set(sweep.options(setting)) == chosen
    assert len(sweep.listed()) == math.prod(len(sweep.options(setting)) for setting in sweep.space)


def test_every_shipped_file_is_a_sweep() -> None:
    assert shipped() == sorted(["paper-tuning", "paper-tuning-lr", "shapes-tuning", *MULTIVIEW])
    for name in shipped():
        assert read_sweep(name).space


def test_the_array_of_tuning_jobs_has_one_line_for_each_row_of_the_papers_tables() -> None:
    found = []
    for line in (EXAMPLES / "paper-tuning.txt").read_text().splitlines():
        name, *settings = line.split()
        sweep = read_sweep(name, assignments(settings))
        config = resolve(sweep.run_settings(sweep.listed()[0], seed=0))
        sizes = config.budget, *map(str, online_cost(config)[1:])
        row = row_name(config.strategy, config.learner.memory)
        found.append((*sizes, config.learner.method or "-", row, "omega" in sweep.space))
    rows = [row for row in read_csv("hyperparameters") if row["dataset"] == "cifar100"]
    expected = [(*(row[key] for key in ("budget", "b", "n_p", "ssl", "method")), bool(row["omega"])) for row in rows]
    assert found == expected
    assert f"--array=1-{len(found)}" in (EXAMPLES / "tuning-array.sbatch").read_text()


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.sbatch")), ids=lambda script: script.name)
def test_job_files_are_valid_bash(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_a_setting_that_a_plugin_declares_can_be_swept() -> None:
    from ocssl import strategies
    from ocssl.options import setting
    from ocssl.strategies import ExperienceReplay

    @strategies.register("gentle-er")
    class Gentle(ExperienceReplay):
        """ER with a setting of its own."""

        class Options(ExperienceReplay.Options):
            """Its settings."""

            gentleness: float = setting(0.5, "How gentle it is.", ge=0, le=1)

    space = {"strategy": ["er", "gentle-er"], "gentleness": [0.1, 0.9]}
    assert parse_sweep({"space": space}).listed() == [
        {"strategy": "er"},
        {"strategy": "gentle-er", "gentleness": 0.1},
        {"strategy": "gentle-er", "gentleness": 0.9},
    ]
    with pytest.raises(ConfigError, match=r"gentleness must be a number from 0 to 1, not 1\.5"):
        parse_sweep({"space": space | {"gentleness": [0.1, 1.5]}})
    with pytest.raises(ConfigError, match="unknown setting 'gentlenes'; did you mean 'gentleness'"):
        parse_sweep({"settings": {"strategy": "gentle-er"}, "space": {"gentlenes": [0.1]}})
