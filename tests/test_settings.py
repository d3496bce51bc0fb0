"""A setting is declared once, in the part that reads it, and is then known everywhere."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import ClassVar

import pytest
from pydantic import field_validator

import ocssl
from ocssl import strategies
from ocssl.augment import Augmentation
from ocssl.checks import small_learner, small_stream
from ocssl.cli import main
from ocssl.config import LearnerConfig, parse_learner
from ocssl.errors import ConfigError
from ocssl.options import Options, combine, setting
from ocssl.runs.naming import experiment_key, label, overrides, run_name
from ocssl.runs.presets import resolve
from ocssl.strategies import ExperienceReplay, Strategy

TINY = {"dataset": "shapes", "backbone": "convnet-w4", "image_size": 8, "stream_batch": 4, "batch": 4, "device": "cpu"}


class Mine(Strategy):
    """Does what finetuning does, with a number that nothing needs."""

    class Options(Strategy.Options):
        strength: float = setting(0.5, "How strong it is.", symbol="σ", ge=0, le=1)

    def __init__(self, setup, options: Options) -> None:
        super().__init__(setup, options)
        self.strength = options.strength


@pytest.fixture
def mine() -> str:
    strategies.register("mine")(Mine)
    return "mine"


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a command prints on both streams."""
    monkeypatch.setenv("COLUMNS", "200")

    def command(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["ocssl", *words])
        with pytest.raises(SystemExit):
            main()
        said = capsys.readouterr()
        return said.out + said.err

    return command


def test_a_new_option_is_listed_with_its_strategy_its_default_and_its_description(mine, printed) -> None:
    assert "strength" in next(line for line in printed("list", "strategies").splitlines() if line.startswith(mine))
    row = next(line for line in printed("list", "settings").splitlines() if line.startswith("strength (σ)"))
    for words in ("0.5", "a number from 0 to 1", "How strong it is.", "strategies mine"):
        assert words in row


def test_a_new_option_is_a_flag_and_a_setting_and_belongs_to_the_experiment(mine, printed, tmp_path) -> None:
    plain, other = (resolve({**TINY, "strategy": mine, **more}) for more in ({}, {"strength": 0.7}))
    assert plain.digest() != other.digest()
    assert experiment_key(plain) != experiment_key(other)
    assert other.to_dict()["strength"] == 0.7
    named = resolve({"dataset": "shapes", "strategy": mine, "strength": 0.7})
    assert run_name(named) == "shapes-simsiam-mine-clean-strength0.7-seed0"
    assert (label(named), overrides(named)) == ("mine", {"strength": 0.7})
    for given in (("--strength", "2"), ("--set", "strength=2")):
        said = printed("run", "--strategy", mine, "--dataset", "shapes", "-o", str(tmp_path / "run"), *given)
        assert said == "ocssl: strength must be a number from 0 to 1, not 2\n"


def test_a_learner_shows_and_keeps_a_new_option(mine, tmp_path) -> None:
    learner = small_learner(mine, strength=0.7)
    assert "strength=0.7" in repr(learner)
    assert learner.get_params()["strength"] == learner.strength == 0.7
    assert learner.train_state.strategy.strength == 0.7
    learner.partial_fit(small_stream(8)).save(tmp_path / "state")
    assert ocssl.Learner.load(tmp_path / "state").config == learner.config
    assert pickle.loads(pickle.dumps(learner.config)) == learner.config


@pytest.mark.parametrize(
    "given",
    [
        {"strategy": "er", "method": "barlow"},  # which brings its lr
        {"strategy": "cla-e", "variant": "authors", "joint_views": True},  # others join views by default
        {"strategy": "er", "optimizer": "adamw", "lr": 0.1},
        {"strategy": "scale", "variant": "original"},
        {"strategy": "multiview-r", "average": 0.9},
        {"strategy": "multiview-r", "average": 0.9, "average_power": 19.0},
        {"strategy": "cla-e", "stream_batch": 12, "batch": 30, "average": 0.9},
    ],
)
def test_what_a_configuration_shows_is_what_was_given_and_makes_the_same_one(given) -> None:
    config = parse_learner(given)
    assert config.non_defaults() == given
    assert parse_learner(config.non_defaults()) == config


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"strength": "much"}, "strength must be a number from 0 to 1, not 'much'"),
        ({"strength": True}, "strength must be a number from 0 to 1, not True"),
        ({"strenght": 0.7}, "unknown setting 'strenght'; did you mean 'strength'?"),
    ],
)
def test_a_wrong_type_and_a_misspelt_name_get_one_sentence(mine, given, message) -> None:
    for make in (lambda: small_learner(mine, **given), lambda: resolve({**TINY, "strategy": mine, **given})):
        with pytest.raises(ConfigError) as refusal:
            make()
        assert str(refusal.value) == message


