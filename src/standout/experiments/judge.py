"""How well scores show labels that the methods never saw: clusters, silhouettes, and a line drawn between them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from standout.blas import Array

FOLDS = 5  # of every cross-validation in the experiments


def ari(scores: Array, labels: ArrayLike, seed: int = 0) -> float:
    """Return how well k-means clusters of the raw scores, as many as there are labels, match the labels.

    Parameters
    ----------
    scores : ndarray of shape (n_rows, n_components)
        Scores as a method gives them: nothing is scaled.
    labels : array-like of shape (n_rows,)
        What the rows are.
    seed : int
        Seed of the starts of k-means.

    Returns
    -------
    float
        The adjusted Rand index: 1 is perfect, 0 is chance.

    Examples
    --------
    >>> ari(np.array([[0.0], [0.1], [5.0], [5.1]]), [6, 6, 9, 9])
    1.0
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_rand_score
    from threadpoolctl import threadpool_limits

    if scores.shape[1] == 0:
        return 0.0
    # Threads of k-means add up in any order; one thread gives the same bits every time.
    with threadpool_limits(1):
        found = KMeans(len(np.unique(labels)), n_init=10, random_state=seed).fit_predict(scores)
    return float(adjusted_rand_score(labels, found))


def silhouette(scores: Array, labels: ArrayLike) -> float:
    """Return how well the raw scores keep the labels apart, from -1 to 1.

    Parameters
    ----------
    scores : ndarray of shape (n_rows, n_components)
        Scores as a method gives them.
    labels : array-like of shape (n_rows,)
        What the rows are.

    Returns
    -------
    float
        The mean silhouette; 0 where there are no components.

    Examples
    --------
    >>> round(silhouette(np.array([[0.0], [0.1], [5.0], [5.1]]), [6, 6, 9, 9]), 2)
    0.98
    """
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(scores, labels)) if scores.shape[1] else 0.0


def accuracy(scores: Array, labels: ArrayLike, groups: ArrayLike | None = None, seed: int = 0) -> float:
    """Return the mean accuracy of a logistic regression on the scores over five folds.

    Only the line is held out: the axes may have seen all rows.

    Parameters
    ----------
    scores : ndarray of shape (n_rows, n_components)
        Scores; the regression scales them, so their units do not count.
    labels : array-like of shape (n_rows,)
        What the rows are.
    groups : array-like of shape (n_rows,), optional
        Rows of one group (replicates of a mouse) are never on both sides of a split.
    seed : int
        Seed of the folds.

    Returns
    -------
    float

    Examples
    --------
    >>> rows = np.arange(20.0)[:, None]
    >>> accuracy(rows, rows[:, 0] > 9.5) > 0.8
    True
    """
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, cross_val_score

    kinds = np.asarray(labels)
    if scores.shape[1] == 0:
        return float(np.mean(kinds == _commonest(kinds)))
    split = StratifiedKFold if groups is None else StratifiedGroupKFold
    folds = split(FOLDS, shuffle=True, random_state=seed)
    return float(cross_val_score(_line(), scores, kinds, groups=groups, cv=folds).mean())


def accuracy_on(scores: Array, labels: ArrayLike, new_scores: Array, new_labels: ArrayLike) -> float:
    """Return the accuracy on new rows of a logistic regression on the scores of the old ones.

    Parameters
    ----------
    scores, new_scores : ndarray of shape (n_rows, n_components)
        Scores of the rows the axes come from, and of rows never seen.
    labels, new_labels : array-like of shape (n_rows,)
        What the rows are.

    Returns
    -------
    float

    Examples
    --------
    >>> accuracy_on(np.array([[0.0], [0.1], [5.0], [5.1]]), [6, 6, 9, 9], np.array([[0.2], [4.8]]), [6, 9])
    1.0
    """
    return float(np.mean(right_on(scores, labels, new_scores, new_labels)))


def right_on(scores: Array, labels: ArrayLike, new_scores: Array, new_labels: ArrayLike) -> NDArray[np.bool_]:
    """Return of which new rows a logistic regression on the scores of the old ones is right.

    Parameters
    ----------
    scores, new_scores : ndarray of shape (n_rows, n_components)
        Scores of the rows the axes come from, and of rows never seen.
    labels, new_labels : array-like of shape (n_rows,)
        What the rows are.

    Returns
    -------
    ndarray of shape (n_new_rows,)

    Examples
    --------
    >>> right_on(np.array([[0.0], [0.1], [5.0], [5.1]]), [6, 6, 9, 9], np.array([[0.2], [4.8]]), [6, 6]).tolist()
    [True, False]
    """
    known, new = np.asarray(labels), np.asarray(new_labels)
    if scores.shape[1] == 0:
        return np.asarray(new == _commonest(known))
    return np.asarray(_line().fit(scores, known).predict(new_scores) == new)


def _line() -> Any:
    """Return a logistic regression that does not depend on the units of the scores."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression())


def _commonest(kinds: NDArray[Any]) -> Any:
    """Return the commonest label: to say it always is all one can do without scores."""
    found, counts = np.unique(kinds, return_counts=True)
    return found[counts.argmax()]
