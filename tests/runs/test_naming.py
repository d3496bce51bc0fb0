"""Names of runs: one function, no collision, and each name says what differs."""

from __future__ import annotations

from pathlib import Path

import pytest
from drawing import draw

from helpers.command import Command
from helpers.results import PUBLISHED, content, put
from ocssl import memory, strategies
from ocssl.paper.plan import TableRun, make_plan
from ocssl.results import TABLES, read_result
from ocssl.results.read import Store, read_results
from ocssl.runs import config as run_config
from ocssl.runs.config import RunConfig, parse
from ocssl.runs.folder import RunFolder
from ocssl.runs.naming import experiment_key, label, names_of, overrides, run_name
from ocssl.runs.presets import resolve


@pytest.fixture
def pictures(tmp_path: Path) -> str:
    """Twenty classes of a few images, for the paper's twenty experiences."""
    for split, count in (("train", 12), ("test", 2)):
        for number in range(20):
            draw(tmp_path / "pictures" / split / f"{number:02d}", count, seed=number)
    return "folder:pictures"


def test_runs_and_the_papers_runs_share_a_folder_without_collision(
    ocssl: Command, tmp_path: Path, pictures: str
) -> None:
    fast = ("--set", "references=false", "--set", "knn=false")  # decides no number of the experiment
    common = ("--dataset", pictures, "--strategy", "finetune", "--backbone", "convnet-w4", *fast, "--hidden-dim")
    table = ("low-simsiam", "--rows", "finetune", "--seeds", "0", "--dataset", pictures)
    paper = ("paper", "run", *table, "--set", "backbone=convnet-w4", "--set", "hidden_dim=8", *fast, "-q")
    for command in (("run", "-q", *common, "8"), paper):
        code, _, err = ocssl(*command)
        assert code == 0, err
    ocssl("run", "-q", *common, "9", die_at_sync=8)  # its name is what matters
    found = {folder.name: folder for folder in (tmp_path / "runs").iterdir()}
    plain, changed, papers = (
        "folder-pictures-simsiam-finetune-clean-backboneconvnet-hidden_dim8-width4-seed0",
        "folder-pictures-simsiam-finetune-clean-backboneconvnet-hidden_dim9-width4-seed0",
        "folder-pictures-simsiam-finetune-low-clean-backboneconvnet-hidden_dim8-width4-seed0",
    )
    assert found.keys() == {plain, changed, papers}
    for name, folder in found.items():
        assert run_name(RunFolder(folder).read_config()) == name
        assert name == changed or read_result(folder).name == name
    stored = [path.stem for path in (tmp_path / "results").glob("*.json")]
    assert stored == [papers]
    # The same again is the same run: refused, or found to be done.
    for hidden, holds in (("8", "holds a finished run"), ("9", "holds another run")):
        code, _, err = ocssl("run", "-q", *common, hidden)
        assert (code, holds in err) == (2, True), err
    assert "1 of 1 runs are done" in ocssl(*paper)[1]
    # Without its result in the store, the paper's run is the one in the folder, and is not run again.
    (tmp_path / "results" / f"{papers}.json").unlink()
    assert ocssl(*paper)[0] == 0
    assert (tmp_path / "results" / f"{papers}.json").read_bytes() == (found[papers] / "result.json").read_bytes()


