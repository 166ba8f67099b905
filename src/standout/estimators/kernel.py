"""Kernel dPCA as a scikit-learn estimator: linear dPCA on the features of a kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from standout.blas import Array, threads_for
from standout.dataset import Dataset
from standout.errors import InputError, RowsNeededError
from standout.estimators.base import Contrast
from standout.estimators.dpca import DPCA
from standout.estimators.fitted import Fitted
from standout.estimators.kernel_model import KernelModel, exact_refused, solve_kernel, summarize_kernel
from standout.inputs import Given, Matched, sort_out
from standout.kernels import KERNELS, Features, Kernel, KernelSource, Landmarks, choose_landmarks, median_gamma
from standout.model import Model
from standout.moments import Moments
from standout.parameters import check_choice, check_count, wanted_from
from standout.solve import Wanted, check_rows
from standout.sources import has_moments, is_lazy, opened
from standout.sources.locate import explain_non_finite
from standout.summary import Summary

# The kernel matrix of more rows than this takes gigabytes: landmarks must then be asked for.
_MOST_ROWS = 10_000
# Rows the median distance is taken over: its error is then a few percent, less than it matters.
_MEDIAN_ROWS = 500


class _Absent:
    """An attribute of the linear estimators that has no meaning here: looking for it says why."""

    def __init__(self, why: str):
        self.why = why

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, estimator: Any, owner: type | None = None) -> Any:
        raise AttributeError(f"KernelDPCA has no {self.name}: {self.why}")


_NO_FEATURES = "its components are functions, not directions among the features. Use transform and dual_coef_."


class KernelDPCA(Contrast):
    """Discriminative PCA in the feature space of a kernel: functions that vary in the target only.

    Finds functions f of the rows (unit norm in the kernel's space) with the largest ratio of target
    variance to background variance, each dataset about its own mean. It sees what no direction shows:
    rings, products of features. The background covariance is shrunk toward a multiple of the identity,
    which penalises the norm of f and makes the result independent of how often rows are repeated.
    Without a background it is kernel PCA.

    Parameters
    ----------
    n_components : int or None, default=2
        How many components; None gives all that exist.
    kernel : "rbf", "poly", "linear", "cosine" or callable, default="rbf"
        ``exp(-gamma |x - z|²)``, ``(gamma x·z + coef0)^degree``, ``x·z``, ``x·z / |x||z|``, or a function of two
        arrays of rows that returns the matrix of all pairs.
    gamma : "median" or float, default="median"
        Of "rbf" and "poly". "median" is one over the median squared distance between target and
        background rows, taken together (over a sample of them where there are many).
    degree : int, default=2
        Of "poly".
    coef0 : float, default=1.0
        Of "poly"; not negative.
    shrinkage : "auto", "oas", None or float in [0, 1], default="auto"
        How much the background covariance is shrunk. "oas" follows the OAS formula. "auto" does the same,
        except that a "linear", "poly" or "cosine" kernel with ten background rows for each of its
        dimensions needs no shrinking. None or 0, the exact problem, exists for such kernels only: with
        the others almost every ratio would be infinite.
    mix : "pooled", "equal" or array-like of shape (n_backgrounds,), default="pooled"
        Shares of several backgrounds in the whole; each keeps its own mean.
    n_landmarks : int or None, default=None
        How many rows carry the components. None takes all rows, which is exact and costs their number
        cubed; a few hundred, chosen at random (half of them target rows), serve any number of rows.
    background_label : object or list, default=None
        Rows of X with this label in y are the background (a list: several backgrounds).
    random_state : int or None, default=None
        Seed of the choice of landmarks and of the rows for the median distance.

    Attributes
    ----------
    ratios_ : ndarray of shape (n_components,)
        Target variance over (shrunk) background variance along each component, largest first. They grow
        with the flexibility of the kernel: judge them on other rows, with :meth:`score`.
    dual_coef_ : ndarray of shape (n_components, n_landmarks)
        Coefficients of each component over the landmarks: ``f(x) = dual_coef_ @ k(landmarks_, x)``.
    landmarks_ : ndarray of shape (n_landmarks, n_features)
        The landmarks, target rows first.
    mean_ : ndarray of shape (n_landmarks,)
        Mean of ``k(landmarks_, x)`` over the target: what transform subtracts.
    gamma_ : float
        The gamma used.
    target_variance_, background_variance_ : ndarray of shape (n_components,)
        Variances along each component (of the shrunk background, where it was shrunk).
    noise_edge_, p_value_, debiased_ratios_ : float, float and ndarray of shape (n_components,)
        As in DPCA where the exact problem was solved; NaN where the background was shrunk.
    shrinkage_ : float
        The shrinkage used.
    contrast_ : ndarray of shape (n_components,)
        The bounded index (λ − 1)/(λ + 1) of each ratio.
    regime_ : "exact", "structural" or "shrunk"
        What became of the background covariance.
    mix_ : ndarray of shape (n_backgrounds,)
        The shares used.
    n_components_ : int
        Number of components.
    solver_ : str
        The solver used.
    n_features_in_ : int
        Number of features seen in fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Their names, where the data has names.

    Notes
    -----
    ``components_``, ``patterns_``, ``top_features``, ``inverse_transform`` and ``partial_fit`` do not exist here:
    components are functions and not directions, and they rest on rows, which moments do not keep.

    Examples
    --------
    Two rings in the target, one in the background, all of them in a plane beside a large common direction:

    >>> import numpy as np
    >>> from standout.estimators.kernel import KernelDPCA
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
    components_ = _Absent(_NO_FEATURES)
    patterns_ = _Absent(_NO_FEATURES)
    top_features = _Absent(_NO_FEATURES)
    inverse_transform = _Absent("a score does not say which row it came from. Look for rows with like scores instead.")
    partial_fit = _Absent("its components rest on rows, and batches keep moments only. Use fit, with n_landmarks.")

    # What DPCA lets one choose and a kernel settles; the base looks at these.
    centering, features = "own", "all"

    def __init__(
        self,
        n_components: int | None = 2,
        *,
        kernel: str | Callable[[Array, Array], Any] = "rbf",
        gamma: str | float = "median",
        degree: int = 2,
        coef0: float = 1.0,
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

        On rows the fit has not seen, zero means nothing specific to the target: the honest measure of a
        kernel model. A model fitted without a background (kernel PCA) is scored against unit variance.

        Parameters
        ----------
        X : array-like, frame, sparse matrix or Source, of shape (n_rows, n_features)
            Target rows; with ``background_label``, target and background rows.
        y : array-like of shape (n_rows,), optional
            Labels; used with ``background_label`` only.
        background : dataset, or list or dict of datasets, optional
            Background rows.
        sample_weight, background_sample_weight : array-like of shape (n_rows,), optional
            Row weights.

        Returns
        -------
        float
        """
        X = opened(X, "X")
        given = Given(X, y, background, sample_weight, background_sample_weight)
        inputs = sort_out(given, self.background_label)
        for data in (inputs.target, *inputs.backgrounds.values()):
            if data is not None:
                _check_here(data)
            if data is not None and (data.given is not None or has_moments(data.source)):
                raise RowsNeededError(f"{data.role}: a kernel needs rows, and moments were given. Give the rows.")
        return super().score(
            X,
            y,
            background=background,
            sample_weight=sample_weight,
            background_sample_weight=background_sample_weight,
        )

    def summary(self) -> Summary:
        """Return the model in words: the kernel, ratios, and what was shrunk."""
        model = self._solved()
        assert isinstance(model, KernelModel)
        return summarize_kernel(model, type(self).__name__, list(self.get_feature_names_out()))

    def _wanted(self) -> Wanted:
        """Return what is asked for in the words that DPCA has too, checked by its rules."""
        same = DPCA(self.n_components, shrinkage=self.shrinkage, mix=self.mix, random_state=self.random_state)
        wanted = wanted_from(same)
        if isinstance(wanted.mix, str):
            check_choice("mix", wanted.mix, ("pooled", "equal"))
        if wanted.n_components == "auto":
            raise InputError(
                "n_components='auto' is not possible: the noise edge of kernel features is not known. Use a whole "
                "number from 1 on, or None (all)."
            )
        return wanted

    def _check_parameters(self) -> None:
        wanted = self._wanted()
        if not callable(self.kernel):
            check_choice("kernel", self.kernel, KERNELS)
        if not isinstance(self.gamma, str) or self.gamma != "median":
            _check_number("gamma", self.gamma, self.gamma != 0, "'median' or a positive number")
        _check_number("coef0", self.coef0, True, "a number that is not negative")
        check_count("degree", self.degree)
        if self.n_landmarks is not None:
            check_count("n_landmarks", self.n_landmarks)
        if wanted.shrinkage in (None, 0.0) and self.kernel == "rbf":
            raise exact_refused(self.shrinkage, "the kernel 'rbf' has as many dimensions as there are rows")

    def _fit(self, matched: Matched) -> Model:
        target = matched.inputs.target
        assert target is not None
        wanted = self._wanted()
        data = [_rows(part) for part in (target, *matched.inputs.backgrounds.values())]
        rng = np.random.default_rng(wanted.seed)
        landmarks = Landmarks(self._kernel(data, rng), self._landmark_rows(data, rng))
        features = Features.of(landmarks)
        mapped = [_mapped(part, features) for part in data]
        backgrounds = dict(zip(matched.inputs.backgrounds, mapped[1:], strict=True))
        with threads_for(10.0 * features.n_columns**3):
            return solve_kernel(mapped[0], backgrounds, features, wanted, target.names)

    def _kernel(self, data: list[Dataset], rng: np.random.Generator) -> Kernel:
        gamma = 1.0
        if self.kernel in ("rbf", "poly"):
            gamma = _median_gamma(data, rng) if self.gamma == "median" else float(self.gamma)
        return Kernel(self.kernel, gamma, int(self.degree), float(self.coef0))

    def _landmark_rows(self, data: list[Dataset], rng: np.random.Generator) -> Array:
        sizes = [part.counts.rows for part in data]
        if self.n_landmarks is None and sum(sizes) > _MOST_ROWS:
            raise InputError(
                f"n_landmarks=None makes all {sum(sizes)} rows landmarks, and their kernel matrix would take "
                f"{8 * sum(sizes) ** 2 / 1e9:.1f} GB. Give n_landmarks, for instance n_landmarks=500."
            )
        chosen = choose_landmarks(sizes, self.n_landmarks, rng)
        return np.vstack([_taken(part, index) for part, index in zip(data, chosen, strict=True)])


def _check_number(name: str, value: Any, allowed: bool, possible: str) -> None:
    """Refuse what is not a finite number from zero on."""
    number = isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) < math.inf
    if not (number and allowed):
        raise InputError(f"{name}={value!r} is not possible. Use {possible}.")


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
    """Refuse rows that lie on a cluster."""
    if is_lazy(data.source):
        raise RowsNeededError(
            f"{data.role}: a kernel compares rows with each other, and these lie on a cluster. Bring them, or a sample "
            "of them, into memory first: compute() of dask, toPandas() of Spark."
        )


def _taken(data: Dataset, index: Any) -> Array:
    """Return some rows as float64, all finite."""
    assert data.rows is not None
    rows = np.ascontiguousarray(data.rows.take(index), dtype=np.float64)
    with np.errstate(all="ignore"):
        if not math.isfinite(np.einsum("ij,ij->", rows, rows)):
            raise explain_non_finite(data.rows, rows, data.role)
    return rows


def _median_gamma(data: list[Dataset], rng: np.random.Generator) -> float:
    """Return one over the median squared distance of target and background rows together."""
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
    return median_gamma(rows, weights)


def _mapped(data: Dataset, features: Features) -> Dataset:
    """Return the moments of a dataset's features φ."""
    assert data.rows is not None
    source = KernelSource(data.rows, features, data.role)
    groups = data.groups if data.groups is not None else data.rows.groups
    return Dataset(data.role, given=Moments.of(source, weights=data.weights, groups=groups, role=data.role))
