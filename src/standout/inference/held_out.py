"""The held-out ratio: components found on some rows, measured on others, which they have not seen.

Noise alone gives large ratios on the rows that components were found on, and a ratio of one on others.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from scipy import stats
from sklearn.base import clone

from standout._base import BaseContrast
from standout._blas import Array
from standout._dataset import Mixture, fill_by_training
from standout._dpca import DPCA
from standout._folds import (
    Fold,
    Index,
    Spread,
    Units,
    assigned,
    even_quotas,
    fold_notes,
    log_ratios,
    mean_over_folds,
    over_folds,
)
from standout._inputs import check_count, seed_from
from standout._model import Summary
from standout._moments import Counts
from standout.errors import InputError, NotEnoughRowsError, StandoutWarning
from standout.inference.resampling import Samples, collect_samples
from standout.io.source import RowView


@dataclass(frozen=True)
class HeldOut:
    """What components are worth on rows they were not found on.

    Attributes
    ----------
    ratios : ndarray of shape (n_components,)
        Target variance over background variance on held-out rows: the geometric mean over the folds, each
        corrected for the bias of its logarithm (see the notes of :func:`held_out_ratio`).
    fold_ratios : ndarray of shape (n_folds, n_components)
        The same, fold by fold.
    training_ratios : ndarray of shape (n_folds, n_components)
        The ratios on the rows that the components were found on.
    low, high : ndarray of shape (n_components,)
        Ends of the interval; NaN where there is none.
    level : float
        Its nominal coverage.
    interval : str
        What the interval is, and what it rests on.
    units : tuple of int
        How many groups (rows, where there are no groups) the target and each background have.
    by : "rows" or "groups"
        What was held out as a whole.
    estimators : tuple of estimators
        The fitted estimator of each fold.
    notes : tuple of str
        What one should know.
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
        """Return the result in words."""
        folds = len(self.fold_ratios)
        split = f"{folds} folds" if folds > 1 else "one split"
        counted = f"{self.units[0]} of the target, {' + '.join(map(str, self.units[1:]))} of the background"
        percent = f"{100 * self.level:g} % interval"
        lines = [
            "Held-out ratio: components found on some rows, measured on others",
            f"  split       {split} by {self.by}: {counted}",
            f"  interval    {self.interval}",
            "",
            f"  {'component':>9}  {'training':>9}  {'held out':>9}  {percent:>19}",
        ]
        for number, (inside, ratio) in enumerate(zip(_geometric(self.training_ratios), self.ratios, strict=True)):
            ends = f"{self.low[number]:.3g} to {self.high[number]:.3g}"
            lines.append(f"  {number + 1:>9}  {inside:>9.4g}  {ratio:>9.4g}  {ends:>19}")
        return Summary("\n".join([*lines, "", f"  {self._verdict()}", *(f"  ! {note}" for note in self.notes)]))

    def _verdict(self) -> str:
        if np.isnan(self.ratios).all():
            return "The held-out ratio is undefined."
        count = int((self.low > 1).sum())
        if count == 0:
            return "No component is clearly above one on rows it has not seen: nothing specific to the target is shown."
        told = f"{count} of {len(self.ratios)} components {'is' if count == 1 else 'are'}"
        return f"{told if len(self.ratios) > 1 else 'The component is'} above one on rows that were not used."


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
    """Measure components on rows they were not found on.

    Parameters
    ----------
    target : path, array-like, frame, sparse matrix or Source, of shape (n_rows, n_features)
        The target. Rows on a cluster are brought to this process.
    background : dataset, or list or dict of datasets
        The background(s), on the same features.
    estimator : DPCA, CPCA or KernelDPCA, optional
        What finds the components; ``DPCA(n_components)`` by default. It is copied, not changed.
    n_components : int, default=1
        How many components, where no estimator is given.
    folds : int, default=5
        Every row is held out once, in one of so many folds; fewer where there are not two independent units
        for each.
    split : float in (0, 1), optional
        Instead of folds, one split: the share of the rows that are held out.
    groups, background_groups : array-like of shape (n_rows,), optional
        The subject of each row: no subject is on both sides of a split. For several backgrounds a list or
        dict.
    features : "all" or "common", default="all"
        What to do when target and background have other feature names.
    random_state : int or None, default=None
        Seed of the split; None is 0.
    level : float, default=0.95
        Nominal coverage of the interval.

    Returns
    -------
    HeldOut

    Notes
    -----
    Variances are about the mean of the held-out rows and unbiased: within groups plus between groups, by a
    one-way analysis of variance. The logarithm of an unbiased variance is too small on average, by
    ln(ν/2) − ψ(ν/2) for ν degrees of freedom, and folds of a small background have few of them. Each fold's
    ratio is therefore divided by the ratio expected of Gaussian rows whose population variances are equal,
    so that the log ratio of noise is zero on average. With groups, that expectation depends on how alike the
    rows of a group are; it is computed from the variances within and between groups, averaged over folds.

    For one split the interval is exact for Gaussian scores of independent rows: given the components, the
    uncorrected ratio is the true one times an F variate. With groups it counts each as one row, which is
    right when the rows of a group are copies of each other and too wide otherwise. Over folds, training sets
    overlap, so that the usual t interval of the mean log ratio would be too narrow; the one given is widened
    as Nadeau and Bengio (2003) proposed.

    A fold in which neither the held-out target nor the held-out background varies has no ratio and is left out.
    Where only the background does not vary, the ratio is infinite, and the lower end of the interval is that of the
    finite folds (zero where fewer than two are finite). The notes count these folds.

    Examples
    --------
    >>> import numpy as np
    >>> from standout.inference import held_out_ratio
    >>> rng = np.random.default_rng(0)
    >>> noise, other = rng.normal(size=(60, 30)), rng.normal(size=(50, 30))
    >>> found = held_out_ratio(noise, other)
    >>> bool(found.training_ratios.min() > 2 and found.low[0] < 1 < found.high[0])
    True
    """
    estimator = _checked(estimator, n_components)
    if not (isinstance(level, Real) and 0 < float(level) < 1):
        raise InputError(f"level={level!r} is not possible. Use a number between 0 and 1, for instance 0.95.")
    samples = collect_samples(target, background, groups, background_groups, features, "held_out_ratio")
    rng = np.random.default_rng(seed_from(random_state))
    sides = _folds(samples, check_count("folds", folds), rng) if split is None else _one_split(samples, split, rng)
    measured = [_measured(estimator, samples, side) for side in sides]
    kept = min(len(fold.fold.unit) for fold in measured)
    if kept == 0:
        raise InputError("some fold found no component above noise. Give a number of components, and axes='ratio'.")
    logs = log_ratios([one.fold for one in measured])
    by = "groups" if any(sample.ids for sample in samples.sets) else "rows"
    ends = _over_folds(logs, float(level)) if split is None else _one_interval(measured[0], kept, float(level), by)
    fewer = split is None and len(sides) < folds
    return HeldOut(
        ratios=np.exp(mean_over_folds(logs)),
        fold_ratios=np.exp(logs),
        training_ratios=np.stack([fold.fitted.ratios_[:kept] for fold in measured]),
        low=ends.low,
        high=ends.high,
        level=float(level),
        interval=ends.text,
        units=tuple(sample.n_units for sample in samples.sets),
        by=by,
        estimators=tuple(fold.fitted for fold in measured),
        notes=(*samples.notes, *([_fewer_folds(len(sides), folds)] if fewer else []), *fold_notes(logs)),
    )


