"""Discriminative PCA as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike

from standout._base import BaseContrast
from standout._inputs import MatchedInputs, solve_options
from standout._model import Model, fit_model
from standout.errors import InputError
from standout.solvers.problem import SolveOptions, graph_of


class DPCA(BaseContrast):
    """Discriminative PCA: the directions in which the target varies and the background does not.

    Maximises the ratio of target variance to background variance, one generalized eigenproblem
    ``C_xx u = λ C_yy u``. Without a background it is PCA.

    Parameters
    ----------
    n_components : int, None or "auto", default=2
        How many components; None gives all that exist; "auto" as many as a sequential test tells
        from noise, which may be none.
    shrinkage : "auto", "oas", None or float in [0, 1], default="auto"
        How the background covariance is estimated. "auto" keeps factors that target and background
        share and shrinks all other correlations, less and less from 10 background rows for each
        dimension on and not at all from 50 on. It keeps no factors with fewer than 8 features or 9
        background rows, nor with ``mix="minimax"`` and several backgrounds, where it is OAS below 10
        rows for each dimension and exact from there on. "oas" or a number shrinks toward the diagonal.
        None is always the exact problem.
    axes : "ratio" or "signal", default="ratio"
        "ratio": largest ratio first, as in the paper. "signal": the principal axes of the denoised
        target, made of all components above the noise edge, so that ``transform(X)`` are the scores of
        a PCA of ``denoise(X)`` (with ``normalize=None`` and the target's own centre); there may be
        fewer of them than asked for, and ``debiased_ratios_`` are NaN.
    mix : "pooled", "equal", "minimax" or array-like of shape (n_backgrounds,), default="pooled"
        Shares of several backgrounds in the whole; each keeps its own mean. "minimax" takes the
        shares that make the largest ratio as small as possible: what stands out against each of them.
    normalize : None or "background", default=None
        Length of the components: one, or such that the background has variance one on each.
    centering : "own" or "background", default="own"
        The target's centre: its own mean, or the background's mean, which keeps the shift between
        the two as something specific to the target.
    solver : "auto", "dense", "lanczos", "gsvd", "span" or "matrix_free", default="auto"
        See :mod:`standout.solvers.choose`. "matrix_free" multiplies with the rows (sparse, or very wide) and
        holds nothing of features × features; "auto" takes it where these would be beyond the memory.
    graph : sparse matrix or array-like of shape (n_features, n_features), default=None
        A graph of features (pixels, channels, genes), as adjacency or Laplacian: components whose
        weights jump between neighbours pay.
    smoothness : float, default=1.0
        How much they pay, in units of background variance; without a graph it does nothing.
    features : "all" or "common", default="all"
        What to do when target and background have other feature names: refuse, or use the features
        in common and give the others no weight.
    background_label : object or list, default=None
        Rows of X with this label in y are the background (a list: several backgrounds).
    random_state : int or None, default=None
        Seed of the start vectors of the Lanczos and matrix-free solvers.

    Attributes
    ----------
    ratios_ : ndarray of shape (n_components,)
        Target variance over background variance along each component, largest first.
    components_ : ndarray of shape (n_components, n_features)
        Filters: what one multiplies data with.
    patterns_ : ndarray of shape (n_components, n_features)
        What each component looks like in the features: read these, not the filters.
    mean_ : ndarray of shape (n_features,)
        What transform subtracts.
    target_variance_, background_variance_ : ndarray of shape (n_components,)
        Variances along each component (of the shrunk background, where it was shrunk).
    noise_edge_ : float
        The ratio that pure noise reaches (of the unshrunk problem; NaN where it has no meaning).
    p_value_ : float
        Probability that noise alone gives so large a top ratio (of the unshrunk problem).
    debiased_ratios_ : ndarray of shape (n_components,)
        Population ratios that the unshrunk sample ratios stand for; NaN for those lost in noise.
    shrinkage_ : float
        How far correlations were shrunk: 0 for the exact problem, 1 for all the way.
    n_factors_ : int
        Shared factors that the background estimate keeps.
    regime_ : "exact", "structural" or "shrunk"
        Whether the background covariance was used as it is, does not vary in some direction, or was
        shrunk.
    mix_ : ndarray of shape (n_backgrounds,)
        The shares used.
    contrast_ : ndarray of shape (n_components,)
        The bounded index (λ − 1)/(λ + 1) of each ratio.
    n_components_ : int
        Number of components.
    solver_ : str
        The solver used.
    n_features_in_ : int
        Number of features seen in fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Their names, where the data has names.

    Examples
    --------
    >>> import numpy as np
    >>> from standout import DPCA
    >>> rng = np.random.default_rng(0)
    >>> background = rng.normal(size=(2000, 5)) * [9, 3, 1, 1, 1]
    >>> target = rng.normal(size=(1000, 5)) * [9, 3, 1, 4, 1]      # the fourth varies more
    >>> model = DPCA(n_components=1).fit(target, background=background)
    >>> model.top_features(1)
    [[TopFeature(feature=3, weight=4.0...)]]
    >>> bool(model.ratios_[0] > model.noise_edge_)
    True
    """

    _signal_model: Model | None = None
    _options: SolveOptions | None = None

    def __init__(
        self,
        n_components: int | str | None = 2,
        *,
        shrinkage: str | float | None = "auto",
        axes: str = "ratio",
        mix: str | ArrayLike = "pooled",
        normalize: str | None = None,
        centering: str = "own",
        solver: str = "auto",
        graph: Any = None,
        smoothness: float = 1.0,
        features: str = "all",
        background_label: Any = None,
        random_state: Any = None,
    ):
        self.n_components = n_components
        self.shrinkage = shrinkage
        self.axes = axes
        self.mix = mix
        self.normalize = normalize
        self.centering = centering
        self.solver = solver
        self.graph = graph
        self.smoothness = smoothness
        self.features = features
        self.background_label = background_label
        self.random_state = random_state

    def denoise(self, X: Any) -> Any:
        """Return the target-specific part of each row, in the units of the data.

        A Wiener estimate made of all components above the noise edge, however many are shown, with
        de-biased ratios. Without a background it is the row minus ``mean_``.

        Parameters
        ----------
        X : array-like, frame, sparse matrix or Source, of shape (n_rows, n_features)
            Any rows.

        Returns
        -------
        ndarray of shape (n_rows, n_features)
            For rows on a cluster a table of the same kind, not computed yet.

        Examples
        --------
        >>> import numpy as np
        >>> from standout import DPCA
        >>> rng = np.random.default_rng(0)
        >>> background = rng.normal(size=(2000, 5)) * [9, 3, 1, 1, 1]
        >>> target = rng.normal(size=(1000, 5)) * [9, 3, 1, 4, 1]
        >>> DPCA().fit(target, background=background).denoise(target).std(axis=0).round(1)
        array([0. , 0.1, 0.1, 3.7, 0.1])
        """
        source = self._source(X, "denoise")
        return source.map_rows(self._denoiser().denoise, self._names() or [f"x{i}" for i in range(source.n_features)])

    def _denoiser(self) -> Model:
        """Return a model that keeps every component above the edge; solved when first needed."""
        model = self._solved()
        if model.signal is not None or not model.background_counts:
            return model
        if self._signal_model is None:
            if self._sums is None:
                return model
            matched = self._sums.matched()
            assert matched.inputs.target is not None
            assert self._options is not None
            # From the moments that were kept, whichever solver saw the rows; with the parameters of the fit.
            options = replace(self._options, axes="signal", solver="auto")
            try:
                found = fit_model(matched.inputs.target, matched.inputs.backgrounds, options)
            except InputError:  # the rows knew more dimensions than the moments do: the components must do
                return model
            if matched.kept is not None:
                found = found.widened(matched.kept, list(self.feature_names_in_))
            # The rows' own mean, which the sums know to rounding only: what is subtracted is mean_.
            self._signal_model = replace(found, mean=model.mean)
        return self._signal_model

    def _check_parameters(self) -> SolveOptions:
        return solve_options(
            n_components=self.n_components,
            shrinkage=self.shrinkage,
            axes=self.axes,
            mix=self.mix,
            normalize=self.normalize,
            centering=self.centering,
            solver=self.solver,
            graph=self.graph,
            smoothness=self.smoothness,
            features=self.features,
            random_state=self.random_state,
        )

    def _fit(self, matched: MatchedInputs, options: SolveOptions) -> Model:
        target = matched.inputs.target
        assert target is not None
        if self.graph is not None:
            options = replace(options, graph=graph_of(self.graph, matched.n_features, matched.kept))
        model = fit_model(target, matched.inputs.backgrounds, options)
        self._signal_model, self._options = None, options
        return model.with_unit_background() if self.normalize == "background" else model
