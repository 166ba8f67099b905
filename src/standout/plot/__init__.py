"""Plots of fitted models with matplotlib (extra ``plot``). Each function takes axes and returns them."""

from standout.plot._components import null, patterns, ratios, stability
from standout.plot._scores import gallery, scores

__all__ = ["gallery", "null", "patterns", "ratios", "scores", "stability"]
