"""Contracts of strategies and methods: small learners are trained with them."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from fractions import Fraction
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from ocssl import config, methods, strategies
from ocssl.batch import Batch, Step, StepOutput
from ocssl.checks.capture import can_be_captured, changed_names, reads_no_number_of_the_capture
from ocssl.checks.parts import sampled
from ocssl.checks.small import STREAM_BATCH, Build, small_learner, small_stream
from ocssl.learner import Learner
from ocssl.memory import Memory
from ocssl.methods import TargetMethod
from ocssl.nn import Encoder
from ocssl.strategies import EmaTeacher, Strategy, Target

SCALE = 3.0  # views of another scale than plain images are not normalised, or twice
ROUNDING = 1e-6  # a gradient below it may be rounding alone, as that of a bias to which the loss is invariant


def check_strategy(name: str, **settings: Any) -> None:
    """Check a registered strategy; ``settings`` are arguments of the learner, e.g. ``method="simclr"``.

    >>> check_strategy("finetune")
    """
    _knows_its_defaults(strategies.registry.get(name, settings.get("variant", "default")))

    def build(**more: Any) -> Learner:
        return small_learner(name, **{**settings, **more})

    watched = build()
    _has_numbers_on_the_host(watched)
    _augments(watched)
    _leaves_what_it_is_given(watched)
    _replays_what_was_stored_and_does_not_grow(watched)
    trained = build()
    cost = _Cost(trained)
    _trains(trained)
    can_be_captured(build)
    _treats_each_image_alone(trained)
    _repeats_and_goes_on(build)
    reads_no_number_of_the_capture(build)
    _counts_its_budget(trained, cost)


def _knows_its_defaults(kind: type[Strategy | methods.Method]) -> None:
    unknown = [name for name in kind.defaults if name.rpartition(".")[2] not in config.settings()]
    assert not unknown, f"{kind.__name__}.defaults names settings that no part has: {unknown}"


def _has_numbers_on_the_host(learner: Learner) -> None:
    strategy = learner.train_state.strategy
    for key, value in strategy.host_state().items():
        assert isinstance(value, int | float), (
            f"{type(strategy).__name__}.host_state() must return numbers, not {type(value).__name__} for '{key}'; keep "
            "tensors in buffers"
        )


def _augments(learner: Learner) -> None:
    augment, views = learner.train_state.augment, learner.train_state.strategy.views

    def make(images: Tensor) -> Tensor:
        return augment(images, views=views, generator=torch.Generator().manual_seed(0))

    images = small_stream(5)
    plain = augment.normalize(images)
    made = make(images)
    assert torch.equal(images, small_stream(5)), "the augmentation changes the images that it is given; change a copy"
    wanted, found = (
        f"{tuple(shape)} of {dtype}"
        for shape, dtype in (((views, *plain.shape), plain.dtype), (made.shape, made.dtype))
    )
    assert found == wanted, f"the augmentation must return views {wanted} for {len(images)} images, not {found}"
    assert not (made == made[0]).all(), "the augmentation returns equal views of every image; draw for each view"
    for row, image in enumerate(small_stream(5, seed=1)):
        changed = images.index_copy(0, torch.tensor([row]), image[None])
        same = [
            view for view, (new, old) in enumerate(zip(make(changed), made, strict=True)) if new[row].equal(old[row])
        ]
        assert not same, (
            f"views {same} of the augmentation do not have image {row} in row {row}; return (views, images, 3, s, s), "
            "the images in their order"
        )
    flat = torch.tensor([0, 255], dtype=torch.uint8).repeat(32).view(-1, 1, 1, 1).expand(-1, *images.shape[1:])
    spread, usual = float(make(flat).std()), float(augment.normalize(flat).std())
    assert usual / SCALE < spread < usual * SCALE, (
        f"views of black and white images have a standard deviation of {spread:.2f}, but {usual:.2f} where they are "
        "encoded for use; normalise the views once, as normalize() does"
    )


def _trains(learner: Learner) -> None:
    train_state, step = learner.train_state, learner.executor.step
    encoders = {*train_state.encoder.parameters()}
    shared = [key for key, p in train_state.strategy.named_parameters() if p in encoders]
    assert not shared, f"the strategy keeps the encoder itself: {shared[:5]}; use the one that hooks are given"
    before = {key: tensor.clone() for key, tensor in train_state.encoder.named_parameters()}
    teachers, following = _teachers(train_state.strategy), _following(train_state.strategy)
    start = {name: _numbers(network) for name, network in following.items()}
    statistics = _statistics(train_state.encoder.backbone)
    features = learner.encode(small_stream(4))
    largest: dict[nn.Parameter, float] = {}  # gradients

    def watched(stream: Tensor) -> StepOutput:
        output = step(stream)
        for p in train_state.optimizer.parameters:
            if p.grad is not None:
                largest[p] = max(largest.get(p, 0.0), float(p.grad.abs().max()))
        leaked = [key for key, parameter in teachers.items() if parameter.grad is not None]
        assert not leaked, (
            f"a teacher or frozen parameter received a gradient: {leaked[:5]}; "
            "a second network to train is made with setup.trained_copy()"
        )
        return output

    learner.executor.step = watched  # type: ignore[method-assign]
    learner.partial_fit(small_stream(16)).boundary().partial_fit(small_stream(7, seed=1))  # three wait
    losses = learner.losses
    assert losses, "there are no losses after training"
    assert all(torch.tensor(value).isfinite() for value in losses.values()), f"losses not finite: {losses}"
    missing = [name for name, m in train_state.strategy.named_modules() if isinstance(m, Target) and not m.ready]
    assert not missing, (
        f"targets {missing} were never ready; call super().boundary() where you override it, or give settings with "
        "which they are"
    )
    still = [
        key
        for key, parameter in train_state.encoder.named_parameters()
        if torch.equal(parameter, before[key]) and not 0 < largest.get(parameter, 0) < ROUNDING
    ]
    assert not still, f"never trained: {still[:5]}"
    idle = [key for key, p in train_state.strategy.named_parameters() if p.requires_grad and not largest.get(p)]
    assert not idle, (
        f"never trained: {idle[:5]}; let the loss reach them, or freeze them with requires_grad_(False); copies of the "
        "encoder are made with ocssl.nn.frozen_copy()"
    )
    kept = [name for name, network in following.items() if torch.equal(_numbers(network), start[name])]
    assert not kept, f"{kept} never followed the encoder; call super().after_step() where you override it"
    assert not len(statistics) or not torch.equal(_statistics(train_state.encoder.backbone), statistics), (
        "the running statistics of the backbone never changed, but it is deployed with them; let encode() pass views "
        "in training mode"
    )
    assert not torch.equal(learner.encode(small_stream(4)), features), (
        "the deployed network never changed; deployed() must return one that learns or follows what learns"
    )
    stored = [] if train_state.memory is None else train_state.memory.state_dict().values()
    assert not any(t.requires_grad for t in stored), "the memory keeps tensors that require gradients"
    parts = sum(value for key, value in losses.items() if key != "total")
    assert abs(parts - losses["total"]) < 1e-4, f"the parts of the loss do not add up to the total: {losses}"


def _teachers(strategy: Strategy) -> dict[str, nn.Parameter]:
    """Parameters that no gradient may reach: frozen ones, and those of targets and of copies of the encoder."""
    copies = [m for m in strategy.modules() if isinstance(m, Target) or (isinstance(m, Encoder) and not m.second)]
    copied = {parameter for module in copies for parameter in module.parameters()}
    return {key: p for key, p in strategy.named_parameters() if p in copied or not p.requires_grad}


def _following(strategy: Strategy) -> dict[str, Encoder]:
    """Copies that move towards the encoder in each step, by name."""
    found: dict[str, Encoder] = {}
    for name, module in strategy.named_modules():
        if isinstance(module, EmaTeacher) and module.tau < 1:
            found[f"{name}.network"] = module.network
        elif isinstance(module, TargetMethod) and module.options.target_tau < 1:
            found[f"{name}.target"] = module.target
    return found


def _numbers(network: nn.Module) -> Tensor:
    """All weights of a network in a row."""
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])


def _statistics(network: nn.Module) -> Tensor:
    """The running statistics of the layers in training mode, in a row; empty where none has any."""
    layers = (layer for layer in network.modules() if layer.training)
    buffers = (buffer for layer in layers for buffer in layer.buffers(recurse=False) if buffer.is_floating_point())
    return torch.cat([torch.zeros(0), *(buffer.flatten() for buffer in buffers)])


def _leaves_what_it_is_given(learner: Learner) -> None:
    """Guard the images, views and features that hooks are given; other hooks and the memory read them, too."""
    strategy, kept = learner.train_state.strategy, learner.train_state.memory
    if strategy.method is not None:
        _guard(strategy.method, "corrupt", lambda views: [views])
        _guard(strategy.method, "loss", _given_to_a_loss)
        _guard(strategy.method, "after_step", lambda output, encoder: [*encoder.parameters()])
    _guard(strategy, "compose", lambda stream: [stream])
    _guard(strategy, "mix", lambda views: [views])
    _guard(strategy, "encode", lambda encoder, views, joint: [views])
    _guard(strategy, "losses", _given_to_a_loss)
    _guard(strategy, "features_before", lambda plain: [plain])
    _guard(strategy, "features_after", _left_by_a_step)
    for part in (strategy.method, strategy, kept):
        if part is not None:
            _guard(part, "after_step", _left_by_a_step)


def _given_to_a_loss(step: Step) -> list[Tensor]:
    features = step.features
    return [step.batch.images, step.views, features.backbone, features.projected, *step.batch.recalled.values()]


def _left_by_a_step(output: StepOutput) -> list[Tensor]:
    features = output.features
    return [output.batch.images, output.views, features.backbone, features.projected]


def _guard(part: object, hook: str, read: Callable[..., list[Tensor]]) -> None:
    """Let a hook of one object fail where it changes the tensors that are read of its first arguments."""
    call, count = getattr(part, hook), len(signature(read).parameters)

    def guarded(*given: Any) -> Any:
        before = [tensor.detach().clone() for tensor in read(*given[:count])]
        result = call(*given)
        after = [tensor.nan_to_num() for tensor in read(*given[:count])]  # a loss of NaN changes none
        same = all(torch.equal(tensor, old.nan_to_num()) for tensor, old in zip(after, before, strict=True))
        assert same, f"{type(part).__name__}.{hook}() changes tensors that it is given; change a copy"
        return result

    setattr(part, hook, guarded)


def _treats_each_image_alone(learner: Learner) -> None:
    images = small_stream(3, seed=9)
    alone = torch.cat([learner.encode(image[None]) for image in images])
    assert torch.allclose(learner.encode(images), alone, rtol=1e-3, atol=1e-4), (
        "the features of an image depend on the images that are encoded with it; a network in evaluation mode must "
        "not use statistics of the batch"
    )


def _repeats_and_goes_on(build: Build) -> None:
    """With the seed, whether images come in one call or in many, features are asked for, or it is saved and loaded."""
    stream, border, cut = small_stream(34), 17, 26  # at the cut, the memory was overwritten and two images wait

    def learn(learner: Learner, sizes: list[int]) -> Learner:
        for size in sizes:
            start = learner.seen + learner.pending
            learner.partial_fit(stream[start : start + size])
            if start + size == border:
                learner.boundary()
        return learner

    at_once, pieces = [border, len(stream) - border], [5, 5, 7, 5, 4]
    whole = learn(build(seed=0), at_once)
    stopped, other = (learn(build(seed=seed), pieces[:1]) for seed in (0, 1))
    weights = [_numbers(learner.train_state.encoder) for learner in (stopped, other)]
    assert not torch.equal(*weights), "runs from two seeds are the same"
    learn(stopped, pieces[1:3]).transform(stream[:7])
    learn(stopped, pieces[3:])
    with tempfile.TemporaryDirectory() as folder:
        stopped.save(folder)
        resumed = Learner.load(folder)
    _assert_same(stopped, resumed, "a learner that was saved and loaded differs")
    learn(resumed, [len(stream) - cut])
    keep = "keep state in parameters, buffers or columns of the memory, or return it from host_state() or moments()"
    draw = "draw from the generator that is passed, not from torch's own, as nn.Dropout does"
    try:
        _assert_same(whole, resumed, "a saved and resumed run differs from one that never stopped", keep)
    except AssertionError:  # the reason may be a simpler one
        wholes = [learn(build(seed=0), at_once) for _ in range(4)]  # another for each comparison, which uses it
        advice = f"{draw}; ocssl.nn has one that does not"
        _assert_same(wholes[0], wholes[1], "two runs from one seed differ", advice)
        _assert_same(wholes[2], learn(build(seed=0), [*pieces, len(stream) - cut]), "one call and many calls differ")
        used = learn(build(seed=0), at_once[:1])
        used.transform(stream[:7])
        _assert_same(wholes[3], learn(used, at_once[1:]), "calling transform changes what is learned")
        raise


class _Cost:
    """Counts the rows through which a gradient goes, at every network of the backbone's kind.

    Attributes:
        counted: passes so far, each step rounded up.
    """

    def __init__(self, learner: Learner) -> None:
        train_state, self.counted, self._rows = learner.train_state, 0, Fraction(0)
        self._pixels = learner.config.image_size**2
        if train_state.strategy.method is not None:
            _makes_no_passes(train_state.strategy.method, train_state.encoders)
        kind = type(train_state.encoder.backbone)
        for root in (train_state.encoder, train_state.strategy):
            for network in root.modules():
                if isinstance(network, kind):
                    network.register_forward_hook(self._passed)
        step = learner.executor.step

        def counting(stream: Tensor) -> StepOutput:
            self._rows = Fraction(0)
            output = step(stream)
            self.counted += math.ceil(self._rows)  # small crops count as their share of the pixels
            return output

        learner.executor.step = counting  # type: ignore[method-assign]

    def _passed(self, network: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        def arrived(gradient: Tensor) -> None:
            self._rows += Fraction(len(gradient) * inputs[0][0, 0].numel(), self._pixels)

        if output.requires_grad:
            output.register_hook(arrived)


def _counts_its_budget(learner: Learner, cost: _Cost) -> None:
    last = learner.output
    assert last is not None
    learner.flush()  # a smaller minibatch, of an odd number
    assert learner.budget.spent == cost.counted, (
        f"{learner.budget.spent} CBP were charged, but a gradient went through {cost.counted} views; call encoders as "
        "a whole, and make further trained ones with setup.trained_copy()"
    )
    strategy = learner.train_state.strategy
    planned = learner.config.step_cost()
    complete = strategy.composition == "stream" or last.batch.slots is not None
    advice = f"set the strategy's class attribute backward_passes ({strategy.backward_passes}) to those of each view"
    if last.cbp < planned and strategy.backward_passes == 1:
        advice = "let a gradient go through every view of every sample in the batch, or compose() fewer samples"
    assert last.cbp == planned or not complete, (
        f"a step cost {last.cbp} CBP, but {planned} are planned for it; {advice}"
    )
    steps = sum(learner.config.passes_at(seen) for seen in range(0, learner.seen, learner.config.stream_batch))
    assert learner.budget.steps == steps, f"{learner.budget.steps} steps were counted, not {steps}"


def _makes_no_passes(method: methods.Method, encoders: list[Encoder]) -> None:
    """Let the loss of a method fail where it passes views through an encoder with gradient."""
    loss, passed = method.loss, list[bool]()
    for encoder in encoders:
        encoder.register_forward_hook(lambda network, given, features: passed.append(features.projected.requires_grad))

    def watched(step: Step) -> Tensor:
        passed.clear()
        result = loss(step)
        assert not any(passed), (
            f"{type(method).__name__}.loss() makes backward passes of its own, which a method cannot; make them in "
            "encode() of a strategy, with its class attribute backward_passes"
        )
        return result

    method.loss = watched  # type: ignore[method-assign]


def _replays_what_was_stored_and_does_not_grow(learner: Learner) -> None:
    kept, sizes = learner.train_state.memory, []
    if kept is not None:
        kept.images.zero_()
    for piece in small_stream(28).clamp(min=1).split(STREAM_BATCH):
        learner.partial_fit(piece)
        sizes.append(sum(tensor.numel() for tensor in learner.train_state.state_dict().values()))
        if kept is not None:
            _samples_what_was_written(kept)
    assert sizes[-1] == sizes[-3], f"the state grows with the stream: {sizes} numbers"  # the memory was full before
    for name, column in learner.train_state.strategy.columns().items():
        assert kept is None or not column.dtype.is_floating_point or kept.columns[name].any(), (
            f"column '{name}' of the memory was never written; return it from features_after(), or from "
            "features_before() where insert_at is 'before'"
        )


def _samples_what_was_written(kept: Memory) -> None:
    written = (kept.images[: kept.capacity] != 0).flatten(1).any(dim=1)
    for n in range(1, len(kept) + 1):
        slots = sampled(kept, n, torch.Generator().manual_seed(n))
        empty = slots[~written[slots]]
        assert not len(empty), (
            f"slot {int(empty.min())} of the memory was sampled, but never written; assign_slots() must fill the "
            "slots 0, 1, 2, … in this order, with every sample until the memory is full"
        )


def _assert_same(one: Learner, other: Learner, complaint: str, advice: str = "") -> None:
    mine, theirs = one._tensors(), other._tensors()
    assert mine.keys() == theirs.keys(), f"{complaint}, in what they keep"
    different = [name for name in mine if not torch.equal(mine[name], theirs[name])]
    assert not different, f"{complaint}, in {different[:5]}{advice and f'; {advice}'}"
    changed = changed_names(*(learner.train_state.strategy.host_state() for learner in (one, other)))
    assert not changed, f"{complaint}, in {changed} of host_state(); restore them in load_host_state()"
    assert (one.budget, one.seen) == (other.budget, other.seen), f"{complaint}, in what was spent or seen"
    assert torch.equal(one.encode(small_stream(5, 9)), other.encode(small_stream(5, 9))), f"{complaint}, in features"


# ---------------------------------------------------------------------- methods


def check_method(name: str, **options: Any) -> None:
    """Check a registered method.

    >>> check_method("simsiam")
    """
    kind = methods.registry.get(name)
    _knows_its_defaults(kind)
    learner = small_learner("finetune", method=name, **options)
    _leaves_what_it_is_given(learner)
    learner.partial_fit(small_stream(8))
    for more in ({}, {"views": 3}):  # any number of views is allowed
        _uses_every_view(small_learner("finetune", method=name, **{**options, **more}).partial_fit(small_stream(8)))
    method = small_learner("finetune", method=name, **options).train_state.strategy.method
    assert method is not None, "a learner has the method that it was made with"
    for hook in ("distance", "distillation"):
        if getattr(kind, hook) is not getattr(methods.Method, hook):
            _distance_reaches_the_prediction_only(method, hook)
    check_strategy("cla-e", method=name, **options)  # with replay, and the method's distillation


def _uses_every_view(learner: Learner) -> None:
    train_state, method = learner.train_state, learner.train_state.strategy.method
    assert method is not None, "a learner has the method that it was made with"
    batch = Batch(small_stream(6), stream=6)
    views = train_state.augment(batch.images, views=method.views, generator=train_state.generator).requires_grad_()
    for joint in (True, False):
        with train_state.forward_pass():
            seen = method.corrupt(views, train_state.generator)
            features, small = train_state.encoder(seen, joint), train_state.small_features(batch, joint)
            loss = method.loss(Step(batch, seen, features, train_state.generator, small))
        assert loss.shape == (), f"the loss must be one number, not {tuple(loss.shape)}"
        assert loss.isfinite(), f"the loss is {loss}"
        gradient, *crops = torch.autograd.grad(loss, [views] + ([] if small is None else [small.projected]))
        idle = [crop for part in crops for crop, own in enumerate(part) if not own.any()]
        assert not idle, f"the loss gives small crops {idle} no gradient, but all are made; use every one in step.small"
        unused = [view for view, part in enumerate(gradient) if not part.any()]
        assert not unused, (
            f"with {len(views)} views, the loss gives views {unused} no gradient, but all are charged; use every view"
        )


def _distance_reaches_the_prediction_only(method: methods.Method, name: str) -> None:
    shape = method.views, 6, method.dims.output
    prediction, target = (torch.randn(shape, generator=torch.Generator().manual_seed(i)) for i in range(2))
    prediction.requires_grad_(), target.requires_grad_()
    getattr(method, name)(prediction, target).backward()
    assert prediction.grad is not None, f"{name}() gives its prediction no gradient"
    assert prediction.grad.abs().sum() > 0, f"{name}() gives its prediction a gradient of zero"
    assert target.grad is None, f"{name}() gives its target a gradient"
