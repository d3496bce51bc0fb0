"""The runs that tables need, and those that are missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ocssl.data.catalog import dataset_spec
from ocssl.data.loading import is_address
from ocssl.errors import ConfigError
from ocssl.registry import unknown
from ocssl.results.read import Store
from ocssl.results.result import Protocol, probed_on, trained_on
from ocssl.results.tables import PaperRow, PaperTable, Settings
from ocssl.results.tuned import TunedValues
from ocssl.runs.config import RunConfig, merged, unread
from ocssl.runs.folder import RunFolder
from ocssl.runs.naming import experiment_key, run_name
from ocssl.runs.presets import online_cost, resolve


@dataclass(frozen=True)
class TableRun:
    """One result that a table needs.

    Attributes:
        dataset: what it is measured on; ``a->b`` for an encoder trained on a and probed on b.
    """

    label: str
    dataset: str
    config: RunConfig
    folder: Path

    @property
    def name(self) -> str:
        """The stem of its result file."""
        return run_name(self.config, probed_on(self.dataset))

    @property
    def started(self) -> bool:
        """Whether its run was started and not finished."""
        folder = RunFolder(self.folder)
        return folder.config.exists() and not folder.result.exists()

    @property
    def starts_from(self) -> Path | None:
        """The run that must be finished before this one."""
        return Path(self.config.init_from) if self.config.init_from else None

    @property
    def cost(self) -> float:
        """Samples that all passes train on, for each image of the stream."""
        stream_batch, batch, passes = online_cost(self.config)
        return batch * passes / stream_batch

    def is_in(self, store: Store) -> bool:
        """Whether a store has its result already."""
        return store.has(experiment_key(self.config), self.dataset, self.config.learner.seed)


@dataclass(frozen=True)
class TablePlan:
    """The runs of some rows of a table, or of several tables.

    Attributes:
        wanted: all of them.
        missing: those without a result in the store.
        first: runs that missing ones start from, and that are not finished in the folder of runs.
        departs: whether changed settings make other experiments than the table's.
    """

    wanted: tuple[TableRun, ...]
    missing: tuple[TableRun, ...]
    first: tuple[TableRun, ...]
    departs: bool

    @property
    def to_run(self) -> tuple[TableRun, ...]:
        """One run for each folder that is to be trained, in the order in which they begin.

        Runs that others start from are first, and those others last. The rest goes seed by seed, so that tables fill
        evenly, and the longest first, so that no worker is left with a long one at the end. A run that is also probed
        on another set stands for the one that is not: its result has both.
        """
        runs: dict[Path, TableRun] = {}
        for run in (*self.first, *self.missing):
            if run.folder not in runs or probed_on(run.dataset):
                runs[run.folder] = run
        first = {run.folder for run in self.first}

        def order(run: TableRun) -> tuple[bool, bool, int, float]:
            return run.starts_from is not None, run.folder not in first, run.config.learner.seed, -run.cost

        return tuple(sorted(runs.values(), key=order))


def join_plans(plans: Iterable[TablePlan]) -> TablePlan:
    """One plan for the runs of several; a run that several want is in it once."""
    plans = list(plans)

    def once(runs: Iterable[TableRun]) -> tuple[TableRun, ...]:
        return tuple({run.name: run for run in runs}.values())

    return TablePlan(
        wanted=once(run for plan in plans for run in plan.wanted),
        missing=once(run for plan in plans for run in plan.missing),
        first=once(run for plan in plans for run in plan.first),
        departs=any(plan.departs for plan in plans),
    )


def select_rows(tables: Sequence[PaperTable], names: Sequence[str]) -> list[tuple[PaperTable, tuple[PaperRow, ...]]]:
    """Each table with its rows of these names; no name stands for all rows.

    A table without such rows is left out, but one of the tables must know each name.

    >>> from ocssl.results.tables import find_table
    >>> tables = [find_table("tau"), find_table("buffers")]
    >>> [(table.id, len(rows)) for table, rows in select_rows(tables, ["cla-e"])]
    [('tau', 4), ('buffers', 3)]
    >>> [table.id for table, _ in select_rows(tables, ["cla-e-tau0.9"])]
    ['tau']
    """
    for name in names:
        if not any(name in table.names for table in tables):
            known = dict.fromkeys(row.name for table in tables for row in table.rows)
            raise unknown("row", name, known, of="table " + " or ".join(f"'{table.id}'" for table in tables))
    chosen = [(table, [name for name in names if name in table.names]) for table in tables]
    return [(table, table.select(own)) for table, own in chosen if own or not names]


def configure(
    row: PaperRow,
    dataset: str,
    protocol: Protocol,
    *,
    seed: int = 0,
    tuned: Settings | None = None,
    changes: Settings | None = None,
    runs: Path = Path("runs"),
) -> RunConfig:
    """The complete configuration of a row's run.

    Args:
        tuned: lr and ω instead of the paper's.
        changes: settings on top of all others, also for the run that this one starts from; those that the row's
            strategy does not read are left out.
        runs: folder of the runs, where a row that starts from another run expects it.

    >>> from ocssl.results.tables import find_table
    >>> configure(find_table("high-simsiam").row("cla-e"), "cifar100", "clean").to_dict()["lr"]
    0.3
    """
    common = {"dataset": trained_on(dataset), "protocol": protocol, "seed": seed}
    given = merged({**row.settings, **common, **(tuned or {})}, changes or {})
    if row.after is not None:
        first = configure(first_stage(row), dataset, protocol, seed=seed, changes=changes)
        given["init_from"] = str(runs / run_name(first))
    unused = unread(given) - {"experiences"}  # which i.i.d. training has for its cost
    return resolve({name: value for name, value in given.items() if name not in unused})


def first_stage(row: PaperRow) -> PaperRow:
    """The row of the run that a row's run starts from."""
    return replace(row, label=f"{row.label}: first run", settings=row.after or {}, after=None)


