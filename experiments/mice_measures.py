"""Measures of the mice experiment: separation of classes, validity of ratios, and effects of a duplicate column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from experiments import Array
from experiments.data.mice import TWIN, Reading
from experiments.judge import FOLDS, accuracy, right_on, silhouette
from experiments.literal import literal_components
from experiments.record import Spread
from standout import SubspacePath
from standout._base import BaseContrast
from standout._cpca import CPCA, path
from standout._dpca import DPCA
from standout._moments import Moments
from standout.errors import InputError
from standout.inference.held_out import HeldOut, held_out_ratio
from standout.inference.permutation import permutation_test

# The two alphas that the paper reports (3.5938 and 27.8256), and the grid that it states.
PAPER_ALPHAS = (10 ** (5 / 9), 10 ** (13 / 9))
PAPER_GRID = np.logspace(-3, 3, 15)
PCA, EXACT, DEFAULT, BEST, LITERAL = "PCA", "dPCA, exact", "dPCA, default", "cPCA, best of 4", "Algorithm 1 as printed"
# Number of feature orders: the result with a singular matrix depends on rounding.
_ORDERS = 20

Labels = NDArray[Any]
Axes = Callable[[Array, Array, Labels], Array]  # target, background and classes of the target → components


@dataclass(frozen=True, eq=False)
class Separation:
    """How well one method separates the classes of the target."""

    method: str
    scores: Array  # (n_target, 2), with axes fitted to all rows
    silhouette: float  # of standardised scores
    seen: Spread  # accuracy if only the classifier, not the axes, excludes the held-out mice
    unseen: Spread  # accuracy if both exclude them
    by_mouse: Array  # (n_mice,): share of its rows classified correctly if both exclude it, over the splits
    gain: float = 0.0  # over PCA, mean over mice
    p_to_pca: float = 1.0  # of the hypothesis of no gain


def separations(reading: Reading, seeds: Sequence[int]) -> list[Separation]:
    """Return how well each method separates the classes, over splits of the mice."""
    pca, *others = [_separation(method, axes, reading, seeds) for method, axes in _methods().items()]
    gains = [one.by_mouse - pca.by_mouse for one in others]
    compared = [
        replace(one, gain=float(gain.mean()), p_to_pca=paired_p(gain)) for one, gain in zip(others, gains, strict=True)
    ]
    return [pca, *compared]


def paired_p(differences: Array) -> float:
    """Return the p-value of the sign-flip test on paired differences, over all sign patterns."""
    sums = np.zeros(1)
    for size in np.abs(differences):
        sums = np.concatenate([sums - size, sums + size])
    return float(np.mean(np.abs(sums) >= abs(differences.sum()) - 1e-9))


def chance(reading: Reading, seed: int, count: int) -> Spread:
    """Return the accuracies of exact dPCA on held-out mice when classes are permuted over mice."""
    rng = np.random.default_rng(seed)
    _, first, places = np.unique(reading.mice, return_index=True, return_inverse=True)
    shuffled = (replace(reading, kinds=rng.permutation(reading.kinds[first])[places]) for _ in range(count))
    return Spread(tuple(_unseen(_methods()[EXACT], one, seed).accuracy for one in shuffled))


def search(target: Array, background: Array) -> SubspacePath:
    """Compute cPCA at the 15 alphas of the paper and select four representatives."""
    return path(target, background, values=PAPER_GRID, n_representatives=4)


def _methods() -> dict[str, Axes]:
    alphas = {f"cPCA, alpha {alpha:.3g}": _fitted(CPCA(2, alpha=alpha)) for alpha in (2.0, *PAPER_ALPHAS)}
    return {
        PCA: _fitted(CPCA(2, alpha=0.0)),
        EXACT: _fitted(DPCA(2, shrinkage=None)),
        DEFAULT: _fitted(DPCA(2)),
        "dPCA, signal": _fitted(DPCA(2, axes="signal")),
        **alphas,
        BEST: _best_of_four,
        LITERAL: lambda target, background, _: literal_components(target, background, 2),
    }


def _fitted(estimator: BaseContrast) -> Axes:
    return lambda target, background, _: estimator.fit(target, background=background).components_


def _best_of_four(target: Array, background: Array, kinds: Labels) -> Array:
    """Return the axes of the representative alpha that separates the classes best."""
    found = search(target, background)
    candidates = found.components[found.representatives]
    return np.asarray(max(candidates, key=lambda axes: _apart(target @ axes.T, kinds)))


def _apart(scores: Array, kinds: Labels) -> float:
    """Return the silhouette of the classes on standardised scores."""
    return silhouette(scores / scores.std(axis=0), kinds)


def _separation(method: str, axes: Axes, reading: Reading, seeds: Sequence[int]) -> Separation:
    components = axes(reading.target, reading.background, reading.kinds)
    scores = (reading.target - reading.target.mean(axis=0)) @ components.T
    unseen = [_unseen(axes, reading, seed) for seed in seeds]
    right = np.mean([one.right for one in unseen], axis=0)
    return Separation(
        method,
        scores,
        _apart(scores, reading.kinds),
        Spread(tuple(accuracy(scores, reading.kinds, reading.mice, seed) for seed in seeds)),
        Spread(tuple(one.accuracy for one in unseen)),
        np.array([right[reading.mice == mouse].mean() for mouse in np.unique(reading.mice)]),
    )


@dataclass(frozen=True, eq=False)
class _Unseen:
    """Accuracy of a classifier on mice excluded from both axes and classifier, in one split."""

    accuracy: float  # the mean over folds
    right: NDArray[np.bool_]  # (n_target,): whether each row is classified correctly


def _unseen(axes: Axes, reading: Reading, seed: int) -> _Unseen:
    """Hold out target mice by fold; background mice have no class and are always kept."""
    from sklearn.model_selection import StratifiedGroupKFold

    folds = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=seed)
    right = np.zeros(len(reading.target), dtype=bool)
    found = []
    for rest, held in folds.split(reading.target, reading.kinds, reading.mice):
        components = axes(reading.target[rest], reading.background, reading.kinds[rest])
        rows, new = reading.target[rest] @ components.T, reading.target[held] @ components.T
        right[held] = right_on(rows, reading.kinds[rest], new, reading.kinds[held])
        found.append(right[held].mean())
    return _Unseen(float(np.mean(found)), right)


@dataclass(frozen=True)
class Worth:
    """The largest ratio of one reading in the sample and held out, by row and by mouse."""

    reading: str
    problem: str  # "exact" or "default"
    n_features: int
    ratio: float  # in the sample
    noise_edge: float  # by rows
    p_by_rows: float  # analytic
    held_out_by_rows: Spread
    held_out_by_mouse: Spread
    intervals_with_1: int  # number of splits by mouse in which the 95 % interval of the held-out ratio contains 1
    p_shuffled_rows: float
    p_shuffled_mice: float


def worth(reading: Reading, shrinkage: str | None, seeds: Sequence[int], n_permutations: int) -> Worth:
    """Return the largest ratio in the sample, on held-out rows, and on held-out mice."""
    model = DPCA(1, shrinkage=shrinkage)
    sets = reading.target, reading.background
    model.fit(reading.target, background=reading.background)
    # Computed from the rows: the ratio of the model refers to the shrunk background.
    scores = [model.transform(rows) for rows in sets]
    ratio = float(scores[0].var() / scores[1].var())
    edge, p_value = model.noise_edge_, model.p_value_

    def held_out(**subjects: Any) -> list[HeldOut]:
        return [held_out_ratio(*sets, estimator=model, random_state=seed, **subjects) for seed in seeds]

    def shuffled(**subjects: Any) -> float:
        test = permutation_test(
            *sets, shrinkage=shrinkage, n_permutations=n_permutations, random_state=seeds[0], **subjects
        )
        return float(test.p_values[0])

    by_rows, by_mouse = held_out(), held_out(**reading.subjects)
    return Worth(
        reading.name,
        "exact" if shrinkage is None else "default",
        len(reading.features),
        ratio,
        edge,
        p_value,
        Spread(tuple(float(one.ratios[0]) for one in by_rows)),
        Spread(tuple(float(one.ratios[0]) for one in by_mouse)),
        sum(bool(one.low[0] <= 1 <= one.high[0]) for one in by_mouse),
        shuffled(),
        shuffled(**reading.subjects),
    )


@dataclass(frozen=True)
class Singular:
    """Effects of a duplicate feature on the exact problem, over several orders of the features."""

    reading: str
    n_features: int
    rank: int  # of the background covariance
    ratio: float  # largest ratio of standout, with the duplicate
    difference: float  # largest relative difference of its five largest ratios to those without the duplicate
    n_orders: int
    scipy_raises: int  # number of orders in which scipy.linalg.eigh raises
    scipy_ratios: tuple[float, ...]  # largest ratio where it does not
    literal_refuses: int  # number of orders in which the inverse of Algorithm 1 raises
    literal_cosines: tuple[float, ...]  # of its first axis with and without the duplicate, where it does not


def singular(reading: Reading) -> Singular:
    """Solve the exact problem with and without the duplicate, by standout, scipy and Algorithm 1.

    The results of the last two depend on rounding, so several orders of the features are tried.
    """
    alone = reading.without([TWIN])
    model, other = (DPCA(5, shrinkage=None).fit(rows.target, background=rows.background) for rows in (reading, alone))
    (without,) = literal_components(alone.target, alone.background, 1)
    sd = reading.background.std(axis=0)
    rng = np.random.default_rng(0)
    orders = [reading.ordered(rng.permutation(len(reading.features))) for _ in range(_ORDERS)]
    ratios = [_scipy_ratio(one) for one in orders]
    cosines = [_literal_cosine(one, alone, without) for one in orders]
    return Singular(
        reading.name,
        len(reading.features),
        int(np.linalg.matrix_rank(np.cov(reading.background.T, ddof=0) / sd / sd[:, None], hermitian=True)),
        float(model.ratios_[0]),
        float(np.max(np.abs(model.ratios_ / other.ratios_ - 1))),
        _ORDERS,
        ratios.count(None),
        tuple(ratio for ratio in ratios if ratio is not None),
        cosines.count(None),
        tuple(cosine for cosine in cosines if cosine is not None),
    )


def _scipy_ratio(reading: Reading) -> float | None:
    C_xx, C_yy = (Moments.of(rows).covariance() for rows in (reading.target, reading.background))
    try:
        return float(linalg.eigh(C_xx, C_yy, eigvals_only=True)[-1])
    except linalg.LinAlgError:
        return None


def _literal_cosine(reading: Reading, alone: Reading, without: Array) -> float | None:
    """Return the cosine between the first axes of Algorithm 1 with and without the duplicate."""
    try:
        (axis,) = literal_components(reading.target, reading.background, 1)
    except InputError:
        return None
    # Only the sum of the weights of two equal features matters.
    weights = dict(zip(reading.features, axis.tolist(), strict=True))
    weights[_double(reading)] += weights.pop(TWIN)
    merged = np.array([weights[name] for name in alone.features])
    size = float(np.linalg.norm(merged))
    return abs(float(merged @ without)) / size if size > 0 else 0.0


def _double(reading: Reading) -> str:
    """Return the feature that equals the duplicate."""
    twin = reading.target[:, [reading.features.index(TWIN)]]
    same = np.flatnonzero((reading.target == twin).all(axis=0))
    return next(reading.features[place] for place in same if reading.features[place] != TWIN)


@dataclass(frozen=True)
class GridCheck:
    """Whether the alphas of the paper are on the grid that it states."""

    alphas: tuple[float, ...]
    nearest: tuple[float, ...]  # on the grid
    smallest_grid: int  # size of the smallest logarithmic grid from 0.001 to 1000 that contains both


def grid_check() -> GridCheck:
    """Compare the paper's alphas with its grid."""
    nearest = [float(PAPER_GRID[np.abs(np.log(PAPER_GRID / alpha)).argmin()]) for alpha in PAPER_ALPHAS]

    def holds(count: int) -> bool:
        places = (np.log10(PAPER_ALPHAS) + 3) / (6 / (count - 1))
        return bool(np.abs(places - places.round()).max() < 1e-9)

    return GridCheck(PAPER_ALPHAS, tuple(nearest), next(count for count in range(2, 1000) if holds(count)))


@dataclass(frozen=True)
class Found:
    """All results of the experiment."""

    main: list[tuple[Reading, list[Separation]]]
    others: list[tuple[Reading, list[Separation]]]
    chance: dict[str, Spread]  # accuracies with permuted classes, for each main reading
    worth: list[Worth]
    singular: list[Singular]
    alphas: dict[str, list[float]]  # representatives of the 15 alphas, for each reading
    grid: GridCheck
