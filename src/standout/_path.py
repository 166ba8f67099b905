"""Paths of subspaces along one parameter, computed from one pair of moments.

For contrastive PCA the parameter is alpha (0 is PCA), for discriminative PCA the shrinkage of the background (0 is
exact dPCA, 1 is PCA in background-sd units). Most subspaces along a path are similar: they are clustered by their
similarity, and each cluster is represented by one of them (Abid et al. 2018).
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

# Number of steps of a path, in addition to zero.
_STEPS = 40
# First positive alpha of the natural grid, relative to its last: a smaller alpha hardly differs from zero.
_SPAN = 1e-3
GRIDS = ("natural", "abid", "paper")
AFFINITIES = ("features", "scores")


@dataclass(frozen=True, eq=False)
class SubspacePath:
    """Subspaces along one parameter, their similarity, and a representative of each cluster.

    Attributes
    ----------
    over : "alpha" or "shrinkage"
        The parameter.
    values : ndarray of shape (n_values,)
        Its value at each step, ascending.
    components : ndarray of shape (n_values, n_components, n_features)
        The components at each step: of :class:`standout.CPCA` or of :class:`standout.DPCA`.
    similarity : ndarray of shape (n_values, n_values)
        Product of the cosines of the principal angles between the subspaces, from 0 to 1.
    labels : ndarray of shape (n_values,)
        The cluster of each step, numbered along the path.
    representatives : ndarray of shape (n_representatives,)
        Positions in ``values`` of the representative of each cluster, ascending: the medoid, and alpha = 0 for the
        cluster that contains it.

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
    >>> found.representative_values[0]               # PCA
    np.float64(0.0)
    >>> int(np.abs(found.components[0, 0]).argmax())
    0
    >>> int(np.abs(found.components[found.pick, 0]).argmax())      # varies in the target only
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
        """Values of the parameter at the representatives."""
        return self.values[self.representatives]

    @property
    def pick(self) -> int:
        """Position of the representative of the largest cluster that does not contain zero."""
        sizes = np.bincount(self.labels)
        if self.values[0] == 0:
            sizes[self.labels[0]] = 0
        best = int(np.argmax(sizes[self.labels[self.representatives]]))
        return int(self.representatives[best])

    def widened(self, kept: NDArray[np.intp], n_features: int) -> SubspacePath:
        """Return the path for all features of the target; features that were not used have weight zero."""
        components = np.zeros((*self.components.shape[:2], n_features))
        components[..., kept] = self.components
        return replace(self, components=components)


