"""Plots of fitted models with matplotlib (extra ``plot``). Each function takes axes and returns them."""

from standout.plot._components import null, patterns, ratios, stability
from standout.plot._scores import gallery, scores
from standout.plot._style import pyplot

__all__ = ["gallery", "null", "patterns", "pyplot", "ratios", "scores", "stability"]
