"""The numbers in the documentation are those of the published results."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from helpers.results import content
from ocssl.cli import app
from ocssl.cli.demo import RUNS, SETTINGS
from ocssl.engines import Job, JobResult
from ocssl.memory.base import registry as memories
from ocssl.methods.base import registry as methods
from ocssl.optim.base import registry as optimizers
from ocssl.paper.plan import configure
from ocssl.results import find_table, read_report, read_results, sections_of
from ocssl.runs.naming import run_name
from ocssl.runs.presets import resolve
from ocssl.strategies.base import registry as strategies
from ocssl.sweeps.driver import run_sweeps
from ocssl.sweeps.plan import read_sweep, shipped

ROOT = Path(__file__).parents[2]
PARTS = {"strategies": strategies, "methods": methods, "memories": memories, "optimizers": optimizers}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("report")
    made = CliRunner().invoke(app, ["report", str(ROOT / "results"), "-o", str(folder), "--format", "markdown"])
    assert made.exit_code == 0, made.output
    return (folder / "report.md").read_text()


@pytest.fixture(scope="module")
def made() -> dict[Path, str]:
    """The pages and figures as docs/tables makes them."""
    tables = runpy.run_path(str(ROOT / "docs" / "tables"))
    report = read_report(ROOT / "results")
    return {**tables["pages"](report), **tables["figures"](report)}


def tables(page: str) -> list[str]:
    """The lines of a page's tables of results."""
    results = page[page.index("## CIFAR-100, ") : page.index("Accuracies are in percent")]
    return [line for line in results.splitlines() if line.startswith("|")]


def cells(line: str) -> list[str]:
    """The words of a table's line, without what sets them off and without spreads."""
    return [cell.split(" ± ")[0].strip() for cell in line.replace("*", "").strip("|").split("|")]


def bold(line: str) -> list[bool]:
    """Which of these words are bold."""
    return ["**" in cell for cell in line.strip("|").split("|")]


def test_the_tables_are_those_that_the_report_makes_of_the_results(report: str) -> None:
    assert len(tables(report)) > 20
    assert tables((ROOT / "docs" / "result-tables.md").read_text()) == tables(report)


PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
MADE = [page for page in PAGES if "made by docs/tables" in page.read_text()]


@pytest.mark.parametrize("page", MADE, ids=lambda page: page.stem)
def test_every_number_that_is_made_from_results_is_theirs(made: dict[Path, str], page: Path) -> None:
    assert made[page] == page.read_text(), "run: python docs/tables"


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "figures").glob("*cifar*.svg")), ids=lambda path: path.stem)
def test_every_figure_that_is_made_from_results_is_theirs(made: dict[Path, str], path: Path) -> None:
    """Another processor may round a coordinate differently, and the names of marks are made of coordinates."""
    number, name = re.compile(r"-?\d+\.\d+"), re.compile(r'(?<=["#])[mp][0-9a-f]{10}(?=[")])')
    ours, theirs = name.sub("", made[path]), name.sub("", path.read_text())
    assert number.sub("", ours) == number.sub("", theirs), "run: python docs/tables"
    places = [[float(found) for found in number.findall(svg)] for svg in (ours, theirs)]
    assert places[0] == pytest.approx(places[1], abs=0.01), "run: python docs/tables"


def test_accuracies_are_not_typed_by_hand() -> None:
    page = (ROOT / "docs" / "results.md").read_text()
    written = re.sub(r"<!-- (.+): made by .*?<!-- end of \1 -->", "", page, flags=re.S)
    assert written.count("made by docs/tables") == 0
    written = re.sub(r"`[^`]*`", "", written.replace("within 2.5 points", ""))  # the limit of "More than 2.5 away"
    assert re.findall(r"[^.]*\b\d+\.\d+\b[^.]*", written) == []


def test_runs_that_measured_nothing_and_probes_elsewhere_are_not_counted_as_runs_on_test_images() -> None:
    results = [json.loads(file.read_text()) for file in (ROOT / "results").glob("*.json")]
    trained = [result for result in results if result["config"]["evaluate"] != "start"]
    scored = [result for result in trained if result["final"] is not None]
    probed = sum("->" in result["dataset"] for result in scored)
    trials = [line for file in (ROOT / "results" / "tuning").rglob("trials.jsonl") for line in file.open()]
    scores = sum(score is not None for line in trials for score in json.loads(line)["scores"])
    assert (
        f"Runs measured on test images: {len(scored) - probed}, and {probed} of their encoders on another data set; "
        f"on validation images, to tune: {scores}; for their times only: {len(trained) - len(scored)}."
    ) in (ROOT / "docs" / "result-tables.md").read_text()


