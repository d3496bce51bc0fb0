"""The result of a run: its numbers, and the settings, versions and hardware behind them."""

from __future__ import annotations

import json
from math import isclose
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from ocssl.common.console import percent, shown
from ocssl.common.files import read_file
from ocssl.errors import ConfigError, DataError, unreadable
from ocssl.plugins import Plugin
from ocssl.results.names import setting_text

Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
Protocol = Literal["clean", "authors"]
PROTOCOLS: tuple[Protocol, ...] = ("clean", "authors")
Block = tuple[int, int, int]
"""b_s, b and n_p."""

REQUIRED = ("dataset", "protocol", "strategy", "method", "memory", "stream", "stream_batch", "batch", "passes", "seed")
"""Settings that tables and figures read."""
MEASURING = ("measure_on", "eval_crops")
"""Settings of how the encoder was measured that stand beside labels, not in them."""


def _readable(config: dict[str, Any]) -> dict[str, Any]:
    if missing := [name for name in REQUIRED if name not in config]:
        raise ValueError(f"the setting '{missing[0]}' is missing")
    if config["protocol"] not in PROTOCOLS:
        raise ValueError(f"protocol must be 'clean' or 'authors', not {shown(config['protocol'])}")
    prefix = "online_" if config["stream"] == "iid" else ""
    counted = ("stream_batch", "batch", "passes", f"{prefix}stream_batch", f"{prefix}passes")
    for name, least in {"seed": 0, **dict.fromkeys(counted, 1)}.items():
        if type(config.get(name)) is not int or not least <= config[name] < 2**63:
            raise ValueError(f"{name} must be a whole number of at least {least}, not {shown(config.get(name))}")
    for name in ("eval_crops", "early_images", "early_passes"):  # younger than the others
        if name in config and type(config[name]) is not int:
            raise ValueError(f"{name} must be a whole number, not {shown(config[name])}")
    for name in ("lr", "omega"):
        if not isinstance(config.get(name), float | int | None):
            raise ValueError(f"{name} must be a number, not {shown(config[name])}")
    for name in ("strategy", "method", "memory", "stream", "init_from"):
        if not isinstance(config.get(name), str | None):
            raise ValueError(f"{name} must be a name, not {shown(config[name])}")
    named = {"init_from": Path(config["init_from"]).name} if config.get("init_from") else {}
    return config | ({"data_root": None} if "data_root" in config else {}) | named


def _counted(hardware: dict[str, Any]) -> dict[str, Any]:
    for name in ("threads", "processes", "runs_at_once"):
        if not isinstance(hardware.get(name), int | None):
            raise ValueError(f"{name} must be a whole number, not {shown(hardware[name])}")
    return hardware


Config = Annotated[
    dict[str, Any],
    AfterValidator(_readable),
    Field(json_schema_extra={"required": list(REQUIRED), "properties": {"protocol": {"enum": list(PROTOCOLS)}}}),
]


def _check_curve(numbers: Curve | Result) -> None:
    """Refuse a Final or Avg that is not that of the curve."""
    final, avg, curve = numbers.final, numbers.avg, numbers.curve
    end, mean = (curve[-1], fmean(curve)) if curve else (None, None)
    if final != end:
        raise ValueError(f"final is {final}, but the curve ends with {end}")
    if avg is not None and (mean is None or not isclose(avg, mean, abs_tol=0.01)):
        raise ValueError(f"avg is {avg}, but the mean of the curve is {percent(mean)}")


class Curve(BaseModel):
    """Accuracies of one kind of probe along the stream, in percent."""

    final: Percent
    avg: Percent | None
    curve: list[Percent]

    @model_validator(mode="after")
    def _consistent(self) -> Curve:
        _check_curve(self)
        return self


