"""Kernel dPCA as a scikit-learn estimator: linear dPCA on the features of a kernel.

Held-out ratios over folds are used to choose gamma and shrinkage, and to count components. The formula behind the
noise edge does not apply to a kernel, because the background never has enough rows for the dimensions of the kernel;
held-out ratios need no such formula.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from standout._base import BaseContrast, Fitted
from standout._blas import Array, threads_for
from standout._dataset import Dataset, Mixture
from standout._folds import (
    Fold,
    Index,
    Spread,
    Units,
    assigned,
    coded,
    even_quotas,
    fold_notes,
    log_ratios,
    mean_over_folds,
    over_folds,
)
from standout._inputs import FitArguments, MatchedInputs, check_choice, check_count, parse_inputs, solve_options
from standout._kernel_model import KernelModel, exact_refused, nothing_found, solve_kernel, summarize_kernel
from standout._kernels import (
    KERNELS,
    Features,
    Kernel,
    KernelSource,
    Landmarks,
    background_scale,
    choose_landmarks,
    median_gamma,
)
from standout._model import Model, Summary
from standout._moments import Moments
from standout.errors import InputError, NotEnoughRowsError, OverfitWarning, RowsNeededError
from standout.io.memory import explain_non_finite
from standout.io.read import open_data
from standout.io.source import RowView
from standout.solvers.choose import check_rows
from standout.solvers.problem import SolveOptions
from standout.solvers.solution import Note

_FOLDS = 5
# Largest number of components used to choose parameters: later ones are mostly noise.
FIRST = 2
# A log ratio above this counts as infinite.
_LARGEST = 50.0
# The kernel matrix of more rows than this takes gigabytes, so that landmarks are required.
_MOST_ROWS = 10_000
# Rows used for the median distance: its error is then a few percent, which is negligible.
_MEDIAN_ROWS = 500
# Candidates of "cv": gamma in multiples of the median heuristic, and shrinkage. The default comes first.
_FACTORS = (1.0, 1 / 16, 1 / 4, 4.0, 16.0)
_SHRINKAGES: tuple[str | float, ...] = ("auto", 0.001, 0.01, 0.1, 0.5)
_NO_FEATURES = "its components are functions, not directions among the features. Use transform and dual_coef_."


Fit = Callable[[Sequence[Dataset]], KernelModel]
Choice = TypeVar("Choice")


def best(
    choices: Iterable[Choice], fit: Callable[[Choice], Fit], data: Sequence[Dataset], seed: int, first: int
) -> Choice:
    """Return the choice with the largest mean held-out log ratio of the first components; the first if tied."""
    folds = split(data, seed)
    found: tuple[float, Choice] | None = None
    for choice in choices:
        logs = held_out_logs(fit(choice), data, folds)[:, :first].clip(-_LARGEST, _LARGEST)
        value = float(np.nan_to_num(mean_over_folds(logs)).mean())
        if found is None or value > found[0]:
            found = value, choice
    assert found is not None
    return found[1]


def count_above_one(fit: Fit, data: Sequence[Dataset], seed: int, level: float = 0.95) -> tuple[int, list[str]]:
    """Return how many leading components have a held-out ratio above one, and notes on folds without a finite one.

    A component counts if the lower end of the interval of ``held_out_ratio`` is above one.
    """
    logs = held_out_logs(fit, data, split(data, seed))
    count = int(np.argmin([*(over_folds(logs, level)[0] > 0), False]))
    return count, fold_notes(logs[:, : count + 1])


def split(data: Sequence[Dataset], seed: int) -> list[list[Index]]:
    """Return the rows of each dataset that are held out in each fold; rows of one group stay together.

    Groups shared by several datasets are in the same fold of each. If this leaves a fold with one unit of a dataset,
    fewer folds are used.
    """
    units = [_units(part) for part in data]
    fewest = min(own.count for own in units)
    for count in range(min(_FOLDS, fewest // 2), 1, -1):
        fold_of = assigned(units, even_quotas(units, count), np.random.default_rng(seed))
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


def _units(data: Dataset) -> Units:
    """Return the independent units of a dataset: its groups if it has any, otherwise its rows."""
    assert data.rows is not None
    groups = data.groups if data.groups is not None else data.rows.groups
    return Units(np.arange(data.counts.rows), ()) if groups is None else Units(*coded(groups))


def held_out_logs(fit: Fit, data: Sequence[Dataset], folds: Sequence[Sequence[Index]]) -> Array:
    """Return log held-out ratios, corrected for small-sample bias, of shape (n_folds, n_components)."""
    return log_ratios([_of_fold(fit, data, held) for held in folds])


def _of_fold(fit: Fit, data: Sequence[Dataset], held: Sequence[Index]) -> Fold:
    model = fit(
        [_part(part, np.setdiff1d(np.arange(part.counts.rows), index)) for part, index in zip(data, held, strict=True)]
    )
    tests = [_part(part, index) for part, index in zip(data, held, strict=True)]
    spread = []
    for test in tests:
        assert test.rows is not None
        spread.append(Spread.of(model.project(test.rows, test.role), _units(test).rows, test.row_weights))
    mixture = Mixture.of([test.counts for test in tests[1:]], model.mix)
    return Fold(spread[0], tuple(spread[1:]), mixture.shares, model.target_variance)


def _part(data: Dataset, index: Index) -> Dataset:
    """Return a subset of the rows of a dataset."""
    assert data.rows is not None
    weights = None if data.weights is None else data.row_weights[index]
    groups = None if data.groups is None else np.asarray(data.groups, dtype=object)[index]
    return replace(data, source=RowView(data.rows, index), weights=weights, groups=groups)


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

    Finds functions f of the rows (unit norm in the kernel's space) with the largest ratio of target
    variance to background variance, with each dataset centred at its mean. It finds structure that no linear
    direction shows, such as rings and products of features. The background covariance is shrunk toward a
    multiple of the identity, which penalises the norm of f. The shrinkage depends on the number of
    background rows, so that duplicated rows change the result. Without a background it is kernel PCA.

    Parameters
    ----------
    n_components : int, None or "auto", default=2
        Number of components; None returns all that exist. "auto" counts the leading components whose
        held-out ratio over five folds is above one (lower end of its 95 % interval), at most 10.
    kernel : "rbf", "poly", "linear", "cosine" or callable, default="rbf"
        ``exp(-gamma |x - z|²)``, ``(gamma x·z + coef0)^degree``, ``x·z``, ``x·z / |x||z|``, or a function of two
        arrays of rows that returns the matrix of all pairs.
    gamma : "median", "cv" or float, default="median"
        Parameter of "rbf" and "poly". "median" is one over the median squared distance between target and
        background rows, taken together (over a sample if there are many). "cv" chooses among
        1/16, 1/4, 1, 4 and 16 times that by the held-out ratio of the first two components over five folds.
    degree : int, default=2
        Degree of "poly".
    coef0 : float, default=1.0
        Constant term of "poly"; non-negative.
    standardize : bool, default=True
        Divide each feature by its background sd before the kernel and the median distance (by its target
        sd if the background is constant; with several backgrounds by the sd in their mixture, the pooled one
        for "minimax"). A callable kernel receives the scaled rows. Without a background no scaling is applied.
        False uses the rows as given: similarity is then dominated by the features with the largest variance,
        whether or not they differ between target and background.
    shrinkage : "auto", "oas", "cv", None or float in [0, 1], default="auto"
        Shrinkage of the background covariance. "oas" uses the OAS formula. "auto" does the same,
        except that a "linear", "poly" or "cosine" kernel with ten background rows per dimension
        is not shrunk. "cv" chooses among "auto", .001, .01, .1 and .5 as gamma="cv" does
        (jointly with it). None or 0, the exact problem, is available only for kernels with fewer dimensions
        than rows: with other kernels almost every ratio would be infinite.
    mix : "pooled", "equal", "minimax" or array-like of shape (n_backgrounds,), default="pooled"
        Weights of several backgrounds in the mixture; each is centred at its own mean. "minimax" finds the
        weights that minimise the largest ratio, which gives components that stand out against every background.
    n_landmarks : int or None, default=None
        Number of rows over which components are expanded. None uses all rows, which is exact and has cubic cost
        in the number of rows; a few hundred, chosen at random (half of them target rows), suffice for any number
        of rows.
    background_label : object or list, default=None
        Rows of X with this label in y are the background (a list: several backgrounds).
    random_state : int or None, default=None
        Seed for the choice of landmarks, of the rows for the median distance and of the folds.

    Attributes
    ----------
    ratios_ : ndarray of shape (n_components,)
        Target variance over (shrunk) background variance along each component, largest first. They increase
        with the flexibility of the kernel: evaluate them on held-out rows with :meth:`score`.
    dual_coef_ : ndarray of shape (n_components, n_landmarks)
        Coefficients of each component over the landmarks:
        ``f(x) = dual_coef_ @ k(landmarks_ / scale_, x / scale_)``.
    landmarks_ : ndarray of shape (n_landmarks, n_features)
        The landmarks as given, target rows first.
    mean_ : ndarray of shape (n_landmarks,)
        Mean of ``k(landmarks_ / scale_, x / scale_)`` over the target, subtracted by transform.
    gamma_ : float
        The gamma used.
    scale_ : ndarray of shape (n_features,)
        Divisor of each feature before the kernel is applied; ones if no scaling is applied.
    target_variance_, background_variance_ : ndarray of shape (n_components,)
        Variances along each component (of the shrunk background, if it was shrunk).
    noise_edge_, p_value_, debiased_ratios_ : float, float and ndarray of shape (n_components,)
        As in DPCA if the exact problem was solved; NaN if the background was shrunk.
    shrinkage_ : float
        The shrinkage used.
    contrast_ : ndarray of shape (n_components,)
        The bounded index (λ − 1)/(λ + 1) of each ratio.
    regime_ : "exact", "structural" or "shrunk"
        Treatment of the background covariance: used unchanged, used with zero variance in some direction, or shrunk.
    mix_ : ndarray of shape (n_backgrounds,)
        The mixture weights used.
    n_components_ : int
        Number of components.
    solver_ : str
        The solver used.
    n_features_in_ : int
        Number of features seen in fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Feature names, if the data have names.

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
    landmarks_ = Fitted("landmark_rows", "The landmarks, of shape (n_landmarks, n_features).")
    gamma_ = Fitted("gamma", "The gamma used.")
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
        """Return the mean log ratio of the given rows along the fitted components.

        Use it on held-out rows to evaluate a kernel model: a score near zero means that nothing is specific to the
        target. The correction for the bias of the log of a variance assumes Gaussian scores; kernel scores
        are often skewed or heavy-tailed, and with few rows the expected score is then not exactly zero.
        A model fitted without a background (kernel PCA) is scored against unit variance.

        Parameters
        ----------
        X : array-like, frame, sparse matrix or Source, of shape (n_rows, n_features)
            Target rows; with ``background_label``, target and background rows.
        y : array-like of shape (n_rows,), optional
            Labels; used only with ``background_label``.
        background : dataset, or list or dict of datasets, optional
            Background rows.
        sample_weight, background_sample_weight : array-like of shape (n_rows,), optional
            Row weights.

        Returns
        -------
        float
        """
        X = X if isinstance(X, Moments) else open_data(X, "X")
        given = FitArguments(X, y, background, sample_weight, background_sample_weight)
        inputs = parse_inputs(given, self.background_label)
        for data in (inputs.target, *inputs.backgrounds.values()):
            if data is not None:
                _check_here(data)
            if data is not None and data.given is not None:
                raise RowsNeededError(f"{data.role}: a kernel needs rows, and moments were given. Give the rows.")
        return super().score(
            X,
            y,
            background=background,
            sample_weight=sample_weight,
            background_sample_weight=background_sample_weight,
        )

    def summary(self) -> Summary:
        """Return a summary: the kernel, ratios, and how the background was shrunk."""
        model = self._solved()
        assert isinstance(model, KernelModel)
        return summarize_kernel(model, type(self).__name__, list(self.get_feature_names_out()))

    def _check_parameters(self) -> SolveOptions:
        options = solve_options(
            n_components=self.n_components,
            shrinkage="auto" if _is_cv(self.shrinkage) else self.shrinkage,
            mix=self.mix,
            random_state=self.random_state,
        )
        if not callable(self.kernel):
            check_choice("kernel", self.kernel, KERNELS)
        if not (isinstance(self.gamma, str) and self.gamma in ("median", "cv")):
            _check_number("gamma", self.gamma, self.gamma != 0, "'median', 'cv' or a positive number")
        _check_number("coef0", self.coef0, True, "a number that is not negative")
        check_count("degree", self.degree)
        check_choice("standardize", self.standardize, (True, False))
        if self.n_landmarks is not None:
            check_count("n_landmarks", self.n_landmarks)
        if options.shrinkage in (None, 0.0) and self.kernel == "rbf":
            raise exact_refused(self.shrinkage, "the kernel 'rbf' has as many dimensions as there are rows")
        return options

    def _fit(self, matched: MatchedInputs, wanted: SolveOptions) -> Model:
        target, backgrounds = matched.inputs.target, matched.inputs.backgrounds
        assert target is not None
        data = [_rows(part) for part in (target, *backgrounds.values())]
        asked = {"`n_components='auto'`": wanted.n_components == "auto", "`gamma='cv'`": self._selects_gamma}
        asked["`shrinkage='cv'`"] = _is_cv(self.shrinkage)
        for name, needs_background in asked.items():
            if needs_background and not backgrounds:
                raise InputError(f"{name} compares target with background, and there is none. Give one, or a number.")
        if wanted.n_components != "auto":
            return self._selected(data, list(backgrounds), wanted)
        # Gamma and shrinkage are chosen separately in every fold, so that the choice cannot inflate held-out ratios.
        count, notes = count_above_one(lambda part: self._selected(part, list(backgrounds), wanted), data, wanted.seed)
        model = self._selected(data, list(backgrounds), replace(wanted, n_components=max(count, 1)))
        model = replace(model, notes=(*model.notes, *(Note(OverfitWarning, note) for note in notes)))
        return model if count else nothing_found(model)

    @property
    def _selects_gamma(self) -> bool:
        return _is_cv(self.gamma) and self.kernel in ("rbf", "poly")

    def _selected(self, data: Sequence[Dataset], names: Sequence[str], wanted: SolveOptions) -> KernelModel:
        """Choose gamma and shrinkage by held-out ratio if requested, and fit."""
        factors = _FACTORS if self._selects_gamma else (1.0,)
        shrinkages = _SHRINKAGES if _is_cv(self.shrinkage) else (wanted.shrinkage,)
        choices = list(itertools.product(factors, shrinkages))

        def fit(choice: tuple[float, str | float | None], wanted: SolveOptions) -> Fit:
            return lambda part: self._solved_for(part, names, replace(wanted, shrinkage=choice[1]), choice[0])

        chosen = choices[0]
        if len(choices) > 1:
            # A fold has fewer rows, and may have fewer components than requested: "auto" uses those that exist.
            in_fold = replace(wanted, n_components="auto")
            first = min(wanted.n_components, FIRST) if isinstance(wanted.n_components, int) else FIRST
            chosen = best(choices, lambda choice: fit(choice, in_fold), data, wanted.seed, first)
        return fit(chosen, wanted)(data)

    def _solved_for(
        self, data: Sequence[Dataset], names: Sequence[str], wanted: SolveOptions, factor: float
    ) -> KernelModel:
        """Fit with a given shrinkage, and with gamma as a given multiple of the median heuristic."""
        rng = np.random.default_rng(wanted.seed)
        scale = self._scale(data, names, wanted)
        kernel = self._kernel(data, scale, rng, factor)
        features = Features.of(Landmarks(kernel, self._landmark_rows(data, rng), scale))
        mapped = [_mapped(part, features) for part in data]
        backgrounds = dict(zip(names, mapped[1:], strict=True))
        with threads_for(10.0 * features.n_columns**3):
            return solve_kernel(mapped[0], backgrounds, features, wanted, data[0].names)

    def _scale(self, data: Sequence[Dataset], names: Sequence[str], wanted: SolveOptions) -> Array | None:
        if not self.standardize or len(data) == 1:
            return None
        mix = "pooled" if isinstance(wanted.mix, str) and wanted.mix == "minimax" else wanted.mix
        return background_scale(data[0], data[1:], Mixture.of([part.counts for part in data[1:]], mix, names))

    def _kernel(self, data: Sequence[Dataset], scale: Array | None, rng: np.random.Generator, factor: float) -> Kernel:
        gamma = 1.0
        if self.kernel in ("rbf", "poly"):
            given = isinstance(self.gamma, Real)
            gamma = float(self.gamma) if given else factor * _median_gamma(data, scale, rng)
        return Kernel(self.kernel, gamma, int(self.degree), float(self.coef0))

    def _landmark_rows(self, data: Sequence[Dataset], rng: np.random.Generator) -> Array:
        sizes = [part.counts.rows for part in data]
        if self.n_landmarks is None and sum(sizes) > _MOST_ROWS:
            raise InputError(
                f"`n_landmarks=None` makes all {sum(sizes)} rows landmarks, and their kernel matrix would take "
                f"{8 * sum(sizes) ** 2 / 1e9:.1f} GB. Give n_landmarks, for instance `n_landmarks=500`."
            )
        chosen = choose_landmarks(sizes, self.n_landmarks, rng)
        return np.vstack([_taken(part, index) for part, index in zip(data, chosen, strict=True)])


def _is_cv(value: Any) -> bool:
    return isinstance(value, str) and value == "cv"


def _check_number(name: str, value: Any, allowed: bool, possible: str) -> None:
    """Raise an error unless the value is a finite non-negative number."""
    number = isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) < math.inf
    if not (number and allowed):
        raise InputError(f"`{name}={value!r}` is not possible. Use {possible}.")


def _rows(data: Dataset) -> Dataset:
    """Return a dataset whose rows can be read in any order, without those of weight zero."""
    _check_here(data)
    if data.rows is None:
        raise RowsNeededError(
            f"{data.role}: a kernel needs rows that can be read more than once, and moments (or a source that is read "
            "only once) were given. Give the rows as an array."
        )
    check_rows(data.role, data.counts.rows)
    return data.counted()


def _check_here(data: Dataset) -> None:
    """Raise an error for rows stored on a cluster."""
    if data.source is not None and not data.source.is_local:
        raise RowsNeededError(
            f"{data.role}: a kernel compares rows with each other, and these lie on a cluster. Bring them, or a sample "
            "of them, into memory first: compute() of dask, toPandas() of Spark."
        )


def _taken(data: Dataset, index: Any) -> Array:
    """Return a subset of rows as float64, checked to be finite."""
    assert data.rows is not None
    rows = np.ascontiguousarray(data.rows.take(index), dtype=np.float64)
    with np.errstate(all="ignore"):
        if not math.isfinite(np.einsum("ij,ij->", rows, rows)):
            raise explain_non_finite(data.rows, rows, data.role)
    return rows


def _median_gamma(data: Sequence[Dataset], scale: Array | None, rng: np.random.Generator) -> float:
    """Return one over the median squared distance between target and background rows taken together."""
    sizes = [part.counts.rows for part in data]
    chosen = np.arange(sum(sizes))
    if len(chosen) > _MEDIAN_ROWS:
        chosen = np.sort(rng.choice(len(chosen), _MEDIAN_ROWS, replace=False))
    starts = np.cumsum([0, *sizes[:-1]])
    parts = [
        chosen[(chosen >= start) & (chosen < start + size)] - start for start, size in zip(starts, sizes, strict=True)
    ]
    rows = np.vstack([_taken(part, index) for part, index in zip(data, parts, strict=True)])
    weights = np.concatenate([part.row_weights[index] for part, index in zip(data, parts, strict=True)])
    return median_gamma(rows if scale is None else rows / scale, weights)


def _mapped(data: Dataset, features: Features) -> Dataset:
    """Return the moments of a dataset's features φ."""
    assert data.rows is not None
    source = KernelSource(data.rows, features, data.role)
    groups = data.groups if data.groups is not None else data.rows.groups
    return Dataset(data.role, given=Moments.of(source, weights=data.weights, groups=groups, role=data.role))
