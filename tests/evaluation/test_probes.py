"""The linear probe: the paper's protocol to the letter, one encoder at a time or many together."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn import functional

from ocssl.errors import ConfigError, InputError
from ocssl.evaluation import ProbeSchedule, linear_probe, linear_probes
from ocssl.options import validate

CIFAR100 = Path(__file__).parents[3] / "shared" / "data" / "cifar100"


def blobs(count: int, *, seed: int, classes: int = 7, dim: int = 20, noise: float = 1.4):
    """Overlapping Gaussian clouds: hard enough that validation accuracy goes up and down."""
    centres = torch.randn(classes, dim, generator=torch.Generator().manual_seed(99))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (count,), generator=generator)
    return centres[labels] + noise * torch.randn(count, dim, generator=generator), labels


def splits(noise: float = 1.4):
    return *blobs(700, seed=1, noise=noise), *blobs(300, seed=2, noise=noise), *blobs(400, seed=3, noise=noise)


def stacked(*noises: float):
    """Several encoders' features of one and the same samples."""
    per_encoder = [splits(noise) for noise in noises]
    train, val, test = ([data[part] for data in per_encoder] for part in (0, 2, 4))
    return train, per_encoder[0][1], val, per_encoder[0][3], test, per_encoder[0][5]


def probe_as_written(train, y, val, val_y, test, test_y, *, seed):
    """The protocol in plain PyTorch, epoch by epoch: returns test accuracy, epochs and the learning rates used."""
    train, val, test = (functional.normalize(part) for part in (train, val, test))
    model = nn.Linear(train.shape[1], int(y.max()) + 1)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    order = torch.Generator().manual_seed(seed)
    best, best_weights, waited, lr, rates = -1.0, None, 0, 0.05, []
    for _ in range(100):
        rates.append(lr)
        for index in torch.randperm(len(train), generator=order).split(256):
            optimiser.zero_grad()
            functional.cross_entropy(model(train[index]), y[index]).backward()
            optimiser.step()
        accuracy = (model(val).argmax(1) == val_y).double().mean().item()
        if accuracy > best:
            best, best_weights, waited = accuracy, {k: v.clone() for k, v in model.state_dict().items()}, 0
            continue
        waited += 1
        if waited == 5:
            lr, waited = lr / 3, 0
            if lr < 1e-4:
                break
            model.load_state_dict(best_weights)
            optimiser.param_groups[0]["lr"] = lr
    model.load_state_dict(best_weights)
    return 100 * (model(test).argmax(1) == test_y).double().mean().item(), len(rates), rates, model


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_probe_follows_the_protocol_as_written_in_plain_pytorch(seed):
    data = splits()
    result = linear_probe(*data, seed=seed)
    accuracy, epochs, rates, model = probe_as_written(*data, seed=seed)
    assert len(set(rates)) == 6  # the reference did go through every learning rate
    assert result.epochs == epochs
    assert result.accuracy == pytest.approx(accuracy, abs=0.26)  # one sample of 400
    torch.testing.assert_close(result.weight, model.weight.detach().T, rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(result.bias, model.bias.detach(), rtol=2e-3, atol=2e-3)


def test_probes_trained_together_equal_probes_trained_one_after_another():
    noises = (0.8, 1.4, 2.0, 3.0)
    together = linear_probes(*stacked(*noises), seed=5)
    alone = [linear_probes(*stacked(noise), seed=5)[0] for noise in noises]
    assert len({result.epochs for result in alone}) > 1  # they finish at different times, and still agree
    for batched, single in zip(together, alone, strict=True):
        assert batched.epochs == single.epochs
        assert batched.accuracy == pytest.approx(single.accuracy, abs=0.2)
        torch.testing.assert_close(batched.weight, single.weight, rtol=1e-4, atol=1e-4)


def test_a_stack_and_a_list_are_the_same_to_the_batched_probe():
    train, y, val, val_y, test, test_y = stacked(1.0, 2.0)
    from_list = linear_probes(train, y, val, val_y, test, test_y, seed=0)
    tensors = torch.stack(train), y, torch.stack(val), val_y, torch.stack(test), test_y
    for one, other in zip(from_list, linear_probes(*tensors, seed=0), strict=True):
        assert torch.equal(one.weight, other.weight)


def test_the_same_seed_gives_the_same_bits_and_another_seed_another_order():
    data = splits()
    first, again, other = (linear_probe(*data, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first.weight, again.weight)
    assert not torch.equal(first.weight, other.weight)


def test_feature_length_does_not_matter_because_rows_are_normalised():
    train, y, val, val_y, test, test_y = splits()
    lengths = torch.rand(len(train), 1, generator=torch.Generator().manual_seed(0)) + 0.5
    plain = linear_probe(train, y, val, val_y, test, test_y, seed=0)
    scaled = linear_probe(train * lengths, y, val * 7, val_y, test * 0.01, test_y, seed=0)
    assert scaled.accuracy == pytest.approx(plain.accuracy, abs=0.51)


@pytest.mark.parametrize("length", [2.0**-100, 2.0**100])
def test_features_of_extreme_lengths_are_probed_as_any_others(length):
    train, y, val, val_y, test, test_y = splits()
    plain = linear_probe(train, y, val, val_y, test, test_y, seed=0)
    extreme = linear_probe(train * length, y, val * length, val_y, test * length, test_y, seed=0)
    assert torch.equal(extreme.weight, plain.weight)
    assert torch.equal(plain.predict(test * length), plain.predict(test))


def test_half_precision_features_are_stored_as_given_and_lose_next_to_nothing():
    train, y, val, val_y, test, test_y = splits()
    full = linear_probe(train, y, val, val_y, test, test_y, seed=0)
    half = linear_probe(train.bfloat16(), y, val.bfloat16(), val_y, test.bfloat16(), test_y, seed=0)
    assert half.weight.dtype == torch.float32
    assert half.accuracy == pytest.approx(full.accuracy, abs=1.5)


def test_arrays_even_reversed_ones_and_labels_of_any_whole_number_type_are_as_tensors():
    tensors = [part.flip(0) for part in splits()]
    arrays = [part.numpy()[::-1] for part in splits()]
    unsigned = [part.astype(np.uint16) if part.ndim == 1 else part for part in arrays]
    assert torch.equal(linear_probe(*unsigned, seed=0).weight, linear_probe(*tensors, seed=0).weight)


def test_fewer_classes_than_labels_are_refused():
    with pytest.raises(ConfigError, match="classes must be at least 7, one more than the largest label, not 6"):
        linear_probe(*splits(), seed=0, classes=6)


def test_predictions_of_the_result_reproduce_its_accuracy_class_by_class():
    *others, test, test_y = splits()
    result = linear_probe(*others, test, test_y, seed=0)
    right = result.predict(test) == test_y
    assert 100 * right.double().mean().item() == pytest.approx(result.accuracy)
    for label, accuracy in enumerate(result.test.per_class):
        assert 100 * right[test_y == label].double().mean().item() == pytest.approx(accuracy)


def test_features_of_another_dimension_are_not_predicted():
    result = linear_probe(*splits(), seed=0)
    with pytest.raises(InputError, match="features must have the probe's dimension 20, not 5"):
        result.predict(torch.ones(3, 5))


def test_labels_without_structure_are_probed_at_chance():
    generator = torch.Generator().manual_seed(0)

    def noise(count):
        return torch.randn(count, 5, generator=generator), torch.randint(4, (count,), generator=generator)

    assert linear_probe(*noise(600), *noise(300), *noise(2000), seed=0).accuracy == pytest.approx(25, abs=4)


def test_progress_hears_of_every_epoch():
    heard: list[tuple[int, int]] = []
    schedule = ProbeSchedule(max_epochs=7)
    result = linear_probe(*splits(), seed=0, schedule=schedule, progress=lambda done, most: heard.append((done, most)))
    assert result.epochs == 7
    assert heard == [(epoch, 7) for epoch in range(1, 8)]


def test_classes_that_only_the_test_set_knows_are_counted_as_wrong():
    train, y, val, val_y, test, test_y = splits()
    result = linear_probe(train, y, val, val_y, test, torch.full_like(test_y, 9), seed=0)
    assert result.accuracy == 0
    assert len(result.test.total) == 10


def scikit_learn_accuracy(train, y, test, test_y) -> float:
    linear_model = pytest.importorskip("sklearn.linear_model")
    train, test = functional.normalize(train), functional.normalize(test)
    # The probe is not regularised but for stopping early; a large C comes close to that.
    return 100 * linear_model.LogisticRegression(C=100, max_iter=500).fit(train, y).score(test, test_y)


def test_probe_agrees_with_scikit_learn_within_one_point():
    train, y, test, test_y = *blobs(6000, seed=1), *blobs(4000, seed=3)
    ours = linear_probe(train, y, *blobs(1000, seed=2), test, test_y, seed=0)
    assert ours.accuracy == pytest.approx(scikit_learn_accuracy(train, y, test, test_y), abs=1)


@pytest.mark.slow
@pytest.mark.skipif(not CIFAR100.is_dir(), reason=f"real CIFAR-100 is not at {CIFAR100}")
def test_probe_of_real_images_agrees_with_scikit_learn_within_one_point():
    images, labels = cifar100_superclasses(count=20_000)
    rows = random_convolution_features(images)
    train, val, test = slice(0, 13_000), slice(13_000, 15_000), slice(15_000, None)
    ours = linear_probe(rows[train], labels[train], rows[val], labels[val], rows[test], labels[test], seed=0)
    expected = scikit_learn_accuracy(rows[train], labels[train], rows[test], labels[test])
    assert expected > 20  # four times chance: there is something to agree on
    assert ours.accuracy == pytest.approx(expected, abs=1)


def cifar100_superclasses(count: int):
    table = parquet.read_table(CIFAR100 / "train-00000-of-00002.parquet").slice(0, count)
    encoded = (row["bytes"] for row in table.column("img").to_pylist())
    images = torch.from_numpy(np.stack([np.asarray(Image.open(io.BytesIO(image))) for image in encoded]))
    return images.permute(0, 3, 1, 2).float() / 255, torch.tensor(table.column("coarse_label").to_pylist())


def random_convolution_features(images: torch.Tensor) -> torch.Tensor:
    """An untrained one-layer encoder (N, 128), standardised: raw, dimensions would nearly be copies of each other."""
    filters = torch.randn(32, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    filters -= filters.mean(dim=(1, 2, 3), keepdim=True)
    responses = functional.conv2d(images - images.mean(dim=(2, 3), keepdim=True), filters, stride=2).relu()
    rows = functional.adaptive_avg_pool2d(responses, 2).flatten(1)
    return (rows - rows.mean(0)) / rows.std(0)


@pytest.mark.parametrize(("spoil", "message"), [
    (lambda d: [d[0][:, 0], *d[1:]], "one feature vector per row, not of shape"),
    (lambda d: [d[0].long(), *d[1:]], "train features must be floating point"),
    (lambda d: [d[0].index_fill(0, torch.tensor([4]), float("nan")), *d[1:]], "train features hold NaN .* in row 4"),
    (lambda d: [d[0], d[1][:-1], *d[2:]], "train labels must be 700 indices"),
    (lambda d: [d[0], d[1].float(), *d[2:]], "train labels must be integer"),
    (lambda d: [d[0], d[1] - 1, *d[2:]], "train labels must not be negative"),
    (lambda d: [*d[:2], d[2][:, :5], *d[3:]], "validation features .* dimension 20, not from 1 of dimension 5"),
    (lambda d: [*d[:4], d[4][:0], d[5][:0]], "test features must be a matrix"),
])  # fmt: skip
def test_features_and_labels_that_cannot_be_are_refused_by_name(spoil, message):
    with pytest.raises(InputError, match=message):
        linear_probe(*spoil(list(splits())), seed=0)


def test_encoders_of_different_dimensions_cannot_share_a_batch():
    train, y, val, val_y, test, test_y = stacked(1.0, 2.0)
    with pytest.raises(InputError, match=r"train features of all encoders must be alike, not \(700, 20\).*\(700, 9\)"):
        linear_probes([train[0], train[1][:, :9]], y, val, val_y, test, test_y, seed=0)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"lr": 0}, "probe.lr must be a number above 0, not 0"),
        ({"batch": -1}, "probe.batch must be a whole number of at least 1, not -1"),
        ({"patience": 0}, "probe.patience must be a whole number of at least 1, not 0"),
        ({"factor": 1}, "probe.factor must be a number above 1, not 1"),
        ({"min_lr": "low"}, "probe.min_lr must be a number above 0, not 'low'"),
        ({"max_epochs": 1.5}, "probe.max_epochs must be a whole number of at least 1, not 1.5"),
        ({"epochs": 3}, "unknown setting 'probe.epochs'; did you mean 'probe.max_epochs'"),
    ],
)
def test_an_impossible_schedule_is_refused(setting, message):
    with pytest.raises(ConfigError, match=message):
        validate(ProbeSchedule, setting, "probe.")


def test_a_schedule_is_the_papers_unless_said_otherwise():
    assert ProbeSchedule().to_dict() == {
        "lr": 0.05, "batch": 256, "patience": 5, "factor": 3.0, "min_lr": 1e-4, "max_epochs": 100
    }  # fmt: skip


@pytest.mark.gpu
def test_a_gpu_trains_the_probes_a_cpu_trains():
    on_cpu = linear_probes(*stacked(0.8, 1.4, 3.0), seed=0)
    on_gpu = linear_probes(*stacked(0.8, 1.4, 3.0), seed=0, device="cuda")
    for cpu, gpu in zip(on_cpu, on_gpu, strict=True):
        assert gpu.weight.is_cuda
        assert gpu.accuracy == pytest.approx(cpu.accuracy, abs=1)
