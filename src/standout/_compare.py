"""Several methods on the same data, side by side: PCA, contrastive PCA, discriminative PCA."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from standout._base import as_given, needed
from standout._blas import Array
from standout._cpca import CPCA
from standout._dataset import Dataset
from standout._dpca import DPCA
from standout._inputs import FitArguments, match_features, parse_inputs
from standout._moments import Moments
from standout.errors import InputError, RowsNeededError, StandoutWarning
from standout.io.read import open_data
from standout.io.source import Source, block_rows, collect_values

# Silhouettes compare all pairs of rows: a sample of this size is enough and stays quick.
_SAMPLE = 2000


@dataclass(frozen=True)
class Comparison:
    """One method's view: the fitted estimator and what its components hold."""

    name: str
    estimator: Any
    ratios: Array  # target over background variance along each component, as measured: against nothing shrunk
    share: float  # of the target's variance that the components explain
    silhouette: float  # of the labels in the scores; NaN without labels


def compare(
    target: Any,
    background: Any,
    *,
    n_components: int = 2,
    labels: Sequence[Any] | ArrayLike | None = None,
    shrinkage: str | float | None = "auto",
    mix: str | ArrayLike = "pooled",
    groups: Any = None,
    background_groups: Any = None,
    features: str = "all",
    n_representatives: int = 4,
) -> list[Comparison]:
    """Fit PCA, contrastive PCA at the representatives of its search, and dPCA by ratio and by signal.

    Parameters
    ----------
    target : path, array-like, frame, sparse matrix, Source or Moments, of shape (n_rows, n_features)
        The target. Of rows on a cluster only the scores are brought to this process, and only where there are labels.
    background : dataset, or list or dict of datasets
        The background(s), on the same features.
    n_components : int, default=2
        How many components of each.
    labels : array-like of shape (n_rows,), optional
        Labels of the target rows: only to judge how well the scores show them. By default the source's own.
    shrinkage, mix, features
        As in :class:`standout.DPCA`.
    groups, background_groups
        As in :meth:`standout.DPCA.fit`.
    n_representatives : int, default=4
        How many alphas stand for the search, PCA among them.

    Returns
    -------
    list of Compared

    Examples
    --------
    >>> import numpy as np
    >>> import standout
    >>> rng = np.random.default_rng(0)
    >>> background = rng.normal(size=(900, 5)) * [9, 3, 1, 1, 1]
    >>> target = rng.normal(size=(300, 5)) * [9, 3, 1, 4, 1]
    >>> found = standout.compare(target, background, n_components=1, n_representatives=2)
    >>> [view.name for view in found]
    ['PCA', 'cPCA, alpha 1.75', 'dPCA by ratio', 'dPCA by signal']
    """
    if not isinstance(target, Moments):
        target = open_data(target, "target")
        labels = collect_values(labels, target, "labels")
        if labels is None:
            target.check_row_values("label", "target labels")
    sides = _sides(FitArguments(target, None, background, groups=groups, background_groups=background_groups), features)
    same: dict[str, Any] = {"mix": mix, "features": features}
    given = {name: getattr(sides.given, name) for name in ("background", "groups", "background_groups")}
    with warnings.catch_warnings():
        # Each model carries its notes; the same words six times over help nobody.
        warnings.simplefilter("ignore", StandoutWarning)
        estimators: dict[str, Any] = {"PCA": CPCA(n_components, alpha=0.0, **same).fit(sides.given.X, **given)}
        search = CPCA(n_components, n_representatives=n_representatives, **same).fit(sides.given.X, **given)
        for alpha in search.path_.representative_values:
            if alpha > 0:
                cpca = CPCA(n_components, alpha=float(alpha), **same)
                estimators[f"cPCA, alpha {alpha:.3g}"] = cpca.fit(sides.given.X, **given)
        for axes in ("ratio", "signal"):
            dpca = DPCA(n_components, axes=axes, shrinkage=shrinkage, **same)
            estimators[f"dPCA by {axes}"] = dpca.fit(sides.given.X, **given)
        return _judged(estimators, sides, labels)


@dataclass(frozen=True)
class _Sides:
    """What is fitted and measured; rows that need not come here are moments in it."""

    given: FitArguments
    rows: Source | None  # of the target; None where only its moments were given

    @property
    def moments(self) -> Moments | None:
        """The moments of the target, where they are all that is fitted."""
        return self.given.X if isinstance(self.given.X, Moments) else None


