"""Writes what was measured into the pages: `python docs/tables.py`, or `make docs-files`.

Tables, the answers to the paper's claims and every list of numbers are made; the rest of the pages is written.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean, stdev

from ocssl.results import TABLES, Store, find_table, read_report, sections_of
from ocssl.results.build import report_table, section_differences
from ocssl.results.claims import MAIN, claims
from ocssl.results.differences import Difference, paired_difference
from ocssl.results.names import heading, row_name, setting_text
from ocssl.results.published import hyperparameters
from ocssl.results.read import Group
from ocssl.results.render import write_report
from ocssl.results.render.markdown import to_markdown
from ocssl.results.report import Report
from ocssl.results.sections import Row, Section
from ocssl.results.summary import summary
from ocssl.results.table import Table, TableColumn, Value
from ocssl.sweeps.driver import read_started
from ocssl.sweeps.log import TrialLog
from ocssl.sweeps.report import trial_table

ROOT = Path(__file__).parents[1]
DATASET = "cifar100"
README_COLUMNS = {"Final ours": "Final", "Avg ours": "Avg", "k-NN Final": "k-NN Final", "k-NN Avg": "k-NN Avg",
                  "forgetting": "forgetting", "Final paper": "paper's Final", "Avg paper": "paper's Avg"}  # fmt: skip
"""Columns of a section's table that README.md has, with their titles there."""
SEARCH = (
    "objective", "shape", "memory", "low", "middle", "high", "high-memory", "average", "high-again", "sgd", "high-rate",
)  # fmt: skip
"""The sweeps of multiview.md, without what all of them begin with."""
SHOWN_TRIALS = 8
PARTS, WHOLE = "multiview-parts", "multiview-r-middle"
"""The table whose rows are compared with one of them."""
FLOORS = ("random encoder", "raw pixels", "colour histogram")
NEAR = 2.5  # points from the paper up to which a row counts as reproduced
NUMBERS = {"final": "Final", "avg": "Avg"}
BESIDE = {"low": "low", "middle": "high", "high": "high"}  # our own strategy's budgets, and the paper's table beside
ADAPTED = {
    "cars": "Photographs of 98 makes of cars, EfficientNet-Lite0 at 128 pixels",
    "photos": "Photographs of 100 classes of objects, EfficientNet-Lite0 at 224 pixels",
    "svhn": "House numbers (SVHN), ResNet-18 of ours at 32 pixels",
}
ADAPTATIONS = {
    "frozen": "the network as given",
    "fifo 0 1": "without mixture",
    "fifo 0 0.75": "`adapt`",
    "gated": "`adapt`, the mixture chosen by the gate",
    "fifo 0.3 0.75": "aligned, ω 0.3",
    "fifo 1 0.75": "aligned, ω 1",
    "anchored 0 0.75": "memory `anchored`",
    "anchored 0.3 0.75": "memory `anchored`, aligned, ω 0.3",
    "anchored 1 0.75": "memory `anchored`, aligned, ω 1",
    "ruined": "the rate of the heads for all weights, no mixture",
}
"""Rows of the tables of adapting: arms, or memory, ω and share of what was learned."""
CHOICE = {"choice": "stream", "choice_reference": "elsewhere"}


def between(page: str, name: str, content: str) -> str:
    """A page with the content between the marks of a name replaced."""
    begin, end = f"<!-- {name}: made by docs/tables.py -->", f"<!-- end of {name} -->"
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"the page has no '{begin}' and '{end}'")
    return f"{before}{begin}\n{content}\n{end}{after}"


# ---------------------------------------------------------------------- lists of numbers


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


