"""Lists of numbers from the results: lines of Markdown, one idea each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from statistics import fmean, stdev

from ocssl.paper.plan import configure
from ocssl.results import Store, find_table, sections_of
from ocssl.results.claims import MAIN
from ocssl.results.differences import LEAST_SEEDS, Difference, paired_difference
from ocssl.results.names import heading, setting_text
from ocssl.results.read import Group
from ocssl.results.report import Report
from ocssl.results.result import probed_on
from ocssl.results.sections import Row, Section
from ocssl.results.table import Value
from ocssl.sweeps.driver import read_started
from ocssl.sweeps.log import TrialLog

DATASET = "cifar100"
NEAR = 2.5  # points from the paper up to which a row counts as reproduced
NUMBERS = {"final": "Final", "avg": "Avg"}
SHARING = {"iid": "i.i.d.", "er": "ER", "cla-r": "CLA-R", "cla-e": "CLA-E", "cassle-r": "CaSSLe-R"}
AT_ONCE = {1: "1", 2: "2 to 4", 5: "5 to 8"}  # more were at once with runs of other batches only
BESIDE = {"low": "low", "middle": "high", "high": "high"}  # our own strategy's budgets, and the paper's table beside


def sections(report: Report, *tables: str, protocol: str | None = None) -> Iterator[Section]:
    """Sections of tables on CIFAR-100 that have results."""
    for table in tables:
        for section in sections_of(report.store, find_table(table)):
            if section.dataset == DATASET and protocol in (None, section.protocol) and section.content:
                yield section


def named(section: Section) -> str:
    return f"{section.table.title}, {heading(section.protocol)} protocol"


def signed(points: float) -> str:
    return Value(points, digits=1, signed=True).plain()


def with_interval(points: Difference) -> str:
    """A difference and, over several seeds, its interval."""
    interval = f" (95 % interval {signed(points.low)} to {signed(points.high)})" if points.n > 1 else ""
    return signed(points.mean) + interval


def ends(values: Mapping[str, float], shown: str = "{:.1f}") -> str:
    """The lowest and the highest of some values, with their names."""
    low, high = (function(values, key=lambda name: values[name]) for function in (min, max))
    said = [f"{shown.format(values[name])} ({name})".replace("-", "−", values[name] < 0) for name in (low, high)]
    return said[0] if low == high else f"{said[0]} to {said[1]}"


def seeds_said(seeds: Iterable[int]) -> str:
    numbers = list(seeds)
    return f"seed{'s' * (len(numbers) > 1)} {' '.join(map(str, numbers))}"


def measured(report: Report) -> str:
    """How many results were measured on which images; sweeps count, whether or not their trials are kept."""
    results = [file.result for file in report.files if not file.result.only_floors]
    scored = [result for result in results if result.final is not None and result.measured_on == "test"]
    probed = sum("->" in result.dataset for result in scored)
    timed = sum(result.final is None for result in results)
    logs = map(TrialLog, (report.folder / "tuning").rglob("trials.jsonl"))
    tuning = sum(score is not None for log in logs for trial in log.trials for score in trial.scores)
    return (
        f"Runs measured on test images: {len(scored) - probed}, and {probed} of their encoders on another data set; "
        f"on validation images, to tune: {tuning}; for their times only: {timed}."
    )


def runs(report: Report) -> str:
    """What was run: how many rows of every table have how many seeds."""
    lines = ["| table | protocol | rows | three seeds | two | one | none |", "|---|---|--:|--:|--:|--:|--:|"]
    for section in report.sections:
        if not section.is_unlisted:
            seeds = Counter(min(LEAST_SEEDS, len(row.ours.runs)) for row in section.rows if not row.ours.floor)
            counts = [str(seeds[number] or "") for number in range(LEAST_SEEDS, -1, -1)]
            cells = [section.table.title, heading(section.protocol), str(seeds.total()), *counts]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join((measured(report), "", *lines, ""))


def against_paper(report: Report, *tables: str, protocol: str | None = None) -> Iterator[str]:
    """How far rows end from the paper's."""
    for section in sections(report, *tables, protocol=protocol):
        differences: dict[str, dict[str, float]] = {}
        seeds: set[tuple[int, ...]] = set()
        for row in section.rows:
            for number, name in NUMBERS.items():
                ours, paper = getattr(row.ours, number), row.published.get(number)
                if ours and paper is not None and paper.mean is not None and not row.ours.floor:
                    differences.setdefault(name, {})[section.label(row)] = fmean(ours.values()) - paper.mean
                    seeds.add(tuple(sorted(ours)))
        if differences:
            said = "; ".join(f"{name} {ends(found, '{:+.1f}')}" for name, found in differences.items())
            far = [
                f"{label} {signed(points)} in {name}"
                for name, found in differences.items()
                for label, points in found.items()
                if abs(points) > NEAR
            ]
            beyond = f" More than {NEAR:g} away: {', '.join(far) or 'none'}." if section.protocol == "authors" else ""
            most = seeds_said(max(seeds, key=len)) + (", of some rows fewer" if len(seeds) > 1 else "")
            yield f"{named(section)}, {len(differences['Final'])} rows, {most}: {said}.{beyond}"


