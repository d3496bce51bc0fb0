"""Only what ocssl wrote is deleted or replaced; an output is never an input."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from subprocess import Popen

import pytest
from attacking import LEARN, PRECIOUS, RUN, Attack

from ocssl import Learner
from ocssl.errors import OcsslError
from ocssl.export import publish

EMBED = ("embed", "state", "imgs", "-o")
EXPORT = ("export", "state", "--to")
REPORT = ("report", "results", "-o")
attack_only = pytest.mark.attack


def cases(*table: tuple[str, ...], every: int = 10) -> list[object]:
    """Rows as parameters; every tenth runs with ``make test``, all of them with ``make test-attack``."""
    return [
        pytest.param(*row, id=f"{number}", marks=() if number % every == 0 else attack_only)
        for number, row in enumerate(table)
    ]


OUTPUTS = cases(
    *(
        (name, command)
        for command in (
            "embed state imgs -o {}",
            "export state --to onnx -o {}",
            "export state --to torchscript -o {}",
            "export state --to safetensors -o {}",
            "data preview folder:set -o {}",
            "compare results/r0.json -o {}",
            "paper show high-simsiam --results results --dataset cifar100 --protocol clean -o {}",
        )
        for name in ("notes.csv", "photo.npy", "f.parquet")
    ),
    ("plot.png", "compare results/r0.json --plot {}"),
    ("plot.svg", "compare results/r0.json --plot {}"),
    ("plot.pdf", "compare results/r0.json --plot {}"),
    ("out/report.html", "report results -o out --format html"),
    ("out/report.md", "report results -o out --format markdown"),
    ("out/tables.tex", "report results -o out --format latex"),
    ("out/tables/*.csv", "report results -o out --format csv --format html"),
    ("out/figures/*.png", "report results -o out --format png --format html"),
    ("out/demo.png", "demo --quick --output out"),
    ("proj/README.md", "export state --to hub -o proj"),
    ("proj/config.json", "export state --to hub -o proj"),
    ("proj/model.safetensors", "export state --to hub -o proj"),
    ("encoder.safetensors", "export state --to safetensors"),
    ("encoder.onnx", "export state --to onnx"),
)


@pytest.mark.parametrize(("name", "command"), OUTPUTS)
def test_a_file_that_ocssl_did_not_write_is_refused(attack: Attack, name: str, command: str) -> None:
    if "*" in name:  # that a first call has written
        assert attack.call(*command.split())[0] == 0
        name = str(next(attack.folder.glob(name)).relative_to(attack.folder))
    attack.put(name)
    unmarked = command.startswith("embed") and name.endswith(".npy")  # a format without a place for a mark of ours
    says = "says nothing of who wrote it" if unmarked else "was not written by ocssl"
    attack.refuse(*command.format(name).split(), says=says)


INPUTS = cases(
    ("embed state imgs -o imgs/000.png", "none of these endings"),
    ("embed state imgs -o imgs/new.parquet", "lies inside"),
    ("embed state imgs -o link/new.parquet", "lies inside"),
    ("embed enc.safetensors imgs -o enc.safetensors", "none of these endings"),
    ("embed enc.safetensors imgs -o twin.safetensors", "none of these endings"),
    ("embed state f.parquet -o f.parquet", "is the input"),
    ("embed state imgs.tar -o imgs.tar", "none of these endings"),
    ("embed state imgs -o state/encoder/encoder.json", "none of these endings"),
    ("export enc.safetensors --to onnx -o enc.safetensors", "has the ending of safetensors"),
    ("export enc.safetensors --to safetensors -o enc.safetensors", "is the input"),
    ("export state --to safetensors -o state/encoder/encoder.json", "lies inside"),
    ("export state --to hub -o state/hub", "lies inside"),
    ("data preview folder:set -o set/train/a/000.png", "lies inside"),
    ("compare results/r0.json -o results/r0.json", "is the input"),
)


@pytest.mark.parametrize(("command", "says"), INPUTS)
@pytest.mark.parametrize("force", [(), pytest.param(("--force",), marks=attack_only)])
def test_an_output_that_is_an_input_is_refused(attack: Attack, command: str, says: str, force: tuple[str, ...]) -> None:
    for name in ("f.parquet", "imgs.tar"):
        attack.put(name)
    (attack.folder / "link").symlink_to("imgs")
    os.link(attack.folder / "enc.safetensors", attack.folder / "twin.safetensors")
    attack.refuse(*command.split(), *force, says=says)


AGAIN = cases(
    ("embed state imgs -o a.parquet",),
    ("export state --to onnx -o a.onnx",),
    ("export state --to torchscript -o a.pt",),
    ("export state --to safetensors -o a.safetensors",),
    ("export state --to hub -o hub",),
    ("data preview folder:set -o a.png",),
    ("compare results/r0.json --plot a.png",),
    ("compare results/r0.json --plot a.svg",),
    ("compare results/r0.json --plot a.pdf",),
    ("compare results/r0.json -o a.csv",),
    ("report results -o out --format html --format csv --format png",),
    ("report results -o out --format html --format markdown --format latex --format csv --format png --format svg",),
    every=5,
)


@pytest.mark.parametrize("command", AGAIN)
def test_what_ocssl_wrote_is_replaced_by_the_same_command(attack: Attack, command: str) -> None:
    for _ in range(2):
        code, err = attack.call(*command.split())
        assert code == 0, err


def test_force_replaces_a_file_and_an_empty_file_needs_none(attack: Attack) -> None:
    attack.put("photo.npy")
    assert attack.call(*EMBED, "photo.npy", "--force")[0] == 0
    attack.put("empty.parquet", "")
    assert attack.call(*EMBED, "empty.parquet")[0] == 0
    assert (attack.folder / "empty.parquet").read_bytes()[:4] == b"PAR1"


def test_reports_of_earlier_versions_are_known_by_what_they_say(attack: Attack) -> None:
    words = (*REPORT, "out", "--format", "html", "--format", "markdown", "--format", "latex")
    assert attack.call(*words)[0] == 0
    for name in ("report.md", "report.html", "tables.tex"):
        page = attack.folder / "out" / name
        text = page.read_text().replace("1 result, the newest", "1 results, the newest")  # as they wrote it
        page.write_text("".join(line for line in text.splitlines(True) if "made by ocssl" not in line))
    code, err = attack.call(*words)
    assert code == 0, err


@pytest.mark.parametrize(
    "command",
    ["embed state imgs -o a.npy", "export state --to torchscript -o a.npy", "data preview folder:set -o a.npy"],
)
def test_a_link_is_replaced_and_its_target_stays(attack: Attack, command: str) -> None:
    precious = attack.put("doc/precious.txt")
    (attack.folder / "a.npy").symlink_to("doc/precious.txt")
    assert attack.call(*command.split())[0] == 0
    assert precious.read_text() == PRECIOUS
    assert not (attack.folder / "a.npy").is_symlink()


def test_a_report_replaces_a_link_and_its_target_stays(attack: Attack) -> None:
    precious = attack.put("doc/report.md")
    (attack.folder / "out").mkdir()
    (attack.folder / "out" / "report.md").symlink_to("../doc/report.md")
    assert attack.call(*REPORT, "out", "--format", "markdown")[0] == 0
    assert precious.read_text() == PRECIOUS


DRAFTS = cases(
    *(
        (place, command)
        for place in (".draft-a.npy", ".a.npy")  # names of drafts in earlier versions
        for command in (
            "embed state imgs -o a.npy",
            "export state --to safetensors -o a.npy",
            "export state --to torchscript -o a.npy",
        )
    ),
    ("new/.encoder.safetensors", "export state --to hub -o new"),
    every=3,
)


@pytest.mark.parametrize(("name", "command"), DRAFTS)
@pytest.mark.parametrize("is_link", [False, True])
def test_drafts_are_new_files(attack: Attack, name: str, command: str, is_link: bool) -> None:
    draft, target = attack.folder / name, attack.put("x.txt")
    draft.parent.mkdir(exist_ok=True)
    draft.symlink_to(target) if is_link else draft.write_text(PRECIOUS)
    code, err = attack.call(*command.split())
    assert code == (2 if name.startswith("new") else 0), err
    assert draft.read_text() == target.read_text() == PRECIOUS
    assert draft.is_symlink() == is_link
    assert not list(attack.folder.glob(".a.npy.*"))


@pytest.mark.parametrize("kind", ["torchscript", pytest.param("onnx", marks=attack_only)])
def test_two_exports_at_once_both_end_well(attack: Attack, kind: str) -> None:
    both = [attack.start(*EXPORT, kind, "-o", "two.out") for _ in range(2)]
    assert [attack.end(process) for process in both] == [0, 0]


WRITES = {
    "report results -o out --format html": ["out"],
    "report results -o out --format markdown --format latex": ["out"],
    "embed state imgs -o f.parquet": ["f.parquet"],
    "export state --to onnx -o e.onnx": ["e.onnx"],
    "export state --to safetensors -o e.st": ["e.st"],
    "export state --to hub -o hub": ["hub"],
    "data preview folder:set -o p.png": ["p.png"],
}
FULL = cases(*((command, size) for size in (1000, 5000, 60_000) for command in WRITES), every=7)


@pytest.mark.parametrize(("command", "size"), FULL)
def test_a_full_disk_leaves_whole_files_and_no_others(attack: Attack, command: str, size: int) -> None:
    assert attack.call(*command.split())[0] == 0
    before = attack.files()
    code, err = attack.call(*command.split(), largest_file=size)
    assert code in (0, 2), err
    assert code == 0 or (err.count("\n") == 1 and err.startswith("ocssl: ")), err
    after = attack.files()
    assert {*before} == {*after} - {name for name in after if name.startswith("f.parquet.parts/")}
    assert all(len(after[name]) != size for name in after if after[name] != before.get(name))


# ---------------------------------------------------------------------- folders

FOREIGN = cases(
    ("f.parquet.parts/a.jpg", "embed state imgs -o f.parquet"),
    ("f.parquet.parts/b/c.jpg", "embed state imgs -o f.parquet"),
    ("f.parquet.parts/mine.parquet", "embed state imgs -o f.parquet"),
    ("f.parquet.parts/000000.parquet", "embed state imgs -o f.parquet"),
    ("f.parquet.parts/made-from.txt", "embed state imgs -o f.parquet"),
    ("f.parquet.parts/.lock", "embed state imgs -o f.parquet"),
    ("f.parquet.parts/mine.parquet f.parquet.parts/notes.txt", "embed state imgs -o f.parquet"),
    ("f.parquet.parts", "embed state imgs -o f.parquet"),
    ("p/checkpoints/100/w.pt p/checkpoints/200/w.pt p/checkpoints/300/w.pt", "run {RUN} --output p"),
    ("p/checkpoints/draft-thesis/ch1.tex", "run {RUN} --output p"),
    ("p/.config.yaml.backup", "run {RUN} --output p"),
    ("p/.lock", "run {RUN} --output p"),
    ("p/photo.jpg", "run {RUN} --output p"),
    ("p/checkpoints/draft-thesis/ch1.tex", "learn imgs --state p {LEARN}"),
    ("p/checkpoints/5/w.pt p/checkpoints/draft-x/ch1.tex", "learn imgs --state p {LEARN}"),
    ("p/checkpoints", "learn imgs --state p {LEARN}"),
    ("p/metrics.jsonl", "learn imgs --state p {LEARN}"),
    ("p/ledger.sqlite", "learn imgs --state p {LEARN}"),
    ("p/encoder/tensors-resnet.safetensors", "learn imgs --state p {LEARN}"),
    ("p/encoder/draft-notes.json", "learn imgs --state p {LEARN}"),
    ("p/encoder/.tmpbackup", "learn imgs --state p {LEARN}"),
    ("p/encoder/encoder.json", "learn imgs --state p {LEARN}"),
    ("p/notes.txt", "sweep {SWEEP} --output p"),
    ("p/photo.jpg", "learn imgs --state p {LEARN}"),
    ("p/a.jpg", "export state --to hub -o p"),
    ("imgs/photo.jpg", "learn imgs --state imgs {LEARN}"),
    every=4,
)


def filled(command: str) -> list[str]:
    return command.format(RUN=" ".join(RUN), LEARN=" ".join(LEARN), SWEEP="paper-tuning").split()


@pytest.mark.parametrize(("name", "command"), FOREIGN)
def test_a_folder_with_anything_that_is_not_ours_is_refused(attack: Attack, name: str, command: str) -> None:
    for one in name.split():
        attack.put(one)
    attack.refuse(*filled(command), says=name.partition("/")[0])


KEPT = cases(
    ("state/checkpoints/draft-thesis/ch1.tex", "learn imgs --state state {LEARN}", 2),
    ("state/encoder/tensors-resnet.safetensors", "learn imgs --state state {LEARN}", 0),
    ("state/encoder/.tmpbackup", "learn imgs --state state {LEARN}", 0),
    ("state/notes.txt", "learn imgs --state state {LEARN}", 0),
    ("open/checkpoints/draft-mine/thesis.tex", "run --resume open -q", 0),
    ("open/checkpoints/7/w.pt", "run --resume open -q", 0),
    ("state/.git/config", "learn imgs --state state {LEARN}", 0),
    ("state/.bashrc", "learn imgs --state state {LEARN}", 0),
    ("run/.bashrc", "run --resume run -q", 0),
    every=2,
)


@pytest.mark.parametrize(("name", "command", "code"), KEPT)
def test_foreign_files_in_folders_of_ours_stay(attack: Attack, name: str, command: str, code: int) -> None:
    path = attack.put(name)
    found, err = attack.call(*filled(command))
    assert path.read_text() == PRECIOUS
    assert found == code or name.endswith("7/w.pt"), err


def test_no_draft_is_removed_through_a_link(attack: Attack) -> None:
    thesis = attack.put("other/draft-0123456789ab/thesis.tex")
    (attack.folder / "p").mkdir()
    (attack.folder / "p" / "checkpoints").symlink_to("../other")
    attack.refuse("learn", "imgs", "--state", "p", *LEARN)
    attack.refuse("run", *RUN, "--output", "p")
    assert thesis.read_text() == PRECIOUS


LINKS = cases(
    ("f.parquet.parts", "embed state imgs -o f.parquet"),
    ("state/.lock", "learn imgs --state state {LEARN}"),
    ("open/.lock", "run --resume open -q"),
    every=3,
)


@pytest.mark.parametrize(("name", "command"), LINKS)
def test_a_link_to_a_place_of_somebody_else_leaves_it_alone(attack: Attack, name: str, command: str) -> None:
    precious = attack.put("other/thesis.tex")
    (attack.folder / name).unlink(missing_ok=True)
    (attack.folder / name).symlink_to(precious if name.endswith(".lock") else precious.parent)
    attack.refuse(*filled(command))


SAVES = ("tensors-resnet.safetensors", "draft-notes.json", ".tmpbackup", "notes.txt", "learner.json")


@pytest.mark.parametrize("name", SAVES)
@pytest.mark.parametrize("write", [Learner.save, publish])
def test_a_learner_is_not_saved_among_foreign_files(tmp_path: Path, name: str, write) -> None:
    (tmp_path / name).write_text(PRECIOUS)
    learner = Learner(backbone="convnet-w4", image_size=8, hidden_dim=8, output_dim=8, device="cpu")
    with pytest.raises(OcsslError, match=re.escape(str(tmp_path))):
        write(learner, tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.name != ".lock"] == [name]
    assert (tmp_path / name).read_text() == PRECIOUS


def test_an_interrupted_embedding_keeps_what_else_is_in_its_folder(attack: Attack) -> None:
    assert attack.call(*EMBED, "f.parquet", die_at_sync=3)[0] == -9
    assert (attack.folder / "f.parquet.parts" / "made-from.txt").exists()
    kept = attack.put("f.parquet.parts/mine.parquet")
    assert attack.call(*EMBED, "f.parquet")[0] == 0
    assert kept.read_text() == PRECIOUS
    assert [path.name for path in kept.parent.iterdir()] == ["mine.parquet"]


# ---------------------------------------------------------------------- paths that are none

PATHS = cases(
    *(
        (command, path)
        for command in ("embed state imgs -o", "export state --to onnx -o", "data preview folder:set -o")
        for path in (".", "", "imgs", "/dev/null", "pipe", "x" * 5000, "/")
    ),
    *(("learn imgs --state", path) for path in ("x" * 5000, "enc.safetensors", "pipe")),
    ("run --output", "x" * 5000),
    ("embed state", "x" * 5000),
    ("embed", "x" * 5000),
    ("show", "x" * 5000),
    ("compare", "x" * 5000),
    ("report", "x" * 5000),
    ("embed state", "loop.tar"),
    ("learn --state p", "loop.tar"),
)


@pytest.mark.parametrize(("command", "path"), PATHS)
def test_a_path_that_cannot_be_written_is_refused(attack: Attack, command: str, path: str) -> None:
    os.mkfifo(attack.folder / "pipe")
    (attack.folder / "loop.tar").symlink_to("loop.tar")
    words = command.split()
    more = {"embed": ["imgs", "-o", "o"] if len(words) == 1 else ["-o", "o"] if len(words) == 2 else []}.get(
        words[0], []
    )
    more = LEARN if words[0] == "learn" else RUN if words[0] == "run" else more
    attack.refuse(*words, path, *more)


def test_the_copy_is_not_the_template(template: Path, attack: Attack, server: Popen[str]) -> None:
    shutil.rmtree(attack.folder / "imgs")
    assert (template / "imgs").exists()
