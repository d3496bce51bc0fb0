"""Sweeps: the best settings, found by many runs that are scored on validation images only.

``plan`` reads sweep files, ``search`` proposes trials, ``log`` stores them, ``driver`` runs them on an engine and
``report`` makes the table, the plot and the best configuration.
"""
