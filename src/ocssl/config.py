"""The configuration of a learner: one flat, frozen model of exactly those settings that its parts read.

Names of parts (strategy, method, memory, optimizer, augmentation, backbone) choose classes; the options of these
classes become settings of the configuration. What nothing reads is refused, and defaults are filled in, so two
configurations are the same experiment where they are equal.

>>> config = parse_learner({"strategy": "cla-e", "lr": 0.3})
>>> config.batch, config.select(strategies.ClaE.Options).omega
(138, 0.3)
>>> parse_learner({"strategy": "er", "omega": 3})  # doctest: +ELLIPSIS
Traceback (most recent call last):
...
ocssl.errors.ConfigError: strategy 'er' does not read omega, a setting of strategies cassle, ...; leave it out
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import partial
from inspect import Parameter, Signature
from typing import Any, Literal, NamedTuple

from pydantic.fields import FieldInfo

from ocssl import augment, memory, methods, optim, strategies
from ocssl.budget import MAX_COUNT
from ocssl.common.console import shown
from ocssl.errors import ConfigError
from ocssl.imaging import Fit, check_pixel_range
from ocssl.memory import Memory
from ocssl.methods import Method, MultiCrop
from ocssl.nn import backbones
from ocssl.options import Declared, Options, Pair, combine, declared, default_of, setting, unknown_setting, validate
from ocssl.plugins import Plugin, describe, explain
from ocssl.registry import Registry
from ocssl.strategies import Strategy
from ocssl.strategies.base import SMALL_BATCH, ByBatch

LARGEST_SEED = 2**63 - 1  # that every generator takes

Variant = Literal["default", "authors", "original"]

REGISTRIES: dict[str, Registry[Any]] = {
    "strategy": strategies.registry,
    "method": methods.registry,
    "memory": memory.registry,
    "optimizer": optim.registry,
    "augmentation": augment.registry,
    "backbone": backbones.registry,
}
"""Where the parts of a learner are registered, by the setting that names one."""
NAMING = (*REGISTRIES, "variant")
"""Settings that choose the parts of a learner."""


class LearnerConfig(Options):
    """Settings of every learner. :func:`parse_learner` adds those of the parts that it names."""

    strategy: str = setting("cla-e", "Continual-learning strategy; see `ocssl list strategies`.", common=True)
    method: str | None = setting(
        "simsiam",
        "Self-supervised objective; see `ocssl list methods`. Unset for strategies with a loss of their own.",
        common=True,
    )
    memory: str | None = setting(
        None,
        "Replay memory; see `ocssl list memories`. Unset: the strategy's own choice, none without replay.",
        common=True,
    )
    backbone: str | None = setting(
        "resnet18",
        "Network; see `ocssl list backbones`. `resnet18-w16` is short for width 16; `timm:NAME` needs timm; "
        "`module:factory` is what a function of yours returns.",
        common=True,
    )
    weights: str | None = setting(
        None,
        "Weights to start from; a state dict of the backbone (.safetensors, .pth), or a source that names the "
        "backbone, too: an encoder, state or run of ours, `timm:NAME`, `hf-hub:NAME`, `module:factory`, "
        "`efficientnet-lite0`. Image_size, mean and std follow from it where they are not given, and the strategy is "
        "`adapt` unless another is named, or a setting that only others read. Unset: random ones.",
        since="0.2",
    )
    augmentation: str = setting("simclr", "Augmentation of the views; see `ocssl list augmentations`.")
    optimizer: str = setting("sgd", "Optimiser; see `ocssl list optimizers`.")
    variant: Variant = setting(
        "default",
        "`default`; `authors`: the choices of the paper's public code; `original`: what the compared method's own "
        "authors do.",
    )
    image_size: int = setting(32, "Side of the images; they are square.", ge=1, le=8192, common=True)
    fit: Fit = setting(
        "crop",
        "Images that are not square; `crop`: their largest centred square; `squash`: all of them, with another aspect "
        "ratio. `ocssl learn` squashes by default.",
        since="0.2",
    )
    pixel_range: Pair | None = setting(
        None,
        "Black and white of image files with more than 8 bits or floating point numbers, e.g. [0, 4095]. Unset: 0 and "
        "65,535; images of floating point numbers are refused.",
        since="0.2",
    )
    stream_batch: int = setting(10, "Images per stream minibatch.", symbol="b_s", ge=1, le=65_536)
    batch: int = setting(
        138,
        "Images per training step. Unset: stream_batch, plus 128 with replay.",
        symbol="b",
        ge=1,
        le=65_536,
        common=True,
    )
    passes: int = setting(3, "Steps per stream minibatch.", symbol="n_p", ge=1, le=10_000, common=True)
    early_passes: int = setting(
        1, "Steps per minibatch, instead of passes, for the first early_images images.", ge=1, le=10_000, since="0.2"
    )
    early_images: int = setting(
        0, "Images at the start that have early_passes; 0: none.", ge=0, le=MAX_COUNT, since="0.2"
    )
    joint_views: bool = setting(
        True,
        "All views in one forward pass, nearly twice as fast. Unset: false in the variant `authors` and for batches of "
        f"at most {SMALL_BATCH} images, which learn more with false; else true.",
    )
    sync_norm: bool = setting(True, "In a process group, batch norm uses the rows of all processes.")
    hidden_dim: int = setting(512, "Hidden width of the projector and of the other heads.", ge=1, le=65_536)
    output_dim: int = setting(2048, "Output width of the projector.", ge=1, le=65_536)
    average: float = setting(
        0.0,
        "Decay of a moving average of the network, which is deployed instead of the network in training; 0: none.",
        ge=0,
        lt=1,
        since="0.2",
    )
    average_power: float = setting(
        0.0,
        "Power γ that makes that average short at first: step s weighs as s^γ, and the average reaches back over about "
        "1/(γ + 1) of all steps, until the decay `average` is reached; 0: all first steps weigh the same. Unset: the "
        "strategy's, where `average` is unset, too; else 0.",
        symbol="γ",
        ge=0,
        le=1000,
        since="0.2",
    )
    precision: Literal["auto", "fp32", "bf16", "fp64"] = setting(
        "auto", "Precision of the forward pass; `auto` is bf16 on a GPU and fp32 elsewhere.", affects="numbers"
    )
    execution: Literal["auto", "eager", "graph", "compiled"] = setting(
        "auto", "How steps run; `auto` captures CUDA graphs on a GPU.", affects="numbers"
    )
    seed: int = setting(0, "Seed of weights and draws.", ge=0, le=LARGEST_SEED, common=True)
    device: str = setting(
        "auto", "`auto`, `cpu`, `cuda:1` …; `auto` is a GPU where there is one.", affects="nothing", common=True
    )

    def passes_at(self, seen: int) -> int:
        """Steps on the minibatch that follows after ``seen`` images.

        >>> config = parse_learner({"early_passes": 4, "early_images": 1000, "passes": 2})
        >>> config.passes_at(0), config.passes_at(990), config.passes_at(1000)
        (4, 4, 2)
        """
        return self.early_passes if seen < self.early_images else self.passes

    def cost(self, views: int | None = None) -> Fraction:
        """Backward passes of each sample in a step, with so many views; unset: those of the configuration.

        >>> print(parse_learner({"strategy": "pocon", "views": 3}).cost())   # two networks are trained
        6
        """
        parts = self.parts()
        cost = Fraction(getattr(self, "views", 2) if views is None else views)
        if parts.method is not None and issubclass(parts.method, MultiCrop):
            cost += self.select(parts.method.Options).small_cost(self.image_size)
        return parts.strategy.backward_passes * cost

    def step_cost(self) -> int:
        """Backward passes of a step on a full batch, by which a run plans its length."""
        return math.ceil(self.cost() * self.batch)

    def parts(self) -> Parts:
        """The classes that its names choose."""
        return _parts(self.model_dump(include={*NAMING}))

    def plugin_modules(self) -> set[str]:
        """The modules of the plugins that its parts come from."""
        named = ((registry, getattr(self, kind)) for kind, registry in REGISTRIES.items())
        return {module for registry, name in named if name is not None for module in registry.modules(name)}

    def plugins(self) -> list[Plugin]:
        """The plugins that its parts come from."""
        return describe(self.plugin_modules())

    def non_defaults(self) -> dict[str, Any]:
        """The strategy, and every setting that differs from its default; :func:`parse_learner` fills in the others.

        >>> parse_learner({"method": "simclr", "batch": 30, "joint_views": True}).non_defaults()
        {'strategy': 'cla-e', 'method': 'simclr', 'batch': 30, 'joint_views': True}
        """
        usual = {name: default_of(field) for name, field in type(self).model_fields.items()}
        usual |= _names({"strategy": self.strategy, "variant": self.variant}) | {"variant": usual["variant"]}
        usual |= _derived({name: value for name, value in self if name != "average"}, self.parts())
        if self.average != usual["average"]:
            usual["average_power"] = 0.0  # the strategy's belongs to the strategy's own average
        return {name: value for name, value in self if name == "strategy" or value != usual[name]}

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(parse_learner, own_backbone=self.backbone is None), (self.model_dump(),)


USUAL = {name: default_of(field) for name, field in LearnerConfig.model_fields.items()}
"""The defaults of the settings of every learner."""


class Parts(NamedTuple):
    """The classes that a configuration is made of; None where a learner has no such part."""

    optimizer: type[optim.Optimizer]
    strategy: type[Strategy]
    method: type[Method] | None
    memory: type[Memory] | None
    augmentation: type[augment.Augmentation]
    backbone: type[Options]

    def options(self) -> dict[str, type[Options]]:
        """The options of each part, by the setting that names it."""
        there = {kind: part for kind, part in self._asdict().items() if part is not None}
        return {kind: part if issubclass(part, Options) else part.Options for kind, part in there.items()}


def parse_learner(given: Mapping[str, Any], *, own_backbone: bool = False) -> LearnerConfig:
    """A learner's configuration from settings by name; a value of None is the same as none given.

    Args:
        own_backbone: the backbone is a module that the caller has; the configuration cannot name it.

    >>> parse_learner({"stratgy": "er"})
    Traceback (most recent call last):
    ...
    ocssl.errors.ConfigError: unknown setting 'stratgy'; did you mean 'strategy'?
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    if own_backbone:
        chosen["backbone"] = None
    else:
        name, options = backbones.split_name(chosen.get("backbone", USUAL["backbone"]))
        chosen = {**options, **chosen, "backbone": name}
        if any(chosen[option] != value for option, value in options.items()):
            raise ConfigError(f"backbone '{given['backbone']}' sets {', '.join(options)}; leave one of them out")
    chosen |= _names(chosen)
    parts = _parts(chosen)
    model = combine(LearnerConfig, *parts.options().values())
    for setting_name, value in given.items():
        if setting_name not in model.model_fields and (value is not None or setting_name not in settings()):
            raise _refused(setting_name, chosen)
    config: LearnerConfig = validate(model, _derived(chosen, parts) | chosen)
    _check(config, parts)
    return config


