"""The configuration of a run: a learner's, a stream's, and how the encoder is measured.

In Python the learner's configuration is a part of the run's (``config.learner``). Files and the command line have all
settings side by side, since no name is used twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from ocssl import config as learner_config
from ocssl.augment import MAX_CROPS
from ocssl.common.files import json_digest
from ocssl.common.yaml import from_file
from ocssl.config import LearnerConfig, parse_learner
from ocssl.data import catalog, streams
from ocssl.errors import ConfigError
from ocssl.evaluation import ProbeSchedule
from ocssl.options import Declared, Options, combine, declared, default_of, marks, setting, unknown_setting, validate
from ocssl.plugins import Plugin, describe, name_plugins, recall
from ocssl.results.result import Protocol

BudgetName = Literal["high", "low"]
PLUGINS = "plugins"  # beside the settings in YAML files
TrackerName = Literal["tensorboard", "wandb", "mlflow"]


class RunConfig(Options):
    """Settings of every run. :func:`parse` adds those of the stream that it names."""

    learner: LearnerConfig = setting(LearnerConfig(), "The learner's configuration.")
    dataset: str = setting(
        "cifar100",
        "Data set: a known one (`ocssl data list`), or folder:PATH, parquet:PATH, tar:PATH, hf:REPO.",
        common=True,
    )
    stream: str = setting("class-incremental", "Order of the images; see `ocssl list streams`.", common=True)
    budget: BudgetName | None = setting(
        None,
        "Budget of the paper; batch, passes, lr and omega are taken from its tables.",
        affects="numbers",
        common=True,
    )
    protocol: Protocol = setting(
        "clean", "Augmentation and order; `clean`: corrected; `authors`: as in the paper's public code.", common=True
    )
    data_root: str | None = setting(
        None, "Folder with data sets; unset: $OCSSL_DATA, else `data`.", affects="nothing", common=True
    )
    data_seed: int = setting(0, "Seed of the class order, the held-out samples and the order of the stream.", ge=0)
    samples_per_class: int | None = setting(
        None, "Images used of each class; so many for training, and so many for testing. Unset: all.", ge=2, common=True
    )
    validation_fraction: float = setting(0.1, "Share of each class held out before the stream is made.", gt=0, lt=1)
    cbp: int | None = setting(
        None, "Stop at this total CBP instead of the stream's end; what `init_from` spent counts.", ge=1
    )
    init_from: str | None = setting(None, "Run to start from; its networks are taken.", common=True)
    evaluate: Literal["each", "final", "never", "start"] = setting(
        "each",
        "When the encoder is measured: after each experience, only at the end, or never; `start` measures the floors "
        "and trains nothing.",
    )
    measure_on: Literal["test", "validation"] = setting(
        "test", "Images that probes are scored on; `validation` to choose settings by, the test images stay unopened."
    )
    eval_crops: int = setting(
        1,
        "Crops of each image whose features are averaged when the encoder is measured, see `Learner.transform`; 1: the "
        "image itself. Results with several are never averaged or ranked with others.",
        ge=1,
        le=MAX_CROPS,
        since="0.2",
    )
    knn: bool = setting(True, "Measure by k-NN, too.", affects="numbers")
    references: bool = setting(
        True,
        "Measure the floors, too: the untrained encoder, the raw pixels and a colour histogram.",
        affects="numbers",
    )
    probe: ProbeSchedule = setting(ProbeSchedule(), "How the linear probe is trained, e.g. probe.lr.")
    log_every: int = setting(50, "Stream minibatches between two lines of metrics.", ge=1, affects="numbers")
    checkpoint_minutes: float = setting(
        10.0, "Minutes between checkpoints; 0: none by the clock.", ge=0, affects="nothing"
    )
    checkpoint_samples: int | None = setting(
        None, "Stream samples between checkpoints; unset: none by samples.", ge=1, affects="nothing"
    )
    keep_checkpoints: int = setting(2, "How many of the latest checkpoints are kept.", ge=1, affects="nothing")
    trackers: list[TrackerName] = setting([], "Where metrics go besides the folder.", affects="nothing")

    @property
    def iid(self) -> bool:
        """Whether the images arrive shuffled: the paper's upper bound."""
        return self.stream == "iid"

    @property
    def strategy(self) -> str:
        """The strategy as results name it: the learner's, or ``iid`` where the images arrive shuffled."""
        return "iid" if self.iid else self.learner.strategy

    @property
    def full_precision(self) -> bool:
        """Whether features are measured in float32, as the authors do; by default in the precision of training."""
        return self.protocol == "authors"

    def stream_options(self) -> streams.StreamType.Options:
        """The settings of its stream."""
        return self.select(streams.registry.get(self.stream).Options)

    def to_dict(self) -> dict[str, Any]:
        """Every setting, the learner's behind the run's own, as JSON and YAML have values."""
        own = self.model_dump(mode="json", exclude={"learner"})
        return {**own, **self.learner.to_dict()}

    def plugins(self) -> list[Plugin]:
        """The plugins that its stream, its data set and the learner's parts come from."""
        own = streams.registry.modules(self.stream) | catalog.registry.modules(self.dataset)
        return describe(own | self.learner.plugin_modules())

    def to_yaml(self) -> str:
        """Every setting, and the plugins that are needed, as ``config.yaml`` has it."""
        plugins = {plugin.module: plugin.names for plugin in self.plugins()}
        said = self.to_dict() | ({PLUGINS: plugins} if plugins else {})
        return yaml.safe_dump(said, sort_keys=False, allow_unicode=True)

    def fields(self) -> dict[str, FieldInfo]:
        """The declarations of its settings, the learner's behind the run's own."""
        return {**type(self).model_fields, **type(self.learner).model_fields}

    def field(self, name: str) -> FieldInfo:
        """The declaration of one setting, or of one in a group.

        >>> RunConfig().field("probe.lr").annotation
        <class 'float'>
        """
        group, _, inner = name.partition(".")
        found: Any = self.fields()[group]
        return found.annotation.model_fields[inner] if inner else found  # type: ignore[no-any-return]

    def only(self, *affects: str) -> dict[str, Any]:
        """The settings that affect the experiment, the numbers, or nothing; later ones only if not at their default."""
        fields = self.fields()
        found = {name: value for name, value in self.to_dict().items() if marks(fields[name]).affects in affects}
        later = {name: to_jsonable_python(default_of(fields[name])) for name in found if marks(fields[name]).since}
        return {name: value for name, value in found.items() if name not in later or value != later[name]}

    def digest(self) -> str:
        """A fingerprint of everything that decides a number."""
        return json_digest(self.only("experiment", "numbers"))

    def change(self, **changes: Any) -> RunConfig:
        """The same run with some settings changed."""
        return parse(merged(self.to_dict(), changes))

    def difference(self, other: RunConfig) -> str | None:
        """The first setting that decides a number and differs; None where there is none."""
        ours, theirs = self.only("experiment", "numbers"), other.only("experiment", "numbers")
        return next((name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)), None)

    def __reduce__(self) -> tuple[Any, ...]:
        return parse, (self.to_dict(),)


