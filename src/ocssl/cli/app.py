"""The command tree. One module per group of commands; each is attached here and nowhere else."""

from __future__ import annotations

import typer

from ocssl.cli import data, demo, embed, export, learn, lists, paper, probe, report, run, runs, sweep

app = typer.Typer(
    name="ocssl",
    help="Online continual self-supervised learning from drifting image streams.",
    epilog="Example: ocssl run --dataset cifar100 --strategy cla-e --budget high",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _root() -> None:
    """Learn an encoder from an unlabelled image stream in one pass."""


app.command()(demo.demo)
app.command()(run.run)
app.command()(sweep.sweep)
app.command()(learn.learn)
app.command()(embed.embed)
app.command()(export.export)
app.command()(runs.show)
app.command()(runs.compare)
app.command()(report.report)
app.command(short_help="Linear probe and k-NN on a run's frozen encoder.")(probe.probe)
app.command("list")(lists.list_names)
app.command()(lists.budget)
app.add_typer(data.app, name="data")
app.add_typer(paper.app, name="paper")
