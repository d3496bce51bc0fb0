"""``ocssl show``: the numbers of one run, finished or not, or of a live learner."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ocssl.cli.flags import plain_console
from ocssl.common.console import duration, percent
from ocssl.common.files import check_output, read_file
from ocssl.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from ocssl.results import Result, Table
    from ocssl.runs.config import RunConfig
    from ocssl.runs.folder import RunFolder


def show(
    run: Annotated[
        Path, typer.Argument(metavar="RUN|STATE", help="Folder of a run or of a live learner, or a result file.")
    ],
    matrix: Annotated[bool, typer.Option("--matrix", help="Accuracy per experience's classes, too.")] = False,
    settings: Annotated[bool, typer.Option("--settings", help="Every setting, too.")] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw a live learner's quality over time (PNG, SVG, PDF).")
    ] = None,
) -> None:
    """Settings, progress and numbers of a run or a live learner.

    Example: ocssl show runs/cifar100-simsiam-cla-e-fifo-high-clean-seed0
    """
    import yaml

    from ocssl.results import read_result
    from ocssl.results.render import to_rich

    console = plain_console(soft_wrap=True)
    refuse_encoder(run)
    if is_live(run):
        config = _show_state(console, run, plot)
    elif plot is not None:
        raise ConfigError(
            f"--plot draws a live learner; a finished run is drawn by ocssl compare '{run}' --plot '{plot}'"
        )
    else:
        result = read_result(run) if run.is_file() or os.path.lexists(run / "result.json") else None
        config, lines = (result.config, _summary(result)) if result else _unfinished(run)
        for name, text in lines:
            console.print(f"{name:<11} {text}", style="yellow" if name == "warning" else None)
        if result and result.matrix and matrix:
            console.print(to_rich(_matrix(result)))
    if settings:
        console.print(yaml.safe_dump(config, sort_keys=False, allow_unicode=True))


def is_live(path: Path) -> bool:
    """Whether a folder may be a live learner's, known without importing torch."""
    return (path / "checkpoints").is_dir() and (path / "ledger.sqlite").exists()


def refuse_encoder(path: Path) -> None:
    """Refuse a published encoder where the state or the run around it is meant."""
    if (path / "encoder.json").exists():
        raise ConfigError(f"'{path}' is an encoder alone; give the folder of its state, '{path.parent}'")


def _show_state(console: Console, path: Path, plot: Path | None) -> dict[str, Any]:
    """Print the life of a live learner, and return its settings."""
    from ocssl.live.gate import MIN_KEPT, ORDERED
    from ocssl.live.life import along, is_state, life, settings_of
    from ocssl.results.render import sparkline
    from ocssl.results.render.figures import Line, draw_lines, plot_kind

    if not is_state(path):
        raise CheckpointError(f"'{path}' has no checkpoint: nothing was learned there yet")
    for name, text in life(path):
        console.print(f"{name:<11} {text}" if name else text)
    checks = along(path)
    ordered = bool(checks["order"]) and checks["order"][-1] >= ORDERED
    for name, title, scale in (("in_time", "in time, %", 100), ("rank", "rank", 1)):
        values = [scale * value for value in checks[name]]
        if len(values) > 1 and (ordered or name != "in_time"):
            console.print(f"{title:<11} {sparkline(values)}  {values[0]:.1f} to {values[-1]:.1f}")
    if plot is not None:
        check_output(plot, plot_kind(plot))
        if not checks["seen"]:
            raise ConfigError(
                f"'{path}' has no check of its encoder to draw yet; learn from at least {MIN_KEPT} images"
            )
        names = {"in_time": "the learner", "published": "published encoder", "start": "at the start"}
        lines = [
            Line(title, checks["seen"], [100 * y for y in checks[name]], dash="" if name in names else "2 3")
            for name, title in (names | {"pixels": "raw pixels", "colours": "colours"}).items()
        ]
        draw_lines(lines, plot, y_title="neighbours in time, %")
        console.print(f"wrote {plot}")
    return settings_of(path)


