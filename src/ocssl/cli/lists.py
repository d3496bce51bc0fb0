"""``ocssl list`` and ``ocssl budget``: what can be run, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from ocssl.options import Declared

ListKind = Literal[
    "strategies", "methods", "memories", "backbones", "augmentations", "optimizers", "streams", "datasets", "settings"
]
SINGULAR = {"strategies": "strategy", "memories": "memory"}
PAPER_CBP = 3_726_000  # the high budget


def list_names(
    kind: Annotated[ListKind, typer.Argument(help="What to list.")],
    name: Annotated[str | None, typer.Argument(help="Only this one, with its settings.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print settings as the documentation has them.")] = False,
) -> None:
    """Names that `ocssl run` knows, and their settings.

    Modules named by --plugin, or in OCSSL_PLUGINS with commas between, add theirs.

    Example: ocssl list strategies, or: ocssl list settings
    """
    from rich.console import Console
    from rich.table import Table

    from ocssl.errors import ConfigError
    from ocssl.registry import unknown
    from ocssl.runs.config import settings

    if markdown:
        if kind != "settings" or name is not None:
            raise ConfigError("--markdown prints all settings; use it as: ocssl list settings --markdown")
        typer.echo(settings_page(), nl=False)
        return
    console = Console(highlight=False, markup=False)
    if kind == "settings":
        declared = settings()
        if name is not None and name not in declared:
            raise unknown("setting", name, declared, list_all=False)
        table = Table("setting", "default", "values", "what it is", "read by", box=None, pad_edge=False)
        for entry in declared.values() if name is None else [declared[name]]:
            table.add_row(entry.name + _symbol(entry), entry.default, entry.values, entry.description, entry.readers)
        console.print(table)
        return
    names, about, options = _registered(kind)
    table = Table(box=None, show_header=False, pad_edge=False)
    for part in names if name is None else [name]:
        try:
            table.add_row(part, about(part), options(part))
        except ConfigError as error:
            if name is not None:
                raise
            typer.echo(f"ocssl: {error}", err=True)
    console.print(table)


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


def _registered(kind: str) -> tuple[list[str], Callable[[str], str], Callable[[str], str]]:
    """Names of a kind, and functions for the line and for the settings of each."""
    from ocssl.config import REGISTRIES
    from ocssl.data import catalog, streams
    from ocssl.registry import source

    if kind == "datasets":
        return catalog.names(), lambda name: catalog.dataset_spec(name).summary, lambda name: ""
    single = SINGULAR.get(kind, kind.removesuffix("s"))
    registry = streams.registry if single == "stream" else REGISTRIES[single]

    def about(name: str) -> str:
        part = registry.get(name)
        line = (part.__doc__ or "").strip().split("\n")[0].replace("``", "")
        return f"{line}\nSource: {origin}" if (origin := source(part)) else line

    def options(name: str) -> str:
        return ", ".join(registry.get(name).Options.model_fields)

    return registry.names(), about, options


def budget(
    cbp: Annotated[int | None, typer.Option(min=1, help="CBP to spend [default: the paper's high, 3,726,000].")] = None,
    samples: Annotated[int, typer.Option(min=1, help="Images in the stream.")] = 45_000,
    stream_batch: Annotated[int, typer.Option(min=1, help="Images per stream minibatch, b_s.")] = 10,
    views: Annotated[int, typer.Option(min=1, help="Views of each image.")] = 2,
    batch: Annotated[int | None, typer.Option(min=1, help="Images per step, b: ask what it costs.")] = None,
    passes: Annotated[int | None, typer.Option(min=1, help="Steps per minibatch, n_p: ask what it costs.")] = None,
) -> None:
    """The CBP calculator: what a budget buys, or what it costs.

    Example: ocssl budget --cbp 270000, or: ocssl budget --batch 138 --passes 3
    """
    from rich.console import Console
    from rich.table import Table

    from ocssl.budget import MOST, plan
    from ocssl.common.console import shown
    from ocssl.errors import ConfigError

    for value in (cbp, samples, stream_batch, views, batch, passes):
        if value is not None and value > MOST:
            raise ConfigError(f"no number may be above 10**18, and one is {shown(value)}")
    minibatches = samples // stream_batch
    if minibatches == 0:
        raise ConfigError(f"{samples} images make no minibatch of {stream_batch}")
    if batch is not None and batch < stream_batch:
        raise ConfigError(f"batch ({batch}) must be at least stream_batch ({stream_batch})")
    if batch is not None and passes is not None:
        if cbp is not None:
            raise ConfigError("a cost follows from batch and passes; leave out one of cbp, batch and passes")
        buys = [(batch, passes)]
    else:
        buys = affordable(cbp or PAPER_CBP, views * minibatches, stream_batch, batch, passes)
    table = Table("passes n_p", "batch b", "of it replay", "steps", "CBP", "i.i.d. epochs", box=None, pad_edge=False)
    for b, n_p in buys:
        cost = plan(samples, stream_batch, b, n_p, views)
        table.add_row(str(n_p), str(b), str(b - stream_batch), f"{cost.steps:,}", f"{cost.cbp:,}", str(cost.iid_epochs))
    Console().print(table)


def affordable(cbp: int, unit: int, smallest: int, batch: int | None, passes: int | None) -> list[tuple[int, int]]:
    """The (b, n_p) that come nearest to a budget from below.

    Args:
        unit: CBP of one image per step and one pass over the whole stream.
        smallest: the smallest batch there can be.
        batch, passes: fixed, where given.

    >>> affordable(270_000, 2 * 4500, smallest=10, batch=None, passes=None)
    [(30, 1), (15, 2), (10, 3)]
    """
    from ocssl.errors import ConfigError

    least = unit * (batch or smallest) * (passes or 1)
    if cbp < least:
        raise ConfigError(f"{cbp} CBP do not pay for that; the least is {least}")
    if batch is not None:
        return [(batch, cbp // (unit * batch))]
    most = cbp // (unit * smallest)
    counts = [passes] if passes else [*range(1, min(most, 10) + 1), *([most] if most > 10 else [])]
    return [(cbp // (unit * n_p), n_p) for n_p in counts]
