"""Weighted k-NN against a version that looks at one query at a time."""

from __future__ import annotations

import math

import pytest
import torch

from ocssl.errors import ConfigError, InputError
from ocssl.evaluation import knn_probe


def clouds(count: int, seed: int, classes: int = 5, dim: int = 8):
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, dim, generator=torch.Generator().manual_seed(7))
    labels = torch.randint(classes, (count,), generator=generator)
    return centres[labels] + 1.5 * torch.randn(count, dim, generator=generator), labels


def slow_knn(train, labels, test, k, temperature):
    predictions = []
    for query in test.double():
        query = query / query.abs().max()
        cosines = [float(query @ row / query.norm() / row.norm()) for row in train.double()]
        nearest = sorted(range(len(train)), key=lambda i: -cosines[i])[:k]
        votes: dict[int, float] = {}
        for i in nearest:
            votes[int(labels[i])] = votes.get(int(labels[i]), 0) + math.exp(cosines[i] / temperature)
        predictions.append(max(votes, key=votes.__getitem__))
    return torch.tensor(predictions)


@pytest.mark.parametrize(("k", "temperature"), [(1, 0.07), (10, 0.07), (200, 0.5), (30, 0.005)])
def test_knn_votes_as_the_slow_version_does(k, temperature):
    (train, labels), (test, truth) = clouds(120, seed=0), clouds(40, seed=1)
    expected = (slow_knn(train, labels, test, k, temperature) == truth).double().mean().item()
    assert knn_probe(train, labels, test, truth, k=k, temperature=temperature).percent == pytest.approx(100 * expected)


@pytest.mark.parametrize("length", [1e-44, 1e-30, 1e20, 3e37, 1e300])
def test_the_length_of_features_does_not_matter_whatever_it_is(length):
    (train, labels), (test, truth) = clouds(120, seed=0), clouds(40, seed=1)
    lengths = torch.full((40, 1), length, dtype=torch.float64 if length > 1e38 else torch.float32)
    rows = test * lengths
    rows[::2] = test[::2].to(rows.dtype)  # long or short ones beside usual ones
    expected = (slow_knn(train, labels, rows, 10, 0.07) == truth).double().mean().item()
    assert knn_probe(train, labels, rows, truth, k=10).percent == pytest.approx(100 * expected)


def test_chunks_do_not_change_the_vote(monkeypatch):
    (train, labels), (test, truth) = clouds(300, seed=0), clouds(100, seed=1)
    whole = knn_probe(train, labels, test, truth)
    monkeypatch.setattr("ocssl.evaluation.knn._SIMILARITIES_AT_ONCE", 700)
    assert knn_probe(train, labels, test, truth) == whole


def test_a_training_sample_is_its_own_nearest_neighbour():
    train, labels = clouds(50, seed=3)
    assert knn_probe(train, labels, train, labels, k=1).percent == 100


def test_more_neighbours_than_samples_means_all_of_them():
    (train, labels), (test, truth) = clouds(30, seed=0), clouds(20, seed=1)
    assert knn_probe(train, labels, test, truth, k=10_000) == knn_probe(train, labels, test, truth, k=30)


@pytest.mark.parametrize("setting", [{"k": 0}, {"temperature": 0.0}])
def test_impossible_settings_are_refused(setting):
    train, labels = clouds(10, seed=0)
    with pytest.raises(ConfigError, match="k-NN needs"):
        knn_probe(train, labels, train, labels, **setting)


def test_features_of_another_dimension_are_refused():
    train, labels = clouds(10, seed=0)
    with pytest.raises(InputError, match="dimension 8, not 3"):
        knn_probe(train, labels, train[:, :3], labels)


def test_fewer_classes_than_labels_are_refused():
    train, labels = clouds(10, seed=0)
    with pytest.raises(ConfigError, match="classes must be at least"):
        knn_probe(train, labels, train, labels, classes=1)


def test_labels_that_are_no_classes_are_refused_before_they_take_memory():
    labels = torch.tensor([0, 1, 10**10])
    with pytest.raises(InputError, match="the largest label is 10000000000; number the classes from 0"):
        knn_probe(torch.eye(3), labels, torch.eye(3), labels)
