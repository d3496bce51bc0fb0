"""What version 0.1 wrote can be read: results, the folders of runs, saved learners."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from helpers.command import Command
from helpers.results import PUBLISHED
from ocssl import Learner
from ocssl.config import parse_learner
from ocssl.data.shapes import draw
from ocssl.errors import CheckpointError, ConfigError, DataError
from ocssl.results import read_result
from ocssl.runs import format1
from ocssl.runs.config import parse
from ocssl.runs.folder import RunFolder
from ocssl.runs.presets import is_papers_budget, resolve
from ocssl.runs.run import resume, start, warm_start

OLD = Path(__file__).parents[1] / "data_0_1"
LEARNER = OLD / "run" / "checkpoints" / "000001" / "learner"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A copy of the unfinished run."""
    return Path(shutil.copytree(OLD / "run", tmp_path / "run"))


def old_result() -> dict[str, object]:
    content: dict[str, object] = json.loads((OLD / "result.json").read_text())
    assert content["format"] == 1
    return content


# ---------------------------------------------------------------------- results


def test_a_result_of_format_1_keeps_its_numbers_and_says_what_it_is() -> None:
    old, result = old_result(), read_result(OLD / "result.json")
    moved = {"strategy", "method", "memory", "protocol", "seed"}  # stored in the configuration alone
    assert {name: getattr(result, name) for name in moved} == {name: old[name] for name in moved}
    kept = old.keys() - moved - {"config", "format", "knn"}
    assert {name: getattr(result, name) for name in kept} == {name: old[name] for name in kept}
    assert result.knn is not None
    assert result.knn.model_dump() == old["knn"]
    assert (result.format, result.label.split(",")[0], result.block) == (2, "CLA-E", (6, 12, 1))
    assert result.config["omega"] == 0.3, "an unset ω is the strategy's own"
    assert "options" not in result.config
    assert read_result(OLD).final == result.final, "a folder with a result"


def test_a_result_on_another_data_set_is_called_as_a_file_can_be() -> None:
    old = old_result()
    probed = old | {"dataset": f"{old['dataset']}->folder:my/images"}
    assert format1.upgrade(probed)["name"] == f"{format1.upgrade(old)['name']}-on-folder-my-images"


def test_a_converted_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    result = read_result(OLD / "result.json")
    (tmp_path / "new.json").write_text(result.to_json())
    assert read_result(tmp_path / "new.json") == result
    assert json.loads(result.to_json())["format"] == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("strategy", "er"),
        ("strategy", "iid"),
        ("method", "simclr"),
        ("memory", "reservoir"),
        ("protocol", "authors"),
        ("seed", 7),
        ("dataset", "cifar100"),
    ],
)
def test_a_result_that_contradicts_itself_is_refused(tmp_path: Path, name: str, value: object) -> None:
    file = tmp_path / "odd.json"
    file.write_text(json.dumps(old_result() | {name: value}))
    with pytest.raises(DataError) as refusal:
        read_result(file)
    meant = old_result()[name]
    assert f"says {name} {value}, but its configuration says {meant}" in str(refusal.value)
    assert str(file) in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda old: old.pop("final"),
        lambda old: old.pop("strategy"),
        lambda old: old["config"].pop("experiences"),
        lambda old: old["config"].pop("batch"),
        lambda old: old["config"].update(variant="improved"),
        lambda old: old["config"].update(strategy="unheard-of"),
        lambda old: old["config"].update(lr="fast"),
        lambda old: old.update(dataset=None),
        lambda old: old.update(final=101),
    ],
)
def test_half_a_result_of_format_1_is_refused_in_one_sentence(tmp_path: Path, spoil) -> None:  # type: ignore[no-untyped-def]
    old = copy.deepcopy(old_result())
    spoil(old)
    file = tmp_path / "poor.json"
    file.write_text(json.dumps(old))
    with pytest.raises(DataError) as refusal:
        read_result(file)
    assert str(file) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_results_of_each_strategy_keep_their_names_and_numbers() -> None:
    """As version 0.1 wrote them; the results that are published were converted from such files."""
    files = list((OLD / "results").glob("*.json"))
    strategies = "iid finetune er minred lump cassle cassle-r scale osiris-r cla-b cla-e cla-r"
    assert {json.loads(path.read_text())["strategy"] for path in files} == set(strategies.split())
    for path in files:
        old, result = json.loads(path.read_text()), read_result(path)
        if result.protocol == "clean":  # the authors' protocol implies more by now, so these are called otherwise
            assert result.name == path.stem
        published = read_result(PUBLISHED / f"{result.name}.json")
        assert result.model_dump(exclude={"config"}) == published.model_dump(exclude={"config"})
        config = parse(published.config).to_dict()  # with settings that are younger than the published files
        assert result.config == {name: config[name] for name in result.config}
        for name in ("final", "avg", "curve", "cbp_spent", "train_seconds", "dataset", "budget", "strategy", "seed"):
            assert getattr(result, name) == old[name], (path, name)
        config = format1.upgrade_config(old["config"])
        assert result.config == config.to_dict() | {"data_root": None}
        assert (old["budget"] != "custom") == (config.budget is not None and is_papers_budget(config)), path
        settings = config.to_dict()
        for name in ("lr", "batch", "memory_size", "tau", "hidden_dim", "momentum", "data_seed", "precision", "seed"):
            if name in settings:
                assert settings[name] == old["config"][name], (path, name)
        if "omega" in settings and old["config"]["omega"] is not None:
            assert settings["omega"] == old["config"]["omega"]


