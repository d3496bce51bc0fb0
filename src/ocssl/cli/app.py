"""The command tree. One module per group of commands; each is attached here and nowhere else."""

from __future__ import annotations

from typing import Annotated

import typer
from typer.main import get_command

from ocssl.cli import budget, compare, data, demo, embed, export, learn, lists, paper, probe, report, run, show, sweep
from ocssl.cli.flags import PluginGroup, with_flags
from ocssl.version import __version__

app = typer.Typer(
    name="ocssl",
    cls=PluginGroup,
    help="Online continual self-supervised learning from drifting image streams.",
    epilog="Example: ocssl run --dataset cifar100 --strategy cla-e --budget high",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ocssl {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Learn an encoder from an unlabelled image stream in one pass."""


app.command()(demo.demo)
app.command(cls=with_flags("ocssl.runs.config"))(run.run)
app.command()(sweep.sweep)
app.command(cls=with_flags("ocssl.live"))(learn.learn)
app.command()(embed.embed)
app.command()(export.export)
app.command()(show.show)
app.command()(compare.compare)
app.command()(report.report)
app.command(
    short_help="Linear probe and k-NN on the encoder of a run or state.",
    cls=with_flags("ocssl.runs.config", probe.SETTINGS),
)(probe.probe)
app.command("list")(lists.list_names)
app.command(cls=with_flags("ocssl.config", budget.SETTINGS))(budget.budget)
app.add_typer(data.app, name="data")
app.add_typer(paper.app, name="paper")

command = get_command(app)
"""The tree as it is called."""