def _sides(given: FitArguments, features: str) -> _Sides:
    """Read the sets once; those on a cluster are added up once and for all fits."""
    inputs = parse_inputs(given)
    target = needed(inputs.target)
    if not inputs.backgrounds:
        raise InputError("compare needs a background, and there is none. Give background rows.")
    match_features(inputs, target.names, target.n_features, features)  # moments no longer know all that is checked
    others = inputs.backgrounds
    groups = {role: None if _adds_up(data) else data.groups for role, data in others.items()}
    fitted = FitArguments(
        target.moments if _adds_up(target) else given.X,
        groups=None if _adds_up(target) else given.groups,
        background=as_given(given.background, {role: _fitted(data) for role, data in others.items()}),
        background_groups=as_given(given.background, groups)
        if any(one is not None for one in groups.values())
        else None,
    )
    return _Sides(fitted, target.source)


def _fitted(data: Dataset) -> Moments | Source | None:
    return data.moments if _adds_up(data) or data.source is None else data.source


def _adds_up(data: Dataset) -> bool:
    """Tell whether a set gives its moments without its rows coming here."""
    return data.source is not None and not data.source.is_local


def _judged(estimators: dict[str, Any], sides: _Sides, labels: Any) -> list[Comparison]:
    if labels is None and sides.rows is not None:  # after the rows: a file tells its labels while it is read
        labels = sides.rows.row_values("label", "target labels")
    scores: list[Any] = [None] * len(estimators)
    # Rows on a cluster stay there where nobody asks for scores: what components hold follows from the moments.
    if labels is not None or sides.moments is None:
        if sides.rows is None:
            raise RowsNeededError("labels: they belong to rows, and moments were given. Give the rows of the target.")
        scores = sides.rows.collect_mapped([estimator.transform for estimator in estimators.values()], "target")
    if labels is not None:
        labels = _checked(labels, len(scores[0]))
    if sides.moments is not None:
        total = float(np.trace(sides.moments.covariance()))
    else:
        assert sides.rows is not None
        total = _total_variance(sides.rows)
    return [
        _compared(name, estimator, sides, own, total, labels)
        for (name, estimator), own in zip(estimators.items(), scores, strict=True)
    ]


def _compared(name: str, estimator: Any, sides: _Sides, scores: Any, total: float, labels: Any) -> Comparison:
    if estimator.n_components_ == 0:
        covariance = np.empty((0, 0))
    elif sides.moments is not None:
        covariance = sides.moments.project(estimator.components_.T).covariance()
    else:
        covariance = np.atleast_2d(np.cov(scores.T, ddof=0))
    # What is left of the target when it is rebuilt from the scores.
    explained = float(np.sum(covariance * (estimator.patterns_ @ estimator.patterns_.T)))
    first, second, _ = estimator._variances(replace(sides.given, groups=None, background_groups=None))
    with np.errstate(divide="ignore"):
        ratios = first / second
    return Comparison(name, estimator, ratios, explained / total, _silhouette(scores, labels))


def _checked(labels: Any, n_rows: int) -> NDArray[Any]:
    given: NDArray[Any] = np.asarray(labels)
    if given.shape != (n_rows,):
        raise InputError(f"labels: shape {given.shape} for {n_rows} rows of the target. Give one label for each row.")
    return given


def _total_variance(source: Source) -> float:
    """Return the sum of the variances of all features, in one pass; each block about its own mean."""
    rows, mean, scatter = 0, np.zeros(source.n_features), 0.0
    for block in source.blocks(block_rows(source.n_features)):
        own = block.mean(axis=0, dtype=np.float64)
        scatter += float(((block - own) ** 2).sum())
        shift, rows = own - mean, rows + len(block)
        scatter += float(shift @ shift) * len(block) * (rows - len(block)) / rows
        mean = mean + shift * (len(block) / rows)
    return scatter / rows


def _silhouette(scores: Array | None, labels: Any) -> float:
    """Return how well the scores keep the labels apart, from -1 to 1; NaN where there is nothing to keep apart."""
    if labels is None or scores is None or scores.shape[1] == 0:
        return float("nan")
    from sklearn.metrics import silhouette_score

    kinds: NDArray[Any] = np.array([str(label) for label in labels])
    distinct = len(np.unique(kinds))
    if not 2 <= distinct <= min(50, len(kinds) - 1):
        return float("nan")
    size = _SAMPLE if len(kinds) > _SAMPLE else None
    return float(silhouette_score(scores, kinds, sample_size=size, random_state=0))
