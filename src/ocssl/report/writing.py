"""A report as files."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from ocssl.errors import ConfigError, DataError
from ocssl.registry import unknown
from ocssl.report.figures import drawings, need_matplotlib
from ocssl.report.html import to_html
from ocssl.report.latex import to_latex
from ocssl.report.markdown import to_markdown
from ocssl.report.model import Report
from ocssl.report.payload import payload

FIGURES = ("png", "svg", "pdf")
FORMATS = ("html", "markdown", "latex", *FIGURES)


def write_report(report: Report, folder: str | Path, formats: Collection[str] = FORMATS) -> list[Path]:
    """Write a report into a folder: ``report.html``, ``report.md``, ``tables.tex`` and ``figures/``.

    The same results give the same bytes.

    Args:
        formats: some of :data:`FORMATS`.

    Returns:
        the files written.
    """
    for name in formats:
        if name not in FORMATS:
            raise unknown("format", name, FORMATS)
    if not formats:
        raise ConfigError(f"no format to write; choose from {', '.join(FORMATS)}")
    place = Path(folder)
    files: dict[str, bytes] = _figures(report, [name for name in FIGURES if name in formats])
    if "html" in formats:
        files["report.html"] = _bytes(to_html(report))
    if "markdown" in formats:
        shown = [name for name in files if name.endswith(".png")] or [name for name in files if name.endswith(".svg")]
        files["report.md"] = _bytes(to_markdown(report, shown))
    if "latex" in formats:
        files["tables.tex"] = _bytes(to_latex(report))
    return [_write(place / name, content) for name, content in files.items()]


def _bytes(text: str) -> bytes:
    """UTF-8; what a path has that is no letter in any encoding is written like ``\\udcff``."""
    return text.encode(errors="backslashreplace")


def _figures(report: Report, kinds: list[str]) -> dict[str, bytes]:
    if not kinds:
        return {}
    need_matplotlib()
    return {
        f"figures/{drawing.name}.{kind}": content
        for drawing in drawings(payload(report))
        for kind, content in drawing.to_bytes(kinds).items()
    }


def _write(path: Path, content: bytes) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise DataError(f"cannot write '{path}': {error.strerror or error}") from error
    return path
