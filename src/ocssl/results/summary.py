"""What the tables of a report say, in a sentence or two each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ocssl.common.console import number_of
from ocssl.results.claims import MAIN
from ocssl.results.differences import LEAST_SEEDS, best_rows, seed_mean
from ocssl.results.names import heading
from ocssl.results.sections import Section
from ocssl.results.table import Value

TERMS = (
    "For each table, the highest means among rows that only see the stream. Level: rows that cannot be told from it by "
    f"{LEAST_SEEDS} or more seeds. Above it: rows that use more than the stream."
)
"""What the sentences compare, and what their words mean."""
MEASURES = {"final": "Final", "avg": "Avg", "knn_final": "Final by k-NN", "knn_avg": "Avg by k-NN"}


def summary(sections: Iterable[Section]) -> list[str]:
    """What tables say by each probe: a sentence or two for each section that compares strategies."""
    wanted = (section for section in sections if section.table.id in (*MAIN, "smoke"))
    return [_summary(section) for section in wanted if len(_by_label(section, "final")) > 1]


def _summary(section: Section) -> str:
    measured = {number: found for number in (*MEASURES, "forgetting") if (found := _by_label(section, number))}
    few = {_few(values) for found in measured.values() for values in found.values()}
    title = f"{section.title}, {heading(section.protocol)} protocol"
    if len(few) == 1:
        title = ", ".join(filter(None, (title, *few)))
    said = [_highest(section, number, name, len(few) > 1) for number, name in MEASURES.items() if number in measured]
    sentences = [f"{title}. Highest: {'; '.join(said)}."]
    if forgotten := measured.get("forgetting"):
        least = min(forgotten, key=lambda label: seed_mean(forgotten[label]))
        kept = {label: {seed: -points for seed, points in found.items()} for label, found in forgotten.items()}
        level = ", ".join(sorted(best_rows(kept) - {least}))
        notes = _notes(_few(forgotten[least]) if len(few) > 1 else "", level and f"level: {level}")
        sentences.append(
            f"{least} forgets least: {Value(seed_mean(forgotten[least]), digits=1).plain()} points{notes}."
        )
    return " ".join(sentences)


def _highest(section: Section, number: str, title: str, name_few: bool) -> str:
    """The highest mean among rows that only see the stream, the rows level with it, and which others are above it."""
    values, others = _by_label(section, number), _by_label(section, number, ranked=False)
    first = max(values, key=lambda label: seed_mean(values[label]))
    highest = seed_mean(values[first])
    labels = [section.label(section.row(name)) for name in sorted(section.best(number))]
    level = ", ".join(label for label in labels if label != first)
    above = ", ".join(
        f"{label} {seed_mean(found):.1f}" for label, found in others.items() if seed_mean(found) > highest
    )
    few = _few(values[first]) if name_few else ""
    notes = _notes(few, level and f"level: {level}", above and f"above it: {above}")
    return f"{title} {first} {highest:.1f}{notes}"


def _notes(*notes: str) -> str:
    """Those that are not empty, in brackets."""
    said = "; ".join(filter(None, notes))
    return f" ({said})" if said else ""


def _by_label(section: Section, number: str, *, ranked: bool = True) -> dict[str, Mapping[int, float]]:
    """A number by label and seed: of rows that only see the stream, or of the others that were trained."""
    rows = [row for row in section.rows if row.ranked == ranked and not row.ours.floor]
    values: dict[str, Mapping[int, float]] = {section.label(row): getattr(row.ours, number) for row in rows}
    return {label: found for label, found in values.items() if found}


def _few(values: Mapping[int, float]) -> str:
    """How many seeds there are, where they are too few to compare."""
    return number_of(len(values), "seed") if len(values) < LEAST_SEEDS else ""
