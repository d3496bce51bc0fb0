"""Measures of an encoder: probes on frozen features, metrics along a stream, label-free diagnostics and quality.

This package takes tensors and labels and does not import the learner. Anything that turns images into vectors can be
measured, and labels cannot reach training.
"""

from __future__ import annotations

from ocssl.evaluation.diagnostics import alignment, collapsed, diagnose_features, effective_rank, feature_std
from ocssl.evaluation.features import extract, extract_parts
from ocssl.evaluation.knn import knn_probe
from ocssl.evaluation.metrics import Accuracy, StreamMetrics
from ocssl.evaluation.probes import ProbeResult, ProbeSchedule, linear_probe, linear_probes

__all__ = [
    "Accuracy",
    "ProbeResult",
    "ProbeSchedule",
    "StreamMetrics",
    "alignment",
    "collapsed",
    "diagnose_features",
    "effective_rank",
    "extract",
    "extract_parts",
    "feature_std",
    "knn_probe",
    "linear_probe",
    "linear_probes",
]
