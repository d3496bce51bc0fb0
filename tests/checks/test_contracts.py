"""The public contract suites on everything registered, and proof that they notice a broken contract."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

import ocssl
from ocssl.checks import check_memory, check_method, check_strategy, small_learner, small_stream
from ocssl.errors import ConfigError
from ocssl.memory import Fifo, Memory
from ocssl.strategies import Strategy

# Every strategy that has choices of its own in a variant, and one that has none: the authors' views and passes.
STRATEGIES = ocssl.strategies.registry
# What the authors chose is quick to check; the choices of each strategy's own origin are checked by `make test-slow`.
VARIANTS = [
    pytest.param(name, variant, marks=pytest.mark.slow if variant == "original" else ())
    for name in STRATEGIES.names()
    for variant in STRATEGIES.variants(name)
]
VARIANTS.append(pytest.param("er", "authors"))


@pytest.mark.parametrize("name", ocssl.strategies.registry.names())
def test_every_strategy_keeps_the_contract(name: str) -> None:
    check_strategy(name, joint_views=True)  # each view alone: in the grid of methods


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_every_strategy_keeps_the_contract_in_its_variants(name: str, variant: str) -> None:
    check_strategy(name, variant=variant)


@pytest.mark.slow  # simsiam: also the example in the docstring of check_method
@pytest.mark.parametrize("name", ocssl.methods.registry.names())
@pytest.mark.parametrize("options", [{}, {"views": 4}])
def test_every_method_keeps_the_contract(name: str, options: dict[str, int]) -> None:
    check_method(name, **options)


@pytest.mark.parametrize("name", [*ocssl.memory.registry.names(), "part-and-select"])
def test_every_memory_keeps_the_contract(name: str) -> None:
    check_memory(name)


def test_the_variants_of_minred_keep_the_contract(faulty) -> None:
    for variant, settings in (("original", {}), ("original", {"selection": "simultaneous"}), ("authors", {})):
        faulty(ocssl.memory.registry.get("minred", variant))
        check_memory("faulty", **settings)


@pytest.mark.parametrize("name", ["cassle", pytest.param("cassle-r", marks=pytest.mark.slow)])
def test_the_original_cassle_keeps_the_contract_with_simclr(name: str) -> None:
    check_strategy(name, variant="original", method="simclr")


@pytest.mark.parametrize("distance", ["method", "original"])
@pytest.mark.parametrize("method", ["byol", "moco", "barlow", "vicreg"])
def test_the_original_cassle_learns_with_the_distances_of_each_method(method: str, distance: str) -> None:
    learner = small_learner("cassle", variant="original", method=method, distance=distance, views=3, lr=0.002)
    learner.partial_fit(small_stream(12)).boundary().partial_fit(small_stream(12))
    assert torch.tensor(learner.losses["alignment"]).isfinite()


def test_a_strategy_that_draws_from_elsewhere_is_caught(faulty) -> None:
    class Unseeded(Strategy):
        def mix(self, views: Tensor, batch, generator) -> Tensor:
            return views + torch.rand(())

    faulty(Unseeded)
    with pytest.raises(AssertionError, match="two runs from one seed differ"):
        check_strategy("faulty")


def test_a_strategy_with_a_secret_is_caught_when_resumed(faulty) -> None:
    class Secretive(Strategy):
        steps = 0

        def mix(self, views: Tensor, batch, generator) -> Tensor:
            self.steps += 1
            return views * (1 + self.steps / 100)

    faulty(Secretive)
    with pytest.raises(AssertionError, match="resumed run differs"):
        check_strategy("faulty")


class Idle(Strategy):
    """Has a head whose output comes nowhere near the loss."""

    def __init__(self, setup, options) -> None:
        super().__init__(setup, options)
        self.head = torch.nn.Linear(setup.output_dim, 2)

    def penalty(self, step):
        return {
            "penalty": 0.1 * step.features.projected.square().mean() + self.part(self.head(step.features.projected))
        }

    def part(self, output: Tensor) -> Tensor:
        return output.detach().sum() * 0


class Weightless(Idle):
    """The same, in the loss with weight zero."""

    def part(self, output: Tensor) -> Tensor:
        return output.sum() * 0


@pytest.mark.parametrize("kind", [Idle, Weightless])
def test_a_head_that_never_learns_is_caught(faulty, kind: type[Strategy]) -> None:
    faulty(kind)
    with pytest.raises(AssertionError, match=r"never trained: \['head.weight', 'head.bias'\]; .* requires_grad_"):
        check_strategy("faulty")


def test_a_head_that_comes_too_late_for_the_optimiser_is_caught(faulty) -> None:
    class Late(Strategy):
        def penalty(self, step):
            if not hasattr(self, "scale"):
                self.scale = torch.nn.Parameter(torch.ones(()))
            return {"penalty": 0.1 * (self.scale * step.features.projected).square().mean()}

    faulty(Late)
    with pytest.raises(AssertionError, match=r"never trained: \['scale'\]"):
        check_strategy("faulty")


def test_a_method_with_a_head_that_never_learns_is_caught(faulty) -> None:
    from ocssl.methods import SimSiam

    class Idle(SimSiam):
        def __init__(self, dims, options=None) -> None:
            super().__init__(dims, options)
            self.head = torch.nn.Linear(dims.output, 2)

    faulty(Idle)
    with pytest.raises(AssertionError, match=r"never trained: \['method.head.weight', 'method.head.bias'\]"):
        check_method("faulty")


class Leaky(Strategy):
    """Follows a teacher that it forgot to freeze, and to run without gradients."""

    def __init__(self, setup, options) -> None:
        super().__init__(setup, options)
        self.teacher = copy.deepcopy(setup.encoder)

    def penalty(self, step):
        target = self.teacher(step.views, step.features.joint).projected
        return {"follow": 0.1 * (step.features.projected - target).square().mean()}


class Thawing(Leaky):
    """Freezes it, and thaws it later."""

    def __init__(self, setup, options) -> None:
        super().__init__(setup, options)
        self.teacher.requires_grad_(False)

    def boundary(self, encoder) -> None:
        self.teacher.requires_grad_(True)


@pytest.mark.parametrize("kind", [Leaky, Thawing])
def test_a_strategy_that_trains_its_teacher_is_caught(faulty, kind: type[Strategy]) -> None:
    faulty(kind)
    with pytest.raises(AssertionError, match=r"teacher or frozen parameter received a gradient: \['teacher.backbone"):
        check_strategy("faulty")


def test_a_teacher_that_is_neither_frozen_nor_trained_is_caught(faulty) -> None:
    class Unfrozen(Leaky):
        def penalty(self, step):
            with torch.no_grad():
                target = self.teacher(step.views, step.features.joint).projected
            return {"follow": 0.1 * (step.features.projected - target).square().mean()}

    faulty(Unfrozen)
    with pytest.raises(AssertionError, match=r"never trained: \['teacher.backbone"):
        check_strategy("faulty")


def test_a_memory_that_keeps_a_sample_twice_is_caught(faulty) -> None:
    class Doubling(Fifo):
        def insert(self, images, columns, generator) -> None:
            super().insert(images, columns, generator)
            for rows in (self.images, *self.columns.values()):
                rows[1] = rows[0]

    with pytest.raises(AssertionError, match="a sample is kept twice"):
        check_memory(faulty(Doubling))


def test_an_encoder_whose_gradients_are_not_followed_is_found() -> None:
    with pytest.raises(AssertionError, match="never trained"):
        check_strategy("er", lr=0.0)


def test_a_wrong_cost_is_caught(faulty) -> None:
    class Dear(Strategy):
        backward_passes = 3

    faulty(Dear)
    with pytest.raises(
        AssertionError, match=r"cost 8 CBP, but 24 are planned for it; set .* attribute backward_passes"
    ):
        check_strategy("faulty")


def test_a_strategy_that_keeps_the_encoder_is_caught(faulty) -> None:
    class Keeping(Strategy):
        def __init__(self, setup, options) -> None:
            super().__init__(setup, options)
            self.network = setup.encoder

    faulty(Keeping)
    with pytest.raises(AssertionError, match=r"the strategy keeps the encoder itself: \['network.backbone"):
        check_strategy("faulty")


def test_defaults_of_settings_that_do_not_exist_are_caught(faulty) -> None:
    class Misspelt(Strategy):
        defaults = {"metod": "simclr"}

    faulty(Misspelt)
    with pytest.raises(AssertionError, match=r"Misspelt.defaults names settings that no part has: \['metod'\]"):
        check_strategy("faulty")


def test_a_state_that_grows_is_caught(faulty) -> None:
    class Growing(Strategy):
        def __init__(self, setup, options) -> None:
            super().__init__(setup, options)
            self.register_buffer("log", torch.zeros(0))

        def after_minibatch(self, encoder) -> None:
            self.log = torch.cat([self.log, torch.ones(1)])

    faulty(Growing)
    with pytest.raises(AssertionError, match="the state grows with the stream"):
        check_strategy("faulty")


def test_a_method_that_ignores_a_third_view_is_caught(faulty) -> None:
    from ocssl.losses import negative_cosine
    from ocssl.methods import Method

    class TwoViews(Method):
        def loss(self, step):
            first, second = step.features.projected[:2]
            return negative_cosine(first, second.detach()) + negative_cosine(second, first.detach())

    faulty(TwoViews)
    with pytest.raises(AssertionError, match=r"with 3 views, the loss gives views \[2\] no gradient"):
        check_method("faulty")


class Hasty(Fifo):
    """Samples any slot, filled or not."""

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        return torch.randperm(self.capacity, generator=generator)[:n]


class Backwards(Memory):
    """Fills its slots from the last to the first."""

    def assign_slots(self, n: int, generator: torch.Generator) -> Tensor:
        return self.capacity - 1 - (self.arrived + self.slots[:n]) % self.capacity


@pytest.mark.parametrize("kind", [Hasty, Backwards])
def test_an_empty_slot_that_is_sampled_while_the_memory_fills_is_caught(faulty, kind: type[Memory]) -> None:
    faulty(kind)
    with pytest.raises(
        AssertionError, match=r"slot \d+ (of the memory )?was sampled, (an empty one|but never written)"
    ):
        check_strategy("er", memory="faulty")


class Unseeded(Fifo):
    """Samples with torch's own generator."""

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        return torch.randperm(len(self))[:n]


