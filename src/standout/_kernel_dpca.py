"""Kernel dPCA as a scikit-learn estimator: linear dPCA on the features of a kernel.

Held-out ratios over folds are used to choose gamma and shrinkage, and to count components. The formula behind the
noise edge does not apply to a kernel, because the background never has enough rows for the dimensions of the kernel;
held-out ratios need no such formula.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import pdist

from standout import _folds
from standout._base import BaseContrast, Fitted
from standout._blas import Array, threads_for
from standout._dataset import Dataset, Mixture
from standout._inputs import FitArguments, Inputs, check_choice, check_count, is_number, parse_inputs, solve_options
from standout._kernel_model import KERNELS, Features, Kernel, KernelModel, Landmarks, solve_kernel
from standout._model import Model
from standout._moments import Moments
from standout.errors import InputError, NotEnoughRowsError, OverfitWarning, RowsNeededError
from standout.io.memory import explain_non_finite, weighted_blocks
from standout.io.read import open_data
from standout.solvers.problem import SolveOptions, check_rows
from standout.solvers.solution import Note

_FOLDS = 5
# Largest number of components used to choose parameters: later ones are mostly noise.
_FIRST = 2
# A log ratio above this counts as infinite.
_LARGEST_LOG = 50.0
# The kernel matrix of more rows than this takes gigabytes, so that landmarks are required.
_MOST_ROWS = 10_000
# Rows used for the median distance: its error is then a few percent, which is negligible.
_MEDIAN_ROWS = 500
# Candidates of "cv": gamma in multiples of the median heuristic, and shrinkage. The default comes first.
_FACTORS = (1.0, 1 / 16, 1 / 4, 4.0, 16.0)
_SHRINKAGES: tuple[str | float, ...] = ("auto", 0.001, 0.01, 0.1, 0.5)
# An sd below this fraction of the mean is rounding error: the feature is constant.
_CONSTANT = 10 * float(np.finfo(np.float64).eps)
_PER_COMPONENT = (
    "components", "patterns", "ratios", "unshrunk_ratios", "debiased_ratios", "target_variance", "background_variance",
)  # fmt: skip
_NO_FEATURES = "its components are functions, not directions among the features. Use transform and dual_coef_."

Fit = Callable[[Sequence[Dataset]], KernelModel]
Index = _folds.Index


class _Absent:
    """An attribute of the linear estimators that is undefined here; accessing it raises an error with the reason."""

    def __init__(self, why: str):
        self.why = why

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, estimator: Any, owner: type | None = None) -> Any:
        raise AttributeError(f"KernelDPCA has no {self.name}: {self.why}")


class KernelDPCA(BaseContrast):
    """Discriminative PCA in the feature space of a kernel: functions that vary only in the target.

    Finds functions f of the rows (unit norm in the kernel's space) with the largest ratio of target variance to
    background variance, with each dataset centred at its mean. It finds structure that no linear direction shows, such
    as rings and products of features. The background covariance is shrunk toward a multiple of the identity, which
    penalises the norm of f. The shrinkage depends on the number of background rows, so that duplicated rows change the
    result. Without a background it is kernel PCA.

    Parameters
    ----------
    n_components : int, None or "auto", default=2
        Number of components; None returns all that exist. "auto" counts the leading components whose held-out ratio
        over five folds is above one (lower end of its 95 % interval), at most 10.
    kernel : "rbf", "poly", "linear", "cosine" or callable, default="rbf"
        ``exp(-gamma |x - z|²)``, ``(gamma x·z + coef0)^degree``, ``x·z``, ``x·z / |x||z|``, or a function of two
        arrays of rows that returns the matrix of all pairs.
    gamma : "median", "cv" or float, default="median"
        Parameter of "rbf" and "poly". "median" is one over the median squared distance between target and background
        rows, taken together (over a sample if there are many). "cv" chooses among 1/16, 1/4, 1, 4 and 16 times that by
        the held-out ratio of the first two components over five folds.
    degree : int, default=2
        Degree of "poly".
    coef0 : float, default=1.0
        Constant term of "poly"; non-negative.
    standardize : bool, default=True
        Divide each feature by its background sd before the kernel and the median distance (by its target sd if the
        background is constant; with several backgrounds by the sd in their mixture, the pooled one for "minimax").
        Without a background no scaling is applied. False uses the rows as given: similarity is then dominated by the
        features with the largest variance, whether or not they differ between target and background. A callable kernel
        receives the scaled rows.
    shrinkage : "auto", "oas", "cv", None or float in [0, 1], default="auto"
        Shrinkage of the background covariance. "oas" uses the OAS formula. "auto" does the same, except that a
        "linear", "poly" or "cosine" kernel with ten background rows per dimension is not shrunk. "cv" chooses among
        "auto", .001, .01, .1 and .5 as gamma="cv" does (jointly with it). None or 0, the exact problem, is available
        only for kernels with fewer dimensions than rows: with other kernels almost every ratio would be infinite.
    n_landmarks : int or None, default=None
        Number of rows over which components are expanded. None uses all rows, which is exact and has cubic cost in the
        number of rows; a few hundred, chosen at random (half of them target rows), suffice for any number of rows.
    mix, background_label
        As in :class:`standout.DPCA`.
    random_state : int or None, default=None
        Seed for the choice of landmarks, of the rows for the median distance and of the folds.

    Attributes
    ----------
    ratios_ : ndarray of shape (n_components,)
        Target variance over (shrunk) background variance along each component, largest first. They increase with the
        flexibility of the kernel: evaluate them on held-out rows with :meth:`score`.
    dual_coef_ : ndarray of shape (n_components, n_landmarks)
        Coefficients over the landmarks: ``f(x) = dual_coef_ @ k(landmarks_ / scale_, x / scale_)``.
    landmarks_ : ndarray of shape (n_landmarks, n_features)
        The landmarks as given, target rows first.
    mean_ : ndarray of shape (n_landmarks,)
        Mean of ``k(landmarks_ / scale_, x / scale_)`` over the target, subtracted by transform.
    gamma_ : float
        The gamma used.
    scale_ : ndarray of shape (n_features,)
        Divisor of each feature before the kernel is applied; ones if no scaling is applied.
    noise_edge_, p_value_, debiased_ratios_ : float, float and ndarray of shape (n_components,)
        As in :class:`standout.DPCA` if the exact problem was solved; NaN if the background was shrunk.
    target_variance_, background_variance_, contrast_, shrinkage_, n_factors_, regime_, mix_, n_components_, solver_
        As in :class:`standout.DPCA`, as are ``n_features_in_`` and ``feature_names_in_``.

    See Also
    --------
    standout.DPCA : The same with linear directions, which have filters and patterns.
    standout.held_out_ratio : Ratios on rows that a model was not fitted on.
    standout.plot.scores : Plot of the scores.

    Notes
    -----
    ``components_``, ``patterns_``, ``top_features``, ``inverse_transform`` and ``partial_fit`` are not available:
    components are functions and not directions, and they are expanded over rows, which moments do not retain.

    Examples
    --------
    Two rings in the target, one in the background, and a third feature with a large common variance:

    >>> import numpy as np
    >>> from standout import KernelDPCA
    >>> rng = np.random.default_rng(0)
    >>> def ring(radius):
    ...     angle = rng.uniform(0, 2 * np.pi, len(radius))
    ...     return np.column_stack([radius * np.cos(angle), radius * np.sin(angle), 5 * rng.normal(size=len(radius))])
    >>> radius = rng.choice([1.0, 3.0], 200)
    >>> target, background = ring(radius), ring(rng.normal(2.2, 0.2, 300))
    >>> model = KernelDPCA(n_components=1, kernel="poly").fit(target, background=background)
    >>> score = model.transform(target)[:, 0]
    >>> bool(abs(np.corrcoef(score, radius)[0, 1]) > 0.99)
    True
    """

    dual_coef_ = Fitted("components", "Coefficients over the landmarks, of shape (n_components, n_landmarks).")
    landmarks_ = Fitted("landmarks.rows", "The landmarks, of shape (n_landmarks, n_features).")
    gamma_ = Fitted("landmarks.kernel.gamma", "The gamma used.")
    scale_ = Fitted("feature_scale", "What each feature is divided by before the kernel, of shape (n_features,).")
    components_ = _Absent(_NO_FEATURES)
    patterns_ = _Absent(_NO_FEATURES)
    top_features = _Absent(_NO_FEATURES)
    inverse_transform = _Absent("a score does not determine a row. Look for rows with similar scores instead.")
    partial_fit = _Absent("its components rest on rows, and batches keep moments only. Use fit, with n_landmarks.")

    # Parameters of DPCA that are fixed here; the base class reads them.
    centering, features = "own", "all"

    def __init__(
        self,
        n_components: int | str | None = 2,
        *,
        kernel: str | Callable[[Array, Array], Any] = "rbf",
        gamma: str | float = "median",
        degree: int = 2,
        coef0: float = 1.0,
        standardize: bool = True,
        shrinkage: str | float | None = "auto",
        mix: str | ArrayLike = "pooled",
        n_landmarks: int | None = None,
        background_label: Any = None,
        random_state: Any = None,
    ):
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.standardize = standardize
        self.shrinkage = shrinkage
        self.mix = mix
        self.n_landmarks = n_landmarks
        self.background_label = background_label
        self.random_state = random_state

    def score(
        self,
        X: Any,
        y: Any = None,
        *,
        background: Any = None,
        sample_weight: Any = None,
        background_sample_weight: Any = None,
    ) -> float:
        """Return the log-likelihood gain per target row of the fitted ratios over no difference.

        Definition and arguments are those of :meth:`standout.DPCA.score`, but rows are required. Use it on held-out
        rows to evaluate a kernel model: a score that is not above zero means that nothing specific to the target is
        shown. The ratios of most kernels are not de-biased, so the fitted ones are used. Kernel scores are often
        skewed or heavy-tailed: the gain is then that of a Gaussian approximation. Kernel PCA is scored against unit
        variance.

        Examples
        --------
        >>> from standout import KernelDPCA, datasets
        >>> target, background = datasets.FactorModel().sample(200, 400)
        >>> model = KernelDPCA(n_components=1, kernel="poly").fit(target[:100], background=background[:200])
        >>> model.score(target[100:], background=background[200:]) > 0
        True
        """
        X = X if isinstance(X, Moments) else open_data(X, "X")
        inputs = parse_inputs(FitArguments(X, y, background), self.background_label)
        for data in inputs.datasets:
            _check_local_rows(data)
        weights = {"sample_weight": sample_weight, "background_sample_weight": background_sample_weight}
        return super().score(X, y, background=background, **weights)

    def _check_parameters(self) -> SolveOptions:
        if isinstance(self.n_components, float):
            check_count("n_components", self.n_components)
        options = solve_options(
            n_components=self.n_components,
            shrinkage="auto" if isinstance(self.shrinkage, str) and self.shrinkage == "cv" else self.shrinkage,
            mix=self.mix,
            random_state=self.random_state,
        )
        if not callable(self.kernel):
            check_choice("kernel", self.kernel, KERNELS)
        chosen = isinstance(self.gamma, str) and self.gamma in ("median", "cv")
        if not chosen and (not is_number(self.gamma) or self.gamma == 0):
            raise InputError(f"`gamma={self.gamma!r}` is not possible. Use 'median', 'cv' or a positive number.")
        if not is_number(self.coef0):
            raise InputError(f"`coef0={self.coef0!r}` is not possible. Use a number that is not negative.")
        check_count("degree", self.degree)
        check_choice("standardize", self.standardize, (True, False))
        if self.n_landmarks is not None:
            check_count("n_landmarks", self.n_landmarks)
        return options

    def _fit(self, inputs: Inputs, options: SolveOptions) -> Model:
        data = [_rows(part) for part in inputs.datasets]
        if options.n_components != "auto":
            return self._selected(data, options)
        # Gamma and shrinkage are chosen separately in every fold, so that the choice cannot inflate held-out ratios.
        count, notes = count_above_one(partial(self._selected, options=options), data, options.seed)
        model = self._selected(data, replace(options, n_components=max(count, 1)))
        if count == 0:
            notes.append(
                "no component has a held-out ratio above one, so `n_components='auto'` gives none and scores have no "
                "columns. Use a number for n_components to see the components all the same."
            )
            model = replace(model, **{name: getattr(model, name)[:0] for name in _PER_COMPONENT})
        return model.noted([Note(OverfitWarning, note) for note in notes])

    def _selected(self, data: Sequence[Dataset], options: SolveOptions) -> KernelModel:
        """Choose gamma and shrinkage by the mean held-out log ratio of the first components if requested, and fit."""
        factors = _FACTORS if self.gamma == "cv" and self.kernel in ("rbf", "poly") else (1.0,)
        shrinkages = _SHRINKAGES if self.shrinkage == "cv" else (options.shrinkage,)
        choices = list(itertools.product(factors, shrinkages))
        values = []
        if len(choices) > 1:
            first = min(options.n_components, _FIRST) if isinstance(options.n_components, int) else _FIRST
            folds = split(data, options.seed)
            for factor, shrinkage in choices:
                # A fold has fewer rows, and may have fewer components than requested: "auto" uses those that exist.
                in_fold = replace(options, n_components="auto", shrinkage=shrinkage)
                logs = held_out_logs(partial(self._solved_for, options=in_fold, factor=factor), data, folds)
                means = _folds.mean_over_folds(logs[:, :first].clip(-_LARGEST_LOG, _LARGEST_LOG))
                values.append(np.nan_to_num(means).mean())
        factor, shrinkage = choices[int(np.argmax(values)) if values else 0]
        return self._solved_for(data, replace(options, shrinkage=shrinkage), factor)

    def _solved_for(self, data: Sequence[Dataset], options: SolveOptions, factor: float = 1.0) -> KernelModel:
        """Fit with a given shrinkage, and with gamma as a given multiple of the median heuristic."""
        rng = np.random.default_rng(options.seed)
        scale = _background_scale(data, options) if self.standardize and len(data) > 1 else None
        gamma = 1.0
        if self.kernel in ("rbf", "poly"):
            gamma = float(self.gamma) if isinstance(self.gamma, Real) else factor * median_gamma(data, scale, rng)
        kernel = Kernel(self.kernel, gamma, int(self.degree), float(self.coef0))
        rows = _stacked(data, choose_landmarks([part.counts.rows for part in data], self.n_landmarks, rng))
        features = Features.of(Landmarks(kernel, rows, scale))
        mapped = [features.moments(part) for part in data]
        with threads_for(10.0 * features.n_columns**3):
            return solve_kernel(mapped, features, options, data[0].names)


def _check_local_rows(data: Dataset) -> None:
    """Raise an error for moments, and for rows stored on a cluster."""
    if data.source is None:
        raise RowsNeededError(f"{data.role}: a kernel needs rows, and moments were given. Give the rows.")
    if not data.source.is_local:
        raise RowsNeededError(
            f"{data.role}: a kernel compares rows with each other, and these are on a cluster. Collect them, or a "
            "sample of them, into memory first: compute() of dask, toPandas() of Spark."
        )


def _rows(data: Dataset) -> Dataset:
    """Return a dataset whose rows can be read in any order, without those of weight zero."""
    _check_local_rows(data)
    if data.rows is None:
        raise RowsNeededError(
            f"{data.role}: a kernel needs rows that can be read more than once, and this source is read only once. "
            "Give the rows as an array."
        )
    check_rows(data.role, data.counts.rows)
    return data.counted()


def _background_scale(data: Sequence[Dataset], options: SolveOptions) -> Array:
    """Return the sd of each feature in the mixture of backgrounds; the target's if they are constant, else one."""
    mix = "pooled" if isinstance(options.mix, str) and options.mix == "minimax" else options.mix
    mixture = Mixture.of([part.counts for part in data[1:]], mix, [part.role for part in data[1:]])
    variance = mixture.mixed([_variance(part) for part in data[1:]])
    if not variance.all():
        variance = np.where(variance > 0, variance, _variance(data[0]))
    return np.sqrt(np.where(variance > 0, variance, 1.0))


def _variance(data: Dataset) -> Array:
    """Return the variance of each feature in one pass; blocks are centred at their means and merged."""
    assert data.rows is not None
    total, (mean, scatter) = 0.0, np.zeros((2, data.n_features))
    first = np.asarray(data.rows.take(np.array([0])), dtype=np.float64)
    for block in weighted_blocks(data.rows, data.weights, data.role):
        rows = np.asarray(block.rows, dtype=np.float64)
        weights = np.ones(len(rows)) if block.weights is None else block.weights
        with np.errstate(all="ignore"):
            rows = rows - first  # a constant feature is exactly zero from here on
            own, weight = weights @ rows / weights.sum(), weights.sum()
            rows -= own
            shift, share = own - mean, weight / (total + weight)
            scatter += np.einsum("i,ij,ij->j", weights, rows, rows) + total * share * shift**2
            mean += share * shift
            total += weight
        if not np.isfinite(scatter).all():
            raise explain_non_finite(data.rows, block.rows, data.role, data.names)
    variance = scatter / total
    return np.where(np.sqrt(variance) <= _CONSTANT * np.abs(first[0] + mean), 0.0, variance)


def median_gamma(data: Sequence[Dataset], scale: Array | None, rng: np.random.Generator) -> float:
    """Return one over the median squared distance between distinct rows, or a sample of them (the median heuristic)."""
    starts = np.cumsum([0, *(part.counts.rows for part in data)])
    chosen = np.arange(starts[-1])
    if len(chosen) > _MEDIAN_ROWS:
        chosen = np.sort(rng.choice(len(chosen), _MEDIAN_ROWS, replace=False))
    parts = np.split(chosen, np.searchsorted(chosen, starts[1:-1]))
    index = [part - start for part, start in zip(parts, starts, strict=False)]
    weights = np.concatenate([part.row_weights[own] for part, own in zip(data, index, strict=True)])
    rows = _stacked(data, index)
    distances = pdist(rows if scale is None else rows / scale, "sqeuclidean")
    first, second = np.triu_indices(len(rows), 1)
    pairs = weights[first] * weights[second] * (distances > 0)
    if not pairs.any():
        raise InputError(
            "every feature is constant: all rows are the same, so there is no distance for `gamma='median'`. Check "
            "that the right rows were given."
        )
    order = np.argsort(distances, kind="stable")
    below = np.cumsum(pairs[order])
    # The lower median, computed from the counts, so that repeating every row changes nothing.
    middle = np.searchsorted(below, below[-1] / 2 * (1 - 1e-12))
    return float(1 / distances[order[middle]])


def _stacked(data: Sequence[Dataset], index: Sequence[Index]) -> Array:
    """Return some rows of each dataset as one float64 array, checked to be finite."""
    parts = []
    for part, own in zip(data, index, strict=True):
        assert part.rows is not None
        rows = np.ascontiguousarray(part.rows.take(own), dtype=np.float64)
        with np.errstate(all="ignore"):
            if not math.isfinite(np.einsum("ij,ij->", rows, rows)):
                raise explain_non_finite(part.rows, rows, part.role)
        parts.append(rows)
    return np.vstack(parts)


def choose_landmarks(sizes: Sequence[int], count: int | None, rng: np.random.Generator) -> list[Index]:
    """Return which rows of target and backgrounds are landmarks: all, or ``count`` chosen at random, half of each."""
    total, others = sum(sizes), sum(sizes[1:])
    if count is None and total > _MOST_ROWS:
        raise InputError(
            f"`n_landmarks=None` makes all {total} rows landmarks, and their kernel matrix would take "
            f"{8 * total**2 / 1e9:.1f} GB. Give n_landmarks, for instance `n_landmarks=500`."
        )
    if count is None or count >= total:
        return [np.arange(size) for size in sizes]
    # Of the backgrounds in proportion to their sizes; if a set is too small, the remainder is taken from the other.
    of_target = min(sizes[0], max((count + 1) // 2, count - others))
    bounds = np.round(np.cumsum([0, *sizes[1:]]) * ((count - of_target) / max(others, 1))).astype(int)
    counts = [of_target, *np.diff(bounds)]
    return [np.sort(rng.choice(size, number, replace=False)) for size, number in zip(sizes, counts, strict=True)]


def count_above_one(fit: Fit, data: Sequence[Dataset], seed: int) -> tuple[int, list[str]]:
    """Return how many leading components have a 95 % interval of held-out ratios above one, and notes on folds."""
    logs = held_out_logs(fit, data, split(data, seed))
    count = int(np.argmin([*(_folds.over_folds(logs, 0.95)[0] > 0), False]))
    return count, _folds.fold_notes(logs[:, : count + 1], [f"kerneldpca{k}" for k in range(count + 1)])


def split(data: Sequence[Dataset], seed: int) -> list[list[Index]]:
    """Return the rows of each dataset that are held out in each fold; a group, also a shared one, is in one fold."""
    if len(data) == 1:
        raise InputError(
            "`n_components='auto'`, `gamma='cv'` and `shrinkage='cv'` compare target with background, and there is "
            "none. Give one, or use numbers."
        )
    units = [_units(part) for part in data]
    fewest = min(own.count for own in units)
    for count in range(min(_FOLDS, fewest // 2), 1, -1):  # fewer folds if one would have a single unit of a dataset
        fold_of = _folds.assigned(units, _folds.even_quotas(units, count), np.random.default_rng(seed))
        if min(np.bincount(own, minlength=count).min() for own in fold_of) >= 2:
            return [
                [np.flatnonzero((own == fold)[unit.rows]) for own, unit in zip(fold_of, units, strict=True)]
                for fold in range(count)
            ]
    shared = " that share groups with another" if fewest >= 4 else ""
    raise NotEnoughRowsError(
        f"{fewest} independent unit{'s' if fewest != 1 else ''} (groups where given, else rows) in the smallest "
        f"dataset{shared} cannot be split for held-out ratios: each fold needs two of every dataset. Give more rows, "
        "or give gamma, shrinkage and n_components as numbers."
    )


def _units(data: Dataset) -> _folds.Units:
    """Return the independent units of a dataset: its groups if it has any, otherwise its rows."""
    groups = data.group_ids
    return _folds.Units(np.arange(data.counts.rows), ()) if groups is None else _folds.Units(*_folds.coded(groups))


def held_out_logs(fit: Fit, data: Sequence[Dataset], folds: Sequence[Sequence[Index]]) -> Array:
    """Return log held-out ratios, corrected for small-sample bias, of shape (n_folds, n_components)."""
    measured = []
    for held in folds:
        parts = list(zip(data, held, strict=True))
        model = fit([part.take(np.setdiff1d(np.arange(part.counts.rows), index)) for part, index in parts])
        spread, counts = [], []
        for test in (part.take(index) for part, index in parts):
            assert test.rows is not None
            spread.append(_folds.Spread.of(model.project(test.rows, test.role), _units(test).rows, test.row_weights))
            counts.append(test.counts)
        shares = Mixture.of(counts[1:], model.mix).shares
        measured.append(_folds.Fold(spread[0], tuple(spread[1:]), shares, model.target_variance))
    return _folds.log_ratios(measured)
