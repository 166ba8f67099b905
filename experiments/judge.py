"""Measure how well scores separate labels that the methods did not use: clustering, silhouette and accuracy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments import Array
from standout._demo import ari, silhouette

__all__ = ["FOLDS", "accuracy", "accuracy_on", "ari", "right_on", "silhouette"]

FOLDS = 5  # of every cross-validation in the experiments


def accuracy(scores: Array, labels: ArrayLike, groups: ArrayLike | None = None, seed: int = 0) -> float:
    """Return the mean accuracy of a logistic regression on the scores over five folds.

    Only the classifier is cross-validated; the axes may have been fitted to all rows.

    Parameters
    ----------
    scores : ndarray of shape (n_rows, n_components)
        Scores; the regression standardises them, so their units do not matter.
    labels : array-like of shape (n_rows,)
        Labels of the rows.
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
    """Return the accuracy on new rows of a logistic regression trained on the scores of the old ones.

    Parameters
    ----------
    scores, new_scores : ndarray of shape (n_rows, n_components)
        Scores of the rows used to fit the axes, and of new rows.
    labels, new_labels : array-like of shape (n_rows,)
        Labels of the rows.

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
    """Return which new rows are classified correctly by a logistic regression on the scores of the old ones.

    Parameters
    ----------
    scores, new_scores : ndarray of shape (n_rows, n_components)
        Scores of the rows used to fit the axes, and of new rows.
    labels, new_labels : array-like of shape (n_rows,)
        Labels of the rows.

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
    """Return a logistic regression on standardised scores."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression())


def _commonest(kinds: NDArray[Any]) -> Any:
    """Return the most frequent label, the best constant prediction."""
    found, counts = np.unique(kinds, return_counts=True)
    return found[counts.argmax()]