@dataclass(frozen=True)
class Grouping:
    """How steps are compared and clustered."""

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
    """Compute the components of a target against backgrounds along alpha or shrinkage.

    Parameters
    ----------
    target : array-like, frame, sparse matrix, Source or Moments, of shape (n_rows, n_features)
        The target; for weights or groups give ``Moments.of(rows, weights=...)``.
    background : dataset, or list or dict of datasets
        The background(s), on the same features.
    over : "alpha" or "shrinkage", default="alpha"
        alpha: the components of contrastive PCA. shrinkage: those of discriminative PCA.
    values : str or array-like of shape (n_values,), optional
        The steps. For alpha "natural" (the default; 0 and 40 geometric steps to the largest ratio, above which every
        direction has more background than target variance), "abid" (0 and 40 steps from 0.1 to 1000), "paper" (15
        steps from 0.001 to 1000) or numbers from 0 on. For shrinkage numbers from 0 to 1; by default 0, if the exact
        problem has a solution, and 40 geometric steps from 0.001 to 1.
    n_components : int, default=2
        Dimension of the subspaces.
    n_representatives : int, default=4
        Number of clusters; there may be fewer.
    affinity : "features" or "scores", default="features"
        Whether angles are measured between directions of the features (for shrinkage in background-sd units), or
        between the scores of the target, as in the package ``contrastive``.
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
    options = SolveOptions(
        check_count("n_components", n_components), mix=mix, own_centre=centering == "own", seed=grouping.seed
    )
    if background is None:
        raise InputError("background: a path compares target and background, and none was given. Give background=.")
    inputs = parse_inputs(FitArguments(target, background=background))
    if inputs.target is None:
        raise InputError("target: no rows were given. Give the rows of the target, or its Moments.")
    n_features = inputs.target.n_features
    matched = match_features(inputs, inputs.target.names, n_features, features)
    for note in matched.notes:
        warnings.warn(note.text, note.category, stacklevel=2)
    assert matched.inputs.target is not None
    problem = PathProblem.of(matched.inputs.target, list(matched.inputs.backgrounds.values()), options)
    with problem.threads():
        found = (along_alpha if over == "alpha" else _along_shrinkage)(problem, values, grouping)
    return found if matched.kept is None else found.widened(matched.kept, n_features)


@dataclass(frozen=True)
class PathProblem:
    """A target against backgrounds, and its first dPCA component, whose ratio ends the natural grid."""

    task: Problem
    mixture: Mixture
    solution: Solution  # the first component of the default dPCA

    @classmethod
    def of(cls, target: Dataset, backgrounds: Sequence[Dataset], wanted: SolveOptions) -> PathProblem:
        """Solve the dPCA problem and keep its mixture of the backgrounds.

        Shrinkage is toward the diagonal, because the path combines the two covariances linearly.
        """
        shrinkage = "diagonal" if wanted.shrinkage == "auto" else wanted.shrinkage
        with _threads(target, backgrounds):
            solution, mixture = solve(target, backgrounds, replace(wanted, n_components=1, shrinkage=shrinkage))
        assert mixture is not None
        return cls(Problem(target, backgrounds, mixture, replace(wanted, mix=mixture.shares)), mixture, solution)

    def threads(self) -> Any:
        """Return a context with the number of threads that suits the size of the problem."""
        return _threads(self.task.target, self.task.backgrounds)

    def solved(self, n_components: int, shrinkage: str | float) -> Solution:
        """Return the dPCA solution for this number of components and shrinkage."""
        options = replace(self.task.wanted, n_components=n_components, shrinkage=shrinkage)
        return solve(self.task.target, self.task.backgrounds, options)[0]

    def count(self, rank: int) -> int:
        """Return the requested number of components; None is as many as there are."""
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
    """Return the name of a grid of alphas, or ascending numbers."""
    if isinstance(grid, str):
        check_choice(name, grid, GRIDS)
        return grid
    return _check_numbers(name, grid, np.inf)


def _check_numbers(name: str, values: Any, largest: float) -> Array:
    given = np.asarray(values)
    allowed = "from 0 on" if largest == np.inf else f"from 0 to {largest:g}"
    if given.ndim != 1 or len(given) == 0 or given.dtype.kind not in "fiu":
        raise InputError(
            f"{name}: an array of shape {given.shape} and type {given.dtype} is not a list of numbers. "
            f"Give numbers {allowed}{', or one of ' + ', '.join(map(repr, GRIDS)) if largest == np.inf else ''}."
        )
    if not np.isfinite(given).all() or given.min() < 0 or given.max() > largest:
        raise InputError(f"{name}: found numbers from {given.min():g} to {given.max():g}. Use numbers {allowed}.")
    return np.unique(given.astype(np.float64))


def along_alpha(problem: PathProblem, grid: Any, grouping: Grouping, reduced: Reduced | None = None) -> SubspacePath:
    """Compute contrastive PCA along a grid of alphas, as checked by :func:`check_grid`.

    ``reduced`` is the problem on its joint range, if it was computed before.
    """
    reduced = contrastive.reduced(problem.task) if reduced is None else reduced
    alphas = grid
    if isinstance(grid, str) and grid == "natural":
        finite = problem.solution if problem.solution.n_infinite == 0 else problem.solved(1, "oas")
        largest = float(finite.ratios[0])
        alphas = np.concatenate([[0.0], np.geomspace(_SPAN * largest, largest, _STEPS)])
    elif isinstance(grid, str):
        alphas = np.logspace(-3, 3, 15) if grid == "paper" else np.concatenate([[0.0], np.logspace(-1, 3, _STEPS)])
    count = problem.count(reduced.rank)
    vectors = [contrastive.top_vectors(reduced, alpha, count, grouping.seed) for alpha in alphas]
    filters = [contrastive.components(reduced, basis).filters.T for basis in vectors]
    return _clustered("alpha", alphas, filters, vectors, reduced.target, grouping)


def _along_shrinkage(problem: PathProblem, values: Any, grouping: Grouping) -> SubspacePath:
    """Compute dPCA along shrinkage: one eigendecomposition of the background, then a rescaling for each step."""
    reduced = contrastive.reduced(problem.task, standardised=True)
    count = problem.count(reduced.rank)
    if values is None:
        solvable = problem.mixture.rows >= reduced.rank
        values = np.concatenate([[0.0] if solvable else [], np.geomspace(1e-3, 1, _STEPS)])
    variances, axes = top_eigen(reduced.background, reduced.rank)
    target = axes.T @ reduced.target @ axes
    steps = []
    for rho in values[values > 0]:
        root = np.sqrt((1 - rho) * variances.clip(min=0.0) + rho)
        ratios, turned = contrastive.top_pairs(target / root / root[:, None], count, grouping.seed)
        steps.append((ratios, turned / root[:, None], turned * root[:, None]))
    filters, vectors = _in_feature_units(reduced, axes, steps) if steps else ([], [])
    if values[0] == 0:
        # The exact problem may be singular or ill-conditioned, so it is left to the solvers of dPCA.
        exact, frame = problem.solved(count, 0.0).components.filters, reduced.frame
        basis = exact[frame.alive] * frame.alive_scale[:, None]
        filters.insert(0, exact.T)
        vectors.insert(0, basis if reduced.basis is None else reduced.basis.T @ basis)
    return _clustered("shrinkage", values, filters, vectors, reduced.target, grouping)


def _in_feature_units(
    reduced: Reduced, axes: Array, steps: Sequence[tuple[Array, Array, Array]]
) -> tuple[list[Array], list[Array]]:
    """Return the filters of each step in the units of the features, and its vectors in reduced coordinates."""
    # One product for all steps: products between the Lanczos runs would compete with them for threads.
    ratios, vectors, images = zip(*steps, strict=True)
    inner = axes @ np.hstack(vectors)
    background = np.split(reduced.lifted(axes @ np.hstack(images)), len(steps), axis=1)
    target = np.split(reduced.lifted(reduced.target @ inner), len(steps), axis=1)
    bases = np.split(inner, len(steps), axis=1)
    filters = []
    for values, basis, first, second in zip(ratios, bases, target, background, strict=True):
        eigen = solution.Eigenpairs(values, reduced.lifted(basis), first, second)
        filters.append(solution.components(eigen, reduced.frame, len(values)).filters.T)
    return filters, bases


def _clustered(
    over: str, values: Array, filters: list[Array], bases: list[Array], metric: Array, grouping: Grouping
) -> SubspacePath:
    """Cluster the steps by the similarity of their subspaces, and choose a representative of each cluster."""
    similarity = contrastive.subspace_similarity(np.stack(bases), metric if grouping.affinity == "scores" else None)
    labels = _clusters(similarity, grouping)
    chosen = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        medoid = members[np.argmax(similarity[np.ix_(members, members)].sum(axis=0))]
        is_pca = over == "alpha" and values[members[0]] == 0
        chosen.append(members[0] if is_pca else medoid)
    representatives = np.sort(np.array(chosen, dtype=np.intp))
    return SubspacePath(over, values, np.stack(filters), similarity, labels, representatives)


def _clusters(similarity: Array, grouping: Grouping) -> NDArray[np.intp]:
    """Return the cluster of each step, numbered by first appearance along the path."""
    count, n_steps = grouping.n_representatives, len(similarity)
    if count >= n_steps:
        return np.arange(n_steps)
    if count == 1:
        return np.zeros(n_steps, dtype=np.intp)
    from sklearn.cluster import SpectralClustering

    with warnings.catch_warnings():
        # Orthogonal subspaces, and fewer distinct ones than clusters, are valid input.
        warnings.simplefilter("ignore")
        clustering = SpectralClustering(count, affinity="precomputed", random_state=grouping.seed)
        found = clustering.fit(similarity).labels_
    _, first, position = np.unique(found, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[position], dtype=np.intp)
