"""``ocssl demo``: three runs on drawn images, a table and a figure, on CPU in minutes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import fmean
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ocssl.cli.flags import ForceOption
from ocssl.common.console import open_bars
from ocssl.common.files import atomic_write, check_output, writing
from ocssl.errors import CheckpointError, DataError, MissingExtraError, OcsslError

if TYPE_CHECKING:
    from ocssl.engines import Job
    from ocssl.results import Result, Table

SETTINGS: dict[str, Any] = {
    "dataset": "shapes",
    "method": "simclr",
    "experiences": 18,  # one class each
    "samples_per_class": 222,  # a tenth is held out, 200 arrive
    "backbone": "convnet-w16",
    "hidden_dim": 128,
    "output_dim": 256,
    "device": "cpu",
    "log_every": 10,
    "checkpoint_samples": 600,
}
REPLAY = {"memory": "fifo", "memory_size": 1800, "batch": 60, "passes": 1, "lr": 0.3}
RUNS: tuple[dict[str, Any], ...] = (
    {"strategy": "finetune", "batch": 10, "passes": 6, "lr": 0.05},
    {"strategy": "er", **REPLAY},
    {"strategy": "cla-e", **REPLAY, "omega": 0.3},
)
"""All train on 60 images for each 10 that arrive. Learning rates go with the batch."""
QUICK = {"image_size": 16, "samples_per_class": 11, "backbone": "convnet-w4", "probe": {"max_epochs": 5}}
STREAM, POINTS = 3600, 6  # images that arrive, and measurements that the table shows
REFERENCES = ("pixels", "histogram", "untrained")  # floors, in the order of the table

Results = Mapping[str, list["Result"]]  # by label of the strategy, a result for each seed


def demo(
    seed: Annotated[list[int] | None, typer.Option(min=0, help="Seed of the runs; repeatable [default: 0].")] = None,
    output: Annotated[Path, typer.Option(help="Folder for the plot and the runs.")] = Path("demo"),
    force: ForceOption = False,
    quick: Annotated[bool, typer.Option("--quick", help="A rehearsal of seconds that learns nothing.")] = False,
) -> None:
    """Watch three strategies learn from a stream of drawn images, on CPU, in minutes.

    The command can be interrupted and repeated: it resumes its runs.

    Example: `ocssl demo --seed 0 --seed 1`
    """
    from rich.console import Console

    from ocssl.results.render import to_rich

    console = Console(highlight=False, soft_wrap=True)
    check_output(output / "demo.png", "png", force=force)
    with writing(output, DataError):
        (output / "runs").mkdir(parents=True, exist_ok=True)
    images = STREAM // 20 if quick else STREAM
    console.print(
        f"\n[bold]{images:,} unlabelled images, one class after another, each seen once.[/]\n"
        "Three ways to learn from them with SimCLR, at the same cost (60 training images for every 10 that arrive).\n"
        "A linear probe over all 18 classes, seen or not, measures the encoder along the way.\n"
    )
    seeds = dict.fromkeys(seed or [0])
    results = _run(seeds, output / "runs", images, quick)
    over = " (mean over seeds)" if len(seeds) > 1 else ""
    console.print(f"\nLinear probe in percent, by images seen, and k-NN at the end{over}")
    console.print(to_rich(_table(results)), "")
    runs = {found[0].strategy: found for found in results.values()}
    for cla, *others in zip(runs["cla-e"], runs["finetune"], runs["er"], strict=True):
        ends = cla.references["untrained"], *(other.curve[-1] for other in others)
        against = "the untrained encoder {:+.1f} points, finetuning {:+.1f}, ER {:+.1f}"
        console.print(f"Seed {cla.seed}: CLA-E against {against.format(*(cla.curve[-1] - end for end in ends))}.")
    if quick:
        console.print("A rehearsal: these numbers say nothing of the strategies.")
    else:
        console.print("Replay shows on a stream this short. Which of ER and CLA-E is ahead does not.")
    console.print(f"\n[dim]Numbers and settings:[/] ocssl compare {output / 'runs'}/*")
    try:
        _draw(results, output / "demo.png")
        console.print(f"[dim]Curves:[/] {output / 'demo.png'}")
    except MissingExtraError as missing:
        typer.echo(f"no plot: {missing}", err=True)


def _run(seeds: Iterable[int], folder: Path, images: int, quick: bool) -> Results:
    """Each run has one thread: small networks gain little from more, and the last bits depend on their number."""
    from ocssl.device import threads
    from ocssl.engines import Job, make_engine
    from ocssl.runs.naming import label, run_name
    from ocssl.runs.presets import resolve

    changes = QUICK if quick else {}
    configs = [resolve({**SETTINGS, **run, "seed": seed, **changes}) for seed in seeds for run in RUNS]
    jobs = [
        Job(f"{label(config)}, seed {config.learner.seed}", config.to_dict(), folder / run_name(config))
        for config in configs
    ]
    engine = make_engine(workers=1 if quick else len(RUNS), quiet=True)
    results: dict[str, Result] = {}
    with threads(1), _bars(jobs, images):
        for done in engine.run(jobs):
            if done.result is None:
                raise OcsslError(f"{done.job.name}: {done.error}")
            results[done.job.name] = done.result
    found: dict[str, list[Result]] = {}
    for result in (results[job.name] for job in jobs):
        found.setdefault(result.label, []).append(result)
    return found


@contextmanager
def _bars(jobs: Sequence[Job], images: int) -> Iterator[None]:
    """A bar for each run, which follows the run's metrics; in a log, a line for each probe."""
    from rich.progress import TextColumn

    from ocssl.runs.folder import RunFolder

    over = Event()

    def follow() -> None:
        with open_bars(TextColumn("{task.fields[probe]}")) as bars:
            tasks = {bars.add_task(job.name, total=images, probe=""): job for job in jobs}
            shown = dict.fromkeys(tasks, 0)  # lines of metrics
            last = False
            while not last:
                last = over.wait(0.5)
                for task, job in tasks.items():
                    new: list[dict[str, Any]] = []
                    with suppress(CheckpointError, OSError):  # a run that is resumed cuts damaged metrics
                        new = RunFolder(job.folder).metrics.read()[shown[task] :]
                    shown[task] += len(new)
                    for line in (line for line in new if line["samples"]):  # floors, the last lines, have none
                        bars.update(task, completed=line["samples"])
                        if line["kind"] == "probe":
                            bars.update(task, probe=f"probe {line['linear']:4.1f} %")
                            if not bars.console.is_terminal:
                                bars.console.print(f"{job.name}: {line['samples']} images, {line['linear']:.1f} %")

    thread = Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _table(results: Results) -> Table:
    from ocssl.results import Table, TableColumn, TableRow, Value
    from ocssl.results.sections import FLOORS

    first, *_ = baseline = results["CLA-E"]
    step = len(first.curve) // POINTS
    columns = [*map(str, first.borders[step - 1 :: step]), "avg", "k-NN", "s"]
    rows = []
    for name in REFERENCES:
        level = Value(fmean(run.references[name] for run in baseline), digits=1)
        knn = Value(fmean(run.knn_references[name] for run in baseline), digits=1)
        rows.append(TableRow(FLOORS[name], (*[level] * (POINTS + 1), knn, Value(text="")), ranked=False))
    for label, runs in results.items():
        means = [fmean(values) for values in zip(*(run.curve for run in runs), strict=True)]
        seconds = fmean(run.train_seconds + run.eval_seconds for run in runs)
        values = [Value(mean, digits=1) for mean in (*means[step - 1 :: step], fmean(means))]
        knn = Value(fmean(run.knn.final for run in runs if run.knn), digits=1)
        rows.append(TableRow(label, (*values, knn, Value(seconds, digits=0))))
    return Table("", tuple(map(TableColumn, columns)), tuple(rows))


