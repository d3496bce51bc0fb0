"""``ocssl show`` and ``ocssl compare``: the numbers of runs, finished or not."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ocssl.cli.flags import DifferencesOption, ForceOption, OutputOption

if TYPE_CHECKING:
    from rich.console import Console

    from ocssl.results import Group, Result, ResultFile, Table
    from ocssl.runs.folder import RunFolder


def show(
    run: Annotated[Path, typer.Argument(metavar="RUN|STATE", help="Folder of a run or of a live learner.")],
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
    from rich.console import Console

    from ocssl.results import read_result
    from ocssl.results.render import to_rich
    from ocssl.runs.folder import RunFolder

    console, folder = Console(highlight=False, markup=False, soft_wrap=True), RunFolder(run)
    if _is_state(run):
        _show_state(console, run, plot)
        return
    result = read_result(run) if os.path.lexists(folder.result) else None
    config = result.config if result else folder.read_config().to_dict()
    for name, text in _summary(result) if result else _unfinished(folder):
        console.print(f"{name:<11} {text}", style="yellow" if name == "warning" else None)
    if result and matrix:
        console.print(to_rich(_matrix(result)))
    if settings:
        console.print(yaml.safe_dump(config, sort_keys=False, allow_unicode=True))


def _is_state(path: Path) -> bool:
    """Whether a folder may be a live learner's, known without importing torch."""
    return (path / "checkpoints").is_dir() and (path / "ledger.sqlite").exists()


def _show_state(console: Console, path: Path, plot: Path | None) -> None:
    from ocssl.common.files import check_output
    from ocssl.errors import CheckpointError
    from ocssl.live.life import along, is_state, life
    from ocssl.results.render import sparkline
    from ocssl.results.render.figures import Line, draw_lines, plot_kind

    if not is_state(path):
        raise CheckpointError(f"'{path}' has no checkpoint: nothing was learned there yet")
    for name, text in life(path):
        console.print(f"{name:<11} {text}" if name else text)
    checks = along(path)
    for name, title, scale in (("in_time", "in time, %", 100), ("rank", "rank", 1)):
        values = [scale * value for value in checks[name]]
        if len(values) > 1:
            console.print(f"{title:<11} {sparkline(values)}  {values[0]:.1f} to {values[-1]:.1f}")
    if plot is not None:
        check_output(plot, plot_kind(plot))
        names = {"in_time": "the learner", "published": "published encoder", "start": "at the start"}
        lines = [
            Line(title, checks["seen"], [100 * y for y in checks[name]], dash="" if name in names else "2 3")
            for name, title in (names | {"pixels": "raw pixels", "colours": "colours"}).items()
        ]
        draw_lines(lines, plot, y_title="neighbours in time, %")
        console.print(f"wrote {plot}")


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Folders of finished runs, or result files.")],
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw accuracy along the stream (PNG, SVG, PDF).")
    ] = None,
    differences: DifferencesOption = None,
    output: OutputOption = None,
    force: ForceOption = False,
) -> None:
    """Finished runs side by side, seeds averaged, as a table and a plot.

    Example: ocssl compare runs/* --plot curves.png --differences best
    """
    from rich.console import Console

    from ocssl.common.files import check_output
    from ocssl.results import read_result
    from ocssl.results.build import LEGEND, differences_table
    from ocssl.results.render import print_table, write_csv
    from ocssl.results.render.figures import Line, draw_lines, plot_kind

    if plot is not None:
        check_output(plot, plot_kind(plot), inputs=_result_files(runs), force=force)
    found = {path.absolute(): read_result(path) for path in runs}
    title, groups = _groups(found)
    console = Console(highlight=False, markup=False)
    tables = [_comparison(title, groups)]
    if differences is not None:
        tables.append(differences_table(groups, differences))
    if output is not None:
        write_csv(tables[-1], output, inputs=_result_files(runs), force=force)
    for table in tables:
        print_table(console, table)
    console.print(*LEGEND, style="dim")
    for sentence in _warnings(found.values()):
        console.print(sentence, style="yellow")
    if output is not None:
        console.print(f"wrote {output}")
    if plot is not None:
        lines = [
            Line(label, along["x"], along["mean"], along["low"], along["high"])
            for label, group in groups.items()
            if (along := group.curve)
        ]
        untrained = {result.references["untrained"] for result in found.values() if "untrained" in result.references}
        if untrained:
            lines.append(Line("untrained encoder", (), [sum(untrained) / len(untrained)], dash="2 3"))
        draw_lines(lines, plot)
        console.print(f"wrote {plot}")