def test_the_legend_is_that_of_the_report(report: str) -> None:
    (legend,) = [line for line in report.splitlines() if line.startswith("Accuracies are in percent")]
    assert legend in (ROOT / "docs" / "result-tables.md").read_text().splitlines()


def test_every_table_of_the_documentation_has_the_floors(report: str) -> None:
    page = (ROOT / "docs" / "result-tables.md").read_text()
    sections = page[page.index("## CIFAR-100, ") : page.index("Accuracies are in percent")].split("## ")[1:]
    assert len(sections) == len(re.findall(r"^## .*, ", report, flags=re.M))
    for section in sections:
        header, *lines = [line for line in section.splitlines() if line.startswith("|")]
        if "Final ours" not in cells(header):  # a table of times
            continue
        rows = {cells(line)[0] for line in lines}
        assert {"raw pixels", "colour histogram"} <= rows
        assert rows & {"random encoder", "untrained encoder"}


def test_the_page_of_many_views_has_every_sweep_of_the_search() -> None:
    page = (ROOT / "docs" / "multiview-search.md").read_text()
    names = [name for name in shipped() if name.startswith("multiview")]
    made = runpy.run_path(str(ROOT / "docs" / "tables"))
    assert sorted(f"multiview-{name}" for name in made["SEARCH"]) == names
    for name in names:
        assert f"| `{name}` |" in page
        assert f"| {len(read_sweep(name).listed())} |" in page[page.index(f"| `{name}` |") :].splitlines()[0]


def test_the_page_of_many_views_fills_as_results_arrive(tmp_path: Path) -> None:
    tables = runpy.run_path(str(ROOT / "docs" / "tables"))
    empty = "".join((ROOT / "docs" / name).read_text() for name in ("multiview.md", "multiview-search.md"))

    def fill() -> str:
        return tables["fill"](empty, tables["many_views"](read_results(tmp_path), tmp_path / "tuning"))

    page = fill()
    parts = find_table("multiview-parts")
    for number, row in enumerate(parts.rows):
        for seed in range(3):
            settings = configure(row, "cifar100", "clean", seed=seed).to_dict()
            final = 50.0 - number + 0.1 * seed
            (tmp_path / f"{number}-{seed}.json").write_text(json.dumps(content(final=final, **settings)))
    sweep = tmp_path / "tuning" / "multiview-shape"
    plan = read_sweep("multiview-shape")
    run_sweeps({sweep: plan}, FakeEngine(), lambda line: None)
    filled = fill()
    for row in parts.rows:
        assert f"| {row.label} |" in filled
    less = [row.name for row in parts.rows].index("no-alignment")
    assert f"| without alignment, Final | −{less:.2f} |" in filled  # its row less the first, paired over seeds
    assert "the best of 8 trials (8 planned)" in filled
    # A sweep, the table of parts, and the table of budgets and the times, which share a row with it.
    assert filled.count("ot run yet") == page.count("ot run yet") - 4
    assert tables["fill"](filled, tables["many_views"](read_results(tmp_path), tmp_path / "tuning")) == filled


def test_a_part_of_a_page_without_an_end_or_a_maker_is_refused() -> None:
    fill = runpy.run_path(str(ROOT / "docs" / "tables"))["fill"]
    begin, end = "<!-- times: made by docs/tables -->", "<!-- end of times -->"
    assert fill(f"a\n{begin}\nold\n{end}\nb", {"times": "new"}) == f"a\n{begin}\nnew\n{end}\nb"
    for page, made in ((f"{begin}\nold\n", {"times": "new"}), (f"{begin}\nold\n{end}", {})):
        with pytest.raises(SystemExit, match="the part 'times' of a page has no end, or nothing makes it"):
            fill(page, made)


class FakeEngine:
    """Ends every job with the learning rate's warm-up as its score."""

    max_parallel = 1

    def run(self, jobs: Iterable[Job], total: int | None = None) -> Iterator[JobResult]:
        for job in jobs:
            found = SimpleNamespace(final=float(job.config["warmup"]) / 100, avg=None, cbp_spent=600)
            yield JobResult(job, found, None, 1)


COLUMNS = ("Final ours", "Avg ours", "k-NN Final", "k-NN Avg", "forgetting", "Final paper", "Avg paper")
MEASURED = ("final", "avg", "knn_final", "knn_avg", "forgetting")


