"""Settings that follow from where a learner takes its weights or its teacher from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from ocssl.config import known_names, unless_chosen
from ocssl.errors import ConfigError
from ocssl.nn.backbones import inputs_of
from ocssl.pretrained import describe_network, expected_settings, open_source


def with_source(given: Mapping[str, Any], module: nn.Module | None = None) -> dict[str, Any]:
    """Settings, and those that follow from the source of their ``weights`` where they are not given.

    With weights, the strategy is ``adapt`` unless another is named, or a setting that only others read. With
    ``taught_by`` it is ``taught``, and what the teacher expects of its images follows, too.

    Args:
        given: settings by name, without the module.
        module: the backbone, where it is the caller's own; what it says of its images counts, too.

    >>> with_source({"backbone": "convnet"})
    {'backbone': 'convnet'}
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    if chosen.pop("teacher_network", None) is not None and "taught_by" not in chosen:
        raise ConfigError("teacher_network follows from taught_by; give that instead")
    found: dict[str, Any] = {}  # a later source counts more than an earlier one, and what is chosen most
    if isinstance(chosen.get("taught_by"), str):
        found |= _of_teacher(chosen["taught_by"])
    if module is not None:
        found |= expected_settings(inputs_of(module))
    if isinstance(chosen.get("weights"), str):
        found |= _of_weights(chosen["weights"], chosen.get("backbone"), module)
        found = unless_chosen({"strategy": "adapt"}, found | chosen, ("strategy", "variant")) | found
    if not found:
        return chosen
    read = known_names(found | chosen)
    return {name: value for name, value in found.items() if name in read} | chosen


def _of_teacher(name: str) -> dict[str, Any]:
    """What follows from the source of a teacher."""
    teacher = open_source(name)
    shared = ("image_size", "mean", "std", "fit", "pixel_range")
    expected = {name: teacher.settings[name] for name in shared if name in teacher.settings}
    return {"strategy": "taught", "teacher_network": describe_network(teacher), **expected}


def _of_weights(name: str, backbone: str | None, module: nn.Module | None) -> dict[str, Any]:
    """What follows from the source of weights, for a backbone that is named, the caller's own, or the source's."""
    source = open_source(name, backbone)
    if module is not None and "backbone" in source.settings:
        raise ConfigError(f"'{name}' brings a network of its own; leave out your backbone")
    if module is None and backbone is None and "backbone" not in source.settings:
        raise ConfigError(f"'{name}' does not say its backbone; give it, e.g. --backbone resnet18")
    return source.settings