def noise(report: Report) -> Iterator[str]:
    """Standard deviations over seeds."""
    for section in sections(report, *MAIN, protocol="clean"):
        for number, name in NUMBERS.items():
            values = {section.label(row): getattr(row.ours, number) for row in section.rows if not row.ours.floor}
            spread = {label: stdev(found.values()) for label, found in values.items() if len(found) > 2}
            if spread:
                yield f"{named(section)}, standard deviation of {name}: {ends(spread)}."


def floors(report: Report) -> Iterator[str]:
    """Rows that end below a floor that needs no encoder, and rows that cannot be told from it."""
    for section in sections(report, *MAIN, protocol="clean"):
        for number, probe in (("final", "linear probe"), ("knn_final", "k-NN")):
            known = {row.label: getattr(row.ours, number) for row in section.floors if getattr(row.ours, number)}
            if not known:
                continue
            highest = max(known, key=lambda label: fmean(known[label].values()))
            floor = fmean(known[highest].values())
            groups: dict[str, list[str]] = {"above it": [], "level with it": [], "below it": []}
            for row in section.rows:
                values = {} if row.ours.floor else getattr(row.ours, number)
                if values:
                    mean, points = fmean(values.values()), paired_difference(values, known[highest])
                    level = points is not None and points.n >= LEAST_SEEDS and points.low <= 0 <= points.high
                    where = "level with it" if level else "above it" if mean >= floor else "below it"
                    groups[where].append(f"{section.label(row)} {mean:.1f}")
            count = sum(map(len, groups.values()))
            said = [f"above it {len(groups.pop('above it'))} of {count} rows"]
            said += [f"{where} {', '.join(found)}" for where, found in groups.items() if found]
            yield f"{named(section)}, {probe}: {highest} {floor:.1f}; {'; '.join(said)}."


def compared(one: Group, other: Group, number: str) -> float | None:
    difference = paired_difference(getattr(one, number), getattr(other, number))
    return None if difference is None else difference.mean


def views(report: Report) -> Iterator[str]:
    """What it changes to pass each view alone, over common seeds, by batch size."""
    together = {row.name: row for section in sections(report, "low-simsiam", protocol="clean") for row in section.rows}
    by_batch: dict[int, dict[str, float]] = {}
    for section in sections(report, "views"):
        for row in section.rows:
            points = compared(row.ours, together[row.name].ours, "final") if row.block else None
            if points is not None and row.block:
                by_batch.setdefault(row.block[1], {})[row.label] = points
    for batch, found in sorted(by_batch.items()):
        yield f"b = {batch}, Final with each view alone less Final with both together: {ends(found, '{:+.1f}')}."


def switches(report: Report) -> Iterator[str]:
    """What each single change does at the low budget, over all strategies and common seeds and for each strategy."""
    for section in sections(report, "switches"):
        rows = {row.name: row for row in section.rows}
        strategies = [name.removesuffix("-usual") for name in rows if name.endswith("-usual")]
        marks = [name.removeprefix(f"{strategies[0]}-") for name in rows if name.startswith(strategies[0])]
        for mark in marks[1:]:
            pairs = [(rows[f"{one}-{mark}"], rows[f"{one}-usual"].ours) for one in strategies]
            pairs = [(row, usual) for row, usual in pairs if row.ours.runs.keys() & usual.runs.keys()]
            if not pairs:
                continue
            said = [" and ".join(with_interval(_over_all(pairs, number)) for number in NUMBERS)]
            for row, usual in pairs:
                points = " and ".join(signed(_over_all([(row, usual)], number).mean) for number in NUMBERS)
                seeds = seeds_said(row.ours.runs.keys() & usual.runs.keys())
                said.append(f"{row.label.partition(', ')[0]} {points} ({seeds})")
            yield f"{pairs[0][0].label.partition(', ')[2]}: {', '.join(said)}."


