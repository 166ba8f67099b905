"""Algorithm 1 of the paper as printed, a baseline of the experiments.

It takes the right singular vectors of ``C_yy⁻¹ C_xx``, while the equations of the paper require the eigenvectors. They
agree only if the covariances commute.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments import Array
from standout._moments import Moments
from standout.errors import InputError


def literal_components(target: Any, background: Any, n_components: int = 2) -> Array:
    """Return the top right singular vectors of the inverse background covariance times the target covariance.

    A singular background covariance is passed to numpy. Rounding usually leaves tiny nonzero pivots; numpy then divides
    by them silently, and the result is rounding error that differs between machines. If a pivot is exactly zero, numpy
    raises, and so does this function.

    Parameters
    ----------
    target, background : array-like of shape (n_rows, n_features), or Moments
        Rows of the two datasets, each centred on its own mean, or their moments.
    n_components : int
        Number of components.

    Returns
    -------
    ndarray of shape (n_components, n_features)
        Unit vectors by descending singular value; the largest weight of each is positive.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> background = rng.normal(size=(400, 3)) * [9, 1, 1]
    >>> target = rng.normal(size=(300, 3)) * [9, 1, 4]
    >>> literal_components(target, background, 1).round(1) + 0.0
    array([[0., 0., 1.]])
    """
    C_xx, C_yy = (
        (data if isinstance(data, Moments) else Moments.of(data, role=role)).covariance()
        for data, role in ((target, "target"), (background, "background"))
    )
    try:
        quotient = np.linalg.solve(C_yy, C_xx)
    except np.linalg.LinAlgError as error:
        raise InputError(
            "background: the covariance is exactly singular and cannot be inverted for Algorithm 1. Drop constant and "
            "duplicate features."
        ) from error
    components = np.linalg.svd(quotient)[2][:n_components]
    largest = np.take_along_axis(components, np.abs(components).argmax(axis=1)[:, None], axis=1)
    return np.asarray(components * np.where(largest < 0, -1.0, 1.0))


class Literal:
    """Algorithm 1 as printed, with the interface of an estimator."""

    def fit(self, target: Moments, background: Moments) -> Literal:
        """Compute the right singular vectors."""
        self.mean_ = target.mean
        self.components_ = literal_components(target, background, 2)
        return self

    def transform(self, rows: Array) -> Array:
        """Return the scores of rows."""
        return np.asarray((rows - self.mean_) @ self.components_.T)