def _result_files(runs: Iterable[Path]) -> list[Path]:
    return [run / "result.json" if run.is_dir() else run for run in runs]


def _comparison(title: str, groups: dict[str, Group]) -> Table:
    """A row for each experiment, and for each floor that the runs measured."""
    from ocssl.common.console import short_count
    from ocssl.results import Table, TableColumn, TableRow, Value
    from ocssl.results.build import KNN, NUMBERS, named_seeds
    from ocssl.results.render import sparkline
    from ocssl.results.sections import BOUNDS, best_groups

    numbers = {number: f"{name} %" for number, name in {**NUMBERS, **KNN}.items()}
    ranked = {label: group for label, group in groups.items() if group.files[0].result.strategy not in BOUNDS}
    best = {number: best_groups(ranked, number) for number in numbers}
    titles = (*numbers.values(), "forgetting", "seeds", "CBP")
    rows = []
    for label, group in groups.items():
        values = [Value.over(getattr(group, number), best=label in best[number]) for number in numbers]
        more = (
            Value.over(group.forgetting),
            named_seeds(group.runs),
            Value(text=short_count(round(group.cbp or 0))),
        )
        along = Value(text=sparkline((group.curve or {"mean": []})["mean"]))
        rows.append(TableRow(label, (*values, *more, along), ranked=label in ranked))
    for label, floor in _floors([file for group in groups.values() for file in group.files]):
        values = [Value.over(getattr(floor, number)) for number in numbers]
        values += [Value(text=""), named_seeds(floor.final), *[Value(text="")] * 2]
        rows.append(TableRow(label, tuple(values), ranked=False))
    left = ("seeds", "along the stream")
    columns = [TableColumn(name, align="left" if name in left else "right") for name in (*titles, "along the stream")]
    return Table(title, tuple(columns), tuple(rows), label="run")


def _floors(files: list[ResultFile]) -> Iterator[tuple[str, Group]]:
    """Each floor that was measured, once for each data set, protocol and kind of images."""
    from ocssl.results import Group
    from ocssl.results.names import heading
    from ocssl.results.sections import FLOORS

    measured: dict[tuple[Any, ...], list[ResultFile]] = {}
    for file in files:
        for name in file.result.references:
            measured.setdefault((file.result.measure, name), []).append(file)
    protocols, images = ({getattr(file.result, name) for file in files} for name in ("protocol", "measured_on"))
    for (measure, name), having in measured.items():
        dataset, protocol, kind, _ = measure
        words = [f"{dataset} {FLOORS.get(name, name)}"]
        words += [f"{heading(protocol)} protocol"] if len(protocols) > 1 else []
        words += [f"{kind} images"] if len(images) > 1 else []
        yield ", ".join(words), Group(tuple(having), floor=name)


def _warnings(results: Iterable[Result]) -> Iterator[str]:
    results = list(results)
    if len({result.protocol for result in results}) > 1:
        yield "These runs follow different protocols; their numbers do not compare."
    if len({result.measured_on for result in results}) > 1:
        yield "Some of these runs were measured on validation images, others on test images."
    if len({result.crops for result in results}) > 1:
        yield "Some of these runs were measured with several crops of each image; their numbers do not compare."
    online = [result for result in results if result.strategy != "iid"]
    if not all(one.dataset == other.dataset and one.same_stream(other) for one, other in combinations(online, 2)):
        yield "These runs saw different streams."