def _over_all(pairs: Iterable[tuple[Row, Group]], number: str) -> Difference:
    """The mean of rows less the usual ones, paired by row and seed."""
    changed, usual = {}, {}
    for row, other in pairs:
        changed.update({(row.name, seed): value for seed, value in getattr(row.ours, number).items()})
        usual.update({(row.name, seed): value for seed, value in getattr(other, number).items()})
    difference = paired_difference(changed, usual)
    assert difference is not None
    return difference


def cla_b(report: Report) -> Iterator[str]:
    """CLA-b beside finetuning."""
    for section in sections(report, "low-simsiam", "views"):
        rows = {row.name: row for row in section.rows}
        pair: list[Row] = [rows[name] for name in ("cla-b", "finetune")]
        kinds = {"": [row.ours for row in pair], ", tuned": [row.tuned or Group() for row in pair]}
        for kind, groups in kinds.items():
            said = [
                f"{row.label} {' and '.join(f'{fmean(getattr(group, number).values()):.1f}' for number in NUMBERS)}"
                for row, group in zip(pair, groups, strict=True)
                if group.runs
            ]
            if said:
                yield f"{named(section)}{kind}, Final and Avg: {', '.join(said)}."


def grids(folder: Path) -> Iterator[str]:
    """What every sweep chose, or has found so far, beside the table's values, and the best at each learning rate."""
    for place in sorted(path.parent for path in folder.glob("*/*/sweep.yaml")):
        sweep, log = read_started(place), TrialLog(place / "trials.jsonl")
        scores = [(trial.score, trial.values) for trial in log.trials if trial.score is not None]
        if not scores:
            continue
        name, _, protocol = place.parent.name.rpartition("-")
        table = find_table(name)
        usual = configure(table.row(place.name), DATASET, "authors" if protocol == "authors" else "clean").to_dict()
        score, values = max(scores, key=lambda one: one[0])
        by_rate: dict[float, float] = {}
        for one, tried in scores:
            by_rate[tried["lr"]] = max(one, by_rate.get(tried["lr"], one))
        is_over = (place / "best.yaml").exists()
        count = f"{len(scores)} trials" if is_over else f"{len(scores)} of {len(sweep.listed())} trials so far"
        chosen = ", ".join(setting_text(setting, value) for setting, value in values.items())
        said = [f"the best of {count}: {chosen}, {score:.1f}"]
        said += [f"with the table's values {one:.1f}" for one, tried in scores if tried.items() <= usual.items()]
        if len(values) > 1:
            said.append(f"highest at {', '.join(f'lr {rate:g} {by_rate[rate]:.1f}' for rate in sorted(by_rate))}")
        yield f"`{place.relative_to(folder)}` ({table.title}, {heading(protocol)} protocol), {'; '.join(said)}."


def tuned(report: Report) -> Iterator[str]:
    """What the chosen values change on test images."""
    for section in sections(report, *MAIN, "views"):
        for row in section.rows:
            if row.tuned is not None and row.tuned is not row.ours and row.tuned.runs:
                said = ", ".join(
                    f"{name} {with_interval(points)}"
                    for number, name in NUMBERS.items()
                    if (points := paired_difference(getattr(row.tuned, number), getattr(row.ours, number)))
                )
                common = row.tuned.runs.keys() & row.ours.runs.keys()
                if said:
                    yield f"{named(section)}, {section.label(row)}: {said} ({seeds_said(sorted(common))})."


def past_paper(report: Report) -> Iterator[str]:
    """Final, Avg and k-NN Final of our own strategy and of the best one of the paper's table beside it."""
    rows = {row.name: row for section in sections(report, "multiview") for row in section.rows}
    for budget, beside in BESIDE.items():
        row = rows.get(f"multiview-r-{budget}")
        if row is not None and row.ours.runs:
            (section,) = sections(report, f"{beside}-simsiam", protocol="clean")
            theirs = _groups(section, True)
            best = max(theirs, key=lambda label: fmean(theirs[label].final.values()))
            said = []
            for name, one in ((row.label, row.ours), (f"{best}, {beside} CBP", theirs[best])):
                numbers = [fmean(values.values()) for values in (one.final, one.avg, one.knn_final)]
                said.append(f"{name}: {' / '.join(f'{number:.1f}' for number in numbers)}")
            yield f"{'; '.join(said)} ({seeds_said(row.ours.runs)})."


