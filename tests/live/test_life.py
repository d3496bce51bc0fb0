"""What ``ocssl show`` and ``ocssl probe`` say of a state."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from frames import quiet_learn, tiny_options, write_frames, write_tar
from PIL import Image

from helpers.command import Command, refused
from ocssl.common.files import read_file
from ocssl.errors import CheckpointError, ConfigError, DataError
from ocssl.evaluation import extract
from ocssl.evaluation.quality import raw_pixels
from ocssl.export.encoder import FrozenEncoder, load
from ocssl.imaging import decode
from ocssl.live.life import along, is_state, life, probe_state

CLASSES, EACH = 4, 60


def write_classes(folder: Path, *, labelled: bool) -> Path:
    """Images of four patterns under noise, class after class; with a folder per class where they are labelled."""
    draws = np.random.default_rng(0)
    for label, pattern in enumerate(draws.integers(0, 256, (CLASSES, 2, 2, 3))):
        for number in range(EACH):
            image = np.clip(pattern.repeat(4, 0).repeat(4, 1) + draws.normal(0, 40, (8, 8, 3)), 0, 255)
            name = f"c{label}/{number:03d}.png" if labelled else f"c{label}-{number:03d}.png"
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image.astype(np.uint8)).save(folder / name)
    return folder


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("life")
    frames = write_classes(folder / "frames", labelled=False)
    quiet_learn(frames, folder / "state", stream_batch=8, batch=16, check_every=60, report_every=0, lr=0.1)
    return folder / "state"


def test_the_life_of_a_state_is_told_from_its_files(state: Path) -> None:
    assert is_state(state)
    assert not is_state(state.parent)
    facts = [*life(state)]
    told = dict(facts)
    assert told["learner"] == "convnet-w8, cla-e, simsiam, fifo, sgd"
    assert told["images"] == "8×8, fit squash, pixel_range unset"
    assert told["source"].endswith("frames: 240 images")
    assert told["learned"].startswith("from 240 images, 30 steps, CBP ")
    assert told["encoder"].startswith("version ")
    assert told["kept"] == "240 of 240 images, for measuring"
    assert any("published encoder" in text for name, text in facts if not name)
    checks = along(state)
    assert checks["seen"][-1] == 240
    assert len(checks["seen"]) == len(checks["in_time"]) >= 2


def test_a_file_of_a_state_that_cannot_be_read_is_named_with_the_reason(state: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(state, tmp_path / "state"))
    index = copied / "encoder" / "encoder.json"
    index.rename(copied / "kept.json")
    with pytest.raises(CheckpointError, match=r"^cannot read '\S+/encoder.json': No such file or directory$"):
        [*life(copied)]
    (copied / "kept.json").rename(index)
    gate = next(copied.glob("checkpoints/*/gate/gate.json"))
    gate.unlink()
    with pytest.raises(
        CheckpointError, match=r"^cannot read .*: No such file or directory; the state is of an earlier"
    ):
        [*life(copied)]
    for damaged in (b"", b'{"facts": ', b"\xff"):
        gate.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"gate.json' is damaged: "):
            [*life(copied)]
    gate.write_text("{}")
    with pytest.raises(CheckpointError, match=r"gate.json' does not fit this version of ocssl: 'facts'$"):
        [*life(copied)]


def test_a_state_is_told_while_its_learner_saves(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = list(life(state))
    place = shutil.copytree(state, tmp_path / "state") / "checkpoints"
    (before,) = place.iterdir()

    def saved_meanwhile(path: Path) -> bytes:
        if before.exists():
            before.rename(place / f"{int(before.name) + 1:06d}")
        return read_file(path)

    monkeypatch.setattr("ocssl.live.life.read_file", saved_meanwhile)
    assert list(life(tmp_path / "state")) == expected


def test_labelled_images_measure_the_encoder_before_and_after_and_the_yardsticks(state: Path, tmp_path: Path) -> None:
    labelled = write_classes(tmp_path / "labelled", labelled=True)
    found = {one.features: one for one in probe_state(state, f"folder:{labelled}")}
    assert [*found] == ["at the start", "published encoder", "raw pixels", "colours"]
    assert found["raw pixels"].knn > 90  # the patterns are far apart
    assert all(100 / CLASSES < one.linear <= 100 for one in found.values())
    few = [*probe_state(state, f"folder:{labelled}", samples_per_class=5)]
    assert few != [*found.values()]
    plain = write_classes(tmp_path / "plain", labelled=False)
    with pytest.raises(DataError, match="has no labels"):
        next(probe_state(state, f"folder:{plain}"))


def test_too_few_labelled_images_are_refused_by_their_number(state: Path, tmp_path: Path) -> None:
    labelled = write_classes(tmp_path / "labelled", labelled=True)
    for most in (0, -3):
        with pytest.raises(ConfigError, match=f"samples_per_class must be at least 1, not {most}$"):
            next(probe_state(state, f"folder:{labelled}", samples_per_class=most))
    with pytest.raises(
        DataError,
        match="leaves 4 images of 4 labels to learn from and 60 to test on; give at least 5 images of 2 labels",
    ):
        next(probe_state(state, f"folder:{labelled}", samples_per_class=1))
    for label in range(1, CLASSES):
        shutil.rmtree(labelled / f"c{label}")
    with pytest.raises(
        DataError,
        match="leaves 45 images of 1 label to learn from and 15 to test on; give at least 5 images of 2 labels",
    ):
        next(probe_state(state, f"folder:{labelled}"))


def test_a_test_split_that_cannot_be_read_is_reported_and_not_replaced(state: Path, tmp_path: Path) -> None:
    train = write_classes(tmp_path / "split" / "train", labelled=True)
    test = tmp_path / "split" / "test"
    test.mkdir()
    with pytest.raises(DataError, match=f"there are no images in {test}"):
        next(probe_state(state, f"folder:{tmp_path / 'split'}"))
    (test / "0.png").write_bytes((train / "c0" / "000.png").read_bytes())
    with pytest.raises(DataError, match=f"the test split of 'folder:{tmp_path / 'split'}' has no labels"):
        next(probe_state(state, f"folder:{tmp_path / 'split'}"))


def test_labelled_images_are_prepared_as_the_encoder_takes_its_images(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    wide = tmp_path / "wide"
    for place in write_classes(tmp_path / "square", labelled=True).rglob("*.png"):
        target = wide / place.relative_to(tmp_path / "square")
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.hstack([np.zeros((8, 8, 3), np.uint8), np.asarray(Image.open(place))])).save(target)
    (wide / "c0" / "broken.png").write_bytes(b"no image")
    seen = []
    monkeypatch.setattr("ocssl.live.life.raw_pixels", lambda images: seen.append(images) or raw_pixels(images))
    [*probe_state(state, f"folder:{wide}")]
    whole = decode(wide / "c0" / "000.png", size=8, fit="squash")
    assert np.array_equal(seen[0][0].numpy(), whole)
    assert (
        len([text for text in warnings if re.search("left out 1 unusable image, .*broken.png for one: it", text)]) == 1
    )


def test_labelled_images_of_twelve_bits_are_read_in_the_range_of_the_encoder(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        place = tmp_path / "deep" / "ab"[number % 2] / f"{number}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), 500 * number, np.uint16)).save(place)
    monkeypatch.setattr(FrozenEncoder, "pixel_range", (0, 4095))
    seen = []
    monkeypatch.setattr(
        "ocssl.live.life.extract", lambda encode, images: seen.append(images) or extract(encode, images)
    )
    next(probe_state(state, f"folder:{tmp_path / 'deep'}"))
    assert np.array_equal(seen[0][1].numpy(), decode(tmp_path / "deep" / "a" / "2.png", 8, "squash", (0, 4095)))


def test_the_commands_show_and_probe_a_state(ocssl: Command, state: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    code, out, err = ocssl("show", state, "--plot", tmp_path / "life.png")
    assert code == 0, err
    assert "neighbours in time" in out
    assert "in time, %" in out
    assert (tmp_path / "life.png").stat().st_size > 1000
    labelled = write_classes(tmp_path / "labelled", labelled=True)
    code, out, err = ocssl("probe", state, "--dataset", f"folder:{labelled}")
    assert code == 0, err
    assert [line.split("  ")[0] for line in out.splitlines()] == [
        "60 test images",
        "at the start",
        "published encoder",
        "raw pixels",
        "colours",
    ]
    code, _, err = ocssl("probe", state / "encoder", "--dataset", f"folder:{labelled}")
    assert code == 2
    assert f"is an encoder alone; give the folder of its state, '{state}'" in err
    assert f"give the folder of its state, '{state}'" in refused(ocssl, "show", state / "encoder")
    assert f"is the state of a live learner, not a run; ocssl show '{state}'" in refused(ocssl, "compare", state)
    code, _, err = ocssl("probe", state)
    assert code == 2
    assert "give some with --dataset folder:PATH" in err


def test_neighbours_in_time_are_not_drawn_where_the_images_have_no_order(ocssl: Command, tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "frames", range(120))  # noise
    quiet_learn(frames, tmp_path / "state", check_every=60, report_every=0)
    code, out, err = ocssl("show", tmp_path / "state")
    assert code == 0, err
    assert len(along(tmp_path / "state")["in_time"]) > 1
    assert "\nrank " in out
    assert "in time, %" not in out


def test_a_state_that_has_just_begun_is_shown_too(ocssl: Command, tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "frames", range(8))
    chosen = ("--fit", "crop", "--pixel-range", "[0, 4095]")
    code, _, err = ocssl("learn", frames, "--state", tmp_path / "state", *tiny_options(), *chosen)
    assert code == 0, err
    code, out, err = ocssl("show", tmp_path / "state")
    assert code == 0, err
    assert "8×8, fit crop, pixel_range 0 to 4095" in out
    assert "memory_size" not in out
    assert "\nmemory_size: 24\n" in ocssl("show", tmp_path / "state", "--settings")[1]
    assert "from 8 images" in out
    code, _, err = ocssl("show", tmp_path / "state", "--plot", tmp_path / "life.png")
    assert code == 2
    assert err.endswith("has no check of its encoder to draw yet; learn from at least 100 images\n")


def test_a_source_is_shown_and_published_with_the_images_that_were_learned_from(tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "frames", range(9))
    (frames / "00002.png").write_bytes(b"half-written")
    (frames / "00003.png").write_bytes(b"no image")
    archive = write_tar(tmp_path / "day.tar", range(5))
    quiet_learn(frames, tmp_path / "state")
    write_frames(frames, range(2, 3))
    quiet_learn(frames, tmp_path / "state")
    quiet_learn(archive, tmp_path / "state", gate=False)
    sources = [text for name, text in life(tmp_path / "state") if name == "source"]
    assert sources == [f"folder:{frames.resolve()}: 8 images, 1 refused", f"tar:{archive.resolve()}: 5 images"]
    assert load(tmp_path / "state" / "encoder").facts["sources"] == {"folder:frames": 8, "tar:day.tar": 5}


def test_a_run_is_not_drawn_by_show(ocssl: Command, tmp_path: Path) -> None:
    code, _, err = ocssl("show", tmp_path, "--plot", "curve.png")
    assert code == 2
    assert "ocssl compare" in err


def test_a_source_whose_images_were_all_refused_counts_none_as_learned_from(tmp_path: Path) -> None:
    bad, state = tmp_path / "bad", tmp_path / "state"
    bad.mkdir()
    quiet_learn(write_frames(tmp_path / "frames", range(8)), state)
    for content in ("not an image", "still not an image"):  # tried twice
        for number in range(3):
            (bad / f"{number}.png").write_text(content)
        quiet_learn(bad, state, gate=False)
    told = [text for name, text in life(state) if name == "source"]
    assert told[1] == f"folder:{bad.resolve()}: 0 images, 3 refused"
    assert load(state / "encoder").facts["sources"] == {"folder:bad": 0, "folder:frames": 8}


def test_images_that_wait_for_a_full_minibatch_are_told(tmp_path: Path) -> None:
    frames, state = write_frames(tmp_path / "frames", range(9)), tmp_path / "state"
    quiet_learn(frames, state, variant="authors")  # whose batch norm cannot take the last image alone
    told = dict(life(state))
    assert told["source"].endswith("frames: 9 images")
    assert told["learned"].startswith("from 8 images (1 more waits for the next ones), 2 steps, CBP ")
    next(state.glob("checkpoints/*/learner/*.safetensors")).write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="learner' cannot be read as a saved learner"):
        [*life(state)]
