"""Contracts that every strategy, method, memory, optimiser and stream must keep, ours and yours.

One line checks an extension; our own tests run the same functions on everything registered::

    import ocssl
    ocssl.checks.check_strategy("mine")

A broken contract raises :class:`AssertionError` with a sentence that says which.
"""

from ocssl.checks.parts import check_memory, check_optimizer, check_stream
from ocssl.checks.small import small_learner, small_stream
from ocssl.checks.training import check_method, check_strategy

__all__ = [
    "check_memory",
    "check_method",
    "check_optimizer",
    "check_strategy",
    "check_stream",
    "small_learner",
    "small_stream",
]