def unless_chosen(
    parts: Mapping[str, Any],
    given: Mapping[str, Any],
    choices: Iterable[str] = ("strategy", "method", "memory", "optimizer", "variant"),
) -> dict[str, Any]:
    """``parts``, or nothing where ``given`` has one of the choices, or a setting that only other parts read.

    >>> [unless_chosen({"strategy": "er"}, {name: 1}) for name in ("image_size", "memory", "tau")]
    [{'strategy': 'er'}, {}, {}]
    """
    return {} if given.keys() & {*choices} or unread({**parts, **given}) else dict(parts)


def unread(given: Mapping[str, Any]) -> set[str]:
    """Names among ``given`` that are settings of some part, but of none of those that ``given`` names.

    >>> unread({"strategy": "er", "omega": 3, "lr": 0.1})
    {'omega'}
    """
    left = given.keys() - known_names(given)
    return left & settings().keys() if left else set()


def known_names(given: Mapping[str, Any]) -> set[str]:
    """Names of all settings that the parts named in ``given`` read."""
    names = _names({name: given[name] for name in NAMING if isinstance(given.get(name), str)})
    return set(combine(LearnerConfig, *_parts(names).options().values()).model_fields)


def with_changes(given: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with others in their place; where those choose parts, without settings that the new parts do not read.

    >>> with_changes({"memory_size": 500, "lr": 0.1}, {"strategy": "finetune"})
    {'lr': 0.1, 'strategy': 'finetune'}
    """
    kept = {name: value for name, value in given.items() if name not in changes}
    if not changes.keys().isdisjoint(NAMING):
        read = known_names({**kept, **changes})
        kept = {name: value for name, value in kept.items() if name in read}
    return {**kept, **changes}


def lost_part(given: Mapping[str, Any]) -> str | None:
    """Why a part that ``given`` names is not there any more, where a plugin had it; None where all are there."""
    for kind, registry in REGISTRIES.items():
        named = given.get(kind)
        factory = backbones.is_factory(named)
        there = str(named).partition(":")[0] in sys.modules if factory else named in registry
        if not there and (why := explain(f"{kind} {named}")) is not None:
            return why
    return None


def settings() -> dict[str, Declared]:
    """Every setting of a learner, by name: the core's first, then those of every registered part, plugins included."""
    options: dict[tuple[str, str], Mapping[str, FieldInfo]] = {("", ""): LearnerConfig.model_fields}
    for kind, registry in REGISTRIES.items():
        for name, part in registry.parts().items():
            plain = getattr(part, "Options", Options).model_fields
            options[kind, name] = plain
            for variant in registry.variants(name):
                fields = registry.get(name, variant).Options.model_fields
                new = {setting: field for setting, field in fields.items() if setting not in plain}
                options[kind, f"{name} ({variant})"] = new
    return declared(options)


def signature() -> Signature:
    """Every setting of a learner as a keyword, for help and editors.

    >>> signature().parameters["stream_batch"]
    <Parameter "stream_batch: int = 10">
    """
    return Signature(
        [
            Parameter(name, Parameter.KEYWORD_ONLY, default=default_of(entry.field), annotation=entry.field.annotation)
            for name, entry in settings().items()
        ]
    )


def _names(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The names of the parts and the variant: as chosen, or the strategy's own choice."""
    for name in NAMING:
        if not isinstance(chosen.get(name), str | None):
            raise ConfigError(f"{name} must be a name, not {shown(chosen[name])}")
    named = {**USUAL, **chosen}
    strategy = strategies.registry.get(named["strategy"], named["variant"])
    own = _defaults(strategy)
    found = {name: chosen.get(name, own.get(name, USUAL[name])) for name in NAMING}
    if strategy.own_loss:
        if chosen.get("method") is not None:
            raise ConfigError(
                f"strategy '{found['strategy']}' has a loss of its own; leave method '{chosen['method']}' out"
            )
        found["method"] = None
    if strategy.default_memory is None:
        if chosen.get("memory") is not None:
            raise ConfigError(f"strategy '{found['strategy']}' keeps no memory; leave memory '{chosen['memory']}' out")
        found["memory"] = None
    else:
        found["memory"] = chosen.get("memory") or strategy.default_memory
    return found


def _parts(names: Mapping[str, Any]) -> Parts:
    strategy = strategies.registry.get(names["strategy"], names["variant"])
    method, kept = names.get("method"), names.get("memory")
    variant = strategy.memory_variant if kept == strategy.default_memory else "default"
    return Parts(
        optim.registry.get(names["optimizer"]),
        strategy,
        None if method is None else methods.registry.get(method),
        None if kept is None else memory.registry.get(kept, variant),
        augment.registry.get(names["augmentation"]),
        Options if names.get("backbone") is None else backbones.options_of(names["backbone"]),
    )


def _derived(chosen: Mapping[str, Any], parts: Parts) -> dict[str, Any]:
    """Defaults that depend on other settings."""
    found: dict[str, Any] = {}
    if "normalize_first" in parts.augmentation.Options.model_fields:
        found["normalize_first"] = chosen["variant"] == "authors"
    if chosen["variant"] == "authors" and "conv1_init" in parts.backbone.model_fields:
        found["conv1_init"] = "torch"
    stream_batch = chosen.get("stream_batch", USUAL["stream_batch"])
    if isinstance(stream_batch, int):
        found["batch"] = parts.strategy.default_batch(stream_batch)
    batch = chosen.get("batch", found.get("batch"))
    small = isinstance(batch, int) and batch <= SMALL_BATCH
    found["joint_views"] = chosen["variant"] != "authors" and (not small or stream_batch == 1)
    for part in filter(None, (parts.strategy, parts.method)):
        for name, value in _applicable(_defaults(part), chosen, parts).items():
            found[name] = value if not isinstance(value, ByBatch) else value.small if small else value.large
    if "average" in chosen:
        found.pop("average_power", None)  # which belongs to the strategy's own average
    return found


def _defaults(part: type) -> dict[str, Any]:
    """What a part has for settings of other parts: its own defaults on top of those of its bases."""
    return {name: value for kind in reversed(part.__mro__) for name, value in vars(kind).get("defaults", {}).items()}


def _applicable(usual: Mapping[str, Any], chosen: Mapping[str, Any], parts: Parts) -> dict[str, Any]:
    """Those of a part's defaults for settings of other parts that apply to the parts chosen here.

    One for a setting of the core always applies. One for a setting of a part applies unless the defaults name another
    part of that kind; one called ``lars.lr`` applies with LARS alone.
    """
    names = set(LearnerConfig.model_fields) - REGISTRIES.keys()
    for kind, options in parts.options().items():
        names |= {f"{chosen[kind]}.{name}" for name in options.model_fields}
        if chosen[kind] == usual.get(kind, chosen[kind]):
            names |= options.model_fields.keys()
    return {name.rpartition(".")[2]: value for name, value in usual.items() if name in names}


def _check(config: LearnerConfig, parts: Parts) -> None:
    """Refuse settings that are possible alone and impossible together."""
    check_pixel_range(config.pixel_range)
    if config.early_passes != 1 and config.early_images == 0:
        raise ConfigError("early_passes is for the first early_images images; set early_images, too")
    if config.average_power and not config.average:
        raise ConfigError("average_power needs an average; set average above 0, e.g. 0.9998")
    if config.stream_batch == 1 and not config.joint_views:
        raise ConfigError(
            "stream_batch must be at least 2 with joint_views=False: batch norm needs two samples per pass"
        )
    if config.batch < config.stream_batch:
        raise ConfigError(f"batch ({config.batch}) must be at least stream_batch ({config.stream_batch})")
    replay = parts.strategy.replay_size(config.stream_batch, config.batch)
    if parts.memory is not None:
        size = config.select(parts.memory.Options).memory_size
        needed = parts.strategy.replay_start(config.select(parts.strategy.Options), replay)
        if size < config.stream_batch:
            raise ConfigError(f"memory_size ({size}) must be at least stream_batch ({config.stream_batch})")
        if size < needed:
            raise ConfigError(
                f"memory_size ({size}) is too small for strategy '{config.strategy}' to ever replay; it needs at least "
                f"{needed}"
            )


def _refused(name: str, chosen: Mapping[str, Any]) -> ConfigError:
    """Why a setting cannot be given: nothing has it, or none of the parts chosen here."""
    known = settings()
    if name not in known:
        return unknown_setting(name, known_names(chosen))
    kinds = [kind for kind in known[name].owners if kind in REGISTRIES]
    what = f"{name}, a setting of {known[name].readers}"
    if kinds == ["memory"] and chosen.get("memory") is None:
        return ConfigError(f"strategy '{chosen['strategy']}' keeps no memory and does not read {what}; leave it out")
    kind = kinds[0] if kinds else "strategy"
    if kind == "method" and chosen.get("method") is None:
        kind = "strategy"
    part = f"{kind} '{chosen[kind]}'" if chosen.get(kind) else "a backbone of your own"
    return ConfigError(f"{part} does not read {what}; leave it out")
