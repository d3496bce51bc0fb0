"""The command, its files, and figures that look the same for everybody, every time."""

from __future__ import annotations

import os
import re
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy
import pytest
import synthetic
from typer.testing import CliRunner

from ocssl.cli import app
from ocssl.errors import ConfigError, DataError, MissingExtraError
from ocssl.results import Report, read_report, read_result
from ocssl.results.charts import chart_data
from ocssl.results.names import STYLES, Style
from ocssl.results.render import write_report
from ocssl.results.render.figures import Line, draw_figure, draw_lines, render
from ocssl.results.render.html import html_report
from ocssl.results.render.markdown import markdown_report

CLA_E = "cifar100-simsiam-cla-e-fifo-high-clean-seed{}.json"
HIGH = ("iid", "cassle-r", "er-reservoir", "er-fifo", "minred", "cla-r", "cla-e", "scale", "osiris-r")

# What remains of a linear RGB colour for eyes without one kind of cone (Machado, Oliveira and Fernandes, 2009).
SIGHT = {
    "usual": numpy.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}


@pytest.fixture
def one(few: Path) -> Path:
    """A store of a single result, for quick figures."""
    for path in few.glob("*.json"):
        if path.name != CLA_E.format(0):
            path.unlink()
    return few


def colour_of(style: Style, ground: str) -> str:
    return (style.dark or style.colour) if ground == "dark" else style.colour


def oklab(colour: str, sight: object) -> numpy.ndarray:
    values = numpy.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    linear = numpy.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    seen = numpy.clip(numpy.asarray(sight) @ linear, 0, 1)
    cones = numpy.array([[0.41222, 0.53633, 0.05145], [0.21190, 0.68070, 0.10740], [0.08830, 0.28172, 0.62998]])
    axes = numpy.array([[0.21045, 0.79362, -0.00407], [1.97800, -2.42859, 0.45059], [0.02590, 0.78277, -0.80868]])
    return axes @ numpy.cbrt(cones @ seen)


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("ground", ["light", "dark"])
def test_strategies_that_meet_in_a_table_differ_in_colour_for_every_sight(sight: str, ground: str) -> None:
    seen = {name: oklab(colour_of(STYLES[name], ground), SIGHT[sight]) for name in HIGH}
    nearest = min(float(numpy.linalg.norm(seen[a] - seen[b])) for a, b in combinations(HIGH, 2))
    assert nearest > 0.1  # in OKLab, where one can just tell colours apart at about 0.02


@pytest.mark.parametrize("ground", ["light", "dark"])
def test_strategies_that_share_a_marker_differ_in_colour(ground: str) -> None:
    for (one, a), (other, b) in combinations(STYLES.items(), 2):
        if a.marker == b.marker and not other.startswith("spare"):
            colours = colour_of(a, ground), colour_of(b, ground)
            apart = [oklab(colours[0], sight) - oklab(colours[1], sight) for sight in SIGHT.values()]
            assert min(map(float, numpy.linalg.norm(apart, axis=1))) > 0.07, (one, other)


def add_passes(folder: Path) -> None:
    """Add a run of twice the passes to each run: figures against CBP need two points."""
    for path in sorted(folder.glob("*.json")):
        result = read_result(path)
        double = {name: 2 * getattr(result, name) for name in ("cbp_spent", "cbp_planned", "train_seconds")}
        more = synthetic.again(result, changes=double | {"budget": "custom"}, passes=2 * result.config["passes"])
        path.with_stem(f"{path.stem}-double").write_text(more.to_json())


def test_the_command_writes_everything_and_the_same_bytes_again(one: Path, tmp_path: Path) -> None:
    place = tmp_path / "out"
    add_passes(one)
    done = CliRunner().invoke(app, ["report", str(one), "-o", str(place), "--title", "Mine"])
    assert done.exit_code == 0, done.output
    names = {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}
    assert {"report.html", "report.md", "tables.tex"} <= names
    for kind, start in (("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")):
        figures = [name for name in names if name.endswith(kind)]
        kinds = {re.split(r"[-.]", Path(name).name)[0] for name in figures}
        assert kinds == {"bars", "stream", "budget", "times", "claims"}
        assert all((place / name).read_bytes().startswith(start) for name in figures)
    again = read_report(one, "Mine")
    assert (place / "report.html").read_text() == html_report(again)
    assert "tables/high-simsiam-cifar100-clean.csv" in names
    data = chart_data(again)
    for kind, content in render(lambda: draw_figure(data, data["figures"][0]), ["png", "svg", "pdf"]).items():
        assert (place / "figures" / f"{data['figures'][0]['name']}.{kind}").read_bytes() == content


