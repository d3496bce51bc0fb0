"""A learner that is saved, loaded in another process and goes on is the learner that never stopped, to the bit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from grid import combinations

import ocssl
from ocssl import checkpoint
from ocssl.checks import small_learner, small_stream

LENGTH = 26  # of the stream
CUTS = (2, 13, 18, 21)  # images before the save: nothing trained yet, warm-up, replay, a full memory; all leave some
GO_ON = """
import sys
from pathlib import Path
import torch
import ocssl
from ocssl.checks import small_stream
torch.backends.mkldnn.set_flags(False)  # as in the process that saved: the same kernels, the same bits
for state in sorted(Path(sys.argv[1]).iterdir()):
    learner = ocssl.Learner.load(state)
    learner.partial_fit(small_stream(int(sys.argv[2]))[learner.seen + learner.pending:]).save(state)
"""


# Every combination at one of the cuts, each in its turn, and two of them at all.
CASES = [(*combination, CUTS[i % len(CUTS)]) for i, combination in enumerate(combinations())]
CASES += [
    (*combination, cut)
    for combination in (("cla-r", "simsiam", "fifo"), ("minred", "simclr", "minred"))
    for cut in CUTS
]
CASES = sorted({*CASES}, key=str)


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every case, saved at its cut and taken to the end of the stream by another process."""
    folder = tmp_path_factory.mktemp("states")
    for case in CASES:
        build(case).partial_fit(small_stream(LENGTH)[: case[-1]]).boundary().save(folder / name(case))
    subprocess.run([sys.executable, "-c", GO_ON, str(folder), str(LENGTH)], check=True)
    return folder


def name(case: tuple[str | int | None, ...]) -> str:
    return "_".join(map(str, case))


def build(case) -> ocssl.Learner:
    strategy, method, memory, _ = case
    return small_learner(strategy, method=method, memory=memory, passes=1, memory_size=memory and 16)


@pytest.mark.parametrize("case", CASES, ids=name)
def test_another_process_goes_on_to_the_same_bits(case, resumed: Path, tmp_path: Path) -> None:
    stream, cut = small_stream(LENGTH), case[-1]
    build(case).partial_fit(stream[:cut]).boundary().partial_fit(stream[cut:]).save(tmp_path / "whole")
    assert len(assert_same(tmp_path / "whole", resumed / name(case))["pending"]) == 2


def assert_same(one: Path, other: Path) -> dict[str, torch.Tensor]:
    """Two saved learners are the same; their tensors."""
    (facts, tensors), (other_facts, other_tensors) = (checkpoint.read(state, "learner") for state in (one, other))
    assert facts == other_facts
    assert tensors.keys() == other_tensors.keys()
    assert [name for name in tensors if not torch.equal(tensors[name], other_tensors[name])] == []
    return tensors


@pytest.fixture(scope="module")
def early() -> ocssl.Learner:
    """A learner with more passes at the start, at the end of its stream."""
    return with_early_passes().partial_fit(small_stream(34))


def with_early_passes() -> ocssl.Learner:
    # The fifth minibatch of four has three steps, too.
    return small_learner("multiview-r", passes=1, early_passes=3, early_images=18)


def test_more_passes_at_the_start_are_charged(early: ocssl.Learner) -> None:
    assert early.budget.steps == 3 * 5 + 3
    plain = small_learner("multiview-r", passes=3).partial_fit(small_stream(34))
    assert plain.budget.spent - early.budget.spent == 3 * 2 * early.output.cbp


@pytest.mark.parametrize("cut", [6, 17, 20, 33])
def test_more_passes_at_the_start_go_on_to_the_same_bits(cut: int, early: ocssl.Learner, tmp_path: Path) -> None:
    stream = small_stream(34)
    with_early_passes().partial_fit(stream[:cut]).save(tmp_path / "cut")
    ocssl.Learner.load(tmp_path / "cut").partial_fit(stream[cut:]).save(tmp_path / "other")
    early.save(tmp_path / "whole")
    assert_same(tmp_path / "whole", tmp_path / "other")
