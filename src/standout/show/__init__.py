"""Showing: pictures of fitted models (extra ``plot``), and a report as one HTML file (extra ``report``)."""

from standout.show.plot import gallery, null, patterns, ratios, scores, stability
from standout.show.report import report

__all__ = ["gallery", "null", "patterns", "ratios", "report", "scores", "stability"]
