"""Labels of results that stand in one table: what ran, then what tells the rows apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ocssl.results.names import COSTS, heading, setting_text
from ocssl.results.result import Result


def row_labels(results: Sequence[Result]) -> tuple[list[str], list[str]]:
    """The labels of results in one table, and what all of them share, for its caption.

    A label has the strategy and memory that ran, then the settings in which it differs from rows of the same strategy
    and memory, then those in which it differs from the paper's, unless all rows (of two or more) share them. Settings
    that no part of its run reads are left out.
    """
    changed = [result.labelled for result in results]
    first = changed[0] if len(results) > 1 else {}
    shared = {name: value for name, value in first.items() if all(own.get(name) == value for own in changed)}
    labels = []
    for result, own in zip(results, changed, strict=True):
        alike = [place for place, other in enumerate(results) if other.label == result.label]
        names = dict.fromkeys([*COSTS, *(name for place in alike for name in changed[place])])
        values = {name: [_setting(results[place], name) for place in alike] for name in names}
        differing = [name for name, found in values.items() if any(value != found[0] for value in found)]
        rest = [name for name in own if name not in (*differing, *shared)]
        words = [setting_text(name, _setting(result, name)) for name in (*differing, *rest) if _reads(result, name)]
        labels.append(", ".join([result.label, *words]))
    return labels, [setting_text(name, value) for name, value in shared.items()]


def measured_words(*results: Result) -> list[str]:
    """Where and how runs of one experiment were measured, in a few words, some of them empty."""
    result = results[0]
    seeds = f"seed{'s' * (len(results) > 1)} {' '.join(str(seed) for seed in sorted(run.seed for run in results))}"
    what = [heading(name or "") for name in (result.method, result.dataset, result.budget)]
    images = "" if result.measured_on == "test" else f"on {result.measured_on} images"
    return [*what, f"{heading(result.protocol)} protocol", images, seeds]


def _reads(result: Result, name: str) -> bool:
    """Whether a part of the run has this setting."""
    return name in COSTS or name in result.overrides or name.partition(".")[0] in result.config


def _setting(result: Result, name: str) -> Any:
    """The value of a setting; of i.i.d. training b_s and n_p as the online strategies have them."""
    if name in COSTS:
        return result.block[COSTS.index(name)]
    group, _, key = name.partition(".")
    value = result.overrides.get(name, result.config.get(group))
    return value.get(key) if isinstance(value, dict) else value
