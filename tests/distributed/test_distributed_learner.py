"""N processes take the very steps of one: in double precision they agree to far better than 1e-5.

In single precision both are right too, but a last bit that differs is magnified by every ReLU it pushes over its edge.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from crew import together
from torch import Tensor

from helpers.pages import PAGES, printed_blocks
from ocssl import Learner, distributed, methods, strategies
from ocssl.data.shapes import draw

pytestmark = pytest.mark.scale

STEPS = 50
PAPER = [(strategy, method) for strategy in ("er", "cla-b", "cla-r", "cla-e") for method in ("simsiam", "simclr")]
OTHERS = [
    (name, None) for name in ("finetune", "minred", "lump", "cassle", "cassle-r", "scale", "osiris-r", "pfr", "adapt")
]
UNEVEN = [("cla-r", "simsiam"), ("er", "simclr"), ("er", "moco")]
# Every other method, with its settings: three views, and queues and prototypes that a few steps fill.
METHODS = {
    "byol": {},
    "moco": {"queue_size": 100},
    "barlow": {"lr": 0.01},
    "vicreg": {"lr": 0.001},
    "swav": {"prototypes": 20},
    "dino": {"prototypes": 20},
    "emp": {},
    "emp-simclr": {},
    "lejepa": {"directions": 20},
}
STREAM_BATCH = 8


def make(strategy: str, method: str | None, **settings: object) -> Learner:
    alone = strategy in ("finetune", "lump", "cassle", "cla-b", "pfr")
    batch = STREAM_BATCH if alone else 24
    known = {"backbone": "convnet-w4", "image_size": 8, "stream_batch": STREAM_BATCH, "batch": batch, "passes": 1}
    known |= {"hidden_dim": 16, "output_dim": 32, "device": "cpu", "precision": "fp64", "seed": 1}
    if strategies.registry.get(strategy).default_memory is not None:
        known["memory_size"] = 62
    if strategy == "adapt":
        known["heads_first"] = 4
    return Learner(strategy=strategy, method=method, **known | settings)  # type: ignore[arg-type]


def stream(count: int) -> Tensor:
    return draw(count, size=8, seed=0)[0]


def learn(learner: Learner, images: Tensor) -> Learner:
    """Each process gives its part of every forty images; half way an experience ends."""
    chunks = images.split(5 * STREAM_BATCH)
    for number, chunk in enumerate(chunks):
        learner.partial_fit(chunk[learner.train_state.group.share(len(chunk))])
        if number == len(chunks) // 2:
            learner.boundary()
    return learner


def put_down(learner: Learner, place: Path) -> None:
    """Everything that a saved learner holds, and its last loss."""
    tensors = learner._tensors()
    if learner.train_state.group.is_main:
        losses = {f"loss.{name}": torch.tensor(value) for name, value in learner.losses.items()}
        torch.save(tensors | losses | {"spent": torch.tensor(learner.budget.spent)}, place)


def assert_same(place: Path, alone: Learner, tolerance: float = 1e-5) -> None:
    """The state at ``place`` is that of a learner that was alone; whatever is counted or drawn is so to the bit."""
    found = torch.load(place)
    put_down(alone, place)
    expected = torch.load(place)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if value.is_floating_point():
            assert torch.allclose(found[name], value, rtol=tolerance, atol=tolerance, equal_nan=True), name
        else:
            assert torch.equal(found[name], value), name


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes made."""
    folder = tmp_path_factory.mktemp("pairs")
    together(_two, 2, folder)
    return folder


def _two(folder: Path) -> None:
    for strategy, method in PAPER:
        put_down(learn(make(strategy, method), stream(STEPS * STREAM_BATCH)), folder / f"{strategy}-{method}")
    for strategy, method in OTHERS:
        put_down(learn(make(strategy, method), stream(15 * STREAM_BATCH)), folder / f"{strategy}-{method}")
    for method, settings in METHODS.items():
        learner = learn(make("cla-e", method, views=3, **settings), stream(15 * STREAM_BATCH))
        put_down(learner, folder / f"method-{method}")
    register_sharpness_aware()
    put_down(learn(make("er-sam", "simclr"), stream(15 * STREAM_BATCH)), folder / "er-sam")
    _save_and_go_on(folder)
    rank = distributed.current().rank
    apart = learn(make("cla-e", "simsiam", sync_norm=False, precision="fp32"), stream(10 * STREAM_BATCH))
    torch.save([*apart.train_state.encoder.state_dict().values()], folder / f"apart-{rank}")
    memory = make("er", "simsiam").train_state.memory
    assert memory is not None
    torch.save(torch.tensor(memory.images.shape), folder / f"rows-{rank}")


