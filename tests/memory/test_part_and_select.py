"""Part and select against a version that looks at every part again before every cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ocssl
from ocssl.checks import small_learner, small_stream
from ocssl.memory.part_and_select import part_and_select


def slowly(points: list[list[float]], count: int) -> list[int]:
    parts = [list(range(len(points)))]
    while len(parts) < count:
        best, where, reach = None, 0, 0.0
        for part in parts:
            for axis in range(len(points[0])):
                values = [points[i][axis] for i in part]
                if max(values) - min(values) > reach:
                    best, where, reach = part, axis, max(values) - min(values)
        if best is None:
            break
        values = [points[i][where] for i in best]
        cut = (min(values) + max(values)) / 2
        parts.remove(best)
        parts += [[i for i in best if points[i][where] <= cut], [i for i in best if points[i][where] > cut]]
    chosen = []
    for part in parts:
        box = [(min(points[i][a] for i in part) + max(points[i][a] for i in part)) / 2 for a in range(len(points[0]))]
        chosen.append(min(part, key=lambda i, box=box: sum((points[i][a] - box[a]) ** 2 for a in range(len(box)))))
    left = [i for i in range(len(points)) if i not in chosen]
    return sorted(chosen + left[: count - len(chosen)])


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(2, 14), st.data())
def test_it_keeps_what_the_slow_version_keeps(seed: int, n: int, data) -> None:
    points = np.random.default_rng(seed).normal(size=(n, 3))
    count = data.draw(st.integers(1, n))
    assert part_and_select(points, count).tolist() == slowly(points.tolist(), count)


def test_points_that_coincide_still_fill_the_memory() -> None:
    assert part_and_select(np.zeros((5, 2)), 3).tolist() == [0, 1, 2]


def test_it_is_the_memory_of_the_original_scale_and_is_not_listed() -> None:
    assert "part-and-select" not in ocssl.memory.registry.names()
    learner = small_learner("scale", variant="original").partial_fit(small_stream(40))
    assert type(learner.train_state.memory).__name__ == "PartAndSelect"
    assert len(learner.train_state.memory) == 20


def test_a_step_that_works_on_the_host_is_not_captured() -> None:
    from ocssl.execution import Eager, make_executor

    train_state = small_learner("scale", variant="original").train_state
    assert isinstance(make_executor("auto", train_state), Eager)
    with pytest.raises(ocssl.errors.ConfigError, match="cannot capture memory PartAndSelect"):
        make_executor("graph", train_state)
