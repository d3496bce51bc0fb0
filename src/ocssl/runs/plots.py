"""Accuracy along the stream, drawn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ocssl.errors import DataError, missing_extra
from ocssl.runs.result import Result


def plot_curves(results: Mapping[str, Result], path: Path) -> None:
    """Draw the linear probes of some runs along their streams into a PNG, SVG or PDF file.

    Args:
        results: by the label that stands in the legend.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise missing_extra("matplotlib", "plot", "plots") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for label, result in results.items():
        along = len(result.curve) > 1
        style = {"marker": "o", "markersize": 3.5} if along else {"marker": "D", "linestyle": "none"}
        axes.plot(result.borders, result.curve, label=label, **style)
    floors = sorted({result.references["untrained"] for result in results.values() if "untrained" in result.references})
    if floors:
        axes.axhline(sum(floors) / len(floors), color="0.6", linestyle=":", label="untrained encoder")
    axes.set(xlabel="stream images seen", ylabel="linear probe, all classes (%)")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize="small")
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise DataError(f"cannot write the plot '{path}': {error}") from error
    finally:
        pyplot.close(figure)
