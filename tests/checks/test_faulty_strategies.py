"""Faulty strategies: the checks find each of them, and say what to correct."""

from __future__ import annotations

import pytest
import torch

from ocssl.checks import check_strategy, small_learner, small_stream
from ocssl.errors import ConfigError
from ocssl.memory import Column
from ocssl.nn import Features, frozen_copy
from ocssl.strategies import CaSSLe, ClaE, ExperienceReplay, Strategy


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


class AddsZero(ExperienceReplay):
    """Has a term of the loss, 0 on the CPU, where there is none."""

    def penalty(self, step):
        return {"none": torch.tensor(0.0)} if step.batch.slots is None else {}


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
        (AddsZero, r"terms \['none'\] of the loss are made on the CPU, .* leave them out"),
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