def described(report: Report, start: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The data of a report and the first figure whose name starts so."""
    data = chart_data(report)
    return data, next(figure for figure in data["figures"] if figure["name"].startswith(start))


def figure_of(report: Report, start: str) -> Any:
    return draw_figure(*described(report, start))


@pytest.mark.parametrize(
    ("protocol", "theirs"), [("clean", "the paper’s (authors’ protocol)"), ("authors", "the paper’s")]
)
def test_bars_say_which_are_the_papers_and_where_its_protocol_is_another(
    report: Report, protocol: str, theirs: str
) -> None:
    data = chart_data(report)
    bars = next(one for one in data["figures"] if one["kind"] == "bars" and one["protocol"] == protocol)
    figure = draw_figure(data, bars)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["ours", theirs]
    figure.draw_without_rendering()
    assert not any(legend.get_window_extent().overlaps(axes.get_tightbbox()) for axes in figure.axes)
    assert bars["caution"].startswith("The paper’s numbers are of the authors’ protocol" if protocol == "clean" else "")
    assert bool(bars["caution"]) == (protocol == "clean")


def test_level_lines_of_one_strategy_are_told_apart(report: Report) -> None:
    drawn = render(lambda: draw_figure(*described(report, "stream-low-simsiam")), ["svg"])["svg"].decode()
    dashes = re.findall(rf"stroke-dasharray: ([^;]+);[^\"]*stroke: {STYLES['iid'].colour}", drawn)
    assert len(dashes) == 4  # two lines, also in the legend
    assert len(set(dashes)) == 2


def test_marks_of_times_are_whole(one: Path) -> None:
    first = read_result(one / CLA_E.format(0))
    second = synthetic.again(first, seed=1).model_copy(update={"train_seconds": 1.001 * first.train_seconds})
    (one / CLA_E.format(1)).write_text(second.to_json())
    add_passes(one)
    figure = figure_of(read_report(one), "times")
    figure.draw_without_rendering()
    for axes in figure.axes:
        for mark in [line for line in axes.get_lines() if line.get_marker() == "o"]:
            height = axes.transData.transform(mark.get_xydata())[:, 1].max()
            assert height + mark.get_markersize() / 2 * figure.dpi / 72 < axes.bbox.y1


def test_no_figure_against_cbp_has_all_its_points_at_one(one: Path) -> None:
    assert not {"budget", "times"} & {figure["kind"] for figure in chart_data(read_report(one))["figures"]}
    add_passes(one)
    assert {"budget", "times"} <= {figure["kind"] for figure in chart_data(read_report(one))["figures"]}


def test_a_strategy_with_a_setting_changed_is_no_second_point_at_its_cbp(tmp_path: Path) -> None:
    found = [
        run for run in synthetic.results(("clean",), seeds=(0,)) if run.strategy == "cla-e" and run.method == "simsiam"
    ]
    (low,) = [run for run in found if run.budget == "low"]
    synthetic.write(tmp_path, iter([*found, synthetic.again(low, joint_views=False)]))
    data, figure = described(read_report(tmp_path), "budget")
    assert {section.table.id for section in read_report(tmp_path).sections} >= {"views", "low-simsiam"}
    spent = [data["series"][number]["cbp"] for number in figure["series"]]
    assert len(spent) == len(set(spent)) == 2


def test_legends_tell_tuned_runs_from_others(tuned: Path) -> None:
    add_passes(tuned)
    (legend,) = figure_of(read_report(tuned), "budget").legends
    names = [text.get_text() for text in legend.get_texts()]
    assert {"CLA-E", "CLA-E, tuned", "ER w/ FIFO, tuned"} <= set(names)
    assert "ER w/ FIFO" not in names
    assert len(set(names)) == len(names)


def test_runs_that_were_tuned_to_the_papers_values_are_drawn_once(as_paper: Path) -> None:
    data = chart_data(read_report(as_paper))
    assert [one["label"] for one in data["series"] if one["style"] == "cla-e"] == ["CLA-E"]


def test_names_of_figures_are_short_and_stay_in_their_folder(one: Path) -> None:
    found = read_result(one / CLA_E.format(0))
    for number, place in enumerate(("folder:" + "記録/" * 60, "folder:" + "記録-" * 60)):
        config = found.config | {"dataset": place, "method": "../../mine"}
        odd = found.model_copy(update={"key": place, "dataset": place, "config": config})
        (one / f"{number}.json").write_text(odd.to_json())
        double = {"cbp_spent": 2 * odd.cbp_spent, "key": f"double {place}"}
        (one / f"{number}-double.json").write_text(odd.model_copy(update=double).to_json())
    names = [figure["name"] for figure in chart_data(read_report(one))["figures"]]
    assert len(set(names)) == len(names) == 2 + 2 * 4
    assert all("/" not in name and len(name.encode()) < 250 for name in names)


def test_devices_whose_long_names_begin_alike_have_figures_of_their_own(one: Path) -> None:
    (path,) = one.glob("*.json")
    for number in range(2):
        result = synthetic.again(read_result(path), lr=0.5 + number)
        hardware = {"gpu": f"{'a device of a very long name ' * 3}{number}", "runs_at_once": 1}
        (one / f"{number}.json").write_text(result.model_copy(update={"hardware": hardware}).to_json())
    path.unlink()
    add_passes(one)
    times = [figure["name"] for figure in chart_data(read_report(one))["figures"] if figure["kind"] == "times"]
    assert len(times) == len(set(times)) == 2


def test_names_in_no_encoding_are_told_all_the_same(one: Path, tmp_path: Path) -> None:
    (one / os.fsdecode(b"cut\xff.json")).write_text("{")
    written = write_report(read_report(one), tmp_path / "out", ["html", "markdown"])
    assert all("cut" in path.read_text() and "udcff.json" in path.read_text() for path in written)


def test_only_the_formats_asked_for_are_written(one: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app, ["report", str(one), "-o", str(tmp_path / "out"), "--format", "html", "--format", "latex"]
    )
    assert done.exit_code == 0, done.output
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"report.html", "tables.tex"}


def test_an_unknown_format_is_refused_with_the_nearest(one: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'html'"):
        write_report(read_report(one), tmp_path, ["htlm"])


def test_problems_are_told_on_the_terminal(one: Path, tmp_path: Path) -> None:
    (one / "broken.json").write_text("{")
    done = CliRunner().invoke(app, ["report", str(one), "-o", str(tmp_path / "out"), "--format", "markdown"])
    assert done.exit_code == 0
    assert "broken.json" in done.stderr


def test_without_matplotlib_figures_are_left_out_unless_asked_for(
    one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = CliRunner().invoke(app, ["report", str(one), "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "ocssl[plot]" in done.stderr
    assert done.stdout.endswith(f", 1 table in {tmp_path / 'out' / 'tables'}\n")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"report.html", "report.md", "tables.tex", "tables"}
    with pytest.raises(MissingExtraError, match="matplotlib"):
        write_report(read_report(one), tmp_path, ["png"])


def test_lines_of_any_kind_are_drawn_into_a_file(tmp_path: Path) -> None:
    lines = [
        Line("CLA-E", (1, 2, 3), (10.0, 30.0, 20.0), (9.0, 28.0, 19.0), (11.0, 31.0, 22.0), STYLES["cla-e"]),
        Line("trials", (1, 3), (12.0, 13.0), joined=False),
        Line("untrained encoder", (), [15.0]),
    ]
    path, again = tmp_path / "curves.svg", tmp_path / "again.svg"
    for place in (path, again):
        draw_lines(lines, place, best=(2, 30.0, "best: trial 3"), log=True, ticks={1: "one", 2: "two"})
    drawn = path.read_text()
    assert path.read_bytes() == again.read_bytes()
    for words in ("CLA-E", "trials", "untrained encoder", "best: trial 3", "one", "stream images seen"):
        assert f"<!-- {words} -->" in drawn
    draw_lines([Line("by name", ("fifo", "reservoir"), (1.0, 2.0))], tmp_path / "names.png", x_title="memory")
    draw_lines([Line("by name", ("fifo", "reservoir"), (1.0, 2.0))], tmp_path / "names.svg", x_title="memory")
    assert "<!-- reservoir -->" in (tmp_path / "names.svg").read_text()
    assert (tmp_path / "names.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(DataError, match=r"must end in \.png, \.svg or \.pdf"):
        draw_lines(lines, tmp_path / "curves.gif")
    with pytest.raises(DataError, match="cannot write"):
        draw_lines(lines, tmp_path / "no folder" / "curves.png")


def test_no_file_of_a_report_names_a_folder_of_the_machine(one: Path, tmp_path: Path) -> None:
    (one / "broken.json").write_text("{")
    first = next(one.glob("*.json"))
    result = read_result(first)
    again = synthetic.again(result, 1.0)
    (one / "again.json").write_text(again.to_json())
    report = read_report(one)
    assert report.conflicting
    for path in write_report(report, tmp_path / "out", ["html", "markdown", "latex", "csv"]):
        assert str(one.parent) not in path.read_text()
    assert "broken.json" in (tmp_path / "out" / "report.md").read_text()


def test_a_report_is_replaced_when_results_begin_or_cease_to_contradict_each_other(one: Path, tmp_path: Path) -> None:
    (path,) = one.glob("*.json")
    result = synthetic.again(read_result(path), lr=0.77)  # a row of no table of the paper's
    path.write_text(result.to_json())
    again = synthetic.again(result, 1.0)
    sizes = []
    for conflict in (False, True, False):
        if conflict:
            (one / "again.json").write_text(again.to_json())
        else:
            (one / "again.json").unlink(missing_ok=True)
        written = write_report(read_report(one), tmp_path / "out", ["csv"])
        sizes.append([path.read_text().count("\n") for path in written])
        assert {path.read_text().startswith('""\n') for path in written} == {conflict}
    assert sizes[0] == sizes[2]
    written[0].write_text("name,place\n")
    with pytest.raises(ConfigError, match="was not written by ocssl as csv"):
        write_report(read_report(one), tmp_path / "out", ["csv"])


def test_a_long_label_leaves_room_for_the_plot(one: Path) -> None:
    (path,) = one.glob("*.json")
    changed = {"lr": 0.77, "tau": 0.5, "omega": 0.7, "samples_per_class": 77, "validation_fraction": 0.25}
    path.write_text(synthetic.again(read_result(path), **changed).to_json())
    data = chart_data(read_report(one))
    (stream,) = [figure for figure in data["figures"] if figure["kind"] == "stream"]
    assert len(data["series"][stream["series"][0]]["label"]) > 60
    drawn = draw_figure(data, stream)
    drawn.draw_without_rendering()
    assert drawn.axes[0].get_position().width > 0.4


def test_a_figure_is_as_high_as_its_legend(one: Path) -> None:
    (path,) = one.glob("*.json")
    result = read_result(path)
    for number in range(40):
        (one / f"{number}.json").write_text(synthetic.again(result, lr=0.5 + number).to_json())
    drawn = figure_of(read_report(one), "stream-other")
    (legend,) = drawn.legends
    assert len(legend.get_texts()) == 40
    drawn.draw_without_rendering()
    extent = legend.get_window_extent()
    assert drawn.bbox.y0 <= extent.y0 < extent.y1 <= drawn.bbox.y1
    assert not extent.overlaps(drawn.axes[0].get_tightbbox())


@pytest.mark.parametrize("count", [3, 30])
def test_a_plot_of_many_lines_has_all_of_them_in_its_legend_and_no_two_alike(tmp_path: Path, count: int) -> None:
    lines = [Line(f"run {number}", (1, 2), (number, number)) for number in range(count)]
    draw_lines(lines, tmp_path / "curves.svg")
    drawn = (tmp_path / "curves.svg").read_text()
    height = float(re.findall(r'viewBox="0 0 [\d.]+ ([\d.]+)"', drawn)[0])
    places = re.findall(r"<!-- run \d+ -->\s*<g [^>]*transform=\"translate\([\d.]+ (-?[\d.]+)\)", drawn)
    assert len(places) == count
    assert all(0 < float(place) < height for place in places)
    looks = re.findall(r'<use xlink:href="(#\w+)"[^>]*style="fill: (#\w+); stroke: #ffffff', drawn)
    assert len(set(looks)) == count


def test_bars_of_a_number_that_no_row_has_are_not_drawn(one: Path) -> None:
    (path,) = one.glob("*.json")
    for number in range(2):
        result = synthetic.again(read_result(path), lr=0.5 + number).model_copy(update={"avg": None})
        (one / f"{number}.json").write_text(result.to_json())
    (axes,) = figure_of(read_report(one), "bars-other").axes
    assert axes.get_title() == "Final accuracy, %"


def test_the_markdown_of_one_result_counts_one(one: Path) -> None:
    for path in sorted(one.glob("*.json"))[1:]:
        path.unlink()
    assert "\n1 result, the newest of " in markdown_report(read_report(one))
