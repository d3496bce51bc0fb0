"""Parts outside the package, as the documentation prints them: used by name in runs, killed, and resumed to the bit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_killed_runs import contents

from helpers.command import TINY, Command, as_options, wait_for
from helpers.pages import PAGES, printed_blocks

SHORT = TINY | {"stream_batch": 8, "batch": 16, "samples_per_class": 12, "checkpoint_samples": 24, "evaluate": "never"}
CASES: dict[str, dict[str, object]] = {
    "a method with a target network and a queue": {"strategy": "er", "method": "ressl"},
    "a memory with a column": {"strategy": "er", "memory": "surprising"},
    "an optimiser": {"strategy": "cla-r", "optimizer": "sign", "lr": 0.001, "warmup": 5},
    "a deployed teacher": {"strategy": "cla-slow"},
}


@pytest.fixture(scope="module")
def package(ocssl_module: Command) -> Path:
    """A package with every printed part, in the folder of the commands."""
    folder = ocssl_module.folder / "mylab"
    folder.mkdir()
    wanted = [block for block in printed_blocks(*PAGES) if re.search(r"^@register\(", block, flags=re.M)]
    for number, block in enumerate(wanted):
        code = re.sub(r"^(ocssl\.checks|learner = ).*\n", "", block, flags=re.M)
        (folder / f"part{number}.py").write_text(code)
    names = "".join(f"from mylab import part{number}\n" for number in range(len(wanted)))
    (folder / "__init__.py").write_text(names)
    return folder


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("case", CASES)
def test_a_part_of_another_package_is_killed_and_resumed_to_the_bit(ocssl_module: Command, case: str) -> None:
    options = as_options(SHORT | CASES[case])
    whole, killed = (ocssl_module.folder / f"{kind} {case}" for kind in ("whole", "killed"))
    code, _, err = ocssl_module("run", "--plugin", "mylab", "--quiet", "-o", whole, *options)
    assert code == 0, err
    process = ocssl_module.start("run", "--plugin", "mylab", "--quiet", "-o", killed, *options)
    wait_for(lambda: (killed / "checkpoints" / "000002").exists())
    process.kill()
    process.wait()
    code, _, err = ocssl_module("run", "--plugin", "mylab", "--quiet", "--resume", killed)
    assert code == 0, err
    assert contents(killed) == contents(whole)


BROKEN = """
import numpy as np
from ocssl.data.streams import Stream, StreamType, register as register_stream
from ocssl.strategies import ExperienceReplay, register


@register("typo")
class Typo(ExperienceReplay):
    def penalty(self, step):
        return {"typo": step.featuers.projected.mean()}


@register("short")
class Short(ExperienceReplay):
    def penalty(self):
        return {}


class Own(StreamType):
    def build(self, labels, *, stream_batch, **how):
        return Stream.from_groups([self.drawn(len(labels))], stream_batch, "drop")


@register_stream("all")
class All(Own):
    def drawn(self, count):
        return list(range(count))  # those that are held out, too


@register_stream("beyond")
class Beyond(Own):
    def drawn(self, count):
        return np.arange(1, 60) + 10_000


@register_stream("floats")
class Floats(Own):
    def drawn(self, count):
        return np.linspace(0, 59, 60)
"""


@pytest.mark.parametrize(
    ("changed", "code", "said"),
    [
        ({"strategy": "typo"}, 70, "has no attribute 'featuers', in line 10 of plugin 'broken'; OCSSL_DEBUG=1 prints"),
        ({"strategy": "short"}, 70, "this is a fault of plugin 'broken', or of ocssl (TypeError: Short.penalty"),
        ({"stream": "all"}, 2, "which is not among the indices that build() is given"),
        ({"stream": "beyond"}, 2, "stream 'beyond' has sample 10001 in experience 0, which is not among"),
        ({"stream": "floats"}, 2, "experience 0 of the stream must be integers of shape (60,), not float64"),
    ],
)
def test_a_plugin_that_goes_wrong_is_named(ocssl: Command, changed: dict[str, object], code: int, said: str) -> None:
    (ocssl.folder / "broken.py").write_text(BROKEN)
    given = {**TINY, "strategy": "er", "validation_fraction": 0.2, **changed}
    if "stream" in changed:
        del given["experiences"]
    found, _, err = ocssl("run", "--plugin", "broken", "--quiet", "-o", "run", *as_options(given))
    assert (found, said in err) == (code, True), err
