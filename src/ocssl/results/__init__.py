"""Results: read from files, joined with the paper's tables, rendered as tables, figures and pages. Needs no torch."""

from ocssl.results.differences import Difference, paired_difference
from ocssl.results.read import Group, Problem, ResultFile, Store, read_results
from ocssl.results.report import Report, read_report
from ocssl.results.result import Curve, Result, read_result
from ocssl.results.sections import Row, Section, sections_of
from ocssl.results.table import Table, TableColumn, TableRow, Value
from ocssl.results.tables import TABLES, PaperRow, PaperTable, find_table

__all__ = ["TABLES", "Curve", "Difference", "Group", "PaperRow", "PaperTable", "Problem", "Report", "Result"]
__all__ += ["ResultFile", "Row", "Section", "Store", "Table", "TableColumn", "TableRow", "Value"]
__all__ += ["find_table", "paired_difference", "read_report", "read_result", "read_results", "sections_of"]
