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

CUTS = (2, 13, 30, 41)  # images before the save: nothing trained yet, warm-up, replay, a full memory; all leave some
GO_ON = """
import sys
from pathlib import Path
import torch
import ocssl
from ocssl.checks import small_stream
torch.set_num_threads(1)
torch.backends.mkldnn.set_flags(False)  # as in the process that saved: the same kernels, the same bits
for state in sorted(Path(sys.argv[1]).iterdir()):
    learner = ocssl.Learner.load(state)
    learner.partial_fit(small_stream(50)[learner.seen + learner.pending:]).save(state)
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
        build(case).partial_fit(small_stream(50)[: case[-1]]).boundary().save(folder / name(case))
    subprocess.run([sys.executable, "-c", GO_ON, str(folder)], check=True)
    return folder


def name(case: tuple[str | int | None, ...]) -> str:
    return "_".join(map(str, case))


def build(case) -> ocssl.Learner:
    strategy, method, memory, _ = case
    return small_learner(strategy, method=method, memory=memory, passes=1, memory_size=memory and 16)


@pytest.mark.parametrize("case", CASES, ids=name)
def test_another_process_goes_on_to_the_same_bits(case, resumed: Path, tmp_path: Path) -> None:
    stream, cut = small_stream(50), case[-1]
    build(case).partial_fit(stream[:cut]).boundary().partial_fit(stream[cut:]).save(tmp_path / "whole")
    facts, tensors = checkpoint.read(tmp_path / "whole", "learner")
    other_facts, other_tensors = checkpoint.read(resumed / name(case), "learner")
    assert facts == other_facts
    assert tensors.keys() == other_tensors.keys()
    assert [name for name in tensors if not torch.equal(tensors[name], other_tensors[name])] == []
    assert len(tensors["pending"]) == 2


@pytest.mark.parametrize("cut", [6, 17, 20, 33])
def test_more_passes_at_the_start_are_charged_and_go_on_to_the_same_bits(cut: int, tmp_path: Path) -> None:
    early = {"passes": 1, "early_passes": 3, "early_images": 18}  # the fifth minibatch of four has three steps, too
    stream = small_stream(50)
    whole = small_learner("multiview-r", **early).partial_fit(stream)
    small_learner("multiview-r", **early).partial_fit(stream[:cut]).save(tmp_path / "cut")
    other = ocssl.Learner.load(tmp_path / "cut").partial_fit(stream[cut:])
    for place, learner in {"whole": whole, "other": other}.items():
        learner.save(tmp_path / place)
    facts, tensors = checkpoint.read(tmp_path / "whole", "learner")
    other_facts, other_tensors = checkpoint.read(tmp_path / "other", "learner")
    assert facts == other_facts
    assert [name for name in tensors if not torch.equal(tensors[name], other_tensors[name])] == []
    assert whole.budget.steps == 3 * 5 + 7
    plain = small_learner("multiview-r", passes=3).partial_fit(stream)
    assert plain.budget.spent - whole.budget.spent == 7 * 2 * whole.output.cbp