def runs(report: Report) -> Iterator[str]:
    """What was run: rows and seeds of every table."""
    yield measured(report)
    for section in report.sections:
        rows = [row for row in section.rows if not row.ours.floor]
        by_seeds: dict[tuple[int, ...], list[str]] = {}
        for row in rows:
            by_seeds.setdefault(tuple(row.ours.runs), []).append(f"`{row.name}`")
        if not section.is_unlisted:
            said = [
                f"{f'all {len(rows)} rows' if len(names) == len(rows) else ', '.join(names)} with {seeds_said(seeds)}"
                for seeds, names in by_seeds.items()
                if seeds
            ]
            left = len(by_seeds.get((), []))
            yield f"{named(section)}: {'; '.join(said)}{f'; {left} of {len(rows)} rows not run' if left else ''}."


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
    """Rows that end below a floor that needs no encoder."""
    for section in sections(report, *MAIN, protocol="clean"):
        for number, probe in (("final", "linear probe"), ("knn_final", "k-NN")):
            known = {row.label: getattr(row.ours, number) for row in section.floors}
            values = {label: fmean(found.values()) for label, found in known.items() if found}
            if not values:
                continue
            floor = max(values, key=lambda label: values[label])
            rows = {section.label(row): getattr(row.ours, number) for row in section.rows if not row.ours.floor}
            means = {label: fmean(found.values()) for label, found in rows.items() if found}
            below = [f"{label} {mean:.1f}" for label, mean in means.items() if mean < values[floor]]
            above = len(means) - len(below)
            less = f", below it {', '.join(below)}" if below else ""
            text = f"{named(section)}, {probe}: {floor} {values[floor]:.1f}"
            yield f"{text}; above it {above} of {len(means)} rows{less}."


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
    """What each single change does at the low budget, over common seeds."""
    for section in sections(report, "switches"):
        rows = {row.name: row for row in section.rows}
        strategies = [name.removesuffix("-usual") for name in rows if name.endswith("-usual")]
        for mark in dict.fromkeys(name.removeprefix(f"{one}-") for one in strategies for name in rows if one in name):
            said = []
            for strategy in strategies if mark != "usual" else []:
                row, usual = rows[f"{strategy}-{mark}"], rows[f"{strategy}-usual"]
                changes = [compared(row.ours, usual.ours, number) for number in NUMBERS]
                if None not in changes:
                    label, _, what = row.label.partition(", ")
                    points = " and ".join(signed(points) for points in changes if points is not None)
                    said.append(f"{label} {points} ({seeds_said(row.ours.runs.keys() & usual.ours.runs.keys())})")
            if said:
                yield f"{what}: {', '.join(said)}."


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
    """What every sweep chose, beside the paper's values."""
    for place in sorted(path.parent for path in folder.glob("*/*/best.yaml")):
        sweep, log = read_started(place), TrialLog(place / "trials.jsonl")
        best = log.best()
        if best is None:
            continue
        settings = sweep.settings
        row = row_name(str(settings.get("strategy", "iid")), settings.get("memory"))
        paper = hyperparameters(settings.get("budget"), row, settings.get("method"), DATASET, settings.get("batch"))
        theirs = [
            trial
            for trial in log.trials
            if all(
                float(paper.get(name) or -1) == trial.values[name] for name in ("lr", "omega") if name in trial.values
            )
        ]
        chosen = ", ".join(setting_text(name, value) for name, value in best.values.items())
        where = f"{heading(str(settings.get('budget')))}, {heading(settings.get('protocol', 'clean'))} protocol"
        text = (
            f"`{place.relative_to(folder)}` ({where}), the best of {len(log.trials)} trials: {chosen}, {best.score:.1f}"
        )
        scores = [trial.score for trial in theirs if trial.score is not None]
        yield text + (f"; with the paper's values {max(scores):.1f}." if scores else ".")


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


def _groups(section: Section, ranked: bool) -> dict[str, Group]:
    """Those that were run, by label: rows with the paper's values and with ours."""
    return {
        f"{section.label(row)}{', tuned' if group is not row.ours else ''}": group
        for row in section.rows
        for group in row.distinct
        if row.ranked == ranked and group.knn_final
    }


