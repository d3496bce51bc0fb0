"""Work that commands repeat with the same outcome, done once in a process."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
import typer
import typer.main

from ocssl.cli import app, flags
from ocssl.data import catalog
from ocssl.options import Declared


@functools.cache
def make_commands_once() -> Any:
    """The command line, which this process makes once, as each flag.

    A flag depends on the declaration of its setting alone. A setting that is declared anew, as by a plugin, has a flag
    of its own.
    """
    make_command, annotate, make = typer.main.get_command, flags._annotation, flags._made
    command = make_command(app)
    annotations: dict[tuple[str, int], tuple[Declared, Any]] = {}
    parameters: dict[tuple[tuple[str, int], ...], tuple[Mapping[str, Any], list[Any]]] = {}

    def get_command(given: typer.Typer) -> Any:
        return command if given is app else make_command(given)

    def annotation(name: str, entry: Declared) -> Any:
        key = name, id(entry.field)  # which no other field can have, since the entry is kept
        if key not in annotations:
            annotations[key] = entry, annotate(name, entry)
        return annotations[key][1]

    def made(hints: Mapping[str, Any]) -> list[Any]:
        key = tuple((name, id(hint)) for name, hint in hints.items())
        if key not in parameters:
            parameters[key] = hints, make(hints)
        return list(parameters[key][1])

    typer.main.get_command = get_command
    flags._annotation, flags._made = annotation, made
    return command


@functools.cache
def draw_shapes_once() -> None:
    """From here on, this process draws shapes of one number, size and seed once; each caller gets a copy."""
    drawn = functools.lru_cache(maxsize=4)(catalog.draw)

    def draw(count: int, *, size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = drawn(count, size=size, seed=seed)
        return images.clone(), labels.clone()

    catalog.draw = draw
