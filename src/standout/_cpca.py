"""Contrastive PCA, and paths of subspaces along alpha or shrinkage.

A path is computed from one pair of moments. For contrastive PCA its parameter is alpha (0 is PCA), for discriminative
PCA the shrinkage of the background (0 is exact dPCA, 1 is PCA in background-sd units). Most subspaces along a path are
similar: they are clustered by their similarity, and each cluster is represented by one of them (Abid et al. 2018).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from standout._base import BaseContrast, Fitted
from standout._blas import Array, top_eigen
from standout._dataset import Dataset, Mixture
from standout._display import Table, display
from standout._explained import ExplainedVariance
from standout._inputs import (
    FitArguments,
    Inputs,
    check_choice,
    check_count,
    is_number,
    match_features,
    parse_inputs,
    solve_options,
)
from standout._model import Model, fit_model
from standout.errors import InputError, OverfitWarning, warn_user
from standout.solvers import contrastive, gram, solution
from standout.solvers.contrastive import Reduced
from standout.solvers.problem import Problem, SolveOptions

# Number of steps of a path, in addition to zero.
_STEPS = 40
# First positive alpha of the natural grid, relative to its last: a smaller alpha hardly differs from zero.
_SPAN = 1e-3
# Default steps of a path along shrinkage, and the smallest one at which a Gram matrix is accurate.
_INTENSITIES = np.geomspace(1e-3, 1, _STEPS)
_LEAST_INTENSITY = 1e-6
_GRIDS = ("natural", "abid", "paper")
_AFFINITIES = ("features", "scores")


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

    See Also
    --------
    standout.path : Compute a path.
    standout.CPCA : Chooses alpha along such a path.
    standout.plot.gallery : Plot of the scores at the representatives.

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
    >>> np.abs(found.components[[0, found.pick], 0]).argmax(axis=1)      # PCA; what varies in the target only
    array([0, 3])
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

    def _repr_html_(self) -> str | None:
        """Return a table of the representatives: the steps that each stands for, and its similarity to the first."""
        rows = []
        for place in self.representatives:
            members = self.values[self.labels == self.labels[place]]
            similarity = float(self.similarity[self.representatives[0], place])
            rows.append((float(self.values[place]), str(len(members)), members.min(), members.max(), similarity))
        first = f"similarity to {self.over} {self.values[self.representatives[0]]:.4g}"
        title = f"Path over {self.over}: {len(self.values)} subspaces of dimension {self.components.shape[1]}"
        table = Table([f"{self.over} of the representative", "steps", "from", "to", first], rows)
        return display(title, table).html

    def widened(self, kept: NDArray[np.intp], n_features: int) -> SubspacePath:
        """Return the path for all features of the target; features that were not used have weight zero."""
        components = np.zeros((*self.components.shape[:2], n_features))
        components[..., kept] = self.components
        return replace(self, components=components)


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

    See Also
    --------
    standout.SubspacePath : The result.
    standout.CPCA : Contrastive PCA at one alpha, chosen along the path.
    standout.DPCA : Discriminative PCA at one shrinkage.
    standout.plot.gallery : Plot of the scores at the representatives.

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
    check_choice("affinity", affinity, _AFFINITIES)
    if over == "alpha" or values is not None:
        values = _check_values("values", "natural" if values is None else values, over)
    n_representatives = check_count("n_representatives", n_representatives)
    options = solve_options(
        n_components=check_count("n_components", n_components), mix=mix, centering=centering, features=features,
        random_state=random_state,
    )  # fmt: skip
    for name, data in (("target", target), ("background", background)):
        if data is None:
            raise InputError(f"{name}: a path compares target and background, and there is no {name}. Give {name}=.")
    inputs = match_features(parse_inputs(FitArguments(target, background=background)), features)
    for note in inputs.notes:
        warn_user(note.text, note.category)
    problem, dpca = _path_problem(inputs.datasets, options)
    with contrastive.threads(problem):
        if over == "alpha":
            found = _along_alpha(problem, dpca, values, contrastive.reduced(problem), affinity, n_representatives)
        else:
            found = _along_shrinkage(problem, values, affinity, n_representatives)
    return found if inputs.kept is None else found.widened(inputs.kept, inputs.n_features)


def _check_values(name: str, values: Any, over: str = "alpha") -> str | Array:
    """Return the name of a grid of alphas, or distinct numbers in ascending order."""
    if over == "alpha" and isinstance(values, str):
        check_choice(name, values, _GRIDS)
        return values
    given = np.asarray(values)
    numeric = given.ndim == 1 and len(given) > 0 and given.dtype.kind in "fiu"
    if numeric and np.isfinite(given).all() and given.min() >= 0 and (over == "alpha" or given.max() <= 1):
        return np.unique(given.astype(np.float64))
    found = f"an array of shape {given.shape} and type {given.dtype}"
    if numeric:
        found = f"numbers from {given.min():g} to {given.max():g}"
    allowed = f"from 0 on, or one of {', '.join(map(repr, _GRIDS))}" if over == "alpha" else "from 0 to 1"
    raise InputError(f"{name}: found {found}. Give numbers {allowed}.")


def _path_problem(datasets: Sequence[Dataset], options: SolveOptions) -> tuple[Problem, Model]:
    """Return the problem with its mixture of backgrounds, and a dPCA model with one component.

    Its shrinkage is toward the diagonal, because the path combines the two covariances linearly.
    """
    dpca = fit_model(datasets, replace(options, n_components=1, shrinkage="diagonal"))
    target, *backgrounds = datasets
    mixture = Mixture.of([data.counts for data in backgrounds], dpca.mix)
    return Problem(target, backgrounds, mixture, replace(options, mix=dpca.mix)), dpca


def _along_alpha(
    problem: Problem, dpca: Model, grid: Any, reduced: Reduced, affinity: str, n_representatives: int
) -> SubspacePath:
    """Compute contrastive PCA along alphas, or along a grid of that name."""
    alphas = _named_grid(problem, dpca, grid) if isinstance(grid, str) else grid
    count, seed = problem.how_many(reduced.rank)[0], problem.options.seed
    vectors = [contrastive.top_vectors(reduced, alpha, count, seed) for alpha in alphas]
    filters = [found.filters.T for found in contrastive.components_along(reduced, vectors)]
    similarity = contrastive.subspace_similarity(np.stack(vectors), reduced.target if affinity == "scores" else None)
    return _clustered("alpha", alphas, filters, similarity, n_representatives, seed)


def _named_grid(problem: Problem, dpca: Model, name: str) -> Array:
    if name == "paper":
        return np.logspace(-3, 3, 15)
    if name == "abid":
        return np.concatenate([[0.0], np.logspace(-1, 3, _STEPS)])
    largest = float(dpca.ratios[0] if np.isfinite(dpca.ratios[0]) else _dpca(problem, 1, "oas").ratios[0])
    return np.concatenate([[0.0], np.geomspace(_SPAN * largest, largest, _STEPS)])


def _dpca(problem: Problem, n_components: int, shrinkage: str | float) -> Model:
    """Return the dPCA model with this number of components and shrinkage."""
    options = replace(problem.options, n_components=n_components, shrinkage=shrinkage)
    return fit_model((problem.target, *problem.backgrounds), options)


def _along_shrinkage(problem: Problem, values: Any, affinity: str, n_representatives: int) -> SubspacePath:
    """Compute dPCA along shrinkage: one eigendecomposition of the background, then a rescaling for each step."""
    assert problem.mixture is not None
    if contrastive.by_rows(problem):
        found = _along_shrinkage_of_rows(problem, values, affinity, n_representatives)
        if found is not None:
            return found
    reduced = contrastive.reduced(problem, standardised=True)
    count, seed = problem.how_many(reduced.rank)[0], problem.options.seed
    if values is None:
        solvable = problem.mixture.rows >= reduced.rank
        values = np.concatenate([[0.0] if solvable else [], _INTENSITIES])
    variances, axes = top_eigen(reduced.background, reduced.rank)
    target = axes.T @ reduced.target @ axes
    steps = []
    for rho in values[values > 0]:
        root = np.sqrt((1 - rho) * variances.clip(min=0.0) + rho)
        ratios, turned = contrastive.top_pairs(target / root / root[:, None], count, seed)
        steps.append((ratios, turned / root[:, None], turned * root[:, None]))
    filters, vectors = _in_feature_units(reduced, axes, steps) if steps else ([], [])
    if values[0] == 0:
        # The exact problem may be singular or ill-conditioned, so it is left to the solvers of dPCA.
        exact, frame = _dpca(problem, count, 0.0).components, reduced.frame
        basis = exact.T[frame.alive] * frame.alive_scale[:, None]
        filters.insert(0, exact)
        vectors.insert(0, basis if reduced.basis is None else reduced.basis.T @ basis)
    similarity = contrastive.subspace_similarity(np.stack(vectors), reduced.target if affinity == "scores" else None)
    return _clustered("shrinkage", values, filters, similarity, n_representatives, seed)


def _along_shrinkage_of_rows(
    problem: Problem, values: Any, affinity: str, n_representatives: int
) -> SubspacePath | None:
    """Compute dPCA along shrinkage from the Gram matrix of the rows; None where it is not accurate enough."""
    span = gram.row_span(problem)
    if values is None and problem.mixture is not None and problem.mixture.rows < span.rank:
        values = _INTENSITIES  # the exact problem has no solution
    if values is None or values[0] < _LEAST_INTENSITY:
        return None
    count, seed = problem.how_many(span.rank)[0], problem.options.seed
    pairs, weights, scores = gram.solve_along(span, values, count, seed)
    if not pairs:
        return None
    filters = [solution.components(each, span.frame, count).filters.T for each in pairs]
    by_scores = affinity == "scores"
    similarity = contrastive.subspace_similarity(scores if by_scores else weights, None if by_scores else span.gram)
    return _clustered("shrinkage", values, filters, similarity, n_representatives, seed)


def _in_feature_units(
    reduced: Reduced, axes: Array, steps: list[tuple[Array, Array, Array]]
) -> tuple[list[Array], list[Array]]:
    """Return the filters of each step in the units of the features, and its vectors in reduced coordinates."""
    # One product for all steps: products between the Lanczos runs would compete with them for threads.
    ratios, vectors, images = zip(*steps, strict=True)
    inner = axes @ np.hstack(vectors)
    lifted = [reduced.lifted(part) for part in (inner, reduced.target @ inner, axes @ np.hstack(images))]
    columns = zip(*(np.split(part, len(steps), axis=1) for part in lifted), strict=True)
    filters = [
        solution.components(solution.Eigenpairs(values, *parts), reduced.frame, len(values)).filters.T
        for values, parts in zip(ratios, columns, strict=True)
    ]
    return filters, np.split(inner, len(steps), axis=1)


def _clustered(
    over: str, values: Array, filters: list[Array], similarity: Array, n_representatives: int, seed: int
) -> SubspacePath:
    """Cluster the steps by the similarity of their subspaces, and choose a representative of each cluster."""
    labels = _clusters(similarity, n_representatives, seed)
    chosen = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        medoid = members[np.argmax(similarity[np.ix_(members, members)].sum(axis=0))]
        is_pca = over == "alpha" and values[members[0]] == 0
        chosen.append(members[0] if is_pca else medoid)
    representatives = np.sort(np.array(chosen, dtype=np.intp))
    return SubspacePath(over, values, np.stack(filters), similarity, labels, representatives)


def _clusters(similarity: Array, count: int, seed: int) -> NDArray[np.intp]:
    """Return the cluster of each step, numbered by first appearance along the path."""
    n_steps = len(similarity)
    if count >= n_steps:
        return np.arange(n_steps)
    if count == 1:
        return np.zeros(n_steps, dtype=np.intp)
    from sklearn.cluster import SpectralClustering

    with warnings.catch_warnings():
        # Orthogonal subspaces, and fewer distinct ones than clusters, are valid input.
        warnings.simplefilter("ignore")
        found = SpectralClustering(count, affinity="precomputed", random_state=seed).fit(similarity).labels_
    _, first, position = np.unique(found, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[position], dtype=np.intp)


@dataclass(frozen=True)
class ContrastiveModel(Model):
    """A contrastive PCA model, with the alpha used and the path of the search."""

    alpha: float = 0.0
    path: SubspacePath | None = None

    contrast_method: ClassVar[str] = "cPCA"

    @property
    def explained_variance(self) -> Array:
        """Target variance along each component: components are orthonormal, but scores may be correlated."""
        return self.target_variance

    def widened(self, kept: NDArray[np.intp], names: Any) -> Self:
        """Return the model for all features of the target; features that were not kept have zero weight."""
        path = None if self.path is None else self.path.widened(kept, len(names))
        return replace(super().widened(kept, names), path=path)


class CPCA(ExplainedVariance, BaseContrast):
    """Contrastive PCA: directions with the largest target variance minus alpha times background variance.

    Components are the top eigenvectors of ``C_xx − α C_yy``, largest algebraic eigenvalue first (Abid et al. 2018).
    They are orthonormal, so scores preserve distances within the subspace; unlike with :class:`standout.DPCA`
    the result depends on the features' units. Without a background it is PCA.

    Parameters
    ----------
    n_components : int, float or None, default=2
        Number of components; None returns all that exist; a number between 0 and 1 as many as explain more than that
        share of the variance, without a background only.
    alpha : "auto", "trace_ratio" or float, default="auto"
        Weight of the background covariance; 0 is PCA. "auto" searches a grid: alphas with similar
        subspaces are clustered, and the medoid of the largest cluster without alpha = 0 is used; the
        representatives of all clusters are in ``path_``. "trace_ratio" needs no parameter: it maximises
        summed target variance over summed background variance (shrunk as in DPCA if background rows
        are few); with one component it is DPCA.
    grid : "natural", "abid", "paper" or array-like of shape (n_values,), default="natural"
        Values of alpha in the search. "natural": 0 and 40 geometric steps up to the largest ratio, beyond which
        the background term exceeds the target variance in every direction. "abid": 0 and 40 steps from 0.1 to
        1000. "paper": 15 steps from 0.001 to 1000.
    affinity : "features" or "scores", default="features"
        Space in which the search measures angles between subspaces: directions in feature space, or the
        scores of the target, as in the package ``contrastive``.
    n_representatives : int, default=4
        Number of clusters in the search, at least 2.
    mix, centering, features, background_label
        As in :class:`standout.DPCA`.
    random_state : int or None, default=None
        Seed of the clustering; None is 0.

    Attributes
    ----------
    alpha_ : float
        The alpha used.
    path_ : SubspacePath or None
        The path of the search, with its representatives; None when alpha was not searched.
    ratios_ : ndarray of shape (n_components,)
        Target variance over background variance along each component.
    components_ : ndarray of shape (n_components, n_features)
        Orthonormal filters: the weights that transform multiplies data with.
    patterns_ : ndarray of shape (n_components, n_features)
        Pattern of each component in feature space: the regression of the target on its scores.
    noise_edge_, p_value_ : float
        As in :class:`standout.DPCA`: they refer to the direction with the largest ratio.
    debiased_ratios_ : ndarray of shape (n_components,)
        NaN: these components do not maximise the ratio.
    shrinkage_ : float
        The shrinkage of the background: 0, except for ``alpha="trace_ratio"`` with few background rows.
    explained_variance_, explained_variance_ratio_ : ndarray of shape (n_components,)
        Target variance along each component, dividing by m − 1 as in scikit-learn's PCA, and its share of the total.
    singular_values_, noise_variance_ : ndarray of shape (n_components,) and float
        As in scikit-learn's PCA, without a background only.
    mean_, target_variance_, background_variance_, contrast_, n_factors_, regime_, mix_, n_components_, solver_
        As in :class:`standout.DPCA`, as are ``n_features_in_`` and ``feature_names_in_``.

    See Also
    --------
    standout.DPCA : The ratio of the variances instead of a difference; needs no alpha.
    standout.path : Components along many values of alpha.
    standout.plot.gallery : Plot of the scores at the representatives of ``path_``.
    standout.compare : PCA, contrastive PCA and dPCA on the same data.

    Examples
    --------
    >>> import numpy as np
    >>> from standout import CPCA
    >>> rng = np.random.default_rng(0)
    >>> background = rng.normal(size=(2000, 5)) * [9, 3, 1, 1, 1]
    >>> target = rng.normal(size=(1000, 5)) * [9, 3, 1, 4, 1]      # the fourth varies more
    >>> model = CPCA(n_components=1).fit(target, background=background)
    >>> model.components_.round(1) + 0
    array([[0., 0., 0., 1., 0.]])
    >>> model.path_.representative_values[0]                       # PCA is always among them
    np.float64(0.0)
    """

    alpha_ = Fitted("alpha", "The alpha used.")
    path_ = Fitted("path", "The path of the search; None when alpha was not searched.")

    def __init__(
        self,
        n_components: int | float | None = 2,
        *,
        alpha: str | float = "auto",
        grid: str | ArrayLike = "natural",
        affinity: str = "features",
        n_representatives: int = 4,
        mix: str | ArrayLike = "pooled",
        centering: str = "own",
        features: str = "all",
        background_label: Any = None,
        random_state: Any = None,
    ):
        self.n_components = n_components
        self.alpha = alpha
        self.grid = grid
        self.affinity = affinity
        self.n_representatives = n_representatives
        self.mix = mix
        self.centering = centering
        self.features = features
        self.background_label = background_label
        self.random_state = random_state

    def _check_parameters(self) -> SolveOptions:
        check_choice("affinity", self.affinity, _AFFINITIES)
        _check_values("grid", self.grid)
        if check_count("n_representatives", self.n_representatives) < 2:
            raise InputError("`n_representatives=1` leaves no cluster but that of PCA. Use 2 or more.")
        if not (isinstance(self.alpha, str) and self.alpha in ("auto", "trace_ratio")) and not is_number(self.alpha):
            possible = "Use 'auto', 'trace_ratio' or a number from 0 on (0 is PCA)."
            raise InputError(f"`alpha={self.alpha!r}` is not possible. {possible}")
        if isinstance(self.n_components, str):
            possible = "Use a whole number from 1 on, or None (all)."
            raise InputError(f"`n_components={self.n_components!r}` is not possible. {possible}")
        return solve_options(
            n_components=self.n_components,
            mix=self.mix,
            centering=self.centering,
            features=self.features,
            random_state=self.random_state,
        )

    def _fit(self, inputs: Inputs, options: SolveOptions) -> Model:
        if len(inputs.datasets) == 1:
            return ContrastiveModel.of(fit_model(inputs.datasets, options))
        problem, dpca = _path_problem(inputs.datasets, options)
        rho, path = 0.0, None
        with contrastive.threads(problem):
            reduced = contrastive.reduced(problem)
            count = problem.how_many(reduced.rank)[0]
            if self.alpha == "trace_ratio":
                rho, notes = dpca.shrinkage, dpca.notes
                reduced = contrastive.shrunk(reduced, rho)
                alpha, vectors = contrastive.trace_ratio(reduced, count, options.seed)
            else:
                if self.alpha == "auto":
                    grid = _check_values("grid", self.grid)
                    path = _along_alpha(problem, dpca, grid, reduced, self.affinity, int(self.n_representatives))
                alpha = float(self.alpha if path is None else path.values[path.pick])
                vectors = contrastive.top_vectors(reduced, alpha, count, options.seed)
                # Only the assessment of dPCA's ratio applies, and at alpha = 0, where the background is not used, none.
                notes = tuple(note for note in dpca.notes if note.category is OverfitWarning and alpha > 0)
            found = contrastive.components(reduced, vectors)
        infinite = bool(np.isinf(found.ratios).any())
        undefined = np.full(count, np.nan)
        return ContrastiveModel.of(
            dpca,  # for the centre, the scale, the counts, the noise edge and the p-value
            components=np.ascontiguousarray(found.filters.T),
            patterns=np.ascontiguousarray(found.patterns.T),
            ratios=found.ratios,
            unshrunk_ratios=undefined if rho > 0 else found.ratios,
            debiased_ratios=undefined,
            target_variance=found.target_variance,
            background_variance=found.background_variance,
            shrinkage=rho,
            regime="shrunk" if rho > 0 else "structural" if infinite else "exact",
            solver=reduced.solver(count),
            signal=None,
            notes=notes,
            alpha=alpha,
            path=path,
        )
