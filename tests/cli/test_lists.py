"""``ocssl list`` beside packages that are broken, and the calculator's refusals."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ocssl import strategies
from ocssl.cli import main
from ocssl.runs.config import settings

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ocssl(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """The command in this process: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def command(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ocssl", *words])
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        return int(end.value.code or 0), said.out, said.err

    return command


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An installed package whose strategy and data set cannot be imported, and what is said of the strategy."""
    info = tmp_path / "half_done-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: half-done\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[ocssl.strategies]\nbroken = half_done:Broken\n[ocssl.data]\ntorn = half_done:torn\n"
    )
    (tmp_path / "half_done.py").write_text("import nowhere_to_be_found")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(strategies.registry, "_left_out", set())
    return (
        "ocssl: cannot import strategy 'broken' (half_done:Broken) of package 'half-done': "
        "ModuleNotFoundError: No module named 'nowhere_to_be_found'; mend or uninstall the package\n"
    )


def test_a_broken_package_is_named_and_everything_else_listed(ocssl: Command, broken: str) -> None:
    code, out, err = ocssl("list", "strategies")
    assert (code, err) == (0, broken)
    listed = [line.split()[0] for line in out.splitlines() if not line.startswith(" ")]
    assert {"finetune", "cla-e", "pfr"} <= set(listed)
    assert "broken" not in listed


@pytest.mark.usefixtures("broken")
def test_a_broken_package_hides_no_data_set(ocssl: Command) -> None:
    code, out, err = ocssl("list", "datasets")
    assert code == 0
    assert "cifar100" in out
    assert err.startswith("ocssl: cannot import data set 'torn' (half_done:torn) of package 'half-done': ")


def test_one_part_or_setting_is_listed_by_its_name(ocssl: Command) -> None:
    code, out, _ = ocssl("list", "settings", "omega")
    assert (code, [line.split()[0] for line in out.splitlines() if line[0] != " "]) == (0, ["setting", "omega"])
    code, out, _ = ocssl("list", "memories", "fifo")
    assert (code, [line.split()[0] for line in out.splitlines() if line[0] != " "]) == (0, ["fifo"])


def test_the_settings_of_a_part_are_listed_by_its_name(ocssl: Command) -> None:
    code, out, _ = ocssl("list", "settings", "lump")
    assert (code, [line.split()[0] for line in out.splitlines() if line[0] != " "]) == (0, ["setting", "alpha"])
    for name, part in (("er", "strategy 'er'"), ("cifar100", "data set 'cifar100'")):
        said = f"ocssl: {part} has no settings of its own; ocssl list settings prints those of every run\n"
        assert ocssl("list", "settings", name) == (2, "", said)


def test_a_name_that_is_not_listed_is_refused(ocssl: Command) -> None:
    assert ocssl("list", "settings", "omeag") == (2, "", "ocssl: unknown setting 'omeag'; did you mean 'omega'?\n")
    for kind, said in (("strategies", "strategy"), ("datasets", "data set"), ("streams", "stream")):
        code, out, err = ocssl("list", kind, "nothing-of-ours")
        assert (code, out) == (2, "")
        assert err.startswith(f"ocssl: unknown {said} 'nothing-of-ours'.")


def test_a_broken_strategy_that_is_asked_for_is_refused(ocssl: Command, broken: str) -> None:
    assert ocssl("list", "strategies", "broken") == (2, "", broken)


def test_a_run_with_a_broken_strategy_is_refused_and_help_is_not(ocssl: Command, broken: str) -> None:
    warning = broken.replace("ocssl: ", "ocssl: warning: ", 1)
    assert ocssl("run", "--dataset", "shapes", "--strategy", "broken") == (2, "", warning + broken)
    assert ocssl("run", "--help")[0] == 0


@pytest.mark.parametrize("words", [("list", "methods"), ("run", "--dataset", "shapes", "--strategy", "mine")])
def test_a_plugin_that_is_not_there_is_refused_in_one_sentence(
    ocssl: Command, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("OCSSL_PLUGINS", "no_such_module")
    code, out, err = ocssl(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("ocssl: cannot import 'no_such_module' of OCSSL_PLUGINS: ")


@pytest.mark.parametrize("more", [("--passes", "3"), ("--cbp", "270000"), ()])
def test_the_calculator_refuses_a_batch_smaller_than_the_stream_minibatch(
    ocssl: Command, more: tuple[str, ...]
) -> None:
    assert ocssl("budget", "--batch", "5", *more) == (2, "", "ocssl: batch (5) must be at least stream_batch (10)\n")


def test_the_calculator_takes_a_batch_without_replay(ocssl: Command) -> None:
    code, out, _ = ocssl("budget", "--batch", "10", "--passes", "3")
    assert code == 0
    assert out.splitlines()[1].split()[:3] == ["3", "10", "0"]


def test_a_terminal_that_cannot_show_a_letter_gets_a_question_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.setattr(sys, "argv", ["ocssl", "list", "settings", "omega"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    shown.seek(0)
    assert "omega (?)" in shown.read()


def test_a_plugin_that_ends_python_with_a_message_is_no_success(
    ocssl: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unlicensed.py").write_text("raise SystemExit('this plugin needs a licence')")
    monkeypatch.syspath_prepend(tmp_path)
    code, out, err = ocssl("list", "methods", "--plugin", "unlicensed")
    assert (code, out) == (2, "")
    assert err.startswith(
        "ocssl: cannot import plugin 'unlicensed' of --plugin: SystemExit: this plugin needs a licence"
    )


def test_names_of_settings_are_whole_on_a_narrow_terminal(ocssl: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    first = [line.split(" ")[0] for line in ocssl("list", "settings")[1].splitlines()]
    assert set(settings()) <= set(first)
