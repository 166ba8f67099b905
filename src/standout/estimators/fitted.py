"""Fitted attributes that are read from the model, which is solved when the first of them is read."""

from __future__ import annotations

from typing import Any

from standout.errors import warn_user
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
    """Tell the user what the model's notes say, at the line of their code."""
    for note in model.notes:
        warn_user(note.text, note.category)
