"""The tables are the paper's: every number, every hyperparameter, and no number beside other settings."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from helpers.cli import Ocssl
from helpers.results import content, put
from ocssl.errors import ConfigError
from ocssl.paper.plan import configure, first_stage
from ocssl.results import TABLES, PaperRow, Result, Store, find_table, sections_of
from ocssl.results.published import read_csv
from ocssl.runs.naming import experiment_key as key
from ocssl.runs.naming import overrides, run_name

EMPTY = {name: sections_of(Store(), table) for name, table in TABLES.items()}


def runs_of(table: str) -> list[PaperRow]:
    return [row for row in find_table(table).rows if not row.untrained]


def test_every_number_of_the_paper_stands_in_a_table() -> None:
    shown = {
        (
            section.table.source,
            section.dataset,
            row.method or "-",
            section.table.row(row.name).published,
            row.block and row.block[1],
            value.mean,
            value.std,
        )
        for sections in EMPTY.values()
        for section in sections
        for row in section.rows
        for value in row.published.values()
    }
    for line in read_csv("results"):
        where = (line["table"], line["dataset"], line["ssl"], line["method"], int(line["b"]) if line["b"] else None)
        for number in ("final", "avg"):
            if line[number]:
                assert (*where, float(line[number]), float(line[f"{number}_std"])) in shown, line


def test_a_number_stands_only_beside_the_settings_it_was_found_with() -> None:
    published = {
        (name, row.name): row.block
        for name, sections in EMPTY.items()
        for section in sections
        for row in section.rows
        if section.dataset == "cifar100" and "final" in row.published
    }
    ablations = {row for name, row in published if name in ("tau", "omega")}
    assert ablations == {"cla-e-tau0.999", "cla-e-omega0.3", "cla-r-omega1.0"}
    assert {block[1:] for (name, _), block in published.items() if name == "passes-simsiam" and block} == {
        (30, 1),
        (138, 3),
    }
    assert not [row for name, row in published if name == "smoke"]


def test_views_alone_are_the_papers_own_way_and_differ_from_the_low_budget_in_nothing_else() -> None:
    clean = [section for section in EMPTY["low-simsiam"] if section.protocol == "clean"]
    for alone, together in zip(EMPTY["views"], clean, strict=True):
        assert [row.published for row in alone.rows] == [row.published for row in together.rows]
    for alone, together in zip(runs_of("views"), runs_of("low-simsiam"), strict=True):
        assert alone.settings == {**together.settings, "joint_views": False}
        same = [
            key(configure(alone, "cifar100", protocol)) == key(configure(together, "cifar100", protocol))
            for protocol in ("clean", "authors")
        ]
        assert same == [False, True]  # the authors' code passes each view alone


@pytest.mark.parametrize("line", read_csv("hyperparameters"), ids=lambda line: "-".join(line.values()))
def test_runs_use_the_hyperparameters_that_the_paper_chose(line: dict[str, str]) -> None:
    ssl = "simsiam" if line["ssl"] == "-" else line["ssl"]
    (row,) = (
        row
        for row in runs_of(f"{line['budget']}-{ssl}")
        if row.published == line["method"] and row.kind[-1] == (10, int(line["b"]), int(line["n_p"]))
    )
    assert row.hyperparameters(line["dataset"]) == line
    config = configure(row, line["dataset"], "clean").to_dict()
    assert config["lr"] == float(line["lr"])
    if line["omega"]:
        assert config["omega"] == float(line["omega"])


def as_result(row: PaperRow, dataset: str, protocol: str) -> Result:
    """A result of a row's run, as far as rows read it."""
    config = configure(row, dataset, protocol)  # type: ignore[arg-type]
    return Result.model_construct(dataset=dataset, overrides=overrides(config), config=config.to_dict())


@pytest.mark.parametrize("table", TABLES)
def test_the_result_of_a_rows_run_is_found_by_that_row_and_by_no_other_of_its_table(table: str) -> None:
    for dataset, protocol in product(TABLES[table].datasets, TABLES[table].protocols):
        results = {row.name: as_result(row, dataset, protocol) for row in runs_of(table)}
        for row in runs_of(table):
            found = [
                name
                for name, result in results.items()
                if (result.strategy, result.method, result.memory, result.block) == row.kind and row.matches(result, {})
            ]
            assert found == [row.name]


def test_a_run_is_called_the_same_wherever_it_stands_and_no_other_is_called_so() -> None:
    names: dict[str, set[str]] = {}
    for table, protocol in product(TABLES.values(), ("clean", "authors")):
        for row, dataset in product(runs_of(table.id), table.datasets):
            config = configure(row, dataset, protocol)  # type: ignore[arg-type]
            names.setdefault(run_name(config), set()).add(key(config))
    assert all(len(keys) == 1 for keys in names.values())
    assert len(names) == len({next(iter(keys)) for keys in names.values()})


@pytest.mark.parametrize("method", ["simsiam", "simclr"])
def test_early_pretraining_spends_what_training_without_it_spends(method: str) -> None:
    table = find_table(f"pretraining-{method}")
    whole = table.row("iid-whole")
    for name in ("cla-r-iid", "cla-e-iid"):
        row = table.row(name)
        first, then = configure(first_stage(row), "cifar100", "clean"), configure(row, "cifar100", "clean")
        assert row.strategy == "iid"
        assert then.init_from == f"runs/{run_name(first)}"
        blocks = [part.kind[-1] for part in (first_stage(row), row, whole)]
        assert len({b for _, b, _ in blocks}) == 1
        assert blocks[0][2] + blocks[1][2] == blocks[2][2]
        assert then.to_dict()["lr"] == configure(whole, "cifar100", "clean").to_dict()["lr"]


