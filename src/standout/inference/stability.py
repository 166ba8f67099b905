"""Bootstrap stability of components and of the weights of their features.

Only directions are assessed. A bootstrap sample contains each row several times or not at all, which increases every
ratio, so that bootstrap intervals of ratios fail to cover the true ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import linear_sum_assignment

from standout._blas import Array
from standout._dataset import Dataset
from standout._display import Summary, Table, display
from standout._dpca import DPCA
from standout._folds import Index, Units, rows_by_unit
from standout._inputs import check_count, seed_from
from standout._model import Model, fit_model
from standout._verdict import stable_words
from standout.errors import InputError, NotEnoughRowsError
from standout.inference.resampling import Samples, check_level, collect_samples, run_chunks
from standout.io.source import RowSource, RowView
from standout.solvers.problem import SolveOptions

# With fewer units, bootstrap samples often coincide.
_FEW_UNITS = 5


@dataclass(frozen=True)
class FeatureStability:
    """Weight of a feature in a component, with its interval.

    Examples
    --------
    >>> from standout import datasets, stability
    >>> target, background = datasets.FactorModel().sample(100, 200)
    >>> top = stability(target, background, n_components=1, n_bootstrap=50).top_features(1)[0][0]
    >>> top.feature, round(top.weight, 1), top.same_sign
    (10, 0.7, 1.0)
    """

    feature: str | int
    weight: float  # change in background sd when the score changes by one target sd
    low: float
    high: float
    same_sign: float  # share of bootstrap samples in which the weight has the same sign


@dataclass(frozen=True)
class Stability:
    """Stability of components and of their features.

    Attributes
    ----------
    correlations : ndarray of shape (n_bootstrap, n_components)
        Absolute correlation between the target's scores of each component and those of the matched component of each
        bootstrap sample; 0 if none matches.
    median, low, high : ndarray of shape (n_components,)
        Median of the correlations, and ends of their percentile interval.
    angles : ndarray of shape (n_bootstrap,)
        Largest principal angle, in degrees, between the target's scores of all components and those of the bootstrap
        sample: small if components only mix with each other.
    weights : ndarray of shape (n_components, n_features)
        Change of a feature, in background sd, when the score changes by one target sd.
    weight_low, weight_high : ndarray of shape (n_components, n_features)
        The weight plus and minus the root mean square deviation of the bootstrap weights from it, times Student's t.
        These intervals include the error of the background sd and can contain zero even if ``same_sign`` is 1.
    same_sign : ndarray of shape (n_components, n_features)
        Share of the bootstrap samples in which a weight has the same sign.
    level : float
        Nominal coverage of the intervals.
    names, notes : tuple of str
        Feature names (or None), and caveats.
    by : "rows" or "groups"
        What was resampled.

    See Also
    --------
    standout.stability, standout.inference.FeatureStability, standout.plot.stability

    Examples
    --------
    >>> from standout import datasets, stability
    >>> target, background = datasets.FactorModel().sample(100, 200)
    >>> found = stability(target, background, n_components=1, n_bootstrap=50)
    >>> found.median.round(2), found.weights.shape
    (array([0.99]), (1, 12))
    >>> [top.feature for top in found.top_features(2)[0]]
    [10, 0]
    """

    correlations: Array
    median: Array
    low: Array
    high: Array
    angles: Array
    weights: Array
    weight_low: Array
    weight_high: Array
    same_sign: Array
    level: float
    names: tuple[str, ...] | None
    by: str
    notes: tuple[str, ...]

    def top_features(self, count: int = 5) -> list[list[FeatureStability]]:
        """Return the features with the largest weights of each component."""
        names = self.names if self.names is not None else range(self.weights.shape[1])
        order = np.argsort(-np.abs(self.weights), axis=1, kind="stable")[:, : check_count("count", count)]
        values = np.stack([self.weights, self.weight_low, self.weight_high, self.same_sign], axis=-1)
        return [
            [FeatureStability(names[j], *values[k, j].tolist()) for j in row if self.weights[k, j] != 0]
            for k, row in enumerate(order)
        ]

    def summary(self, count: int = 5) -> Summary:
        """Return the result as text, with the top features of each component."""
        components, weights = [], []
        for k, features in enumerate(self.top_features(count)):
            own, name = f"{self.low[k]:.2f} to {self.high[k]:.2f}", f"dpca{k}"
            components.append((name, f"{self.median[k]:.2f}", own, stable_words(self.low[k])))
            for top in features:
                own, share = f"{top.low:.2f} to {top.high:.2f}", f"{100 * top.same_sign:.0f} %"
                weights.append((name, top.feature, f"{top.weight:.2f}", own, share))
        interval = f"{100 * self.level:g} % interval"
        return display(
            f"Stability: {len(self.correlations)} bootstrap samples of {self.by}",
            Table(["component", "correlation", interval, "stability"], components),
            Table(["component", "feature", "weight", interval, "same sign in"], weights),
            facts=[
                ("angle", f"{np.median(self.angles):.0f}°, the median over samples, of all components together"),
                (
                    "intervals",
                    "those of weights include the error of the background sd, and so can contain zero even if the sign "
                    "is the same in every sample",
                ),
            ],
            notes=self.notes,
        )

    def _repr_html_(self) -> str | None:
        return self.summary().html


def stability(
    target: Any,
    background: Any,
    *,
    n_components: int = 2,
    n_bootstrap: int = 200,
    groups: Any = None,
    background_groups: Any = None,
    level: float = 0.95,
    random_state: Any = None,
    n_jobs: int | None = None,
    **parameters: Any,
) -> Stability:
    """Estimate how much components and their features vary from sample to sample.

    Rows (groups, where given) of each set are drawn with replacement, components are fitted with the shrinkage of the
    original fit, and matched to the original ones regardless of their order.

    Parameters
    ----------
    target, background, random_state, n_jobs
        As in :func:`standout.permutation_test`.
    n_components, n_bootstrap : int
        Number of components, and of bootstrap samples.
    groups, background_groups : array-like of shape (n_rows,), optional
        The subject of each row; subjects are then drawn as a whole. For several backgrounds a list or dict.
    level : float, default=0.95
        Nominal coverage of the intervals.
    **parameters
        Further parameters of :class:`standout.DPCA`, such as ``shrinkage`` or ``axes``.

    Returns
    -------
    Stability

    See Also
    --------
    standout.assess, standout.permutation_test, standout.held_out_ratio, standout.plot.stability

    Examples
    --------
    >>> from standout import datasets, stability
    >>> target, background = datasets.FactorModel().sample(100, 200)
    >>> found = stability(target, background, n_components=1, n_bootstrap=50)
    >>> found.low.round(2), found.high.round(2)
    (array([0.98]), array([1.]))
    """
    n_components, n_bootstrap = check_count("n_components", n_components), check_count("n_bootstrap", n_bootstrap)
    level = check_level(level)
    if parameters.get("background_label") is not None:
        raise InputError("background_label cannot be combined with the argument background. Leave it out.")
    estimator = DPCA(n_components, random_state=random_state, **parameters)
    options = estimator._check_parameters()
    samples = collect_samples(target, background, groups, background_groups, estimator.features, "stability")
    for sample in samples.sets:
        if sample.units.count < 2:
            what = "group" if sample.units.ids else "row"
            few = f"{sample.units.count} {what}, and a bootstrap needs at least 2"
            raise NotEnoughRowsError(f"{sample.role}: {few}. Give more {what}s.")
    target_rows = samples.sets[0].source
    options = estimator._with_graph(options, target_rows.n_features)
    model = _fit(samples, [(np.arange(sample.n_rows), sample.units.rows) for sample in samples.sets], options)
    if model.n_components == 0:
        raise InputError("no component is above noise, so there is nothing to resample. Use `axes='ratio'`.")
    options = replace(options, n_components=model.n_components)
    # Duplicate rows look like correlation: bootstrap samples use the shrinkage of the original fit.
    if model.regime == "shrunk" and options.shrinkage == "auto":
        options = replace(options, intensity=model.shrinkage)
    else:
        options = replace(options, shrinkage=model.shrinkage if model.regime == "shrunk" else None)
    work = partial(_replicate, samples, options, _unit_scores(model, target_rows))
    drawn = run_chunks(work, n_bootstrap, seed_from(random_state), n_jobs, "bootstrap samples")
    correlations, angles, drawn_weights = (np.stack(values) for values in zip(*drawn, strict=True))
    weights = _weights(model)
    ends = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(correlations, ends, axis=0)
    # Percentile intervals of few samples cover too rarely; the error includes the bias of the bootstrap.
    error = np.sqrt(np.mean((drawn_weights - weights) ** 2, axis=0))
    margin = stats.t.ppf(ends[1], min(sample.units.count for sample in samples.sets) - 1) * error
    return Stability(
        correlations=correlations,
        median=np.median(correlations, axis=0),
        low=low,
        high=high,
        angles=angles,
        weights=weights,
        weight_low=weights - margin,
        weight_high=weights + margin,
        same_sign=(np.sign(drawn_weights) == np.sign(weights)).mean(axis=0),
        level=level,
        names=model.names,
        by=samples.unit_kind,
        notes=(*samples.notes, *_notes(samples, options, model)),
    )


# |correlations| (k,), largest angle, weights (k, n_features) in single precision to save memory
_Replicate = tuple[Array, float, NDArray[np.float32]]


def _replicate(samples: Samples, options: SolveOptions, scores: Array, rng: np.random.Generator, _: int) -> _Replicate:
    """Fit one bootstrap sample, and match its components to the original ones, given the target's scores of these."""
    target = samples.sets[0].source
    correlations = np.zeros(scores.shape[1])
    weights = np.zeros((scores.shape[1], target.n_features), np.float32)
    try:
        model = _fit(samples, [_draw(sample.units, rng) for sample in samples.sets], options)
    except InputError:  # too few distinct rows for this number of components
        return correlations, 90.0, weights
    drawn = _unit_scores(model, target)
    correlation = (scores.T @ drawn).clip(-1.0, 1.0)
    original, matched = linear_sum_assignment(-np.abs(correlation))
    signs = np.where(correlation[original, matched] < 0, -1.0, 1.0)
    correlations[original] = np.abs(correlation[original, matched])
    weights[original] = signs[:, None] * _weights(model)[matched]
    # The largest principal angle between the spans.
    cosines = np.linalg.svd(np.linalg.qr(scores)[0].T @ np.linalg.qr(drawn)[0], compute_uv=False)
    cosine = min(cosines.min(), 1.0) if drawn.shape[1] == scores.shape[1] else 0.0
    return correlations, float(np.degrees(np.arccos(cosine))), weights


