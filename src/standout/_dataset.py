"""Datasets as passed to the solvers, mixtures of backgrounds, and joint imputation of missing values.

A dataset is either rows with weights and groups, or moments only. Several backgrounds are combined as a mixture, in
which each keeps its own mean and moments and has a share. Missing values of target and backgrounds are imputed
together, by one model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from standout._blas import Array
from standout._moments import Counts, Moments
from standout._spectrum import critical_value
from standout.errors import InputError, listed
from standout.io.memory import as_ids, at_file, check_weights, distinct_groups
from standout.io.missing import Complete, Fill, FilledRows, Observed, estimate, filled_by, raw_blocks, raw_rows
from standout.io.read import open_data
from standout.io.source import ArraySource, RowSource, RowView, Source, block_rows_of, select_columns

# Target and background are imputed with separate variances along directions whose ratio has a p-value below this. It is
# below the level of the tests, which already reject in such a case, so their rejection rate does not change.
_CLEARLY = 0.01
# Numbers of iterations if each is a pass over a file.
_PASSES = {"burn_in": 6, "average": 4}


@dataclass(eq=False)
class Dataset:
    """One dataset: rows with weights and groups, or moments only.

    ``role`` is its name in messages. ``summed`` are its moments: given, or those of the rows once they are computed.
    """

    role: str
    source: Source | None = None
    given: Moments | None = None
    weights: ArrayLike | None = None
    groups: Sequence[Hashable] | NDArray[Any] | None = None

    def __post_init__(self) -> None:
        data: Any = self.given if self.source is None else self.source
        self.names, self.n_features, self.summed = data.names, data.n_features, self.given
        # Rows that can be read more than once.
        self.rows = self.source if isinstance(self.source, RowSource) else None
        # Whether there are missing values to be imputed by random draws.
        self.is_incomplete = self.source is not None and self.source.is_incomplete

    @classmethod
    def of(cls, role: str, data: Any, weights: ArrayLike | None = None, groups: Any = None) -> Dataset:
        """Create a dataset from rows in any form, or from moments."""
        if type(data) is np.ndarray and data.ndim == 2 and data.dtype.kind == "f" and data.size:
            return cls(role, ArraySource(data), weights=weights, groups=groups)  # the common case
        if not isinstance(data, Moments):
            source = open_data(data, role)
            if source.given is None:
                return cls(role, source, weights=weights, groups=groups)
            data = source.given
        if weights is not None or groups is not None:
            raise InputError(
                f"{role}: moments already hold their weights and groups. Give these to Moments.of instead."
            )
        return cls(role, given=data)

    @property
    def moments(self) -> Moments:
        """The moments: as given, or computed in one pass over the rows."""
        if self.summed is None:
            assert self.source is not None
            self.summed = self.source.moments(self.weights, self.groups, names=self.names, role=self.role)
        return self.summed

    @cached_property
    def row_weights(self) -> Array:
        """The weight of each row (ones by default)."""
        assert self.rows is not None and self.rows.n_rows is not None
        if self.weights is None:
            return np.ones(self.rows.n_rows)
        return check_weights(self.weights, self.rows.n_rows, self.role)

    @property
    def group_ids(self) -> Any:
        """The groups of the rows, as given or from their source; None without groups."""
        return self.groups if self.groups is not None or self.source is None else self.source.groups

    @cached_property
    def counts(self) -> Counts:
        """The counts of the data; for rows in memory they need no pass over the rows."""
        if self.rows is None:
            return self.moments.counts
        groups = self.group_ids
        if self.weights is None and groups is None:
            n_rows = self.rows.n_rows or 0
            return Counts(n_rows, n_rows, n_rows, n_rows)
        weights = self.row_weights
        n_rows = int(np.count_nonzero(weights))
        total = float(weights.sum())
        effective = total**2 / float((weights * weights).sum())
        if groups is None:
            return Counts(n_rows, total, effective, effective)
        ids = distinct_groups(groups, self.weights, len(weights), self.role)
        return Counts(n_rows, total, effective, float(len(ids)))

    def counted(self) -> Dataset:
        """Return the dataset without rows of weight zero."""
        unweighted = self.weights is None or self.rows is None or self.row_weights.all()
        return self if unweighted else self.take(np.flatnonzero(self.row_weights))

    def take(self, index: NDArray[np.intp]) -> Dataset:
        """Return the rows at ``index``."""
        assert self.rows is not None
        weights = None if self.weights is None else self.row_weights[index]
        groups = None if self.groups is None else as_ids(self.groups)[index]
        return replace(self, source=RowView(self.rows, index), weights=weights, groups=groups)

    def select(self, index: NDArray[np.intp]) -> Dataset:
        """Return the dataset with the features at ``index``, in that order."""
        if self.source is not None:
            return replace(self, source=select_columns(self.source, index))
        assert self.given is not None
        return replace(self, given=self.given.select(index))


Mix = str | ArrayLike | Mapping[Any, float]


@dataclass(frozen=True)
class Mixture:
    """The shares of the backgrounds, and the degrees of freedom of the mixture.

    A weighted sum of covariances with νₖ degrees of freedom each has 1/Σ(ωₖ²/νₖ) degrees of freedom, which
    is n − K for K pooled backgrounds.
    """

    shares: Array
    rows: float  # rows minus one for the mean of each background
    effective: float  # degrees of freedom in effective rows
    units: float  # independent units, as if there were one background

    @classmethod
    def of(cls, counts: Sequence[Counts], mix: Mix, names: Sequence[str] = ()) -> Mixture:
        """Compute the shares: "pooled" by weight, "equal", or as given (a dict is keyed by background name)."""
        if isinstance(mix, str):
            shares = np.array([count.weight if mix == "pooled" else 1.0 for count in counts], dtype=np.float64)
            shares /= shares.sum()
        else:
            shares = _checked_shares(mix, names, len(counts))
        used = [(share, count) for share, count in zip(shares.tolist(), counts, strict=True) if share > 0]
        effective, units = (
            1 / sum(share**2 * (1 / (rows - 1)) if rows > 1 else math.inf for share, rows in parts)
            for parts in ([(share, c.effective) for share, c in used], [(share, c.units) for share, c in used])
        )
        return cls(shares, float(sum(count.rows - 1 for _, count in used)), effective, 1 + units)

    def covariance(self, parts: Sequence[Moments]) -> Array:
        """Return the mixed covariance; each background is centred at its own mean."""
        total: Array = parts[0].scatter * (self.shares[0] / parts[0].weight)
        for share, part in zip(self.shares[1:], parts[1:], strict=True):
            total += part.scatter * (share / part.weight)
        return total

    def mixed(self, rows: Sequence[Array]) -> Array:
        """Return the weighted average of one non-negative array per background (variances, products)."""
        return np.asarray(sum(share * row for share, row in zip(self.shares, rows, strict=True)))

    def mixed_means(self, means: Sequence[Array] | Array) -> Array:
        """Return the weighted average of the background means: exactly c if every mean is c.

        Shares sum to one only up to rounding, so ``mixed`` may be off in the last digit, and a feature that is constant
        in all datasets would appear to be shifted. Hence m₀ + Σ ωₖ (mₖ − m₀), where m₀ has the largest share.
        """
        first = means[int(np.argmax(self.shares))]
        return np.asarray(first + sum(share * (mean - first) for share, mean in zip(self.shares, means, strict=True)))


def _checked_shares(mix: ArrayLike | Mapping[Any, float], names: Sequence[str], count: int) -> Array:
    """Return shares as given, in order or by background name, of which each ends with the key given by the user."""
    if isinstance(mix, Mapping):
        known = {f"background {key!r}": share for key, share in mix.items()}
        if set(known) != set(names):
            raise InputError(
                f"mix: shares for {listed(list(known))}, and the backgrounds are {listed(list(names))}. Give one share "
                "for each background, under its name."
            )
        mix = [known[name] for name in names]
    given = np.asarray(mix)
    if given.dtype.kind not in "fiu":
        raise InputError(f"`mix={mix!r}` is not possible. Use 'pooled', 'equal' or one number for each background.")
    shares = given.astype(np.float64)
    if shares.shape != (count,):
        raise InputError(f"mix: {shares.size} shares for {count} backgrounds. Give one share for each background.")
    if not np.isfinite(shares).all() or (shares < 0).any() or shares.sum() <= 0:
        raise InputError(
            f"mix: shares {shares.tolist()} are not possible. Give finite shares, none negative and not all zero."
        )
    return np.asarray(shares / shares.sum())


def fill_together(datasets: Sequence[Dataset]) -> list[Dataset]:
    """Return the datasets, target first, with missing values drawn from one model, or at the mean of each dataset."""
    fills = _rules(datasets, compared=len(datasets) > 1 and datasets[0].role == "target")
    return [
        replace(data, source=filled_by(data.source, fill)) if data.is_incomplete and fill is not None else data
        for data, fill in zip(datasets, fills, strict=True)
    ]


def fill_by_training(training: Sequence[Any], held_out: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Impute training and held-out rows, target first, by a model or the means of the training rows."""
    if not any(source.is_incomplete for source in (*training, *held_out)):
        return list(training), list(held_out)
    fills = _rules([Dataset("training rows", source) for source in training], compared=True, every=True)
    parts: list[list[Any]] = []
    for sources, step in ((training, -1), (held_out, -2)):  # held-out rows get independent draws
        parts.append([])
        for source, fill in zip(sources, fills, strict=True):
            assert fill is not None
            seeded = replace(fill, seed=(fill.seed[0], step % 2**32))
            raw = raw_rows(source) if source.is_incomplete else None
            parts[-1].append(source if raw is None else FilledRows(seeded.rows(raw), source))
    return parts[0], parts[1]


