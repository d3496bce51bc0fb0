"""Experiments: the paper's protocol as a folder that a run fills, survives in, and ends in with numbers.

``config`` says what is run, ``presets`` fills in the paper's choices, ``runner`` runs it, ``folder`` keeps it, and
``result`` is what others read.
"""