def _draw(units: Units, rng: np.random.Generator) -> tuple[Index, Index]:
    """Draw as many units as there are, with replacement; return their rows, and the draw each row belongs to."""
    chosen = rng.integers(units.count, size=units.count)
    if not units.ids:
        return chosen, chosen
    by_unit = rows_by_unit(units.rows)
    rows = [by_unit[unit] for unit in chosen]
    return np.concatenate(rows), np.repeat(np.arange(len(chosen)), list(map(len, rows)))


def _fit(samples: Samples, drawn: list[tuple[Index, Index]], options: SolveOptions) -> Model:
    """Fit the drawn rows of each set, given with the unit of each."""
    datasets = [
        Dataset(sample.role, RowView(sample.source, rows), groups=units if sample.units.ids else None)
        for sample, (rows, units) in zip(samples.sets, drawn, strict=True)
    ]
    return fit_model(datasets, options)


def _unit_scores(model: Model, target: RowSource) -> Array:
    """Return the scores of the target, centred and of length one."""
    scores = model.project(target, "target")
    scores = scores - scores.mean(axis=0)
    length = np.sqrt(np.einsum("ij,ij->j", scores, scores))
    return np.asarray(scores / np.where(length > 0, length, 1.0))


def _weights(model: Model) -> Array:
    """Return the change of each feature, in background sd, when the score changes by one target sd."""
    return np.asarray(model.patterns * np.sqrt(model.target_variance)[:, None] / model.scale)


def _notes(samples: Samples, options: SolveOptions, model: Model) -> list[str]:
    """Return caveats on the size of the sets."""
    notes = [
        f"the {sample.role} has only {sample.units.count} {'groups' if sample.units.ids else 'rows'} to draw from, too "
        "few for a reliable bootstrap. Give more of them."
        for sample in samples.sets
        if sample.units.count < _FEW_UNITS
    ]
    # A bootstrap sample contains 63 % of the units on average.
    distinct = 0.632 * sum(sample.n_rows for sample in samples.sets[1:])
    if options.shrinkage is None and distinct <= model.rank:
        notes.append(
            f"a bootstrap sample has about {distinct:.0f} different background rows for {model.rank} dimensions, so "
            "its exact problem has an infinite ratio, and components look less stable than they are. Use "
            "`shrinkage='auto'`."
        )
    return notes
