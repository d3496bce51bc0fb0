"""Running the paper's tables: the runs that a table needs, those that are missing, and values tuned for it."""

from ocssl.paper.plan import TablePlan, TableRun, configure, make_plan
from ocssl.paper.run import RunOutcome, run_missing

__all__ = ["RunOutcome", "TablePlan", "TableRun", "configure", "make_plan", "run_missing"]
