"""Showing: pictures of fitted models. Needs the extra ``plot``."""

from standout.show.plot import scores

__all__ = ["scores"]