def listed(lines: Iterable[str]) -> str:
    return "\n" + ("".join(f"- {line}\n" for line in lines) or "Not run yet.\n")


# ---------------------------------------------------------------------- pages


def reproduction(text: str, report: Report, made: str) -> str:
    """The page with its tables, claims and lists as the results have them.

    Args:
        made: the tables of the report.
    """
    first, last = text.index("### CIFAR-100, "), text.index("Accuracies are in percent")
    text = text[:first] + re.sub("^## ", "### ", made, flags=re.M) + text[last:]
    answers = "".join(f"| {claim.text} | {claim.said} | {claim.evidence} |\n" for claim in claims(report.store))
    text = between(text, "claims", f"\n| claim | answer | our numbers |\n|---|---|---|\n{answers}")
    lists = {
        "runs": runs(report),
        "summary": summary(report.sections),
        "grids": grids(report.folder / "tuning"),
        "tuned": tuned(report),
        "floors": floors(report),
        "noise": noise(report),
        "against the paper": against_paper(report, *MAIN),
        "views": views(report),
        "CLA-b": cla_b(report),
        "switches": switches(report),
    }
    for name, lines in lists.items():
        text = between(text, name, listed(lines))
    return text


def multiview(page: str, store: Store, tuning: Path) -> str:
    """The page with its tables and the best trials of its sweeps; what was not run says so.

    Args:
        tuning: folder of the sweeps.
    """
    trials = [_best_trials(tuning / f"multiview-{name}") for name in SEARCH]
    page = between(page, "search", "\n" + "\n".join(trials))
    page = between(page, "many views", listed(many_views(store)))
    page = between(page, "times", listed(times(store)))
    for name, table in TABLES.items():
        if name.startswith("multiview"):
            filled = [section for section in sections_of(store, table) if section.content]
            made = [report_table(section) for section in filled]
            made += [section_differences(section, WHOLE) for section in filled if name == PARTS]
            shown = (
                f"**{table.title}**\n\n{to_markdown(table)}" + "".join(f"\n{n}\n" for n in table.notes)
                for table in made
            )
            empty = f"*Not run yet:* `ocssl paper run {name} --seeds 0,1,2`\n"
            page = between(page, name, "\n" + ("\n".join(shown) or empty))
    return page


def _best_trials(sweep: Path) -> str:
    """The best trials of a sweep, and how many there are."""
    if not (sweep / "trials.jsonl").exists():
        return f"`{sweep.name}`: *not run yet.*\n"
    log = TrialLog(sweep / "trials.jsonl")
    plan, over = read_started(sweep), sum(trial.state != "open" for trial in log.trials)
    table = trial_table(plan, log)
    best = to_markdown(replace(table, rows=table.rows[:SHOWN_TRIALS]))
    return f"`{sweep.name}`, the best of {over} trials ({len(plan.listed())} planned):\n\n{best}"


def readme(text: str, report: Report) -> str:
    """The page with its table and lists as the results have them."""
    (section,) = sections(report, "high-simsiam", protocol="clean")
    text = between(text, "numbers", "\n" + to_markdown(rounded(report_table(section))))
    text = between(text, "against the paper", listed(against_paper(report, "high-simsiam", protocol="authors")))
    text = between(text, "past the paper", listed(past_paper(report)))
    return between(text, "tuned", listed(tuned(report)))


def rounded(table: Table) -> Table:
    """The columns of README.md: numbers with one digit and without spread, the highest Final first."""
    titles = [column.heading for column in table.columns]
    chosen = [titles.index(title) for title in README_COLUMNS]
    columns = tuple(TableColumn(title) for title in README_COLUMNS.values())
    rows = [
        replace(row, values=tuple(replace(row.values[i], digits=1, std=None) for i in chosen)) for row in table.rows
    ]
    floors = [row for row in rows if row.label in FLOORS]
    trained = [row for row in rows if row not in floors]
    trained.sort(key=lambda row: (not row.ranked, -(row.values[0].mean or 0)))
    return replace(table, columns=columns, rows=(*trained, *floors))


