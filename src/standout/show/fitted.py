"""The fitted model behind an estimator: what the pictures and the report are made of."""

from __future__ import annotations

from typing import Any

from standout.errors import InputError
from standout.estimators.base import Contrast
from standout.model import Model


def checked_estimator(model: Any, role: str = "model") -> Contrast:
    """Return an estimator, or say what was given instead."""
    if not isinstance(model, Contrast):
        raise InputError(
            f"{role}: a {type(model).__name__} was given, which is no estimator of standout. "
            "Give a fitted DPCA, CPCA or KernelDPCA."
        )
    return model


def fitted_model(model: Any, role: str = "model") -> Model:
    """Return the model of a fitted estimator; one that is not fitted says so itself."""
    return checked_estimator(model, role)._solved()


def has_patterns(model: Model) -> bool:
    """Tell whether components look like something in the features; those of a kernel do not."""
    return bool(model.patterns.shape[1])
