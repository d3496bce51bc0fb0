"""Running the paper's tables: the runs that they need, those that are missing, and values tuned for them."""

from ocssl.paper.plan import TablePlan, TableRun, configure, join_plans, make_plan, select_rows
from ocssl.paper.run import RunOutcome, run_missing

__all__ = ["RunOutcome", "TablePlan", "TableRun", "configure", "join_plans", "make_plan", "run_missing", "select_rows"]
