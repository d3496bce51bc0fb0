"""Markdown tables of what ``benchmarks/adapt.py`` measured: encoders, and numbers without labels against accuracies.

python benchmarks/adapt_tables.py adapt
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from adapt import ARMS
from gate import rho

LABELLED = {
    "choice": "stream k-NN",
    "choice_reference": "reference k-NN, training images",
    "knn": "k-NN",
    "linear": "linear",
    "reference": "reference k-NN",
}
UNLABELLED = {
    "in_time": "neighbours in time",
    "agreement": "agreement, stream",
    "agreement_reference": "agreement, reference",
    "rank": "effective rank",
}


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Mean ± standard deviation; the mean alone of a single value; – of none, as in files of older versions.

    >>> spread([1.0, 3.0])
    '2.0 ± 1.4'
    """
    if not values:
        return "–"
    mean = f"{statistics.fmean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def summarise(folder: Path) -> Iterable[str]:
    """Markdown of everything measured in a folder: for each part a table of encoders, and rank correlations."""
    runs = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))]
    if not runs:
        sys.exit(f"there is nothing measured in '{folder}'")
    for part in dict.fromkeys(one["asked"]["part"] for one in runs):
        mine = [one for one in runs if one["asked"]["part"] == part]
        yield from (f"## {part}", "", *encoders_table(mine), "", *correlations(mine), "")


def encoders_table(runs: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    columns = LABELLED | UNLABELLED
    rows: dict[tuple[int, str], list[Mapping[str, float]]] = {}
    for one in runs:
        asked = one["asked"]
        for name, numbers in one["encoders"].items():
            deployed = " (deployed)" if name == one["deployed"] and len(one["encoders"]) > 1 else ""
            label = f"{asked['name']}: {name}" if asked["name"] else name
            rows.setdefault((list(ARMS).index(asked["arm"]), label + deployed), []).append(numbers)
    yield f"| | seeds | {' | '.join(columns.values())} |"
    yield f"|---|--:|{'--:|' * len(columns)}"
    for (_, label), found in sorted(rows.items(), key=lambda row: row[0][0]):
        cells = [spread([numbers[column] for numbers in found if column in numbers]) for column in columns]
        yield f"| {label} | {len(found)} | {' | '.join(cells)} |"
    for name in ("pixels", "colours", "chance"):
        known = {one["asked"]["seed"]: one["yardsticks"][name]["in_time"] for one in runs}
        yield f"| {name} | {len(known)} |{' |' * len(LABELLED)} {spread(list(known.values()))} | | | |"


def correlations(runs: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """Spearman's ρ over the encoders of a seed, and decisions: better or worse than the original, as k-NN says."""
    seeds = sorted({one["asked"]["seed"] for one in runs})
    by_seed = [[row for one in runs if one["asked"]["seed"] == s for row in one["encoders"].values()] for s in seeds]
    frozen = {one["asked"]["seed"]: one["encoders"]["frozen"] for one in runs if one["asked"]["arm"] == "frozen"}
    fewest = min(map(len, by_seed))
    if fewest < 3:
        yield f"A seed has {fewest} encoders: too few for a rank correlation."
        return
    yield f"Spearman's ρ over the encoders of a seed ({', '.join(str(len(rows)) for rows in by_seed)} of them):"
    yield from ("", f"| | {' | '.join(LABELLED.values())} | better or worse than the original: as k-NN says |")
    yield f"|---|{'--:|' * (len(LABELLED) + 1)}"
    for number, label in UNLABELLED.items():
        cells = [
            spread(
                [
                    rho(*([row[name] for row in rows] for name in (number, truth)))
                    for rows in by_seed
                    if all(truth in row for row in rows)
                ],
                2,
            )
            for truth in LABELLED
        ]
        decided = [
            (row[number] >= start[number]) == (row["knn"] >= start["knn"])
            for seed, rows in zip(seeds, by_seed, strict=True)
            if (start := frozen.get(seed)) is not None and number in ("in_time", "rank")
            for row in rows
            if row is not start
        ]
        yield f"| {label} | {' | '.join(cells)} | {f'{sum(decided)} of {len(decided)}' if decided else ''} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with the JSON files")
    print("\n".join(summarise(parser.parse_args().folder)))


if __name__ == "__main__":
    main()