CHANGES: list[dict[str, object]] = [
    {"strategy": "er"},
    {"strategy": "er", "memory": "fifo"},
    {"method": "simclr"},
    {"memory": "reservoir"},
    {"dataset": "svhn"},
    {"protocol": "authors"},
    {"strategy": "osiris-r", "method": None, "budget": "high"},
    {"budget": "low"},
    {"stream": "iid"},
    {"stream": "iid", "online_stream_batch": 5},
    {"stream": "iid", "passes": 1},
    {"stream": "iid", "experiences": 5},
    {"stream": "blurred"},
    {"stream": "blurred", "overlap": 0.5},
    {"stream": "ordered"},
    {"stream": "ordered", "sort_by": "name"},
    {"backbone": "convnet"},
    {"backbone": "resnet18-w16"},
    {"variant": "original", "strategy": "cassle"},
    {"stream_batch": 5},
    {"stream_batch": 5, "batch": 138},
    {"batch": 64},
    {"optimizer": "lars"},
    {"passes": 1},
    {"early_passes": 4, "early_images": 100},
    {"early_passes": 5, "early_images": 100},
    {"early_passes": 4, "early_images": 200},
    {"early_images": 100},
    {"average": 0.99},
    {"average": 0.99, "average_power": 4.0},
    {"probe": {"lr": 0.1}},
    {"probe": {"lr": 0.2}},
    {"init_from": "runs/cifar100-simsiam-er-fifo-high-clean-seed0"},
    {"init_from": "runs/cifar100-simsiam-er-fifo-low-clean-seed0"},
    {"seed": 1},
]


SINGLE = ("augmentation", "normalize_first")  # have one value, or follow the protocol


def test_the_digest_of_a_run_stays() -> None:
    """Checkpoints hold it."""
    digest = resolve({"strategy": "cla-e", "budget": "high"}).digest()
    assert digest == "a23c83d956a2c941a27c556d9bd2b89084d72b69e4a069dde57ab98bc46a5999"


def test_runs_that_differ_in_one_setting_have_different_names() -> None:
    """For every setting that makes an experiment: the cases above, and each other setting on its own."""
    base = resolve({})
    cases = [{}, *CHANGES]
    for name, entry in run_config.settings().items():
        known = name in SINGLE or any(name in case for case in CHANGES)
        if entry.marks.affects == "experiment" and name in base.to_dict() and not known:
            cases.append({name: another(name, base.to_dict()[name])})
    named = {run_name(resolve(case)): case for case in cases}
    assert len(named) == len(cases) > 45
    keys = {experiment_key(resolve(case)) for case in cases}
    assert len(keys) == len(cases) - 1, "a seed makes no other experiment"


def test_the_published_results_keep_their_keys() -> None:
    """A setting that is added later says since which version, and changes no key at its default."""
    files = read_results(PUBLISHED).files
    assert len(files) > 100
    for file in files:
        assert experiment_key(parse(file.result.config)) == file.result.key, file.path


def test_a_finished_run_that_another_starts_from_counts_by_its_own_name_not_by_its_folder(tmp_path: Path) -> None:
    """Two experiments in folders of one name are two starts, and an experiment is one start wherever it lies."""

    def then(folder: str, seed: int = 0, **first: object) -> RunConfig:
        put(tmp_path / folder, "result", content(seed=seed, **first))
        return resolve({"seed": seed, "init_from": str(tmp_path / folder)})

    low = then("a/first", strategy="er")
    high, moved, other_seed = then("b/first"), then("c/moved"), then("d/third", seed=1)
    plain = resolve({"init_from": "runs/cifar100-simsiam-cla-e-fifo-high-clean-seed0"})
    assert len({experiment_key(config) for config in (high, moved, other_seed, plain)}) == 1
    assert experiment_key(low) != experiment_key(high)
    assert (run_name(low), run_name(plain)) == (
        "cifar100-simsiam-cla-e-fifo-clean-after-er-reservoir-high-seed0",
        run_name(high),
    )
    assert overrides(low)["init_from"] == "cifar100-simsiam-er-reservoir-high-clean"


def test_a_run_that_another_starts_from_counts_by_its_folder_where_it_has_no_result(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "result.json").write_text("{")
    for folder in ("none", "broken", "x" * 5000):
        assert overrides(resolve({"init_from": str(tmp_path / folder)}))["init_from"] == folder


