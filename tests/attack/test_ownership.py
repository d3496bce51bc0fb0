"""Only what ocssl wrote is deleted or replaced; an output is never an input."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from subprocess import Popen

import pytest
from attacking import LEARN, PRECIOUS, RUN, Attack

EMBED = ("embed", "state", "imgs", "-o")
EXPORT = ("export", "state", "--to")
PREVIEW = ("data", "preview", "folder:set", "-o")
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
        for name in ("notes.txt", "photo.jpg", "f.parquet")
    ),
    ("plot.png", "compare results/r0.json --plot {}"),
    ("plot.svg", "compare results/r0.json --plot {}"),
    ("plot.pdf", "compare results/r0.json --plot {}"),
    ("out/report.html", "report results -o out --format html"),
    ("out/report.md", "report results -o out --format markdown"),
    ("out/tables.tex", "report results -o out --format latex"),
    ("out/tables/high-simsiam@cifar100@clean.csv", "report results -o out --format csv --format html"),
    ("out/demo.png", "demo --quick --output out"),
    ("proj/README.md", "export state --to hub -o proj"),
    ("proj/config.json", "export state --to hub -o proj"),
    ("proj/model.safetensors", "export state --to hub -o proj"),
    ("encoder.safetensors", "export state --to safetensors"),
    ("encoder.onnx", "export state --to onnx"),
)


@pytest.mark.parametrize(("name", "command"), OUTPUTS)
def test_a_file_that_ocssl_did_not_write_is_refused(attack: Attack, name: str, command: str) -> None:
    if name.endswith(".csv"):
        assert attack.call(*command.split())[0] == 0
        name = str(next((attack.folder / "out/tables").glob("*.csv")).relative_to(attack.folder))
    attack.put(name)
    attack.refuse(*command.format(name).split(), says="was not written by ocssl")


INPUTS = cases(
    ("embed state imgs -o imgs/000.png", "lies inside"),
    ("embed state imgs -o imgs/new.parquet", "lies inside"),
    ("embed state imgs -o link/new.parquet", "lies inside"),
    ("embed enc.safetensors imgs -o enc.safetensors", "is the input"),
    ("embed enc.safetensors imgs -o twin.safetensors", "is the input"),
    ("embed state f.parquet -o f.parquet", "is the input"),
    ("embed state imgs -o state/encoder/encoder.json", "lies inside"),
    ("export enc.safetensors --to onnx -o enc.safetensors", "is the input"),
    ("export enc.safetensors --to safetensors -o enc.safetensors", "is the input"),
    ("export state --to safetensors -o state/encoder/encoder.json", "lies inside"),
    ("export state --to hub -o state/hub", "lies inside"),
    ("data preview folder:set -o set/train/a/000.png", "lies inside"),
    ("compare results/r0.json -o results/r0.json", "is the input"),
)


@pytest.mark.parametrize(("command", "says"), INPUTS)
@pytest.mark.parametrize("force", [(), pytest.param(("--force",), marks=attack_only)])
def test_an_output_that_is_an_input_is_refused(attack: Attack, command: str, says: str, force: tuple[str, ...]) -> None:
    attack.put("f.parquet")
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
    ("report results -o out --format html --format markdown --format latex --format csv --format png --format svg",),
    every=5,
)


@pytest.mark.parametrize("command", AGAIN)
def test_what_ocssl_wrote_is_replaced_by_the_same_command(attack: Attack, command: str) -> None:
    for _ in range(2):
        code, err = attack.call(*command.split())
        assert code == 0, err


def test_force_replaces_a_file_and_an_empty_file_needs_none(attack: Attack) -> None:
    attack.put("photo.jpg")
    assert attack.call(*EMBED, "photo.jpg", "--force")[0] == 0
    attack.put("empty", "")
    assert attack.call(*EMBED, "empty")[0] == 0
    assert (attack.folder / "empty").read_bytes()[:4] == b"PAR1"


@pytest.mark.parametrize("name", ["report.md", "report.html", "tables.tex"])
def test_reports_of_earlier_versions_are_known_by_what_they_say(attack: Attack, name: str) -> None:
    assert attack.call(*REPORT, "out", "--format", "html", "--format", "markdown", "--format", "latex")[0] == 0
    page = attack.folder / "out" / name
    page.write_text("".join(line for line in page.read_text().splitlines(True) if "made by ocssl" not in line))
    assert attack.call(*REPORT, "out", "--format", "html", "--format", "markdown", "--format", "latex")[0] == 0


@pytest.mark.parametrize(
    "command",
    ["embed state imgs -o a.out", "export state --to torchscript -o a.out", "data preview folder:set -o a.out"],
)
def test_a_link_is_replaced_and_its_target_stays(attack: Attack, command: str) -> None:
    precious = attack.put("doc/precious.txt")
    (attack.folder / "a.out").symlink_to("doc/precious.txt")
    assert attack.call(*command.split())[0] == 0
    assert precious.read_text() == PRECIOUS
    assert not (attack.folder / "a.out").is_symlink()


def test_a_report_replaces_a_link_and_its_target_stays(attack: Attack) -> None:
    precious = attack.put("doc/report.md")
    (attack.folder / "out").mkdir()
    (attack.folder / "out" / "report.md").symlink_to("../doc/report.md")
    assert attack.call(*REPORT, "out", "--format", "markdown")[0] == 0
    assert precious.read_text() == PRECIOUS


@pytest.mark.parametrize("command", ["embed state imgs -o a.parquet", "export state --to safetensors -o a.parquet"])
def test_drafts_are_new_files(attack: Attack, command: str) -> None:
    """Names that drafts had in earlier versions, as a file and as a link, are left alone."""
    draft, target = attack.put(".draft-a.parquet"), attack.put("x.txt")
    (attack.folder / ".a.parquet").symlink_to("x.txt")
    assert attack.call(*command.split())[0] == 0
    assert draft.read_text() == target.read_text() == PRECIOUS
    assert not list(attack.folder.glob(".a.parquet.*"))


def test_two_exports_at_once_both_end_well(attack: Attack) -> None:
    both = [attack.start(*EXPORT, "torchscript", "-o", "two.pt") for _ in range(2)]
    assert [attack.end(process) for process in both] == [0, 0]


# ---------------------------------------------------------------------- folders

FOREIGN = cases(
    ("f.parquet.parts/a.jpg", "embed state imgs -o f.parquet"),
    ("f.parquet.parts/b/c.jpg", "embed state imgs -o f.parquet"),
    ("f.parquet.parts/mine.parquet", "embed state imgs -o f.parquet"),
    ("f.parquet.parts/000000.parquet", "embed state imgs -o f.parquet"),
    ("f.parquet.parts/made-from.txt", "embed state imgs -o f.parquet"),
    ("f.parquet.parts/.lock", "embed state imgs -o f.parquet"),
    ("f.parquet.parts", "embed state imgs -o f.parquet"),
    ("p/checkpoints/100/w.pt", "run {RUN} --output p"),
    ("p/checkpoints/draft-thesis/ch1.tex", "run {RUN} --output p"),
    ("p/.config.yaml.backup", "run {RUN} --output p"),
    ("p/.lock", "run {RUN} --output p"),
    ("p/photo.jpg", "run {RUN} --output p"),
    ("p/checkpoints/draft-thesis/ch1.tex", "learn imgs --state p {LEARN}"),
    ("p/checkpoints/5/w.pt", "learn imgs --state p {LEARN}"),
    ("p/checkpoints", "learn imgs --state p {LEARN}"),
    ("p/metrics.jsonl", "learn imgs --state p {LEARN}"),
    ("p/ledger.sqlite", "learn imgs --state p {LEARN}"),
    ("p/encoder/tensors-resnet.safetensors", "learn imgs --state p {LEARN}"),
    ("p/encoder/draft-notes.json", "learn imgs --state p {LEARN}"),
    ("p/encoder/.tmpbackup", "learn imgs --state p {LEARN}"),
    ("p/encoder/encoder.json", "learn imgs --state p {LEARN}"),
    ("p/notes.txt", "sweep {SWEEP} --output p"),
    every=4,
)


def filled(command: str) -> list[str]:
    return command.format(RUN=" ".join(RUN), LEARN=" ".join(LEARN), SWEEP="paper-tuning").split()


@pytest.mark.parametrize(("name", "command"), FOREIGN)
def test_a_folder_with_anything_that_is_not_ours_is_refused(attack: Attack, name: str, command: str) -> None:
    attack.put(name)
    attack.refuse(*filled(command), says="p" if name.startswith("p/") else "f.parquet.parts")


KEPT = cases(
    ("state/checkpoints/draft-thesis/ch1.tex", "learn imgs --state state {LEARN}", 2),
    ("state/encoder/tensors-resnet.safetensors", "learn imgs --state state {LEARN}", 0),
    ("state/encoder/.tmpbackup", "learn imgs --state state {LEARN}", 0),
    ("state/notes.txt", "learn imgs --state state {LEARN}", 0),
    ("open/checkpoints/draft-mine/thesis.tex", "run --resume open -q", 0),
    ("open/checkpoints/7/w.pt", "run --resume open -q", 0),
    ("state/.git/config", "learn imgs --state state {LEARN}", 0),
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