def test_what_nothing_reads_is_refused_with_those_who_read_it(printed) -> None:
    sentence = (
        "strategy 'er' does not read omega, a setting of strategies cassle, cassle-r, cla-b, cla-e, cla-r, pfr, pocon, "
        "adapt, multiview-r, taught; leave it out"
    )
    with pytest.raises(ConfigError, match=sentence):
        ocssl.Learner(strategy="er", omega=3)
    assert printed("run", "--strategy", "er", "--omega", "3") == f"ocssl: {sentence}\n"
    with pytest.raises(ConfigError, match="strategy 'finetune' keeps no memory and does not read memory_size"):
        ocssl.Learner(strategy="finetune", memory_size=10)
    with pytest.raises(ConfigError, match="stream 'iid' does not read overlap, a setting of streams blurred; leave"):
        resolve({"dataset": "shapes", "stream": "iid", "overlap": 0.5})


def test_a_default_given_by_name_is_the_same_configuration() -> None:
    assert parse_learner({"strategy": "cla-e"}) == parse_learner({"strategy": "cla-e", "omega": 0.3, "tau": 0.999})


def test_defaults_for_other_parts_are_for_every_kind_of_part() -> None:
    class Choosy(ExperienceReplay):
        defaults: ClassVar[dict[str, object]] = {"memory_size": 777, "crop_scale": (0.4, 1.0), "convnet.width": 5}

    strategies.register("choosy")(Choosy)
    config = parse_learner({"strategy": "choosy", "backbone": "convnet"}).to_dict()
    assert (config["memory_size"], config["crop_scale"], config["width"]) == (777, [0.4, 1.0], 5)
    assert parse_learner({"strategy": "choosy", "memory_size": 999}).to_dict()["memory_size"] == 999
    assert parse_learner({"strategy": "choosy"}).to_dict()["width"] == 64


def test_settings_of_a_learner_cannot_be_assigned() -> None:
    learner = small_learner("er")
    with pytest.raises(ConfigError, match=r"settings of a learner are fixed; make another with lr=5.0"):
        learner.lr = 5.0
    assert learner.lr == learner.config.lr == 0.02


def test_a_name_that_two_parts_declare_is_refused() -> None:
    class Core(Options):
        lr: float = setting(0.1, "Of the core.")

    class Part(Options):
        lr: float = setting(0.1, "Of the part.")

    with pytest.raises(ConfigError, match="setting 'lr' is declared twice"):
        combine(Core, Part)


@pytest.mark.parametrize(
    ("name", "owner"), [("dataset", "the run"), ("experiences", "stream 'class-incremental'"), ("probe", "the run")]
)
def test_a_name_that_a_run_and_a_part_of_its_learner_declare_is_refused(name, owner) -> None:
    class Twice(Mine):
        class Options(Mine.Options):
            __annotations__ = {name: int}
            vars()[name] = setting(3, "Of the strategy.")

    strategies.register("twice")(Twice)
    assert parse_learner({"strategy": "twice", name: 4}).to_dict()[name] == 4
    sentence = f"setting '{name}' is declared twice, by {owner} and by a part of the learner; rename one"
    with pytest.raises(ConfigError, match=sentence):
        resolve({**TINY, "strategy": "twice"})


@pytest.mark.parametrize("name", ["plugins", "cost"])
def test_a_name_that_a_configuration_has_for_something_else_is_refused(name) -> None:
    class Part(Options):
        __annotations__ = {name: int}
        vars()[name] = setting(3, "Of the part.")

    with pytest.raises(ConfigError, match=rf"Part' has a setting '{name}', a name that .* has taken; rename it"):
        combine(LearnerConfig, Part)


@pytest.mark.parametrize(
    ("default", "why"),
    [
        (-1, "strength must be a number from 0 to 1, not -1"),
        ("much", "strength must be a number from 0 to 1, not 'much'"),
        (None, "strength must be a number from 0 to 1, not None"),
    ],
)
def test_a_default_that_its_setting_does_not_take_is_refused_where_it_is_declared(default, why) -> None:
    with pytest.raises(ConfigError, match=f"wrong default in '.*Wrong.Options': {why}"):

        class Wrong(Mine):
            class Options(Mine.Options):
                strength: float = Mine.Options.with_default("strength", default)


def test_what_a_declaration_cannot_mean_is_refused() -> None:
    """Pydantic would take a misspelt bound for a note, and the setting would have no bound."""
    with pytest.raises(ConfigError, match="unknown constraint 'lte'; did you mean 'lt'"):
        setting(0.5, "Share.", ge=0, lte=1)
    with pytest.raises(ConfigError, match="affects must be one of experiment, numbers, nothing, not 'results'"):
        setting(0.5, "Share.", affects="results")  # type: ignore[arg-type]


def test_validators_of_two_parts_with_one_name_are_refused() -> None:
    """Pydantic would call one of them, and let the bad values of the other part through."""

    class Mine(Options):
        width: int = setting(1, "Width.")

        @field_validator("width")
        @classmethod
        def _positive(cls, width: int) -> int:
            return width

    with pytest.raises(ConfigError, match=r"validator '_positive' of .* has the name of another part's; rename it"):
        combine(LearnerConfig, Mine, Augmentation.Options)