class Rotating(Fifo):
    """Samples the slots in turn, and counts in a plain attribute."""

    turn = 0

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        self.turn += 1
        return (self.slots[:n] + self.turn) % len(self)


class Few(Fifo):
    """Samples one slot less than it should."""

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        return super().sample(n, generator)[1:]


class FromTheEnd(Fifo):
    """Counts its slots from the end."""

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        return super().sample(n, generator) - len(self)


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (Unseeded, "a restored memory samples differently; draw from the generator that is passed"),
        (Rotating, "a restored memory samples differently; .* keep state in own_columns\\(\\) or extra_state"),
        (Few, "sample\\(4\\) must return 4 slots"),
        (FromTheEnd, "slot -\\d was sampled, an empty one"),
    ],
)
def test_a_memory_that_samples_wrongly_is_caught(faulty, kind: type[Memory], complaint: str) -> None:
    faulty(kind)
    with pytest.raises(AssertionError, match=complaint):
        check_memory("faulty")


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        (
            lambda z: {"far": z.square().mean(-1)},
            r"loss 'far' must be a tensor of one number, not one of shape \(2, 4\)",
        ),
        (lambda z: {"far": 0.5}, "loss 'far' must be a tensor of one number, not float"),
        (lambda z: {"total": z.mean()}, "loss 'total' is the sum of all terms; give the term another name"),
        (lambda z: {"ssl": z.mean()}, r"penalty\(\) must return terms of the loss by name, not a term 'ssl'"),
        (lambda z: z.mean(), r"penalty\(\) must return terms of the loss by name, not Tensor"),
    ],
)
def test_terms_that_are_no_loss_are_refused_by_name(faulty, terms, message: str) -> None:
    class Wrong(Strategy):
        def penalty(self, step):
            return terms(step.features.projected)

    faulty(Wrong)
    with pytest.raises(ConfigError, match=message):
        small_learner("faulty").partial_fit(small_stream(4))


def test_a_loss_without_gradient_is_refused(faulty) -> None:
    class Detached(Strategy):
        def losses(self, step):
            return {"ssl": self.method.loss(step).detach()}

    faulty(Detached)
    with pytest.raises(ConfigError, match=r"no gradient comes from the loss \(ssl\)"):
        small_learner("faulty").partial_fit(small_stream(4))


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"composition": "replay+stream", "default_memory": "fifo"}, "Odd.composition must be one of"),
        ({"insert_at": "befor"}, "Odd.insert_at must be 'before' or 'after', not 'befor'"),
        ({"composition": "stream+replay"}, "Odd replays .* and needs a default_memory"),
    ],
)
def test_a_composition_that_cannot_be_is_refused(faulty, attributes: dict[str, str], message: str) -> None:
    faulty(type("Odd", (Strategy,), attributes))
    with pytest.raises(ConfigError, match=message):
        small_learner("faulty")