def _geometric(ratios: Array) -> Array:
    """Return the geometric mean over folds."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.exp(np.log(ratios).mean(axis=0)))


def _fewer_folds(count: int, wanted: int) -> str:
    return (
        f"{count} folds instead of {wanted}: a fold needs at least 2 independent units of each set. Give more of them "
        "for more folds."
    )


def _checked(estimator: Any, n_components: int) -> BaseContrast:
    if estimator is None:
        return DPCA(check_count("n_components", n_components))
    if not isinstance(estimator, BaseContrast):
        raise InputError(
            f"estimator: a {type(estimator).__name__} does not compare target and background. Use DPCA, CPCA or "
            "KernelDPCA."
        )
    if estimator.background_label is not None:
        raise InputError(
            f"estimator: it has background_label={estimator.background_label!r}, and the background is given by itself "
            "here. Use an estimator without it."
        )
    return estimator


@dataclass(frozen=True)
class _Side:
    """The rows of each set that are held out."""

    held: tuple[Index, ...]

    def rest(self, samples: Samples) -> list[Index]:
        """Return the rows of each set that are trained on."""
        return [np.setdiff1d(np.arange(part.n_rows), held) for part, held in zip(samples.sets, self.held, strict=True)]


def _folds(samples: Samples, folds: int, rng: np.random.Generator) -> list[_Side]:
    least = min(samples.sets, key=lambda sample: sample.n_units)
    count = min(folds, least.n_units // 2)
    if count < 2:
        raise NotEnoughRowsError(
            f"{least.role}: {least.counted()} cannot be split, because two folds need at least 4 independent units "
            "(groups where given, else rows). Give more of them."
        )
    fold_of = assigned(_units(samples), even_quotas(_units(samples), count), rng)
    return [_side(samples, fold_of, fold) for fold in range(count)]


def _one_split(samples: Samples, split: Any, rng: np.random.Generator) -> list[_Side]:
    if not (isinstance(split, Real) and 0 < float(split) < 1):
        raise InputError(f"split={split!r} is not possible. Use the share that is held out, between 0 and 1.")
    quotas = []
    for sample in samples.sets:
        held = round(float(split) * sample.n_units)
        if min(held, sample.n_units - held) < 2:
            raise NotEnoughRowsError(
                f"{sample.role}: split={split} of {sample.counted()} leaves a side with fewer than 2 independent "
                "units. Give more of them, or use a split nearer to 0.5."
            )
        quotas.append([held, sample.n_units - held])
    return [_side(samples, assigned(_units(samples), quotas, rng), 0)]


def _units(samples: Samples) -> list[Units]:
    return [Units(sample.units, sample.ids) for sample in samples.sets]


def _side(samples: Samples, fold_of: list[Index], fold: int) -> _Side:
    held = []
    for sample, own in zip(samples.sets, fold_of, strict=True):
        inside = int((own == fold).sum())
        if min(inside, len(own) - inside) < 2:
            raise NotEnoughRowsError(
                f"{sample.role}: {inside} of {len(own)} independent units in a fold, and both sides of a split need 2: "
                "subjects that are in several sets are kept together. Use fewer folds."
            )
        held.append(np.flatnonzero((own == fold)[sample.units]))
    return _Side(tuple(held))


@dataclass(frozen=True)
class _Measured:
    """What one fold showed."""

    fold: Fold
    freedom: tuple[float, float]  # degrees of freedom of the two variances, in independent units
    fitted: BaseContrast


def _measured(estimator: BaseContrast, samples: Samples, side: _Side) -> _Measured:
    """Fit on the rows that are left, and measure on those held out."""
    training, held_out = fill_by_training(*(
        [RowView(sample.source, index) for sample, index in zip(samples.sets, rows, strict=True)]
        for rows in (side.rest(samples), side.held)
    ))  # fmt: skip
    target, *backgrounds = training
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StandoutWarning)  # of every fold the same
        fitted = clone(estimator).fit(target, background=samples.as_background(backgrounds))
    scores = [fitted.transform(rows) for rows in held_out]
    held = [sample.units[index] for sample, index in zip(samples.sets, side.held, strict=True)]
    spread = [Spread.of(part, units) for part, units in zip(scores, held, strict=True)]
    counts = [Counts(len(units), len(units), len(units), len(np.unique(units))) for units in held]
    mixture = Mixture.of(counts[1:], fitted.mix_)
    shift = None
    if fitted.centering != "own":
        shift = (spread[0].mean - mixture.mixed_means([part.mean for part in spread[1:]])) ** 2
    fold = Fold(spread[0], tuple(spread[1:]), mixture.shares, np.asarray(fitted.target_variance_), shift)
    return _Measured(fold, (counts[0].units - 1, mixture.units - 1), fitted)


@dataclass(frozen=True)
class _Interval:
    low: Array
    high: Array
    text: str


def _one_interval(measured: _Measured, kept: int, level: float, by: str) -> _Interval:
    """Given the components, the ratio is the true one times an F variate."""
    if measured.fitted.centering != "own":
        nothing = np.full(kept, math.nan)
        return _Interval(nothing, nothing, "none: with centering='background' the ratio is no ratio of variances")
    high, low = stats.f.ppf([(1 - level) / 2, (1 + level) / 2], *measured.freedom)
    text = "by the F distribution: exact for Gaussian scores of independent rows"
    if by == "groups":
        text = "by the F distribution, each group counted as one row: too wide where rows of a group differ"
    ratios = measured.fold.ratios[:kept]
    return _Interval(ratios / low, ratios / high, text)


def _over_folds(logs: Array, level: float) -> _Interval:
    found = over_folds(logs, level)
    text = "t over folds, widened because training sets overlap (Nadeau and Bengio)"
    return _Interval(np.exp(found.low), np.exp(found.high), text)