# ---------------------------------------------------------------------- learners


def test_a_saved_learner_has_its_weights_and_gives_the_same_features() -> None:
    learner, expected = Learner.load(LEARNER), json.loads((OLD / "features.json").read_text())
    assert (learner.seen, learner.pending, learner.budget.spent) == (60, 0, 216)
    assert learner.config.backbone == "convnet"
    stored = load_file(next(LEARNER.glob("*.safetensors")))
    for name, tensor in learner.train_state.encoder.state_dict().items():
        assert torch.equal(tensor, stored[f"encoder.{name}"])
    images = draw(2, size=8, seed=0)[0]
    features = learner.transform(images)
    learner.partial_fit(images.repeat(9, 1, 1, 1))  # goes on with the same draws, replay and momentum
    later = learner.transform(images)
    for found, wanted in ((features, expected["features"]), (later, expected["later"])):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert not np.array_equal(features, later)


def test_it_can_be_saved_in_todays_format(tmp_path: Path) -> None:
    old = Learner.load(LEARNER)
    old.save(tmp_path / "new")
    new = Learner.load(tmp_path / "new")
    assert new.config == old.config
    images = draw(20, size=8, seed=1)[0]
    assert np.array_equal(new.partial_fit(images).transform(images), old.partial_fit(images).transform(images))


def test_its_settings_are_those_of_then(run: Path) -> None:
    config = Learner.load(LEARNER).config
    assert config == RunFolder(run).read_config().learner
    assert config == parse_learner(
        {
            "strategy": "cla-e",
            "backbone": "convnet-w4",
            "image_size": 8,
            "stream_batch": 6,
            "batch": 12,
            "passes": 1,
            "memory_size": 18,
            "hidden_dim": 8,
            "output_dim": 16,
            "device": "cpu",
            "mean": (0.485, 0.456, 0.406),
            "std": (0.229, 0.224, 0.225),
            "joint_views": True,
            "lr": 0.1,
        }
    )


def test_a_learner_that_does_not_fit_is_refused_with_both_versions(run: Path) -> None:
    place = run / "checkpoints" / "000001" / "learner"
    facts = json.loads((place / "learner.json").read_text())
    facts["facts"]["parameters"]["backbone"] = "convnet-w8"
    (place / "learner.json").write_text(json.dumps(facts))
    with pytest.raises(CheckpointError, match=r"was saved by ocssl 0\.1\.0 and does not fit ocssl \d"):
        Learner.load(place)


# ---------------------------------------------------------------------- runs


def test_an_unfinished_run_is_shown_and_goes_on_to_the_result_of_then(ocssl: Command, run: Path) -> None:
    code, out, err = ocssl("show", run)
    assert code == 0, err
    assert "not finished" in out
    assert "11.1" in out, "the probe after the first experience"
    code, _, err = ocssl("run", "-q", "--resume", run)
    assert code == 0, err
    result, old = read_result(run), read_result(OLD / "result.json")
    assert (result.key, result.name, result.config) == (old.key, old.name, old.config)
    exact = ("cbp_planned", "cbp_spent", "samples", "fingerprint", "borders", "experiences")
    assert all(getattr(result, name) == getattr(old, name) for name in exact)
    assert result.curve == pytest.approx(old.curve, abs=3)  # to the bit on the machine that wrote it
    lines = RunFolder(run).metrics.read()
    assert [line["samples"] for line in lines if line["kind"] == "train"] == [30, 60, 90, 120, 150, 162]


