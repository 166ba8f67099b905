"""Stability: how much components and their features change when the rows are drawn anew.

Directions only. A bootstrap sample has each row several times or not at all, which makes every ratio
larger; intervals for ratios made of it do not even contain the true one. How far directions move is
estimated well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import linear_sum_assignment

from standout._blas import Array
from standout._dataset import Dataset
from standout._dpca import DPCA
from standout._folds import Index
from standout._inputs import check_count, seed_from
from standout._model import Model, Summary, fit_model
from standout.errors import InputError, NotEnoughRowsError
from standout.inference.resampling import Chunk, Sample, Samples, collect_samples, in_chunks
from standout.io.source import RowSource, RowView
from standout.solvers.problem import SolveOptions, graph_of


@dataclass(frozen=True)
class FeatureStability:
    """A feature's weight in a component, and how sure it is."""

    feature: str | int
    weight: float  # by how many background sd it moves when the score moves by one target sd
    low: float
    high: float
    same_sign: float  # share of bootstrap samples in which the weight has the same sign


@dataclass(frozen=True)
class Stability:
    """How stable components are.

    Attributes
    ----------
    correlations : ndarray of shape (n_bootstrap, n_components)
        |correlation| of the scores of the target along each component and along the one that stands for it
        in each bootstrap sample; 0 where none does.
    median, low, high : ndarray of shape (n_components,)
        Median of the correlations, and ends of the percentile interval.
    angles : ndarray of shape (n_bootstrap,)
        Largest angle, in degrees, between the target's scores in all components together and those of the
        bootstrap sample: small where components only mix with each other.
    weights : ndarray of shape (n_components, n_features)
        By how many background sd a feature moves when the score moves by one target sd.
    weight_low, weight_high : ndarray of shape (n_components, n_features)
        Ends of the intervals of the weights: the weight plus and minus the root mean square deviation of the
        bootstrap weights from it, times Student's t with as many degrees of freedom as the smallest set has
        rows (groups), less one. They include the error of the background sd and are wider than the spread of the
        bootstrap weights, so they can contain zero where ``same_sign`` is 1.
    same_sign : ndarray of shape (n_components, n_features)
        Share of the bootstrap samples in which a weight has the same sign.
    level : float
        Nominal coverage of the intervals.
    names : tuple of str or None
        Feature names.
    by : "rows" or "groups"
        What was drawn anew.
    notes : tuple of str
        What one should know.
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
        """Return, for each component, the features that move most with it."""
        names = self.names if self.names is not None else range(self.weights.shape[1])
        order = np.argsort(-np.abs(self.weights), axis=1, kind="stable")[:, : check_count("count", count)]
        return [
            [
                FeatureStability(
                    names[j],
                    float(self.weights[k, j]),
                    float(self.weight_low[k, j]),
                    float(self.weight_high[k, j]),
                    float(self.same_sign[k, j]),
                )
                for j in row
                if self.weights[k, j] != 0
            ]
            for k, row in enumerate(order)
        ]

    def summary(self, count: int = 5) -> Summary:
        """Return the result in words, with the top features of each component."""
        lines = [
            f"Stability: {len(self.correlations)} bootstrap samples of {self.by}",
            f"  all components together: median angle {np.median(self.angles):.0f}°",
        ]
        for k, features in enumerate(self.top_features(count)):
            lines.append(
                f"  component {k + 1}: correlation {self.median[k]:.2f} ({self.low[k]:.2f} to {self.high[k]:.2f}), "
                f"{stable_words(self.low[k])}"
            )
            lines += [
                f"    {feature.feature!s:<20} {feature.weight:>7.2f} ({feature.low:.2f} to {feature.high:.2f}), "
                f"same sign in {100 * feature.same_sign:.0f} %"
                for feature in features
            ]
        lines.append(
            "  Intervals of weights include the error of the background sd and are wider than the spread of bootstrap "
            "weights: they can contain zero where the sign is always the same."
        )
        return Summary("\n".join([*lines, *(f"  ! {note}" for note in self.notes)]))


def stable_words(low: float) -> str:
    """Say how stable a component is, by the low end of its correlation."""
    return (
        "stable" if low >= 0.9 else "changes with what is drawn" if low >= 0.5 else "not stable: read nothing into it"
    )


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
    """Estimate how much components and their features change from sample to sample.

    Rows (groups, where given) of each set are drawn with replacement, the components found again, with the
    shrinkage of the original fit, and matched to the original ones, in whichever order they come. The weights
    of features are in background sd of the same bootstrap sample, so that their intervals include the error
    of these sd.

    Parameters
    ----------
    target : path, array-like, frame, sparse matrix or Source, of shape (n_rows, n_features)
        The target. Rows on a cluster are brought to this process.
    background : dataset, or list or dict of datasets
        The background(s), on the same features.
    n_components : int, default=2
        How many components.
    n_bootstrap : int, default=200
        How many bootstrap samples.
    groups, background_groups : array-like of shape (n_rows,), optional
        The subject of each row: subjects are then drawn as a whole. For several backgrounds a list or dict.
    level : float, default=0.95
        Nominal coverage of the intervals.
    random_state : int or None, default=None
        Seed; None is 0.
    n_jobs : int or None, default=None
        How many processes, where the work is worth more than one; None takes all cores. The result does not
        depend on it.
    **parameters
        Further parameters of :class:`standout.DPCA`, such as ``shrinkage`` or ``axes``.

    Returns
    -------
    Stability

    Examples
    --------
    >>> import numpy as np
    >>> from standout.inference import stability
    >>> rng = np.random.default_rng(0)
    >>> background = rng.normal(size=(200, 5)) * [9, 3, 1, 1, 1]
    >>> target = rng.normal(size=(150, 5)) * [9, 3, 1, 4, 1]      # the fourth varies more
    >>> found = stability(target, background, n_components=1, n_bootstrap=50)
    >>> bool(found.low[0] > 0.95)
    True
    >>> [[top.feature, top.same_sign] for top in found.top_features(1)[0]]
    [[3, 1.0]]
    """
    n_components, n_bootstrap = check_count("n_components", n_components), check_count("n_bootstrap", n_bootstrap)
    if not (isinstance(level, Real) and 0 < float(level) < 1):
        raise InputError(f"level={level!r} is not possible. Use a number between 0 and 1, for instance 0.95.")
    if parameters.get("background_label") is not None:
        raise InputError("background_label: the background is given by itself here. Leave background_label out.")
    estimator = DPCA(n_components, random_state=random_state, **parameters)
    estimator._check_parameters()
    samples = collect_samples(target, background, groups, background_groups, estimator.features, "stability")
    _check_units(samples)
    refit = _Refit.of(estimator, samples)

    def work(chunk: Chunk) -> list[_Again]:
        rng = np.random.default_rng(chunk.seed)
        return [refit.again(rng) for _ in range(chunk.start, chunk.stop)]

    again = in_chunks(work, n_bootstrap, seed_from(random_state), n_jobs, "bootstrap samples")
    return refit.gathered(again, float(level))


def _check_units(samples: Samples) -> None:
    """Refuse a set of one unit: drawn anew it is always the same."""
    for sample in samples.sets:
        if sample.n_units < 2:
            what = "group" if sample.ids else "row"
            raise NotEnoughRowsError(
                f"{sample.role}: {sample.n_units} {what}, and drawing anew needs at least 2. Give more {what}s."
            )


# Below this many units a bootstrap sample is too often one and the same.
_FEW_UNITS = 5


@dataclass(frozen=True)
class _Again:
    """The components of one bootstrap sample, matched to the original ones."""

    correlations: Array  # (k,)
    angle: float
    weights: NDArray[np.float32]  # (k, n_features): thousands of samples of wide data must fit into memory


@dataclass(frozen=True)
class _Refit:
    """The original model, and what is needed to find it again."""

    samples: Samples
    wanted: SolveOptions
    model: Model
    target: RowSource
    scores: Array  # (n_rows, k): of the target, centred

    @classmethod
    def of(cls, estimator: DPCA, samples: Samples) -> _Refit:
        """Fit the original; its shrinkage and the number of its components are kept."""
        data = [_dataset(sample, _Drawn(np.arange(sample.n_rows), sample.units)) for sample in samples.sets]
        wanted = estimator._check_parameters()
        if estimator.graph is not None:
            wanted = replace(wanted, graph=graph_of(estimator.graph, data[0].n_features, None))
        model = fit_model(data[0], {part.role: part for part in data[1:]}, wanted)
        if model.n_components == 0:
            raise InputError("nothing was found above noise, so there is nothing to follow. Use axes='ratio'.")
        # Rows that are drawn twice would pass for correlation: the intensity is that of the original.
        if model.regime == "shrunk" and wanted.shrinkage == "auto":
            wanted = replace(wanted, intensity=model.shrinkage)
        else:
            wanted = replace(wanted, shrinkage=None if model.regime != "shrunk" else model.shrinkage)
        target = data[0].rows
        assert target is not None
        wanted = replace(wanted, n_components=model.n_components)
        return cls(samples, wanted, model, target, _centred_scores(model, target))

    def again(self, rng: np.random.Generator) -> _Again:
        """Draw the units of every set anew, and match what is found to the original."""
        target, *backgrounds = [_dataset(sample, _drawn(sample, rng)) for sample in self.samples.sets]
        try:
            found = fit_model(target, {part.role: part for part in backgrounds}, self.wanted)
        except InputError:  # too few different rows for so many components
            return _Again(np.zeros(self.model.n_components), 90.0, np.zeros(self.model.patterns.shape, np.float32))
        scores = _centred_scores(found, self.target)
        relation = (_unit(self.scores).T @ _unit(scores)).clip(-1.0, 1.0)
        ours, theirs = linear_sum_assignment(-np.abs(relation))
        matched = relation[ours, theirs]
        correlations, weights = np.zeros(len(relation)), np.zeros(self.model.patterns.shape, np.float32)
        correlations[ours] = np.abs(matched)
        weights[ours] = np.where(matched < 0, -1.0, 1.0)[:, None] * _weights(found)[theirs]
        return _Again(correlations, _angle(self.scores, scores), weights)

    def gathered(self, again: list[_Again], level: float) -> Stability:
        """Put all bootstrap samples together."""
        ends = [(1 - level) / 2, (1 + level) / 2]
        correlations = np.stack([one.correlations for one in again])
        drawn = np.stack([one.weights for one in again])
        weights = _weights(self.model)
        low, high = np.quantile(correlations, ends, axis=0)
        # Percentiles of few bootstrap samples cover too rarely, and the bias of the bootstrap belongs to the error.
        error = np.sqrt(np.mean((drawn - weights) ** 2, axis=0))
        reach = stats.t.ppf(ends[1], min(sample.n_units for sample in self.samples.sets) - 1) * error
        return Stability(
            correlations=correlations,
            median=np.median(correlations, axis=0),
            low=low,
            high=high,
            angles=np.array([one.angle for one in again]),
            weights=weights,
            weight_low=weights - reach,
            weight_high=weights + reach,
            same_sign=(np.sign(drawn) == np.sign(weights)).mean(axis=0),
            level=level,
            names=self.model.names,
            by="groups" if any(sample.ids for sample in self.samples.sets) else "rows",
            notes=(*self.samples.notes, *self._notes()),
        )

    def _notes(self) -> list[str]:
        few = [
            f"the {sample.role} has only {sample.n_units} {'groups' if sample.ids else 'rows'} to draw from: so few "
            "tell little of how another sample would look. Give more of them."
            for sample in self.samples.sets
            if sample.n_units < _FEW_UNITS
        ]
        return few + self._singular()

    def _singular(self) -> list[str]:
        # Two thirds of the units, on average, are in a bootstrap sample.
        distinct = 0.632 * sum(sample.n_rows for sample in self.samples.backgrounds)
        if self.wanted.shrinkage is not None or distinct > self.model.rank:
            return []
        return [
            f"a bootstrap sample has about {distinct:.0f} different background rows for {self.model.rank} dimensions, "
            "so the exact problem has no finite answer in it, and components look less stable than they are. Use "
            "shrinkage='auto'."
        ]


@dataclass(frozen=True)
class _Drawn:
    """Rows of a set, and the unit each counts for: a unit that was drawn twice is two."""

    rows: Index
    units: Index


def _dataset(sample: Sample, drawn: _Drawn) -> Dataset:
    return Dataset(sample.role, RowView(sample.source, drawn.rows), groups=drawn.units if sample.ids else None)


def _drawn(sample: Sample, rng: np.random.Generator) -> _Drawn:
    """Return the rows of as many units as there are, drawn with replacement."""
    chosen = rng.integers(sample.n_units, size=sample.n_units)
    if not sample.ids:
        return _Drawn(chosen, chosen)
    order = np.argsort(sample.units, kind="stable")
    rows = np.split(order, np.cumsum(np.bincount(sample.units))[:-1])
    units = np.repeat(np.arange(len(chosen)), [len(rows[unit]) for unit in chosen])
    return _Drawn(np.concatenate([rows[unit] for unit in chosen]), units)


def _centred_scores(model: Model, target: Any) -> Array:
    scores = model.project(target, "target")
    return np.asarray(scores - scores.mean(axis=0))


def _unit(scores: Array) -> Array:
    length = np.sqrt(np.einsum("ij,ij->j", scores, scores))
    return np.asarray(scores / np.where(length > 0, length, 1.0))


def _angle(ours: Array, theirs: Array) -> float:
    """Return the largest principal angle between two spans of scores, in degrees."""
    if theirs.shape[1] < ours.shape[1]:
        return 90.0
    cosines = np.linalg.svd(np.linalg.qr(_unit(ours))[0].T @ np.linalg.qr(_unit(theirs))[0], compute_uv=False)
    return float(np.degrees(np.arccos(min(cosines.min(), 1.0))))


def _weights(model: Model) -> Array:
    """Return by how many background sd, of its own sample, a feature moves when the score moves by one target sd."""
    return np.asarray(model.patterns * np.sqrt(model.target_variance)[:, None] / model.scale)
