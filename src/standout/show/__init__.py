"""Showing: pictures of fitted models (extra ``plot``), and a report as one HTML file (extra ``report``)."""

from standout.show.plot import gallery, patterns, ratios, scores
from standout.show.report import report

__all__ = ["gallery", "patterns", "ratios", "report", "scores"]
