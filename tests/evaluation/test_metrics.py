"""Metrics along a stream, on matrices small enough to work out by hand."""

from __future__ import annotations

import pytest
import torch

from ocssl.errors import InputError
from ocssl.evaluation import Accuracy, StreamMetrics

EXPERIENCES = [[0, 2], [1], [3]]


def probe(*correct: int) -> Accuracy:
    return Accuracy(correct=correct, total=(10, 20, 30, 40))


PROBES = [probe(8, 2, 24, 4), probe(6, 18, 18, 8), probe(5, 10, 15, 36)]


def test_curve_final_and_avg_are_over_all_classes():
    metrics = StreamMetrics.of(PROBES, EXPERIENCES)
    assert metrics.curve == (38, 50, 66)
    assert metrics.final == 66
    assert metrics.avg == pytest.approx((38 + 50 + 66) / 3)


def test_matrix_pools_the_samples_of_an_experience():
    metrics = StreamMetrics.of(PROBES, EXPERIENCES)
    assert metrics.matrix == ((80, 10, 10), (60, 90, 20), (50, 50, 90))


def test_forgetting_is_the_mean_fall_from_the_best_since_the_experience():
    assert StreamMetrics.of(PROBES, EXPERIENCES).forgetting == pytest.approx(((80 - 50) + (90 - 50)) / 2)


def test_what_a_probe_read_before_the_experience_is_not_forgotten():
    read_early = [probe(8, 20, 24, 4), probe(6, 10, 18, 8), probe(5, 10, 15, 36)]
    assert StreamMetrics.of(read_early, EXPERIENCES).forgetting == pytest.approx(((80 - 50) + 0) / 2)


def test_learning_later_helps_earlier_is_negative_forgetting():
    metrics = StreamMetrics.of([Accuracy((5, 0), (10, 10)), Accuracy((9, 9), (10, 10))], [[0], [1]])
    assert metrics.forgetting == -40


def test_a_stream_of_one_experience_forgets_nothing():
    assert StreamMetrics.of([probe(1, 1, 1, 1)], [[0, 1, 2, 3]]).forgetting == 0


def test_a_probe_after_the_last_experience_alone_gives_final_and_nothing_along_the_stream():
    metrics = StreamMetrics.of(PROBES[-1:], EXPERIENCES)
    assert (metrics.final, metrics.curve, metrics.matrix) == (66, (66,), ((50, 50, 90),))
    assert (metrics.avg, metrics.forgetting) == (None, None)


def test_every_experience_needs_its_probe():
    with pytest.raises(InputError, match="not 2 for 3"):
        StreamMetrics.of(PROBES[:2], EXPERIENCES)
    with pytest.raises(InputError, match="not 0 for 3"):
        StreamMetrics.of([], EXPERIENCES)


def test_accuracy_counts_class_by_class():
    labels = torch.tensor([0, 0, 2, 2, 2, 2])
    accuracy = Accuracy.of(torch.tensor([0, 1, 2, 2, 2, 0]), labels, classes=4)
    assert accuracy.correct == (1, 0, 3, 0)
    assert accuracy.total == (2, 0, 4, 0)
    assert accuracy.per_class == (50, None, 75, None)
    assert accuracy.percent == pytest.approx(100 * 4 / 6)
    assert accuracy.over([0, 1]) == 50


def test_a_class_that_is_named_twice_counts_once_and_one_without_samples_counts_for_nothing():
    accuracy = Accuracy(correct=(1, 4), total=(2, 4))
    assert accuracy.over([0, 0, 1]) == accuracy.over([0, 1, 7]) == accuracy.percent
    for absent in (-1, 7):
        with pytest.raises(InputError, match="no sample of the classes"):
            accuracy.over([absent])


def test_an_experience_without_test_samples_is_named():
    with pytest.raises(InputError, match=r"no sample of the classes \[1\]"):
        StreamMetrics.of([Accuracy((1, 0), (2, 0)), Accuracy((1, 0), (2, 0))], [[0], [1]])
