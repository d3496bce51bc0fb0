"""Contracts of memories, optimisers and streams: each is checked without a learner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ocssl import memory, optim
from ocssl.checks.capture import OnDevice
from ocssl.data import streams
from ocssl.errors import ConfigError
from ocssl.memory import Column
from ocssl.optim import Optimizer, ParameterGroup
from ocssl.options import validate


def check_memory(name: str, **options: Any) -> None:
    """Check a registered memory.

    >>> check_memory("fifo")
    """
    capacity, staging, image_shape = 12, 5, (3, 2, 2)
    columns = {"features": Column((6,)), "number": Column((), torch.int64)}

    kind = memory.registry.get(name)

    def build() -> memory.Memory:
        settings = validate(kind.Options, {"memory_size": capacity, **options})
        return kind(capacity, image_shape, staging=staging, columns=columns, options=settings)

    subject, generator = build(), torch.Generator().manual_seed(0)
    assign_slots = subject.assign_slots

    def checked(n: int, generator: torch.Generator) -> Tensor:
        slots = assign_slots(n, generator)
        if isinstance(slots, Tensor) and slots.shape == (n,):  # else the memory refuses them
            _check_slots(slots.tolist(), n, capacity)
        return slots

    subject.assign_slots = checked  # type: ignore[method-assign]
    sizes = [tensor.shape for tensor in subject.state_dict().values()]
    seen = 0
    for n in (5, 1, 5, 3, 5, 1, 5, 5, 2, 5):  # not a multiple of the capacity in all
        numbers = torch.arange(seen, seen + n) + 1  # an empty slot has 0
        images = numbers.to(torch.uint8)[:, None, None, None].expand(n, *image_shape)
        features = torch.randn(n, 6, generator=generator)
        losses = {"losses": torch.rand(n, generator=generator)} if kind.needs_losses else {}
        subject.add(images, {"features": features, "number": numbers, **losses}, generator)
        seen += n
        filled = min(seen, capacity)
        assert len(subject) == filled, f"after {seen} samples it should hold {filled}, not {len(subject)}"
        kept = subject.columns["number"][:filled]
        assert kept.all(), (
            f"after {seen} samples slot {int((kept == 0).nonzero()[0])} is empty; assign_slots() must fill the slots "
            "0, 1, 2, … in this order, with every sample until the memory is full"
        )
        assert len(kept.unique()) == filled, f"a sample is kept twice: {sorted(kept.tolist())}"
        assert kept.max() <= seen, "it holds a sample that never came"
        assert torch.equal(subject.images[:filled, 0, 0, 0].long(), kept), "image and columns of a slot got mixed up"
        drawn = sampled(subject, min(4, filled), generator)
        subject.update_features(drawn, torch.randn(len(drawn), 6, generator=generator))
        if kind.needs_losses:
            subject.update_losses(drawn, torch.rand(len(drawn), generator=generator))
    assert sizes == [tensor.shape for tensor in subject.state_dict().values()], "its state grows with the stream"
    _goes_on_after_loading(subject, build())
    if not kind.host_work:
        _can_be_captured(build)


def _goes_on_after_loading(subject: memory.Memory, copy: memory.Memory) -> None:
    """Let a new memory load the state of another, and compare what both do next."""
    _load(copy, subject)
    draws = [_goes_on(twin) for twin in (subject, copy)]
    advice = "draw from the generator that is passed, and keep state in own_columns() or extra_state()"
    different = _different(subject, copy)
    assert not different, f"a restored memory goes on differently, in '{different[0]}'; {advice}"
    assert torch.equal(*draws), f"a restored memory samples differently; {advice}"
    assert len(copy) == len(subject)


def _can_be_captured(build: Callable[[], memory.Memory]) -> None:
    """Its work stays on the device, and reads no number on the host, which a replay has as it was five samples ago."""
    subject = build()
    for _ in range(4):
        _goes_on(subject)
        now, captured = build(), build()
        _load(now, subject)
        _load(captured, subject)
        captured.seen -= 5
        with OnDevice(otherwise="set host_work = True"):
            draws = [_goes_on(twin) for twin in (now, captured)]
        same = torch.equal(*draws) and not _different(now, captured)
        assert same, (
            "a step reads len(self) or self.seen, numbers on the host, but a captured step goes on with those of its "
            "capture; read the tensor self.arrived"
        )


def _load(copy: memory.Memory | Optimizer, subject: memory.Memory | Optimizer) -> None:
    """Let a new part go on from the state of another."""
    copy.load_state_dict({key: tensor.clone() for key, tensor in subject.state_dict().items()})


def _goes_on(subject: memory.Memory) -> Tensor:
    """Add five samples, and return the slots that are sampled next."""
    generator, place = torch.Generator().manual_seed(1), subject.device
    new = torch.zeros(5, *subject.images.shape[1:], dtype=torch.uint8, device=place)
    losses = {"losses": torch.rand(5, generator=generator, device=place)} if subject.needs_losses else {}
    subject.add(new, {"features": torch.randn(5, 6, generator=generator, device=place), **losses}, generator)
    return subject.sample(4, generator)


def _different(one: memory.Memory, other: memory.Memory) -> list[str]:
    theirs = other.state_dict()
    return [key for key, tensor in one.state_dict().items() if not torch.equal(tensor, theirs[key])]


def _check_slots(slots: list[int], n: int, capacity: int) -> None:
    assert len({*slots}) == n, f"assign_slots({n}) must return {n} different slots, not {slots}"
    assert {*slots} <= {*range(capacity + n)}, (
        f"assign_slots({n}) must return slots below {capacity}, or {capacity} + i for new sample i if it is not kept, "
        f"not {slots}"
    )


def sampled(kept: memory.Memory, n: int, generator: torch.Generator) -> Tensor:
    """Slots that a memory samples, which are n different filled ones."""
    slots = kept.sample(n, generator)
    assert slots.shape == (n,), f"sample({n}) must return {n} slots, not a tensor of shape {tuple(slots.shape)}"
    assert slots.dtype == torch.int64, f"sample() must return int64, not {slots.dtype}"
    assert len(slots.unique()) == n, f"a slot was sampled twice: {slots.tolist()}"
    wrong = slots[(slots < 0) | (slots >= len(kept))]
    assert not len(wrong), f"slot {int(wrong[0])} was sampled, an empty one: only {len(kept)} are filled"
    return slots


def check_optimizer(name: str, **options: Any) -> None:
    """Check a registered optimiser.

    >>> check_optimizer("sgd", momentum=0.5)
    """
    kind = optim.registry.get(name)
    settings = validate(kind.Options, {"lr": 0.01, **options})

    def build() -> Optimizer:
        generator = torch.Generator().manual_seed(0)
        parameters = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((4, 3), (4,), (4, 3), (2,))]
        made = kind(parameters, settings)
        made.divide([ParameterGroup([parameters[2]], torch.zeros(()))])
        return made

    def steps(subject: Optimizer, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(3):
            gradients = [torch.randn(parameter.shape, generator=generator) for parameter in subject.parameters[:-1]]
            for parameter, gradient in zip(subject.parameters, gradients, strict=False):
                parameter.grad = gradient.clone()
            subject.step()
            left = [parameter.grad for parameter in subject.parameters if parameter.grad is not None]
            same = all(map(torch.equal, left, gradients))
            assert same, "update() changes gradients, which hooks after the step read; change a copy"

    subject, start = build(), build().parameters
    before = subject.state_dict()
    steps(subject, seed=0)
    *trained, frozen, without = [torch.equal(p, old) for p, old in zip(subject.parameters, start, strict=True)]
    assert not any(trained), "a parameter with a gradient did not move"
    assert frozen, "a parameter moved whose group has a learning rate of 0; move what moved() returns, by update()'s lr"
    assert without, "a parameter without gradient moved; move what moved() returns"
    replaced = [key for key, tensor in subject.state_dict().items() if tensor is not before.get(key)]
    assert not replaced, f"update() replaces {replaced[:5]}; change moments in place, or a captured step reads old ones"

    _moves_by_the_rate_of_its_group(kind, settings)

    copy = build()
    with torch.no_grad():
        for parameter, learned in zip(copy.parameters, subject.parameters, strict=True):
            parameter.copy_(learned)
    _load(copy, subject)
    for twin in (subject, copy):
        steps(twin, seed=1)
    same = all(torch.equal(p, other) for p, other in zip(subject.parameters, copy.parameters, strict=True))
    assert same, "a restored optimiser goes on differently; return its state from moments(), or from its schedule"

    subject.reset()
    new = kind(subject.parameters, settings).moments()
    left = [key for key, tensor in subject.moments().items() if not torch.equal(tensor, new[key])]
    assert not left, f"reset() leaves {left[:5]} unlike a new optimiser's, by zeroing them; override it"


def _moves_by_the_rate_of_its_group(kind: type[Optimizer], settings: Any) -> None:
    """Of two equal parameters with equal gradients, one has half of the learning rate."""
    whole, half = parameters = [nn.Parameter(torch.ones(4, 3)) for _ in range(2)]
    gradient = torch.rand(4, 3, generator=torch.Generator().manual_seed(0)) + 0.1
    optimizer = kind(parameters, settings)
    optimizer.divide([ParameterGroup([half], torch.tensor(0.5))])
    for _ in range(3):  # a schedule may begin at 0
        for parameter in parameters:
            parameter.grad = gradient.clone()
        optimizer.step()
    along = [float(((parameter.detach() - 1) * gradient).sum()) for parameter in parameters]
    assert max(along) < 0, "parameters move along the gradient, which raises the loss; subtract lr times the gradient"
    assert not torch.equal(whole, half), (
        "a parameter whose group has half of the learning rate moves as one that has all of it; move what moved() "
        "returns by update()'s lr"
    )


def check_stream(name: str, **options: Any) -> None:
    """Check a registered kind of stream, on 20 classes with 9 samples each and 3 more that are held out.

    >>> check_stream("class-incremental")
    """
    kind = streams.registry.get(name)
    settings = validate(kind.Options, options)
    labels, stream_batch = torch.arange(20).repeat(12), 7  # which does not divide an experience
    before = labels.clone()
    train, _ = streams.split_validation(labels, fraction=0.25)
    given: dict[str, Any] = {
        "indices": train.clone(),
        "data_seed": 0,
        "stream_batch": stream_batch,
        "column": lambda column: streams.permutation(len(labels), column),
    }
    if issubclass(kind, streams.Shuffled):
        given["order_seed"] = 1

    def build() -> streams.Stream:
        return streams.build_stream(kind(settings), labels, **given)

    try:
        stream = build()
        unchanged = torch.equal(labels, before) and torch.equal(given["indices"], train)
        assert unchanged, "build() changes the labels or the indices that it is given; change a copy"
        streams.require_runnable(stream, name, indices=train, count=len(labels), stream_batch=stream_batch)
    except ConfigError as error:
        raise AssertionError(str(error)) from error
    count, middle = len(stream), len(stream) // 2
    whole, again, later = stream.between(0, count), build(), build().between(middle, count)
    advice = "draw with ocssl.data.streams.permutation(count, purpose, data_seed), whatever was drawn before"
    assert torch.equal(stream.between(0, count), whole), f"an experience differs when it is drawn again; {advice}"
    assert again.borders == stream.borders, f"two streams from one seed have other borders; {advice}"
    assert torch.equal(again.between(0, count), whole), f"two streams from one seed differ; {advice}"
    assert torch.equal(later, whole[middle:]), f"a stream that goes on at sample {middle} differs; {advice}"