def _summary(result: Result) -> Iterator[tuple[str, str]]:
    from ocssl.common.console import duration, percent

    yield "run", ", ".join(filter(None, (result.title, *_words(result))))
    yield "Final", f"{percent(result.final)} %"
    yield "Avg", f"{percent(result.avg)} %"
    yield "along", _along(result.curve)
    if result.knn:
        yield "k-NN", f"Final {percent(result.knn.final)} %, Avg {percent(result.knn.avg)} %"
    if result.forgetting is not None:
        yield "forgetting", f"{result.forgetting:.2f} points"
    yield from ((name, f"{percent(value)} %") for name, value in result.references.items())
    yield "CBP", f"{result.cbp_spent:,} of {result.cbp_planned:,} planned"
    preparing = f"{duration(result.prepare_seconds)} preparing, " if result.prepare_seconds else ""
    yield "time", f"{preparing}{duration(result.train_seconds)} training, {duration(result.eval_seconds)} measuring"
    device = result.hardware.get("gpu") or result.hardware.get("cpu")
    if result.plugins:
        yield "plugins", ", ".join(f"{plugin.module} {(plugin.digest or 'unknown')[:8]}" for plugin in result.plugins)
    yield "made", f"{result.finished} by {result.code} on {device or 'an unknown device'}"
    yield from (("warning", warning) for warning in result.warnings)


def _unfinished(folder: RunFolder) -> Iterator[tuple[str, str]]:
    from ocssl.errors import CheckpointError
    from ocssl.results.names import setting_text
    from ocssl.runs.naming import label, overrides

    lines, checkpoints, config = folder.read_metrics(), folder.list_checkpoints(), folder.read_config()
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
        raise CheckpointError(f"'{folder.metrics}' holds a line that is none of a run: {error!r}") from error
    yield "checkpoint", str(checkpoints[-1]) if checkpoints else "none yet"
    yield "resume with", folder.go_on


def _along(curve: list[float]) -> str:
    from ocssl.results.render import sparkline

    return sparkline(curve) + "  " + " ".join(f"{value:.1f}" for value in curve)


def _matrix(result: Result) -> Table:
    from ocssl.results import Table, TableColumn, TableRow, Value

    columns = tuple(TableColumn(f"e{number + 1}") for number in range(len(result.experiences)))
    values = [tuple(Value(value, digits=0) for value in row) for row in result.matrix]
    return Table("", columns, tuple(TableRow(f"e{i + 1}", row) for i, row in enumerate(values)), label="after")


def _words(*results: Result) -> list[str]:
    """Where and how runs of one experiment were measured, in a few words, some of them empty."""
    from ocssl.results.names import heading

    result = results[0]
    seeds = f"seed{'s' * (len(results) > 1)} {' '.join(str(seed) for seed in sorted(run.seed for run in results))}"
    what = [heading(name or "") for name in (result.method, result.dataset, result.budget)]
    images = "" if result.measured_on == "test" else f"on {result.measured_on} images"
    return [*what, f"{heading(result.protocol)} protocol", images, seeds]


def _groups(results: dict[Path, Result]) -> tuple[str, dict[str, Group]]:
    """The words that all runs share, and the runs by their other words; seeds of one experiment stand together."""
    from ocssl.results import Group, ResultFile

    files = [ResultFile(path, result) for path, result in results.items()]
    copies = Counter((file.experiment, file.result.seed) for file in files)
    together: list[list[ResultFile]] = []
    for file in files:
        same = [group for group in together if group[0].experiment == file.experiment]
        alike = [group for group in same if group[0].result.same_stream(file.result)]
        if alike and copies[file.experiment, file.result.seed] == 1:
            alike[0].append(file)
        else:
            together.append([file])
    title, labels = _labels({group[0].path: [file.result for file in group] for group in together})
    return title, {label: Group(tuple(group)) for label, group in zip(labels, together, strict=True)}


def _labels(results: dict[Path, list[Result]]) -> tuple[str, list[str]]:
    """The words that all groups share, and the others of each; with a part of its path where these are the same."""
    from ocssl.results.labels import row_labels

    rows, settings = row_labels([group[0] for group in results.values()])
    words = [_words(*group) for group in results.values()]
    shared = [place for place, parts in enumerate(zip(*words, strict=True)) if len(set(parts)) == 1]
    title = ", ".join([*(words[0][place] for place in shared if words[0][place]), *settings])
    others = [[part for place, part in enumerate(own) if part and place not in shared] for own in words]
    labels = [", ".join([row, *parts]) for row, parts in zip(rows, others, strict=True)]
    folder = os.path.commonpath([path.parent for path in results])
    return title, [
        label if labels.count(label) == 1 else f"{label} ({os.path.relpath(path, folder)})"
        for label, path in zip(labels, results, strict=True)
    ]
