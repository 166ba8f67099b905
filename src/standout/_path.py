"""Paths: a subspace that depends on one number, followed from one pair of moments.

For contrastive PCA the number is alpha (0 is PCA), for discriminative PCA the shrinkage of the background
(0 is exact dPCA, 1 is PCA in background-sd units). Along a path most subspaces are alike: their similarity
groups them, and one of each group stands for the others (Abid et al. 2018).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from standout._blas import Array, threads_for, top_eigen
from standout._dataset import Dataset, Mixture
from standout._inputs import FitArguments, check_choice, check_count, match_features, parse_inputs, seed_from
from standout.errors import InputError
from standout.solvers import contrastive, solution
from standout.solvers.choose import solve
from standout.solvers.contrastive import Reduced
from standout.solvers.problem import Problem, SolveOptions, too_many
from standout.solvers.solution import Solution

# Steps of a path, besides the one at zero.
_STEPS = 40
# The natural grid begins this far below its end: there, alpha changes nothing yet.
_SPAN = 1e-3
GRIDS = ("natural", "abid", "paper")
AFFINITIES = ("features", "scores")


@dataclass(frozen=True, eq=False)
class SubspacePath:
    """Subspaces along one number, how alike they are, and those that stand for the others.

    Attributes
    ----------
    over : "alpha" or "shrinkage"
        What the number is.
    values : ndarray of shape (n_values,)
        The number at each step, ascending.
    components : ndarray of shape (n_values, n_components, n_features)
        The components at each step: of :class:`standout.CPCA` or of :class:`standout.DPCA`.
    similarity : ndarray of shape (n_values, n_values)
        Product of the cosines of the principal angles between the subspaces, from 0 to 1.
    labels : ndarray of shape (n_values,)
        The cluster of each step, numbered along the path.
    representatives : ndarray of shape (n_representatives,)
        Positions in ``values`` of the one step that stands for each cluster, ascending: the medoid, and
        alpha = 0 for the cluster that holds it.

    Examples
    --------
    >>> import numpy as np
    >>> import standout
    >>> rng = np.random.default_rng(0)
    >>> background = rng.normal(size=(500, 4)) * [9, 3, 1, 1]
    >>> target = rng.normal(size=(500, 4)) * [9, 3, 1, 4]
    >>> found = standout.path(target, background, n_components=1, n_representatives=2)
    >>> found.components.shape
    (41, 1, 4)
    >>> found.representative_values[0]               # PCA, and its first axis
    np.float64(0.0)
    >>> int(np.abs(found.components[0, 0]).argmax())
    0
    >>> int(np.abs(found.components[found.pick, 0]).argmax())      # what the background has not
    3
    """

    over: str
    values: Array
    components: Array
    similarity: Array
    labels: NDArray[np.intp]
    representatives: NDArray[np.intp]

    @property
    def representative_values(self) -> Array:
        """The number at the representatives."""
        return self.values[self.representatives]

    @property
    def pick(self) -> int:
        """Position of one step to take: the representative of the largest cluster that does not hold zero."""
        sizes = np.bincount(self.labels)
        if self.values[0] == 0:
            sizes[self.labels[0]] = 0
        best = int(np.argmax(sizes[self.labels[self.representatives]]))
        return int(self.representatives[best])

    def widened(self, kept: NDArray[np.intp], n_features: int) -> SubspacePath:
        """Return the path among all features of the target; those not kept have no weight."""
        components = np.zeros((*self.components.shape[:2], n_features))
        components[..., kept] = self.components
        return replace(self, components=components)


@dataclass(frozen=True)
class Grouping:
    """How steps are compared and how many are to stand for them."""

    affinity: str = "features"
    n_representatives: int = 4
    seed: int = 0


def path(
    target: Any,
    background: Any,
    *,
    over: str = "alpha",
    values: str | ArrayLike | None = None,
    n_components: int = 2,
    n_representatives: int = 4,
    affinity: str = "features",
    mix: str | ArrayLike = "pooled",
    centering: str = "own",
    features: str = "all",
    random_state: Any = None,
) -> SubspacePath:
    """Follow the components of a target against backgrounds along alpha or shrinkage.

    Parameters
    ----------
    target : array-like, frame, sparse matrix, Source or Moments, of shape (n_rows, n_features)
        The target; for weights or groups give ``Moments.of(rows, weights=...)``.
    background : dataset, or list or dict of datasets
        The background(s), on the same features.
    over : "alpha" or "shrinkage", default="alpha"
        alpha: the components of contrastive PCA. shrinkage: those of discriminative PCA.
    values : str or array-like of shape (n_values,), optional
        The steps. For alpha "natural" (the default; 0 and 40 geometric steps to the largest ratio, beyond
        which every direction has more background than target), "abid" (0 and 40 steps from 0.1 to 1000),
        "paper" (15 steps from 0.001 to 1000) or numbers from 0 on. For shrinkage numbers from 0 to 1; by
        default 0, where the exact problem has an answer, and 40 geometric steps from 0.001 to 1.
    n_components : int, default=2
        Dimension of the subspaces.
    n_representatives : int, default=4
        How many clusters to make of the steps; there may be fewer.
    affinity : "features" or "scores", default="features"
        Where angles between subspaces are measured: among directions of the features (for shrinkage in
        background-sd units), or among the scores of the target, as the package ``contrastive`` does.
    mix, centering, features
        As for :class:`standout.DPCA`.
    random_state : int or None, default=None
        Seed of the clustering; None is 0, so that the same data give the same path.

    Returns
    -------
    SubspacePath

    Examples
    --------
    >>> import numpy as np
    >>> import standout
    >>> rng = np.random.default_rng(0)
    >>> background = rng.normal(size=(300, 4)) * [9, 3, 1, 1]
    >>> target = rng.normal(size=(200, 4)) * [9, 3, 1, 4]
    >>> found = standout.path(target, background, over="shrinkage", values=[0, 0.1, 0.5, 1], n_components=1)
    >>> found.similarity[0].round(1)
    array([1., 1., 1., 1.])
    """
    check_choice("over", over, ("alpha", "shrinkage"))
    check_choice("affinity", affinity, AFFINITIES)
    check_choice("centering", centering, ("own", "background"))
    check_choice("features", features, ("all", "common"))
    if over == "alpha":
        values = check_grid("values", "natural" if values is None else values)
    elif values is not None:
        values = _check_numbers("values", values, 1.0)
    grouping = Grouping(affinity, check_count("n_representatives", n_representatives), seed_from(random_state))
    if isinstance(mix, str):
        check_choice("mix", mix, ("pooled", "equal", "minimax"))
    wanted = SolveOptions(check_count("n_components", n_components), mix=mix, own_centre=centering == "own")
    if background is None:
        raise InputError("background: a path goes from target to background, and none was given. Give background=.")
    inputs = parse_inputs(FitArguments(target, background=background))
    if inputs.target is None:
        raise InputError("target: no rows were given. Give the target's rows, or its Moments.")
    names, n_features = inputs.target.names, inputs.target.n_features
    matched = match_features(inputs, names, n_features, features)
    for note in matched.notes:
        warnings.warn(note.text, note.category, stacklevel=2)
    data = matched.inputs.target
    assert data is not None
    problem = PathProblem.of(data, list(matched.inputs.backgrounds.values()), replace(wanted, seed=grouping.seed))
    with problem.threads():
        found = along_alpha(problem, values, grouping) if over == "alpha" else _along_shrinkage(
            problem, values, grouping
        )  # fmt: skip
    return found if matched.kept is None else found.widened(matched.kept, n_features)


@dataclass(frozen=True)
class PathProblem:
    """A target against backgrounds, and the answer of dPCA to it: what ends the natural grid."""

    task: Problem
    mixture: Mixture
    solution: Solution  # the first component of the default dPCA

    @classmethod
    def of(cls, target: Dataset, backgrounds: Sequence[Dataset], wanted: SolveOptions) -> PathProblem:
        """Solve the dPCA problem and keep its mixture of the backgrounds.

        Shrinkage is toward the diagonal: what follows combines the two covariances linearly.
        """
        asked = replace(
            wanted, n_components=1, shrinkage="diagonal" if wanted.shrinkage == "auto" else wanted.shrinkage
        )
        with _threads(target, backgrounds):
            solution, mixture = solve(target, backgrounds, asked)
        assert mixture is not None
        return cls(Problem(target, backgrounds, mixture, replace(wanted, mix=mixture.shares)), mixture, solution)

    def threads(self) -> Any:
        """Give a context with as many threads as the problem deserves."""
        return _threads(self.task.target, self.task.backgrounds)

    def top_ratio(self) -> float:
        """Return the largest ratio of dPCA, of the shrunk one where it is infinite."""
        if self.solution.n_infinite == 0:
            return float(self.solution.ratios[0])
        asked = replace(self.task.wanted, n_components=1, shrinkage="oas")
        shrunk, _ = solve(self.task.target, self.task.backgrounds, asked)
        return float(shrunk.ratios[0])

    def count(self, rank: int) -> int:
        """Return the number of components asked for; None is all that exist."""
        limit = min(rank, self.task.target_dimensions)
        wanted = self.task.wanted.n_components
        if wanted is None:
            return limit
        assert isinstance(wanted, int)
        if wanted > limit:
            raise too_many(wanted, limit, self.task)
        return wanted


def _threads(target: Dataset, backgrounds: Sequence[Dataset]) -> Any:
    rows = sum(data.counts.rows for data in (target, *backgrounds))
    size = min(target.n_features, rows)
    return threads_for(size**2 * (max(target.n_features, rows) + 10.0 * size))


def check_grid(name: str, grid: Any) -> str | Array:
    """Return a grid of alphas by its name or as ascending numbers, or say what is wrong."""
    if isinstance(grid, str):
        check_choice(name, grid, GRIDS)
        return grid
    return _check_numbers(name, grid, np.inf)


def _check_numbers(name: str, values: Any, most: float) -> Array:
    given = np.asarray(values)
    told = "from 0 on" if most == np.inf else f"from 0 to {most:g}"
    if given.ndim != 1 or len(given) == 0 or given.dtype.kind not in "fiu":
        raise InputError(
            f"{name}: an array of shape {given.shape} and type {given.dtype} is no list of numbers. "
            f"Give numbers {told}{', or one of ' + ', '.join(map(repr, GRIDS)) if most == np.inf else ''}."
        )
    if not np.isfinite(given).all() or given.min() < 0 or given.max() > most:
        raise InputError(f"{name}: numbers from {given.min():g} to {given.max():g} were given. Use numbers {told}.")
    return np.unique(given.astype(np.float64))


def _alphas(grid: str | Array, problem: PathProblem) -> Array:
    if not isinstance(grid, str):
        return grid
    if grid == "paper":
        return np.logspace(-3, 3, 15)
    if grid == "abid":
        return np.concatenate([[0.0], np.logspace(-1, 3, _STEPS)])
    top = problem.top_ratio()
    return np.concatenate([[0.0], np.geomspace(_SPAN * top, top, _STEPS)])


def along_alpha(problem: PathProblem, grid: Any, grouping: Grouping, reduced: Reduced | None = None) -> SubspacePath:
    """Follow contrastive PCA along alpha.

    Parameters
    ----------
    problem : Problem
        Target and backgrounds.
    grid : str or ndarray
        A grid of alphas, as checked by :func:`check_grid`.
    grouping : Grouping
        How to compare and cluster the steps.
    reduced : Reduced, optional
        The problem on its joint range, where that is known already.

    Returns
    -------
    SubspacePath
    """
    reduced = contrastive.reduced(problem.task) if reduced is None else reduced
    alphas = _alphas(grid, problem)
    count = problem.count(reduced.rank)
    vectors = [contrastive.top_vectors(reduced, alpha, count, grouping.seed) for alpha in alphas]
    filters = [contrastive.components(reduced, basis).filters.T for basis in vectors]
    return _grouped("alpha", alphas, np.stack(filters), np.stack(vectors), reduced.target, grouping)


def _along_shrinkage(problem: PathProblem, values: Any, grouping: Grouping) -> SubspacePath:
    """Follow dPCA along shrinkage: one eigendecomposition of the background, then a rescaling for each step."""
    reduced = contrastive.reduced(problem.task, standardised=True)
    count = problem.count(reduced.rank)
    if values is None:
        has_answer = problem.mixture.rows >= reduced.rank
        values = np.concatenate([[0.0] if has_answer else [], np.geomspace(1e-3, 1, _STEPS)])
    spread, axes = top_eigen(reduced.background, reduced.rank)
    inside = axes.T @ reduced.target @ axes
    steps = []
    for rho in values[values > 0]:
        root = np.sqrt((1 - rho) * spread.clip(min=0.0) + rho)
        ratios, turned = contrastive.top_pairs(inside / root / root[:, None], count, grouping.seed)
        steps.append((ratios, turned / root[:, None], turned * root[:, None]))
    filters, vectors = _in_units(reduced, axes, steps)
    if values[0] == 0:
        # The exact problem may be singular or ill-conditioned, which its own solvers know how to handle.
        exact = _exact(problem, count)
        filters, vectors = [exact.filters.T, *filters], [_into(reduced, exact), *vectors]
    return _grouped("shrinkage", values, np.stack(filters), np.stack(vectors), reduced.target, grouping)


def _in_units(
    reduced: Reduced, axes: Array, steps: Sequence[tuple[Array, Array, Array]]
) -> tuple[list[Array], list[Array]]:
    """Return the filters of each step in the data's units, and its vectors in the coordinates of the problem."""
    if not steps:
        return [], []
    # All steps in one product: products between the steps of the Lanczos solver would fight it for threads.
    inner = axes @ np.hstack([vectors for _, vectors, _ in steps])
    image = reduced.lifted(axes @ np.hstack([images for _, _, images in steps]))
    target = reduced.lifted(reduced.target @ inner)
    vectors = np.split(inner, len(steps), axis=1)
    parts = zip(vectors, np.split(target, len(steps), axis=1), np.split(image, len(steps), axis=1), strict=True)
    filters = []
    for (ratios, _, _), (own, seen, background) in zip(steps, parts, strict=True):
        eigen = solution.Eigenpairs(ratios, reduced.lifted(own), seen, background)
        filters.append(solution.components(eigen, reduced.frame, len(ratios)).filters.T)
    return filters, vectors


