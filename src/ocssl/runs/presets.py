"""From the few settings that a user gives to a complete configuration: the paper's choices fill the rest.

Given settings win. Below them stand the paper's b, n_p, lr and ω for the budget, then what is known of the data set,
then the defaults of the parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ocssl.data import authors
from ocssl.data.catalog import dataset_spec
from ocssl.data.dataset import IMAGENET_MEAN, IMAGENET_STD
from ocssl.data.loading import is_address
from ocssl.data.streams import Iid
from ocssl.errors import ConfigError
from ocssl.options import default_of
from ocssl.results.names import row_name
from ocssl.results.published import choose_line, hyperparameter_lines
from ocssl.runs.config import RunConfig, parse, read_names
from ocssl.strategies.base import REPLAY_BATCH

EXPERIENCES = {"shapes": 6, "cifar10": 5, "svhn": 5}
"""For sets with too few classes for the paper's 20 experiences."""

PAPER_STREAM_BATCH = 10
BLOCKS = {("low", True): (30, 1), ("low", False): (10, 3), ("high", True): (138, 3)}
"""The paper's b and n_p, for two views, by budget and by whether the strategy replays."""
AUTHORS: dict[str, Any] = {"class_order": "authors", "sample_order": "seed", "epoch_end": "drop", "fit": "squash"}
"""Settings of a run that the authors' protocol implies; ``variant`` implies those of the learner."""
ONLINE = {"passes": "online_passes", "stream_batch": "online_stream_batch", "experiences": "online_experiences"}
"""What i.i.d. training calls the settings of the online strategy whose cost it equals."""
NAMED = ("dataset", "stream", "budget", "protocol", "strategy", "method", "memory", "variant")
BEFORE_COST = (*NAMED, "image_size", "small_views", "small_side")
"""Settings that can be parsed before b and n_p are known."""
LARGE_IMAGES = 128  # pixels; from here on, sets that the paper did not use take ImageNet100's choices, else CIFAR-100's


def resolve(given: Mapping[str, Any]) -> RunConfig:
    """The configuration that these settings mean; a complete one resolves to itself.

    >>> config = resolve({"strategy": "cla-e", "method": "simsiam", "budget": "high"})
    >>> config.learner.batch, config.learner.passes, config.to_dict()["lr"], config.to_dict()["omega"]
    (138, 3, 0.3, 0.3)
    """
    chosen = {"dataset": default_of(RunConfig.model_fields["dataset"])}
    chosen |= {name: value for name, value in given.items() if value is not None}
    iid = chosen.get("stream") == "iid"
    chosen = _iid(chosen) if iid else chosen
    filled = {"variant": "default", **_data_set(chosen), **_authors(chosen), **chosen}
    if "budget" in chosen:
        paper = _paper(filled)
        filled = {**(_online_names(paper) if iid else paper), **filled}
    if iid:  # batches as large as those of the replay strategies that it is compared with, one pass each
        batch = filled.get("batch", filled.get("online_stream_batch", PAPER_STREAM_BATCH) + REPLAY_BATCH)
        filled |= {"batch": batch, "stream_batch": batch, "passes": 1}
    config = parse(filled)
    _check(config)
    return config


def _data_set(chosen: Mapping[str, Any]) -> dict[str, Any]:
    name = chosen["dataset"]
    if not isinstance(name, str):
        raise ConfigError(f"dataset must be a name, not {name!r}")
    if is_address(name):
        return {"mean": IMAGENET_MEAN, "std": IMAGENET_STD}
    spec = dataset_spec(name)
    known: dict[str, Any] = {"image_size": spec.image_size, "mean": spec.mean, "std": spec.std}
    known |= dict.fromkeys(("experiences", "online_experiences"), EXPERIENCES.get(spec.name, 20))
    if chosen.get("protocol") == "authors" and spec.name in authors.NORMALISATION:
        known["mean"], known["std"] = authors.NORMALISATION[spec.name]
    read = read_names(chosen)
    return {name: value for name, value in known.items() if name in read}