def parse(given: Mapping[str, Any]) -> RunConfig:
    """A run's configuration from settings by name; those not given have their defaults.

    >>> parse({"strategy": "er", "lr": 0.1}).learner.passes
    3
    >>> parse({"memroy": "fifo"})
    Traceback (most recent call last):
    ...
    ocssl.errors.ConfigError: unknown setting 'memroy'; did you mean 'memory'?
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    stream = chosen.get("stream", default_of(RunConfig.model_fields["stream"]))
    model = combine(RunConfig, streams.registry.get(stream).Options)
    own = {name: value for name, value in chosen.items() if name in model.model_fields and name != "learner"}
    read = learner_config.known_names(chosen)
    for name, value in given.items():
        if name not in read and name not in model.model_fields:
            _refuse(name, stream, value)
    if "probe" in own and not isinstance(own["probe"], ProbeSchedule):
        if not isinstance(own["probe"], Mapping):
            raise ConfigError(f"probe is a group of settings, such as probe.lr, and cannot be {own['probe']!r}")
        own["probe"] = validate(ProbeSchedule, own["probe"], prefix="probe.")
    learner = parse_learner({name: value for name, value in chosen.items() if name not in own})
    for name in model.model_fields.keys() & type(learner).model_fields.keys():
        ours = "the run" if name in RunConfig.model_fields else f"stream '{stream}'"
        raise ConfigError(f"setting '{name}' is declared twice, by {ours} and by a part of the learner; rename one")
    config: RunConfig = validate(model, {**own, "learner": learner})
    return config


def settings() -> dict[str, Declared]:
    """Every setting of a run by name: its own, its streams', then the learner's."""
    options: dict[tuple[str, str], Mapping[str, FieldInfo]] = {("", ""): RunConfig.model_fields}
    for name, stream in streams.registry.parts().items():
        options["stream", name] = stream.Options.model_fields
    own = {name: entry for name, entry in declared(options).items() if name != "learner"}
    return own | learner_config.settings()


def unread(given: Mapping[str, Any]) -> set[str]:
    """Names among ``given`` that are settings of some part, but of none of those that ``given`` names.

    >>> sorted(unread({"strategy": "er", "omega": 3, "stream": "iid", "experiences": 5}))
    ['experiences', 'omega']
    """
    left = given.keys() - read_names(given)
    return left & settings().keys() if left else set()


def read_names(given: Mapping[str, Any]) -> set[str]:
    """Names of all settings that the stream and the learner's parts named in ``given`` read."""
    stream = streams.registry.get(given.get("stream") or default_of(RunConfig.model_fields["stream"]))
    parts = {**given, "strategy": "finetune"} if given.get("stream") == "iid" else given
    return {*RunConfig.model_fields, *stream.Options.model_fields} | learner_config.known_names(parts)


