"""What a live learner starts from: weights, sizes, the whole picture, and the line that says so."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from frames import write_frames, write_tar
from PIL import Image

from helpers.command import Command
from helpers.settings import TINY, tiny_flags
from ocssl.errors import CheckpointError, ConfigError, DataError
from ocssl.export import load
from ocssl.live import learn
from ocssl.live.gate import MIN_KEPT
from ocssl.live.life import life
from ocssl.live.monitor import Monitor
from ocssl.nn import ConvNet, EfficientNetLite0
from ocssl.nn.efficientnet import PACKAGE


def start(frames: Path, state: Path, **given: Any) -> tuple[Any, list[str]]:
    """A learner, and the lines that it printed."""
    lines: list[str] = []
    return learn(str(frames), state, info=lines.append, **{**TINY, **given}), lines


def test_a_start_from_a_file_goes_on_without_it(tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "frames", range(4))
    torch.save(ConvNet(ConvNet.Options(width=4)).state_dict(), file := tmp_path / "w.pth")
    first, lines = start(frames, tmp_path / "state", weights=str(file), backbone="convnet")
    assert f"with convnet from the weights {file}, batch 8" in lines[0]
    file.unlink()
    write_frames(frames, range(4, 8))
    again = learn(str(frames), tmp_path / "state", info=lines.append)
    assert again.config == first.config
    assert again.seen == 8
    assert load(tmp_path / "state").facts["weights"] == "w.pth"
    for other in ("none", "other.pth"):
        with pytest.raises(ConfigError, match=f"was begun with weights=.*, not '{other}'; leave it out"):
            learn(str(frames), tmp_path / "state", weights=other)


@pytest.mark.parametrize(("heads_first", "stays"), [(3, True), (2, False)])
def test_images_that_only_teach_the_heads_are_told_of_at_the_start(
    tmp_path: Path, warnings: list[str], heads_first: int, stays: bool
) -> None:
    frames = write_frames(tmp_path / "frames", range(12))
    torch.save(ConvNet(ConvNet.Options(width=4)).state_dict(), file := tmp_path / "w.pth")
    learner, _ = start(
        frames, tmp_path / "state", weights=str(file), backbone="convnet", heads_first=heads_first, passes=1
    )
    assert (learner.budget.spent == 0) is stays
    said = (
        "in the first 3 steps only the new heads learn, so the network stays as it is (12 images: 3 steps); give more "
    )
    said += "images, or begin a new --state with --set heads_first=1"
    assert (said in warnings) is stays
    assert not any("is a small network" in line for line in warnings)  # it was chosen with its weights


@pytest.mark.parametrize(("heads_first", "begun"), [(30, False), (2, True)])
def test_the_last_line_says_that_only_the_heads_have_learned(tmp_path: Path, heads_first: int, begun: bool) -> None:
    frames = write_frames(tmp_path / "frames", range(MIN_KEPT))
    torch.save(ConvNet(ConvNet.Options(width=4)).state_dict(), file := tmp_path / "w.pth")
    _, lines = start(
        frames, tmp_path / "state", weights=str(file), backbone="convnet", heads_first=heads_first, passes=1
    )
    for last in (lines[-1], list(life(tmp_path / "state"))[-1][1]):
        assert ("so far only the new heads have learned; give more images" in last) is not begun


def test_weights_that_cannot_be_used_leave_nothing_behind(tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "frames", range(4))
    torch.save({"w": torch.ones(1)}, tmp_path / "w.pth")
    with pytest.raises(CheckpointError, match=r"w\.pth' does not fit backbone 'convnet': it has no convs.0.weight"):
        start(frames, tmp_path / "state", weights=str(tmp_path / "w.pth"), backbone="convnet")
    assert not (tmp_path / "state").exists()


def test_an_installed_package_is_taken_where_no_backbone_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = write_frames(tmp_path / "frames", range(4))
    torch.manual_seed(1)
    weights = EfficientNetLite0().state_dict()
    models = tmp_path / "site" / PACKAGE / "models"
    models.mkdir(parents=True)
    (tmp_path / "site" / PACKAGE / "__init__.py").touch()
    torch.save(weights, models / "lite0.pth")
    monkeypatch.syspath_prepend(tmp_path / "site")
    learner, lines = start(frames, tmp_path / "a", image_size=32)
    assert lines[0].startswith(
        "learning at 32×32 with efficientnet-lite0, pretrained (--from none starts from zero), batch 8, passes 1"
    )
    assert learner.config.mean == EfficientNetLite0.inputs.mean
    learner, lines = start(frames, tmp_path / "b", backbone="convnet-w8")
    assert "with convnet-w8 from zero" in lines[0]
    learner, lines = start(frames, tmp_path / "c", weights="none", backbone="convnet-w8")
    assert learner.config.weights is None


def test_a_pretrained_network_sees_at_most_128_pixels_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from ocssl.live.start import start_settings
    from ocssl.pretrained import Source

    def source(size: int, fixed: bool) -> None:
        found = {"backbone": "convnet", "image_size": size}
        made = Source("x", lambda _: {}, found, fixed)
        monkeypatch.setattr("ocssl.live.start.open_source", lambda *_: made)
        monkeypatch.setattr("ocssl.sources.open_source", lambda *_: made)

    for size, fixed, given, wanted in ((224, False, {}, 128), (224, True, {}, 224), (96, False, {}, 96),
                                       (224, False, {"image_size": 200}, 200)):  # fmt: skip
        source(size, fixed)
        assert start_settings({"weights": "x", "device": "cpu", **given}, 48)["image_size"] == wanted


def test_the_size_is_the_median_of_the_first_images(tmp_path: Path) -> None:
    frames = tmp_path / "frames"
    frames.mkdir()
    for i, side in enumerate((16, 40, 40, 40, 8)):
        Image.new("RGB", (side + 5, side)).save(frames / f"{i}.png")
    learner, lines = start(frames, tmp_path / "state", backbone="convnet-w8", weights="none")
    assert learner.config.image_size == 40
    assert lines[0].startswith("learning at 40×40")
    assert learner.seen == 5


def test_a_source_that_breaks_among_the_first_images_is_learned_from_until_there(tmp_path: Path) -> None:
    from ocssl.live.state import StateFolder

    shards = tmp_path / "shards"
    shards.mkdir()
    write_tar(shards / "0.tar", range(4))
    (shards / "1.tar").write_bytes(b"not a tar file" * 1000)
    with pytest.raises(DataError, match=r"1\.tar is not a readable tar file"):
        start(Path(f"tar:{shards}"), tmp_path / "state", backbone="convnet-w8", weights="none")
    restored = StateFolder(tmp_path / "state").restore()
    assert restored is not None
    assert restored[0].seen == 4


def test_the_whole_picture_is_learned_from_and_embedded(tmp_path: Path) -> None:
    frames = tmp_path / "frames"
    frames.mkdir()
    thirds = np.zeros((8, 24, 3), dtype=np.uint8)
    for channel in range(3):
        thirds[:, 8 * channel : 8 * channel + 8, channel] = 255
    for i in range(4):
        Image.fromarray(thirds).save(frames / f"{i}.png")
    learner, _ = start(frames, tmp_path / "state", backbone="convnet-w8", weights="none", gate=False)
    assert learner.config.fit == "squash"
    stored = learner.train_state.memory.state_dict()["images"][0]  # a square with all three colours
    assert (stored.amax((1, 2)) > 200).all()
    encoder = load(tmp_path / "state")
    np.testing.assert_allclose(encoder.transform([thirds]), learner.transform([thirds]), atol=1e-5)
    cropped, _ = start(frames, tmp_path / "crop", backbone="convnet-w8", weights="none", fit="crop")
    stored = cropped.train_state.memory.state_dict()["images"][0]
    assert (stored.amax((1, 2)) > 200).sum() == 1


def test_the_time_that_is_left_is_told(tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "frames", range(12))
    _, lines = start(frames, tmp_path / "state", backbone="convnet-w8", weights="none", report_every=0)
    said = [line for line in lines if " images  " in line]
    assert re.search(r"img/s  CBP \d+  \d+:\d\d left$", said[0])
    assert "left" not in said[-1]
    assert re.fullmatch(r"12 images  CBP \d+", said[-1])


def test_images_that_wait_for_a_full_minibatch_are_left_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames, real = write_frames(tmp_path / "frames", range(25)), Monitor.sample
    monkeypatch.setattr(Monitor, "sample", lambda *given: ({**real(*given)[0], "rate": 1.0}, None))
    _, lines = start(frames, tmp_path / "state", backbone="convnet-w8", weights="none", report_every=0)
    found = [re.match(r"(\d+) images .* 0:(\d\d) left$", line) for line in lines]
    told = [(int(line[1]), int(line[2])) for line in found if line]
    assert len(told) > 1
    assert all(seen + left == 25 for seen, left in told), told


def test_floating_point_pictures_need_a_range(tmp_path: Path) -> None:
    frames = tmp_path / "frames"
    frames.mkdir()
    for i in range(4):
        Image.fromarray(np.full((8, 8), i / 4, dtype=np.float32)).save(frames / f"{i}.tif")
    with pytest.raises(DataError, match=r"tried 4, 0\.tif for one: its pixels are floating point numbers; set pixel"):
        start(frames, tmp_path / "state", backbone="convnet-w8", weights="none")
    learner, _ = start(frames, tmp_path / "state", backbone="convnet-w8", weights="none", pixel_range=(0, 1))
    assert learner.seen == 4
    assert load(tmp_path / "state").pixel_range == (0, 1)
    for wrong in ((1, 0), (0,), "0, 1"):
        with pytest.raises(ConfigError, match="pixel_range must be two numbers, the lower one first"):
            start(frames, tmp_path / "other", backbone="convnet-w8", weights="none", pixel_range=wrong)


def test_a_factory_in_the_current_folder_is_named_on_the_command_line(ocssl: Command, tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "frames", range(4))
    source = "from torch import nn\ndef make():\n    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), "
    source += "nn.AdaptiveAvgPool2d(1), nn.Flatten())\n"
    (ocssl.folder / "cwd_net.py").write_text(source)
    assert importlib.util.find_spec("cwd_net") is None
    code, _, err = ocssl("learn", frames, "--state", tmp_path / "state", "--from", "cwd_net:make", *tiny_flags())
    assert code == 0, err
    assert "with cwd_net:make, pretrained, batch 8" in err
    code, _, err = ocssl("embed", tmp_path / "state", frames, "-o", tmp_path / "f.parquet")
    assert code == 2
    assert "cwd_net" in err
    code, out, err = ocssl("embed", tmp_path / "state", frames, "-o", tmp_path / "f.parquet", "--plugin", "cwd_net")
    assert code == 0, err
    assert "4 images, 4 numbers each" in out
