"""A run's configuration: what is read, what is refused, what decides a number."""

from __future__ import annotations

from pathlib import Path

import pytest

from ocssl.common.yaml import from_file
from ocssl.errors import ConfigError
from ocssl.learner import Learner
from ocssl.runs.config import RunConfig, merged, parse, read_settings, settings, unread
from ocssl.runs.presets import resolve


def test_the_learners_configuration_is_the_only_source_of_its_settings() -> None:
    config = parse({})
    assert config.learner == Learner(device="auto").config
    stored = config.to_dict()
    assert {name: stored[name] for name in type(config.learner).model_fields} == config.learner.to_dict()
    own = set(stored) - set(type(config.learner).model_fields)
    assert own == set(type(config).model_fields) - {"learner"}


def test_every_setting_is_described() -> None:
    for name, entry in settings().items():
        assert entry.description[0].isupper() or entry.description[0] in "`h", name
        assert entry.description.endswith("."), name
        assert entry.values, name


@pytest.mark.parametrize(
    "given",
    [
        {"strategy": "cassle", "protocol": "authors", "from_start": False, "lr": 1e-05, "probe": {"lr": 0.1}},
        {"strategy": "scale", "forgetting_weight": 0.2, "trackers": ["mlflow"], "checkpoint_minutes": 0},
        {"stream": "iid", "budget": "low", "precision": "fp32", "cbp": 10_000},
        {"stream": "blurred", "overlap": 0.5, "backbone": "convnet-w4", "mean": (0.1, 0.2, 0.3)},
        {"stream": "ordered", "sort_by": "name", "experiences": 4, "init_from": "runs/before"},
    ],
)
def test_a_configuration_survives_its_file(tmp_path: Path, given: dict[str, object]) -> None:
    config = resolve(given)
    (tmp_path / "config.yaml").write_text(config.to_yaml())
    again = parse(from_file(tmp_path / "config.yaml"))
    assert again == config
    assert again.to_dict() == config.to_dict()
    assert again.digest() == config.digest()
    assert resolve(config.to_dict()) == config, "a complete configuration is resolved already"


def test_the_digest_ignores_where_and_how_a_run_is_kept_and_nothing_else() -> None:
    base = parse({})
    for change in (
        {"device": "cpu"},
        {"data_root": "/elsewhere"},
        {"checkpoint_samples": 10},
        {"checkpoint_minutes": 3.0},
        {"keep_checkpoints": 1},
        {"trackers": ["mlflow"]},
    ):
        assert parse(change).digest() == base.digest()
        assert base.difference(parse(change)) is None
    for change in (
        {"lr": 0.2},
        {"seed": 1},
        {"data_seed": 1},
        {"probe": {"lr": 0.1}},
        {"log_every": 7},
        {"precision": "fp32"},
        {"knn": False},
        {"tau": 0.5},
        {"experiences": 10},
        {"stream": "blurred"},
    ):
        assert parse(change).digest() != base.digest()
        assert base.difference(parse(change)) == next(iter(change))


def test_a_change_keeps_what_it_does_not_name() -> None:
    config = resolve({"strategy": "er", "budget": "high", "probe": {"lr": 0.2}})
    changed = config.change(probe={"batch": 64}, samples_per_class=9)
    assert (changed.probe.lr, changed.probe.batch, changed.samples_per_class) == (0.2, 64, 9)
    assert changed.change(probe={"batch": config.probe.batch}, samples_per_class=None) == config
    assert merged({"a": {"x": 1}}, {"a": None}) == {"a": None}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"experiences": 5, "stream": "iid"}, "stream 'iid' does not read experiences, a setting of streams"),
        ({"overlap": 0.1}, "stream 'class-incremental' does not read overlap, a setting of streams blurred"),
        ({"strategy": "er", "omega": 0.3}, "strategy 'er' does not read omega, a setting of strategies"),
        ({"strategy": "finetune", "memory_size": 10}, "strategy 'finetune' keeps no memory and does not read"),
        ({"method": "simsiam", "temperature": 0.1}, "does not read temperature"),
        ({"stream": "shuffled"}, "unknown stream 'shuffled'"),
        ({"stream": 3}, "stream must be a name, not 3"),
        ({"learner": {"lr": 3}}, "unknown setting 'learner'"),
        ({"evaluate": "often"}, "evaluate must be 'each', 'final', 'never' or 'start', not 'often'"),
        ({"trackers": ["aim"]}, "trackers"),
        ({"samples_per_class": 1}, "samples_per_class must be a whole number of at least 2"),
    ],
)
def test_what_nothing_reads_or_takes_is_refused_in_one_sentence(given: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse(given)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_what_the_named_parts_do_not_read_can_be_asked_for() -> None:
    assert unread({"strategy": "er", "omega": 3, "lr": 0.1}) == {"omega"}
    assert unread({"strategy": "cla-e", "omega": 3, "experiences": 3}) == set()
    assert unread({"stream": "iid", "experiences": 3, "memory_size": 10}) == {"experiences", "memory_size"}
    assert unread({"nonsense": 1}) == set()


def test_an_unknown_name_in_a_file_is_refused_with_the_files_name(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("overlap: 2\nomgea: 3")
    with pytest.raises(ConfigError, match="unknown setting 'omgea'; did you mean 'omega'") as refusal:
        read_settings(file)
    assert str(file) in str(refusal.value)
    file.write_text("lr: 1e-3\nprobe: {lr: 5E-4}\n")
    assert read_settings(file) == {"lr": 1e-3, "probe": {"lr": 5e-4}}


def test_a_configuration_is_frozen_and_can_be_copied_by_pickle() -> None:
    import pickle

    config: RunConfig = resolve({"strategy": "cla-r", "stream": "blurred"})
    with pytest.raises(ValueError, match="frozen"):
        config.dataset = "svhn"  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(config)) == config


def test_a_dot_in_a_file_or_in_python_is_refused_with_the_group_that_it_means(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("probe.max_epochs: 5\n")
    with pytest.raises(ConfigError, match=r"settings.yaml': 'probe.max_epochs' .* write probe: {max_epochs: …}"):
        read_settings(file)
    with pytest.raises(ConfigError, match=r"^'probe.max_epochs' .* write probe: {max_epochs: …}"):
        parse({"probe.max_epochs": 5})