def _rules(given: Sequence[Dataset], compared: bool, every: bool = False) -> list[Fill | None]:
    """Return the imputation rule of each dataset: its means if they were requested, otherwise draws.

    The rule is None if nothing is missing, unless ``every`` is set.
    """
    means = [data.source is not None and data.source.imputes_means for data in given]
    drawn = any(data.is_incomplete and not mean for data, mean in zip(given, means, strict=True))
    fills: list[Fill | None] = [None] * len(given)
    if drawn or not any(means):
        at_hand = all(data.rows is not None for data in given)
        n_rows = sum(data.source.n_rows or 0 for data in given if data.source is not None)
        every = every or (at_hand and given[0].n_features > n_rows)  # the model is estimated from rows, not moments
        sets = [_observed(data, every, place) for place, data in enumerate(given)]
        compare = _comparison(given, [one.n_rows for one in sets]) if compared else None
        streamed = any(data.is_incomplete and data.rows is None for data in given)
        fills = estimate(sets, compare, **(_PASSES if streamed else {}))
    for place, data in enumerate(given):
        if means[place]:
            found = _observed(data, True, 0)
            assert isinstance(found, Observed)
            fills[place] = Fill.at(found.mean)
    return fills


def _observed(data: Dataset, every: bool, place: int) -> Observed | Complete:
    source: Any = data.source
    if not data.is_incomplete and not (every and data.rows is not None):
        moments = data.moments
        return Complete(moments.covariance(), moments.variance(), moments.n_effective)
    weights = None if data.weights is None else check_weights(data.weights, source.n_rows, data.role)
    if not data.is_incomplete:
        return Observed(lambda: source.blocks(block_rows_of(source)), data.n_features, place, weights)
    role = at_file(source, data.role)
    return Observed(lambda: raw_blocks(source), data.n_features, place, weights).checked(role, data.names)


