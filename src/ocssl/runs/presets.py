"""From the few settings a person gives to a complete configuration: the paper's choices fill the rest.

What was given always wins. Below it stand the paper's b, n_p, lr and ω for the budget, then what is known of the data
set, then the learner's own defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ocssl import settings
from ocssl.data.catalog import dataset_spec
from ocssl.data.loading import is_address
from ocssl.data.source import IMAGENET_MEAN, IMAGENET_STD
from ocssl.errors import ConfigError
from ocssl.results.published import read_csv
from ocssl.runs.config import RunConfig, check_names, from_stored, parse

EXPERIENCES = {"shapes": 6, "cifar10": 5, "svhn": 5}
"""For sets with too few classes for the paper's 20 experiences."""

PAPER_STREAM_BATCH = 10
LARGE_IMAGES = 128  # pixels; sets that the paper did not use take ImageNet100's choices from here on, else CIFAR-100's


def complete(given: Mapping[str, Any]) -> RunConfig:
    """The configuration that these settings mean.

    >>> config = complete({"strategy": "cla-e", "method": "simsiam", "budget": "high"})
    >>> [config[name] for name in ("batch", "passes", "lr", "omega", "memory", "variant")]
    [138, 3, 0.3, 0.3, 'fifo', 'clean']
    """
    given = from_stored(given)
    check_names(given)
    draft = parse(given)
    filled = _data_set(draft) | dict(given)
    filled |= _strategy(parse(filled), given)
    filled.setdefault("variant", draft.protocol)
    if draft.budget is not None:
        filled = _paper(parse(filled), given) | filled
    if filled.get("batch") is None:
        filled["batch"] = _batch(parse(filled))
    config = parse(filled)
    _check(config)
    return config


def is_papers_budget(config: RunConfig) -> bool:
    """Whether b_s, b and n_p are those of the paper's tables, so that the budget's name is true."""
    blocks = [(int(row["b"]), int(row["n_p"])) for row in _rows(config)]
    plain = config.cbp is None and config.init_from is None and config["stream_batch"] == PAPER_STREAM_BATCH
    return plain and (config["batch"], config["passes"]) in blocks


def _data_set(draft: RunConfig) -> dict[str, Any]:
    if is_address(draft.dataset):
        return {"mean": IMAGENET_MEAN, "std": IMAGENET_STD}
    known = dataset_spec(draft.dataset)
    return {
        "image_size": known.image_size,
        "mean": known.mean,
        "std": known.std,
        "experiences": EXPERIENCES.get(known.name, 20),
    }


def _strategy(draft: RunConfig, given: Mapping[str, Any]) -> dict[str, Any]:
    """The names that a strategy decides where nobody did."""
    strategy = draft["strategy"]
    if draft.iid:
        if given.get("strategy", "finetune") != "finetune":
            raise ConfigError(f"iid training has no strategy; leave out either iid or strategy '{strategy}'")
        strategy = "finetune"
    return {
        "strategy": strategy,
        "method": settings.method_name(strategy, draft["method"]),
        "memory": settings.memory_name(strategy, draft["memory"], given.get("variant", draft.protocol)),
    }


def _batch(config: RunConfig) -> int:
    # I.i.d. batches are as large as those of the replay strategies it is compared with.
    return settings.batch_size("er" if config.iid else config["strategy"], config["stream_batch"], None)


def _paper(config: RunConfig, given: Mapping[str, Any]) -> dict[str, Any]:
    rows = _rows(config)
    if not rows:
        raise ConfigError(
            f"the paper has no {config.budget} budget for {row_name(config)}; leave budget out and set batch, passes "
            "and lr"
        )
    # The low budget has two blocks for i.i.d.; what was given of b and n_p tells which, the larger batch otherwise.
    told = {column: given.get(name) for column, name in (("b", "batch"), ("n_p", "passes"))}
    fitting = [row for row in rows if all(value in (None, int(row[column])) for column, value in told.items())]
    row = max(fitting or rows, key=lambda row: int(row["b"]))
    found = {"batch": int(row["b"]), "passes": int(row["n_p"]), "lr": float(row["lr"])}
    return found | ({"omega": float(row["omega"])} if row["omega"] else {})


def row_name(config: RunConfig) -> str:
    """What the paper's tables call this run.

    >>> row_name(complete({"strategy": "er", "memory": "fifo"}))
    'er-fifo'
    """
    if config.iid:
        return "iid"
    if config["strategy"] == "er":
        return "er-fifo" if config["memory"] == "fifo" else "er-reservoir"
    return str(config["strategy"])


def _rows(config: RunConfig) -> list[dict[str, str]]:
    base = config.dataset.partition(":")[0]
    dataset = base if base in ("cifar100", "imagenet100") else None
    dataset = dataset or ("imagenet100" if config["image_size"] >= LARGE_IMAGES else "cifar100")
    wanted = {"budget": config.budget, "method": row_name(config), "dataset": dataset, "ssl": config["method"] or "-"}
    return [row for row in read_csv("hyperparameters") if all(row[key] == value for key, value in wanted.items())]


def _check(config: RunConfig) -> None:
    order = config["augmentation"] or ("authors" if config["variant"] == "authors" else "clean")
    if (config.protocol == "authors") != (config["variant"] == "authors") or order != config.protocol:
        raise ConfigError(
            f"protocol '{config.protocol}' does not go with variant '{config['variant']}' and augmentation '{order}'; "
            "set the protocol alone"
        )