def _exact(problem: PathProblem, count: int) -> Solution:
    asked = replace(problem.task.wanted, n_components=count, shrinkage=0.0)
    return solve(problem.task.target, problem.task.backgrounds, asked)[0]


def _into(reduced: Reduced, solution: Solution) -> Array:
    """Return components of the data's units in the coordinates of a reduced problem."""
    inside = solution.filters[reduced.frame.alive] * reduced.frame.alive_scale[:, None]
    return inside if reduced.basis is None else np.asarray(reduced.basis.T @ inside)


def _grouped(
    over: str, values: Array, components: Array, bases: Array, metric: Array, grouping: Grouping
) -> SubspacePath:
    similarity = contrastive.subspace_similarity(bases, metric if grouping.affinity == "scores" else None)
    labels = _clusters(similarity, grouping)
    chosen = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        within = similarity[np.ix_(members, members)].sum(axis=0)
        # PCA stands for those that are like it; of the others, the one that is most like the rest.
        pca = over == "alpha" and values[members[0]] == 0
        chosen.append(members[0] if pca else members[np.argmax(within)])
    return SubspacePath(over, values, components, similarity, labels, np.sort(np.array(chosen, dtype=np.intp)))


def _clusters(similarity: Array, grouping: Grouping) -> NDArray[np.intp]:
    """Return a cluster for each step, numbered in the order in which the path meets them."""
    count, number = grouping.n_representatives, len(similarity)
    if count >= number:
        return np.arange(number)
    if count == 1:
        return np.zeros(number, dtype=np.intp)
    from sklearn.cluster import SpectralClustering

    with warnings.catch_warnings():
        # Subspaces at right angles and fewer kinds of them than clusters are no fault of the caller.
        warnings.simplefilter("ignore")
        clustering = SpectralClustering(count, affinity="precomputed", random_state=grouping.seed)
        found = clustering.fit(similarity).labels_
    _, first, place = np.unique(found, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[place], dtype=np.intp)
