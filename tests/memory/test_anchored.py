"""The memory that keeps the first samples, against lists."""

from __future__ import annotations

import pytest
from memories import identities, make, minibatches, pictures, seeded

from ocssl.checks import check_memory, check_strategy
from ocssl.errors import ConfigError
from ocssl.memory import Anchored


def test_it_keeps_the_contracts() -> None:
    check_memory("anchored")
    check_strategy("adapt", memory="anchored")


@pytest.mark.parametrize("first", [0.3, 0.5, 0.7])
def test_the_first_samples_stay_and_the_newest_come_and_go(first: float) -> None:
    memory, draws, seen = make(Anchored, 10, staging=3, first=first), seeded(0), []
    for batch in minibatches([3, 1, 3, 2, 3, 3, 3, 1, 3]):
        memory.add(pictures(batch), {}, draws)
        seen += batch
        held = int(10 * first)
        expected = seen[:held] + seen[held:][-(10 - held) :]
        assert sorted(identities(memory)) == expected


def test_a_second_part_smaller_than_a_minibatch_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"first \(0.9\) of memory_size 10 must leave room for 3 newer samples"):
        make(Anchored, 10, staging=3, first=0.9)


def test_a_first_part_without_a_sample_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"first \(0.01\) of memory_size 10 keeps no sample; choose a larger share"):
        make(Anchored, 10, staging=3, first=0.01)
