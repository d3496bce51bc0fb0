"""Plugins: which module a part comes from, digests of its source, and learners that were saved with one."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ocssl
from ocssl import plugins, strategies
from ocssl.checks import small_stream
from ocssl.config import parse_learner
from ocssl.errors import CheckpointError, ConfigError

SOURCE = """
from ocssl.strategies import ExperienceReplay, register

K = 1.0

@register("mine")
class Mine(ExperienceReplay): ...
"""
SMALL = {
    "backbone": "convnet-w8",
    "image_size": 8,
    "stream_batch": 4,
    "batch": 8,
    "passes": 1,
    "memory_size": 16,
    "hidden_dim": 32,
    "output_dim": 64,
    "device": "cpu",
}


def forget(*modules: str) -> None:
    """As in a process that has not imported them."""
    for name in [name for name in sys.modules if name.partition(".")[0] in modules]:
        del sys.modules[name]
    for name in ("mine", "other"):
        strategies.registry._entries.pop(name, None)
    for table in (plugins._registered, plugins._digests, plugins._recorded, plugins._failed):
        table.clear()


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path, with a module in it."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("OCSSL_PLUGINS", "")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "mylab.py").write_text(SOURCE)
    yield tmp_path
    forget("mylab")


def used(**settings: object) -> list[plugins.Plugin]:
    return parse_learner(settings).plugins()


@pytest.mark.usefixtures("lab")
def test_a_part_of_ocssl_comes_from_no_plugin() -> None:
    plugins.import_plugin("mylab")
    assert used(strategy="er") == []
    (plugin,) = used(strategy="mine")
    assert (plugin.module, plugin.version, plugin.names) == ("mylab", None, ["strategy mine"])


def test_the_digest_is_that_of_the_source_when_it_was_imported(lab: Path) -> None:
    plugins.import_plugin("mylab")
    (before,) = used(strategy="mine")
    (lab / "mylab.py").write_text(SOURCE.replace("1.0", "2.0"))
    assert used(strategy="mine") == [before]
    forget("mylab")
    plugins.import_plugin("mylab")
    (after,) = used(strategy="mine")
    assert plugins.changed([before], [after]) == "the code of plugin module 'mylab' changed"


@pytest.mark.parametrize("changed", ["__init__.py", "parts/deep/helpers.py", "parts/deep/mine.py"])
def test_the_digest_of_a_package_is_that_of_all_its_files(lab: Path, changed: str) -> None:
    (lab / "mylab.py").unlink()
    deep = lab / "mylab" / "parts" / "deep"  # parts is a namespace: it has no __init__.py
    deep.mkdir(parents=True)
    (lab / "mylab" / "__init__.py").write_text("__version__ = '1.2'\n")
    (deep / "__init__.py").write_text("")
    (deep / "helpers.py").write_text("")
    (deep / "mine.py").write_text(SOURCE)
    plugins.import_plugin("mylab.parts.deep.mine")
    (before,) = used(strategy="mine")
    assert (before.module, before.version) == ("mylab.parts.deep.mine", "1.2")
    forget("mylab")
    with (lab / "mylab" / changed).open("a") as file:
        file.write("# changed\n")
    plugins.import_plugin("mylab.parts.deep.mine")
    (after,) = used(strategy="mine")
    assert before.digest != after.digest


def test_the_module_of_a_base_class_counts_too(lab: Path) -> None:
    (lab / "mylab2.py").write_text(
        "from mylab import Mine\nfrom ocssl.strategies import register\n@register('his')\nclass His(Mine): ...\n"
    )
    plugins.import_plugin("mylab2")
    assert [plugin.module for plugin in used(strategy="his")] == ["mylab", "mylab2"]
    forget("mylab2")


def test_what_is_not_known_is_not_compared() -> None:
    def plugin(digest: str | None) -> plugins.Plugin:
        return plugins.Plugin(module="mylab", version=None, digest=digest, names=[])

    assert plugins.changed(None, [plugin("0")]) is None
    assert plugins.changed([plugin(None)], [plugin("0")]) is None
    assert plugins.changed([plugin("0")], [plugin("0")]) is None
    assert plugins.changed([plugin("0")], []) == "plugin module 'mylab' is not used any more"
    assert plugins.changed([], [plugin("0")]) == "plugin module 'mylab' came to be used"


def test_a_plugin_that_the_user_names_is_found_in_the_current_folder(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (lab / "mylab.py").rename(here / "mylab.py")
    with pytest.raises(ConfigError, match=r"^cannot import plugin 'mylab' of --plugin: ModuleNotFoundError"):
        plugins.name_plugins(["mylab"], "--plugin")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(here)
    advice = "add --plugin mylab in the folder that has it, or put that folder on PYTHONPATH"
    with pytest.raises(ConfigError, match=rf"^cannot import plugin 'mylab' of a file: .*'mylab'; {advice}$"):
        plugins.name_plugins(["mylab"], "a file")
    for file in ("mylab.py", "./mylab.py", "./mylab"):
        with pytest.raises(
            ConfigError, match=r"; name the module, mylab, in its folder or with that folder on PYTHONPATH$"
        ):
            plugins.name_plugins([file], "--plugin", here=True)
    plugins.name_plugins(["mylab"], "--plugin", here=True)
    assert "mine" in strategies.registry
    assert os.environ["OCSSL_PLUGINS"] == "mylab"


@pytest.fixture
def saved(lab: Path) -> Path:
    """A learner that was saved with the plugin."""
    plugins.import_plugin("mylab")
    ocssl.Learner(strategy="mine", **SMALL).partial_fit(small_stream(8)).save(lab / "saved")
    forget("mylab")
    return lab / "saved"


def load(path: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings of loading."""
    with caplog.at_level(logging.WARNING, logger="ocssl"):
        assert ocssl.Learner.load(path).seen == 8
    return caplog.messages