def _draw(results: Results, path: Path) -> None:
    """Curves and their range over seeds, above a picture of each class where it arrives."""
    from ocssl.data import shapes
    from ocssl.results.names import STYLES, row_name
    from ocssl.results.render.figures import RC, Line, figure_bytes, need_matplotlib, plot_lines
    from ocssl.results.sections import FLOORS

    need_matplotlib()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    first, *_ = baseline = results["CLA-E"]
    lines = []
    for name in REFERENCES:
        level = fmean(run.references[name] for run in baseline)
        lines.append(Line(f"{FLOORS[name]}  {level:.0f} %", (), [level]))
    for label, runs in results.items():
        along = list(zip(*((run.references["untrained"], *run.curve) for run in runs), strict=True))
        mean, low, high = ([measure(values) for values in along] for measure in (fmean, min, max))
        style = STYLES[row_name(runs[0].strategy, runs[0].memory)]
        lines.append(Line(f"{label}  {mean[-1]:.0f} %", (0, *first.borders), mean, low, high, style))
    images, labels = shapes.draw(len(shapes.CLASSES), seed=0)
    with rc_context(fname=RC), writing(path, DataError):
        figure = Figure(figsize=(8, 4.4), layout="constrained")
        curves, strip = figure.subplots(2, 1, sharex=True, height_ratios=(9, 1))
        plot_lines(curves, sorted(lines, key=lambda line: -line.y[-1]))
        curves.set(title=f"Seed {', '.join(str(run.seed) for run in baseline)}", ylabel="linear probe, all classes, %")
        curves.grid(axis="y")
        curves.set_ylim(0)
        figure.legend(loc="outside right upper")
        for start, end, (number,) in zip((0, *first.borders), first.borders, first.experiences, strict=False):
            strip.imshow(images[labels == number][0].permute(1, 2, 0), extent=(start, end, 0, 1), aspect="auto")
        strip.set(xlabel="stream images seen", yticks=[], xlim=(0, first.samples))
        strip.spines[:].set_visible(False)
        atomic_write(path, figure_bytes(figure, "png", dpi=160))
