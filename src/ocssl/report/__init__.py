"""Reports from results: tables beside the paper's, figures, and one page that works offline."""

from ocssl.report.model import Line, Report, Sheet, read_report
from ocssl.report.writing import FORMATS, write_report

__all__ = ["FORMATS", "Line", "Report", "Sheet", "read_report", "write_report"]
