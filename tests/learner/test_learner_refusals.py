"""What cannot be is refused in one sentence that names the culprit."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import ocssl
from ocssl.checks import small_learner, small_stream
from ocssl.common.files import unseal
from ocssl.errors import CheckpointError, ConfigError, DivergedError, InputError, OutOfMemoryError
from ocssl.export.encoder import publish

SETTINGS = [
    ({"strategy": "cla-x"}, "unknown strategy 'cla-x'; did you mean 'cla-r'"),
    ({"strategy": ["er"]}, "strategy must be a name"),
    ({"method": "simsam"}, "did you mean 'simsiam'"),
    ({"memory": "fif"}, "did you mean 'fifo'"),
    ({"backbone": "resnet81"}, "did you mean 'resnet18'"),
    ({"backbone": ["resnet18"]}, "backbone must be a name or a module"),
    ({"variant": "author"}, "variant must be 'default', 'authors' or 'original', not 'author'"),
    ({"augmentation": "simcrl"}, "unknown augmentation 'simcrl'; did you mean 'simclr'"),
    ({"optimizer": "sdg"}, "unknown optimizer 'sdg'; did you mean 'sgd'"),
    ({"precision": "fp16"}, "precision must be 'auto', 'fp32', 'bf16' or 'fp64', not 'fp16'"),
    ({"execution": "eagre"}, "execution must be 'auto', 'eager', 'graph' or 'compiled', not 'eagre'"),
    ({"execution": "graph"}, "needs a CUDA device"),
    ({"backbone": "resnet18", "stem": "smal"}, "stem must be 'auto', 'small' or 'standard', not 'smal'"),
    ({"stem": "small"}, "backbone 'convnet' does not read stem, a setting of backbones resnet18; leave it out"),
    ({"backbone": "resnet18-w8", "width": 16}, "backbone 'resnet18-w8' sets width; leave one of them out"),
    (
        {"device": "tpu9"},
        "device 'tpu9' cannot be used: names are like cpu, cuda and cuda:1; 'auto' takes one that can$",
    ),
    ({"device": "xla"}, "device 'xla' cannot be used: not with this torch; 'auto' takes one that can$"),
    ({"device": "meta"}, "device 'meta' cannot be used"),
    ({"batch": 2}, r"batch \(2\) must be at least stream_batch \(4\)"),
    ({"batch": 4}, r"strategy 'er' adds replay samples to .* batch \(4\) must be larger than stream_batch"),
    ({"batch": 8.5}, "batch must be a whole number"),
    ({"strategy": "finetune", "batch": 8}, "strategy 'finetune' trains on stream .* must equal stream_batch"),
    ({"strategy": "lump", "batch": 8}, "must equal stream_batch"),
    ({"strategy": "finetune", "batch": 4, "memory": "fifo"}, "keeps no memory"),
    (
        {"strategy": "finetune", "batch": 4, "memory_size": 9},
        "keeps no memory and does not read memory_size",
    ),
    ({"strategy": "scale", "method": "simclr"}, "has a loss of its own; leave method 'simclr' out"),
    ({"strategy": "osiris-r", "method": "simsiam"}, "has a loss of its own"),
    (
        {"strategy": "scale", "temperature": 1},
        "strategy 'scale' does not read temperature, a setting of strat",
    ),
    ({"omega": 3}, "strategy 'er' does not read omega, a setting of strategies cassle, .*cla-e.*; leave it out"),
    ({"tau": 0.9}, "strategy 'er' does not read tau, a setting of strategies cla-b, cla-e; leave it out"),
    ({"memory_size": 3}, "memory_size"),
    ({"memory_size": 10**12}, "memory_size must be a whole number from 1 to 100,000,000, not 1000000000000"),
    (
        {"memory_size": 10**8, "image_size": 64},
        r"memory_size 100,000,000 for images of 64×64 takes \d+,\d+ GB, and cpu has \d",
    ),
    ({"hidden_dim": 10**7}, "hidden_dim must be a whole number from 1 to 65,536, not 10000000"),
    ({"output_dim": 10**12}, "output_dim must be a whole number from 1 to 65,536, not 1000000000000"),
    ({"memory_size": 8}, "too small for strategy 'er' to ever replay; it needs at least 9"),
    ({"seed": 2**63}, "seed must be a whole number from 0 to"),
    ({"passes": 0}, "passes must be a whole number from 1 to 10,000"),
    ({"lr": -0.1}, "lr must be a number"),
    ({"lr": float("inf")}, "lr must be a number"),
    ({"lr": "fast"}, "lr must be a number"),
    ({"strategy": "cla-e", "tau": 1.5}, "tau must be a number from 0 to 1, not 1.5"),
    ({"strategy": "cla-e", "omega": -1}, "omega must be a number of at least 0, not -1"),
    ({"strategy": "cla-e", "aligner_dim": -3}, "aligner_dim must be a whole number from 1 to 65,536 or unset, not -3"),
    ({"strategy": "lump", "batch": 4, "alpha": "x"}, "alpha must be a number above 0, not 'x'"),
    ({"method": "simclr", "temperature": -1}, "temperature must be a number above 0, not -1"),
    ({"method": "moco", "queue_size": 10**12}, "queue_size must be a whole number from 1 to 524,288, not 1"),
    ({"method": "dino", "prototypes": 0}, "prototypes must be a whole number from 1 to 524,288, not 0"),
    (
        {"strategy": "osiris-r", "variant": "authors", "repeat_updates": 0},
        "repeat_updates must be a whole number",
    ),
    ({"std": (1, 0, 1)}, "std must be positive"),
    ({"momentun": 1}, "unknown setting 'momentun'; did you mean 'momentum'"),
    ({"learning_rate": 0.1}, "unknown setting 'learning_rate'; did you mean 'lr'"),
    ({"buffer_size": 9}, "unknown setting 'buffer_size'; did you mean 'memory_size'"),
    ({"wd": 1}, "unknown setting 'wd'; ocssl list settings prints all$"),
    ({"zzz": 1}, "unknown setting 'zzz'; ocssl list settings prints all$"),
    ({"strategy": "cassle", "variant": "authors", "batch": 4, "from_strat": 1}, "did you mean 'from_start'"),
    ({"method": "simclr", "temprature": 1}, "did you mean 'temperature'"),
    (
        {"strategy": "minred", "insert_features": True},
        "'minred' does not read insert_features, a setting of",
    ),
    ({"variant": "authors", "stream_batch": 1}, "stream_batch must be at least 2"),
    ({"joint_views": False, "stream_batch": 1}, "stream_batch must be at least 2"),
    ({"mean": 0.5}, "mean must be three numbers, one per channel, not 0.5"),
    ({"mean": "abc"}, "mean must be three numbers"),
    ({"mean": (0.5, 0.5)}, "mean must be three numbers"),
    ({"std": [0.2, float("nan"), 0.2]}, "std must be three numbers"),
    ({"std": (0.2, "0.2", 0.2)}, "std must be three numbers"),
    ({"joint_views": "no"}, "joint_views must be True or False, not 'no'"),
    ({"sync_norm": 1}, "sync_norm must be True or False, not 1"),
    ({"passes": True}, "passes must be a whole number"),
    ({"passes": np.float64(2)}, "passes must be a whole number"),
    ({"lr": np.float32("nan")}, "lr must be a number"),
]


@pytest.mark.parametrize(("setting", "message"), SETTINGS, ids=[str(setting) for setting, _ in SETTINGS])
def test_a_setting_that_cannot_be_is_refused(setting, message) -> None:
    with pytest.raises(ConfigError, match=message) as refusal:
        small_learner(**{"strategy": "er", **setting})
    assert "\n" not in str(refusal.value)


def test_numbers_and_devices_of_other_libraries_are_taken_and_saved(tmp_path) -> None:
    numbers = {"batch": np.int64(12), "passes": np.int32(2), "seed": np.uint8(3), "lr": np.float64(0.25)}
    others = {"omega": np.float32(0.5), "mean": np.full(3, 0.5, np.float32), "std": (np.float32(0.25), 1, 1.0)}
    options = {"method": "simclr", "temperature": np.float32(0.5), "joint_views": np.True_}
    learner = small_learner("cla-e", **numbers, **others, **options, device=torch.device("cpu"))
    learner.partial_fit(small_stream(16)).save(tmp_path / "state")
    plain = {"batch": 12, "passes": 2, "seed": 3, "lr": 0.25, "omega": 0.5, "mean": (0.5,) * 3, "std": (0.25, 1, 1)}
    plain |= {"method": "simclr", "temperature": 0.5, "joint_views": True, "device": "cpu"}
    expected = small_learner("cla-e", **plain).partial_fit(small_stream(16)).encode(small_stream(3))
    assert torch.equal(learner.encode(small_stream(3), batch=np.int64(2)), expected)
    assert torch.equal(ocssl.Learner.load(tmp_path / "state").encode(small_stream(3)), expected)


@pytest.mark.parametrize("batch", [0, -1, 2.5, "all"])
def test_features_of_no_images_at_once_are_refused(batch) -> None:
    with pytest.raises(ConfigError, match="batch must be a whole number of at least 1"):
        small_learner("er").transform(small_stream(3), batch=batch)


def test_a_backbone_that_gives_no_vectors_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"one image gave \(1, 3, 8, 8\)"):
        small_learner("er", backbone=nn.Identity())


def test_a_missing_extra_is_named() -> None:
    try:
        import timm  # noqa: F401
    except ImportError:
        with pytest.raises(ocssl.errors.MissingExtraError, match="pip install --no-deps timm"):
            small_learner("er", backbone="timm:resnet10t")


IMAGES = [
    (np.zeros((4, 8, 8, 3), np.int64), "int64"),
    (np.zeros((4, 3, 8, 8), np.uint8), "channels first"),
    (np.zeros((0, 8, 8, 3), np.uint8), "empty"),
    (torch.full((4, 3, 8, 8), 255.0), r"must lie in \[0, 1\]; these reach from 255 to 255; divide them by 255"),
    (torch.full((4, 3, 8, 8), 1.000001), r"these reach from 1.000001 to 1.000001; clip or rescale them"),
    ([np.zeros((3, 8, 8), np.uint8)], r"arrays \(h, w, 3\), .*; item 0 is ndarray \(3, 8, 8\)$"),
    ([torch.zeros(8, 8, 3)], r"tensors \(3, h, w\) .*; item 0 is Tensor \(8, 8, 3\)$"),
    (torch.full((4, 3, 8, 8), float("nan")), "NaN"),
    (torch.zeros(4, 1, 8, 8, dtype=torch.uint8), r"\(n, 3, height, width\)"),
    (
        [Image.new("RGB", (8, 8)), "cat.png"],
        r"item 1 of the list \('cat.png'\) is not readable .*: it is not there",
    ),
    ([], "empty"),
    ("cat.png", "not str"),
]


@pytest.mark.parametrize(("images", "message"), IMAGES, ids=[message for _, message in IMAGES])
def test_bad_images_are_refused_and_nothing_is_lost(images, message) -> None:
    learner = small_learner("er").partial_fit(small_stream(6))
    before = learner.encode(small_stream(3))
    for use in (learner.partial_fit, learner.transform):
        with pytest.raises(InputError, match=message):
            use(images)
    assert (learner.seen, learner.pending) == (4, 2)
    assert torch.equal(learner.encode(small_stream(3)), before)


@pytest.mark.parametrize(("images", "message"), IMAGES, ids=[message for _, message in IMAGES])
def test_fitting_bad_images_leaves_what_was_learned(images, message) -> None:
    learner = small_learner("er").partial_fit(small_stream(6))
    before = learner.encode(small_stream(3))
    with pytest.raises(InputError, match=message):
        learner.fit(images)
    assert (learner.seen, learner.pending) == (4, 2)
    assert torch.equal(learner.encode(small_stream(3)), before)


OVERRIDES = [
    ({"strategy": "er"}, r"state' was saved with other settings than strategy='er'; leave that out"),
    (
        {"device": "cpu", "hidden_dim": 17, "output_dim": 33},
        "other settings than hidden_dim=17 and output_dim=33; leave",
    ),
    ({"image_size": 16}, "other settings than image_size=16; leave that out"),
    ({"memory_size": 99}, "other settings than memory_size=99; leave that out"),
    ({"backbone": "resnet18"}, "other settings than backbone='resnet18'; leave that out"),
    ({"device": "nowhere", "lr": 0.5}, "device 'nowhere' cannot be used: .*; 'auto' takes one that can"),
    ({"execution": "graph", "device": "cpu"}, "state' cannot be loaded here: execution 'graph' needs a CUDA device"),
    ({"devise": "cpu"}, "unknown setting 'devise'; did you mean 'device'"),
]


@pytest.mark.parametrize(("overrides", "message"), OVERRIDES, ids=[str(overrides) for overrides, _ in OVERRIDES])
def test_a_setting_that_a_saved_state_cannot_go_on_with_is_named(tmp_path, overrides, message) -> None:
    small_learner("cla-e").partial_fit(small_stream(16)).save(tmp_path / "state")
    with pytest.raises(ConfigError, match=message) as refusal:
        ocssl.Learner.load(tmp_path / "state", **overrides)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("waiting", [0, 2])
def test_images_that_wait_cannot_become_larger(tmp_path, waiting) -> None:
    small_learner("finetune").partial_fit(small_stream(4 + waiting)).save(tmp_path / "state")
    with pytest.raises(ConfigError, match="saved with other settings than image_size=16; leave that out"):
        ocssl.Learner.load(tmp_path / "state", image_size=16)


def test_a_state_of_another_version_is_not_blamed_on_settings_that_fit_any(tmp_path) -> None:
    small_learner("er").save(tmp_path / "state")
    index = tmp_path / "state" / "learner.json"
    content = unseal(json.loads(index.read_text()))
    content["facts"]["config"]["hidden_dim"] = 17
    index.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=r"was saved by ocssl .* and does not fit ocssl"):
        ocssl.Learner.load(tmp_path / "state", lr=0.5, device="cpu", strategy="er")


def test_a_folder_with_checkpoints_is_told_from_a_saved_learner(tmp_path) -> None:
    (tmp_path / "robot" / "checkpoints").mkdir(parents=True)
    with pytest.raises(CheckpointError, match=r"a run or a state of ocssl learn.*; ocssl\.export\.load reads"):
        ocssl.Learner.load(tmp_path / "robot")


def test_an_encoder_is_told_from_a_saved_learner(tmp_path) -> None:
    publish(small_learner("er"), tmp_path / "encoder")
    with pytest.raises(CheckpointError, match=r"the encoder of one, not a saved learner; ocssl\.export\.load reads"):
        ocssl.Learner.load(tmp_path / "encoder")


def test_arrays_tensors_and_pictures_are_the_same_images() -> None:
    stream = small_stream(8)
    array = stream.permute(0, 2, 3, 1).numpy()
    pictures = [Image.fromarray(image) for image in array]
    features = [
        small_learner("er").partial_fit(kind).transform(kind) for kind in (stream, array, pictures, stream / 255)
    ]
    for other in features[1:]:
        np.testing.assert_array_equal(features[0], other)


def test_single_images_are_learned_from_where_views_pass_together_whatever_the_variant() -> None:
    learner = small_learner("er", variant="authors", joint_views=True, stream_batch=1)
    learner.partial_fit(small_stream(3))
    assert (learner.seen, learner.pending) == (3, 0)


@pytest.mark.parametrize("count", [5, 13])  # before replay begins, and after
def test_a_single_leftover_is_trained_on_with_its_views_together(count) -> None:
    parts = ocssl.strategies.registry
    names = [(name, variant) for name in parts.names() for variant in ("default", *parts.variants(name))]
    for strategy, variant in names:
        joint_views = variant == "authors"
        alone = small_learner(strategy, variant=variant, joint_views=joint_views, passes=1)
        alone.partial_fit(small_stream(count)).boundary().flush()
        assert (alone.pending, alone.seen) == (0, count)


@pytest.mark.parametrize("strategy", ["cla-e", "cla-r", "cassle-r", "osiris-r", "osiris-d", "taught", "multiview-r"])
def test_a_single_replay_sample_is_learned_from_with_its_views_together(strategy) -> None:
    learner = small_learner(strategy, joint_views=False, batch=5).partial_fit(small_stream(8))
    learner.boundary().partial_fit(small_stream(4))
    assert len(learner.output.batch) == 5


def test_a_single_leftover_waits_in_the_variant_of_the_authors() -> None:
    learner = small_learner("finetune", variant="authors").partial_fit(small_stream(5))
    with pytest.raises(InputError, match="at least one more"):
        learner.flush()
    assert learner.pending == 1


def test_a_diverging_loss_stops_with_step_and_part_and_is_never_saved(tmp_path) -> None:
    learner = small_learner("cla-e", lr=0.01, passes=1).partial_fit(small_stream(16))
    learner.save(tmp_path / "good")
    with torch.no_grad():
        next(learner.train_state.strategy.aligner.parameters()).fill_(float("nan"))
    with pytest.raises(DivergedError, match=r"at step 5 \(part: alignment\)"):
        learner.partial_fit(small_stream(4))
    with pytest.raises(DivergedError):
        learner.save(tmp_path / "good")
    assert ocssl.Learner.load(tmp_path / "good").seen == 16


def out_of_device_memory() -> None:
    raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")


def out_of_host_memory() -> None:
    torch.empty(1 << 50, dtype=torch.uint8)


def out_of_memory_in_a_capture() -> None:
    try:
        out_of_device_memory()
    finally:
        raise RuntimeError("operation failed due to a previous error during capture")


@pytest.mark.parametrize("fail", [out_of_device_memory, out_of_host_memory, out_of_memory_in_a_capture])
def test_too_little_memory_is_said_with_what_it_was_for(monkeypatch: pytest.MonkeyPatch, fail) -> None:
    learner = small_learner("er").partial_fit(small_stream(4))
    with monkeypatch.context() as patch:
        patch.setattr(learner.executor, "step", lambda stream: fail())
        with pytest.raises(
            OutOfMemoryError, match="cpu has too little memory left for training on 12 images of 8×8; ch"
        ):
            learner.partial_fit(small_stream(4))
    monkeypatch.setattr(learner.train_state.augment, "normalize", lambda images: fail())
    with pytest.raises(OutOfMemoryError, match="left for 6 images of 8×8; choose a smaller batch"):
        learner.transform(small_stream(6))
    with pytest.raises(MemoryError):  # for code that knows the built-in only
        learner.transform(small_stream(6))


def test_other_errors_are_not_taken_for_a_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = small_learner("er")

    def fail(stream: torch.Tensor) -> None:
        raise RuntimeError("a kernel was at fault")

    monkeypatch.setattr(learner.executor, "step", fail)
    with pytest.raises(RuntimeError, match="a kernel was at fault") as caught:
        learner.partial_fit(small_stream(4))
    assert not isinstance(caught.value, ocssl.errors.OcsslError)


class Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('the pickle was executed')",))


def test_foreign_and_broken_states_are_refused(tmp_path) -> None:
    small_learner("er").save(tmp_path / "state")
    (data,) = (tmp_path / "state").glob("*.safetensors")
    index = tmp_path / "state" / "learner.json"
    whole, facts = data.read_bytes(), index.read_text()

    data.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match="truncated"):
        ocssl.Learner.load(tmp_path / "state")
    data.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(CheckpointError, match=r"truncated|damaged"):
        ocssl.Learner.load(tmp_path / "state")
    data.write_bytes(whole)
    index.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(CheckpointError, match="cannot be read as a saved learner"):
        ocssl.Learner.load(tmp_path / "state")
    index.write_text(json.dumps({"format": "somebody-else"}))
    with pytest.raises(CheckpointError, match="not written by ocssl"):
        ocssl.Learner.load(tmp_path / "state")
    other = json.loads(facts)
    other["facts"]["config"]["hidden_dim"] = 17
    index.write_text(json.dumps(other))
    with pytest.raises(CheckpointError, match="changed after it was saved"):
        ocssl.Learner.load(tmp_path / "state")
    index.write_text(json.dumps({name: value for name, value in other.items() if name != "checksum"}))
    with pytest.raises(CheckpointError, match="does not fit"):
        ocssl.Learner.load(tmp_path / "state")
    with pytest.raises(CheckpointError, match="is not a saved learner"):
        ocssl.Learner.load(tmp_path / "nowhere")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(CheckpointError, match="choose another place"):
        small_learner("er").save(tmp_path / "mine")


def test_a_learner_on_a_module_of_ones_own_asks_for_it_again(tmp_path) -> None:
    def module() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())

    learner = small_learner("er", backbone=module()).partial_fit(small_stream(8))
    learner.save(tmp_path / "state")
    with pytest.raises(CheckpointError, match="pass it as backbone="):
        ocssl.Learner.load(tmp_path / "state")
    again = ocssl.Learner.load(tmp_path / "state", backbone=module())
    assert torch.equal(again.encode(small_stream(3)), learner.encode(small_stream(3)))
