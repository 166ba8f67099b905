"""Contrastive PCA as a scikit-learn estimator."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from standout._base import BaseContrast, Fitted
from standout._inputs import Inputs, check_choice, check_count, solve_options
from standout._model import Model, fit_model
from standout._path import AFFINITIES, SubspacePath, along_alpha, check_values, count_components, path_problem
from standout.errors import InputError, OverfitWarning
from standout.solvers import contrastive
from standout.solvers.problem import SolveOptions


@dataclass(frozen=True)
class ContrastiveModel(Model):
    """A contrastive PCA model, with the alpha used and the path of the search."""

    alpha: float = 0.0
    path: SubspacePath | None = None

    contrast_method: ClassVar[str] = "cPCA"

    def widened(self, kept: NDArray[np.intp], names: Any) -> Self:
        """Return the model for all features of the target; features that were not kept have zero weight."""
        path = None if self.path is None else self.path.widened(kept, len(names))
        return replace(super().widened(kept, names), path=path)


class CPCA(BaseContrast):
    """Contrastive PCA: directions with the largest target variance minus alpha times background variance.

    Components are the top eigenvectors of ``C_xx − α C_yy``, largest algebraic eigenvalue first (Abid et al. 2018).
    They are orthonormal, so scores preserve distances within the subspace; unlike with :class:`standout.DPCA`
    the result depends on the features' units. Without a background it is PCA.

    Parameters
    ----------
    n_components : int or None, default=2
        Number of components; None returns all that exist.
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
        n_components: int | None = 2,
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
        check_choice("affinity", self.affinity, AFFINITIES)
        check_values("grid", self.grid)
        if check_count("n_representatives", self.n_representatives) < 2:
            raise InputError("`n_representatives=1` leaves no cluster but that of PCA. Use 2 or more.")
        if not (isinstance(self.alpha, str) and self.alpha in ("auto", "trace_ratio")):
            number = isinstance(self.alpha, Real) and not isinstance(self.alpha, bool)
            if not (number and 0 <= float(self.alpha) < math.inf):
                raise InputError(
                    f"`alpha={self.alpha!r}` is not possible. Use 'auto', 'trace_ratio' or a number from 0 on (0 is "
                    "PCA)."
                )
        if isinstance(self.n_components, str):
            raise InputError(
                f"`n_components={self.n_components!r}` is not possible. Use a whole number from 1 on, or None (all)."
            )
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
        problem, dpca = path_problem(inputs.datasets, options)
        rho, path = 0.0, None
        with contrastive.threads(problem):
            reduced = contrastive.reduced(problem)
            count = count_components(problem, reduced)
            if self.alpha == "trace_ratio":
                rho, notes = dpca.shrinkage, dpca.notes
                reduced = contrastive.shrunk(reduced, rho)
                alpha, vectors = contrastive.trace_ratio(reduced, count, options.seed)
            else:
                if self.alpha == "auto":
                    grid = check_values("grid", self.grid)
                    path = along_alpha(problem, dpca, grid, reduced, self.affinity, int(self.n_representatives))
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
