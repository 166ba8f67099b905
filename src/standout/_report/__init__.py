"""The HTML report: one self-contained page about fitted models (extra ``report``)."""

from standout._report.report import report

__all__ = ["report"]
