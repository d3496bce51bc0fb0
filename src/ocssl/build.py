"""From a configuration to everything that a training step reads and changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ocssl import distributed
from ocssl.augment import Augmentation
from ocssl.config import LearnerConfig, Parts
from ocssl.device import check_fits, oom_guard, pick_device
from ocssl.errors import ConfigError
from ocssl.memory import Column, Memory
from ocssl.methods import Dims, MultiCrop
from ocssl.nn import Average, Encoder, Renormalised, build_backbone, channels_last, synchronise
from ocssl.pretrained import backbone_options, read_network, read_weights
from ocssl.step import TrainState
from ocssl.strategies import Setup, Strategy, TeacherSource


class Networks(NamedTuple):
    """Weights of another learner to begin with: those of its encoder, and of its method where that is the same."""

    encoder: Mapping[str, Tensor]
    method: Mapping[str, Tensor] | None


def build(
    config: LearnerConfig,
    backbone: nn.Module | None = None,
    *,
    restored: bool = False,
    networks: Networks | None = None,
) -> TrainState:
    """Networks, memory, augmentation, optimiser and generator of a configuration.

    Args:
        backbone: the module, where the configuration names none.
        restored: a saved state will be loaded, so the source of its ``weights`` is not read again.
        networks: to begin with; they are loaded before anything copies the encoder.
    """
    device = pick_device(config.device)
    together = distributed.current().size
    if config.stream_batch < together:
        raise ConfigError(f"stream_batch ({config.stream_batch}) must be at least the number of processes ({together})")
    widest = max(("hidden_dim", "output_dim"), key=lambda name: int(getattr(config, name)))
    heads = 4 * config.hidden_dim * (config.hidden_dim + config.output_dim)  # bytes, of the projector alone
    check_fits(torch.device("cpu"), heads, f"{widest} {getattr(config, widest):,}")  # networks are made on the CPU
    with oom_guard(device, "a learner", "choose a smaller memory_size or backbone, or free the device"):
        return _train_state(config, config.parts(), backbone, device, restored, networks)


def _train_state(
    config: LearnerConfig,
    parts: Parts,
    backbone: nn.Module | None,
    device: torch.device,
    restored: bool,
    networks: Networks | None,
) -> TrainState:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_for(config.seed, 0))
        encoder, strategy = _networks(config, parts, backbone, restored, networks)
    dtype = torch.float64 if config.precision == "fp64" else torch.float32
    for network in (encoder, strategy):
        network.to(device, dtype)
        if device.type == "cuda":
            channels_last(network)
    trained = [p for module in (encoder, strategy) for p in module.parameters() if p.requires_grad]
    optimizer = parts.optimizer(trained, config.select(parts.optimizer.Options), fused=device.type == "cuda")
    optimizer.divide(strategy.groups(encoder))
    average = None
    if config.average and strategy.average is None:
        average = Average(strategy.deployed(encoder), config.average, config.average_power).to(device)
    low_precision = config.precision == "bf16" or (config.precision == "auto" and device.type == "cuda")
    return TrainState(
        encoder=encoder,
        strategy=strategy,
        memory=_memory(config, parts, strategy, encoder.output_dim, device, dtype),
        augment=parts.augmentation(
            config.image_size, config.select(parts.augmentation.Options), dtype=dtype, device=device
        ),
        optimizer=strategy.wrap_optimizer(optimizer),
        generator=torch.Generator(device).manual_seed(seed_for(config.seed, 1)),
        autocast=torch.bfloat16 if low_precision else None,
        joint_views=config.joint_views,
        average=average,
        group=distributed.current(),
        steps=torch.zeros((), dtype=torch.int64, device=device),
        nonfinite=torch.zeros((), dtype=torch.int64, device=device),
        small_augment=_small_augment(config, parts, strategy, dtype, device),
    )


def _networks(
    config: LearnerConfig, parts: Parts, backbone: nn.Module | None, restored: bool, networks: Networks | None
) -> tuple[Encoder, Strategy]:
    named = config.backbone if backbone is None else backbone
    assert named is not None, "a configuration without a backbone comes with a module"
    network, feature_dim = build_backbone(named, config.image_size, config.select(parts.backbone))
    if config.weights is not None and not restored:
        read_weights(config.weights, network, config.backbone, config.image_size)
    dims = Dims(feature_dim, config.hidden_dim, config.output_dim)
    method = None if parts.method is None else parts.method(dims, config.select(parts.method.Options))
    projector = parts.strategy.projector(dims) if method is None else method.projector()
    if isinstance(method, MultiCrop):
        _check_small(network, config.select(type(method).Options).small_size(config.image_size))
    encoder = Encoder(network, projector, feature_dim)
    encoder.image_size = config.image_size
    if config.sync_norm and not encoder.group.single:
        synchronise(encoder, encoder.group)
    if networks is not None:
        encoder.load_state_dict(networks.encoder)
    if method is not None:
        method.begin(encoder)
        if networks is not None and networks.method is not None:
            method.load_state_dict(networks.method)
    options = config.select(parts.strategy.Options)
    source = parts.strategy.teacher_source(options)
    teacher, teacher_dim = _teacher(config, source, restored) if source is not None else (None, 0)
    setup = Setup(
        encoder=encoder,
        method=method,
        dims=dims,
        output_dim=encoder.output_dim,
        image_size=config.image_size,
        stream_batch=config.stream_batch,
        batch=config.batch,
        average=config.average,
        average_power=config.average_power,
        teacher=teacher,
        teacher_dim=teacher_dim,
    )
    return encoder, parts.strategy(setup, options)


def _check_small(network: nn.Module, size: int) -> None:
    """Refuse a backbone that takes images of one size only."""
    try:
        with torch.no_grad():
            network.eval()(torch.zeros(1, 3, size, size))
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"the backbone cannot take small crops of {size}×{size} ({reason}); change it, or small_side"
        ) from error


def _small_augment(
    config: LearnerConfig, parts: Parts, strategy: Strategy, dtype: torch.dtype, device: torch.device
) -> Augmentation | None:
    """The augmentation for small crops, where the method has them."""
    if parts.method is None or not issubclass(parts.method, MultiCrop):
        return None
    kind = type(strategy)
    if kind.mix is not Strategy.mix or kind.encode is not Strategy.encode or kind.backward_passes != 1:
        raise ConfigError(
            f"strategy '{config.strategy}' makes views or passes of its own, so it cannot train method "
            f"'{config.method}', which has small crops; choose another method"
        )
    if "crop_scale" not in parts.augmentation.Options.model_fields:
        raise ConfigError(
            f"augmentation '{config.augmentation}' has no crop_scale and cannot make the small crops of method "
            f"'{config.method}'"
        )
    options = config.select(parts.method.Options)
    smaller = config.select(parts.augmentation.Options).model_copy(update={"crop_scale": options.small_scale})
    return parts.augmentation(options.small_size(config.image_size), smaller, dtype=dtype, device=device)


def _teacher(config: LearnerConfig, source: TeacherSource, restored: bool) -> tuple[nn.Module, int]:
    """The trained network of a source, for images as this learner normalises them, and its width."""
    known = read_network(source.network)
    size = known.get("image_size", config.image_size)
    network, width = build_backbone(known["backbone"], size, backbone_options(known))
    if source.weights is not None and not restored:
        read_weights(source.weights, network, known["backbone"], size)
    mean, std = (getattr(config, name, default) for name, default in (("mean", (0, 0, 0)), ("std", (1, 1, 1))))
    its_mean, its_std = known.get("mean", mean), known.get("std", std)
    scale = [mine / its for mine, its in zip(std, its_std, strict=True)]
    shift = [(mine - its) / spread for mine, its, spread in zip(mean, its_mean, its_std, strict=True)]
    return Renormalised(network, known.get("image_size"), scale, shift).requires_grad_(False), width


def _memory(
    config: LearnerConfig,
    parts: Parts,
    strategy: Strategy,
    output_dim: int,
    device: torch.device,
    dtype: torch.dtype,
) -> Memory | None:
    if parts.memory is None:
        return None
    if parts.memory.needs_losses and (strategy.insert_at == "before" or strategy.composition != "stream+replay"):
        raise ConfigError(
            f"memory '{config.memory}' keeps samples by their losses, which strategy '{config.strategy}' does not know "
            "when they arrive; choose one that trains on stream and replay samples together, such as 'er'"
        )
    options = config.select(parts.memory.Options)
    columns = strategy.columns()
    if parts.memory.needs_features:
        columns.setdefault("features", Column((output_dim,)))
    if dtype != torch.float32:
        columns = {
            name: Column(column.shape, dtype) if column.dtype.is_floating_point else column
            for name, column in columns.items()
        }
    return parts.memory(
        options.memory_size,
        (3, config.image_size, config.image_size),
        staging=config.stream_batch,
        columns=columns,
        device=device,
        options=options,
    )


def seed_for(seed: int, use: int) -> int:
    """Separate 63-bit seeds for separate uses of one user-given seed."""
    return int(np.random.SeedSequence([seed, use]).generate_state(1, np.uint64)[0] >> 1)
