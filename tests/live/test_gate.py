"""The gate: a learning rate that ruins a network is noticed, and what is published is never worse than the start."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from frames import TINY, quiet_learn, tiny_options, write_frames
from PIL import Image

from ocssl import Learner
from ocssl.cli import app
from ocssl.errors import CheckpointError, ConfigError, DataError, DivergedError
from ocssl.evaluation.quality import find_order, in_time, nearest, raw_pixels, standard_error
from ocssl.export import load
from ocssl.export.encoder import FrozenEncoder
from ocssl.imaging import decode
from ocssl.live import gate as gate_module
from ocssl.live import learn
from ocssl.live.gate import MIN_KEPT, PATIENCE, SHARES, Gate, Quality
from ocssl.live.options import LiveOptions
from ocssl.live.sample import EvenSample
from ocssl.live.sources import reference_images
from ocssl.live.summary import order_line, quality_line, summary, verdict

COUNT, LONG = 320, 20  # images, and images in a row that show the same thing


def scenes(count: int = COUNT) -> np.ndarray:
    """Images ``(count, 8, 8, 3)``: every twenty in a row show the same sixteen squares, with squares of noise added."""
    draws = np.random.default_rng(0)
    patterns = draws.normal(128, 30, (-(-count // LONG), 4, 4, 3)).repeat(LONG, 0)[:count]
    squares = patterns + draws.normal(0, 40, patterns.shape)
    return np.clip(squares.repeat(2, 1).repeat(2, 2), 0, 255).astype(np.uint8)


def projecting() -> torch.nn.Module:
    """A linear network that knows much at the start: a random projection of the squares."""
    torch.manual_seed(0)
    pool, flat, linear = torch.nn.AvgPool2d(2), torch.nn.Flatten(), torch.nn.Linear(48, 24, bias=False)
    return torch.nn.Sequential(pool, flat, linear)


@pytest.fixture(autouse=True)
def fewer_random_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the random orders are enough: each stream here is far from the limit of z."""
    monkeypatch.setattr("ocssl.evaluation.quality.PERMUTATIONS", 50)


@pytest.fixture(scope="module")
def ordered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scenes")
    for number, image in enumerate(scenes()):
        Image.fromarray(image).save(folder / f"{number:04d}.png")
    return folder


@pytest.fixture(scope="module")
def shuffled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shuffled")
    for number, image in enumerate(np.random.default_rng(1).permutation(scenes())):
        Image.fromarray(image).save(folder / f"{number:04d}.png")
    return folder


def share_in_time(features: np.ndarray) -> float:
    interval, _ = find_order(raw_pixels(torch.from_numpy(scenes()).permute(0, 3, 1, 2)))
    return float(in_time(nearest(features, gap=interval.gap), interval.window).mean())


def guarded(source: Path, state: Path, **options: object) -> tuple[Learner, list[str]]:
    """A learner that began with the projection, and what it said."""
    lines: list[str] = []
    fixed = {"backbone": projecting(), "stream_batch": 8, "batch": 16, "check_every": 100, "report_every": 1000}
    fixed["info"] = lines.append
    return quiet_learn(source, state, **{**fixed, **options}), lines


def published(state: Path) -> np.ndarray:
    return load(state, backbone=projecting()).transform(scenes())


@pytest.mark.parametrize("lr", [0.01, *(pytest.param(lr, marks=pytest.mark.slow) for lr in (1.0, 100.0)), 1e6])
def test_a_ruinous_rate_is_noticed_in_time_and_what_is_published_is_never_below_the_start(
    ordered: Path, tmp_path: Path, lr: float
) -> None:
    learner, lines = guarded(ordered, tmp_path / "state", lr=lr, stream_batch=4, batch=8)
    start = Learner(**{**TINY, "backbone": projecting(), "mean": learner.mean, "std": learner.std})
    assert share_in_time(published(tmp_path / "state")) >= share_in_time(start.transform(scenes()))
    backs = [line for line in lines if "learning goes back to image" in line]
    assert learner.lr * 2 ** len(backs) == lr
    if lr > 0.01:
        assert backs[0].endswith(f"learning goes back to image 0 with half the learning rate, {lr / 2:.3g}")
        assert len(backs) >= 2
        noticed = int(backs[0].removeprefix("image ").partition(":")[0])
        latest = {1.0: 100 * PATIENCE, 100.0: 100, 1e6: 99}  # a slow fall, a clear one, and a loss that is not finite
        assert noticed <= latest[lr]
    assert any(line.startswith("the images have an order in time") for line in lines)
    assert "neighbours in time" in lines[1] or lr == 1e6
    assert lines[-1].startswith(("learning has not helped", "learning has helped"))


