"""The page in headless Chromium: what a reader does with mouse, keyboard and thumb.

Screenshots go to the folder in ``OCSSL_SCREENSHOTS``, else to a temporary one.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import synthetic

from ocssl.results import read_report, read_result
from ocssl.results.render import write_report

pytestmark = pytest.mark.browser

ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
DESKTOP, PHONE = (1280, 900), (375, 740)
HIGH = "#high-simsiam-cifar100-clean"


class Reader:
    """A browser with the page open."""

    def __init__(self, driver: Any, pictures: Path) -> None:
        self.driver, self.pictures = driver, pictures

    def open(self, page: Path, size: tuple[int, int] = DESKTOP, *, dark: bool = False) -> None:
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 2, "mobile": size == PHONE}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": size == PHONE})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": [scheme]})
        self.driver.get(page.as_uri())

    def find(self, selector: str) -> Any:
        """The first visible element, brought to the middle of the window."""
        element = next(one for one in self.driver.find_elements("css selector", selector) if one.is_displayed())
        return self.show(element)

    def show(self, element: Any) -> Any:
        """An element, brought to the middle of the window."""
        self.run("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
        # Scrolling is told to the page only with its next frame, and hides the tip.
        self.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
        return element

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def texts(self, selector: str) -> list[str]:
        script = (
            "return [...document.querySelectorAll(arguments[0])].filter(e => e.checkVisibility()).map(e => e.innerText)"
        )
        return [text.strip() for text in self.run(script, selector)]

    def tip(self) -> str:
        return self.run("return tip.hidden ? '' : tip.innerText", ())

    def hover(self, element: Any, right: float = 0, down: float = 0) -> None:
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).move_to_element_with_offset(element, right, down).perform()

    def press(self, *keys: str) -> None:
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def picture(self, name: str) -> None:
        self.pictures.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(self.pictures / f"{name}.png"))

    def whole_picture(self, name: str) -> None:
        """The page from top to bottom."""
        size = self.driver.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
        shot = self.driver.execute_cdp_cmd(
            "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": {**size, "scale": 1}}
        )
        import base64

        self.pictures.mkdir(parents=True, exist_ok=True)
        (self.pictures / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs the extra 'browser'")
    driver_path = shutil.which("chromedriver")
    assert driver_path, "needs chromedriver; `make test-browser` says how to get it"
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for argument in (*ARGUMENTS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver_path))
    place = os.environ.get("OCSSL_SCREENSHOTS")
    yield Reader(driver, Path(place) if place else tmp_path_factory.mktemp("pictures"))
    driver.quit()


@pytest.fixture(scope="module")
def page(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(read_report(store), tmp_path_factory.mktemp("report"), ["html"])[0]


@pytest.fixture(scope="module")
def named(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with runs that are named by many settings."""
    folder = tmp_path_factory.mktemp("named")
    base = read_result(store / "cifar100-simsiam-cla-e-fifo-high-clean-seed0.json")
    for number in range(3):
        settings = {"memory_size": 500 + number, "lr": 0.01 + number / 100, "tau": 0.9 + number / 100}
        (folder / f"{number}.json").write_text(synthetic.again(base, 40.0 + number, **settings).to_json())
    return write_report(read_report(folder), tmp_path_factory.mktemp("named-report"), ["html"])[0]


