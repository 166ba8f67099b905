"""The explorer: a local page that shows what is specific to the target, and answers questions about it."""

from standout._explore.launch import explore

__all__ = ["explore"]
