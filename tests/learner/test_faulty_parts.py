"""Parts that seem to work and are wrong: the contract checks find each of them, and say what to correct."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ocssl import augment, memory, methods, optim, strategies
from ocssl.augment import Augmentation
from ocssl.checks import check_memory, check_method, check_optimizer, check_strategy, small_learner, small_stream
from ocssl.errors import ConfigError
from ocssl.memory import Column, Fifo, Memory
from ocssl.methods import BYOL, Method, SimCLR
from ocssl.nn import Features, backbones, ema_update, frozen_copy
from ocssl.optim import SGD, Optimizer
from ocssl.options import Options
from ocssl.strategies import CaSSLe, ClaE, ExperienceReplay, Strategy

REGISTRIES = {
    Strategy: strategies.registry,
    Method: methods.registry,
    Memory: memory.registry,
    Optimizer: optim.registry,
    Augmentation: augment.registry,
    nn.Module: backbones.registry,
}


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch):
    """Registers a class as ``faulty``, for one test only."""

    def register(kind: type) -> str:
        registry: Any = next(registry for base, registry in REGISTRIES.items() if issubclass(kind, base))
        monkeypatch.setitem(registry._entries, "faulty", kind)
        return "faulty"

    return register


# ---------------------------------------------------------------------- strategies


class ChangesTheStream(ExperienceReplay):
    def compose(self, stream, memory, generator):
        return super().compose(stream.bitwise_xor_(255), memory, generator)


class ChangesViews(ExperienceReplay):
    def mix(self, views, batch, generator):
        return views.mul_(0.5)


class ChangesImages(ExperienceReplay):
    def penalty(self, step):
        step.batch.images.add_(1)
        return {}


class ChangesFeatures(ExperienceReplay):
    def after_step(self, output, encoder, memory):
        output.features.projected.zero_()


class ChangesViewsInEncode(ExperienceReplay):
    def encode(self, encoder, views, joint):
        return super().encode(encoder, views.mul_(0.9), joint)


class ChangesPlainImages(ExperienceReplay):
    insert_at = "before"

    def features_before(self, plain, encoder):
        plain.clamp_(min=0)
        return {}


class ChangesWhatAStepLeft(ExperienceReplay):
    def features_after(self, output):
        output.features.projected.div_(output.features.projected.norm(dim=-1, keepdim=True))
        return super().features_after(output)


class Branching(ExperienceReplay):
    def penalty(self, step):
        features = step.features.projected
        return {"far": features.square().mean()} if features.mean() > 0 else {}


class Masking(ExperienceReplay):
    def penalty(self, step):
        features = step.features.projected
        return {"far": features[features > 0].mean()}


class Centring(ExperienceReplay):
    def penalty(self, step):
        step.features.projected.sub_(step.features.projected.mean(1, keepdim=True))
        return {}


class Multiplying(ExperienceReplay):
    def penalty(self, step):
        features = step.features.projected
        return {"far": features.sum().add(features.mean(), alpha=features.detach().std()) * 0}


class OnTheHost(ExperienceReplay):
    def penalty(self, step):
        features = step.features.projected
        return {"weighted": (features.square().mean(-1) * torch.arange(features.shape[1])).mean()}


class Replacing(ExperienceReplay):
    def __init__(self, setup, options) -> None:
        super().__init__(setup, options)
        self.register_buffer("centre", torch.zeros(setup.output_dim))

    def after_step(self, output, encoder, memory):
        self.centre = 0.9 * self.centre + 0.1 * output.features.projected.mean((0, 1))


class Forgetful(ExperienceReplay):
    def columns(self):
        return {"outputs": Column((32,))}


class CountsInAStep(ExperienceReplay):
    """Its penalty grows by a counter that is saved."""

    count = 0

    def after_minibatch(self, encoder):
        self.count += 1

    def host_state(self):
        return {"count": self.count}

    def load_host_state(self, state):
        self.count = state["count"]

    def penalty(self, step):
        return {"small": 0.01 * self.count * step.features.projected.square().mean()}


class CountsOnTheHost(CountsInAStep):
    def after_minibatch(self, encoder):
        pass

    def on_host(self, seen, encoder, optimizer):
        self.count = seen


class NeverRestored(CountsOnTheHost):
    """Its counter is saved, and decides what happens later than in a check."""

    def load_host_state(self, state):
        pass

    def penalty(self, step):
        return {}


class TensorOnTheHost(ExperienceReplay):
    def host_state(self):
        return {"n": torch.zeros(())}


class ReadsTheLength(ExperienceReplay):
    def mix(self, views, batch, generator):
        return views * (1 + self.filled / 100)

    def compose(self, stream, memory, generator):
        self.filled = len(memory)
        return super().compose(stream, memory, generator)


class Peeking(ExperienceReplay):
    """Takes note of how many images wait."""

    def compose(self, stream, memory, generator):
        self.factor = 1 + stream.untyped_storage().nbytes() / 1e5
        return super().compose(stream, memory, generator)

    def mix(self, views, batch, generator):
        return views * self.factor


class Swapping(ExperienceReplay):
    def mix(self, views, batch, generator):
        return views[[1, 0]]


class Writing(ExperienceReplay):
    def penalty(self, step):
        features = step.features.projected.square()
        scaled = features * torch.tensor([0.1] * features.shape[-1], device=features.device)
        return {"small": scaled.mean()}


class InEvaluation(ExperienceReplay):
    """Trains with the running statistics that the network began with."""

    def encode(self, encoder, views, joint):
        features = super().encode(encoder.eval(), views, joint)
        encoder.train()
        return features


class DeploysTheStart(ExperienceReplay):
    def __init__(self, setup, options) -> None:
        super().__init__(setup, options)
        self.start = frozen_copy(setup.encoder)

    def deployed(self, encoder):
        return self.start.backbone


class LeavesTheTeacher(ClaE):
    def after_step(self, output, encoder, memory):
        """Without super()."""


class NeverAligns(CaSSLe):
    def boundary(self, encoder):
        """Without super()."""


FEATURES = ("backbone", "projected")


class Half(ExperienceReplay):
    """Makes the passes of the second view without gradient."""

    def encode(self, encoder, views, joint):
        with torch.no_grad():
            second = encoder(views[1:], joint)
        first = encoder(views[:1], joint)
        backbone, projected = (torch.cat([getattr(part, name) for part in (first, second)]) for name in FEATURES)
        return Features(backbone, projected, joint)


@pytest.mark.parametrize(
    ("hook", "returned", "message"),
    [
        ("compose", None, r"Odd.compose\(\) must return a Batch, not NoneType"),
        ("mix", None, r"Odd.mix\(\) must return a Tensor, not NoneType"),
        ("mix", torch.zeros(1, 4, 3, 8, 8), r"Odd.mix\(\) must return 2 views, as many as it is given"),
        ("encode", None, r"Odd.encode\(\) must return a Features, not NoneType"),
        ("features_after", None, r"Odd.features_after\(\) must return columns by name, not NoneType"),
        ("features_before", None, r"Odd.features_before\(\) must return columns by name, not NoneType"),
        ("columns", None, r"Odd.columns\(\) must return Columns by name, not NoneType"),
    ],
)
def test_a_hook_that_returns_something_else_is_named(faulty, hook: str, returned: object, message: str) -> None:
    place = {"insert_at": "before"} if hook == "features_before" else {}
    kind = type("Odd", (ExperienceReplay,), {hook: lambda self, *given: returned, **place})
    with pytest.raises(ConfigError, match=message):
        small_learner(faulty(kind)).partial_fit(small_stream(20))


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (Half, "a step cost 12 CBP, but 24 are planned for it; let a gradient go through every view"),
        (CountsInAStep, r"a step changes \['count'\] of host_state\(\), but .* change them in on_host\(\)"),
        (CountsOnTheHost, r"a step reads \['count'\] of host_state\(\), .* keep them in a buffer"),
        (NeverRestored, r"loaded differs, in \['count'\] of host_state\(\); restore them in load_host_state\(\)"),
        (Peeking, "one call and many calls differ"),
        (
            TensorOnTheHost,
            r"TensorOnTheHost.host_state\(\) must return numbers, not Tensor for 'n'; keep tensors in buffers",
        ),
        (ReadsTheLength, r"a step reads len\(\) or seen of the memory, .* memory.arrived in a strategy"),
        (ChangesTheStream, r"ChangesTheStream.compose\(\) changes tensors that it is given"),
        (ChangesViews, r"ChangesViews.mix\(\) changes tensors that it is given"),
        (ChangesImages, r"ChangesImages.losses\(\) changes tensors that it is given"),
        (ChangesViewsInEncode, r"ChangesViewsInEncode.encode\(\) changes tensors that it is given"),
        (ChangesPlainImages, r"ChangesPlainImages.features_before\(\) changes tensors that it is given"),
        (ChangesWhatAStepLeft, r"ChangesWhatAStepLeft.features_after\(\) changes tensors that it is given"),
        (ChangesFeatures, r"ChangesFeatures.after_step\(\) changes tensors that it is given"),
        (Branching, r"reads values of a tensor on the host, by __bool__\(\)"),
        (Masking, "reads values of a tensor on the host, by an index of booleans"),
        (Swapping, "copies numbers from the host, by an index that is a list, .* in the constructor, as a buffer"),
        (Writing, r"copies numbers from the host, by tensor\(\)"),
        (
            InEvaluation,
            r"running statistics of the backbone never changed, .* let encode\(\) pass views in training mode",
        ),
        (DeploysTheStart, "the deployed network never changed"),
        (NeverAligns, r"targets \['target'\] were never ready; call super\(\).boundary\(\)"),
        (LeavesTheTeacher, r"\['target.network'\] never followed the encoder; call super\(\).after_step\(\)"),
        (Centring, r"Centring.losses\(\) changes tensors that it is given"),
        (Multiplying, r"reads values of a tensor on the host, by add\(alpha=…\)"),
        (OnTheHost, r"makes a tensor on the CPU, by arange\(\) without device"),
        (Replacing, r"a step replaces \['strategy.centre'\], but a captured step goes on with the old tensors"),
        (Forgetful, r"column 'outputs' of the memory was never written; return it from features_after\(\)"),
    ],
)
def test_a_faulty_strategy_is_caught(faulty, kind: type[Strategy], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_strategy(faulty(kind))


def test_no_hook_after_the_step_follows_gradients(faulty) -> None:
    class CopiesWeights(ExperienceReplay):
        def __init__(self, setup, options) -> None:
            super().__init__(setup, options)
            self.anchor, self.newest = frozen_copy(setup.encoder), frozen_copy(setup.encoder)

        def boundary(self, encoder):
            copy_each(self.anchor, encoder)

        def on_host(self, seen, encoder, optimizer):
            copy_each(self.newest, encoder)

    def copy_each(copied, encoder):
        for old, new in zip(copied.parameters(), encoder.parameters(), strict=True):
            old.copy_(new)

    check_strategy(faulty(CopiesWeights))


@pytest.mark.parametrize("kind", [Masking, CountsInAStep, ReadsTheLength])
def test_a_strategy_that_is_never_captured_may_read_values(faulty, kind: type[Strategy]) -> None:
    check_strategy(faulty(kind), execution="eager")


def test_a_graph_key_that_changes_with_a_number_lets_a_step_read_it(faulty) -> None:
    class Keyed(CountsOnTheHost):
        def graph_key(self, memory):
            return super().graph_key(memory), self.count

    check_strategy(faulty(Keyed))


def test_a_teacher_in_evaluation_mode_may_be_deployed(faulty) -> None:
    class Evaluating(ClaE):
        def __init__(self, setup, options) -> None:
            super().__init__(setup, options)
            self.target.network.eval()

        def deployed(self, encoder):
            return self.target.network.backbone

    check_strategy(faulty(Evaluating))


# ---------------------------------------------------------------------- methods


class Normalizing(SimCLR):
    def after_step(self, output, encoder):
        output.features.projected.div_(output.features.projected.norm(dim=-1, keepdim=True))


class Halving(SimCLR):
    """Pairs the first half of a batch with the second, which an odd number of samples does not have."""

    def loss(self, step):
        first, second = step.features.projected.chunk(2, dim=1)
        return super().loss(step) + (first - second).square().mean()


class Dividing(SimCLR):
    def loss(self, step):
        features = step.features.projected
        features /= features.norm(dim=-1, keepdim=True)
        return super().loss(step)


class Whitening(SimCLR):
    def loss(self, step):
        features = step.features.projected
        factor = torch.linalg.cholesky(features.mT @ features + torch.eye(32, device=features.device))
        return super().loss(step) + factor.mean()


class Overwriting(BYOL):
    """Its target overwrites the encoder, since the arguments are in the wrong order."""

    def after_step(self, output, encoder):
        ema_update(encoder, self.target, self.target_tau)


class LeavesItsTarget(BYOL):
    def after_step(self, output, encoder):
        self._seen = None


class Spectral(SimCLR):
    def loss(self, step):
        return super().loss(step) - 0.01 * torch.linalg.svdvals(step.features.projected).sum()


class Nuclear(SimCLR):
    def loss(self, step):
        return super().loss(step) - 0.01 * torch.linalg.matrix_norm(step.features.projected, ord="nuc").sum()


class OneHot(SimCLR):
    def loss(self, step):
        features = step.features.projected
        return super().loss(step) + nn.functional.one_hot(features.argmax(-1)).float().mean()


class Blanking(SimCLR):
    def corrupt(self, views, generator):
        return views.mul_(0.5)


class Masked(SimCLR):
    """Passes masked views through the encoder once more."""

    def begin(self, encoder):
        self.encoder = (encoder,)

    def loss(self, step):
        masked = self.encoder[0](step.views * 0.5, step.features.joint)
        return super().loss(step) + super().loss(replace(step, features=masked))


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (Masked, r"Masked.loss\(\) makes backward passes of its own, which a method cannot; make them in encode\(\)"),
        (Overwriting, r"Overwriting.after_step\(\) changes tensors that it is given"),
        (LeavesItsTarget, r"\['method.target'\] never followed the encoder; call super\(\).after_step\(\)"),
        (Spectral, r"by linalg_svdvals\(\), and cannot be captured as a CUDA graph; give execution='eager'"),
        (Nuclear, r"by linalg_matrix_norm\(\), and cannot be captured as a CUDA graph; give execution='eager'"),
        (OneHot, r"by one_hot\(\) without num_classes, .* use one_hot\(\) with it"),
        (Blanking, r"Blanking.corrupt\(\) changes tensors that it is given"),
        (Normalizing, r"Normalizing.after_step\(\) changes tensors that it is given"),
        (Dividing, r"Dividing.loss\(\) changes tensors that it is given"),
        (Whitening, r"by linalg_cholesky\(\), .* use a function of torch.linalg that ends in _ex"),
    ],
)
def test_a_faulty_method_is_caught(faulty, kind: type[Method], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_method(faulty(kind))


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, r"Odd.corrupt\(\) must return a Tensor, not NoneType"),
        (torch.zeros(3, 4, 3, 8, 8), r"Odd.corrupt\(\) must return 2 views, as many as it is given"),
    ],
)
def test_a_method_that_corrupts_views_into_something_else_is_named(faulty, returned: object, message: str) -> None:
    kind = type("Odd", (SimCLR,), {"corrupt": lambda self, *given: returned})
    with pytest.raises(ConfigError, match=message):
        small_learner("er", method=faulty(kind)).partial_fit(small_stream(8))


def test_a_method_that_fails_on_the_last_minibatch_is_caught(faulty) -> None:
    with pytest.raises(RuntimeError, match="must match the size"):
        check_method(faulty(Halving))


# ---------------------------------------------------------------------- memories


class Counting(Memory):
    """FIFO by a counter that is not saved."""

    inserted = 0

    def assign_slots(self, n, generator):
        first, self.inserted = self.inserted, self.inserted + n
        return (first + self.slots[:n]) % self.capacity


class Single(Fifo):
    """Puts a sample that comes alone into the first slot."""

    def assign_slots(self, n, generator):
        return super().assign_slots(n, generator) if n > 1 else self.slots[:1]


class Colliding(Fifo):
    """Once it is full, may put two new samples into one slot."""

    def assign_slots(self, n, generator):
        anywhere = torch.randint(self.capacity, (n,), generator=generator)
        return torch.where(self.arrived < self.capacity, super().assign_slots(n, generator), anywhere)


class Overflowing(Memory):
    def assign_slots(self, n, generator):
        return self.slots[:n] + self.arrived


class Sparing(Fifo):
    def assign_slots(self, n, generator):
        return super().assign_slots(n, generator)[:2]


class Listing(Fifo):
    def assign_slots(self, n, generator):
        return super().assign_slots(n, generator).tolist()


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (Colliding, r"assign_slots\(\d\) must return \d different slots, not \["),
        (Overflowing, r"assign_slots\(5\) must return slots below 12, or 12 \+ i for new sample i if it is not kept"),
        (Sparing, r"Sparing.assign_slots\(5\) must return \(5,\) of torch.int64, not \(2,\) of torch.int64"),
        (Listing, r"Listing.assign_slots\(5\) must return \(5,\) of torch.int64, not list"),
    ],
)
def test_a_memory_that_assigns_wrong_slots_is_caught(faulty, kind: type[Memory], complaint: str) -> None:
    with pytest.raises((AssertionError, ConfigError), match=complaint):
        check_memory(faulty(kind))


def test_a_memory_with_a_counter_that_is_not_saved_is_caught(faulty) -> None:
    name = faulty(Counting)
    with pytest.raises(AssertionError, match="a restored memory goes on differently"):
        check_memory(name)
    with pytest.raises(AssertionError, match="resumed run differs"):
        check_strategy("er", memory=name)


class Shuffling(Fifo):
    def sample(self, n, generator):
        return torch.randperm(len(self), generator=generator, device=self.device)[:n]


class InTurn(Memory):
    def assign_slots(self, n, generator):
        return (self.seen + self.slots[:n]) % self.capacity


@pytest.mark.parametrize("kind", [Shuffling, InTurn])
def test_a_memory_whose_numbers_a_capture_would_keep_is_caught(faulty, kind: type[Memory]) -> None:
    name = faulty(kind)
    with pytest.raises(AssertionError, match=r"a step reads len\(self\) or self.seen, .* read the tensor self.arrived"):
        check_memory(name)
    with pytest.raises(
        AssertionError, match=r"a step reads len\(\) or seen of the memory, .* self.arrived in a memory"
    ):
        check_strategy("er", memory=name)


@pytest.mark.parametrize("kind", [Shuffling, InTurn])
def test_a_memory_that_works_on_the_host_may_read_its_length(faulty, kind: type[Memory]) -> None:
    name = faulty(type("OnTheHost", (kind,), {"host_work": True}))
    check_memory(name)
    check_strategy("er", memory=name)


def test_a_memory_that_leaves_a_slot_empty_is_caught(faulty) -> None:
    with pytest.raises(AssertionError, match="after 6 samples slot 5 is empty"):
        check_memory(faulty(Single))


# ---------------------------------------------------------------------- optimisers


class MovesAll(Optimizer):
    @torch.no_grad()
    def update(self, lr):
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter -= lr * parameter.grad


class OwnRate(Optimizer):
    @torch.no_grad()
    def update(self, lr):
        for parameter, gradient, _ in self.moved():
            parameter -= self.options.lr * gradient


class Ascending(Optimizer):
    @torch.no_grad()
    def update(self, lr):
        for parameter, gradient, _ in self.moved():
            parameter += lr * gradient


class OnlyOnOrOff(Optimizer):
    """Does not move what has a learning rate of 0, and takes its own rate otherwise."""

    @torch.no_grad()
    def update(self, lr):
        for parameter, gradient, _ in self.moved():
            parameter -= torch.where(torch.as_tensor(lr) > 0, self.options.lr, 0.0) * gradient


class Unsaved(SGD):
    def moments(self):
        return {}


class Replaced(Optimizer):
    def __init__(self, parameters, options, *, fused=False) -> None:
        super().__init__(parameters, options, fused=fused)
        self.means = [torch.zeros_like(parameter) for parameter in self.parameters]

    @torch.no_grad()
    def update(self, lr):
        for parameter, gradient, i in self.moved():
            self.means[i] = 0.9 * self.means[i] + gradient
            parameter -= lr * self.means[i]

    def moments(self):
        return {f"mean.{i}": mean for i, mean in enumerate(self.means)}


class Decaying(SGD):
    """Adds the decay of weights to their gradients."""

    def update(self, lr):
        for parameter, gradient, _ in self.moved():
            gradient.add_(parameter.detach(), alpha=0.1)
        super().update(lr)


@pytest.mark.parametrize("settings", [{}, {"warmup": 2}])
@pytest.mark.parametrize("name", optim.registry.names())
def test_every_optimiser_keeps_the_contract(name: str, settings: dict[str, int]) -> None:
    check_optimizer(name, **settings)


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (MovesAll, "a parameter moved whose group has a learning rate of 0"),
        (OwnRate, "a parameter moved whose group has a learning rate of 0"),
        (Ascending, "parameters move along the gradient, which raises the loss; subtract lr times the gradient"),
        (OnlyOnOrOff, "a parameter whose group has half of the learning rate moves as one that has all of it"),
        (Unsaved, "a restored optimiser goes on differently"),
        (Decaying, r"update\(\) changes gradients, which hooks after the step read; change a copy"),
        (Replaced, r"update\(\) replaces \['mean.0'"),
    ],
)
def test_a_faulty_optimiser_is_caught(faulty, kind: type[Optimizer], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_optimizer(faulty(kind))


# ---------------------------------------------------------------------- augmentations and backbones


class Inverting(Augmentation):
    def __call__(self, images: Tensor, *, views: int, generator: torch.Generator) -> Tensor:
        return super().__call__(images.bitwise_xor_(255), views=views, generator=generator)


class Dropping(Augmentation):
    def __call__(self, images: Tensor, *, views: int, generator: torch.Generator) -> Tensor:
        return super().__call__(images, views=views, generator=generator)[:, : len(images) // 4 * 4]


class Raw(Augmentation):
    """Leaves out the normalisation."""

    def __call__(self, images: Tensor, *, views: int, generator: torch.Generator) -> Tensor:
        return super().__call__(images, views=views, generator=generator) * self.std + self.mean


class Repeating(Augmentation):
    def __call__(self, images: Tensor, *, views: int, generator: torch.Generator) -> Tensor:
        return super().__call__(images, views=1, generator=generator).repeat(views, 1, 1, 1, 1)


class Mixing(Augmentation):
    """Takes (images, views) for (views, images)."""

    def __call__(self, images: Tensor, *, views: int, generator: torch.Generator) -> Tensor:
        made = super().__call__(images, views=views, generator=generator)
        return made.transpose(0, 1).reshape(made.shape)


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (Raw, r"standard deviation of 0.\d\d, but 1.88 where they are encoded for use; normalise the views once"),
        (Repeating, "the augmentation returns equal views of every image"),
        (Mixing, r"views \[1\] of the augmentation do not have image 0 in row 0"),
        (Inverting, "the augmentation changes the images that it is given"),
        (Dropping, r"must return views \(2, 5, 3, 8, 8\) of torch.float32 for 5 images, not \(2, 4, 3, 8, 8\)"),
    ],
)
def test_a_faulty_augmentation_is_caught(faulty, kind: type[Augmentation], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_strategy("er", augmentation=faulty(kind))


class Comparing(nn.Module):
    """Standardises by the batch, in evaluation mode, too."""

    class Options(Options):
        """None."""

    def __init__(self, options, image_size) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, bias=False)
        self.norm = nn.BatchNorm2d(8, track_running_stats=False)

    def forward(self, images: Tensor) -> Tensor:
        return self.norm(self.conv(images)).relu().mean((2, 3))


class SlowWeights(SGD):
    """Lookahead, whose slow weights do not begin as zeros."""

    def __init__(self, parameters, options, *, fused=False) -> None:
        super().__init__(parameters, options, fused=fused)
        self.slow = [parameter.detach().clone() for parameter in self.parameters]

    def moments(self):
        return super().moments() | {f"slow.{i}": slow for i, slow in enumerate(self.slow)}


def test_an_optimiser_whose_reset_zeroes_what_is_not_zero_at_the_start_is_caught(faulty) -> None:
    with pytest.raises(AssertionError, match=r"reset\(\) leaves \['slow.0', .* unlike a new optimiser's"):
        check_optimizer(faulty(SlowWeights))


class WithDropout(Comparing):
    def __init__(self, options, image_size) -> None:
        super().__init__(options, image_size)
        self.norm = nn.Sequential(nn.BatchNorm2d(8), nn.Dropout(0.2))


class Remembering(Comparing):
    """Counts in evaluation mode, and reads the count in training mode."""

    def __init__(self, options, image_size) -> None:
        super().__init__(options, image_size)
        self.norm = nn.BatchNorm2d(8)
        self.register_buffer("asked", torch.zeros(()))

    def forward(self, images: Tensor) -> Tensor:
        if not self.training:
            self.asked.add_(1)
            return super().forward(images)
        return super().forward(images) * (1 + self.asked)


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (Remembering, "calling transform changes what is learned"),
        (Comparing, "the features of an image depend on the images that are encoded with it"),
        (WithDropout, "two runs from one seed differ, .* not from torch's own, as nn.Dropout does"),
    ],
)
def test_a_faulty_backbone_is_caught(faulty, kind: type[nn.Module], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_strategy("er", backbone=faulty(kind))