def test_a_learner_imports_its_plugin(saved: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert load(saved, caplog) == []


def test_a_learner_warns_of_other_code(lab: Path, saved: Path, caplog: pytest.LogCaptureFixture) -> None:
    (lab / "mylab.py").write_text(SOURCE.replace("1.0", "-3.0"))
    (warning,) = load(saved, caplog)
    assert warning.startswith(f"since '{saved}' was saved, the code of plugin module 'mylab' changed; ")


def gone(lab: Path) -> str:
    (lab / "mylab.py").unlink()
    return r"which cannot be imported \(ModuleNotFoundError: No module named 'mylab'\)"


def empty(lab: Path) -> str:
    (lab / "mylab.py").write_text("")
    return "which does not register it any more"


def half(lab: Path) -> str:
    (lab / "mylab.py").write_text(SOURCE.replace('"mine"', '"other"') + "\nimport nowhere_to_be_found\n")
    return r"which cannot be imported \(ModuleNotFoundError: No module named 'nowhere_to_be_found'\)"


def leaving(lab: Path) -> str:
    (lab / "mylab.py").write_text("raise SystemExit('needs a licence')")
    return r"which cannot be imported \(SystemExit: needs a licence\)"


@pytest.mark.parametrize("lose", [gone, empty, half, leaving])
def test_a_learner_names_the_plugin_that_it_lacks(lab: Path, saved: Path, lose: Callable[[Path], str]) -> None:
    why = lose(lab)
    with pytest.raises(CheckpointError, match=f"strategy 'mine' comes from plugin module 'mylab', {why}; "):
        ocssl.Learner.load(saved)


def test_a_part_of_a_script_is_said_to_be_one() -> None:
    plugins.recall({"__main__": ["strategy scripted"]})
    with pytest.raises(ConfigError, match=r"^strategy 'scripted' was registered by a script or notebook; go on from"):
        strategies.registry.get("scripted")