def register_sharpness_aware() -> None:
    """The strategy of the documentation that takes gradients of its own."""
    block = next(block for block in printed_blocks(*PAGES) if '"er-sam"' in block)
    exec(re.sub(r"^ocssl\.checks.*", "", block, flags=re.M), {})


def _save_and_go_on(folder: Path) -> None:
    images = stream(240)
    learner = make("cla-r", "simsiam", memory="reservoir")
    learner.partial_fit(images[:125][learner.train_state.group.share(125)])  # five wait for a full minibatch
    learner.save(folder / "saved")
    again = Learner.load(folder / "saved")
    again.partial_fit(images[125:][again.train_state.group.share(115)])
    put_down(again, folder / "again")


@pytest.mark.parametrize(("strategy", "method"), PAPER)
def test_two_processes_are_where_one_is_after_fifty_steps(pairs: Path, strategy: str, method: str) -> None:
    alone = learn(make(strategy, method), stream(STEPS * STREAM_BATCH))
    assert alone.budget.steps == STEPS
    assert_same(pairs / f"{strategy}-{method}", alone)


@pytest.mark.parametrize(("strategy", "method"), OTHERS)
def test_so_they_are_for_every_other_strategy(pairs: Path, strategy: str, method: str | None) -> None:
    assert_same(pairs / f"{strategy}-{method}", learn(make(strategy, method), stream(15 * STREAM_BATCH)))


def test_gradients_that_a_strategy_takes_itself_are_those_of_one_process(pairs: Path, monkeypatch) -> None:
    monkeypatch.setattr(strategies.registry, "_entries", dict(strategies.registry._entries))
    register_sharpness_aware()
    assert_same(pairs / "er-sam", learn(make("er-sam", "simclr"), stream(15 * STREAM_BATCH)))


@pytest.mark.parametrize("method", METHODS)
def test_so_they_are_for_every_other_method(pairs: Path, method: str) -> None:
    alone = learn(make("cla-e", method, views=3, **METHODS[method]), stream(15 * STREAM_BATCH))
    assert_same(pairs / f"method-{method}", alone)


def test_every_method_is_tried() -> None:
    assert {method for _, method in PAPER} | METHODS.keys() == set(methods.registry.names())


def test_what_two_saved_goes_on_in_two_and_in_one_without_losing_or_repeating_an_image(pairs: Path) -> None:
    images = stream(240)
    undisturbed = make("cla-r", "simsiam", memory="reservoir").partial_fit(images[:125]).partial_fit(images[125:])
    assert_same(pairs / "again", undisturbed)
    in_one = Learner.load(pairs / "saved")
    assert (in_one.seen, in_one.pending) == (120, 5)
    put_down(in_one.partial_fit(images[125:]), pairs / "in-one")
    assert_same(pairs / "in-one", undisturbed)


def test_each_holds_its_part_of_the_memory(pairs: Path) -> None:
    rows = [int(torch.load(pairs / f"rows-{rank}")[0]) for rank in range(2)]
    assert rows == [62 // 2 + STREAM_BATCH + 1] * 2  # its slots, the staging, and a row for what lies elsewhere


def test_without_common_batch_norm_all_still_have_the_same_weights(pairs: Path) -> None:
    first, second = (torch.load(pairs / f"apart-{rank}") for rank in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    common = learn(make("cla-e", "simsiam", precision="fp32"), stream(10 * STREAM_BATCH))
    weights = common.train_state.encoder.state_dict().values()
    assert not all(torch.allclose(a, b, atol=1e-3) for a, b in zip(first, weights, strict=True))


def test_rows_that_cannot_be_divided_evenly_and_a_remainder_smaller_than_the_group(tmp_path: Path) -> None:
    make("er", "simclr").partial_fit(stream(80)[:41]).save(tmp_path / "one")
    together(_three, 3, tmp_path)
    for strategy, method in UNEVEN:
        alone = make(strategy, method, batch=22).partial_fit(stream(81)).flush()
        assert_same(tmp_path / f"{strategy}-{method}", alone)
    assert_same(tmp_path / "from-one", make("er", "simclr").partial_fit(stream(80)))


def _three(folder: Path) -> None:
    for strategy, method in UNEVEN:
        learner = make(strategy, method, batch=22)
        images = stream(81)
        learner.partial_fit(images[learner.train_state.group.share(81)]).flush()  # one image for three processes
        put_down(learner, folder / f"{strategy}-{method}")
    from_one = Learner.load(folder / "one")
    from_one.partial_fit(stream(80)[41:][from_one.train_state.group.share(39)])
    put_down(from_one, folder / "from-one")
