"""Discriminative PCA as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import validate_data

from standout.blas import Array
from standout.dataset import Dataset
from standout.errors import InputError, RowsNeededError
from standout.estimators.fitted import Fitted
from standout.estimators.inputs import Given, Inputs, Matched, check_labels, match_features, sort_out
from standout.estimators.parameters import check_count, wanted_from
from standout.estimators.sums import Sums
from standout.mixture import Mixture
from standout.model import Model, TopFeature, fit_model, mean_log_ratio
from standout.moments import Moments
from standout.solve import Wanted
from standout.sources import Source, is_source, read
from standout.summary import Summary, summarize


class DPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Discriminative PCA: the directions in which the target varies and the background does not.

    Maximises the ratio of target variance to background variance, one generalized eigenproblem
    ``C_xx u = λ C_yy u``. Without a background it is PCA.

    Parameters
    ----------
    n_components : int, None or "auto", default=2
        How many components; None gives all that exist; "auto" as many as a sequential test tells
        from noise, which may be none.
    shrinkage : "auto", "oas", None or float in [0, 1], default="auto"
        How much the background covariance is shrunk toward its diagonal. "auto" solves the exact
        problem while there are ten background rows for each dimension, and shrinks by the OAS
        formula below; None is always the exact problem.
    axes : "ratio", default="ratio"
        Largest ratio first.
    mix : "pooled", "equal" or array-like of shape (n_backgrounds,), default="pooled"
        Shares of several backgrounds in the whole; each keeps its own mean.
    normalize : None or "background", default=None
        Length of the components: one, or such that the background has variance one on each.
    centering : "own" or "background", default="own"
        The target's centre: its own mean, or the background's mean, which keeps the shift between
        the two as something specific to the target.
    solver : "auto", "dense", "lanczos", "gsvd" or "span", default="auto"
        See :mod:`standout.solve.choose`.
    features : "all" or "common", default="all"
        What to do when target and background have other feature names: refuse, or use the features
        in common and give the others no weight.
    background_label : object or list, default=None
        Rows of X with this label in y are the background (a list: several backgrounds).
    random_state : int or None, default=None
        Seed of the start vector of the Lanczos solver.

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
        The shrinkage used.
    regime_ : "exact", "structural" or "shrunk"
        What became of the background covariance.
    mix_ : ndarray of shape (n_backgrounds,)
        The shares used.
    n_components_ : int
        Number of components.
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
    [[TopFeature(feature=3, weight=3.9...)]]
    >>> bool(model.ratios_[0] > model.noise_edge_)
    True
    """

    ratios_ = Fitted("ratios", "Target variance over background variance, largest first.")
    components_ = Fitted("components", "Filters, of shape (n_components, n_features).")
    patterns_ = Fitted("patterns", "Patterns, of shape (n_components, n_features).")
    mean_ = Fitted("mean", "What transform subtracts.")
    target_variance_ = Fitted("target_variance", "Target variance along each component.")
    background_variance_ = Fitted("background_variance", "Background variance along each component.")
    noise_edge_ = Fitted("noise_edge", "The ratio that pure noise reaches.")
    p_value_ = Fitted("p_value", "Probability of so large a top ratio under noise.")
    debiased_ratios_ = Fitted("debiased_ratios", "Population ratios; NaN for those lost in noise.")
    shrinkage_ = Fitted("shrinkage", "The shrinkage used.")
    regime_ = Fitted("regime", "exact, structural or shrunk.")
    mix_ = Fitted("mix", "Shares of the backgrounds.")
    n_components_ = Fitted("n_components", "Number of components.")
    solver_ = Fitted("solver", "The solver used.")

    _model: Model | None = None
    _sums: Sums | None = None

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
        self.features = features
        self.background_label = background_label
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        background: Any = None,
        sample_weight: Any = None,
        background_sample_weight: Any = None,
        groups: Any = None,
        background_groups: Any = None,
    ) -> DPCA:
        """Find the components of the target against the background.

        Parameters
        ----------
        X : array-like, frame, sparse matrix, Source or Moments, of shape (n_rows, n_features)
            The target; with ``background_label``, target and background rows together.
        y : array-like of shape (n_rows,), optional
            Label of each row of X; used with ``background_label`` only.
        background : dataset, or list or dict of datasets, optional
            The background(s), on the same features; frames are matched by column name.
        sample_weight, background_sample_weight : array-like of shape (n_rows,), optional
            Row weights; for several backgrounds a list or dict of them.
        groups, background_groups : array-like of shape (n_rows,), optional
            Id of the independent unit (subject) of each row: the honest count for noise edge and
            p-value. 135 rows of 9 mice are 9.

        Returns
        -------
        self : DPCA
        """
        given = Given(X, y, background, sample_weight, background_sample_weight, groups, background_groups)
        wanted = wanted_from(self)
        inputs = sort_out(given, self.background_label)
        if self.background_label is not None:
            check_labels(y, self.background_label)
        if inputs.target is None:
            raise InputError("X: no target rows were given. Give the target's rows, or its Moments, as X.")
        self._note_features(X, inputs.target, reset=True)
        matched = match_features(inputs, inputs.target.names, inputs.target.n_features, self.features)
        model = self._fit(matched, wanted)
        self._sums = Sums.of(matched) if _has_moments(matched.inputs) else None
        self._model = model
        _warn(model)
        return self

    def partial_fit(
        self,
        X: Any = None,
        y: Any = None,
        *,
        background: Any = None,
        sample_weight: Any = None,
        background_sample_weight: Any = None,
        groups: Any = None,
        background_groups: Any = None,
    ) -> DPCA:
        """Add a batch of target rows, background rows or both; any size from one row on.

        Only moments are added; the components are found when a fitted attribute is first read. The
        result does not depend on how the rows were split into batches.

        Parameters
        ----------
        X : array-like, frame, sparse matrix, Source or Moments, of shape (n_rows, n_features), optional
            Target rows (with ``background_label``, target and background rows).
        y, background, sample_weight, background_sample_weight, groups, background_groups
            As in :meth:`fit`. Several backgrounds must have the same names in every batch that has them.

        Returns
        -------
        self : DPCA
        """
        given = Given(X, y, background, sample_weight, background_sample_weight, groups, background_groups)
        wanted_from(self)
        if self._model is not None and self._sums is None:
            raise InputError(
                "this model was fitted to more features than rows, without moments, so rows cannot be added. "
                "Start a new DPCA and give all rows to partial_fit."
            )
        inputs = sort_out(given, self.background_label)
        if inputs.target is None and not inputs.backgrounds:
            raise InputError("partial_fit got neither X nor background. Give rows of at least one of them.")
        first = self._sums is None
        named = inputs.target if inputs.target is not None else next(iter(inputs.backgrounds.values()))
        before = dict(self.__dict__)
        try:
            if X is not None or first:
                self._note_features(X if X is not None else background, named, reset=first)
            names = tuple(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None
            matched = match_features(inputs, names, self.n_features_in_, "all")
            sums = Sums.of(matched) if self._sums is None else self._sums.plus(matched)
        except Exception:
            self.__dict__ = before  # a bad batch must not change anything
            raise
        self._sums, self._model = sums, None
        return self

    def transform(self, X: Any) -> Array:
        """Return the scores of rows: rows minus ``mean_``, times the components.

        Parameters
        ----------
        X : array-like, frame, sparse matrix or Source, of shape (n_rows, n_features)
            Any rows: target, background or new ones.

        Returns
        -------
        ndarray of shape (n_rows, n_components)
        """
        model = self._solved()
        return model.project(self._rows(X))

    def inverse_transform(self, X: ArrayLike) -> Array:
        """Return rows from scores: ``mean_ + X @ patterns_``.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_components)
            Scores.

        Returns
        -------
        ndarray of shape (n_rows, n_features)
        """
        model = self._solved()
        scores = np.asarray(X, dtype=np.float64)
        if scores.ndim != 2 or scores.shape[1] != model.n_components:
            raise InputError(
                f"scores: shape {scores.shape} does not fit {model.n_components} components. "
                "Give one column for each component."
            )
        return model.restore(scores)

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

        On rows the fit has not seen, zero means nothing specific to the target. A model fitted
        without a background (PCA) is scored against unit variance.

        Parameters
        ----------
        X : array-like, frame, sparse matrix, Source or Moments, of shape (n_rows, n_features)
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
        model = self._solved()
        inputs = sort_out(Given(X, y, background, sample_weight, background_sample_weight), self.background_label)
        if self.background_label is not None:
            check_labels(y, self.background_label)
        if not inputs.backgrounds and model.background_counts:
            raise InputError(
                "score compares target rows with background rows, and no background was given. "
                "Give background= (or y, with background_label)."
            )
        assert inputs.target is not None
        names = tuple(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None
        self._note_features(X, inputs.target, reset=False)
        inputs = match_features(inputs, names, self.n_features_in_, "all").inputs
        assert inputs.target is not None
        target = self._projected(inputs.target, model)
        parts = [self._projected(data, model) for data in inputs.backgrounds.values()]
        if not parts:
            return mean_log_ratio(target.variance(), np.ones(model.n_components))
        mixture = Mixture.of([part.counts for part in parts], self.mix if len(parts) > 1 else "pooled")
        shift = 0.0 if self.centering == "own" else target.mean - mixture.mixed([part.mean for part in parts])
        variance = np.diagonal(target.covariance()) + shift**2
        return mean_log_ratio(variance, mixture.mixed([np.diagonal(part.covariance()) for part in parts]))

    def top_features(self, count: int = 5) -> list[list[TopFeature]]:
        """Return, for each component, the features that move most with it.

        Parameters
        ----------
        count : int
            How many features.

        Returns
        -------
        list of lists of TopFeature
            Feature (name or position) and weight: by how many background sd the feature moves when
            the score moves by one target sd.
        """
        return self._solved().top_features(check_count("count", count))

    def summary(self) -> Summary:
        """Return the model in words: ratios with the noise edge beside them, what was shrunk and why."""
        return summarize(self._solved(), type(self).__name__, list(self.get_feature_names_out()))

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)

    def __sklearn_is_fitted__(self) -> bool:
        return self._model is not None or (self._sums is not None and self._sums.target is not None)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _solved(self) -> Model:
        """Return the model, after solving it if batches have come in since."""
        if self._model is None:
            if self._sums is None or self._sums.target is None:
                what = "has seen no target rows yet" if self._sums is not None else "is not fitted yet"
                raise NotFittedError(f"this {type(self).__name__} {what}. Call fit, or partial_fit with X, first.")
            self._model = self._fit(self._sums.matched(), wanted_from(self))
            _warn(self._model)
        return self._model

    def _fit(self, matched: Matched, wanted: Wanted) -> Model:
        target = matched.inputs.target
        assert target is not None
        model = fit_model(target, matched.inputs.backgrounds, wanted)
        if self.normalize == "background":
            model = model.with_unit_background()
        if matched.kept is not None:
            model = model.widened(matched.kept, tuple(self.feature_names_in_))
        return model.noted(matched.notes)

    def _note_features(self, X: Any, data: Dataset, reset: bool) -> None:
        """Keep or check number and names of the features, as scikit-learn does."""
        # A plain array has no names to look for, and small fits would notice the search.
        unnamed = reset and type(X) is np.ndarray
        if not (unnamed or isinstance(X, Moments) or is_source(X)):
            validate_data(self, X, reset=reset, skip_check_array=True)
            return
        if reset:
            self.n_features_in_ = data.n_features
            if data.names is not None:
                self.feature_names_in_ = np.array(data.names, dtype=object)
            elif hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
        elif data.n_features != self.n_features_in_:
            raise InputError(
                f"X has {data.n_features} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input. Give the features the model was fitted to."
            )

    def _rows(self, X: Any) -> Source:
        if isinstance(X, Moments):
            raise RowsNeededError("transform works on rows, and moments were given. Give the rows.")
        source = read(X, role="X")
        self._note_features(X, Dataset("X", source), reset=False)
        return source

    def _projected(self, data: Dataset, model: Model) -> Moments:
        if data.given is not None:
            return data.given.project(model.components.T)
        assert data.source is not None
        scores = model.project(data.source, data.role)
        return Moments.of(scores, weights=data.weights, role=data.role)


def _has_moments(inputs: Inputs) -> bool:
    parts = (inputs.target, *inputs.backgrounds.values())
    return all(data is not None and ("moments" in data.__dict__ or data.given is not None) for data in parts)


def _warn(model: Model) -> None:
    for note in model.notes:
        warnings.warn(note.text, note.category, stacklevel=3)
