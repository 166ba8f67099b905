"""Fitted attributes that are read from the model, which is solved when the first of them is read."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from standout.model import Model


class Fitted:
    """A read-only attribute of the estimator that lives in its model."""

    def __init__(self, field: str, doc: str):
        self.field = field
        self.__doc__ = doc

    def __get__(self, estimator: Any, owner: type | None = None) -> Any:
        if estimator is None:
            return self
        return getattr(estimator._solved(), self.field)

    def __set__(self, estimator: Any, value: Any) -> None:
        raise AttributeError(f"the fitted {self.field} cannot be set: it belongs to the model. Fit again instead.")


def warn_of(model: Model) -> None:
    """Warn at the line of the user's code, however many layers lie between."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("standout", "sklearn"):
        level, frame = level + 1, frame.f_back
    for note in model.notes:
        warnings.warn(note.text, note.category, stacklevel=level)