def many_views(store: Store) -> Iterator[str]:
    """Our own strategy beside i.i.d. training with its objective, and by k-NN beside the paper's strategies."""
    found = {name: sections_of(store, find_table(name))[0] for name in ("multiview", "high-simsiam", "low-simsiam")}
    rows = {row.name: row for row in found["multiview"].rows}
    pairs = [(rows[f"multiview-r-{budget}"], rows[f"iid-views-{budget}"], beside) for budget, beside in BESIDE.items()]
    pairs.append((rows["multiview-r-simclr"], rows["iid-simclr"], "high"))
    for row, iid, beside in pairs:
        for name, number in {"Final": "final", "k-NN Final": "knn_final"}.items():
            points = paired_difference(getattr(row.ours, number), getattr(iid.ours, number))
            if points is not None and points.n > 1:
                yield f"{row.label}, {name} less i.i.d. training: {with_interval(points)}."
        theirs = found[f"{beside}-simsiam"]
        if row.ours.runs and theirs.content:
            groups = (_groups(theirs, ranked) for ranked in (True, False))
            online, bounds = ({label: fmean(one.knn_final.values()) for label, one in many.items()} for many in groups)
            said = [f"{best} {online[best]:.1f}" for best in sorted(online, key=online.__getitem__)[-1:]]
            said += [f"{label} (told borders) {bounds[label]:.1f}" for label in bounds if "CaSSLe-R" in label]
            known = fmean(row.ours.knn_final.values())
            yield f"{row.label}, k-NN Final {known:.1f}; at {beside} CBP {', '.join(said)}."


def times(store: Store) -> Iterator[str]:
    """How long our own strategy and CLA-E train and are measured alone on a GPU, and the memory that they take."""
    (section,), (paper, *_) = (sections_of(store, find_table(name)) for name in ("multiview", "high-simsiam"))
    compared = [row for row in paper.rows if row.name == "cla-e"]
    for row in (*section.rows, *compared):
        for run in row.ours.runs.values() if row.ranked else ():
            result, memory = run.result, run.result.hardware.get("gpu_memory_used", 0) / 2**30
            if run.runs_at_once == 1 and memory:
                spent = f"trains for {result.train_seconds:.0f} s and is measured for {result.eval_seconds:.0f} s"
                how = f"{result.cbp_spent / 1e6:.2f} M CBP, {result.hardware['gpu']}"
                yield f"{row.label}, {how}: {spent}; {memory:.1f} GiB (seed {result.seed})."


def sharing(report: Report) -> Iterator[str]:
    """Thousands of CBP a second that all runs on a GPU make together at b = 138, by strategy and how many they were.

    The clocks of all runs say how many were in progress on average while a run was, itself included.
    """
    runs = [file.result for file in report.files if file.result.hardware.get("device") == "cuda"]
    runs = [run for run in runs if probed_on(run.dataset) is None]  # the others are runs that are there already
    clocks = {run.name: (datetime.fromisoformat(run.started), datetime.fromisoformat(run.finished)) for run in runs}
    rates: dict[str, dict[int, list[float]]] = {strategy: {} for strategy in SHARING}
    for run in runs:
        kind = run.config["batch"], run.config.get("execution"), run.config.get("init_from")
        counts = run.dataset == DATASET and run.strategy in SHARING and run.train_seconds
        if counts and kind == (138, "compiled", None):
            began, ended = clocks[run.name]
            shared = (min(ended, other[1]) - max(began, other[0]) for other in clocks.values())
            together = sum(max(0.0, part.total_seconds()) for part in shared) / (ended - began).total_seconds()
            if round(together) <= 8:
                least = max(number for number in AT_ONCE if number <= round(together))
                rates[run.strategy].setdefault(least, []).append(together * run.cbp_spent / run.train_seconds / 1000)
    yield f"| at once | {' | '.join(AT_ONCE.values())} |\n|---|{'--:|' * len(AT_ONCE)}"
    for strategy, label in SHARING.items():
        cells = [f"{fmean(rates[strategy][n]):.0f}" if n in rates[strategy] else "–" for n in AT_ONCE]
        yield f"| {label} | {' | '.join(cells)} |"


def _groups(section: Section, ranked: bool) -> dict[str, Group]:
    """Those that were run, by label: rows with the paper's values and with ours."""
    return {
        section.group_label(row, group): group
        for row in section.rows
        for group in row.distinct
        if row.ranked == ranked and group.knn_final
    }


def listed(lines: Iterable[str]) -> str:
    return "\n" + ("".join(f"- {line}\n" for line in lines) or "Not run yet.\n")
