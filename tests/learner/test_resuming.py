"""A learner that is saved, loaded in another process and goes on is the learner that never stopped, to the bit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from grid import combinations

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
for state in sorted(Path(sys.argv[1]).iterdir()):
    learner = ocssl.Learner.load(state)
    learner.partial_fit(small_stream(50)[learner.seen + learner.pending:]).save(state)
"""


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every combination, saved at every cut, taken to the end of the stream by another process."""
    folder = tmp_path_factory.mktemp("states")
    for combination in combinations():
        for cut in CUTS:
            name = "_".join(map(str, (*combination, cut)))
            build(combination).partial_fit(small_stream(50)[:cut]).boundary().save(folder / name)
    subprocess.run([sys.executable, "-c", GO_ON, str(folder)], check=True)
    return folder


def build(combination):
    strategy, method, memory = combination
    return small_learner(strategy, method=method, memory=memory, passes=1, memory_size=16)


@pytest.mark.parametrize("combination", combinations(), ids=lambda c: "-".join(map(str, c)))
def test_another_process_goes_on_to_the_same_bits(combination, resumed: Path, tmp_path: Path) -> None:
    for cut in CUTS:
        whole = build(combination).partial_fit(small_stream(50)[:cut]).boundary()
        whole.partial_fit(small_stream(50)[cut:]).save(tmp_path / str(cut))
        facts, tensors = checkpoint.read(tmp_path / str(cut), "learner")
        other_facts, other_tensors = checkpoint.read(resumed / "_".join(map(str, (*combination, cut))), "learner")
        assert facts == other_facts
        assert tensors.keys() == other_tensors.keys()
        assert [name for name in tensors if not torch.equal(tensors[name], other_tensors[name])] == []
        assert len(tensors["pending"]) == 2
