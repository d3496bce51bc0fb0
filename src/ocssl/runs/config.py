"""What a run is told: the learner's parameters and the experiment's own, in one flat, strict set of settings.

The learner's constructor is the only place that knows its parameters; their names, types and defaults are read off its
signature. Unknown names are refused with the nearest known one.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model

from ocssl.errors import ConfigError, unreadable
from ocssl.evaluation import ProbeSchedule
from ocssl.learner import Learner
from ocssl.registry import unknown

LEARNER_SETTINGS = tuple(name for name in inspect.signature(Learner.__init__).parameters if name != "self")
"""Names of the settings that go to the learner as they are."""

RESUMABLE = frozenset(
    {"data_root", "device", "checkpoint_minutes", "checkpoint_samples", "keep_checkpoints", "trackers"}
)
"""Settings that say where and how, not what: a resumed run may have others."""

Tracker = Literal["tensorboard", "wandb", "mlflow"]


def _schedule(value: object) -> object:
    """A probe's schedule from the numbers in a file."""
    if isinstance(value, ProbeSchedule):
        return value
    if not isinstance(value, Mapping):
        raise ConfigError(f"probe is a group of settings, such as probe.lr, and cannot be {value!r}")
    fields = ProbeSchedule.__dataclass_fields__
    for name, number in value.items():
        if name not in fields:
            raise unknown("setting", f"probe.{name}", [f"probe.{known}" for known in fields])
        whole = isinstance(fields[name].default, int)
        if isinstance(number, bool) or not isinstance(number, int if whole else int | float):
            raise ConfigError(f"probe.{name} must be a {'whole ' * whole}number, not {number!r}")
    return ProbeSchedule(**value)


class RunConfig(BaseModel):
    """A complete run. Make one with :func:`parse`, which adds the learner's parameters to the fields below.

    Attributes:
        dataset: a known set, or ``folder:PATH``, ``parquet:PATH``, ``tar:PATH``, ``hf:REPO``.
        data_root: where data sets lie; unset: ``$OCSSL_DATA``, else ``data``.
        data_seed: draws the class order, the held-out samples and the order of the stream.
        experiences: how many groups the classes are dealt to.
        samples_per_class: use only so many images of each class, for training and for testing.
        validation_fraction: share of each class held out before the stream is made.
        budget: the paper's table that b, n_p, lr and ω come from; unset: none.
        protocol: ``clean``, or ``authors`` for the choices of the paper's public code.
        iid: train on shuffled data at equal CBP, the paper's upper bound.
        cbp: stop at this total CBP instead of the plan's; what ``init_from`` spent counts.
        init_from: folder of a run whose networks this one starts from.
        evaluate: measure after each experience, only at the end, or never.
        measure_on: ``validation`` to choose settings by: probes are scored on the held-out images, and the test images
            are not even opened.
        knn: measure by k-NN, too.
        references: measure the encoder before the first image and the raw pixels, too.
        probe: how the linear probe is trained.
        log_every: stream minibatches between two lines of metrics.
        checkpoint_minutes: a checkpoint so often, in minutes; 0: never by the clock.
        checkpoint_samples: and one every so many stream samples; unset: none.
        keep_checkpoints: how many of the latest are kept.
        trackers: where metrics go besides the folder.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    dataset: str = "cifar100"
    data_root: str | None = None
    data_seed: int = Field(0, ge=0)
    experiences: int = Field(20, ge=1)
    samples_per_class: int | None = Field(None, ge=2)
    validation_fraction: float = Field(0.1, gt=0, lt=1)
    budget: Literal["high", "low"] | None = None
    protocol: Literal["clean", "authors"] = "clean"
    iid: bool = False
    cbp: int | None = Field(None, ge=1)
    init_from: str | None = None
    evaluate: Literal["each", "final", "never"] = "each"
    measure_on: Literal["test", "validation"] = "test"
    knn: bool = True
    references: bool = True
    probe: Annotated[ProbeSchedule, BeforeValidator(_schedule)] = ProbeSchedule()
    log_every: int = Field(50, ge=1)
    checkpoint_minutes: float = Field(10.0, ge=0)
    checkpoint_samples: int | None = Field(None, ge=1)
    keep_checkpoints: int = Field(2, ge=1)
    trackers: list[Tracker] = Field(default_factory=list)

    def learner(self) -> dict[str, Any]:
        """The arguments of the learner; i.i.d. training is a stream of whole batches, one pass each."""
        arguments = {name: getattr(self, name) for name in LEARNER_SETTINGS}
        if self.iid:
            arguments |= {"stream_batch": arguments["batch"], "passes": 1}
        return arguments

    def __getitem__(self, name: str) -> Any:
        """A setting by name, the learner's included."""
        return getattr(self, name)

    def to_dict(self) -> dict[str, Any]:
        """All settings, as JSON and YAML know values."""
        return to_stored(self.model_dump(mode="json"))

    def to_yaml(self) -> str:
        """All settings, the learner's behind the experiment's own."""
        return yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True)

    def digest(self) -> str:
        """A fingerprint of everything that decides the numbers."""
        decisive = {name: value for name, value in self.to_dict().items() if name not in RESUMABLE}
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def _learner_fields() -> dict[str, Any]:
    types = typing.get_type_hints(Learner.__init__)
    types["backbone"] = str  # a file cannot hold a module
    parameters = inspect.signature(Learner.__init__).parameters
    return {name: (types[name], parameters[name].default) for name in LEARNER_SETTINGS}