def _comparison(
    given: Sequence[Dataset], n_rows: Sequence[float]
) -> Callable[[Sequence[Array]], list[Array] | None] | None:
    """Return a function that finds the directions along which target and background differ significantly.

    With a single covariance, draws for the background would include part of the target-specific variance, which would
    reduce significant ratios. Target and background covariance are T = Σ tᵢ pᵢpᵢᵀ and B = Σ bᵢ pᵢpᵢᵀ, and the pooled
    covariance is P = Σ pᵢpᵢᵀ; where tᵢ/bᵢ is significant, tᵢ and bᵢ replace 1.
    """
    units = [
        rows if data.group_ids is None else float(len(set(np.asarray(data.group_ids).tolist())))
        for data, rows in zip(given, n_rows, strict=True)
    ]
    critical = critical_value(given[0].n_features, units[0], sum(units[1:]), level=_CLEARLY)
    if math.isnan(critical):
        return None
    own = n_rows[0] / sum(n_rows)

    def compare(covariances: Sequence[Array]) -> list[Array] | None:
        others = sum(rows * part for rows, part in zip(n_rows[1:], covariances[1:], strict=True)) / sum(n_rows[1:])
        pooled = own * covariances[0] + (1 - own) * others
        scale = np.sqrt(np.where(np.diagonal(pooled) > 0, np.diagonal(pooled), 1.0))
        values, whitening = linalg.eigh(pooled / np.outer(scale, scale))
        varies = values > 1e-10  # features may be linearly dependent
        whitening = whitening[:, varies] / np.sqrt(values[varies]) / scale[:, None]
        target, vectors = linalg.eigh(whitening.T @ covariances[0] @ whitening)
        vectors = whitening @ vectors
        background = np.maximum((1 - own * target) / (1 - own), 1e-12)
        ratios = target / background
        clear = ratios > critical
        if not clear.any():
            return None
        patterns = pooled @ vectors[:, clear]
        own_target, own_background = (
            pooled + (patterns * (variance[clear] - 1)) @ patterns.T for variance in (target, background)
        )
        return [own_target, *[own_background] * (len(covariances) - 1)]

    return compare