class Result(BaseModel):
    """The content of ``result.json``. Accuracies are in percent, over all classes, on the images ``measured_on``.

    Attributes:
        key: identifies the experiment: the same for every seed, device and execution.
        label: the strategy as papers print it, with its memory where that is not the usual one.
        name: the run in a few words, seed included; the stem of its file.
        overrides: settings in which the experiment differs from the paper's with the same strategy, method, memory,
            data set, protocol, b_s, b and n_p; empty for the paper's own.
        dataset: what was measured on; ``a->b`` for an encoder trained on a and probed on b.
        budget: ``high`` or ``low`` where b_s, b and n_p are the paper's, else ``custom``.
        final: linear probe after the last experience; None where nothing was measured.
        avg: mean over the probes after each experience; None where only the end was measured.
        curve: the probes after each experience.
        cbp_planned, cbp_spent: cumulative backward passes; those of a run this one started from included.
        train_seconds, eval_seconds: time of training and of evaluation, without checkpoints and start-up.
        seconds_at: ``train_seconds`` at the end of each experience.
        prepare_seconds: time of compiling and graph capture, not part of ``train_seconds``.
        knn: the same accuracies by k-NN.
        matrix: ``matrix[i][j]``: after experience i, on the classes of experience j.
        forgetting: mean drop of each experience's accuracy from its best, in points.
        references: floors, by linear probe: ``untrained`` (``initial`` for a run that started from another) is the
            encoder before the first image, ``pixels`` the raw images, ``histogram`` the square roots of their colour
            histograms.
        knn_references: the same by k-NN.
        borders: stream samples seen at each point of the curve.
        experiences: the classes of each experience.
        samples: length of the stream.
        fingerprint: digest of the order of the stream.
        pixels: digest of the images and their labels, by split; None in results of earlier versions.
        plugins: modules outside ocssl that parts come from; None in results of earlier versions.
        warnings: warnings of the run.
        config: every setting by name, without folders of the machine: of ``init_from`` the name, and no ``data_root``.
        backbone_settings: names of the settings of its backbone; empty in results of earlier versions.
        code: commit or version of the code.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    key: str
    label: str
    name: str
    overrides: dict[str, Any]
    dataset: str
    budget: Literal["high", "low", "custom"]
    final: Percent | None
    avg: Percent | None
    curve: list[Percent]
    cbp_planned: int = Field(ge=0)
    cbp_spent: int = Field(ge=0)
    train_seconds: float = Field(ge=0)
    eval_seconds: float = Field(ge=0)
    seconds_at: list[float] = Field(default_factory=list)
    prepare_seconds: float = Field(default=0, ge=0)
    knn: Curve | None
    matrix: list[list[Percent]]
    forgetting: float | None
    references: dict[str, Percent]
    knn_references: dict[str, Percent] = Field(default_factory=dict)
    borders: list[int]
    experiences: list[list[int]]
    samples: int = Field(ge=1)
    fingerprint: str
    pixels: dict[str, str] | None = None
    plugins: list[Plugin] | None = None
    warnings: list[str]
    config: Config
    backbone_settings: list[str] = Field(default_factory=list)
    versions: dict[str, str]
    hardware: Annotated[dict[str, Any], AfterValidator(_counted)]
    code: str
    started: str
    finished: str
    format: Literal[2] = 2

    def __repr__(self) -> str:
        """Its name and what was measured; ``model_dump()`` has the rest."""
        return f"Result({self.name}: Final {percent(self.final)}, Avg {percent(self.avg)}, CBP {self.cbp_spent:,})"

    __str__ = __repr__

    @model_validator(mode="after")
    def _consistent(self) -> Result:
        _check_curve(self)
        if len(self.borders) < len(self.curve):
            raise ValueError(f"the curve has {len(self.curve)} points, but borders only {len(self.borders)}")
        if trained_on(self.dataset) != self.config["dataset"]:
            raise ValueError(f"dataset is {self.dataset}, but the run trained on {self.config['dataset']}")
        return self

    @property
    def labelled(self) -> dict[str, Any]:
        """The overrides that labels name: all but :data:`MEASURING`."""
        return {name: value for name, value in self.overrides.items() if name not in MEASURING}

    @property
    def title(self) -> str:
        """The label, and every setting that differs from the paper's."""
        return ", ".join([self.label, *(setting_text(name, value) for name, value in self.labelled.items())])

    @property
    def strategy(self) -> str:
        """The strategy; ``iid`` for i.i.d. training."""
        return "iid" if self.config["stream"] == "iid" else str(self.config["strategy"])

    @property
    def method(self) -> str | None:
        """The objective; None where the strategy has its own."""
        return self.config["method"]  # type: ignore[no-any-return]

    @property
    def memory(self) -> str | None:
        """The replay memory; None without replay."""
        return self.config["memory"]  # type: ignore[no-any-return]

    @property
    def protocol(self) -> Protocol:
        """``clean`` or ``authors``; numbers of the two are not comparable."""
        return self.config["protocol"]  # type: ignore[no-any-return]

    @property
    def seed(self) -> int:
        """The seed of weights and random draws."""
        return int(self.config["seed"])

    @property
    def measured_on(self) -> str:
        """The images behind the accuracies: ``test``, or ``validation`` in runs that compare settings."""
        return str(self.config.get("measure_on", "test"))

    @property
    def crops(self) -> int:
        """Crops of each image whose features were averaged before they were measured."""
        return int(self.config.get("eval_crops", 1))

    @property
    def measure(self) -> tuple[str, str, str, int]:
        """Data set, protocol, images and crops; accuracies of two results compare where these are equal."""
        return self.dataset, self.protocol, self.measured_on, self.crops

    @property
    def only_floors(self) -> bool:
        """Whether nothing was trained, so that it holds floors and nothing else."""
        return self.config.get("evaluate") == "start"

    @property
    def block(self) -> Block:
        """b_s, b and n_p; for i.i.d. training those of the online strategies that cost the same."""
        prefix = "online_" if self.config["stream"] == "iid" else ""
        b_s, n_p = self.config[f"{prefix}stream_batch"], self.config[f"{prefix}passes"]
        return int(b_s), int(self.config["batch"]), int(n_p)

    def same_stream(self, other: Result) -> bool:
        """Whether two runs saw the same images in the same order, as far as their results say.

        Where the run's seed orders the samples, runs of different seeds differ in nothing else.
        """
        by_seed = self.seed != other.seed and all(one.config.get("sample_order") == "seed" for one in (self, other))
        return self.same_pixels(other) and (by_seed or self.fingerprint == other.fingerprint)

    def same_pixels(self, other: Result) -> bool:
        """Whether two results are of the same images and labels, as far as they say."""
        ours, theirs = self.pixels or {}, other.pixels or {}
        return all(ours[split] == theirs[split] for split in ours.keys() & theirs.keys())

    def to_json(self) -> str:
        """The content of the file."""
        return json.dumps(self.model_dump(mode="json"), indent=1) + "\n"