def test_with_the_gate_off_a_ruined_encoder_is_published(ordered: Path, tmp_path: Path) -> None:
    learner, lines = guarded(ordered, tmp_path / "state", lr=100.0, gate=False)
    assert learner.lr == 100.0
    assert published(tmp_path / "state") == pytest.approx(learner.transform(scenes()), abs=1e-6)
    assert lines[-1].startswith("learning has not helped")
    (metrics, *_) = reversed((tmp_path / "state" / "metrics.jsonl").read_text().splitlines())
    quality = json.loads(metrics)["quality"]
    assert quality["in_time"] < quality["start"]


def test_a_second_start_goes_on_with_the_smaller_rate_and_reads_the_source_of_the_weights_never_again(
    ordered: Path, tmp_path: Path
) -> None:
    torch.save(projecting().state_dict(), file := tmp_path / "w.pth")
    blank = projecting()
    torch.nn.init.zeros_(blank[2].weight)
    lines: list[str] = []

    def info(line: str) -> None:
        lines.append(line)
        file.unlink(missing_ok=True)

    first, _ = guarded(ordered, tmp_path / "state", lr=100.0, backbone=blank, weights=str(file), info=info)
    assert "from the weights" in lines[0]
    assert any("learning goes back to image" in line for line in lines)
    before = published(tmp_path / "state")
    start = Learner(**{**TINY, "backbone": projecting(), "mean": first.mean, "std": first.std})
    assert share_in_time(before) >= share_in_time(start.transform(scenes()))
    again, _ = guarded(ordered, tmp_path / "state", lr=100.0)
    assert again.lr == first.lr < 100.0
    assert again.config == first.config
    assert np.array_equal(published(tmp_path / "state"), before)
    with pytest.raises(ConfigError, match=r"was begun with lr=100\.0, not 0\.1"):
        guarded(ordered, tmp_path / "state", lr=0.1)


def test_images_without_an_order_are_found_and_judged_by_rank(shuffled: Path, tmp_path: Path) -> None:
    _, lines = guarded(shuffled, tmp_path / "state", lr=100.0)
    assert any(line.startswith("the images have no order in time") for line in lines)
    assert any("the effective rank fell" in line for line in lines)
    assert not any("neighbours in time fell" in line for line in lines)
    (metrics, *_) = reversed((tmp_path / "state" / "metrics.jsonl").read_text().splitlines())
    quality = Quality(**json.loads(metrics)["quality"])
    assert quality.order < 4
    assert quality.rank_published >= 0.95 * quality.rank_start


def test_nothing_is_measured_on_fewer_than_a_hundred_images() -> None:
    gate = Gate(learner := Learner(**TINY), check_every=10)
    gate.sample.add(torch.from_numpy(scenes(MIN_KEPT - 1)).permute(0, 3, 1, 2))
    learner.partial_fit(scenes(40))
    assert gate.due(learner)
    assert gate.check(learner) == (learner, None)
    assert gate.quality is None


def test_the_smallest_sample_that_can_be_asked_for_is_large_enough_at_any_time() -> None:
    (least,) = [entry.ge for entry in LiveOptions.model_fields["sample_size"].metadata if hasattr(entry, "ge")]
    sample, held = EvenSample(least, side=1), []
    for image in torch.zeros(1000, 1, 3, 1, 1, dtype=torch.uint8):
        sample.add(image)
        held.append(len(sample))
    assert min(held[MIN_KEPT - 1 :]) >= MIN_KEPT


