"""Sweeps: which settings are best, found by many runs that are judged on validation images only.

``plan`` says what a sweep file holds, ``search`` proposes configurations, ``driver`` has an engine try them, ``report``
and ``plots`` show what was found.
"""
