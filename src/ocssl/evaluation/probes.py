"""Linear probes: the accuracy of a linear classifier on frozen features.

The protocol is the paper's. Features are L2-normalised; softmax regression is trained by Adam at learning rate 0.05 on
minibatches of 256. After 5 epochs without a better validation accuracy the learning rate is divided by 3 and the
weights go back to the best so far, until it falls below 1e-4 or 100 epochs have passed. The test accuracy is that of
the weights that were best on the validation samples, over all test samples.

The protocol leaves three points open. Here weights start at zero: softmax regression is convex and needs no random
draw. The last, incomplete minibatch of an epoch is used. Adam keeps its moments and its step count when the weights go
back, as ``torch.optim.Adam`` does when a model's weights are restored.

The probes of many encoders see the same samples in the same order, so :func:`linear_probes` trains them as one batched
problem: a dozen kernels make one step of all of them, and a GPU trains twenty probes in little more time than one. On a
GPU an epoch is captured once and replayed, since launching such small kernels one by one takes longer than they do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ocssl.errors import InputError
from ocssl.evaluation._inputs import (
    FeatureMatrix,
    LabelVector,
    as_features,
    as_labels,
    count_classes,
    normalised,
)
from ocssl.evaluation.metrics import Accuracy
from ocssl.options import Options, setting

Stack = Sequence[FeatureMatrix] | Tensor
"""The features of K encoders for the same samples: K matrices (N, D), or one tensor (K, N, D)."""

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8
_ROWS_AT_ONCE = 16_384  # when scoring: bounds what that takes to a few hundred megabytes


class ProbeSchedule(Options):
    """How a probe is trained; the defaults are the paper's protocol.

    >>> ProbeSchedule(max_epochs=10).lr
    0.05
    """

    lr: float = setting(0.05, "First learning rate of the probe.", gt=0)
    batch: int = setting(256, "Minibatch of the probe.", ge=1)
    patience: int = setting(5, "Epochs without a better validation accuracy before the learning rate falls.", ge=1)
    factor: float = setting(3.0, "Number that the learning rate is divided by.", gt=1)
    min_lr: float = setting(1e-4, "Learning rate below which training ends.", gt=0)
    max_epochs: int = setting(100, "Most epochs of the probe.", ge=1)


@dataclass(frozen=True)
class ProbeResult:
    """A trained probe and what it scored.

    Args:
        test: right answers on the test samples, by class.
        epochs: how many were trained, the patience of the last learning rate included.
        weight: ``(D, C)``, acts on L2-normalised features.
        bias: ``(C,)``.
    """

    test: Accuracy
    epochs: int
    weight: Tensor
    bias: Tensor

    @property
    def accuracy(self) -> float:
        """Test accuracy in percent, over all samples and classes."""
        return self.test.percent

    def predict(self, features: FeatureMatrix) -> Tensor:
        """Class indices ``(N,)`` for features ``(N, D)``."""
        given = as_features(features, "features")
        rows = normalised(given).to(self.weight.device, given.dtype)  # rounded as those of training were
        if rows.shape[1] != len(self.weight):
            raise InputError(f"features must have the probe's dimension {len(self.weight)}, not {rows.shape[1]}")
        return _predict(rows, self.weight, self.bias)


@dataclass(frozen=True)
class _Split:
    """One part of the data for all probes: normalised features (K, N, D) and their labels (N,)."""

    rows: Tensor
    labels: Tensor

    @classmethod
    def of(cls, features: Stack, labels: LabelVector, name: str, device: torch.device | None) -> _Split:
        checked = [as_features(one, f"{name} features") for one in features]
        if not checked:
            raise InputError(f"{name} features must hold at least one encoder's features")
        if len({(one.shape, one.dtype) for one in checked}) > 1:
            shapes = sorted({f"{tuple(one.shape)} {one.dtype}" for one in checked})
            raise InputError(f"{name} features of all encoders must be alike, not {', '.join(shapes)}")
        target = device or checked[0].device
        # Normalised one encoder at a time into the stack: never two copies of everything.
        rows = torch.empty((len(checked), *checked[0].shape), dtype=checked[0].dtype, device=target)
        for slot, one in zip(rows, checked, strict=True):
            slot.copy_(normalised(one.to(target)))
        return cls(rows, as_labels(labels, rows.shape[1], f"{name} labels").to(target))

    def predictions(self, weight: Tensor, bias: Tensor) -> Tensor:
        """(K, N) predicted classes."""
        return torch.cat([_predict(part, weight, bias) for part in self.rows.split(_ROWS_AT_ONCE, dim=1)], dim=1)


class _StackedSoftmaxRegression:
    """K softmax regressions in one tensor, and Adam with a learning rate for each of them.

    ``parameters`` is (K, D + 1, C); its last row is the bias, so that one update serves both.
    """

    def __init__(self, probes: int, dim: int, classes: int, steps: int, device: torch.device) -> None:
        shape = (probes, dim + 1, classes)
        self.parameters = torch.zeros(shape, device=device)
        self._gradient = torch.zeros(shape, device=device)
        self._mean = torch.zeros(shape, device=device)
        self._square = torch.zeros(shape, device=device)
        # What Adam's moments lack at each step, since they start at zero.
        done = range(1, steps + 1)
        self._mean_lack = torch.tensor([1 - _BETA1**step for step in done], device=device)
        self._root_lack = torch.tensor([math.sqrt(1 - _BETA2**step) for step in done], device=device)
        self._step = torch.zeros(1, dtype=torch.long, device=device)

    @property
    def weight(self) -> Tensor:
        return self.parameters[:, :-1]

    @property
    def bias(self) -> Tensor:
        return self.parameters[:, -1:]

    def step(self, rows: Tensor, one_hot: Tensor, lr: Tensor) -> None:
        """One Adam step on rows (K, B, D) with targets (B, C) at learning rates (K, 1, 1)."""
        # The gradient of cross-entropy in closed form: autograd would launch twice the kernels.
        scores = torch.baddbmm(self.bias, rows, self.weight)
        error = torch.softmax(scores, dim=-1).sub_(one_hot).div_(len(one_hot))
        torch.bmm(rows.transpose(1, 2), error, out=self._gradient[:, :-1])
        torch.sum(error, dim=1, keepdim=True, out=self._gradient[:, -1:])

        self._mean.lerp_(self._gradient, 1 - _BETA1)
        self._square.mul_(_BETA2).addcmul_(self._gradient, self._gradient, value=1 - _BETA2)
        root = self._square.sqrt().div_(self._root_lack.index_select(0, self._step)).add_(_EPSILON)
        rate = lr / self._mean_lack.index_select(0, self._step)
        self.parameters.sub_(torch.div(self._mean, root, out=root).mul_(rate))
        self._step += 1


class _Patience:
    """Which epoch was best, and the learning rate that follows from it, for each of K probes at once."""

    def __init__(self, schedule: ProbeSchedule, parameters: Tensor) -> None:
        probes, device = len(parameters), parameters.device
        self._schedule = schedule
        self.lr = torch.full((probes, 1, 1), schedule.lr, device=device)
        self.best = parameters.clone()
        self.best_correct = torch.full((probes,), -1, dtype=torch.long, device=device)
        self.epochs = torch.zeros(probes, dtype=torch.long, device=device)
        self.finished = torch.zeros(probes, dtype=torch.bool, device=device)
        self._waited = torch.zeros(probes, dtype=torch.long, device=device)

    def after_epoch(self, parameters: Tensor, correct: Tensor) -> None:
        """Judge an epoch by its (K,) right validation answers; ``parameters`` go back to the best where due."""
        self.epochs += ~self.finished
        better = (correct > self.best_correct) & ~self.finished
        self.best_correct.copy_(torch.where(better, correct, self.best_correct))
        self.best.copy_(torch.where(better[:, None, None], parameters, self.best))

        waited = torch.where(better, 0, self._waited + 1)
        out_of_patience = waited >= self._schedule.patience
        self._waited.copy_(torch.where(out_of_patience, 0, waited))
        self.lr.copy_(torch.where(out_of_patience[:, None, None], self.lr / self._schedule.factor, self.lr))
        self.finished |= self.lr.flatten() < self._schedule.min_lr
        self.lr *= ~self.finished[:, None, None]  # a finished probe waits for the others without moving
        parameters.copy_(torch.where(out_of_patience[:, None, None], self.best, parameters))


class _Replayed:
    """Work without arguments, always the same on the same addresses of a GPU: done once, then captured and replayed."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._done = False
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        if not self._done:
            self._work()
            self._done = True
            return
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                self._work()
        self._graph.replay()


