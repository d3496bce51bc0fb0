"""The paper's tables: what belongs in them, what was found so far, and running the rest."""

from ocssl.paper.cells import Cell, Score, Spread, cells
from ocssl.paper.store import Problem, Store, Stored, read_store
from ocssl.paper.tables import TABLES, Row, Table, find_table

__all__ = [
    "TABLES",
    "Cell",
    "Problem",
    "Row",
    "Score",
    "Spread",
    "Store",
    "Stored",
    "Table",
    "cells",
    "find_table",
    "read_store",
]
