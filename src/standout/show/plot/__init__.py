"""Plots with matplotlib: each takes axes and returns them, so that they compose. Needs the extra ``plot``."""

from standout.show.plot.canvas import pyplot
from standout.show.plot.features import patterns
from standout.show.plot.multiples import gallery
from standout.show.plot.points import scores
from standout.show.plot.spectrum import ratios
from standout.show.plot.trust import null, stability

__all__ = ["gallery", "null", "patterns", "pyplot", "ratios", "scores", "stability"]
