"""The page: whole in itself, and deaf to markup in what it shows."""

from __future__ import annotations

import json
import re
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest
import synthetic

from helpers.results import PUBLISHED
from ocssl.results import Report, Result, read_report, read_result
from ocssl.results.build import report_table
from ocssl.results.charts import MAX_MATRICES, chart_data
from ocssl.results.claims import claims
from ocssl.results.render.claim_plots import draw_claims
from ocssl.results.render.html import html_report
from ocssl.results.render.latex import latex_report
from ocssl.results.render.markdown import markdown_report
from ocssl.results.summary import TERMS

CLA_E = "cifar100-simsiam-cla-e-fifo-high-clean-seed{}.json"
NASTY = "</script><script>alert(1)</script><!-- \u2028 & \"'"


class Page(HTMLParser):
    """Elements of a page, and the texts of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.scripts and self.elements[-1][0] == "script":
            self.scripts[-1] += data

    def with_attribute(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for _, attributes in self.elements if name in attributes]


def test_the_page_asks_for_nothing_outside_itself(report: Report) -> None:
    text = html_report(report)
    page = Page(text)
    assert not page.with_attribute("src")
    assert all((link["href"] or "").startswith("#") for link in page.with_attribute("href"))
    assert not {"link", "iframe", "img"} & {tag for tag, _ in page.elements}
    assert not re.search(r"url\(|@import|\bfetch\(|XMLHttpRequest|\bimport\b", "".join(page.scripts) + text)
    assert "default-src 'none'" in text


def test_the_script_never_parses_markup(report: Report) -> None:
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", html_report(report))


def test_strings_from_results_stay_strings(few: Path) -> None:
    path = few / CLA_E.format(0)
    base = read_result(path)
    changes = {"key": NASTY, "label": NASTY, "warnings": [NASTY], "code": NASTY, "hardware": {"cpu": NASTY}}
    changes["config"] = base.config | {"data_root": NASTY, "strategy": NASTY}
    path.with_name("<b>broken.json").write_text("{")
    path.with_name("nasty.json").write_text(Result.model_validate(base.model_dump() | changes).to_json())
    text = html_report(read_report(few, NASTY))
    page = Page(text)
    assert len(page.scripts) == 2
    assert "alert(1)</script>" not in text
    data = json.loads(page.scripts[0])
    (run,) = [run for run in data["runs"].values() if run["config"]["strategy"] == NASTY]
    assert run["warnings"] == [NASTY]
    assert run["config"]["data_root"] is None  # a path of the machine that made it
    assert "&lt;b&gt;broken.json" in text
    assert "<b>broken.json" not in text


def test_the_list_of_runs_says_which_were_measured_on_other_images_and_which_shared_their_device(few: Path) -> None:
    base = read_result(few / CLA_E.format(0))
    shared = {"hardware": base.hardware | {"runs_at_once": 8}, "train_seconds": 385.0}
    trial = synthetic.again(base, changes=shared, measure_on="validation", lr=0.07)
    (few / "trial.json").write_text(trial.to_json())
    _, _, listed = html_report(read_report(few)).partition('aria-label="Every run"')
    assert listed.count('<span class="flag">on validation images</span>') == 1
    assert listed.count(">385, 8 at once<") == 1


def test_what_is_not_a_number_does_not_break_the_page(few: Path) -> None:
    path = few / CLA_E.format(0)
    path.write_text(path.read_text().replace('"cores": 16', '"cores": NaN'))
    report = read_report(few)
    assert not report.problems
    json.loads(Page(html_report(report)).scripts[0], parse_constant=pytest.fail)


def test_every_number_of_ours_leads_to_its_runs(few: Path) -> None:
    report = read_report(few)
    page = Page(html_report(report))
    runs = json.loads(page.scripts[0])["runs"]
    behind = [(link["data-runs"] or "").split() for link in page.with_attribute("data-runs")]
    assert {name for names in behind for name in names} == set(runs)
    pair = next(names for names in behind if len(names) == 2)
    one, other = (runs[name] for name in pair)
    assert (one["facts"]["seed"], other["facts"]["seed"]) == (0, 1)
    assert one["config"] == {**other["config"], "seed": 0}


def test_problems_stand_on_the_page_before_everything_else(few: Path) -> None:
    (few / CLA_E.format(0)).write_text("{")
    text = html_report(read_report(few))
    assert text.index('id="problems"') < text.index('id="filters"')
    assert "1 problem to look at" in text


def test_lines_are_means_over_seeds_of_one_protocol(report: Report) -> None:
    data = json.loads(Page(html_report(report)).scripts[0])
    assert {figure["kind"] for figure in data["figures"]} == {"bars", "stream", "budget", "times"}
    for figure in data["figures"]:
        names = [name for number in figure["series"] for name in data["series"][number]["runs"]]
        assert {data["runs"][name]["facts"]["protocol"] for name in names} == {figure["protocol"]}


def test_a_curve_is_the_mean_over_seeds_with_its_extremes(few: Path) -> None:
    data = json.loads(Page(html_report(read_report(few))).scripts[0])
    curves = [read_result(few / CLA_E.format(seed)).curve for seed in (0, 1)]
    (series,) = [one for one in data["series"] if one["style"] == "cla-e"]
    assert series["curve"]["mean"] == [(a + b) / 2 for a, b in zip(*curves, strict=True)]
    assert series["curve"]["low"] == [min(pair) for pair in zip(*curves, strict=True)]
    assert series["curve"]["high"] == [max(pair) for pair in zip(*curves, strict=True)]


def test_figures_and_runs_have_numbers_as_the_tables_round_them(few: Path) -> None:
    """A number between two digits, which Python rounds to the even one and a browser up, is made a text in Python."""
    base = read_result(few / CLA_E.format(0))
    ties = {"train_seconds": 386.25, "references": {"untrained": 15.2, "pixels": 18.125}}
    for path in few.glob("*.json"):
        path.unlink()
    for seed in (0, 1):
        tie = synthetic.again(base, 43.125, changes=ties | {"cbp_spent": 3_716_010 + 5 * seed}, seed=seed)
        (few / CLA_E.format(seed)).write_text(tie.to_json())
    report = read_report(few)
    data = json.loads(Page(html_report(report)).scripts[0])
    series = data["series"][0]
    (row,) = [row for row in report_table(report.sections[0]).rows if row.label == "CLA-E"]
    assert (series["final"]["text"], series["final"]["short"]) == ("43.12 ± 0.00", "43.1")
    assert {series["final"]["text"], series["final"]["difference"], series["spent"]} <= {
        value.with_std() for value in row.values
    }
    assert series["spent"] == "3,716,012"
    assert series["seconds"]["text"] == "386.2 ± 0.0"
    assert series["curve"]["texts"][-1] == "43.1"
    run = data["runs"]["r0"]
    assert (run["numbers"]["Final, %"], run["numbers"]["training, s"]) == ("43.12", "386.2")
    assert run["others"]["pixels, %"] == "18.12"


def test_a_step_takes_the_runs_time_over_its_steps(few: Path) -> None:
    data = json.loads(Page(html_report(read_report(few))).scripts[0])
    expected = {"cla-e": 45_000 / 10 * 3, "iid": 3_726_000 / 2 / 138}
    for look, steps in expected.items():
        (series,) = [one for one in data["series"] if one["style"] == look]
        seconds = list(series["seconds"]["seeds"].values())
        assert abs(series["step"]["mean"] - 1000 * sum(seconds) / len(seconds) / steps) < 1e-9


def test_times_of_compiled_runs_have_figures_of_their_own(few: Path) -> None:
    for seed in (0, 1):
        path = few / CLA_E.format(seed)
        found = json.loads(path.read_text())
        path.write_text(json.dumps(found | {"config": found["config"] | {"execution": "compiled"}}))
    devices = {one["style"]: one["device"] for one in chart_data(read_report(few))["series"]}
    assert (devices["cla-e"], devices["cla-r"]) == ("Imaginary GPU, compiled", "Imaginary GPU")


def test_the_best_is_a_word_too(three: Path) -> None:
    report = read_report(three)
    marked = sum(len(section.best(number)) for section in report.sections for number in ("final", "avg"))
    text = html_report(report)
    spoken = re.findall(r'class="value best">.{,60}<span class="unseen">, best or level with it</span>', text)
    assert len(spoken) == text.count('class="value best"') == marked > 0


def test_the_page_says_only_of_results_in_conflict_that_they_did_not_count(few: Path) -> None:
    path = few / CLA_E.format(0)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"references": {"untrained": 25.0}}))
    report = read_report(few)
    assert "their own numbers count" in report.problems[0].sentence
    for text in (html_report(report), markdown_report(report)):
        assert "Files with a problem and results in conflict did not enter a number" in text


def test_runs_of_code_that_was_not_committed_are_named_under_their_table(few: Path) -> None:
    assert "not committed" not in html_report(read_report(few))
    path = few / CLA_E.format(1)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"code": "git c9d4e55-dirty"}))
    report = read_report(few)
    for text in (html_report(report), markdown_report(report), latex_report(report)):
        assert "Run from code with changes that were not committed: CLA-E, seed 1." in text


def test_values_that_came_out_as_the_papers_are_called_so(as_paper: Path) -> None:
    assert "CLA-E: lr 0.3, ω 0.3 (as in the paper: the same runs)." in html_report(read_report(as_paper))


def test_what_was_tuned_stands_under_the_table(tuned: Path) -> None:
    text = html_report(read_report(tuned))
    table, note = text.index("</table>"), text.index("ER w/ FIFO: lr 0.2; CLA-E: lr 0.3, ω 0.5.")
    assert table < note < text.index("</div>", table + len("</table></div>"))
    assert '<th colspan="4" scope="colgroup">Final, %</th>' in text
    assert '<th colspan="3" scope="colgroup">tuned</th>' in text


def test_without_tuned_runs_nothing_is_said_of_them(few: Path) -> None:
    assert "tuned</" not in html_report(read_report(few))


def test_the_page_opens_with_what_was_found_and_has_contents(report: Report) -> None:
    text = html_report(report)
    found, contents, filters = (text.index(part) for part in ('id="found"', 'class="contents"', 'id="filters"'))
    assert found < contents < filters
    assert found < text.index(TERMS) < contents
    assert TERMS in markdown_report(report)
    assert text.count("<dt>") == len(claims(report.store))
    links = {link["href"] for link in Page(text).with_attribute("href")}
    assert {f"#{section.id}" for section in report.sections} | {"#found", "#tables", "#runs"} <= links
    ids = {f"#{element['id']}" for element in Page(text).with_attribute("id")}
    assert links <= ids


def test_claims_about_differences_are_drawn() -> None:
    """Each comparison has a mark on the side of the limit where its number is, and an interval of enough seeds."""
    report = read_report(PUBLISHED)
    text = html_report(report)
    drawn = []
    for claim in claims(report.store):
        shown = [one for found in claim.shown.values() for one in found]
        drawn += [(claim, one) for one in shown if all(one.difference for one in shown)]
    styled = Page(text).with_attribute("style")
    scales = [element for element in styled if (element.get("class") or "").startswith("scale ")]
    assert len(scales) == len(drawn) > 4
    for element, (claim, one) in zip(scales, drawn, strict=True):
        at = {name: float(percent) for name, percent in re.findall(r"--(\w+): ([\d.]+)%", element["style"] or "")}
        assert one.difference is not None
        assert 0 <= at["low"] <= at["mean"] <= at["high"] <= 100
        assert (at["mean"] > at["limit"]) == (one.difference.mean > claim.limit) or at["mean"] == at["limit"]
        assert (at["low"] < at["high"]) == (one.seeds >= 3)
        assert element["class"] == f"scale { {True: 'for', False: 'against', None: 'open'}[one.supports] }"
        assert f"<span>{escape(one.points)}</span>" in text
    assert {claim.name for claim, _ in drawn} >= {"iid", "passes", "memory"}


def test_the_figure_of_the_claims_has_a_mark_at_each_difference() -> None:
    answered = [claim for claim in claims(read_report(PUBLISHED).store) if claim.has_differences]
    figure = draw_claims(answered)
    assert [axes.get_title().replace("\n", " ").partition(".")[0] for axes in figure.axes] == [
        claim.text.partition(".")[0] for claim in answered
    ]
    for axes, claim in zip(figure.axes, answered, strict=True):
        every = [one for found in claim.shown.values() for one in found]
        marks = [line for line in axes.get_lines() if line.get_marker() in ("o", "s")]
        intervals = [line for line in axes.get_lines() if len(line.get_xdata()) == 2 and line.get_marker() == "None"][
            1:
        ]
        assert [float(line.get_xdata()[0]) for line in marks] == [one.ends[1] for one in every]
        assert [(line.get_marker() == "s") for line in marks] == [one.supports is False for one in every]
        assert [tuple(line.get_xdata()) for line in intervals] == [(one.ends[0], one.ends[2]) for one in every]
        assert [text.get_text() for text in axes.texts] == [one.points for one in every]


def test_the_accuracy_matrix_is_the_mean_over_seeds(few: Path) -> None:
    for seed in (0, 1):
        path = few / CLA_E.format(seed)
        matrix = [[10.0 + seed, 20.0], [30.0, 40.0 + 2 * seed]]
        path.write_text(read_result(path).model_copy(update={"matrix": matrix}).to_json())
    data = json.loads(Page(html_report(read_report(few))).scripts[0])
    (figure,) = [figure for figure in data["figures"] if figure["kind"] == "matrix"]
    shown = [data["series"][number] for number in figure["series"] if data["series"][number]["matrix"]]
    assert [series["matrix"] for series in shown if series["label"] == "CLA-E"] == [[[10.5, 20.0], [30.0, 41.0]]]
    assert figure["range"] == [10.5, 41.0]


@pytest.mark.parametrize(("runs", "shown"), [(MAX_MATRICES, True), (MAX_MATRICES + 1, False)])
def test_runs_outside_the_papers_tables_have_matrices_while_they_are_few(few: Path, runs: int, shown: bool) -> None:
    first = read_result(few / CLA_E.format(0))
    for path in few.glob("*.json"):
        path.unlink()
    for number in range(runs):
        own = synthetic.again(first, changes={"matrix": [[10.0, 20.0], [30.0, 40.0]]}, lr=0.5 + number)
        (few / f"own{number}.json").write_text(own.to_json())
    assert any(figure["kind"] == "matrix" for figure in chart_data(read_report(few))["figures"]) is shown


def test_the_page_has_no_path_of_the_machine_that_made_it(few: Path) -> None:
    path = few / CLA_E.format(0)
    base = read_result(path)
    warned = {"warnings": ["cannot write '/home/somebody/runs/plot.png'"]}
    changes = {"data_root": "/home/somebody/data", "init_from": "/home/somebody/runs/first"}
    path.write_text(base.model_copy(update=warned | {"config": base.config | changes}).to_json())
    (few / "broken.json").write_text("{")
    text = html_report(read_report(few.resolve()))
    assert "/home/somebody" not in text
    assert str(few.resolve()) not in text
    assert "broken.json" in text
