"""Weighted k-nearest-neighbour classification on frozen features: a probe with nothing to train."""

from __future__ import annotations

import torch
from torch import Tensor

from ocssl.errors import ConfigError, InputError
from ocssl.evaluation._inputs import FeatureMatrix, LabelVector, as_features, as_labels, count_classes, normalised
from ocssl.evaluation.metrics import Accuracy

_SIMILARITIES_AT_ONCE = 2**25  # 128 MiB of float32


def knn_probe(
    train_features: FeatureMatrix,
    train_labels: LabelVector,
    test_features: FeatureMatrix,
    test_labels: LabelVector,
    *,
    k: int = 200,
    temperature: float = 0.07,
    classes: int | None = None,
) -> Accuracy:
    """Accuracy of a vote of the ``k`` training samples nearest in cosine, weighing ``exp(cosine / temperature)`` each.

    Args:
        train_features: ``(N, D)``, where the work is done: the test features are brought to their device.
        train_labels: ``(N,)`` class indices.
        test_features: ``(M, D)``.
        test_labels: ``(M,)``.
        k: number of neighbours; all N when there are fewer.
        temperature: how sharply nearer neighbours outweigh farther ones.
        classes: number of classes; by default the largest label plus one.

    >>> corners, labels = torch.eye(3).repeat(4, 1), torch.arange(3).repeat(4)
    >>> knn_probe(corners, labels, torch.eye(3), torch.tensor([0, 1, 1])).per_class
    (100.0, 50.0, None)
    """
    if k < 1 or not temperature > 0:
        raise ConfigError(f"k-NN needs k of at least 1 and a positive temperature, not {k} and {temperature}")
    train = normalised(as_features(train_features, "train features"))
    test = normalised(as_features(test_features, "test features")).to(train.device)
    if train.shape[1] != test.shape[1]:
        raise InputError(f"test features must have the train features' dimension {train.shape[1]}, not {test.shape[1]}")
    neighbours = as_labels(train_labels, len(train), "train labels").to(train.device)
    truth = as_labels(test_labels, len(test), "test labels").to(train.device)
    classes = count_classes(classes, neighbours, truth)
    k = min(k, len(train))
    runs = test.split(max(1, _SIMILARITIES_AT_ONCE // len(train)))
    predictions = [_vote(run, train, neighbours, k, temperature, classes) for run in runs]
    return Accuracy.of(torch.cat(predictions), truth, classes)


def _vote(queries: Tensor, train: Tensor, labels: Tensor, k: int, temperature: float, classes: int) -> Tensor:
    cosine, nearest = (queries @ train.T).topk(k, dim=1)
    # A common factor changes no vote; without it, exp(1 / temperature) overflows at low temperatures.
    weights = ((cosine - cosine[:, :1]) / temperature).exp()
    votes = torch.zeros(len(queries), classes, device=queries.device)
    return votes.scatter_add_(1, labels[nearest], weights).argmax(1)