def trained_on(dataset: str) -> str:
    """The data set that an encoder was trained on.

    >>> trained_on("cifar100->svhn"), trained_on("cifar100")
    ('cifar100', 'cifar100')
    """
    return dataset.partition("->")[0]


def probed_on(dataset: str) -> str | None:
    """The other data set that an encoder is probed on, if any.

    >>> probed_on("cifar100->svhn")
    'svhn'
    """
    return dataset.partition("->")[2] or None


def read_result(path: str | Path) -> Result:
    """Read a result file, or the one in a run's folder; a file that is not a complete result is refused."""
    place = Path(path)
    file = place / "result.json" if place.is_dir() else place
    try:
        return Result.model_validate(_upgraded(json.loads(read_file(file))))
    except FileNotFoundError as error:
        what = "has no result.json, so it is no finished run" if place.is_dir() else "does not exist"
        raise DataError(f"'{place}' {what}") from error
    except DataError as error:
        raise DataError(f"'{file}' {error}") from error
    except ConfigError as error:
        raise DataError(f"'{file}' has a configuration that this version does not know: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"{step}: " for step in first["loc"][:1])
        reason = first.get("ctx", {}).get("error", first["msg"])
        if first["type"] == "extra_forbidden":
            reason = "unknown to this version of ocssl; upgrade it"
        raise DataError(f"'{file}' is not a complete result: {where}{reason}") from error
    except OSError as error:
        raise DataError(unreadable(file, error)) from error
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"'{file}' is not a complete result: not whole JSON ({error}); was it cut short? Copy it again or remove it"
        ) from error


def _upgraded(content: Any) -> Any:
    """The content in today's format; files of format 1 are converted."""
    if not isinstance(content, dict):
        raise DataError("is not a complete result: not a JSON object")
    if (version := content.get("format", 1)) not in (1, 2):
        raise DataError(f"is of format {shown(version)}, and this version of ocssl reads 1 and 2; upgrade it")
    if version == 2 or not isinstance(content.get("config"), dict):
        return content
    from ocssl.runs.format1 import upgrade

    return upgrade(content)


def schema() -> dict[str, Any]:
    """The JSON schema of ``result.json``, published as ``result.schema.json``."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Result.model_json_schema()}
