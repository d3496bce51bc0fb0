"""The demo: three strategies learn from one stream of drawn images, on two CPU cores, in a few minutes.

``plan`` says what is run, ``network`` is the encoder, ``racing`` trains and probes, ``report`` is what remains of it as
numbers and ``figure`` as a picture.
"""

from __future__ import annotations

from ocssl.runs.demo.figure import draw_figure
from ocssl.runs.demo.plan import DemoPlan
from ocssl.runs.demo.racing import Moment, race
from ocssl.runs.demo.report import DemoReport

__all__ = ["DemoPlan", "DemoReport", "Moment", "draw_figure", "race"]
