"""Flags made from settings: each setting of a run or a learner is a flag, with its own type, range and help.

Flags are made when a command is parsed or its help is printed, so that `ocssl --help` does not import torch.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import click
from typer.core import TyperCommand, TyperOption

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ocssl.options import Declared

_GIVEN = "ocssl.settings"
PANEL = "Settings, all of them flags (ocssl list settings)"

Settings = Callable[[], "Mapping[str, Declared]"]


def run_settings() -> Mapping[str, Declared]:
    """Every setting of a run."""
    from ocssl.runs.config import settings

    return settings()


def learner_settings() -> Mapping[str, Declared]:
    """Every setting of a learner."""
    from ocssl.config import settings

    return settings()


def with_flags(settings: Settings, only: tuple[str, ...] = ()) -> type[TyperCommand]:
    """A command class whose flags are, besides its own, the settings.

    Args:
        settings: gives them when they are needed.
        only: names of some settings; all by default.
    """

    class SettingsCommand(TyperCommand):
        """A command that takes settings as flags."""

        def get_params(self, ctx: click.Context) -> list[click.Parameter]:
            """Its own parameters, then a flag for each setting."""
            own = super().get_params(ctx)
            taken = {param.name for param in own}
            entries = {name: entry for name, entry in settings().items() if not only or name in only}
            return [*own, *(_flag(name, entry) for name, entry in entries.items() if name not in taken)]

    return SettingsCommand


def given(ctx: click.Context, texts: list[str] | None = None) -> dict[str, Any]:
    """The settings given as flags, then those given as ``--set KEY=VALUE``."""
    from ocssl.common.yaml import assignments

    return {**ctx.meta.get(_GIVEN, {}), **assignments(texts or [])}


def _flag(name: str, entry: Declared) -> TyperOption:
    kinds = [kind for kind in _alternatives(entry.field.annotation) if kind is not type(None)]
    flag, boolean = f"--{name.replace('_', '-')}", kinds == [bool]
    return TyperOption(
        param_decls=[f"{flag}/--no-{flag[2:]}" if boolean else flag],
        type=click.BOOL if boolean else click.STRING,
        metavar=None if boolean else _metavar(kinds),
        help=re.split(r"[;.(] ?", entry.description.replace("`", ""), maxsplit=1)[0] + ".",
        default=None,
        show_default=False,
        required=False,
        expose_value=False,
        hidden=not entry.marks.common,
        callback=_keep(name, as_text=str in kinds),
        shell_complete=_complete(name, kinds),
        rich_help_panel=PANEL,
    )


def _keep(name: str, as_text: bool) -> Callable[[click.Context, click.Parameter, Any], None]:
    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        from ocssl.common.yaml import read_yaml

        if value is not None:
            parsed = value if as_text or isinstance(value, bool) else read_yaml(value, name)
            ctx.meta.setdefault(_GIVEN, {})[name] = parsed

    return keep


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    if typing.get_origin(annotation) in (Literal, None):
        return (annotation,)
    return typing.get_args(annotation) if type(None) in typing.get_args(annotation) else (annotation,)


def _metavar(kinds: list[Any]) -> str:
    if typing.get_origin(kinds[0]) is Literal:
        return "[" + "|".join(map(str, typing.get_args(kinds[0]))) + "]"
    return {int: "INTEGER", float: "NUMBER", str: "TEXT"}.get(kinds[0], "VALUES")


def _complete(name: str, kinds: list[Any]) -> Callable[..., list[CompletionItem] | list[str]]:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        return [choice for choice in choices(name, kinds) if choice.startswith(incomplete)]

    return complete


def choices(name: str, kinds: list[Any]) -> list[str]:
    """Values that a shell can complete: those of a literal, or the registered names."""
    if kinds and typing.get_origin(kinds[0]) is Literal:
        return [str(choice) for choice in typing.get_args(kinds[0])]
    return names_of(name)


def names_of(kind: str) -> list[str]:
    """Registered names of a kind of part, by the setting that names one; none for other settings."""
    from ocssl.config import REGISTRIES
    from ocssl.data import catalog, streams

    if kind == "dataset":
        return catalog.names()
    if kind == "stream":
        return streams.registry.names()
    return REGISTRIES[kind].names() if kind in REGISTRIES else []


def complete_datasets(incomplete: str) -> list[str]:
    """Data sets that begin so, for completion."""
    return [name for name in names_of("dataset") if name.startswith(incomplete)]
