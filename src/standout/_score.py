"""The score of a model on given rows: variances of their scores, and the log-likelihood gain over no difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from standout._blas import Array, rank_tolerance
from standout._dataset import Dataset, Mixture
from standout._model import Model
from standout._moments import Moments
from standout.errors import InputError
from standout.solvers.problem import check_rows

# Along a component with an infinite ratio, a background sd below this fraction of the target sd counts as zero.
_NULL = 1e-6
_EPS = float(np.finfo(float).eps)
# Fewest effective rows, and degrees of freedom of a background variance, in the expectation of a ratio of variances,
# which diverges at one row and at two degrees of freedom.
_FEWEST_ROWS, _FEWEST_FREEDOM = 1.5, 2.5


def log_likelihood_gain(model: Model, target: Array, background: Array, expected: Array) -> float:
    """Return ½ Σ [r (1 − 1/λ) − log λ] over components, with λ from the model and r the ratio of given variances.

    ``expected`` is the ratio expected of equal population variances, by which r is corrected. See
    :meth:`standout.DPCA.score` for the derivation.
    """
    if len(target) == 0:
        raise InputError(
            "the model has no components, so there is nothing to score. Fit it with `n_components=1` or more."
        )
    if ((target == 0) & (background == 0)).any():
        raise InputError("neither target nor background rows vary along some component. Give rows that vary.")
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = target / background / expected
        claimed = np.where(np.isnan(model.debiased_ratios), model.ratios, model.debiased_ratios)
        claimed = np.where(np.isinf(claimed), model.target_variance / background, claimed)
        if model.background_counts:  # (Λ − I)₊ of the model
            claimed = np.maximum(claimed, 1.0)
        gains = ratios * (1 - 1 / claimed) - np.log(claimed)
    gains = np.where(np.isinf(ratios), np.where(claimed > 1, np.inf, 0.0), gains)
    return float(gains.sum() / 2)


def score_variances(datasets: Sequence[Dataset], model: Model, *, own_mean: bool) -> tuple[Array, Array, Array]:
    """Return target and background variance (divided by n) along each component, and their expected ratio.

    The expected ratio is that of Gaussian rows whose population variances are equal. With ``own_mean``, the target is
    centred by its own mean, otherwise by that of the background.
    """
    target = _projected(datasets[0], model)
    parts = [_projected(data, model, background=True) for data in datasets[1:]]
    rows = np.maximum([part.n_effective for part in (target, *parts)], _FEWEST_ROWS)
    if not parts:
        return target.variance(), np.ones(model.n_components), np.full(model.n_components, 1 - 1 / rows[0])
    shares = model.shares_of([data.role for data in datasets[1:]])
    mixture = Mixture.of([part.counts for part in parts], shares)
    shift = 0.0 if own_mean else target.mean - mixture.mixed_means([part.mean for part in parts])
    variance = np.diagonal(target.covariance()) + shift**2
    spread = np.stack([np.diagonal(part.covariance()) for part in parts])
    mixed = mixture.mixed(list(spread))
    # In units of the mixed population variance: the contribution of each background, and the variance of the shift.
    own = mixture.shares[:, None] * spread / (1 - 1 / rows[1:, None])
    own /= np.where(mixed > 0, own.sum(axis=0), 1.0)
    shifts = 1 / rows[0] + (mixture.shares / rows[1:]) @ own if not own_mean else np.zeros(len(mixed))
    parts_expected = own * (1 - 1 / rows[1:, None])
    expected = np.where(mixed > 0, parts_expected.sum(axis=0), 1.0)
    # The mean of 1/χ²; the sum of several χ² is approximated by one with the same mean and variance.
    freedom = 1 / np.maximum((parts_expected**2 / (rows[1:, None] - 1)).sum(axis=0) / expected**2, _EPS)
    inverse = 1 / (1 - 2 / np.maximum(freedom, _FEWEST_FREEDOM)) / expected
    return variance, mixed, (1 - 1 / rows[0] + shifts) * inverse


def _projected(data: Dataset, model: Model, background: bool = False) -> Moments:
    """Return the moments of a dataset's scores; variances at the level of rounding error are set to zero."""
    summed = data.source is None or not data.source.is_local
    if summed:
        moments = data.moments.project(model.components.T)
    else:
        assert data.source is not None
        moments = Moments.of(model.project(data.source, data.role), weights=data.weights, role=data.role)
    check_rows(data.role, moments.rows)
    target = np.sqrt(model.target_variance)
    least = 10 * _EPS * (np.abs(model.components) @ np.abs(model.mean) + target)  # a smaller sd is rounding error
    if summed and model.background_counts:  # moments have half the digits of the rows
        features = np.sqrt(model.components**2 @ model.scale**2)
        least = np.maximum(least, np.sqrt(rank_tolerance(len(model.scale))) * features)
    if background:
        least = np.where(np.isinf(model.ratios), np.maximum(least, _NULL * target), least)
    rounding = np.diagonal(moments.covariance()) <= least**2
    return replace(moments, scatter=np.where(rounding | rounding[:, None], 0.0, moments.scatter))
