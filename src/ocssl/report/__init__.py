"""Reports from results: tables beside the paper's, figures, and one page that works offline."""

from ocssl.report.model import Line, Report, Sheet, read_report

__all__ = ["Line", "Report", "Sheet", "read_report"]