def test_a_run_that_started_from_another_strategy_is_no_result_of_the_row() -> None:
    row = find_table("pretraining-simsiam").row("cla-e-iid")
    result = as_result(row, "cifar100", "clean")
    assert row.matches(result, {})
    for begun in ("cla-r-fifo-high-clean", "cla-e-fifo-high-clean-tau0.9", "cla-e-fifo-low-clean"):
        config = result.config | {"init_from": f"runs/cifar100-simsiam-{begun}-seed0"}
        assert not row.matches(result.model_copy(update={"config": config}), {})


def test_a_strategy_stands_for_all_its_rows() -> None:
    table = find_table("high-simsiam")
    assert [row.name for row in table.select(["er", "cla-e"])] == ["er-reservoir", "er-fifo", "cla-e"]
    assert [row.name for row in find_table("low-simsiam").select(["iid"])] == ["iid-b10", "iid"]
    assert table.select([]) == table.rows


def test_er_with_a_memory_stands_for_its_rows_in_every_table() -> None:
    names = {id: [row.name for row in find_table(id).select(["er-fifo"])] for id in ("high-simsiam", "passes-simclr")}
    assert names["high-simsiam"] == ["er-fifo"]
    assert names["passes-simclr"] == ["er-fifo-low", "er-fifo-np1", "er-fifo-np3", "er-fifo-np6"]


def test_a_strategy_stands_for_the_runs_that_go_on_from_its_own() -> None:
    assert [row.name for row in find_table("pretraining-simclr").select(["cla-r"])] == ["cla-r-first", "cla-r-iid"]


def test_unknown_rows_and_tables_are_refused_with_the_nearest(ocssl: Ocssl) -> None:
    with pytest.raises(ConfigError, match="did you mean 'cla-e'"):
        find_table("high-simsiam").select(["cla-ee"])
    code, said = ocssl("paper", "show", "low-simsam")
    assert code == 2
    assert "unknown table 'low-simsam'; did you mean 'low-simsiam'?" in said


@pytest.mark.parametrize("columns", ["80", "120"])
def test_the_list_counts_cells_and_says_which_data_are_there(
    ocssl: Ocssl, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    code, said = ocssl("paper", "list")
    assert code == 0
    lines = {line.split()[0]: line for line in said.splitlines() if line.strip()}
    assert set(TABLES) <= set(lines)
    assert lines["smoke"].split()[-4:] == ["shapes", "yes", "0/4", "0/4"]
    assert lines["high-simsiam"].split()[-4:] == ["cifar100", "no", "0/10", "0/10"]


def test_a_copy_of_a_tables_result_is_listed(tmp_path: Path, ocssl: Ocssl) -> None:
    for name in ("a", "copy of a"):
        put(tmp_path / "results", name, content())
    assert "belong in none" not in ocssl("paper", "list")[1]
    put(tmp_path / "results", "other", content(tau=0.5))
    assert "Results that belong in none of these: 1" in ocssl("paper", "list")[1]


def test_the_list_has_each_count_beside_its_data_set_and_protocol(tmp_path: Path, ocssl: Ocssl) -> None:
    for place, protocol in (("folder:a", "clean"), ("folder:b", "authors")):
        put(tmp_path / "results", place.replace(":", "-"), content(dataset=place, protocol=protocol))
    lines = ocssl("paper", "list")[1].splitlines()
    clean, authors = (lines[0].index(protocol) for protocol in ("clean", "authors"))
    for place, shown in (("folder:a", clean), ("folder:b", authors)):
        line = next(line for line in lines if place in line)
        assert [at for at in (clean, authors) if line[at:].startswith("2/10")] == [shown]


def test_an_unknown_data_set_is_not_one_without_results(ocssl: Ocssl) -> None:
    code, said = ocssl("paper", "show", "high-simsiam", "--dataset", "cifar1000")
    assert code == 2
    assert "unknown data set 'cifar1000'" in said
    code, said = ocssl("paper", "show", "downstream-simsiam", "--dataset", "cifar100", "--protocol", "authors")
    assert code == 0
    assert "run yet: ocssl paper run downstream-simsiam --dataset 'cifar100->svhn' --protocol authors\n" in said


def test_results_of_a_plugins_data_set_are_shown_without_the_plugin(tmp_path: Path, ocssl: Ocssl) -> None:
    found = content(final=56.78)
    put(tmp_path / "results", "mine", found | {"dataset": "mine", "config": found["config"] | {"dataset": "mine"}})
    code, said = ocssl("paper", "list")
    assert code == 0, said
    assert next(line.split() for line in said.splitlines() if "mine" in line) == ["mine", "no", "2/10"]
    assert "--dataset mine" not in said
    code, said = ocssl("paper", "show", "high-simsiam", "--dataset", "mine")
    assert code == 0, said
    assert "56.8" in said


def test_brackets_in_the_name_of_a_data_set_are_no_markup(tmp_path: Path, ocssl: Ocssl) -> None:
    place = "folder:frames[/new]"
    table = find_table("high-simsiam")
    put(tmp_path / "results", "frames", content(dataset=place))
    for words in (("list",), ("show", table.id), ("run", table.id, "--dataset", place, "--dry-run")):
        code, said = ocssl("paper", *words)
        assert code == 0, said
        assert place in said