_Complete = create_model("RunConfig", __base__=RunConfig, **_learner_fields())

SETTINGS = tuple(_Complete.model_fields)
"""Every name a setting can have."""


def parse(given: Mapping[str, Any]) -> RunConfig:
    """A configuration from settings by name; the rest are defaults.

    >>> parse({"strategy": "er", "lr": 0.1})["passes"]
    3
    >>> parse({"memroy": "fifo"})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ocssl.errors.ConfigError: unknown setting 'memroy'; did you mean 'memory'? Known: ...
    """
    given = from_stored(given)
    check_names(given)
    try:
        return _Complete.model_validate(dict(given))
    except ValidationError as error:
        raise one_sentence(error) from error


def check_names(given: Iterable[str]) -> None:
    """Refuse the first name that is no setting."""
    for name in given:
        if name not in (*SETTINGS, "stream", "width", "online_stream_batch", "online_passes"):
            raise unknown("setting", name, SETTINGS)


def merged(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with some of them changed; a group keeps what the change does not name.

    >>> merged({"lr": 0.1, "probe": {"lr": 0.05, "batch": 64}}, {"probe": {"batch": 32}})
    {'lr': 0.1, 'probe': {'lr': 0.05, 'batch': 32}}
    """
    both = {**settings, **changes}
    groups = [name for name in changes if isinstance(settings.get(name), Mapping) and isinstance(both[name], Mapping)]
    return both | {name: {**settings[name], **changes[name]} for name in groups}


def assignments(texts: Iterable[str], check: Callable[[Iterable[str]], None] = check_names) -> dict[str, Any]:
    """Settings from ``key=value`` texts; values are YAML, and a dot reaches into a group.

    Args:
        check: refuses names that are no settings; those of a run, unless told otherwise.

    >>> assignments(["lr=3e-2", "memory=fifo", "probe.max_epochs=10"])
    {'lr': 0.03, 'memory': 'fifo', 'probe': {'max_epochs': 10}}
    """
    given: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (equals and key):
            raise ConfigError(f"'{text}' must have the form key=value")
        name, *path = key.strip().split(".")
        check([name])
        group = given
        for step in path:
            group = group.setdefault(name, {})
            if not isinstance(group, dict):
                raise ConfigError(f"'{key}' reaches into '{name}', which was set to a plain value before")
            name = step
        group[name] = read_yaml(value, key)
    return given


def from_file(path: Path) -> dict[str, Any]:
    """Settings from a YAML file."""
    try:
        given = read_yaml(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(unreadable(path, error)) from error
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise ConfigError(f"'{path}' must hold settings as 'name: value' lines, not {type(given).__name__}")
    try:
        check_names(map(str, given))
    except ConfigError as error:
        raise ConfigError(f"'{path}': {error}") from error
    return given


class _Loader(yaml.SafeLoader):
    """Safe YAML in which 1e-3 is a number and a name stands once, as YAML 1.2 and everybody's intuition have it."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for name, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if str(name.value) in seen:
                raise yaml.constructor.ConstructorError(None, None, f"'{name.value}' is there twice", name.start_mark)
            seen.add(str(name.value))
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+"), list("-+.0123456789")
)


def read_yaml(text: str, where: str) -> Any:
    """The value of a YAML text; ``where`` is named if it is none."""
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ConfigError(f"{where} is not valid YAML: {line}{error.problem}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{where} is not valid YAML: {' '.join(str(error).split())}") from error


def one_sentence(error: ValidationError) -> ConfigError:
    """What pydantic found wrong first, as one of our errors."""
    first = error.errors()[0]
    if first["type"] == "value_error":  # one of our own sentences
        return ConfigError(str(first["ctx"]["error"]))
    name = ".".join(str(step) for step in first["loc"])
    return ConfigError(f"{name}: {first['msg'][0].lower()}{first['msg'][1:]}, not {first['input']!r}")


def resolve(given: Mapping[str, Any]) -> RunConfig:
    """The configuration that these settings mean: the paper's choices fill the rest."""
    from ocssl.runs.presets import complete

    return complete(given)


def unread(given: Mapping[str, Any]) -> set[str]:
    """Settings that the parts named in them do not read."""
    return set()


def to_stored(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as files of format 2 have them."""
    from ocssl.settings import views_together

    if settings.pop("iid"):
        online = {"online_stream_batch": settings["stream_batch"], "online_passes": settings["passes"]}
        settings |= {"stream": "iid", **online, "stream_batch": settings["batch"], "passes": 1}
    else:
        settings["stream"] = "class-incremental"
    settings["joint_views"] = views_together(settings["joint_views"], settings["variant"])
    name, _, width = settings["backbone"].partition("-w")
    return settings | ({"backbone": name, "width": int(width)} if width else {})


def from_stored(given: Mapping[str, Any]) -> dict[str, Any]:
    """The same with the names of this version."""
    from ocssl.settings import views_together

    old = dict(given)
    if old.get("joint_views") == views_together(None, old.get("variant", old.get("protocol", "clean"))):
        old["joint_views"] = None
    if (stream := old.pop("stream", None)) is not None:
        old["iid"] = stream == "iid"
    for name in ("stream_batch", "passes"):
        if f"online_{name}" in old:
            old[name] = old.pop(f"online_{name}")
    if (width := old.pop("width", None)) is not None:
        old["backbone"] = f"{given['backbone']}-w{width}"
    return old