def test_a_run_of_this_version_with_its_settings_is_the_same_run(run: Path, tmp_path: Path) -> None:
    config = RunFolder(run).read_config()
    result = start(config, tmp_path / "fresh")
    resumed = resume(run)
    fresh, again = (
        [line["losses"] for line in RunFolder(place).metrics.read() if line["kind"] == "train"]
        for place in (tmp_path / "fresh", run)
    )
    if fresh[:2] == again[:2]:  # this machine rounds as that of then, which wrote these two lines
        assert (fresh, result.curve) == (again, resumed.curve)
    for ours, theirs, limit in zip(fresh, again, (0.001, 0.005, 0.02), strict=False):  # another lr: 0.01 in the first
        assert ours == pytest.approx(theirs, abs=limit)
    assert resolve(config.to_dict()) == config


def test_an_edited_configuration_of_then_is_noticed(run: Path) -> None:
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("momentum: 0.9", "momentum: 0.8"))
    with pytest.raises(ConfigError, match=r"config.yaml' was changed since the checkpoint"):
        resume(run)


def test_a_run_can_start_from_a_run_of_then(run: Path) -> None:
    learner = Learner(**dict(RunFolder(run).read_config().learner))
    assert warm_start(learner, run) == 216
    stored = load_file(next(LEARNER.glob("*.safetensors")))
    for name, tensor in learner.network.state_dict().items():
        assert torch.equal(tensor, stored[f"encoder.backbone.{name}"])


def test_the_upper_bound_of_then_names_the_online_strategy_of_equal_cost() -> None:
    old = old_result()["config"] | {"iid": True, "strategy": "finetune", "memory": None, "batch": 17}  # type: ignore[operator]
    config = format1.upgrade_config(old)
    settings = config.to_dict()
    assert (config.stream, config.iid, "experiences" in settings, "memory_size" in settings) == (
        "iid",
        True,
        False,
        False,
    )
    assert [settings[f"online_{name}"] for name in ("stream_batch", "passes", "experiences")] == [6, 1, 3]
    assert (settings["stream_batch"], settings["batch"], settings["passes"]) == (17, 17, 1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"strategy": "osiris-r", "variant": "authors", "options": {"updates": 3}}, {"repeat_updates": 3}),
        ({"strategy": "minred", "variant": "origin", "options": {"entry": "described"}}, {"insert_features": True}),
        ({"strategy": "scale", "variant": "authors", "options": {"raw": True}}, {"normalize_features": False}),
        ({"strategy": "cassle", "variant": "origin", "omega": None}, {"variant": "original", "omega": 1.0}),
        ({"strategy": "minred", "variant": "origin"}, {"selection": "simultaneous", "drop_oldest": False}),
        (
            {"strategy": "minred", "variant": "authors"},
            {"newcomers": "compete", "insert_mode": "evaluation", "partial_batches": False},
        ),
        (
            {"strategy": "minred", "variant": "origin", "memory_options": {"drops": "sequential"}},
            {"drop_oldest": False},
        ),
        (
            {"strategy": "scale", "variant": "origin"},
            {"normalize_features": True, "joint_pairs": False, "relation_pass": False, "past_head": "copied"},
        ),
        ({"strategy": "osiris-r", "variant": "origin"}, {"plain_heads": False, "late_replay": False}),
        ({"strategy": "cassle-r", "variant": "origin"}, {"distance": "method"}),
        ({"augmentation": "authors", "variant": "authors"}, {"normalize_first": True, "augmentation": "simclr"}),
        ({"backbone": "resnet18-w16", "stem": "auto"}, {"backbone": "resnet18", "width": 16, "stem": "auto"}),
        ({"strategy": "er", "omega": None, "tau": 0.5}, {"strategy": "er"}),
        ({"strategy": "finetune", "memory_size": 5}, {"memory": None}),
    ],
)
def test_settings_of_then_have_todays_names(old: dict[str, object], new: dict[str, object]) -> None:
    settings = parse_learner(format1.upgrade_learner({"strategy": "cla-e", **old})).to_dict()
    assert settings.items() >= new.items()


def test_a_setting_that_no_part_ever_had_is_not_passed_over() -> None:
    with pytest.raises(ConfigError, match="unknown setting 'omga'; did you mean 'omega'"):
        format1.upgrade_learner({"strategy": "cla-e", "omga": 3.0})
