"""``ocssl list``: what can be run, and its settings."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ocssl.cli.flags import plain_console, registries
from ocssl.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from ocssl.options import Declared
    from ocssl.registry import Registry

ListKind = Literal[
    "strategies", "methods", "memories", "backbones", "augmentations", "optimizers", "streams", "datasets", "settings"
]
SINGULAR = {"strategies": "strategy", "memories": "memory"}


def list_names(
    kind: Annotated[ListKind, typer.Argument(help="What to list.")],
    name: Annotated[str | None, typer.Argument(help="Only this one, with its settings; of settings, a part's.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print settings as the documentation has them.")] = False,
) -> None:
    """Names that `ocssl run` knows, and their settings.

    Modules named by --plugin, or in OCSSL_PLUGINS with commas between, add theirs.

    Example: ocssl list strategies, or: ocssl list settings
    """
    from rich.table import Table

    if markdown:
        if kind != "settings" or name is not None:
            raise ConfigError("--markdown prints all settings; use it as: ocssl list settings --markdown")
        typer.echo(settings_page(), nl=False)
        return
    console = plain_console()
    if kind == "settings":
        console.print(_settings_table(name))
        return
    registry = registries()[SINGULAR.get(kind, kind.removesuffix("s"))]
    table = Table(box=None, show_header=False, pad_edge=False)
    for part in registry.names() if name is None else [name]:
        try:
            table.add_row(part, *_about(registry, part))
        except ConfigError as error:
            if name is not None:
                raise
            typer.echo(f"ocssl: {error}", err=True)
    console.print(table)


def _about(registry: Registry[Any], name: str) -> tuple[str, str]:
    """What a part is, and the names of its settings."""
    from ocssl.data import catalog
    from ocssl.registry import source

    if registry is catalog.registry:
        return catalog.dataset_spec(name).summary, ""
    part = registry.get(name)
    line = (part.__doc__ or "").strip().split("\n")[0].replace("``", "")
    origin = source(part)
    return f"{line}\nSource: {origin}" if origin else line, ", ".join(part.Options.model_fields)


def _settings_table(name: str | None) -> Table:
    """Every setting of a run, the one of this name, or those of the parts of this name."""
    from rich.table import Column, Table

    from ocssl.options import refuse_unknown
    from ocssl.runs.config import settings

    declared = settings()
    entries = [
        entry for entry in declared.values() if name in (None, entry.name, *chain.from_iterable(entry.owners.values()))
    ]
    if name is not None and not entries:
        for registry in registries().values():
            if name in registry:
                part = registry.describe(registry.get(name))
                raise ConfigError(f"{part} has no settings of its own; ocssl list settings prints those of every run")
        refuse_unknown([name], declared)
    whole = Column("setting", min_width=max(len(entry.name + _symbol(entry)) for entry in entries))
    others = [Column(heading, overflow="fold") for heading in ("default", "values", "what it is", "read by")]
    table = Table(whole, *others, box=None, pad_edge=False)
    for entry in entries:
        table.add_row(entry.name + _symbol(entry), entry.default, entry.values, entry.description, entry.readers)
    return table


def _symbol(entry: Declared) -> str:
    return f" ({entry.marks.symbol})" if entry.marks.symbol else ""


def settings_page() -> str:
    """``docs/settings.md``: every setting in Markdown, under the part that reads it."""
    from ocssl import live
    from ocssl.evaluation import ProbeSchedule
    from ocssl.options import Declared, default_of
    from ocssl.runs.config import RunConfig, settings

    sections: dict[str, list[Declared]] = {"Every run": [], "The linear probe": []}
    for name, entry in settings().items():
        if name == "probe":
            continue
        kind = next(iter(entry.owners), "")
        group = "Every run" if name in RunConfig.model_fields else "Every learner"
        sections.setdefault(_PLURAL.get(kind, f"{kind.capitalize()}s") if kind else group, []).append(entry)
    for name, field in ProbeSchedule.model_fields.items():
        sections["The linear probe"].append(Declared(f"probe.{name}", field, {}, {"": default_of(field)}))
    sections["Live learning"] = [live.settings()[name] for name in live.LiveOptions.model_fields]
    text = _INTRODUCTION
    for title, entries in sections.items():
        read = any(entry.owners for entry in entries)
        text += f"\n## {title}\n\n| setting | default | values | meaning |{' read by |' if read else ''}\n"
        text += f"|---|---|---|---|{'---|' if read else ''}\n"
        for entry in entries:
            owners = "; ".join(", ".join(parts) for parts in entry.owners.values())
            cells = [
                f"`{entry.name}`{_symbol(entry)}",
                entry.default,
                entry.values,
                entry.description,
                *([owners] if read else []),
            ]
            text += "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
    return text


_PLURAL = {"strategy": "Strategies", "memory": "Memories", "optimizer": "Optimisers"}
_INTRODUCTION = """\
# Settings

Every setting of a run, of live learning and of a learner. `ocssl list settings --markdown` prints this page from the
declarations in the code, and a test compares the two. In Python the settings of a learner are keywords of
`ocssl.Learner`. On the command line each setting is a flag (`--memory-size 500`), a `--set memory_size=500`, or a line
of a YAML file. A setting that no part of the run reads is refused. [Variants](variants.md) of a strategy have further
settings; these are marked, e.g. `scale (authors)`.
"""