@pytest.fixture(scope="module")
def matrices(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with accuracies by experience of two strategies."""
    folder = tmp_path_factory.mktemp("matrices")
    for strategy, lowest in (("cla-e", 10.0), ("er", 5.0)):
        base = read_result(store / f"cifar100-simsiam-{strategy}-fifo-high-clean-seed0.json")
        own = synthetic.again(base, changes={"matrix": [[lowest, 20.0], [30.0, 40.0]]})
        (folder / f"{strategy}.json").write_text(own.to_json())
    return write_report(read_report(folder), tmp_path_factory.mktemp("matrices-report"), ["html"])[0]


@pytest.fixture(scope="module")
def troubled(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with problems: a file cut short and two that disagree."""
    folder = tmp_path_factory.mktemp("troubled")
    for path in store.glob("cifar100-simsiam-*-high-*"):
        shutil.copy(path, folder)
    first = folder / "cifar100-simsiam-cla-e-fifo-high-clean-seed0.json"
    (folder / "again.json").write_text(synthetic.again(read_result(first), 12.0).to_json())
    (folder / "cut.json").write_text(first.read_text()[:300])
    return write_report(read_report(folder), tmp_path_factory.mktemp("troubled-report"), ["html"])[0]


def test_it_opens_without_an_error_and_asks_nobody_for_anything(reader: Reader, page: Path) -> None:
    reader.driver.get_log("performance")
    reader.open(page)
    reader.whole_picture("desktop-light")
    assert [entry for entry in reader.driver.get_log("browser") if entry["level"] == "SEVERE"] == []
    events = [json.loads(entry["message"])["message"] for entry in reader.driver.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert set(asked) <= {page.as_uri()}


def finals_of(reader: Reader) -> list[float]:
    """The first column of numbers, without floors that were not measured."""
    return [float(text.split("±")[0]) for text in reader.texts(f"{HIGH} tbody td:nth-child(2)") if text.strip() != "–"]


def test_a_heading_sorts_there_back_and_again_as_it_was(reader: Reader, page: Path) -> None:
    reader.open(page)
    before = reader.texts(f"{HIGH} tbody th")
    heading = reader.find(f"{HIGH} thead tr:last-child th:nth-child(2) button")
    heading.click()
    finals = finals_of(reader)
    assert finals == sorted(finals, reverse=True)
    assert reader.run("return arguments[0].closest('th').ariaSort", heading) == "descending"
    reader.picture("sorted")
    reader.press(" ")  # the heading has the focus
    finals = finals_of(reader)
    assert finals == sorted(finals)
    heading.click()
    assert reader.texts(f"{HIGH} tbody th") == before


def test_what_is_missing_sorts_last_either_way(reader: Reader, page: Path) -> None:
    reader.open(page)
    heading = reader.find(f"{HIGH} thead tr:last-child th:nth-child(5) button")  # Avg, which i.i.d. has not
    for _ in range(2):
        heading.click()
        assert {"–"} == set(reader.texts(f"{HIGH} tbody td:nth-child(5)")[-2:])


def test_filters_leave_one_protocol_and_one_objective(reader: Reader, page: Path) -> None:
    reader.open(page)
    assert set(reader.texts(".badge")) == {"clean protocol"}
    reader.find("label:has([name=protocol][value=authors])").click()
    reader.find("label:has([name=method][value=simclr])").click()
    reader.find("label:has([name=budget][value=low])").click()
    assert set(reader.texts(".badge")) == {"authors’ protocol"}
    assert reader.texts(".sheet h3") == ["CIFAR-100, low CBP, SimCLR"]
    assert set(reader.texts("#runs tbody td:nth-child(5)")) == {"authors’"}
    assert set(reader.texts("#runs tbody td:nth-child(3)")) == {"SimCLR", "own"}
    reader.picture("filtered")


def test_the_clean_protocol_is_chosen_first(reader: Reader, store: Path, tmp_path: Path) -> None:
    for protocol in ("authors", "clean"):
        base = read_result(store / f"cifar100-simsiam-cla-e-fifo-high-{protocol}-seed0.json")
        (tmp_path / f"{protocol}.json").write_text(synthetic.again(base, lr=0.07).to_json())  # of no table of the paper
    reader.open(write_report(read_report(tmp_path), tmp_path / "report", ["html"])[0])
    assert set(reader.texts(".badge")) == {"clean protocol"}
    assert reader.texts("#filters label") == ["clean", "authors’", "both"]


def test_hovering_tells_values(reader: Reader, page: Path) -> None:
    reader.open(page)
    figure = reader.find("#stream .card svg")
    reader.hover(figure, 80, -20)
    assert "CLA-E" in reader.tip()
    assert "images" in reader.tip()
    reader.picture("hover-stream")
    reader.hover(reader.find("#bars .card svg"), 40, -40)
    assert {"ours", "paper", "difference"} <= set(reader.tip().split())
    reader.picture("hover-bars")
    mark = reader.find("#budget .card svg .mark")
    reader.hover(mark)
    assert "CBP" in reader.tip()
    reader.hover(reader.find("h1"))
    assert reader.tip() == ""


def test_arrows_walk_along_a_figure_and_enter_opens_its_runs(reader: Reader, page: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    reader.open(page)
    reader.run("arguments[0].focus({focusVisible: true})", reader.find("#budget .card svg"))
    reader.press(Keys.ARROW_RIGHT)
    first = reader.tip()
    reader.press(Keys.ARROW_RIGHT)
    second = reader.tip()
    assert first
    assert second not in ("", first)
    reader.press(Keys.ENTER)
    assert reader.find("dialog[open]")
    reader.press(Keys.ESCAPE)
    assert not reader.driver.find_elements("css selector", "dialog[open]")
    assert reader.tip() == second


def test_a_thumb_brings_the_tip_too(reader: Reader, page: Path) -> None:
    reader.open(page, PHONE)
    box = reader.run("return arguments[0].getBoundingClientRect().toJSON()", reader.find("#stream .card svg"))
    touch = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
    reader.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [touch]})
    reader.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert "images" in reader.tip()
    edges = reader.run("const b = tip.getBoundingClientRect(); return [b.left, b.right]", ())
    assert edges[0] >= 0
    assert edges[1] <= PHONE[0]
    reader.picture("phone-tip")


def test_a_legend_switches_a_line_off_and_on(reader: Reader, page: Path) -> None:
    reader.open(page)
    lines = "return document.querySelectorAll('#stream .cards path.line').length"
    before = reader.run(lines)
    reader.find("#stream .legend button[data-style='cla-e']").click()
    assert reader.run(lines) < before
    assert reader.find("#budget .legend button[data-style='cla-e']").get_attribute("aria-pressed") == "false"
    reader.find("#stream .legend button[data-style='cla-e']").click()
    assert reader.run(lines) == before


def test_a_number_opens_the_whole_configuration_of_each_of_its_runs(reader: Reader, page: Path) -> None:
    reader.open(page)
    number = reader.find(f"{HIGH} tbody tr:nth-child(7) button.open")
    number.click()
    text = reader.find("dialog[open]").text
    assert "CLA-E, SimSiam, CIFAR-100, seed 0" in text
    reader.picture("configuration")
    shown = dict(zip(reader.texts("dialog dt"), reader.texts("dialog dd"), strict=True))
    assert (shown["omega"], shown["lr"], shown["batch"], shown["torch"]) == ("0.3", "0.3", "138", "2.11.0")
    assert (shown["CBP spent"], shown["code"]) == ("3,716,016", "test data, not a run")
    reader.find("dialog .choices button:nth-child(3)").click()
    assert reader.texts("dialog h2") == ["CLA-E, SimSiam, CIFAR-100, seed 2"]
    reader.find("dialog header .quiet").click()
    assert reader.run("return document.activeElement === arguments[0]", number)


def test_dark_follows_the_system_and_the_button(reader: Reader, page: Path) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    reader.open(page)
    light = reader.run(ground)
    reader.find("#theme").click()
    dark = reader.run(ground)
    assert dark != light
    reader.whole_picture("desktop-dark")
    reader.open(page, dark=True)
    assert reader.run(ground) == dark
    reader.find("#theme").click()
    assert reader.run(ground) == light


@pytest.mark.parametrize("dark", [False, True])
def test_on_a_phone_only_tables_scroll_sideways(reader: Reader, page: Path, dark: bool) -> None:
    reader.open(page, PHONE, dark=dark)
    assert reader.run("return document.documentElement.scrollWidth") == PHONE[0]
    assert reader.run("return document.querySelector('.scroll').scrollWidth") > PHONE[0]
    reader.whole_picture(f"phone-{'dark' if dark else 'light'}")
    reader.find(f"{HIGH} button.open").click()
    assert reader.run("return document.querySelector('dialog').getBoundingClientRect().width") < PHONE[0]
    reader.picture(f"phone-configuration-{'dark' if dark else 'light'}")


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_long_names_leave_room_for_their_numbers(reader: Reader, named: Path, size: tuple[int, int]) -> None:
    reader.open(named, size)
    figures = reader.run(
        "return [...document.querySelectorAll('#bars .card')].at(-1).querySelectorAll('svg').values().map(figure => "
        "[figure, ...figure.querySelectorAll('.name, .number')].map(e => e.getBoundingClientRect().toJSON())).toArray()"
    )
    assert len(figures) == 2
    for figure, *texts in figures:
        assert all(figure["left"] - 1 <= text["left"] and text["right"] <= figure["right"] + 1 for text in texts)
    name = reader.find("[id^=other] tbody th")
    assert name.size["width"] < size[0] / 2
    assert reader.run("return document.documentElement.scrollWidth") == size[0]
    reader.whole_picture(f"long-names-{size[0]}")


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_accuracies_by_experience_are_cells_on_one_scale(reader: Reader, matrices: Path, size: tuple[int, int]) -> None:
    reader.open(matrices, size)
    assert reader.texts("#matrix .card .note") == ["Lightest 5.0 %, darkest 40.0 %."]
    shades = (
        "return [...document.querySelectorAll('#matrix .cell')].map(cell => Number(cell.getAttribute('fill-opacity')))"
    )
    er, cla_e = reader.run(shades)[:4], reader.run(shades)[4:]
    assert (er, er[1:]) == (sorted(er), cla_e[1:])
    assert er[0] < cla_e[0] < cla_e[1]
    cell = reader.find("#matrix .cell:nth-of-type(3)")
    if size == DESKTOP:
        reader.hover(cell)
        assert "after experience 2" in reader.tip()
        assert "30.0 %" in reader.tip()
    assert reader.run("return document.documentElement.scrollWidth") == size[0]
    reader.picture(f"matrices-{size[0]}")


def test_numbers_are_rounded_and_signed_as_in_the_tables(reader: Reader, store: Path, tmp_path: Path) -> None:
    changes = {"references": {"pixels": 18.125}, "forgetting": -0.001}
    for strategy, final in {"cla-e": 43.06, "er": 30.0}.items():  # the paper has 43.1 for CLA-E
        base = read_result(store / f"cifar100-simsiam-{strategy}-fifo-high-clean-seed0.json")
        (tmp_path / f"{strategy}.json").write_text(synthetic.again(base, final, changes=changes).to_json())
    reader.open(write_report(read_report(tmp_path), tmp_path / "report", ["html"])[0])
    texts = set(reader.texts(f"{HIGH} tbody td"))
    assert {"−0.0", "0.00", "18.12"} <= texts  # the difference, the forgetting, and a floor between two digits
    tips = []
    for bar in reader.driver.find_elements("css selector", "#bars .card svg rect.bar:not(.theirs)"):
        reader.show(bar)
        reader.hover(bar)
        tips.append(reader.tip())
    assert any("difference\t−0.0" in tip for tip in tips)
    reader.find(f"{HIGH} button.open").click()
    shown = dict(zip(reader.texts("dialog dt"), reader.texts("dialog dd"), strict=True))
    assert (shown["forgetting, points"], shown["pixels, %"]) == ("0.00", "18.12")


def test_problems_come_first_and_runs_in_conflict_are_marked(reader: Reader, troubled: Path) -> None:
    reader.open(troubled)
    assert "2 problems" in reader.find(".problems").text
    assert "disagree" in reader.find(".problems").text
    reader.picture("problems")
    assert len(reader.texts("#runs .flag")) == 2
    assert reader.texts(f"{HIGH} .flag") == ["in conflict"]
    number = reader.find(f"{HIGH} tbody tr:nth-child(7) button.open")
    assert number.get_attribute("data-runs").count(" ") == 1  # two seeds of three


def test_on_paper_controls_are_gone_and_tables_are_whole(reader: Reader, page: Path) -> None:
    reader.open(page, dark=True)
    reader.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert reader.texts(".filters, #theme") == []
    assert reader.run("return getComputedStyle(document.querySelector('.scroll')).overflowX") == "visible"
    assert reader.run("return getComputedStyle(document.documentElement).colorScheme") == "light"