def adaptations(folder: Path, part: str) -> dict[str, dict[int, dict[str, float]]]:
    """Numbers of the encoders of a part of ``benchmarks/adapt.py`` at its usual rate, by row and seed."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for file in sorted(folder.glob("*.json")):
        run = json.loads(file.read_text())
        asked, config = run["asked"], run["config"]
        if asked["part"] != part or "backbone_lr" in asked["set"]:
            continue
        for name, numbers in run["encoders"].items():
            row = f"{config['memory']} {config['omega']:g} {name.rpartition(' ')[2]}"
            if asked["arm"] in ("frozen", "gated", "ruined"):
                row = asked["arm"]
            found.setdefault(row, {}).setdefault(asked["seed"], numbers)
    return found


def with_spread(values: Iterable[float]) -> str:
    """The mean, with the standard deviation of several."""
    known = list(values)
    return f"{fmean(known):.1f}" + (f" ± {stdev(known):.1f}" if len(known) > 1 else "")


def adapted(folder: Path) -> Iterator[str]:
    """A table for each part of ``benchmarks/adapt.py``, from its JSON files."""
    for part, title in ADAPTED.items():
        found = adaptations(folder, part)
        yield f"**{title}**\n\n| | seeds | k-NN | linear probe | elsewhere |\n|---|--:|--:|--:|--:|"
        for row, label in ADAPTATIONS.items():
            if row in found:
                seeds = found[row].values()
                cells = [with_spread(numbers[kind] for numbers in seeds) for kind in ("knn", "linear", "reference")]
                yield f"| {label} | {len(seeds)} | {' | '.join(cells)} |"
        yield ""


def choices(folder: Path) -> Iterator[str]:
    """The numbers by which ω and the mixture of ``adapt`` were chosen: what each combination adds to the start."""
    streams = {"cars": ("fifo", adaptations(folder, "cars")), "svhn": ("anchored", adaptations(folder, "svhn"))}
    titles = [f"{part}, {title}" for part in streams for title in CHOICE.values()]
    yield f"| ω | α | {' | '.join(titles)} |\n|--:|--:|{'--:|' * len(titles)}"
    for omega, share in product(("0", "0.3", "1"), ("1", "0.75", "0.5", "0.25")):
        cells = [
            with_spread(numbers[kind] - found["frozen"][seed][kind] for seed, numbers in rows.items())
            for memory, found in streams.values()
            for rows in (found[f"{memory} {omega} {share}"],)
            for kind in CHOICE
        ]
        yield f"| {omega} | {share} | {' | '.join(cells)} |"


def pages() -> dict[Path, str]:
    """The pages as they should be."""
    report = read_report(ROOT / "results")
    with tempfile.TemporaryDirectory() as folder:
        write_report(report, Path(folder), ["markdown"])
        written = (Path(folder) / "report.md").read_text()
    made = written[written.index("## CIFAR-100, ") : written.index("Accuracies are in percent")]
    page, many, front = ROOT / "docs" / "reproduction.md", ROOT / "docs" / "multiview.md", ROOT / "README.md"
    adapt, measured = ROOT / "docs" / "pretrained.md", ROOT / "benchmarks" / "measured" / "adapt"
    return {
        page: reproduction(page.read_text(), report, made),
        many: multiview(many.read_text(), report.store, report.folder / "tuning"),
        adapt: between(
            between(adapt.read_text(), "adapted", "\n" + "\n".join(adapted(measured))),
            *("choices", "\n" + "\n".join((*choices(measured), ""))),
        ),
        front: readme(front.read_text(), report),
    }


if __name__ == "__main__":
    for place, content in pages().items():
        place.write_text(content)
