"""From a few settings to a complete run."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch

from ocssl import data
from ocssl.errors import ConfigError
from ocssl.learner import Learner
from ocssl.runs import config as configuration
from ocssl.runs.config import assignments, from_file, parse
from ocssl.runs.material import Part, Pool
from ocssl.runs.paper import table
from ocssl.runs.presets import complete, is_papers_budget
from ocssl.runs.route import make_schedule


def run_of(row: dict[str, str]) -> dict[str, object]:
    """The few settings that a person would give for a row of the paper's tables."""
    method = row["method"]
    given: dict[str, object] = {"dataset": row["dataset"], "budget": row["budget"], "batch": int(row["b"])}
    given |= {"iid": True} if method == "iid" else {"strategy": method.partition("-fifo")[0].partition("-reservoir")[0]}
    given |= {"method": row["ssl"]} if row["ssl"] != "-" else {}
    return given | ({"memory": "fifo"} if method == "er-fifo" else {})


@pytest.mark.parametrize("row", table("hyperparameters"), ids=lambda row: "-".join(row.values()))
def test_every_row_of_the_papers_tables_is_filled_in(row: dict[str, str]) -> None:
    config = complete(run_of(row))
    assert config["batch"] == int(row["b"])
    assert config["passes"] == int(row["n_p"])
    assert config["lr"] == float(row["lr"])
    assert config["omega"] == (float(row["omega"]) if row["omega"] else None)
    assert config["stream_batch"] == 10
    assert is_papers_budget(config)


def test_what_is_given_wins_over_the_paper() -> None:
    config = complete({"strategy": "cla-e", "budget": "high", "lr": 0.05, "passes": 2})
    assert (config["lr"], config["passes"], config["batch"], config["omega"]) == (0.05, 2, 138, 0.3)
    assert not is_papers_budget(config)


def test_the_learners_signature_is_the_only_source_of_its_settings() -> None:
    config = parse({})
    for name, parameter in inspect.signature(Learner.__init__).parameters.items():
        if name != "self":
            assert config[name] == parameter.default


def test_a_data_set_brings_its_size_and_normalisation() -> None:
    config = complete({"dataset": "imagenet100", "strategy": "cla-e", "budget": "high"})
    assert config["image_size"] == 224
    assert config["mean"] == data.catalog.dataset_spec("imagenet100").mean


def test_the_authors_protocol_is_the_learners_authors_variant() -> None:
    assert complete({"protocol": "authors"})["variant"] == "authors"
    with pytest.raises(ConfigError, match="set the protocol alone"):
        complete({"variant": "authors"})


def test_a_configuration_survives_its_file(tmp_path: Path) -> None:
    config = complete({"strategy": "cassle", "options": {"from_start": True}, "lr": 1e-05, "probe": {"lr": 0.1}})
    (tmp_path / "config.yaml").write_text(config.to_yaml())
    again = parse(from_file(tmp_path / "config.yaml"))
    assert again.to_dict() == config.to_dict()
    assert again.digest() == config.digest()


def test_the_digest_ignores_where_and_how_a_run_is_kept_and_nothing_else() -> None:
    base = parse({})
    for change in (
        {"device": "cpu"},
        {"data_root": "/elsewhere"},
        {"checkpoint_samples": 10},
        {"trackers": ["mlflow"]},
    ):
        assert parse(change).digest() == base.digest()
    for change in ({"lr": 0.2}, {"seed": 1}, {"data_seed": 1}, {"probe": {"lr": 0.1}}, {"log_every": 7}):
        assert parse(change).digest() != base.digest()


def test_numbers_in_scientific_notation_are_numbers() -> None:
    assert assignments(["lr=1e-3", "weight_decay=5E-4", "tau=.9e0"]) == {"lr": 1e-3, "weight_decay": 5e-4, "tau": 0.9}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- lr", "must hold settings"),
        ("lr: [", "is not valid YAML: line 1: "),
        ("laerning_rate: 3", "unknown setting"),
        ("lr: 0.1\nlr: 0.2", "is not valid YAML: line 2: 'lr' is there twice"),
        (b"\xff", "text"),
    ],
)
def test_a_file_that_holds_no_settings_is_refused(tmp_path: Path, text: str | bytes, words: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=words) as refusal:
        from_file(file)
    assert str(file) in str(refusal.value)


def test_every_setting_of_the_experiment_is_described() -> None:
    words = configuration.RunConfig.__doc__ or ""
    assert [name for name in configuration.RunConfig.model_fields if f"{name}:" not in words] == []


# ---------------------------------------------------------------------- the way through the images


@pytest.fixture(scope="module")
def train() -> Part:
    """A pool of 20 classes with 45 images each."""
    labels = torch.arange(20).repeat_interleave(45)
    source = data.ResidentDataset(torch.zeros(900, 3, 8, 8, dtype=torch.uint8), data.DatasetInfo("blank"), labels)
    return Part(Pool(source, torch.device("cpu")), torch.arange(900))


def settings(**given: object) -> configuration.RunConfig:
    return parse({"experiences": 10, "stream_batch": 10, "batch": 30, "passes": 2, **given})


def test_the_way_is_the_stream_cut_anywhere(train: Part) -> None:
    route = make_schedule(settings(), train, views=2)
    stream = data.streams.class_incremental(train.pool.labels, 10, indices=train.indices, stream_batch=10)
    assert route.borders == stream.borders == tuple(range(90, 901, 90))
    whole = torch.cat(list(stream))
    assert torch.equal(route.indices(0, 900), whole)
    assert torch.equal(route.indices(85, 271), whole[85:271])
    assert route.cbp == 2 * 30 * 2 * 90
    assert [len(classes) for classes in route.experiences] == [2] * 10


def test_iid_training_costs_what_the_stream_would(train: Part) -> None:
    online, iid = (make_schedule(settings(iid=flag, batch=37), train, views=2) for flag in (False, True))
    assert iid.cbp == online.cbp
    assert len(iid) * 2 == iid.cbp
    assert len(iid.borders) == 1
    first_epoch = iid.indices(0, 900)
    assert torch.equal(first_epoch.sort().values, train.indices)
    assert not torch.equal(first_epoch, iid.indices(900, 1800))


def test_iid_training_costs_no_more_than_a_stream_that_drops_incomplete_minibatches(train: Part) -> None:
    online, iid = (make_schedule(settings(iid=flag, stream_batch=8, batch=8), train, views=2) for flag in (False, True))
    assert online.cbp == 2 * 8 * 2 * (10 * (90 // 8))
    assert iid.cbp == online.cbp


@pytest.mark.parametrize("iid", [False, True])
def test_a_total_cbp_ends_the_way_within_one_batch_and_counts_what_was_spent_before(train: Part, iid: bool) -> None:
    route = make_schedule(settings(iid=iid, cbp=7_777), train, views=2, spent=1_000)
    least_step = 2 * 30 * (1 if iid else 2)
    assert 0 <= 6_777 - route.cbp < least_step
    with pytest.raises(ConfigError, match="1000 were spent before"):
        make_schedule(settings(iid=iid, cbp=1_000), train, views=2, spent=1_000)


def test_a_stream_cannot_spend_more_than_it_has(train: Part) -> None:
    with pytest.raises(ConfigError, match="can spend from 120 to 10800 CBP"):
        make_schedule(settings(cbp=20_000), train, views=2)
    assert make_schedule(settings(cbp=20_000, iid=True), train, views=2).cbp == 19_980
