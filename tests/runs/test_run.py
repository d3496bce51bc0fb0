"""What a run measures, spends, keeps and says."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from drawing import draw
from safetensors.torch import load_file

import ocssl
from helpers.command import TINY, Command, as_options
from ocssl import Learner, data
from ocssl.common.signals import Interrupted
from ocssl.config import known_names
from ocssl.errors import OutOfMemoryError
from ocssl.evaluation import linear_probe
from ocssl.nn import register_backbone
from ocssl.options import setting
from ocssl.results import read_result
from ocssl.results.comparison import comparison_table, group_runs
from ocssl.runs import loop, probes
from ocssl.runs.presets import resolve
from ocssl.runs.run import resume, start, warm_start

SHORT = TINY | {"samples_per_class": 10, "experiences": 2, "stream_batch": 8, "batch": 16}
IID = {name: value for name, value in SHORT.items() if name != "memory_size"} | {"stream": "iid"}


def metrics(run: Path, kind: str) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


@pytest.fixture(scope="module")
def cla_run(ocssl_module: Command) -> Path:
    code, _, err = ocssl_module("run", "-q", "-o", "cla", *as_options(SHORT))
    assert code == 0, err
    return ocssl_module.folder / "cla"


def test_a_run_is_the_learner_fed_with_the_stream_and_nothing_else(cla_run: Path) -> None:
    """The whole run, written out by hand."""
    settings = json.loads((cla_run / "result.json").read_text())["config"]
    source = {split: data.load("shapes", split=split, image_size=8) for split in ("train", "test")}
    first = {
        split: torch.cat([torch.nonzero(s.labels == c).flatten()[:10] for c in range(18)]).sort().values
        for split, s in source.items()
    }
    kept, held_out = data.streams.split_validation(source["train"].labels[first["train"]], 0.1, 0)
    parts = {
        "train": (source["train"], first["train"][kept]),
        "val": (source["train"], first["train"][held_out]),
        "test": (source["test"], first["test"]),
    }
    stream = data.streams.class_incremental(
        source["train"].labels, 2, indices=parts["train"][1], data_seed=0, stream_batch=8
    )
    learner = Learner(**{name: value for name, value in settings.items() if name in known_names(settings)})
    curve = []
    for experience in range(2):
        learner.partial_fit(source["train"].images(stream.indices(experience)))
        arrays = [
            part for pool, rows in parts.values() for part in (learner.transform(pool.images(rows)), pool.labels[rows])
        ]
        curve.append(linear_probe(*arrays, seed=0, classes=18, schedule=resolve(SHORT).probe).accuracy)
        if experience == 0:
            learner.boundary()
    result = read_result(cla_run)
    assert result.curve == curve
    assert result.cbp_spent == learner.budget.spent
    weights = load_file(cla_run / "encoder.safetensors")
    for name, tensor in learner.network.state_dict().items():
        assert torch.equal(weights[name], tensor)


def test_references_stand_beside_the_numbers(cla_run: Path) -> None:
    result = read_result(cla_run)
    assert result.references.keys() == result.knn_references.keys() == {"untrained", "pixels", "histogram"}
    assert [line["point"] for line in metrics(cla_run, "probe")] == ["start", "1", "2", "pixels", "histogram"]
    assert all(0 <= value <= 100 for value in (*result.references.values(), *result.knn_references.values()))


def test_floors_are_measured_without_training(tmp_path: Path, cla_run: Path) -> None:
    floors = start(resolve(SHORT | {"evaluate": "start", "strategy": "er"}), tmp_path / "floors")
    trained = read_result(cla_run)
    assert (floors.references, floors.knn_references) == (trained.references, trained.knn_references)
    assert (floors.final, floors.curve, floors.cbp_spent, floors.train_seconds) == (None, [], 0, 0)


def test_floors_of_an_own_backbone_are_told_apart_by_its_settings(tmp_path: Path) -> None:
    @register_backbone("patches")
    class Patches(torch.nn.Sequential):
        class Options(ocssl.options.Options):
            patch: int = setting(4, "Side of a patch.", ge=1)

        def __init__(self, options: Options, image_size: int) -> None:
            super().__init__(torch.nn.AdaptiveAvgPool2d(image_size // options.patch), torch.nn.Flatten())

    floors = SHORT | {"evaluate": "start", "backbone": "patches", "width": None, "knn": False}
    runs = {tmp_path / str(seed): floors | {"patch": 4 * 2**seed, "seed": seed} for seed in range(2)}
    results = {place: start(resolve(settings), place) for place, settings in runs.items()}
    rows = {row.label: row.values[0].mean for row in comparison_table(*group_runs(results)).rows}
    for seed, result in enumerate(results.values()):
        assert rows[f"shapes untrained encoder, patch {4 * 2**seed}"] == result.references["untrained"]
    assert "shapes raw pixels" in rows


def test_a_run_says_which_test_images_no_probe_can_name(tmp_path: Path) -> None:
    for split, classes in (("train", "ab"), ("test", "abc")):
        for label in classes:
            draw(tmp_path / "images" / split / label, 20)
    settings = SHORT | {"dataset": f"folder:{tmp_path / 'images'}", "samples_per_class": None, "references": False}
    result = start(resolve(settings), tmp_path / "run")
    assert result.final is not None
    assert result.final <= 100 * 2 / 3
    assert result.warnings == [
        "20 of 60 test images count as wrong in every accuracy, since no training image has their class: c"
    ]


def test_the_matrix_averages_to_the_curve_and_gives_the_forgetting(cla_run: Path) -> None:
    result = read_result(cla_run)
    assert np.mean(result.matrix, axis=1) == pytest.approx(result.curve)  # experiences of equal size
    assert result.forgetting == pytest.approx(result.matrix[0][0] - result.matrix[1][0])
    assert sorted(label for classes in result.experiences for label in classes) == list(range(18))


def test_diagnostics_are_logged_along_the_stream(cla_run: Path) -> None:
    lines = metrics(cla_run, "train")
    assert [line["samples"] for line in lines] == [40, 80, 120, 160]
    last = lines[-1]
    assert last["losses"].keys() == {"ssl", "alignment", "total"}
    assert last["alignment"] == pytest.approx(-last["losses"]["alignment"] / 0.3)
    assert last["feature_std"] > 0
    assert last["effective_rank"] > 1


def test_a_collapse_is_seen_told_and_recorded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def constant(learner: Learner) -> dict[str, float]:
        return {"feature_std": 0.001 if 80 <= learner.seen <= 120 else 0.9, "effective_rank": 20.0}

    monkeypatch.setattr(loop, "diagnose", constant)
    monkeypatch.setattr(loop, "warn", said.append)
    result = start(resolve(SHORT | {"evaluate": "never"}), tmp_path / "run")
    assert [warning for warning in result.warnings if "collapsed to a point" in warning] == result.warnings
    assert len(result.warnings) == 1
    assert "at image 80 the features have" in result.warnings[0]
    assert said == result.warnings
    assert "collapsed" in (tmp_path / "run" / "log.txt").read_text()


def test_iid_training_spends_the_planned_cbp_to_within_one_batch(ocssl: Command, tmp_path: Path) -> None:
    settings = IID | {"batch": 17, "passes": 2, "evaluate": "each", "references": False}
    code, out, err = ocssl("run", "-q", "-o", "iid", *as_options(settings))
    assert code == 0, err
    result = read_result(tmp_path / "iid")
    planned = 2 * 17 * 2 * (162 // 8)
    assert result.cbp_planned == planned
    assert abs(result.cbp_spent - planned) < 2 * 17
    assert (result.strategy, result.avg, len(result.curve)) == ("iid", None, 1)
    assert result.block == (8, 17, 2)
    assert result.label.startswith("i.i.d.")
    assert "Avg" not in out


def test_a_run_that_starts_from_another_goes_on_with_its_networks_and_its_account(
    ocssl: Command, tmp_path: Path, cla_run: Path
) -> None:
    before = read_result(cla_run)
    settings = IID | {"cbp": before.cbp_spent + 200, "init_from": str(cla_run)}
    code, _, err = ocssl("run", "-q", "-o", "later", *as_options(settings))
    assert code == 0, err
    later = read_result(tmp_path / "later")
    assert later.references["initial"] == before.final
    assert 0 <= before.cbp_spent + 200 - later.cbp_spent < 2 * 16
    assert later.cbp_planned == later.cbp_spent
    assert later.budget == "custom"


def test_teachers_of_a_run_that_starts_from_another_begin_where_its_encoder_is(cla_run: Path) -> None:
    learner = Learner(**dict(resolve(SHORT | {"strategy": "cla-e", "seed": 5}).learner))
    spent = warm_start(learner, cla_run)
    assert learner.budget.spent == spent == read_result(cla_run).cbp_spent
    weights = load_file(cla_run / "encoder.safetensors")
    teacher = dict(learner.train_state.strategy.target.network.backbone.named_parameters())
    assert all(torch.equal(teacher[name], weights[name]) for name in teacher)


def test_an_average_of_a_run_that_starts_from_another_begins_where_its_encoder_is(
    tmp_path: Path, cla_run: Path
) -> None:
    later = start(resolve(SHORT | {"init_from": str(cla_run), "average": 0.9, "evaluate": "start"}), tmp_path / "later")
    assert later.references["initial"] == read_result(cla_run).final


def test_the_teacher_that_a_run_names_is_not_that_which_it_starts_from(tmp_path: Path, cla_run: Path) -> None:
    export = tmp_path / "teacher"
    heads = {name: dict(resolve(SHORT).learner)[name] for name in ("method", "hidden_dim", "output_dim")}
    Learner(backbone="convnet-w8", image_size=8, seed=7, **heads).save(export)
    taught = {name: value for name, value in SHORT.items() if name not in ("memory", "omega")}
    taught |= {"strategy": "taught", "taught_by": str(export), "seed": 5, **heads}
    plain, warm = (Learner(**dict(resolve(taught).learner)) for _ in range(2))
    warm_start(warm, cla_run)
    teachers = [learner.train_state.strategy.teacher.state_dict() for learner in (plain, warm)]
    assert all(torch.equal(teachers[0][name], teachers[1][name]) for name in teachers[0])


def test_networks_that_do_not_fit_are_refused(ocssl: Command, tmp_path: Path, cla_run: Path) -> None:
    settings = SHORT | {"backbone": "convnet-w4", "init_from": str(cla_run)}
    code, _, err = ocssl("run", "-q", "-o", "later", *as_options(settings))
    assert (code, len(err.splitlines())) == (2, 1)
    assert "do not fit this run's" in err
    assert not (tmp_path / "later").exists()


def test_stretches_of_any_length_make_the_same_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cla_run: Path
) -> None:
    monkeypatch.setattr(loop, "STRETCH_SECONDS", 0.0)  # one minibatch at a time
    start(resolve(SHORT), tmp_path / "run")
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == (cla_run / "metrics.jsonl").read_bytes()


def test_features_that_wait_for_each_other_give_the_same_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cla_run: Path
) -> None:
    """As on a GPU, where probes are trained together at the end."""
    monkeypatch.setattr(probes.ProbeQueue, "full", False)
    result = start(resolve(SHORT), tmp_path / "run")
    assert result.curve == read_result(cla_run).curve
    assert result.references == read_result(cla_run).references


@pytest.mark.parametrize("stream", [{"stream": "blurred", "overlap": 1.0}, {"stream": "ordered"}])
def test_a_run_on_a_stream_without_sharp_borders_is_measured_along_it(
    tmp_path: Path, stream: dict[str, object]
) -> None:
    result = start(resolve(SHORT | stream), tmp_path / "run")
    assert len(result.curve) == len(result.borders) == 2
    assert result.avg == pytest.approx(sum(result.curve) / 2)
    assert len({label for classes in result.experiences for label in classes}) == 18
    assert result.overrides.items() >= stream.items()


def test_the_authors_protocol_drops_incomplete_batches_of_validation_and_test(ocssl: Command, tmp_path: Path) -> None:
    settings = SHORT | {"protocol": "authors", "probe": {"max_epochs": 2, "batch": 50}, "references": False}
    assert ocssl("run", "-q", "-o", "authors", *as_options(settings))[0] == 0
    result = read_result(tmp_path / "authors")
    assert result.protocol == "authors"
    assert (result.curve[-1] * 150 / 100) == pytest.approx(round(result.curve[-1] * 150 / 100))  # of 180 test images


def test_a_run_can_be_measured_at_its_end_only_or_never(tmp_path: Path) -> None:
    final = start(resolve(SHORT | {"evaluate": "final"}), tmp_path / "final")
    never = start(resolve(SHORT | {"evaluate": "never"}), tmp_path / "never")
    assert (len(final.curve), final.avg, final.forgetting) == (1, None, None)
    assert (never.curve, never.final, never.knn, never.references) == ([], None, None, {})


@pytest.mark.parametrize("probe", [1, 3, 5])  # before the first image, after the last experience, without encoder
def test_a_run_stopped_while_a_probe_is_trained_trains_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cla_run: Path, probe: int
) -> None:
    train, calls = probes.linear_probes, 0

    def stopped(*features: object, **settings: object) -> object:
        nonlocal calls
        calls += 1
        if calls == probe:
            os.kill(os.getpid(), signal.SIGTERM)
        return train(*features, **settings)

    monkeypatch.setattr(probes, "linear_probes", stopped)
    with pytest.raises(Interrupted, match="ocssl run --resume"):
        start(resolve(SHORT), tmp_path / "run")
    assert calls == probe
    result = resume(tmp_path / "run")
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == (cla_run / "metrics.jsonl").read_bytes()
    assert result.references == read_result(cla_run).references


def test_a_run_that_lacks_memory_says_where_to_go_on_and_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cla_run: Path
) -> None:
    fit, config = Learner.partial_fit, resolve(SHORT | {"checkpoint_samples": 64})

    def crowded(self: Learner, images: object) -> Learner:
        if self.seen >= 80:
            self.executor.step = lambda stream: torch.empty(1 << 50, dtype=torch.uint8)  # type: ignore[assignment]
        return fit(self, images)

    monkeypatch.setattr(Learner, "partial_fit", crowded)
    with pytest.raises(OutOfMemoryError) as caught:
        start(config, tmp_path / "run")
    message = str(caught.value)
    assert message.startswith("cpu has too little memory left for training on 16 images of 8×8")
    assert "the last good checkpoint is " in message
    assert message.endswith(f"; go on with: ocssl run --resume {tmp_path / 'run'}")
    assert message in (tmp_path / "run" / "log.txt").read_text()
    monkeypatch.setattr(Learner, "partial_fit", fit)
    assert resume(tmp_path / "run").curve == read_result(cla_run).curve


def test_probes_that_lack_memory_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "linear_probes", lambda *_, **__: torch.empty(1 << 50, dtype=torch.uint8))
    with pytest.raises(
        OutOfMemoryError, match=r"left for the probes of 1 encoder; free the device; there was no check"
    ):
        start(resolve(SHORT), tmp_path / "run")
