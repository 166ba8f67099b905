"""Algorithm 1 of the paper taken literally: a baseline of the experiments, and nothing to use otherwise.

It takes the right singular vectors of ``C_yy⁻¹ C_xx``, where the paper's own equations ask for its eigenvectors. The
two agree only where the covariances commute.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from standout.blas import Array
from standout.errors import InputError
from standout.moments import Moments


def literal_components(target: Any, background: Any, n_components: int = 2) -> Array:
    """Return the top right singular vectors of the inverse background covariance times the target's.

    A singular background covariance is treated as numpy treats it. Rounding usually leaves pivots that are tiny but
    not zero; then numpy divides by them without a word, and the result is rounding error, which differs from one
    machine to the next. Where a pivot is exactly zero numpy refuses, and so does this.

    Parameters
    ----------
    target, background : array-like of shape (n_rows, n_features), or Moments
        Rows of the two datasets, each centred on its own mean, or their moments.
    n_components : int
        How many components.

    Returns
    -------
    ndarray of shape (n_components, n_features)
        Of length one, largest singular value first, the largest weight of each positive.

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
            "background: its covariance is exactly singular, so Algorithm 1 has no inverse to take. Drop features that "
            "do not vary or stand twice."
        ) from error
    components = np.linalg.svd(quotient)[2][:n_components]
    largest = np.take_along_axis(components, np.abs(components).argmax(axis=1)[:, None], axis=1)
    return np.asarray(components * np.where(largest < 0, -1.0, 1.0))