def make_plan(
    store: Store,
    rows: Iterable[PaperRow],
    dataset: str,
    protocol: Protocol,
    seeds: Sequence[int],
    *,
    tuned: TunedValues | None = None,
    changes: Settings | None = None,
    runs: Path = Path("runs"),
) -> TablePlan:
    """The runs of these rows, ordered by seed; see :func:`configure`.

    >>> from ocssl.results.tables import find_table
    >>> rows = find_table("high-simsiam").select(["er-fifo", "random"])
    >>> [run.name for run in make_plan(Store(), rows, "cifar100", "clean", [0, 1]).missing]
    ['cifar100-simsiam-er-fifo-high-clean-seed0', 'cifar100-simsiam-er-fifo-high-clean-seed1']
    """

    def planned(row: PaperRow, seed: int, values: Settings | None) -> TableRun:
        config = configure(row, dataset, protocol, seed=seed, tuned=values, changes=changes, runs=runs)
        folder = runs / run_name(config)
        label = f"{row.label}, {dataset}, {protocol}, seed {seed}"
        return TableRun(label, dataset, _as_started(config, folder), folder)

    wanted, departs = [], False
    first: dict[Path, TableRun] = {}
    for seed in seeds:
        for row in rows:
            if row.untrained:
                continue
            values = (tuned or {}).get(row.name)
            run = planned(row, seed, values)
            wanted.append(run)
            if changes and not departs:
                papers = configure(row, dataset, protocol, seed=seed, tuned=values, runs=runs)
                departs = experiment_key(run.config) != experiment_key(papers)
            # A result in the store is no network to start from: the first run must be finished here.
            if run.starts_from and not run.is_in(store) and not RunFolder(run.starts_from).result.exists():
                first[run.starts_from] = planned(first_stage(row), seed, None)
    missing = tuple(run for run in wanted if not run.is_in(store))
    return TablePlan(tuple(wanted), missing, tuple(first.values()), departs)


def choose_dataset(table: PaperTable, name: str | None) -> str:
    """The data set of a table that is meant: its first by default, and the whole pair where its first half is named.

    >>> from ocssl.results.tables import find_table
    >>> choose_dataset(find_table("downstream-simsiam"), "imagenet100")
    'imagenet100->cars'
    """
    if name is None:
        return table.datasets[0]
    pairs = [dataset for dataset in table.datasets if probed_on(dataset)]
    if not pairs:
        if "->" in name:
            raise ConfigError(f"table '{table.id}' does not probe on another set; name {trained_on(name)} alone")
        return name
    if other := probed_on(name):
        if not is_address(other):
            dataset_spec(other)  # refuse an unknown one before anything is trained
        return name
    for pair in pairs:
        if trained_on(pair) == name:
            return pair
    raise ConfigError(f"table '{table.id}' probes on another set; name both, like {pairs[0]}, not '{name}'")


def _as_started(config: RunConfig, folder: Path) -> RunConfig:
    """A run that was started keeps settings, such as its execution, in which the experiment is the same."""
    try:
        started = RunFolder(folder).read_config()
    except ConfigError:  # there is none, or the engine will refuse it
        return config
    return started.change(**config.only("nothing")) if _identity(started) == _identity(config) else config


def _identity(config: RunConfig) -> tuple[str, int]:
    return experiment_key(config), config.learner.seed
