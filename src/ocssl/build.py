"""From a learner's settings to the machine that trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from ocssl import distributed, memory, methods, settings, strategies
from ocssl.augment import Augmentation
from ocssl.device import check_fits, oom_guard, pick_device
from ocssl.errors import ConfigError
from ocssl.memory import Column, Memory
from ocssl.methods import Dims
from ocssl.nn import Encoder, build_backbone, channels_last, synchronise
from ocssl.optimizer import SGD
from ocssl.step import TrainState
from ocssl.strategies import Setup, Strategy

if TYPE_CHECKING:
    from ocssl.learner import Learner

LARGEST_SEED = 2**63 - 1  # that every generator takes


def check(asked: Learner) -> None:
    """Refuse settings that no learner can have; numbers of other libraries become Python's own."""
    for name in ("image_size", "stream_batch", "passes", "memory_size", "hidden_dim", "output_dim"):
        setattr(asked, name, settings.require(name, getattr(asked, name), low=1, whole=True))
    for name in ("lr", "momentum", "weight_decay"):
        setattr(asked, name, settings.require(name, getattr(asked, name), low=0))
    for name in ("mean", "std"):
        setattr(asked, name, settings.per_channel(name, getattr(asked, name)))
    for name in ("options", "method_options", "memory_options"):
        setattr(asked, name, settings.named(name, getattr(asked, name)))
    asked.tau = settings.require("tau", asked.tau, low=0, high=1)
    asked.seed = settings.require("seed", asked.seed, low=0, high=LARGEST_SEED, whole=True)
    asked.sync_norm = settings.yes_or_no("sync_norm", asked.sync_norm)
    if asked.batch is not None:
        asked.batch = settings.require("batch", asked.batch, low=1, whole=True)
    if asked.omega is not None:
        asked.omega = settings.require("omega", asked.omega, low=0)
    if asked.joint_views is not None:
        asked.joint_views = settings.yes_or_no("joint_views", asked.joint_views)
    if asked.stream_batch == 1 and not settings.views_together(asked.joint_views, asked.variant):
        raise ConfigError("stream_batch must be at least 2 when each view passes alone: batch norm needs company")
    together = distributed.current().size
    if asked.stream_batch < together:
        raise ConfigError(f"stream_batch ({asked.stream_batch}) must be at least the number of processes ({together})")
    widest = max(("hidden_dim", "output_dim"), key=lambda name: getattr(asked, name))
    heads = 4 * asked.hidden_dim * (asked.hidden_dim + asked.output_dim)  # bytes, of the projector alone
    check_fits(torch.device("cpu"), heads, f"{widest} {getattr(asked, widest):,}")  # where networks are made
    settings.choice("variant", asked.variant, settings.VARIANTS)


def assemble(asked: Learner) -> TrainState:
    """Networks, memory, augmentation, optimiser and generator as a learner's settings ask for them."""
    device = pick_device(asked.device)
    with oom_guard(device, "a learner", "choose a smaller memory_size or backbone, or free the device"):
        return _machine(asked, device)


def _machine(asked: Learner, device: torch.device) -> TrainState:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_for(asked.seed, 0))
        encoder, strategy = _networks(asked)
    dtype = settings.network_dtype(asked.precision)
    encoder.to(device, dtype)
    strategy.to(device, dtype)
    if device.type == "cuda":
        channels_last(encoder)
        channels_last(strategy)
    parameters = [p for module in (encoder, strategy) for p in module.parameters() if p.requires_grad]
    order = asked.augmentation or ("authors" if asked.variant == "authors" else "clean")
    return TrainState(
        encoder=encoder,
        strategy=strategy,
        memory=_memory(asked, strategy, encoder.output_dim, device),
        augment=Augmentation(asked.image_size, order=order, mean=asked.mean, std=asked.std, dtype=dtype, device=device),
        optimizer=SGD(
            parameters,
            lr=asked.lr,
            momentum=asked.momentum,
            weight_decay=asked.weight_decay,
            fused=device.type == "cuda",
        ),
        generator=torch.Generator(device).manual_seed(seed_for(asked.seed, 1)),
        autocast=settings.autocast_dtype(asked.precision, device),
        joint_views=settings.views_together(asked.joint_views, asked.variant),
        group=distributed.current(),
        steps=torch.zeros((), dtype=torch.int64, device=device),
        nonfinite=torch.zeros((), dtype=torch.int64, device=device),
    )


def _networks(asked: Learner) -> tuple[Encoder, Strategy]:
    kind = strategies.get(asked.strategy)
    method_name = settings.method_name(asked.strategy, asked.method)
    backbone, feature_dim = build_backbone(asked.backbone, asked.image_size, asked.stem)
    dims = Dims(feature_dim, asked.hidden_dim, asked.output_dim)
    method = None
    if method_name is None:
        settings.no_options("method_options", asked.strategy, asked.method_options)
    else:
        method = methods.get(method_name)(dims, **settings.method_options(method_name, asked.method_options))
    encoder = Encoder(backbone, kind.projector(dims) if method is None else method.projector(), feature_dim)
    if asked.sync_norm and not encoder.group.single:
        synchronise(encoder, encoder.group)
    setup = Setup(
        encoder=encoder,
        method=method,
        dims=dims,
        output_dim=encoder.output_dim,
        image_size=asked.image_size,
        stream_batch=asked.stream_batch,
        batch=settings.batch_size(asked.strategy, asked.stream_batch, asked.batch),
        omega=asked.omega,
        tau=asked.tau,
    )
    return encoder, kind(setup, **settings.strategy_options(asked.strategy, asked.variant, asked.options))


def _memory(asked: Learner, strategy: Strategy, output_dim: int, device: torch.device) -> Memory | None:
    name = settings.memory_name(asked.strategy, asked.memory, asked.variant)
    if name is None:
        settings.no_options("memory_options", asked.strategy, asked.memory_options)
        return None
    settings.replay_possible(asked.strategy, asked.memory_size, strategy.replay_after)
    kind = memory.get(name)
    columns = strategy.columns()
    if kind.needs_features:
        columns.setdefault("features", Column((output_dim,)))
    if (dtype := settings.network_dtype(asked.precision)) != torch.float32:
        columns = {name: Column(column.shape, dtype) for name, column in columns.items()}
    return kind(
        asked.memory_size,
        (3, asked.image_size, asked.image_size),
        staging=asked.stream_batch,
        columns=columns,
        device=device,
        **settings.memory_options(asked.strategy, name, asked.variant, asked.memory_options),
    )


def seed_for(seed: int, use: int) -> int:
    """Separate 63-bit seeds for separate uses of one user-given seed."""
    return int(np.random.SeedSequence([seed, use]).generate_state(1, np.uint64)[0] >> 1)
