"""Measures of an encoder: probes on frozen features, metrics along a stream, label-free diagnostics.

This room knows tensors and labels. It does not know the learner: anything that turns images into vectors can be
measured, and nothing measured here can leak into training.
"""

from __future__ import annotations

from ocssl.evaluation.accuracy import Accuracy
from ocssl.evaluation.diagnostics import alignment, collapsed, effective_rank, feature_std
from ocssl.evaluation.features import extract
from ocssl.evaluation.knn import knn_probe
from ocssl.evaluation.metrics import StreamMetrics
from ocssl.evaluation.probes import ProbeResult, ProbeSchedule, linear_probe, linear_probes

__all__ = [
    "Accuracy",
    "ProbeResult",
    "ProbeSchedule",
    "StreamMetrics",
    "alignment",
    "collapsed",
    "effective_rank",
    "extract",
    "feature_std",
    "knn_probe",
    "linear_probe",
    "linear_probes",
]
