"""Discriminative PCA as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from standout._base import BaseContrast
from standout._blas import Array
from standout._explained import ExplainedVariance, specific_variance
from standout._inputs import Inputs, solve_options
from standout._model import Model, fit_model
from standout.errors import InputError
from standout.io.read import as_precise
from standout.solvers.problem import SolveOptions, laplacian

_NO_MOMENTS = "it was fitted to more features than rows, or by the matrix-free solver"


class DPCA(ExplainedVariance, BaseContrast):
    """Discriminative PCA: directions with a large variance in the target and a small one in the background.

    Components maximise the ratio of target variance to background variance, by solving the generalised
    eigenproblem ``C_xx u = λ C_yy u``. Without a background it is PCA.

    Parameters
    ----------
    n_components : int, float, None or "auto", default=2
        Number of components; None returns all that exist; "auto" as many as a sequential test distinguishes
        from noise, which may be zero; a number between 0 and 1 as many as explain more than that share of the
        variance, without a background only.
    shrinkage : "auto", "oas", None or float in [0, 1], default="auto"
        Estimate of the background covariance. "auto" keeps factors that target and background
        share and shrinks all other correlations; shrinkage decreases from 10 background rows per
        dimension on and is zero from 50 on. It keeps no factors with fewer than 8 features or 9
        background rows, nor with ``mix="minimax"`` and several backgrounds, where it is OAS below 10
        rows per dimension and exact from there on. "oas" or a number shrinks toward the diagonal.
        None always solves the exact problem.
    axes : "ratio" or "signal", default="ratio"
        "ratio": largest ratio first, as in the paper. "signal": the principal axes of the denoised
        target, computed from all components above the noise edge, so that ``transform(X)`` returns the scores of
        a PCA of ``denoise(X)`` (with ``normalize=None`` and ``centering="own"``); there may be
        fewer of them than requested, and ``debiased_ratios_`` are NaN.
    mix : "pooled", "equal", "minimax" or array-like of shape (n_backgrounds,), default="pooled"
        Weights of several backgrounds in the mixture; each is centred at its own mean. "minimax" finds the
        weights that minimise the largest ratio, which gives components that stand out against every background.
    normalize : None or "background", default=None
        Scaling of the components: unit length, or unit background variance along each.
    centering : "own" or "background", default="own"
        The target's centre: its own mean, or the background's mean, in which case the shift between
        the two counts as specific to the target.
    solver : "auto", "dense", "lanczos", "gsvd", "span" or "matrix_free", default="auto"
        "auto" chooses by shape and conditioning. "matrix_free" uses products with the rows (sparse, or very wide) and
        forms no matrix of features × features; "auto" chooses it if such matrices would exceed the memory budget.
    graph : sparse matrix or array-like of shape (n_features, n_features), default=None
        A graph of features (pixels, channels, genes), as adjacency or Laplacian matrix, used to penalise
        components that are rough on the graph.
    smoothness : float, default=1.0
        Strength of the graph penalty, in units of background variance; ignored without a graph.
    features : "all" or "common", default="all"
        What to do if target and background have different feature names: raise an error, or use the features
        in common and give the others zero weight.
    background_label : object or list, default=None
        Rows of X with this label in y are the background (a list: several backgrounds).
    random_state : int or None, default=None
        Seed for the start vectors of the Lanczos and matrix-free solvers.

    Attributes
    ----------
    ratios_ : ndarray of shape (n_components,)
        Target variance over background variance along each component, largest first.
    components_ : ndarray of shape (n_components, n_features)
        Filters: the weights that transform multiplies data with.
    patterns_ : ndarray of shape (n_components, n_features)
        Pattern of each component in feature space: interpret these, not the filters.
    mean_ : ndarray of shape (n_features,)
        Centre subtracted by transform.
    target_variance_, background_variance_ : ndarray of shape (n_components,)
        Variances along each component (of the shrunk background, if it was shrunk).
    noise_edge_ : float
        The largest ratio expected from pure noise (of the unshrunk problem; NaN if undefined).
    p_value_ : float
        Probability that noise alone gives a top ratio at least this large (of the unshrunk problem).
    debiased_ratios_ : ndarray of shape (n_components,)
        Population ratios estimated from the unshrunk sample ratios; NaN for ratios not above the noise edge.
    shrinkage_ : float
        Shrinkage of correlations: 0 for the exact problem, 1 for full shrinkage.
    n_factors_ : int
        Number of shared factors in the background estimate.
    regime_ : "exact", "structural" or "shrunk"
        Treatment of the background covariance: used unchanged, used with zero variance in some direction, or
        shrunk.
    mix_ : ndarray of shape (n_backgrounds,)
        The mixture weights used.
    contrast_ : ndarray of shape (n_components,)
        The bounded index (λ − 1)/(λ + 1) of each ratio.
    explained_variance_ : ndarray of shape (n_components,)
        Target variance explained by each component: the total variance of the rows that ``inverse_transform``
        restores from it. It divides by m − 1, as in scikit-learn's PCA, which it equals without a background;
        ``target_variance_`` and all other variances divide by m, as in the paper. With weights, m is Kish's
        effective number of rows.
    explained_variance_ratio_ : ndarray of shape (n_components,)
        ``explained_variance_`` as a share of the target's total variance.
    specific_variance_ratio_ : ndarray of shape (n_components,)
        Share of the target's specific variance, with a background only: of the variance that a component explains,
        ``1 - 1 / debiased_ratios_`` is not in the background. The shares of all components add up to one.
    singular_values_ : ndarray of shape (n_components,)
        Singular values of the centred rows, without a background only.
    noise_variance_ : float
        Mean variance along the directions left out (dividing by m − 1), without a background only.
    n_components_ : int
        Number of components.
    solver_ : str
        The solver used.
    n_features_in_ : int
        Number of features seen in fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Feature names, if the data have names.

    See Also
    --------
    standout.CPCA : Contrastive PCA, by a difference of the variances.
    standout.KernelDPCA : Functions of the features instead of linear directions.
    standout.assess : Tests of significance, held-out ratio and stability.
    standout.compare : PCA, contrastive PCA and dPCA on the same data.

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
    _specific_shares: Array | None = None
    _options: SolveOptions | None = None

    def __init__(
        self,
        n_components: int | float | str | None = 2,
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

    def _fit(self, inputs: Inputs, options: SolveOptions) -> Model:
        """Add up the moments, solve, and assess the ratios; also called for the moments that partial_fit added up."""
        if self.graph is not None:
            options = self._with_graph(options, inputs.n_features, inputs.kept)
        model = fit_model(inputs.datasets, options)
        self._signal_model, self._specific_shares, self._options = None, None, options
        return model.with_unit_background() if self.normalize == "background" else model

    @property
    def specific_variance_ratio_(self) -> Array:
        """Share of the target's specific variance in each component; with a background only."""
        name = "specific_variance_ratio_"
        model = self._read(name)
        if not model.background_counts:
            self._missing(name, "without a background, all variance is the target's. See explained_variance_ratio_.")
        if model.specific_shares is not None:
            return model.specific_shares
        if self._sums is None or self._options is None:
            self._missing(name, f"it needs all components, and the model has no moments ({_NO_MOMENTS}).")
        if self._specific_shares is None:
            every = self._solved_again(n_components=None)
            # The variance along signal axes is that of the denoised target, all of which is specific.
            found = every.target_variance if self._options.axes == "signal" else specific_variance(every)
            self._specific_shares = found / found.sum() if found.any() else found
        if len(self._specific_shares) < model.n_components:
            self._missing(name, "the rows vary in directions that moments do not resolve.")
        return self._specific_shares[: model.n_components]

    def denoise(self, X: Any) -> Any:
        """Return the target-specific part of each row, in the units of the data.

        A Wiener estimate from all components above the noise edge, regardless of ``n_components``, with
        de-biased ratios. Without a background it is the row minus ``mean_``.

        Parameters
        ----------
        X : array-like, frame, sparse matrix or Source, of shape (n_rows, n_features)
            Any rows.

        Returns
        -------
        ndarray of shape (n_rows, n_features)
            float32 if the rows are, float64 otherwise. For a tensor, a tensor on the same device. For rows on a
            cluster, a lazy table of the same type.

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
        names = self._names() or [f"x{i}" for i in range(source.n_features)]
        return as_precise(source.map_rows(self._denoiser().denoising, names), X)

    def _denoiser(self) -> Model:
        """Return a model with all components above the edge, fitted on first use."""
        model = self._solved()
        if model.signal is not None or not model.background_counts:
            return model
        if self._signal_model is None:
            if self._sums is None:
                return model
            try:
                self._signal_model = self._solved_again(axes="signal")
            except InputError:  # the rows have a higher rank than the moments: use the fitted components
                return model
        return self._signal_model

    def _solved_again(self, **changes: Any) -> Model:
        """Return the model of the stored moments, regardless of the solver used, with other options."""
        assert self._sums is not None and self._options is not None
        model, sums = self._solved(), self._sums.as_moments()
        # The noise edge counts independent rows as the fit did.
        counts = (model.target_counts, *(counts for _, counts in model.background_counts))
        for data, counted in zip(sums.datasets, counts, strict=True):
            data.counts = counted
        found = fit_model(sums.datasets, replace(self._options, solver="auto", **changes))
        if sums.kept is not None:
            found = found.widened(sums.kept, list(self.feature_names_in_))
        # Use mean_, computed from the rows; the mean from sums has a rounding error.
        return replace(found, mean=model.mean)

    def _with_graph(self, options: SolveOptions, n_features: int, kept: NDArray[np.intp] | None = None) -> SolveOptions:
        """Return the options with the Laplacian of the graph, if there is one, of the features that are used."""
        return options if self.graph is None else replace(options, graph=laplacian(self.graph, n_features, kept))
