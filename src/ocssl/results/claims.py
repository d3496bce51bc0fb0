"""The paper's claims, each answered from results: yes, no, in part, or not run yet.

Answers are of the clean protocol on CIFAR-100. A claim is split into comparisons, each of which speaks for it or
against it, or is open: over three or more common seeds a difference is open where its 95 % t-interval contains 0, or
the limit that the claim has instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from ocssl.common.console import number_of
from ocssl.results.differences import LEAST_SEEDS, Difference, paired_difference, seed_mean
from ocssl.results.names import heading, row_label, row_name
from ocssl.results.read import Store
from ocssl.results.result import trained_on
from ocssl.results.sections import Section, sections_of
from ocssl.results.table import Value
from ocssl.results.tables import find_table

DATASET = "cifar100"
MAIN = ("high-simsiam", "low-simsiam", "high-simclr", "low-simclr")
PASSES = ("passes-simsiam", "passes-simclr")
REPLAYED = dict.fromkeys(("cla-r", "cla-e", "cassle-r"), "er-fifo")  # rows with alignment, and the one without it
STREAMED = dict.fromkeys(("cla-b", "cassle"), "finetune")
STAGNANT = 1.0  # points of Final below which twice the passes are no gain
SAME_RATE = 1.1  # factor between times per CBP that count as equal
BASIS = (
    f"By our results on {heading(DATASET)}, clean protocol. Differences over three or more seeds have a 95 % "
    "t-interval in brackets; where it contains 0, the comparison is open. Those of one or two seeds count by their "
    "sign alone, unless they round to 0, and the answer says so."
)
Answer = Literal["yes", "no", "in part", "not run yet"]


@dataclass(frozen=True)
class Comparison:
    """One comparison behind a claim.

    Attributes:
        supports: whether it speaks for the claim; None where it is open.
        what: what was compared, with its numbers where it is no difference.
        seeds: how many it is of.
        where: the table or the measure, which comparisons that share it say once.
        difference: what was found, where that is a difference in points.
        remark: what else to say of it.
    """

    supports: bool | None
    what: str
    seeds: int = LEAST_SEEDS
    where: str = ""
    difference: Difference | None = None
    remark: str = ""

    @property
    def points(self) -> str:
        """The difference, and its interval where it is of enough seeds."""
        if self.difference is None:
            return ""
        low, mean, high = (Value(points, digits=1, signed=True).plain() for points in self.ends)
        return mean if self.seeds < LEAST_SEEDS else f"{mean} ({low} to {high})"

    @property
    def ends(self) -> tuple[float, float, float]:
        """The low end of the difference, its mean and its high end; of few seeds all are the mean."""
        assert self.difference is not None
        if self.seeds < LEAST_SEEDS:
            return (self.difference.mean,) * 3
        return self.difference.low, self.difference.mean, self.difference.high

    @property
    def text(self) -> str:
        """What was compared, with numbers."""
        return ", ".join(filter(None, (f"{self.what} {self.points}".strip(), self.remark)))


@dataclass(frozen=True)
class Claim:
    """A claim of the paper and what results say of it.

    Attributes:
        comparisons: those that were run.
        beside: others, by another measure, that do not count for the answer.
        limit: what differences are compared with.
        notes: what else belongs to the answer, in whole sentences.
        commands: those that make results which are missing.
        planned: how many comparisons there are once all of them were run.
    """

    name: str
    text: str
    comparisons: tuple[Comparison, ...] = ()
    beside: tuple[Comparison, ...] = ()
    limit: float = 0.0
    notes: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    planned: int = 0

    @property
    def answer(self) -> Answer:
        """Yes or no where all comparisons agree, else in part.

        >>> Claim("", "", (Comparison(True, ""), Comparison(None, ""))).answer, Claim("", "").answer
        ('in part', 'not run yet')
        """
        found = {comparison.supports for comparison in self.comparisons}
        if not found:
            return "not run yet"
        return "yes" if found == {True} else "no" if found == {False} else "in part"

    @property
    def partial(self) -> bool:
        """Whether some of its comparisons were run, but not all."""
        return 0 < len(self.comparisons) < self.planned

    @property
    def said(self) -> str:
        """The answer, of how few seeds it is, and whether runs that are missing may change it.

        >>> Claim("", "", (Comparison(True, ""), Comparison(True, "", seeds=1)), planned=3).said
        'yes, some by one seed, so far'
        """
        few = [comparison.seeds for comparison in self.comparisons if comparison.seeds < LEAST_SEEDS]
        some = "some " if len(few) < len(self.comparisons) else ""
        number = " or ".join({1: "one", 2: "two"}[seeds] for seeds in sorted({*few}))
        basis = f"{some}by {number} seed{'s' * (2 in few)}" if few else ""
        return ", ".join(filter(None, (self.answer, basis, "so far" if self.partial else "")))

    @property
    def shown(self) -> dict[str, list[Comparison]]:
        """Every comparison, by its place and its number of seeds where that is small.

        >>> few = Comparison(True, "CLA-E less i.i.d.", 1, "low CBP")
        >>> {place: len(found) for place, found in Claim("", "", (few, few)).shown.items()}
        {'Low CBP, 1 seed': 2}
        """
        found: dict[str, list[Comparison]] = {}
        for one in (*self.comparisons, *self.beside):
            few = number_of(one.seeds, "seed") if one.seeds < LEAST_SEEDS else ""
            place = ", ".join(filter(None, (one.where, few)))
            found.setdefault(place[:1].upper() + place[1:], []).append(one)
        return found

    @property
    def has_differences(self) -> bool:
        """Whether all of its comparisons are differences in points, which can be drawn."""
        return bool(self.shown) and all(one.difference for found in self.shown.values() for one in found)

    @property
    def remarks(self) -> list[str]:
        """The notes, and what to run where not all was run, in whole sentences."""
        done = len(self.comparisons)
        left = f"{done} of {self.planned} comparisons were run." if self.partial else ""
        to_run = f"To run: {'; '.join(self.commands)}." if self.commands else ""
        return [sentence for sentence in (*(self.notes if done else ()), left, to_run) if sentence]

    @property
    def evidence(self) -> list[str]:
        """Every comparison in a sentence for its place, and the remarks."""
        said = [f"{place}: {'; '.join(one.text for one in found)}." for place, found in self.shown.items()]
        return said + self.remarks


def claims(store: Store) -> list[Claim]:
    """Every claim of the paper, answered from a store of results.

    >>> {claim.answer for claim in claims(Store())}
    {'not run yet'}
    """
    above_iid = [("cla-r", "iid"), ("cla-e", "iid")]
    helped = [("cla-r-iid", "iid-whole"), ("cla-e-iid", "iid-whole")]
    pretraining = ("pretraining-simsiam", "pretraining-simclr")
    return [
        _above(store, "iid", "CLA ends above i.i.d. training at equal CBP.", MAIN, above_iid),
        _stagnation(store),
        _fifo(store),
        _downstream(store),
        _learning_rates(store),
        _times(store),
        _above(
            store, "pretraining", "Early pretraining with CLA helps i.i.d. training at equal CBP.", pretraining, helped
        ),
    ]


# ---------------------------------------------------------------------- the claims


def _above(store: Store, name: str, text: str, tables: Sequence[str], pairs: Sequence[tuple[str, str]]) -> Claim:
    """In each table, the first row of each pair, by name, is above the second."""
    found = {table: _compared(_section(store, table), pairs) for table in tables}
    return _claim(name, text, ("Differences of Final, in points.",), found, dict.fromkeys(tables, len(pairs)))


def _stagnation(store: Store) -> Claim:
    found: dict[str, list[Comparison]] = {table: [] for table in PASSES}
    planned = {}
    for table in PASSES:
        section = _section(store, table)
        rows = [row for row in section.rows if row.name.endswith("-np6")]
        if table != PASSES[0]:
            rows = [row for row in rows if row.method]  # those without are in both tables
        planned[table] = len(rows)
        for row in rows:
            before = section.row(row.name.removesuffix("-np6") + "-np3")
            difference = paired_difference(row.ours.final, before.ours.final)
            if difference is not None:
                is_open = difference.n >= LEAST_SEEDS and difference.low < STAGNANT <= difference.high
                supports = (difference.mean >= STAGNANT) == row.name.startswith("iid")
                where = _where(section) if row.method else heading(section.table.budget)
                what = row.label.partition(",")[0]
                found[table].append(Comparison(None if is_open else supports, what, difference.n, where, difference))
    note = (
        f"Final at n_p 6 less Final at n_p 3, in points; below {STAGNANT:g} counts as stagnation, and where the "
        f"interval contains {STAGNANT:g}, the comparison is open."
    )
    text = "On the stream Final stagnates beyond n_p 3; i.i.d. training still gains."
    return replace(_claim("passes", text, (note,), found, planned), limit=STAGNANT)


def _fifo(store: Store) -> Claim:
    pairs = [(f"{one}+fifo", f"{one}+{memory}") for one in ("cla-r", "cla-e") for memory in ("reservoir", "minred")]
    section = _section(store, "buffers")
    found = _compared(section, pairs, where="by linear probe")
    near = _compared(section, pairs, number="knn_final", where="by k-NN")
    notes = ("Differences of Final, in points. Those by k-NN do not count for the answer.",)
    planned = {"buffers": len(pairs)}
    answered = _claim("memory", "FIFO is the best memory for CLA.", notes, {"buffers": found}, planned)
    return replace(answered, beside=tuple(near))


def _downstream(store: Store) -> Claim:
    """CLA-R less the highest of the other rows, over the seeds that both have."""
    found: list[Comparison] = []
    missing = []
    tables = ("downstream-simsiam", "downstream-simclr")
    for table in tables:
        section = _section(store, table)
        cla_r = section.row("cla-r")
        others = [row for row in section.rows if row is not cla_r and row.ours.final]
        if cla_r.ours.final and others:
            best = max(others, key=lambda row: seed_mean(row.ours.final))
            counted = f"the highest of the other {len(others)} rows that were run"
            found += [replace(one, remark=counted) for one in _compared(section, [("cla-r", best.name)])]
        if not all(row.ours.final for row in section.rows):
            missing.append(f"ocssl paper run {table}")
    text, note = "CLA-R is best on other data sets.", "Differences of the linear probe on SVHN, in points."
    return Claim("downstream", text, tuple(found), notes=(note,), commands=tuple(missing), planned=len(tables))


def _learning_rates(store: Store) -> Claim:
    """By tuning runs: what each strategy loses at the largest lr that all were tried with, against its best."""
    tried: dict[tuple[str, str], dict[float, tuple[float, int]]] = {}  # by lr the best Final, and of how many seeds
    for group in store.groups.values():
        one = group.files[0].result
        known = (one.measured_on, one.dataset, one.protocol, one.method) == ("validation", DATASET, "clean", "simsiam")
        alone = not {*one.overrides} - {"lr", "omega", "measure_on", "evaluate", "joint_views"}
        lr = one.config.get("lr")
        if known and alone and one.budget in ("high", "low") and group.final and lr:
            best = tried.setdefault((one.budget, row_name(one.strategy, one.memory)), {})
            best[lr] = max(best.get(lr, (0.0, 0)), (seed_mean(group.final), len(group.final)))
    found: dict[str, list[Comparison]] = {}
    commands = []
    for budget, table, pairs in (("high", "high-simsiam", REPLAYED), ("low", "views", {**REPLAYED, **STREAMED})):
        found[budget] = []
        missing: dict[str, None] = {}
        for name, plain in pairs.items():
            ours, others = (tried.get((budget, one), {}) for one in (name, plain))
            common = ours.keys() & others.keys()
            if len(common) < 2:
                missing |= dict.fromkeys(one for one in (plain, name) if len(tried.get((budget, one), {})) < 2)
                continue
            largest = max(common)
            losses = [max(values.values())[0] - values[largest][0] for values in (ours, others)]
            seeds = min(n for values in (ours, others) for _, n in values.values())
            supports = losses[0] < losses[1] if losses[0] != losses[1] else None
            text = f"at lr {largest:g} {row_label(name)} is {losses[0]:.1f} below its best"
            text += f", {row_label(plain)} {losses[1]:.1f}"
            found[budget].append(Comparison(supports, text, seeds, heading(budget)))
        if missing:
            commands.append(f"ocssl paper tune {table} --methods {','.join(missing)}")
    text = "Alignment tolerates larger learning rates than the same training without it."
    note = "Final on validation images, the best ω."
    planned = 2 * len(REPLAYED) + len(STREAMED)
    every = (*found["high"], *found["low"])
    return Claim("lr", text, every, notes=(note,), commands=tuple(commands), planned=planned)


def _times(store: Store) -> Claim:
    """Time per CBP at different n_p, at different b, and of different strategies."""
    section = _section(store, "times")
    rows = {row.name: row for row in section.rows if row.ours.seconds and row.ours.cbp}
    strategies = list(dict.fromkeys(name.rpartition("-")[0] for name in rows))
    sets = [
        *(("at n_p 1, 3 and 6", row_label(one), [f"{one}-np{n_p}" for n_p in (1, 3, 6)]) for one in strategies),
        *(("at low and high CBP", row_label(one), [f"{one}-low", f"{one}-np3"]) for one in strategies),
        ("at n_p 3", "all strategies", [f"{one}-np3" for one in strategies]),
    ]
    found, every = [], len({row.name.rpartition("-")[0] for row in section.rows})
    for where, what, names in sets:
        groups = [rows[name].ours for name in names if name in rows]
        if len(groups) > 1 and len({group.devices for group in groups}) == 1:
            rates = [seed_mean(group.seconds) / (group.cbp or 1) for group in groups]
            spread = max(rates) / min(rates)
            seeds = min(len(group.seconds) for group in groups)
            found.append(Comparison(spread <= SAME_RATE, f"{what} {spread:.2f}", seeds, where))
    note = f"Factors between times per CBP; up to {SAME_RATE:g} counts as proportional."
    text = "CBP is proportional to training time."
    return _claim("time", text, (note,), {"times": found}, {"times": 2 * every + 1})


# ---------------------------------------------------------------------- parts of answers


def _claim(
    name: str,
    text: str,
    notes: tuple[str, ...],
    found: Mapping[str, Sequence[Comparison]],
    planned: Mapping[str, int],
) -> Claim:
    """A claim with the comparisons of each table, and the commands that fill tables which lack some."""
    missing = tuple(f"ocssl paper run {table}" for table, wanted in planned.items() if len(found[table]) < wanted)
    every = tuple(chain(*found.values()))
    return Claim(name, text, every, notes=notes, commands=missing, planned=sum(planned.values()))


def _section(store: Store, table: str) -> Section:
    found = (section for section in sections_of(store, find_table(table)) if section.protocol == "clean")
    return next(section for section in found if trained_on(section.dataset) == DATASET)


def _compared(
    section: Section, pairs: Iterable[tuple[str, str]], *, number: str = "final", where: str | None = None
) -> list[Comparison]:
    """The first row of each pair less the second, where both were run."""
    found = []
    for first, second in pairs:
        one, other = section.row(first), section.row(second)
        difference = paired_difference(getattr(one.ours, number), getattr(other.ours, number))
        if difference is not None:
            few = difference.n < LEAST_SEEDS
            is_open = round(difference.mean, 1) == 0 if few else not difference.excludes_zero
            supports = None if is_open else difference.mean > 0
            what = f"{one.label} less {other.label.removeprefix(one.label.partition(', ')[0] + ', ')}"
            found.append(Comparison(supports, what, difference.n, where or _where(section), difference))
    return found


def _where(section: Section) -> str:
    return ", ".join(map(heading, filter(None, (section.table.budget, section.method))))