def test_few_images_publish_the_start_and_that_is_told(
    ordered: Path, tmp_path: Path, warnings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    few = tmp_path / "few"
    few.mkdir()
    for path in sorted(ordered.iterdir())[: MIN_KEPT - 1]:
        (few / path.name).write_bytes(path.read_bytes())
    options = [*tiny_options(), *("--set", "stream_batch=20", "--set", "batch=40")]
    app(["learn", str(few), "--state", str(tmp_path / "state"), *options], standalone_mode=False)
    before, after = (line for line in warnings if "too few" in line)
    assert before == after == warnings[-1]
    assert f"{MIN_KEPT - 1} images are too few to tell whether learning helps" in after
    assert "give at least 100, or publish what is learned with --no-gate" in after
    assert f"encoder, still that of the start: {tmp_path / 'state' / 'encoder'}" in capsys.readouterr().out
    assert load(tmp_path / "state").facts["seen"] == 0
    app(["learn", str(few), "--state", str(tmp_path / "all"), "--no-gate", *options], standalone_mode=False)
    assert capsys.readouterr().out.endswith(f"encoder: {tmp_path / 'all' / 'encoder'}\n")
    assert sum("too few" in line for line in warnings) == 2


def improved(**options: object) -> tuple[Gate, Learner]:
    """A learner whose start knows little, and a gate that has found what came after it better."""
    learner = Learner(**{**TINY, "backbone": projecting()})
    weights = learner.network[2].weight
    with torch.no_grad():
        weights[4:] = 0
        gate = Gate(learner, check_every=100, **options)
        weights.copy_(projecting()[2].weight)
    gate.sample.add(torch.from_numpy(scenes(200)).permute(0, 3, 1, 2))
    learner.seen = 200
    gate.check(learner)
    return gate, learner


def test_the_standard_error_of_a_check_is_that_of_the_published_encoder() -> None:
    gate, learner = improved()
    learner.seen = 240
    assert gate.published.facts["seen"] == 200
    with torch.no_grad():
        learner.network[2].weight[1:] = 0  # a present encoder that is worse, so that it is not published
    gate.check(learner)
    assert gate.published.facts["seen"] == 200
    assert gate.quality.in_time < gate.quality.published
    window = gate.quality.window
    near = [
        in_time(nearest(one.transform(scenes(200)), gap=gate.quality.gap), window)
        for one in (gate.published, gate._start.encoder)
    ]
    assert gate.quality.error > 0
    assert gate.quality.error == pytest.approx(standard_error(near[0] - near[1], 2 * window))


def test_going_back_keeps_what_was_seen_and_restores_what_was_trained() -> None:
    learner = Learner(**TINY).partial_fit(scenes(20))
    snapshot = learner.snapshot()
    good = learner.transform(scenes(20))
    learner.partial_fit(scenes(26))
    back = learner.go_back(snapshot, lr=learner.lr / 2)
    assert np.array_equal(back.transform(scenes(20)), good)
    assert (back.seen, back.pending, back.budget.spent) == (44, 2, learner.budget.spent)
    assert back.lr == learner.lr / 2
    assert torch.equal(back.train_state.memory.images, learner.train_state.memory.images)
    assert torch.equal(back.train_state.generator.get_state(), learner.train_state.generator.get_state())


@pytest.mark.parametrize("strategy", ["er", "adapt"])
def test_what_is_deployed_stays_where_the_learning_rate_is_0_after_going_back(strategy: str) -> None:
    own = {"heads_first": 0} if strategy == "adapt" else {}
    learner = Learner(**{**TINY, "strategy": strategy, "average": 0.9, **own}).partial_fit(scenes(24))
    snapshot = learner.snapshot()
    back = learner.partial_fit(scenes(24)).go_back(snapshot, lr=0.0)
    before = [weights.clone() for weights in back.train_state.deployed.parameters()]
    back.partial_fit(scenes(24))
    assert back.seen == 72
    for weights, known in zip(back.train_state.deployed.parameters(), before, strict=True):
        torch.testing.assert_close(weights, known)


def test_stored_features_go_back_with_the_weights_that_made_them() -> None:
    learner = Learner(**{**TINY, "strategy": "cla-r"}).partial_fit(scenes(24))
    stored = learner.train_state.memory.columns["features"].clone()
    snapshot = learner.snapshot()
    back = learner.partial_fit(scenes(24)).go_back(snapshot)
    assert torch.equal(back.train_state.memory.columns["features"], stored)


def test_a_loss_that_is_not_finite_goes_back_and_gives_up_only_after_many_rates() -> None:
    gate, learner = Gate(Learner(**TINY)), Learner(**TINY)
    for _ in range(20):
        learner, said = gate.go_back(learner, "the loss became NaN")
    assert "learning goes back to image 0 with half the learning rate" in said
    with pytest.raises(DivergedError, match="20 smaller learning rates did not help either"):
        gate.go_back(learner, "the loss became NaN")


def test_a_saved_gate_decides_as_the_first(tmp_path: Path) -> None:
    gate, learner = improved(reference=torch.zeros(60, 3, 8, 8, dtype=torch.uint8))
    gate.save(tmp_path / "gate")
    learner.seen = 240
    other = Gate(learner, check_every=100)
    other.restore(tmp_path / "gate", learner)
    assert other.quality == gate.quality
    assert torch.equal(other.reference, gate.reference)
    other.save(tmp_path / "again")
    first, second = (json.loads((tmp_path / name / "gate.json").read_text())["facts"] for name in ("gate", "again"))
    assert first == second
    narrow = Learner(**{**TINY, "backbone": "convnet-w4"})
    with pytest.raises(CheckpointError, match="does not fit this learner"):
        Gate(narrow).restore(tmp_path / "gate", narrow)


class Mixing(torch.nn.Module):
    """What a strategy that mixes weights offers to the gate."""

    def __init__(self, learner: Learner, ruined: float) -> None:
        super().__init__()
        self.network, self.ruined, self.tried = learner.network, ruined, []
        self.start = [p.detach().clone() for p in self.network.parameters()]

    def remix(self, share: float) -> None:
        self.tried.append(share)
        with torch.no_grad():
            for number, (p, start) in enumerate(zip(self.network.parameters(), self.start, strict=True)):
                noise = torch.randn(p.shape, generator=torch.Generator().manual_seed(number))
                p.copy_(start + share * self.ruined * noise)


@pytest.mark.parametrize(("ruined", "least", "chosen"), [(0.0, 0.5, 1.0), (9.0, 0.999, 0.0)])
def test_a_strategy_that_mixes_weights_gets_the_best_share_that_agrees(
    ruined: float, least: float, chosen: float
) -> None:
    learner = Learner(**TINY)
    gate = Gate(learner, least_agreement=least)
    mixing = Mixing(learner, ruined)
    learner.train_state.strategy.remix = mixing.remix
    gate.sample.add(torch.from_numpy(scenes(200)).permute(0, 3, 1, 2))
    learner.seen = 200
    assert gate.check(learner) == (learner, None)
    assert mixing.tried == [*SHARES, chosen]
    for learner.seen in (300, 400):
        again, said = gate.check(learner)
    if chosen:
        assert (again, said) == (learner, None)
    else:  # the start hides what was learned, which may be anything
        assert said.startswith("image 400: no share of what was learned helps; learning goes back to image 0")
        assert again.lr == learner.lr / 2


@pytest.mark.parametrize(("ruined", "chosen"), [(0.01, 1.0), (1e4, 0.0)])
def test_without_an_order_the_largest_share_is_taken_whose_rank_does_not_collapse(ruined: float, chosen: float) -> None:
    learner = Learner(**TINY)
    gate = Gate(learner, least_agreement=0.0)
    mixing = Mixing(learner, ruined)
    learner.train_state.strategy.remix = mixing.remix
    images = np.random.default_rng(1).permutation(scenes(400))
    gate.sample.add(torch.from_numpy(images).permute(0, 3, 1, 2))
    learner.seen = 400
    gate.check(learner)
    assert not gate.quality.ordered
    assert mixing.tried[-1] == chosen
    assert (gate.published.facts["seen"] == 400) == (chosen > 0)


def test_a_check_computes_ranks_and_neighbours_once_for_each_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 1,280 features a rank takes a third of a second, and a check of 1,000 images asked for eleven."""
    asked: list[tuple[str, bytes, object]] = []
    for name in ("effective_rank", "nearest"):
        compute = getattr(gate_module, name)

        def counted(features: torch.Tensor, *, name: str = name, compute: object = compute, **gap: int) -> object:
            asked.append((name, features.numpy().tobytes(), gap.get("gap", 0)))
            return compute(features, **gap)

        monkeypatch.setattr(gate_module, name, counted)
    learner = Learner(**TINY)
    gate = Gate(learner)
    gate.sample.add(torch.from_numpy(scenes(200)).permute(0, 3, 1, 2))
    learner.partial_fit(scenes(200))
    gate.check(learner)
    assert {name for name, *_ in asked} == {"effective_rank", "nearest"}
    assert len(set(asked)) == len(asked)


def test_reference_images_hold_an_encoder_back_that_forgets_them(ordered: Path, tmp_path: Path) -> None:
    options = {"lr": 0.05, "check_every": 100, "least_agreement": 1.0}
    quiet_learn(ordered, tmp_path / "state", reference=str(ordered), **options)
    assert load(tmp_path / "state").facts["seen"] == 0
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / "1.png").write_bytes((ordered / "0000.png").read_bytes())
    with pytest.raises(DataError, match="has 1 usable image; a reference needs at least 50"):
        quiet_learn(ordered, tmp_path / "other", reference=str(tmp_path / "few"), **options)


def test_going_back_for_want_of_agreement_names_the_agreement(ordered: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    options = {"lr": 0.001, "check_every": 100, "least_agreement": 1.0, "reference": str(ordered)}
    quiet_learn(ordered, tmp_path / "state", info=lines.append, **options)
    backs = [line for line in lines if "learning goes back" in line]
    assert backs
    assert all(re.search(r": the agreement with the start is [\d.]+ %, below 100.0 %;", b) for b in backs)


def test_every_encoder_sees_the_reference_images_once(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, reference = Learner(**TINY), torch.from_numpy(scenes(60)).permute(0, 3, 1, 2)
    transform, encoders = FrozenEncoder.transform, []

    def counting(encoder: FrozenEncoder, images: torch.Tensor) -> np.ndarray:
        encoders.extend([encoder] if images is reference else [])
        return transform(encoder, images)

    monkeypatch.setattr(FrozenEncoder, "transform", counting)
    gate = Gate(learner, reference=reference)
    gate.sample.add(torch.from_numpy(scenes(200)).permute(0, 3, 1, 2))
    for seen in (500, 1000):
        learner.seen = seen
        learner, _ = gate.check(learner)
    assert len({id(encoder) for encoder in encoders}) == len(encoders) == 3  # the start, and one of each check


def test_reference_images_are_prepared_as_those_of_the_stream(tmp_path: Path) -> None:
    for number in range(60):
        Image.fromarray(np.random.default_rng(number).integers(0, 4096, (8, 16), dtype=np.uint16)).save(
            tmp_path / f"{number:02d}.png"
        )
    settings = Learner(**TINY, fit="squash", pixel_range=[0, 4095]).config
    first = decode(tmp_path / "00.png", 8, "squash", (0, 4095))
    assert np.array_equal(reference_images(str(tmp_path), settings)[0].numpy(), first)


CHECK = Quality(
    seen=500, order=30.0, in_time=0.30, published=0.42, start=0.38, pixels=0.25, colours=0.20, chance=0.04, error=0.01,
    rank=60.0, rank_published=60.0, rank_start=55.0, agreement=0.4, agreement_published=0.6,
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "learning has helped: neighbours in time rose from 38.0 % to 42.0 %"),
        (
            {"published": 0.385},
            "learning has not helped clearly: neighbours in time rose from 38.0 % to 38.5 %, by 0.50 points, and a "
            "rise counts from 2.00 points on; try",
        ),
        (
            {"published": 0.3998},
            "learning has not helped clearly: neighbours in time rose from 38.0 % to 40.0 %, by 1.98 points, and a "
            "rise counts from 2.00 points on; try",
        ),
        ({"published": 0.401}, "learning has helped: neighbours in time rose from 38.0 % to 40.1 %"),
        (
            {"published": 0.384, "error": 0.0004},
            "learning has not helped clearly: neighbours in time rose from 38.0 % to 38.4 %, by 0.40 points, and a "
            "rise counts from 0.50 points on; try",
        ),
        ({"published": 0.38}, "learning has not helped: the published encoder is no better than at the start; try"),
        ({"colours": 0.5}, "learning has helped, but colours alone find at least as many"),
        ({"pixels": 0.5}, "learning has helped, but raw pixels alone find at least as many"),
        ({"order": 1.0}, "the effective rank has grown"),
        ({"order": 1.0, "rank_published": 54.0}, "the effective rank has not fallen; only labels can tell"),
        ({"order": 1.0, "rank_published": 55.0, "agreement_published": 1.0}, "learning has not helped"),
    ],
)
def test_the_last_line_says_whether_learning_has_helped(changes: dict[str, float], said: str) -> None:
    assert verdict(replace(CHECK, **changes)).startswith(said)


@pytest.mark.parametrize("pretrained", [False, True])
def test_a_pretrained_network_is_advised_to_those_who_began_without(pretrained: bool) -> None:
    advice = verdict(replace(CHECK, published=0.38), pretrained=pretrained)
    assert ("pretrained network" in advice) is not pretrained


def test_the_table_has_the_encoders_and_the_yardsticks() -> None:
    head, *rows = summary(CHECK)
    assert head.split("  ")[-1].strip() == "agreement"
    assert [row.split()[-1] for row in rows] == ["%", "%", "%", "%", "%"]
    assert rows[1].split() == ["published", "encoder", "42.0", "%", "60.0", "60", "%"]
    without = [*summary(replace(CHECK, order=0.3))]
    assert not any("colours" in line or "chance" in line for line in without)
    assert "no order in time (z = 0.3, below 4)" in order_line(replace(CHECK, order=0.3))
    assert [replace(CHECK, order=z).ordered for z in (3.9, 4.0)] == [False, True]
    assert quality_line(replace(CHECK, order=0.3)) == "rank 60, at the start 55"


def test_a_network_is_taught_by_a_state_and_measured_beside_it(ordered: Path, tmp_path: Path) -> None:
    quiet_learn(write_frames(tmp_path / "frames", range(8)), tmp_path / "shop")
    student = {name: value for name, value in TINY.items() if name not in ("strategy", "backbone", "image_size")}
    student |= {"backbone": "convnet-w4", "taught_by": str(tmp_path / "shop"), "stream_batch": 8, "batch": 16}
    student |= {"check_every": 160}
    lines: list[str] = []
    learn(str(ordered), tmp_path / "whole", info=lines.append, **student)
    assert lines[0].startswith(f"learning at 8×8 with convnet-w4 from zero, taught by {tmp_path / 'shop'}, batch 16")
    (metrics, *_) = reversed((tmp_path / "whole" / "metrics.jsonl").read_text().splitlines())
    quality = Quality(**json.loads(metrics)["quality"])
    assert quality.teacher is not None
    assert quality.teacher > quality.chance
    assert any(line.startswith("teacher  ") for line in lines)
    assert any(f"teacher {100 * quality.teacher:.0f} %, colours" in line for line in lines)


def test_a_teacher_that_is_better_is_named() -> None:
    assert "the teacher still finds more neighbours in time" in verdict(replace(CHECK, teacher=0.43))
    assert verdict(replace(CHECK, teacher=0.41)).startswith("learning has helped: neighbours in time rose")
    assert "teacher 43 %" in quality_line(replace(CHECK, teacher=0.43))
    assert [row.split()[0] for row in summary(replace(CHECK, teacher=0.43))][3] == "teacher"
