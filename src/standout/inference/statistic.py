"""The largest ratio of labelled rows, asked for again and again with other labels.

The same number as the first ratio of a model: exact where the rule says exact, against the estimate of
:mod:`standout.shrinkage` otherwise, which is found for every labelling. Every set is centred by its own
mean. Label 0 is the target, k the k-th background.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np

from standout.blas import Array
from standout.inference.among_features import AmongFeatures
from standout.inference.among_rows import Huge, Wide
from standout.inference.coordinates import along_target, equilibrated, in_their_span, whitened
from standout.inference.question import Earlier, Question
from standout.inference.shuffle import Labels, Shuffle

# Multiply-adds beyond which a Gram matrix is not built anew for every labelling: a fifth of a second each.
MOST_WORK = 4e9


# A background sd below this part of the largest, rows being white, is rounding.
_SINGULAR = 1e-7


class Statistic(Protocol):
    """The largest ratio of some rows as a function of their labels."""

    def ratio(self, labels: Labels) -> float:
        """Return the largest ratio; it may be infinite."""
        ...

    def shrinkage(self, labels: Labels) -> float:
        """Return how much the background is shrunk."""
        ...

    def scores(self, labels: Labels) -> Array:
        """Return the scores of all rows along the first component, (n_rows,)."""
        ...


def prepared(rows: Array, question: Question, shuffle: Shuffle) -> tuple[Array, Question, int]:
    """Choose the method: return the aligned rows in the coordinates to work in, the question, and the joint rank.

    Rows are aligned feature by feature, except for the exact problem, which has no preferred features: there along
    the components under the true labels, so that p-values are invariant under linear maps as the ratios are.
    """
    n_target, *sizes = (int(size) for size in np.bincount(shuffle.row_labels))
    n_rows, n_features = rows.shape
    if n_features <= n_rows:
        white = whitened(rows)
        question = question.settled(tuple(sizes), white.shape[1], _structural(white, shuffle))
        chosen = along_target(white, n_target) if question.shrinkage is None else equilibrated(rows)
        return shuffle.aligned(chosen), question, white.shape[1]
    inside = in_their_span(rows)
    rank = inside.shape[1]
    question = question.settled(tuple(sizes), rank)
    if question.shrinkage is None:
        return shuffle.aligned(along_target(whitened(inside), n_target)), question, rank
    if float(n_rows) ** 2 * n_features > MOST_WORK:
        return shuffle.aligned(inside), replace(question, spanned=n_features), rank
    return shuffle.aligned(equilibrated(rows)), question, rank


def _structural(white: Array, shuffle: Shuffle) -> bool:
    """Tell whether the backgrounds do not vary in some direction in which the rows do."""
    parts = [white[shuffle.row_labels == number] for number in np.unique(shuffle.row_labels)[1:]]
    if sum(map(len, parts)) - len(parts) < white.shape[1]:
        return False
    sizes = np.linalg.svd(np.concatenate([part - part.mean(axis=0) for part in parts]), compute_uv=False)
    return bool(sizes[-1] <= _SINGULAR * sizes[0])


def statistic_of(rows: Array, question: Question, earlier: Earlier | None) -> Statistic:
    """Return the statistic for prepared rows and a settled question, after earlier components were removed."""
    if question.shrinkage is None:
        return AmongFeatures(whitened(rows), question, None)
    if question.spanned:
        return Huge(rows, question, earlier)
    kind = Wide if rows.shape[1] > len(rows) else AmongFeatures
    return kind(rows, question, earlier)