def linear_probes(
    train_features: Stack,
    train_labels: LabelVector,
    val_features: Stack,
    val_labels: LabelVector,
    test_features: Stack,
    test_labels: LabelVector,
    *,
    seed: int,
    classes: int | None = None,
    schedule: ProbeSchedule | None = None,
    device: torch.device | str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[ProbeResult]:
    """Train one linear probe for each of K encoders, all together, as if one after another.

    Args:
        train_features: K matrices ``(N, D)``, or one tensor ``(K, N, D)``; any floating dtype, which is also the one
            they are stored in, while the arithmetic is float32. ``val_features`` and ``test_features`` alike.
        train_labels: ``(N,)`` class indices, the same samples for every encoder.
        seed: decides the order of the minibatches, which all probes share.
        classes: number of classes; by default the largest label plus one.
        schedule: the training protocol; by default the paper's.
        device: where to train; by default where the features are.
        progress: called after each epoch with the epochs done and the most there can be.

    Returns:
        one :class:`ProbeResult` per encoder, in the order given.

    >>> corners, labels = torch.eye(2).repeat(8, 1), torch.tensor([0, 1]).repeat(8)
    >>> both = [corners, -corners]
    >>> results = linear_probes(both, labels, both, labels, both, labels, seed=0)
    >>> [result.accuracy for result in results]
    [100.0, 100.0]
    """
    schedule = schedule or ProbeSchedule()
    target = torch.device(device) if device is not None else None
    train = _Split.of(train_features, train_labels, "train", target)
    val = _Split.of(val_features, val_labels, "validation", target)
    test = _Split.of(test_features, test_labels, "test", target)
    _check_alike(train, val, test)
    classes = count_classes(classes, train.labels, val.labels, test.labels)

    probes, samples, dim = train.rows.shape
    steps = schedule.max_epochs * math.ceil(samples / schedule.batch)
    model = _StackedSoftmaxRegression(probes, dim, classes, steps, train.rows.device)
    patience = _Patience(schedule, model.parameters)
    one_hot = torch.nn.functional.one_hot(train.labels, classes).float()
    order = torch.empty(samples, dtype=torch.long, device=train.rows.device)

    def train_epoch() -> None:
        for index in order.split(schedule.batch):
            model.step(train.rows.index_select(1, index).float(), one_hot[index], patience.lr)
        correct = (val.predictions(model.weight, model.bias) == val.labels).sum(1)
        patience.after_epoch(model.parameters, correct)

    go = _Replayed(train_epoch) if train.rows.is_cuda else train_epoch
    drawn = torch.Generator().manual_seed(seed)
    for epoch in range(schedule.max_epochs):
        order.copy_(torch.randperm(samples, generator=drawn))  # on the host: every device trains on the same order
        go()
        if progress is not None:
            progress(epoch + 1, schedule.max_epochs)
        if bool(patience.finished.all()):
            break

    weight, bias = patience.best[:, :-1], patience.best[:, -1:]
    predictions = test.predictions(weight, bias)
    return [
        ProbeResult(
            test=Accuracy.of(predictions[k], test.labels, classes),
            epochs=int(patience.epochs[k]),
            weight=weight[k].clone(),
            bias=bias[k, 0].clone(),
        )
        for k in range(probes)
    ]


def linear_probe(
    train_features: FeatureMatrix,
    train_labels: LabelVector,
    val_features: FeatureMatrix,
    val_labels: LabelVector,
    test_features: FeatureMatrix,
    test_labels: LabelVector,
    **settings: Any,
) -> ProbeResult:
    """Train a linear probe on one encoder's frozen features ``(N, D)``; arguments as in :func:`linear_probes`.

    >>> corners, labels = torch.eye(3).repeat(6, 1), torch.arange(3).repeat(6)
    >>> result = linear_probe(corners, labels, corners, labels, corners, labels, seed=0)
    >>> result.accuracy, result.predict(torch.tensor([[0.0, 5.0, 0.0]]))
    (100.0, tensor([1]))
    """
    features = [train_features], train_labels, [val_features], val_labels, [test_features], test_labels
    return linear_probes(*features, **settings)[0]


def _predict(features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The class with the highest linear score: features ``(..., N, D)``, weight ``(..., D, C)`` give ``(..., N)``."""
    return torch.matmul(features.float(), weight).add_(bias).argmax(-1)


def _check_alike(train: _Split, val: _Split, test: _Split) -> None:
    for name, split in (("validation", val), ("test", test)):
        if split.rows.shape[::2] != train.rows.shape[::2]:
            (probes, _, dim), (given, _, width) = train.rows.shape, split.rows.shape
            raise InputError(
                f"{name} features must come from the training features' {probes} encoder(s) of dimension {dim}, "
                f"not from {given} of dimension {width}"
            )
