"""Runs: the paper's protocol in a folder that survives kills and ends with a result.

``config`` and ``presets`` say what is run, ``run`` starts and resumes, ``loop`` is the loop itself, ``folder`` holds
the files, ``naming`` names runs and experiments.
"""