def _summary(result: Result) -> Iterator[tuple[str, str]]:
    from ocssl.results.labels import measured_words

    yield "run", ", ".join(filter(None, (result.title, *measured_words(result))))
    yield "Final", _accuracy(result.final)
    if result.avg is not None:
        yield "Avg", _accuracy(result.avg)
        yield "along", _along(result.curve)
    if result.knn:
        avg = "" if result.knn.avg is None else f", Avg {_accuracy(result.knn.avg)}"
        yield "k-NN", f"Final {_accuracy(result.knn.final)}{avg}"
    if result.forgetting is not None:
        yield "forgetting", f"{result.forgetting:.2f} points"
    yield from ((name, _accuracy(value)) for name, value in result.references.items())
    yield "CBP", f"{result.cbp_spent:,} of {result.cbp_planned:,} planned"
    preparing = f"{duration(result.prepare_seconds)} preparing, " if result.prepare_seconds else ""
    yield "time", f"{preparing}{duration(result.train_seconds)} training, {duration(result.eval_seconds)} measuring"
    device = result.hardware.get("gpu") or result.hardware.get("cpu")
    if result.plugins:
        yield "plugins", ", ".join(f"{plugin.module} {(plugin.digest or 'unknown')[:8]}" for plugin in result.plugins)
    yield "made", f"{result.finished} by {result.code} on {device or 'an unknown device'}"
    yield from (("warning", warning) for warning in result.warnings)


def _unfinished(path: Path) -> tuple[dict[str, Any], Iterator[tuple[str, str]]]:
    """The settings of a run, and how far it got; imports torch, which finished runs are shown without."""
    from ocssl.runs.folder import RunFolder

    folder = RunFolder(path)
    config = folder.read_config()
    return config.to_dict(), _so_far(folder, config)


def _so_far(folder: RunFolder, config: RunConfig) -> Iterator[tuple[str, str]]:
    from ocssl.results.names import setting_text
    from ocssl.runs.naming import label, overrides

    lines, last = folder.metrics.read(), folder.checkpoints.last
    words = [label(config), *(setting_text(name, value) for name, value in overrides(config).items())]
    yield "run", f"{', '.join(words)}, {config.dataset}, seed {config.learner.seed}: not finished"
    try:
        if train := [line for line in lines if line["kind"] == "train"]:
            samples, cbp, loss = train[-1]["samples"], train[-1]["cbp"], train[-1]["losses"]["total"]
            yield "got to", f"image {samples}, CBP {cbp:,}, loss {loss:.4f}"
        points = [line for line in lines if line["kind"] == "probe"]  # version 0.1 wrote moment for point
        if probes := [line["linear"] for line in points if line.get("point", line.get("moment", "")).isdigit()]:
            yield "along", _along(probes)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"'{folder.metrics.path}' holds a line that is none of a run: {error!r}") from error
    yield "checkpoint", str(last or "none yet")
    if notes := _notes(folder.log):
        yield "log", notes[-1]
    yield "resume with", folder.go_on


def _notes(log: Path) -> list[str]:
    """The lines of a run's log; none where it cannot be read."""
    try:
        return read_file(log).decode(errors="replace").splitlines()
    except OSError:
        return []


def _accuracy(value: float | None) -> str:
    return "not measured" if value is None else f"{percent(value)} %"


def _along(curve: list[float]) -> str:
    from ocssl.results.render import sparkline

    return sparkline(curve) + "  " + " ".join(f"{value:.1f}" for value in curve)


def _matrix(result: Result) -> Table:
    from ocssl.results import Table, TableColumn, TableRow, Value

    names = [f"e{number + 1}" for number in range(len(result.experiences))]
    values = [tuple(Value(value, digits=0) for value in row) for row in result.matrix]
    measured = names[-len(values) :]  # the last one alone where only the end was measured
    return Table("", tuple(map(TableColumn, names)), tuple(map(TableRow, measured, values)), label="after")
