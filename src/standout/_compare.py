"""Compare PCA, contrastive PCA and discriminative PCA on the same data.

Every method is measured by the same number: the held-out ratio, or, where rows cannot be held out, the sample ratio, of
the variances of its scores of target and background. The ratios of a fit with shrinkage are neither.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from standout._blas import Array
from standout._cpca import CPCA
from standout._dataset import Dataset
from standout._display import Summary, Table, display, number
from standout._dpca import DPCA
from standout._effective import feature_variance
from standout._inputs import FitArguments, match_features, parse_inputs
from standout._moments import Moments
from standout.errors import DoubtWarning, InputError, RowsNeededError, warn_user, without_warnings
from standout.inference.held_out import HeldOut, held_out_ratio
from standout.inference.resampling import as_background, background_keys
from standout.io.read import open_data
from standout.io.source import RowSource, Source, collect_values

# The silhouette needs all pairs of rows; a sample of this size keeps it fast.
_SILHOUETTE_ROWS = 2000
_MAX_CLASSES = 50
# Ratios of a method that a table lists.
_LISTED = 5


@dataclass(frozen=True)
class Comparison:
    """The result of one method."""

    name: str
    estimator: Any
    ratios: Array  # of the model, as ``estimator.ratios_``
    sample_ratios: Array  # of the variances of the scores of target and background, in the rows of the fit
    held_out: HeldOut | None  # None if rows cannot be held out: too few, or not in memory
    share: float  # of the target variance that the components explain
    silhouette: float  # of the labels in the scores; NaN without labels


class Comparisons(list[Comparison]):
    """The results of all methods: a list with a summary, which notebooks show as a table."""

    def summary(self) -> Summary:
        """Return a table of the methods: held-out and sample ratios, explained variance and silhouette."""
        columns: dict[str, list[str]] = {"method": [result.name for result in self]}
        columns["target variance"] = [f"{result.share:.1%}" for result in self]
        if any(not math.isnan(result.silhouette) for result in self):
            columns["silhouette"] = [f"{result.silhouette:.2f}" for result in self]
        why = "sample ratios are those of the fitted rows, which favour methods that fit noise"
        if any(result.held_out is not None for result in self):
            why = (
                "methods were fitted on some rows and measured on others, by the same folds; noise gives a ratio of one"
            )
            columns["held-out ratios"] = [
                _ratios_text(result.held_out.ratios) if result.held_out else "no component in some fold"
                for result in self
            ]
        columns["sample ratios"] = [_ratios_text(result.sample_ratios) for result in self]
        table = Table(list(columns), list(zip(*columns.values(), strict=True)))
        return display("Methods on the same data", table, facts=[("ratios", why)])

    def _repr_html_(self) -> str | None:
        return self.summary().html


def _ratios_text(ratios: Array) -> str:
    return ", ".join(map(number, ratios[:_LISTED])) or "–"


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
) -> Comparisons:
    """Fit PCA, contrastive PCA at the representatives of its search, and dPCA by ratio and by signal.

    Parameters
    ----------
    target : path, array-like, data frame, sparse matrix, Source or Moments, of shape (n_rows, n_features)
        The target. Of rows on a cluster, only the scores are collected, and only if there are labels.
    background : dataset, or list or dict of datasets
        The background(s), on the same features.
    n_components : int, default=2
        Number of components of each method.
    labels : array-like of shape (n_rows,), optional
        Labels of the target rows. They are used only for the silhouette, not in the fits. By default those of the
        source.
    shrinkage, mix, features
        As in :class:`standout.DPCA`.
    groups, background_groups
        As in :meth:`standout.DPCA.fit`.
    n_representatives : int, default=4
        Number of representative values of alpha, including zero (PCA).

    Returns
    -------
    list of Comparison
        Notebooks show it as a table.
        Compare methods by ``held_out.ratios``, or by ``sample_ratios`` where rows cannot be held out. The
        ``ratios`` of a fit with shrinkage are not comparable with those of another method.

    See Also
    --------
    standout.DPCA, standout.CPCA, standout.held_out_ratio, standout.report

    Examples
    --------
    >>> import numpy as np
    >>> import standout
    >>> rng = np.random.default_rng(0)
    >>> background = rng.normal(size=(900, 5)) * [9, 3, 1, 1, 1]
    >>> target = rng.normal(size=(300, 5)) * [9, 3, 1, 4, 1]
    >>> found = standout.compare(target, background, n_components=1, n_representatives=2)
    >>> [result.name for result in found]
    ['PCA', 'cPCA, alpha 1.75', 'dPCA by ratio', 'dPCA by signal']
    """
    if not isinstance(target, Moments):
        target = open_data(target, "target")
        labels = collect_values(labels, target, "labels")
        if labels is None:
            target.check_row_values("label", "target labels")
    given = FitArguments(target, background=background, groups=groups, background_groups=background_groups)
    arguments, rows = _summed_once(given, features)
    sides = {name: getattr(arguments, name) for name in ("background", "groups", "background_groups")}
    common: dict[str, Any] = {"mix": mix, "features": features}
    with without_warnings():  # the models keep their notes; do not repeat them per method
        search = CPCA(n_components, n_representatives=n_representatives, **common).fit(arguments.X, **sides)
        methods: dict[str, Any] = {"PCA": CPCA(n_components, alpha=0.0, **common)}
        for alpha in filter(None, search.path_.representative_values.tolist()):
            methods[f"cPCA, alpha {alpha:.3g}"] = CPCA(n_components, alpha=alpha, **common)
        for axes in ("ratio", "signal"):
            methods[f"dPCA by {axes}"] = DPCA(n_components, axes=axes, shrinkage=shrinkage, **common)
        for estimator in methods.values():
            estimator.fit(arguments.X, **sides)
        held_out = [_held_out(estimator, arguments, features) for estimator in methods.values()]
        found = _evaluate(methods, held_out, arguments, rows, labels)
    for note in found[-1].estimator._solved().notes:
        if issubclass(note.category, DoubtWarning):
            warn_user(note.text, note.category)
    return found


def _summed_once(given: FitArguments, features: str) -> tuple[FitArguments, Source | None]:
    """Return the arguments of all fits, with moments for datasets on a cluster, and the target rows, if any."""
    inputs = parse_inputs(given, whole=True)
    if not inputs.backgrounds:
        raise InputError("compare needs a background. Give background rows.")
    match_features(inputs, features)  # moments lack some of what is checked here

    def once(data: Dataset) -> tuple[Any, Any]:
        local = data.source is not None and data.source.is_local
        return (data.source, data.groups) if local else (data.moments, None)

    (X, *parts), (groups, *part_groups) = zip(*map(once, inputs.datasets), strict=True)
    keys = background_keys(given.background)
    grouped = as_background(keys, part_groups) if any(own is not None for own in part_groups) else None
    arguments = FitArguments(X, background=as_background(keys, parts), groups=groups, background_groups=grouped)
    return arguments, inputs.datasets[0].source


def _held_out(estimator: Any, arguments: FitArguments, features: str) -> HeldOut | None:
    """Return the held-out ratios of a method, by the same folds for all; None if rows cannot be held out."""
    backgrounds = arguments.background
    parts = backgrounds.values() if isinstance(backgrounds, dict) else [backgrounds]
    if not all(isinstance(part, RowSource) for part in (arguments.X, *parts)):
        return None
    groups = {"groups": arguments.groups, "background_groups": arguments.background_groups}
    try:
        return held_out_ratio(arguments.X, backgrounds, estimator=estimator, features=features, **groups)
    except InputError:  # too few rows to split, or no component in some fold
        return None


def _evaluate(
    methods: dict[str, Any], held_out: list[HeldOut | None], arguments: FitArguments, rows: Any, labels: Any
) -> Comparisons:
    """Return ratios, explained variance and silhouette of each fitted method."""
    moments = arguments.X if isinstance(arguments.X, Moments) else None
    if labels is None and rows is not None:  # the labels of a stream are available after it was read
        labels = rows.row_values("label", "target labels")
    if rows is None and labels is not None:
        raise RowsNeededError("labels: the target was given as moments, without rows. Give the rows of the target.")
    scores: list[Any] = [None] * len(methods)
    if rows is not None and (labels is not None or moments is None):  # otherwise rows stay on the cluster
        scores = rows.collect_mapped([estimator._scores for estimator in methods.values()], "target")
    if labels is not None and np.shape(labels) != (len(scores[0]),):
        given = f"shape {np.shape(labels)} for {len(scores[0])} rows of the target"
        raise InputError(f"labels: {given}. Give one label for each row.")
    total = float((feature_variance(rows) if moments is None else moments.variance()).sum())
    found = Comparisons()
    for (name, estimator), held, values in zip(methods.items(), held_out, scores, strict=True):
        if estimator.n_components_ == 0:
            covariance = np.empty((0, 0))
        elif moments is not None:
            covariance = moments.project(estimator.components_.T).covariance()
        else:
            covariance = np.atleast_2d(np.cov(values.T, ddof=0))
        # The total variance of the rows that inverse_transform rebuilds from the scores.
        explained = float(np.sum(covariance * (estimator.patterns_ @ estimator.patterns_.T)))
        of_target, of_background, _ = estimator._variances(replace(arguments, groups=None, background_groups=None))
        with np.errstate(divide="ignore"):
            sampled = of_target / of_background
        quality = _silhouette(values, labels)
        found.append(Comparison(name, estimator, estimator.ratios_, sampled, held, explained / total, quality))
    return found


def _silhouette(scores: Array | None, labels: Any) -> float:
    """Return the mean silhouette of the labels in the scores, from -1 to 1; NaN if it is undefined."""
    if labels is None or scores is None or scores.shape[1] == 0:
        return math.nan
    from sklearn.metrics import silhouette_score

    classes = np.array([str(label) for label in np.asarray(labels)])
    if not 2 <= len(np.unique(classes)) <= min(_MAX_CLASSES, len(classes) - 1):
        return math.nan
    sample = _SILHOUETTE_ROWS if len(classes) > _SILHOUETTE_ROWS else None
    return float(silhouette_score(scores, classes, sample_size=sample, random_state=0))