def _authors(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """What the authors' protocol implies; their order of classes only for the sets that they used."""
    if chosen.get("protocol") != "authors":
        return {}
    read = read_names(chosen)
    if chosen["dataset"] not in authors.CLASS_ORDERS:
        read.discard("class_order")
    return {name: value for name, value in AUTHORS.items() if name in read} | {"variant": "authors"}


def _iid(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """I.i.d. training has no strategy; what is given of the stream is of the online strategy of equal cost."""
    if chosen.get("strategy", "finetune") != "finetune":
        raise ConfigError(
            f"iid training has no strategy; leave out either stream=iid or strategy '{chosen['strategy']}'"
        )
    return {**_online_names(chosen), "strategy": "finetune"}


def _online_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings under the names in :data:`ONLINE`, but for those that are given under both."""
    names = {name: online for name, online in ONLINE.items() if online not in settings}
    return {names.get(name, name): value for name, value in settings.items()}


def _paper(filled: Mapping[str, Any]) -> dict[str, Any]:
    """The paper's b, n_p, lr and ω for the budget, and our way of passing views in its tables."""
    preview = parse({name: filled[name] for name in BEFORE_COST if name in filled})
    rows = paper_rows(preview)
    if not rows:
        return _equal_cost(filled, preview)
    row = choose_line(rows, filled.get("batch"), filled.get("online_passes", filled.get("passes")))
    found: dict[str, Any] = {"batch": int(row["b"]), "passes": int(row["n_p"])}
    if filled.get("views", 2) != 2:  # the paper's
        found = _equal_cost(filled, preview)
    if filled.get("optimizer", "sgd") == "sgd":  # the paper's
        found["lr"] = float(row["lr"])
    if filled["variant"] != "authors":
        found["joint_views"] = True  # as our tables have it at both budgets
    return found | ({"omega": float(row["omega"])} if row["omega"] else {})


def _equal_cost(filled: Mapping[str, Any], preview: RunConfig) -> dict[str, Any]:
    """Settings that cost what a budget of the paper costs, for a strategy or method that the paper did not run."""
    budgets, read = preview.learner.parts().strategy.budgets, read_names(filled)
    own = {name: value for name, value in budgets.get(filled["budget"], {}).items() if name in read}
    usual = own.get("views", getattr(preview.learner, "views", 2))
    tried = [filled["views"]] if "views" in filled else range(usual, 1, -1)  # as many as the budget allows
    for views in tried:
        if block := _block(preview, views):
            chosen = {} if views == getattr(preview.learner, "views", views) else {"views": views}
            return {**own, **chosen, "batch": block[0], "passes": block[1]}
    raise ConfigError(
        f"strategy '{preview.learner.strategy}' with {tried[0]} views cannot have the paper's {filled['budget']} "
        "budget; leave budget out and set batch and passes"
    )


def _block(config: RunConfig, views: int) -> tuple[int, int] | None:
    """b and n_p at which a step on this many views costs what the paper's budget allows; None where there are none."""
    replays = config.iid or config.learner.parts().strategy.composition in ("stream+replay", "replay")
    if (str(config.budget), replays) not in BLOCKS:
        return None
    batch, passes = BLOCKS[str(config.budget), replays]
    cost = config.learner.cost(views)
    if replays:
        return (2 * batch // cost, passes) if 2 * batch // cost > PAPER_STREAM_BATCH else None
    return (batch, 2 * passes // cost) if 2 * passes % cost == 0 else None


def is_papers_budget(config: RunConfig) -> bool:
    """Whether b_s, b and n_p are those of the paper's tables, so that the budget's name is true."""
    stream_batch, batch, passes = online_cost(config)
    blocks: list[tuple[int, int] | None] = [(int(row["b"]), int(row["n_p"])) for row in paper_rows(config)]
    views = getattr(config.learner, "views", 2)
    if config.budget is not None and (views != 2 or not blocks):
        blocks = [_block(config, views)]
    is_plain = config.cbp is None and config.init_from is None and config.learner.early_images == 0
    return is_plain and stream_batch == PAPER_STREAM_BATCH and (batch, passes) in blocks


def online_cost(config: RunConfig) -> tuple[int, int, int]:
    """b_s, b and n_p of the run, or of the online run whose cost i.i.d. training equals."""
    learner = config.learner
    if config.iid:
        options = config.select(Iid.Options)
        return options.online_stream_batch, learner.batch, options.online_passes
    return learner.stream_batch, learner.batch, learner.passes


def paper_rows(config: RunConfig) -> tuple[dict[str, str], ...]:
    """The paper's hyperparameters for this strategy, objective, data set and budget."""
    dataset = config.dataset.partition(":")[0]
    if dataset not in ("cifar100", "imagenet100"):
        dataset = "imagenet100" if config.learner.image_size >= LARGE_IMAGES else "cifar100"
    row = row_name(config.strategy, config.learner.memory)
    row = "er-reservoir" if row == "er-minred" else row
    return hyperparameter_lines(config.budget, row, config.learner.method, dataset)


def _check(config: RunConfig) -> None:
    learner = config.learner
    normalize_first = learner.to_dict().get("normalize_first", False)
    as_authors = config.protocol == "authors"
    if as_authors != (learner.variant == "authors") or as_authors != normalize_first:
        raise ConfigError(
            f"protocol '{config.protocol}' does not go with variant '{learner.variant}' and normalize_first "
            f"{normalize_first}; set the protocol alone"
        )
    if getattr(config, "class_order", "data") == "authors" and config.dataset not in authors.CLASS_ORDERS:
        raise ConfigError(
            f"class_order authors is known for {' and '.join(authors.CLASS_ORDERS)}, not for {config.dataset}; "
            "leave it out"
        )
