"""Losses against those of lightly, on the same tensors, values and gradients.

lightly is not among the packages that make installs: it asks for torchvision. Its losses need none of that, so
``pip install --no-deps lightly lightly-utils`` is enough for this file; without it the tests are skipped.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from ocssl.losses import (
    barlow_twins,
    between_views,
    coding_rate,
    info_nce,
    mean_agreement,
    negative_cosine,
    nt_xent,
    sigreg,
    sinkhorn,
    soft_cross_entropy,
    vicreg,
)

if importlib.util.find_spec("lightly") is None:
    pytest.skip("needs lightly: pip install --no-deps lightly lightly-utils", allow_module_level=True)


@pytest.fixture
def lightly(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """A module of lightly by its name. What needs torchvision, and no loss, is replaced by empty modules."""

    def get(name: str) -> Any:
        return importlib.import_module(f"lightly.{name}")

    (root,) = importlib.import_module("lightly").__path__
    for package in ("loss", "models", "models.modules", "models.utils"):
        empty = ModuleType(f"lightly.{package}")
        empty.__path__ = [f"{root}/{package.replace('.', '/')}"]
        monkeypatch.setitem(sys.modules, empty.__name__, empty)
    sys.modules["lightly.models"].utils = sys.modules["lightly.models.utils"]  # type: ignore[attr-defined]
    return get


def views(count: int = 2, n: int = 12, d: int = 8, seed: int = 0) -> Tensor:
    """Projected features ``(count, n, d)``: views of a sample resemble each other."""
    draws = torch.Generator().manual_seed(seed)
    shared = torch.randn(n, d, generator=draws, dtype=torch.float64)
    return shared + 0.5 * torch.randn(count, n, d, generator=draws, dtype=torch.float64)


def assert_same(ours: Callable[[Tensor], Tensor], theirs: Callable[[Tensor], Tensor], at: Tensor) -> None:
    """Values and gradients of two losses of the same views."""
    found = []
    for loss in (ours, theirs):
        z = at.clone().requires_grad_()
        value = loss(z)
        value.backward()
        found.append((value.detach(), z.grad))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-5, atol=1e-9)


def test_simsiam_and_byol(lightly) -> None:
    theirs = lightly("loss.negative_cosine_similarity").NegativeCosineSimilarity()
    target = views(seed=1)[0]
    assert_same(lambda z: negative_cosine(z[0], target), lambda z: theirs(z[0], target), views())


@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_simclr(lightly, temperature: float) -> None:
    theirs = lightly("loss.ntx_ent_loss").NTXentLoss(temperature=temperature)
    assert_same(lambda z: nt_xent(z[0], z[1], temperature=temperature), lambda z: theirs(z[0], z[1]), views())


def test_moco(lightly) -> None:
    queue = functional.normalize(views(1, n=20, seed=2)[0], dim=1)
    key = views(seed=1)[0]
    theirs = lightly("loss.ntx_ent_loss").NTXentLoss(temperature=0.2, memory_bank_size=(20, 8))

    def with_queue(z: Tensor) -> Tensor:
        theirs.memory_bank.bank = queue.clone()
        theirs.memory_bank.bank_ptr = torch.zeros(1, dtype=torch.int64)
        return theirs(z[0], key)

    assert_same(lambda z: info_nce(z[0], key, queue, temperature=0.2), with_queue, views())


def test_barlow_twins(lightly) -> None:
    theirs = lightly("loss.barlow_twins_loss").BarlowTwinsLoss(lambda_param=0.0051)
    assert_same(lambda z: barlow_twins(z, 0.0051), lambda z: theirs(z[0], z[1]), views())


def test_vicreg(lightly) -> None:
    theirs = lightly("loss.vicreg_loss").VICRegLoss()
    assert_same(vicreg, lambda z: theirs(z[0], z[1]), views())


def test_swav(lightly) -> None:
    theirs = lightly("loss.swav_loss").SwaVLoss(temperature=0.1, sinkhorn_iterations=3, sinkhorn_epsilon=0.05)
    scores = functional.normalize(views(), dim=-1)  # cosines of eight prototypes
    assert_same(
        lambda z: between_views(soft_cross_entropy, z / 0.1, sinkhorn(z, 0.05)),
        lambda z: theirs([z[0], z[1]], [])[0],
        scores,
    )


def test_dino(lightly) -> None:
    theirs = lightly("loss.dino_loss").DINOLoss(output_dim=8, warmup_teacher_temp_epochs=0, teacher_temp=0.04)
    theirs.double()
    teacher = functional.normalize(views(seed=1), dim=-1)
    centre = teacher.mean((0, 1))
    theirs.center.data = centre.view_as(theirs.center)
    target = ((teacher - centre) / 0.04).softmax(-1)

    def with_centre(z: Tensor) -> Tensor:
        return theirs([teacher[0], teacher[1]], [z[0], z[1]], epoch=0)

    scores = functional.normalize(views(), dim=-1)
    assert_same(lambda z: between_views(soft_cross_entropy, z / 0.1, target), with_centre, scores)


@pytest.mark.parametrize("count", [2, 5])
def test_emp_ssl(lightly, count: int) -> None:
    """Both terms. lightly 1.6 adds the coding rate to the loss, which makes it small; in the paper it is large."""
    theirs = lightly("loss.emp_ssl_loss")
    unit = functional.normalize
    assert_same(lambda z: -mean_agreement(z), lambda z: theirs.invariance_loss(unit(z, dim=-1)), views(count))
    assert_same(lambda z: coding_rate(z, 0.2), lambda z: theirs.tcr_loss(unit(z, dim=-1), 0.2), views(count))


def test_lejepa(lightly) -> None:
    module = lightly("loss.lejepa_loss")
    theirs = module.SIGReg(num_vectors=16, knots=9, t_max=5.0)  # of a symmetric rule with 17 knots, half
    directions = torch.randn(8, 16, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    theirs._generate_unit_vectors = lambda *_, **__: functional.normalize(directions, dim=0)
    assert_same(lambda z: sigreg(z[0], directions), lambda z: theirs(z[0]), views())
    assert_same(
        lambda z: (z - z.mean(0)).square().mean(),
        lambda z: module.lejepa_invariance_loss(all_proj=z, global_proj=z),
        views(4),
    )
