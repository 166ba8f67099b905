"""The report: what was found, how sure one can be, and how to repeat it, as one HTML file that needs nothing else."""

from standout.show.report.write import report

__all__ = ["report"]
