"""What commands share: options, and flags made from settings.

Each setting of a run or of a learner is a flag, with its own help and completion. Flags are made when a command is
parsed or its help is printed, so that `ocssl --help` does not import torch.
"""

from __future__ import annotations

import importlib
import inspect
import re
import time
import typing
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from ocssl.common.console import print_line

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from rich.console import Console

    from ocssl.options import Declared
    from ocssl.registry import Registry

DifferencesOption = Annotated[
    str | None, typer.Option(metavar="ROW", help="Paired differences to this row, or to the `best`, with intervals.")
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the table, or the differences, as CSV.")
]
EncoderArgument = Annotated[
    Path,
    typer.Argument(
        metavar="ENCODER", help="A published encoder, a state, a run, a .safetensors, or a pretrained network."
    ),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace files that ocssl did not write, too.")]
EngineName = Literal["local", "ray"]
GIVEN = "ocssl.settings"
ALL = "Common settings; all others are flags, too (ocssl list settings)"
SOME = "Settings"


def with_flags(module: str, only: tuple[str, ...] = ()) -> type[TyperCommand]:
    """A command class whose flags are, besides its own, settings.

    Args:
        module: its function ``settings`` returns them; imported when they are needed.
        only: names of some settings; all by default.
    """

    class SettingsCommand(TyperCommand):
        """A command that takes settings as flags."""

        def get_params(self, ctx: Any) -> Any:
            """Its own parameters, then a flag for each setting."""
            own = super().get_params(ctx)
            taken = {param.name for param in own}
            settings: Mapping[str, Declared] = importlib.import_module(module).settings()
            offered = [name for name in settings if name not in taken and (not only or name in only)]
            return [*own, *(_flag(name, settings[name].field, SOME if only else ALL) for name in offered)]

    return SettingsCommand


class PluginGroup(TyperGroup):
    """Commands that all take ``--plugin MODULE``, before and after their names.

    The modules are imported before anything else is read, since their settings are flags, too.
    """

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        _offer_plugins(self)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Import the modules that are named, and leave the rest to the command."""
        modules, rest = [], []
        words = iter(args)
        for word in words:
            if word == "--":
                rest += [word, *words]
            elif word == "--plugin":
                modules.append(next(words, ""))
            elif word.startswith("--plugin="):
                modules.append(word.partition("=")[2])
            else:
                rest.append(word)
        if "" in modules:
            ctx.fail("Option '--plugin' requires an argument.")
        if modules and not ctx.resilient_parsing:
            from ocssl.plugins import name_plugins

            name_plugins(modules, "--plugin", here=True)
        return super().parse_args(ctx, rest)


def _offer_plugins(command: Any) -> None:
    """Show ``--plugin`` in the help of a command and of those below it."""
    option = typer.Option("--plugin", metavar="MODULE", expose_value=False, help="Module with parts of your own.")
    command.params.append(_parameter("plugin", Annotated[list[str] | None, option]))
    for inner in getattr(command, "commands", {}).values():
        _offer_plugins(inner)


def given(ctx: typer.Context, texts: list[str] | None = None) -> dict[str, Any]:
    """The settings given as flags, then those given as ``--set KEY=VALUE``."""
    from ocssl.common.yaml import assignments

    return {**ctx.meta.get(GIVEN, {}), **assignments(texts or [])}


def plain_console(*, soft_wrap: bool = False) -> Console:
    """Standard output, on which texts are printed as they are: without markup, and without colours for numbers."""
    from rich.console import Console

    return Console(highlight=False, markup=False, soft_wrap=soft_wrap)


def deadline(max_seconds: float | None) -> float:
    """The time of :func:`time.monotonic` from which on no run is started."""
    return float("inf") if max_seconds is None else time.monotonic() + max_seconds


def line_printer(*, quiet: bool) -> Callable[[str], None]:
    """Prints lines of progress on standard error, or nothing."""
    return (lambda line: None) if quiet else print_line


def _parameter(name: str, hint: Any) -> Any:
    """Typer's parameter, made as for a function that has this argument."""

    def stub(**settings: Any) -> None: ...

    parameter = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint)
    stub.__signature__ = inspect.Signature([parameter])  # type: ignore[attr-defined]
    stub.__annotations__ = {name: hint}
    app = typer.Typer(add_completion=False)
    app.command()(stub)
    return get_command(app).params[0]


@cache
def _flag(name: str, field: FieldInfo, panel: str) -> Any:
    """The parameter of a setting; a command asks for it several times."""
    from ocssl.options import marks

    inner = typing.get_args(field.annotation)
    kinds: list[Any] = [kind for kind in inner if kind is not NoneType] if NoneType in inner else [field.annotation]
    flag, boolean = f"--{name.replace('_', '-')}", kinds == [bool]
    choices = [str(value) for value in typing.get_args(kinds[0])] if typing.get_origin(kinds[0]) is Literal else []
    usual = {int: "INTEGER", float: "NUMBER", str: "TEXT"}.get(kinds[0], "VALUES")
    option = typer.Option(
        f"{flag}/--no-{flag[2:]}" if boolean else flag,
        help=re.split(r"[;:.(] ", (field.description or "").replace("`", ""), maxsplit=1)[0].strip(" .…") + ".",
        metavar=None if boolean else f"[{'|'.join(choices)}]" if choices else usual,
        show_default=False,
        expose_value=False,
        hidden=not marks(field).common,
        callback=_keep(name, as_text=str in kinds),
        autocompletion=lambda: choices or registered_names(name),  # Typer takes those that fit
        rich_help_panel=panel,
    )
    return _parameter(name, Annotated[bool | None, option] if boolean else Annotated[str | None, option])


def _keep(name: str, as_text: bool) -> Callable[..., None]:
    def keep(ctx: typer.Context, value: Any) -> None:
        from ocssl.common.yaml import read_yaml

        if value is not None:
            ctx.meta.setdefault(GIVEN, {})[name] = (
                value if as_text or isinstance(value, bool) else read_yaml(value, name)
            )

    return keep


def registered_names(setting: str) -> list[str]:
    """The names that a setting takes, for completion: those in its registry, if it has one."""
    return registries()[setting].names() if setting in registries() else []


def known_datasets() -> list[str]:
    """The names of data sets, for completion."""
    return registered_names("dataset")


def registries() -> dict[str, Registry[Any]]:
    """Every registry, by the setting that takes its names."""
    from ocssl.config import REGISTRIES
    from ocssl.data import catalog, streams

    return {**REGISTRIES, "stream": streams.registry, "dataset": catalog.registry}
