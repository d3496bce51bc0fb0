"""From a few settings to a complete run: the paper's choices fill in the rest."""

from __future__ import annotations

import pytest

from ocssl import data
from ocssl.config import parse_learner
from ocssl.errors import ConfigError
from ocssl.results.published import read_csv
from ocssl.runs.config import parse
from ocssl.runs.naming import run_name
from ocssl.runs.presets import is_papers_budget, online_cost, resolve


def run_of(row: dict[str, str]) -> dict[str, object]:
    """The few settings that a user gives for a row of the paper's tables."""
    method = row["method"]
    given: dict[str, object] = {"dataset": row["dataset"], "budget": row["budget"], "batch": int(row["b"])}
    strategy = method.partition("-fifo")[0].partition("-reservoir")[0]
    given |= {"stream": "iid"} if method == "iid" else {"strategy": strategy}
    given |= {"method": row["ssl"]} if row["ssl"] != "-" else {}
    return given | ({"memory": "fifo"} if method == "er-fifo" else {})


@pytest.mark.parametrize("row", read_csv("hyperparameters"), ids=lambda row: "-".join(row.values()))
def test_every_row_of_the_papers_tables_is_filled_in(row: dict[str, str]) -> None:
    config = resolve(run_of(row))
    settings = config.to_dict()
    assert online_cost(config) == (10, int(row["b"]), int(row["n_p"]))
    assert settings["lr"] == float(row["lr"])
    own = parse_learner({"strategy": config.learner.strategy}).to_dict().get("omega")  # where the tables have none
    assert settings.get("omega") == (float(row["omega"]) if row["omega"] else own)
    assert is_papers_budget(config)
    if row["method"] == "iid":  # steps on fresh images only
        assert (settings["stream_batch"], settings["passes"]) == (settings["batch"], 1)
        assert (settings["online_stream_batch"], settings["online_passes"]) == (10, int(row["n_p"]))
    else:
        assert (settings["stream_batch"], settings["passes"]) == (10, int(row["n_p"]))


def test_what_is_given_wins_over_the_paper() -> None:
    config = resolve({"strategy": "cla-e", "budget": "high", "lr": 0.05, "passes": 2})
    settings = config.to_dict()
    assert (settings["lr"], settings["passes"], settings["batch"], settings["omega"]) == (0.05, 2, 138, 0.3)
    assert not is_papers_budget(config)


def test_iid_training_takes_the_cost_of_an_online_strategy() -> None:
    config = resolve({"stream": "iid", "stream_batch": 8, "passes": 2, "experiences": 4, "batch": 17})
    assert online_cost(config) == (8, 17, 2)
    assert (config.learner.stream_batch, config.learner.batch, config.learner.passes) == (17, 17, 1)
    assert config.to_dict()["online_experiences"] == 4
    plain = resolve({"stream": "iid", "dataset": "shapes"})
    assert (online_cost(plain), plain.to_dict()["online_experiences"]) == ((10, 138, 3), 6)
    assert config.learner.strategy == "finetune"


def test_a_data_set_brings_its_size_and_normalisation() -> None:
    config = resolve({"dataset": "imagenet100", "strategy": "cla-e", "budget": "high"})
    assert config.learner.image_size == 224
    assert config.to_dict()["mean"] == list(data.catalog.dataset_spec("imagenet100").mean)


def test_the_authors_protocol_is_the_learners_authors_variant() -> None:
    config = resolve({"protocol": "authors"})
    assert (config.learner.variant, config.to_dict()["normalize_first"]) == ("authors", True)
    for mixed in ({"variant": "authors"}, {"protocol": "authors", "variant": "default"}, {"normalize_first": True}):
        with pytest.raises(ConfigError, match="set the protocol alone"):
            resolve(mixed)


@pytest.mark.parametrize(
    ("given", "batch", "passes", "views"),
    [
        ({"strategy": "er", "method": "vicreg", "budget": "high"}, 138, 3, 2),
        ({"strategy": "er", "method": "vicreg", "budget": "high", "views": 4}, 69, 3, 4),
        (
            {"strategy": "er", "method": "emp", "budget": "low"},
            12,
            1,
            5,
        ),  # as many of its 20 views as the budget allows
        ({"strategy": "multiview-r", "budget": "low"}, 30, 1, 2),
        ({"strategy": "multiview-r", "budget": "high"}, 34, 3, 8),
        ({"strategy": "cmp", "budget": "low"}, 10, 1, 6),
        ({"strategy": "pfr", "budget": "low", "views": 3}, 10, 2, 3),
        ({"stream": "iid", "method": "emp", "budget": "high", "views": 8}, 34, 1, 8),
        ({"strategy": "pocon", "budget": "low", "views": 3}, 10, 1, 3),  # two networks are trained
    ],
)
def test_parts_that_the_paper_lacks_have_the_cost_of_its_budgets(given, batch, passes, views) -> None:
    config = resolve(given)
    assert (config.learner.batch, config.learner.passes, config.to_dict()["views"]) == (batch, passes, views)
    papers = {"low": 60, "high": 828}[given["budget"]]  # passes of a network for each stream minibatch
    networks = 2 if config.strategy == "pocon" else 1
    cost = networks * views * batch * (online_cost(config)[2] if config.iid else passes)
    assert 0.97 * papers <= cost <= papers
    assert is_papers_budget(config)


def test_a_strategys_own_settings_of_a_budget_count_where_they_are_read() -> None:
    low = resolve({"strategy": "multiview-r", "budget": "low"}).to_dict()
    assert (low["rate_weight"], low["views"]) == (0.02, 2)
    given = resolve({"strategy": "multiview-r", "budget": "low", "rate_weight": 0.005}).to_dict()
    assert (given["rate_weight"], given["views"]) == (0.005, 2)
    other = resolve({"strategy": "multiview-r", "method": "simclr", "budget": "low"}).to_dict()
    assert other["views"] == 2
    assert "rate_weight" not in other


def test_a_strategy_of_twice_the_cost_does_not_have_the_papers_budget_at_its_b_and_n_p() -> None:
    with pytest.raises(ConfigError, match="strategy 'pocon' with 2 views cannot have the paper's low budget"):
        resolve({"strategy": "pocon", "budget": "low"})
    earlier = parse({"strategy": "pocon", "budget": "low", "batch": 10, "passes": 3})  # runs of before can be resumed
    assert not is_papers_budget(earlier)
    assert run_name(earlier) == "cifar100-simsiam-pocon-low-clean-seed0"


@pytest.mark.parametrize("views", [2, 5])
def test_a_budget_that_a_strategy_cannot_have_is_refused(views: int) -> None:
    budget = "high" if views == 2 else "low"
    with pytest.raises(
        ConfigError, match=f"strategy 'finetune' with {views} views cannot have the paper's {budget} budget"
    ):
        resolve({"strategy": "finetune", "method": "simclr", "budget": budget, "views": views})