def read_settings(path: Path, every: Callable[[], Mapping[str, Declared]] = settings) -> dict[str, Any]:
    """Settings from a YAML file, after the plugins that it names were imported.

    Args:
        every: returns all settings that there may be; called once the plugins are imported.
    """
    given, known = take_plugins(from_file(path), path), every()
    try:
        for name in map(str, given):
            if name not in known:
                read_names(given)  # where it is of a part whose plugin is missing, this error says so
                raise _unknown(name, known)
    except ConfigError as error:
        raise ConfigError(f"'{path}': {error}") from error
    return given


def take_plugins(given: dict[str, Any], path: Path) -> dict[str, Any]:
    """The content of a YAML file without its plugins, which are imported.

    A list of modules must be importable. A run's own file has their parts, too, so that a part that is missing later
    can be explained.
    """
    rest = {name: value for name, value in given.items() if name != PLUGINS}
    match given.get(PLUGINS, []):
        case dict(parts) if all(isinstance(names, list) for names in parts.values()):
            recall({str(module): [str(name) for name in names] for module, names in parts.items()})
        case list(modules) if all(isinstance(module, str) for module in modules):
            name_plugins(modules, f"'{path}'")
        case other:
            raise ConfigError(f"'{path}': plugins must be a list of modules, not {other!r}")
    return rest


def merged(before: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with some of them changed; a group keeps what the change does not name.

    >>> merged({"lr": 0.1, "probe": {"lr": 0.05, "batch": 64}}, {"probe": {"batch": 32}})
    {'lr': 0.1, 'probe': {'lr': 0.05, 'batch': 32}}
    """
    both = {**before, **changes}
    groups = [name for name in changes if isinstance(before.get(name), Mapping) and isinstance(both[name], Mapping)]
    return both | {name: {**before[name], **changes[name]} for name in groups}


def _unknown(name: str, known: Mapping[str, Declared]) -> ConfigError:
    """The error for a name that is no setting; a dot reaches into a group in ``--set`` and sweep spaces only."""
    group, _, inner = name.partition(".")
    if inner and group == "probe" and group in known:  # the only group
        return ConfigError(f"'{name}' cannot be written with a dot here; write {group}: {{{inner}: …}}")
    return unknown_setting(name, known)


def _refuse(name: str, stream: str, value: object) -> None:
    """Refuse a setting of another stream, or of nothing; one of another part of the learner is refused there."""
    entry = settings().get(name)
    if entry is None:
        raise _unknown(name, settings())
    if "stream" in entry.owners and len(entry.owners) == 1 and value is not None:
        raise ConfigError(f"stream '{stream}' does not read {name}, a setting of {entry.readers}; leave it out")
