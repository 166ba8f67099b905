"""Held-out ratio: components are fitted on some rows and their ratios measured on others.

On the rows that components were fitted on, noise alone gives large ratios; on other rows it gives a ratio of one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from scipy import stats
from sklearn.base import clone

from standout import _folds
from standout._base import BaseContrast
from standout._blas import Array
from standout._dataset import Mixture, fill_by_training
from standout._display import Summary, Table, display, interval
from standout._dpca import DPCA
from standout._folds import Fold, Index, Spread
from standout._inputs import check_count, seed_from
from standout._moments import Counts
from standout.errors import InputError, NotEnoughRowsError, without_warnings
from standout.inference.resampling import Samples, as_background, check_level, collect_samples
from standout.io.source import RowView


@dataclass(frozen=True)
class HeldOut:
    """Ratios of components on held-out rows.

    Attributes
    ----------
    ratios : ndarray of shape (n_components,)
        Target variance over background variance on held-out rows: the geometric mean over folds, each corrected for
        the bias of its logarithm (see the notes of :func:`held_out_ratio`).
    fold_ratios, training_ratios : ndarray of shape (n_folds, n_components)
        The same, fold by fold, and the ratios on the rows that the components were fitted on.
    low, high : ndarray of shape (n_components,)
        Ends of the interval; NaN if there is none.
    level, interval : float, str
        Nominal coverage of the interval, and its method and assumptions.
    units : tuple of int
        Number of groups (rows, without groups) of the target and of each background.
    by : "rows" or "groups"
        What was held out as a whole.
    estimators : tuple of estimators
        The fitted estimator of each fold.
    notes : tuple of str
        Caveats.

    See Also
    --------
    standout.held_out_ratio, standout.compare

    Examples
    --------
    >>> from standout import datasets, held_out_ratio
    >>> target, background = datasets.FactorModel().sample(100, 200)
    >>> found = held_out_ratio(target, background)
    >>> found.ratios.round(1), found.low.round(1), found.high.round(1)
    (array([4.7]), array([2.7]), array([8.1]))
    """

    ratios: Array
    fold_ratios: Array
    training_ratios: Array
    low: Array
    high: Array
    level: float
    interval: str
    units: tuple[int, ...]
    by: str
    estimators: tuple[BaseContrast, ...]
    notes: tuple[str, ...]

    def summary(self) -> Summary:
        """Return the result as text."""
        n_folds = len(self.fold_ratios)
        split = f"{n_folds} folds" if n_folds > 1 else "one split"
        sizes = f"{self.units[0]} in the target, {' + '.join(map(str, self.units[1:]))} in the background"
        header = ["component", "training ratio", "held-out ratio", f"{100 * self.level:g} % interval"]
        names, training = self.estimators[0].get_feature_names_out(), stats.gmean(self.training_ratios, axis=0)
        intervals = map(interval, self.low, self.high)
        return display(
            "Held-out ratio: components fitted on some rows, measured on others",
            Table(header, list(zip(names, training, self.ratios, intervals, strict=False))),
            facts=[
                ("split", f"{split} by {self.by}: {sizes}"),
                ("interval", self.interval),
                ("expected", "a held-out ratio of one for noise alone"),
            ],
            notes=self.notes,
        )

    def _repr_html_(self) -> str | None:
        return self.summary().html


def held_out_ratio(
    target: Any,
    background: Any,
    *,
    estimator: Any = None,
    n_components: int = 1,
    folds: int = 5,
    split: float | None = None,
    groups: Any = None,
    background_groups: Any = None,
    features: str = "all",
    random_state: Any = None,
    level: float = 0.95,
) -> HeldOut:
    """Measure the ratios of components on rows that they were not fitted on.

    Parameters
    ----------
    target, background, features, random_state
        As in :func:`standout.permutation_test`.
    estimator : DPCA, CPCA or KernelDPCA, optional
        The estimator of the components; ``DPCA(n_components)`` by default. It is cloned, not changed.
    n_components : int, default=1
        Number of components, if no estimator is given.
    folds : int, default=5
        Number of folds; every row is held out once. There are fewer folds if a set has less than two independent
        units for each.
    split : float in (0, 1), optional
        Share of the rows to hold out in a single split, instead of folds.
    groups, background_groups : array-like of shape (n_rows,), optional
        The subject of each row; no subject is on both sides of a split. For several backgrounds a list or dict.
    level : float, default=0.95
        Nominal coverage of the interval.

    Returns
    -------
    HeldOut

    See Also
    --------
    standout.assess, standout.permutation_test, standout.stability, standout.compare

    Notes
    -----
    Variances are unbiased, within groups plus between groups, and taken about the mean of the held-out rows. The
    logarithm of an unbiased variance is too small on average. Each fold's ratio is therefore divided by the ratio
    expected of Gaussian rows with equal population variances, so that the log ratio of noise is zero on average.

    For one split the interval is exact for Gaussian scores of independent rows. With groups, each counts as one row,
    which is too wide unless the rows of a group are copies of each other. Over folds, training sets overlap, so that
    the t interval of the mean log ratio is widened as proposed by Nadeau and Bengio (2003).

    A fold in which neither the held-out target nor the held-out background varies is left out. If only the background
    does not vary, the ratio is infinite, and the lower end of the interval is that of the finite folds (zero if fewer
    than two are finite). Notes count these folds.

    Examples
    --------
    >>> import numpy as np
    >>> from standout import held_out_ratio
    >>> noise = np.random.default_rng(0).normal(size=(2, 60, 30))
    >>> found = held_out_ratio(*noise)
    >>> bool(found.training_ratios.min() > 2 and found.low[0] < 1 < found.high[0])
    True
    """
    if estimator is None:
        estimator = DPCA(check_count("n_components", n_components))
    if not isinstance(estimator, BaseContrast):
        raise InputError(f"estimator: unsupported type {type(estimator).__name__}. Use DPCA, CPCA or KernelDPCA.")
    if estimator.background_label is not None:
        label = f"background_label={estimator.background_label!r}"
        raise InputError(f"estimator: {label} and background= cannot be combined. Use one.")
    level = check_level(level)
    samples = collect_samples(target, background, groups, background_groups, features, "held_out_ratio")
    sides = _split(samples, check_count("folds", folds), split, np.random.default_rng(seed_from(random_state)))
    notes = list(samples.notes)
    if split is None and len(sides) < folds:
        need = "a fold needs at least 2 independent units of each set. Give more of them for more folds."
        notes.append(f"{len(sides)} folds instead of {folds}: {need}")
    fitted, measured, freedom = zip(*(_fit_and_measure(estimator, samples, held) for held in sides), strict=True)
    n_components = min(len(fold.unit) for fold in measured)
    if n_components == 0:
        raise InputError("no component above noise in some fold. Give a number of components, and `axes='ratio'`.")
    logs = _folds.log_ratios(measured)
    if split is None:
        low, high = np.exp(_folds.over_folds(logs, level))
        interval = "t over folds, widened because training sets overlap (Nadeau and Bengio)"
    elif fitted[0].centering != "own":
        low = high = np.full(n_components, math.nan)
        interval = "none: with `centering='background'` the ratio is not a ratio of variances"
    else:
        # Given the components, the uncorrected ratio is the true one times an F variate.
        quantiles = stats.f.ppf([(1 - level) / 2, (1 + level) / 2], *freedom[0])
        high, low = (measured[0].ratios[:n_components] / quantile for quantile in quantiles)
        interval = "F distribution: exact for Gaussian scores of independent rows"
        if samples.unit_kind == "groups":
            interval = "F distribution, each group counted as one row: too wide if rows of a group differ"
    return HeldOut(
        ratios=np.exp(_folds.mean_over_folds(logs)),
        fold_ratios=np.exp(logs),
        training_ratios=np.stack([one.ratios_[:n_components] for one in fitted]),
        low=low,
        high=high,
        level=level,
        interval=interval,
        units=tuple(sample.units.count for sample in samples.sets),
        by=samples.unit_kind,
        estimators=tuple(fitted),
        notes=(*notes, *_folds.fold_notes(logs, fitted[0].get_feature_names_out())),
    )


def _split(samples: Samples, folds: int, split: Any, rng: np.random.Generator) -> list[list[Index]]:
    """Return the held-out rows of each set, for every fold or for one split."""
    units = [sample.units for sample in samples.sets]
    if split is None:
        smallest = min(samples.sets, key=lambda sample: sample.units.count)
        folds = min(folds, smallest.units.count // 2)
        if folds < 2:
            raise NotEnoughRowsError(
                f"{smallest.role}: {smallest.size_text()} cannot be split, because two folds need at least 4 "
                "independent units (groups where given, else rows). Give more of them."
            )
        quotas = _folds.even_quotas(units, folds)
    elif isinstance(split, Real) and 0 < float(split) < 1:
        held = [round(float(split) * own.count) for own in units]
        folds, quotas = 1, [[count, own.count - count] for count, own in zip(held, units, strict=True)]
        for sample, quota in zip(samples.sets, quotas, strict=True):
            if min(quota) < 2:
                raise NotEnoughRowsError(
                    f"{sample.role}: split={split} of {sample.size_text()} leaves a side with fewer than 2 independent "
                    "units. Give more of them, or use a split nearer to 0.5."
                )
    else:
        raise InputError(f"split={split!r} is not possible. Use the share to hold out, between 0 and 1.")
    sides: list[list[Index]] = [[] for _ in range(folds)]
    for sample, fold_of in zip(samples.sets, _folds.assigned(units, quotas, rng), strict=True):
        for fold, side in enumerate(sides):
            out = fold_of == fold
            if min(out.sum(), (~out).sum()) < 2:
                raise NotEnoughRowsError(
                    f"{sample.role}: {out.sum()} of {len(out)} independent units in a fold, and both sides of a split "
                    "need 2: subjects that occur in several sets are held out together. Use fewer folds."
                )
            side.append(np.flatnonzero(out[sample.units.rows]))
    return sides


def _fit_and_measure(
    estimator: BaseContrast, samples: Samples, held: list[Index]
) -> tuple[BaseContrast, Fold, tuple[float, float]]:
    """Return the estimator fitted without the held-out rows, their variances, and the degrees of freedom of these."""
    sets = list(zip(samples.sets, held, strict=True))
    kept = [RowView(sample.source, np.delete(np.arange(sample.n_rows), index)) for sample, index in sets]
    out = [RowView(sample.source, index) for sample, index in sets]
    (target, *backgrounds), held_out = fill_by_training(kept, out)
    for part in (target, *backgrounds):
        part.is_checked = True
    groups: dict[str, Any] = {}
    if samples.unit_kind == "groups":
        own, *others = (np.delete(sample.units.rows, index) for sample, index in sets)
        groups = {"groups": own, "background_groups": as_background(samples.keys, others)}
    with without_warnings():  # every fold would repeat them
        fitted = clone(estimator).fit(target, background=as_background(samples.keys, backgrounds), **groups)
    units = [sample.units.rows[index] for sample, index in sets]
    spread, *spreads = (Spread.of(fitted._scores(rows), of) for rows, of in zip(held_out, units, strict=True))
    counts = [Counts(len(of), len(of), len(of), len(np.unique(of))) for of in units]
    mixture = Mixture.of(counts[1:], fitted.mix_)
    shift = None
    if fitted.centering != "own":
        shift = (spread.mean - mixture.mixed_means([other.mean for other in spreads])) ** 2
    fold = Fold(spread, tuple(spreads), mixture.shares, np.asarray(fitted.target_variance_), shift)
    return fitted, fold, (counts[0].units - 1, mixture.units - 1)