def test_the_readmes_numbers_are_those_of_the_report_rounded(report: str) -> None:
    sections = report.split("\n## ")
    (high,) = [part for part in sections if part.startswith("CIFAR-100, high CBP, SimSiam, clean protocol\n")]
    header, _, *lines = [line for line in high.splitlines() if line.startswith("|")]
    columns = [cells(header).index(name) for name in COLUMNS]
    ours = {cells(line)[0]: [cells(line)[column] for column in columns] for line in lines}
    marked = {cells(line)[0]: [bold(line)[column] for column in columns] for line in lines}
    _, readme = (ROOT / "README.md").read_text().split("## Numbers", 1)
    printed = [line for line in readme.splitlines() if line.startswith("|")][2:]
    assert {cells(line)[0] for line in printed} == ours.keys()
    for line in printed:
        row, *numbers = cells(line)
        assert bold(line)[1:] == marked[row]
        for number, whole in zip(numbers, ours[row], strict=True):
            assert number == whole or float(number) == pytest.approx(float(whole), abs=0.0551), (row, number, whole)


def test_the_readmes_numbers_are_rounded_once() -> None:
    """24.849 is 24.8, not 24.9 by way of 24.85."""
    section = sections_of(read_results(ROOT / "results"), find_table("high-simsiam"))[0]
    _, readme = (ROOT / "README.md").read_text().split("## Numbers", 1)
    printed = {cells(line)[0]: cells(line)[1:] for line in readme.splitlines() if line.startswith("|")}
    for row in section.rows:
        for number, kind in zip(printed[row.label], MEASURED, strict=False):
            values = getattr(row.ours, kind)
            assert number == (f"{fmean(values.values()):.1f}" if values else "–"), (row.label, kind)


def test_the_readmes_times_are_those_of_runs_that_had_the_gpu_to_themselves() -> None:
    files = sorted((ROOT / "results").glob("cifar100-simsiam-cla-e-fifo-high-clean-seed?.json"))
    runs = [json.loads(file.read_text()) for file in files]
    assert all((run["hardware"]["gpu"], run["hardware"]["runs_at_once"]) == ("NVIDIA H200", 1) for run in runs)
    trains, measured = (round(fmean(run[name] for run in runs)) for name in ("train_seconds", "eval_seconds"))
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert f"A CLA-E run alone on one H200 trains for {trains} s and is measured for {measured} s" in readme


@pytest.mark.parametrize("kind", ["strategies", "methods", "memories", "optimizers"])
def test_the_readme_names_every_part(kind: str) -> None:
    paragraph = (ROOT / "README.md").read_text().partition(f"{kind.capitalize()}: ")[2].partition("Each part")[0]
    assert set(PARTS[kind].names()) <= set(paragraph.replace("`", " ").split())


def test_the_demos_page_has_numbers_of_the_present_demo() -> None:
    page = (ROOT / "docs" / "demo.md").read_text()
    for run in RUNS:
        name = run_name(resolve({**SETTINGS, **run, "seed": 0})).removesuffix("-seed0")
        assert f"`{name}`" in page, "the demo's settings changed: run it again and correct the page and README.md"


def test_the_demos_page_has_every_strategy_and_the_readme_its_lowest_and_highest() -> None:
    page, readme = ((ROOT / name).read_text() for name in ("docs/demo.md", "README.md"))
    by_measure = []
    for measure in ("linear probe", "k-NN"):
        found = page[page.index(f"| {measure} at the end") :].partition("\n\n")[0]
        rows = {name: list(map(float, numbers)) for name, *numbers in map(cells, found.splitlines()[2:])}
        assert {len(row) for row in rows.values()} == {6}  # three seeds on two kinds of processors
        by_measure.append(rows)
    names = {"finetune": "finetuning", "er": "ER", "cla-e": "CLA-E"}
    assert {run["strategy"] for run in RUNS} == set(names)
    for rows in by_measure:
        assert {"ER", "CLA-E", "finetune", "raw pixels", "colour histogram", "untrained encoder"} == set(rows)
    header, _, *ranges = readme[readme.index("| | CLA-E | ER |") :].splitlines()[:4]
    for line, rows in zip(ranges, by_measure, strict=True):
        printed = dict(zip(cells(header)[1:], cells(line)[1:], strict=True))
        assert printed == {names.get(name, name): f"{min(row)} – {max(row)}" for name, row in rows.items()}
