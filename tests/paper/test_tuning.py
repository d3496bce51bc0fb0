"""``ocssl paper tune`` and what ``ocssl paper list`` says is left."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from helpers.cli import Ocssl
from helpers.results import PUBLISHED
from ocssl.cli import flags, paper
from ocssl.results import TABLES
from ocssl.results.published import read_yaml
from ocssl.sweeps import driver
from ocssl.sweeps.driver import read_started

TINY = {
    "image_size": 8,
    "samples_per_class": 12,
    "experiences": 2,
    "backbone": "convnet-w4",
    "hidden_dim": 8,
    "output_dim": 16,
    "probe.max_epochs": 2,
    "device": "cpu",
}
CHANGES = [word for name, value in TINY.items() for word in ("--set", f"{name}={value}")]


def test_every_row_of_the_low_budget_has_a_grid_around_the_papers_values() -> None:
    for table in ("low-simsiam", "views"):
        for row in TABLES[table].rows:
            if not row.untrained:
                papers = row.hyperparameters()
                assert float(papers["lr"]) in row.tuning["lr"]
                assert bool(papers["omega"]) <= ("omega" in row.tuning)
    cla_b = {"lr": [0.003, 0.01, 0.03, 0.1], "omega": [0.1, 0.3, 1.0, 3.0]}
    assert TABLES["views"].row("cla-b").tuning == TABLES["low-simsiam"].row("cla-b").tuning == cla_b
    cassle = {"lr": [0.01, 0.03, 0.1], "omega": [0.1, 0.3, 1.0, 3.0], "from_start": [False, True]}
    assert TABLES["views"].row("cassle").tuning == TABLES["low-simsiam"].row("cassle").tuning == cassle


def test_a_row_is_tuned_on_validation_images_and_its_best_values_fit_the_table(ocssl: Ocssl, tmp_path: Path) -> None:
    command = ("paper", "tune", "views", "--dataset", "shapes", "--rows", "finetune", *CHANGES)
    code, said = ocssl(*command, "--dry-run")
    assert code == 0
    assert "finetune: lr 0.003 0.01 0.03 0.1, 4 runs in results/tuning/views-clean/finetune, 0 done" in said
    assert not (tmp_path / "results").exists()
    code, said = ocssl(*command, "-q")
    assert code == 0, said
    place = tmp_path / "results" / "tuning" / "views-clean" / "finetune"
    best = yaml.safe_load((place / "best.yaml").read_text())
    assert best["lr"] in read_started(place).space["lr"]
    assert best["joint_views"] is False
    results = list(place.rglob("result.json"))
    assert len(results) == 4
    assert all('"measure_on": "validation"' in path.read_text() for path in results)
    best_file = "results/tuning/views-clean/finetune/best.yaml"
    assert f"ocssl paper run views --dataset shapes --protocol clean --tuned {best_file}" in said
    code, said = ocssl(*command, "-q")  # everything is there: nothing is run again
    assert code == 0, said
    assert len(list(place.rglob("result.json"))) == 4
    for changes, found in ((["--dataset", "cifar100"], "dataset shapes, not cifar100"), (["--set", "tau=0.9"], None)):
        code, said = ocssl(*command, *changes, "--dry-run")  # tau is a setting of other rows
        assert (code, "choose another --output" in said) == ((2, True) if found else (0, False))
        assert f"results/tuning/views-clean/finetune' has {found}" in said or not found


def test_tuning_stops_at_its_time_and_goes_on_from_the_small_files(
    ocssl: Ocssl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = {"lr": [0.01, 0.03], "from_start": [False, True]}
    monkeypatch.setitem(read_yaml("tables")["tuning"]["low"], "cassle", grid)
    command = ("paper", "tune", "views", "--dataset", "shapes", *CHANGES, "-q")
    place = tmp_path / "results" / "tuning" / "views-clean" / "cassle"
    times = itertools.chain([0.0, 0.0], itertools.repeat(1000.0))
    monkeypatch.setattr(driver, "time", SimpleNamespace(monotonic=lambda: next(times)))
    for module in (flags, paper):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 0.0))
    code, said = ocssl(*command, "--rows", "cassle", "--max-seconds", "480")
    assert code == 0, said
    assert "not all rows are tuned yet; the same command goes on" in said
    done = {path: path.stat().st_mtime_ns for path in place.rglob("result.json")}
    assert len(done) == 2
    assert not (place / "best.yaml").exists()
    for path in place.rglob("encoder.safetensors"):
        path.unlink()
    code, said = ocssl(*command, "--rows", "cassle,finetune", "--max-seconds", "0")
    assert code == 0, said
    assert "lr 0.01 0.03 × from_start false true, 4 runs in results/tuning/views-clean/cassle, 2 done" in said
    assert not (place.parent / "finetune").exists()
    code, said = ocssl(*command, "--rows", "cassle")
    assert code == 0, said
    assert len(list(place.rglob("result.json"))) == 4
    assert {path: path.stat().st_mtime_ns for path in done} == done
    assert yaml.safe_load((place / "best.yaml").read_text())["from_start"] in (False, True)


def test_failed_configurations_are_counted_and_the_command_says_so(
    ocssl: Ocssl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(read_yaml("tables")["tuning"]["low"], "finetune", {"lr": [0.01, 1e30]})
    code, said = ocssl("paper", "tune", "views", "--dataset", "shapes", "--rows", "finetune", *CHANGES, "-q")
    assert code == 1
    place = Path("results/tuning/views-clean/finetune")
    assert f"finetune: 1 of 2 configurations failed; '{place}/table.md' says why" in said
    assert f"--tuned {place}/best.yaml" in said
    assert "failed: " in (tmp_path / place / "table.md").read_text()


def test_a_folder_of_sweeps_that_cannot_be_written_is_refused_with_the_remedy(ocssl: Ocssl, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = "ocssl: cannot write 'file/{}': Not a directory; choose another --output"
    tune = ("paper", "tune", "views", "--dataset", "shapes", "--rows", "finetune", *CHANGES, "-o", "file")
    for words, place in ((tune, "views-clean/finetune"), (("sweep", "shapes-tuning", "-o", "file/sweep"), "sweep")):
        code, said = ocssl(*words)
        assert (code, said.splitlines()[-1]) == (2, refused.format(place))


def test_rows_without_a_grid_and_another_protocol_are_refused(ocssl: Ocssl) -> None:
    code, said = ocssl("paper", "tune", "tau")
    assert (code, "none of these rows has a grid" in said) == (2, True)
    code, said = ocssl("paper", "run", "switches", "--protocol", "authors", "--dry-run")
    assert (code, "table 'switches' is of the protocol clean, not authors" in said) == (2, True)


def test_the_list_ends_with_the_commands_that_fill_what_is_missing(ocssl: Ocssl, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    for pattern in ("cifar100-*-high-clean-seed*.json", "cifar100-simclr-er-fifo-high-clean-seed0.json"):
        for path in PUBLISHED.glob(pattern):
            if "simclr" in pattern or "simclr" not in path.name:
                shutil.copy(path, kept)
    code, said = ocssl("paper", "list", "--results", str(kept), "--seeds", "0,1,2", "--protocol", "clean")
    assert code == 0, said
    lines = said.partition("To run next, for seeds 0 1 2")[2].splitlines()
    assert not any("ocssl paper run high-simsiam " in line for line in lines)  # complete
    rows, there = 7, 1
    assert f"{rows * 3 - there} runs: ocssl paper run high-simclr --seeds 0,1,2" in map(str.strip, lines)
    assert not any("--protocol authors" in line for line in lines)
    code, said = ocssl("paper", "list", "--results", str(kept), "--seeds", "0")
    assert "ocssl paper run high-simsiam --protocol authors --seeds 0\n" in said
