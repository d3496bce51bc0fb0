"""Renderers of :class:`ocssl.results.table.Table` and of whole reports."""

from ocssl.results.render.csv import to_csv
from ocssl.results.render.latex import to_latex
from ocssl.results.render.markdown import to_markdown
from ocssl.results.render.terminal import sparkline, to_rich
from ocssl.results.render.write import FORMATS, write_report

__all__ = ["FORMATS", "sparkline", "to_csv", "to_latex", "to_markdown", "to_rich", "write_report"]