def another(name: str, value: object) -> object:
    """A value that a setting takes and does not have."""
    given: dict[str, object] = {
        "cbp": 1000,
        "aligner_dim": 64,
        "evaluate": "final",
        "measure_on": "validation",
        "sample_order": "seed",
        "samples_per_class": 9,
        "stem": "standard",
        "class_order": "authors",
        "conv1_init": "torch",
        "crops": "clamped",
        "fit": "squash",
        "weights": "w.pth",
        "pixel_range": (0.0, 255.0),
    }
    if name in given:
        return given[name]
    if isinstance(value, bool):
        return not value
    if isinstance(value, list):
        return tuple(part * 0.5 for part in value)
    assert isinstance(value, int | float), name
    return value + 1 if isinstance(value, int) else value / 2


def test_what_decides_no_experiment_is_in_no_name() -> None:
    base = resolve({"budget": "high"})
    for change in (
        {"device": "cpu"},
        {"precision": "fp32"},
        {"knn": False},
        {"log_every": 3},
        {"trackers": ["mlflow"]},
    ):
        changed = base.change(**change)
        assert names_of(changed) == names_of(base)
    assert overrides(base) == {}


def test_a_name_says_what_differs() -> None:
    table = {"strategy": "cla-r", "budget": "high"}
    assert run_name(resolve(table | {"omega": 10.0, "lr": 0.1})) == (
        "cifar100-simsiam-cla-r-fifo-high-clean-lr0.1-omega10.0-seed0"
    )
    assert label(resolve(table | {"omega": 10.0, "lr": 0.1})) == "CLA-R"
    assert run_name(resolve({"stream": "iid", "budget": "low", "batch": 10})).endswith("-iid-low-clean-b10-np3-seed0")
    many = table | {"omega": 10.0, "lr": 0.1, "momentum": 0.8, "weight_decay": 0.0}
    digest = experiment_key(resolve(many))[:8]
    assert run_name(resolve(many)) == f"cifar100-simsiam-cla-r-fifo-high-clean-{digest}-seed0"


def test_a_long_address_of_a_data_set_leaves_the_seed_and_what_differs_in_the_name() -> None:
    address = "folder:/" + "/".join(["a long folder"] * 30)
    cases = [{}, {"seed": 1}, {"lr": 0.7}, {"strategy": "er"}, {"dataset": address + "/other"}]
    names = [run_name(resolve({"dataset": address, "experiences": 2, **case})) for case in cases]
    assert len(set(names)) == len(cases)
    assert all(len(name.encode()) < 200 and "/" not in name for name in names)
    assert names[1].endswith("-seed1")
    shorter = TableRun("", f"folder:{'x' * 100}->{address}", resolve({"dataset": f"folder:{'x' * 100}"}), Path("run"))
    assert "-seed0-on-folder--a-long-folder" in shorter.name
    assert len(f"{shorter.name}.json".encode()) <= 255, "as file systems take them"


def test_the_runs_of_the_papers_tables_have_names_of_their_own() -> None:
    found: dict[str, str] = {}
    for table in TABLES.values():
        for dataset in table.datasets:
            for run in make_plan(Store(), table.rows, dataset, "clean", [0]).wanted:
                key = f"{experiment_key(run.config)} {run.dataset}"
                assert found.setdefault(run.name, key) == key, run.name
    assert len(set(found.values())) == len(found)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"strategy": "mine"}, "mine"),
        ({"strategy": "mine", "memory": "kept"}, "mine, kept"),
        ({"strategy": "er", "memory": "kept"}, "ER w/ kept"),
        ({"strategy": "named"}, "Mine"),
    ],
)
def test_a_part_that_derives_from_another_does_not_have_its_label(monkeypatch, parts, expected):
    class Mine(strategies.ExperienceReplay):
        """Experience replay, changed."""

    class Named(strategies.ExperienceReplay):
        label = "Mine"

    class Kept(memory.Fifo):
        """FIFO, changed."""

    monkeypatch.setitem(strategies.registry._entries, "mine", Mine)
    monkeypatch.setitem(strategies.registry._entries, "named", Named)
    monkeypatch.setitem(memory.registry._entries, "kept", Kept)
    assert label(resolve(parts)) == expected
