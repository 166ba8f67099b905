"""Several methods on the same data, side by side: PCA, contrastive PCA, discriminative PCA."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from standout.blas import Array
from standout.errors import InputError, StandoutWarning
from standout.estimators.cpca import CPCA
from standout.estimators.dpca import DPCA
from standout.inputs import Given
from standout.moments import Moments
from standout.sources import Source, block_rows, is_lazy, opened, read

# Silhouettes compare all pairs of rows: a sample of this size is enough and stays quick.
_SAMPLE = 2000


@dataclass(frozen=True)
class Compared:
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
) -> list[Compared]:
    """Fit PCA, contrastive PCA at the representatives of its search, and dPCA by ratio and by signal.

    Parameters
    ----------
    target : path, array-like, frame, sparse matrix or Source, of shape (n_rows, n_features)
        The target.
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
    target = opened(target, "target")
    same: dict[str, Any] = {"mix": mix, "features": features}
    given: dict[str, Any] = {"background": background, "groups": groups, "background_groups": background_groups}
    with warnings.catch_warnings():
        # Each model carries its notes; the same words six times over help nobody.
        warnings.simplefilter("ignore", StandoutWarning)
        estimators: dict[str, Any] = {"PCA": CPCA(n_components, alpha=0.0, **same).fit(target, **given)}
        search = CPCA(n_components, n_representatives=n_representatives, **same).fit(target, **given)
        for alpha in search.path_.representative_values:
            if alpha > 0:
                cpca = CPCA(n_components, alpha=float(alpha), **same)
                estimators[f"cPCA, alpha {alpha:.3g}"] = cpca.fit(target, **given)
        for axes in ("ratio", "signal"):
            dpca = DPCA(n_components, axes=axes, shrinkage=shrinkage, **same)
            estimators[f"dPCA by {axes}"] = dpca.fit(target, **given)
        if labels is None:
            labels = getattr(target, "labels", None)
        source = read(target, role="target")
        # Rows on a cluster stay there: what the components hold follows from their moments.
        moments = Moments.of(source, role="target") if is_lazy(source) else None
        total = _total_variance(source) if moments is None else float(np.trace(moments.covariance()))
        sides = Given(target, background=background)
        return [_compared(name, fitted, sides, moments, total, labels) for name, fitted in estimators.items()]


def _compared(name: str, estimator: Any, sides: Given, moments: Moments | None, total: float, labels: Any) -> Compared:
    scores = None if moments is not None and labels is None else _scores(estimator, sides.X)
    if estimator.n_components_ == 0:
        covariance = np.empty((0, 0))
    elif moments is not None:
        covariance = moments.project(estimator.components_.T).covariance()
    else:
        assert scores is not None
        covariance = np.atleast_2d(np.cov(scores.T, ddof=0))
    # What is left of the target when it is rebuilt from the scores.
    explained = float(np.sum(covariance * (estimator.patterns_ @ estimator.patterns_.T)))
    first, second = estimator._variances(sides)
    with np.errstate(divide="ignore"):
        ratios = first / second
    return Compared(name, estimator, ratios, explained / total, _silhouette(scores, labels))


def _scores(estimator: Any, target: Any) -> Array:
    """Return the scores of the target's rows in memory."""
    scores = estimator.transform(target)
    if not hasattr(type(scores), "__array__"):
        raise InputError(
            f"labels: the rows of a Spark {type(scores).__name__} have no order, so that labels cannot be told to "
            "belong to them. Leave labels out, or bring the rows into memory first with toPandas()."
        )
    return np.asarray(scores)


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

    kinds: NDArray[Any] = np.array([str(label) for label in np.asarray(labels)])
    distinct = len(np.unique(kinds))
    if not 2 <= distinct <= min(50, len(kinds) - 1):
        return float("nan")
    size = _SAMPLE if len(kinds) > _SAMPLE else None
    return float(silhouette_score(scores, kinds, sample_size=size, random_state=0))
