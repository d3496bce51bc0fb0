"""From a table to the runs it needs, finished or not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ocssl.errors import ConfigError
from ocssl.paper.identity import key, plain, run_name
from ocssl.paper.store import Store
from ocssl.paper.tables import Protocol, Row, Settings, Table, configure, first_stage, probed_on
from ocssl.paper.tuned import TunedValues
from ocssl.runs.config import RESUMABLE, RunConfig, merged, parse
from ocssl.runs.folder import RunFolder


@dataclass(frozen=True)
class Task:
    """One result that a table wants.

    Attributes:
        row: the row it is for.
        dataset: what it is measured on; ``a->b`` for encoders trained on one set and probed on another.
        config: of the run, its seed included.
        folder: where the run lives.
    """

    row: Row
    dataset: str
    config: RunConfig
    folder: Path

    @property
    def name(self) -> str:
        """What its file in the store is called."""
        target = probed_on(self.dataset)
        return run_name(self.config) + (plain(f"-on-{target}") if target else "")

    @property
    def label(self) -> str:
        """In a few words, for people."""
        return f"{self.row.label}, {self.dataset}, {self.config.protocol}, seed {self.config['seed']}"

    @property
    def begun(self) -> bool:
        """Whether its run was started and not finished."""
        folder = RunFolder(self.folder)
        return folder.config.exists() and not folder.result.exists()

    @property
    def starts_from(self) -> Path | None:
        """The run that has to be finished before this one."""
        return Path(self.config.init_from) if self.config.init_from else None

    def is_in(self, store: Store) -> bool:
        """Whether a store has its result already."""
        return store.has(self.config, self.dataset)


@dataclass(frozen=True)
class Plan:
    """The results that were asked for.

    Attributes:
        wanted: all of them.
        missing: those that the store has not.
        first: runs that missing ones start from and that are not finished here.
        foreign: whether changed settings make these other experiments than the table's.
    """

    wanted: tuple[Task, ...]
    missing: tuple[Task, ...]
    first: tuple[Task, ...]
    foreign: bool


def make_plan(
    store: Store,
    table: Table,
    rows: Iterable[Row],
    dataset: str,
    protocol: Protocol,
    seeds: Sequence[int],
    *,
    tuned: TunedValues | None = None,
    changes: Settings | None = None,
    runs: Path = Path("runs"),
) -> Plan:
    """What these rows want, seed by seed, so that a table fills evenly.

    Args:
        tuned: lr and ω by row, instead of the paper's.
        changes: settings on top of all others.
        runs: where the folders of runs lie.

    >>> from ocssl.paper.tables import find_table
    >>> high = find_table("high-simsiam")
    >>> plan = make_plan(Store(), high, high.chosen(["er-fifo", "random"]), "cifar100", "clean", [0, 1])
    >>> [task.name for task in plan.missing]
    ['cifar100-simsiam-er-fifo-high-clean-seed0', 'cifar100-simsiam-er-fifo-high-clean-seed1']
    """
    wanted, foreign = [], False
    first: dict[Path, Task] = {}
    for seed in seeds:
        for row in rows:
            if row.untrained:
                continue
            values = (tuned or {}).get(row.name)
            papers = configure(table, row, dataset, protocol, seed=seed, tuned=values, runs=runs)
            config = configure(table, row, dataset, protocol, seed=seed, tuned=values, changes=changes, runs=runs)
            foreign = foreign or key(config) != key(papers)
            wanted.append(_task(row, dataset, config, runs))
            # A result in the store is no network to start from: the first run must be finished here.
            before = wanted[-1].starts_from
            if before and not wanted[-1].is_in(store) and not RunFolder(before).result.exists():
                begin = first_stage(table, row, dataset, protocol, seed=seed, changes=changes)
                first[before] = _task(replace(row, label=f"{row.label}: first run"), dataset, begin, runs)
    missing = (task for task in wanted if not task.is_in(store))
    return Plan(tuple(wanted), tuple(missing), tuple(first.values()), foreign)


def data_set(table: Table, name: str | None) -> str:
    """Which of a table's data sets is meant: its first by default, and the whole pair where one half is named.

    >>> from ocssl.paper.tables import find_table
    >>> data_set(find_table("downstream-simsiam"), "imagenet100")
    'imagenet100->cars'
    """
    if name is None:
        return table.datasets[0]
    pairs = [dataset for dataset in table.datasets if probed_on(dataset)]
    if not pairs or probed_on(name):
        return name
    for pair in pairs:
        if pair.startswith(f"{name}->"):
            return pair
    raise ConfigError(f"table '{table.id}' probes on another set; name both, like {pairs[0]}, not '{name}'")


def _task(row: Row, dataset: str, config: RunConfig, runs: Path) -> Task:
    folder = runs / run_name(config)
    return Task(row, dataset, _as_begun(config, folder), folder)


def _as_begun(config: RunConfig, folder: Path) -> RunConfig:
    """A run that was begun goes on as it was begun, even if we would now do the same in another way."""
    if not RunFolder(folder).config.exists():
        return config
    try:
        begun = RunFolder(folder).read_config()
    except ConfigError:
        return config  # as with a stranger below
    if key(begun) != key(config) or begun["seed"] != config["seed"]:
        return config  # a stranger in our place: the engine will refuse this one run
    return parse(merged(begun.to_dict(), {name: config.to_dict()[name] for name in RESUMABLE}))
