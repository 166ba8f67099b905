"""Explained variance, under the names of scikit-learn's PCA.

standout's variances (``target_variance_``, ``Moments.covariance``) divide by the number of rows m, as the paper does.
Attributes with scikit-learn's names have its values: they divide by m − 1. Everything is computed when it is read.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from scipy import linalg

from standout._blas import Array, symmetric
from standout.errors import InputError

if TYPE_CHECKING:
    from standout._model import Model


def _unbiased(model: Model) -> float:
    """Return m / (m − 1), with Kish's effective number of rows for m if rows have weights."""
    rows = model.target_counts.effective
    return rows / (rows - 1) if rows > 1 else math.nan


class ExplainedVariance:
    """Attributes and methods of scikit-learn's PCA, for estimators with linear components."""

    if TYPE_CHECKING:

        def _solved(self) -> Model: ...

    @property
    def explained_variance_(self) -> Array:
        """Target variance explained by each component, divided by m − 1.

        Without a background, that of :class:`sklearn.decomposition.PCA`: ``target_variance_ * m / (m - 1)``. With one,
        the total variance of the rows that ``inverse_transform`` restores from the component; for CPCA, whose
        components are orthonormal, the variance along the component.
        """
        model = self._read("explained_variance_")
        return model.explained_variance * _unbiased(model)

    @property
    def explained_variance_ratio_(self) -> Array:
        """Share of the target's total variance that each component explains."""
        model = self._read("explained_variance_ratio_")
        return np.asarray(model.explained_variance / model.total_variance)

    @property
    def singular_values_(self) -> Array:
        """Singular values of the centred target rows, one for each component; without a background only."""
        model = self._read("singular_values_", alone=True)
        return np.sqrt(model.explained_variance * _unbiased(model) * (model.target_counts.effective - 1))

    @property
    def noise_variance_(self) -> float:
        """Mean variance along the directions that are left out, divided by m − 1; without a background only."""
        model = self._read("noise_variance_", alone=True)
        left_out = min(model.target_counts.rows, _n_used(model)) - model.n_components
        rest = (model.total_variance - float(model.explained_variance.sum())) * _unbiased(model)
        return max(rest, 0.0) / left_out if left_out > 0 else 0.0

    def get_covariance(self) -> Array:
        """Return the covariance of the probabilistic PCA model, divided by m − 1; without a background only.

        It has the variances ``explained_variance_`` along the components and ``noise_variance_`` in all other
        directions, as :meth:`sklearn.decomposition.PCA.get_covariance`.

        Returns
        -------
        ndarray of shape (n_features, n_features)

        Examples
        --------
        >>> import numpy as np
        >>> from standout import DPCA
        >>> rows = np.random.default_rng(0).normal(size=(100, 4)) * [4, 2, 1, 1]
        >>> covariance = DPCA(n_components=2).fit(rows).get_covariance()
        >>> np.allclose(np.trace(covariance), rows.var(axis=0, ddof=1).sum())
        True
        """
        model, excess = self._probabilistic("get_covariance")
        noise = self.noise_variance_
        covariance = (model.components.T * excess) @ model.components
        np.einsum("ii->i", covariance)[...] += noise
        return symmetric(covariance)

    def get_precision(self) -> Array:
        """Return the inverse of :meth:`get_covariance`; without a background only.

        Returns
        -------
        ndarray of shape (n_features, n_features)

        Examples
        --------
        >>> import numpy as np
        >>> from standout import DPCA
        >>> rows = np.random.default_rng(0).normal(size=(100, 4)) * [4, 2, 1, 1]
        >>> model = DPCA(n_components=2).fit(rows)
        >>> np.allclose(model.get_precision() @ model.get_covariance(), np.eye(4))
        True
        """
        model, excess = self._probabilistic("get_precision")
        noise = self.noise_variance_
        if noise == 0:
            return symmetric(linalg.inv(self.get_covariance()))
        # Components are orthonormal: the inverse has 1 / (excess + noise) along them, and 1 / noise elsewhere.
        precision = (model.components.T * (1 / (excess + noise) - 1 / noise)) @ model.components
        np.einsum("ii->i", precision)[...] += 1 / noise
        return symmetric(precision)

    def _probabilistic(self, name: str) -> tuple[Model, Array]:
        """Return the model, and the variance of each component in excess of the noise variance."""
        model = self._solved()
        if model.background_counts:
            raise InputError(f"{name}: {_ALONE}")
        return model, np.maximum(self.explained_variance_ - self.noise_variance_, 0.0)

    def _read(self, name: str, alone: bool = False) -> Model:
        """Return the model of which an attribute is read; raise AttributeError if the attribute is undefined."""
        model = self._solved()
        if alone and model.background_counts:
            self._missing(name, _ALONE)
        if math.isnan(model.total_variance):
            self._missing(name, "the model was saved by a version that did not store the total variance. Fit it again.")
        return model

    def _missing(self, name: str, reason: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}: {reason}")


_ALONE = "it describes a PCA, that is, a fit without a background. See explained_variance_ratio_ and ratios_ instead."


def _n_used(model: Model) -> int:
    return len(model.mean) if model.used is None else len(model.used)


def specific_variance(model: Model) -> Array:
    """Return the variance of each component that the background does not have, in the units of ``explained_variance``.

    A component explains v = λb, of which b is also in the background: the rest is v (1 − 1/λ). λ is the debiased ratio,
    and components below the noise edge have none; without an edge it is the fitted ratio.
    """
    ratios: Any = model.ratios if math.isnan(model.noise_edge) else model.debiased_ratios
    with np.errstate(invalid="ignore"):
        gains = np.where(ratios > 1, 1 - 1 / np.maximum(ratios, 1.0), 0.0)
    return np.asarray(model.explained_variance * gains)
