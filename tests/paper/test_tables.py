"""That the tables are the paper's: every number, every hyperparameter, and nothing printed where nothing was."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from made_up import Ocssl, content, put

from ocssl.errors import ConfigError
from ocssl.paper import TABLES, Store, cells, find_table
from ocssl.paper.identity import key, run_name
from ocssl.paper.tables import configure, first_stage
from ocssl.runs.paper import table as printed

EMPTY = {name: cells(Store(), table) for name, table in TABLES.items()}
ALL = [cell for found in EMPTY.values() for cell in found]


def test_every_number_of_the_paper_stands_in_a_table() -> None:
    shown = {
        (
            cell.table.source,
            cell.dataset,
            cell.method or "-",
            cell.row.published or cell.row.name,
            cell.block and cell.block[1],
            score.published.mean,
            score.published.std,
        )
        for cell in ALL
        for score in (cell.final, cell.avg)
        if score.published
    }
    for line in printed("results"):
        for number in ("final", "avg"):
            if line[number]:
                where = (
                    line["table"],
                    line["dataset"],
                    line["ssl"],
                    line["method"],
                    int(line["b"]) if line["b"] else None,
                )
                assert (*where, float(line[number]), float(line[f"{number}_std"])) in shown, line


def test_a_number_stands_only_beside_the_settings_it_was_found_with() -> None:
    labels = {
        cell.row.name for cell in EMPTY["tau"] + EMPTY["omega"] if cell.dataset == "cifar100" and cell.final.published
    }
    assert labels == {"cla-e-tau0.999", "cla-e-omega0.3", "cla-r-omega1.0"}
    assert {cell.block[2] for cell in EMPTY["passes-simsiam"] if cell.block and cell.final.published} == {1, 3}
    assert all(
        cell.block[1] == 30
        for cell in EMPTY["passes-simsiam"]
        if cell.block and cell.final.published and cell.block[2] == 1
    )


def test_views_alone_are_the_papers_own_way_and_differ_from_the_low_budget_in_nothing_else() -> None:
    for alone, together in zip(EMPTY["views"], EMPTY["low-simsiam"], strict=True):
        assert (alone.row, alone.dataset, alone.protocol) == (together.row, together.dataset, together.protocol)
        assert (alone.final.published, alone.avg.published) == (together.final.published, together.avg.published)
        if alone.config and together.config:
            assert alone.config.to_dict() == together.config.to_dict() | {"joint_views": False}
            assert (alone.experiment == together.experiment) == (alone.protocol == "authors")  # who pass each alone


@pytest.mark.parametrize("line", printed("hyperparameters"), ids=lambda line: "-".join(line.values()))
def test_runs_use_the_hyperparameters_that_the_paper_chose(line: dict[str, str]) -> None:
    ssl = "simsiam" if line["ssl"] == "-" else line["ssl"]
    (cell, *_) = (
        cell
        for cell in EMPTY[f"{line['budget']}-{ssl}"]
        if (cell.row.published or cell.row.name, cell.dataset) == (line["method"], line["dataset"])
        and cell.block == (10, int(line["b"]), int(line["n_p"]))
    )
    assert cell.config is not None
    assert cell.config["lr"] == float(line["lr"])
    if line["omega"]:
        assert cell.config["omega"] == float(line["omega"])


def test_a_run_is_called_the_same_wherever_it_stands_and_no_other_is_called_so() -> None:
    names: dict[str, set[str]] = {}
    for table, protocol in product(TABLES.values(), ("clean", "authors")):
        for row, dataset in product(table.rows, table.datasets):
            if not row.untrained:
                config = configure(table, row, dataset, protocol)  # type: ignore[arg-type]
                names.setdefault(run_name(config), set()).add(key(config))
    assert all(len(keys) == 1 for keys in names.values())
    assert len(names) == len({next(iter(keys)) for keys in names.values()})


@pytest.mark.parametrize("method", ["simsiam", "simclr"])
def test_early_pretraining_spends_what_training_without_it_spends(method: str) -> None:
    table = find_table(f"pretraining-{method}")
    whole = configure(table, table.row("iid-whole"), "cifar100", "clean")
    for name in ("cla-r-iid", "cla-e-iid"):
        row = table.row(name)
        first, then = first_stage(table, row, "cifar100", "clean"), configure(table, row, "cifar100", "clean")
        assert then.iid
        assert then.init_from == f"runs/{run_name(first)}"
        assert first["batch"] * first["passes"] + then["batch"] * then["passes"] == whole["batch"] * whole["passes"]
        assert then["lr"] == whole["lr"]


def test_a_strategy_stands_for_all_its_rows() -> None:
    table = find_table("high-simsiam")
    assert [row.name for row in table.chosen(["er", "cla-e"])] == ["er-reservoir", "er-fifo", "cla-e"]
    assert table.chosen([]) == table.rows


def test_unknown_rows_and_tables_are_refused_with_the_nearest(ocssl: Ocssl) -> None:
    with pytest.raises(ConfigError, match="did you mean 'cla-e'"):
        find_table("high-simsiam").chosen(["cla-ee"])
    code, said = ocssl("paper", "show", "low-simsam")
    assert code == 2
    assert "unknown table 'low-simsam'; did you mean 'low-simsiam'?" in said


def test_the_list_counts_cells_and_says_which_data_are_there(ocssl: Ocssl) -> None:
    code, said = ocssl("paper", "list")
    assert code == 0
    lines = {line.split()[0]: line for line in said.splitlines() if line.strip()}
    assert set(TABLES) <= set(lines)
    assert lines["smoke"].split()[-4:] == ["shapes", "yes", "0/4", "0/4"]
    assert lines["high-simsiam"].split()[-4:] == ["cifar100", "no", "0/10", "0/10"]


def test_a_copy_of_a_tables_result_is_no_stranger(tmp_path: Path, ocssl: Ocssl) -> None:
    for name in ("a", "copy of a"):
        put(tmp_path / "results", name, content())
    assert "belong in none" not in ocssl("paper", "list")[1]
    put(tmp_path / "results", "other", content(tau=0.5))
    assert "Results that belong in none of these: 1" in ocssl("paper", "list")[1]


def test_a_data_set_that_nobody_knows_is_not_one_without_results(ocssl: Ocssl) -> None:
    code, said = ocssl("paper", "show", "high-simsiam", "--dataset", "cifar1000")
    assert code == 2
    assert "unknown data set 'cifar1000'" in said
    code, said = ocssl("paper", "show", "downstream-simsiam", "--dataset", "cifar100", "--protocol", "authors")
    assert code == 0
    assert "run yet: ocssl paper run downstream-simsiam --dataset 'cifar100->svhn' --protocol authors\n" in said


def test_brackets_in_the_name_of_a_data_set_are_no_markup(tmp_path: Path, ocssl: Ocssl) -> None:
    place = "folder:frames[/new]"
    table = find_table("high-simsiam")
    config = configure(table, table.row("cla-e"), place, "clean").to_dict()
    put(tmp_path / "results", "frames", content(**config))
    for words in (("list",), ("show", table.id), ("run", table.id, "--dataset", place, "--dry-run")):
        code, said = ocssl("paper", *words)
        assert code == 0, said
        assert place in said
