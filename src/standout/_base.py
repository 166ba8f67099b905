"""Base class of the estimators: input handling, partial_fit, scoring and fitted attributes.

Fitted attributes are read from the model. After ``partial_fit`` the model is solved when the first of them is
accessed; between batches only the moments of the target and of each background are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Self

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import validate_data

from standout._blas import Array
from standout._dataset import Dataset
from standout._display import Summary
from standout._inputs import (
    FitArguments,
    Inputs,
    align,
    background_name,
    check_count,
    label_list,
    match_features,
    parse_inputs,
)
from standout._kernel_model import KernelModel
from standout._model import Model, TopFeature
from standout._moments import Moments
from standout._score import log_likelihood_gain, score_variances
from standout._summary import N_EXTREMES, Extremes, extreme_rows, methods_text, summarize
from standout._table_checks import data_notes
from standout.errors import FeatureError, InputError, RowsNeededError, listed, warn_user
from standout.io.memory import as_numpy
from standout.io.missing import Fill, filled_by
from standout.io.read import as_precise, is_array_like, is_on_cluster, open_data, read_scores
from standout.io.source import Source, select_columns
from standout.solvers.problem import SolveOptions
from standout.solvers.solution import Note


class Fitted:
    """Read-only estimator attribute that is stored in the model."""

    def __init__(self, field: str, doc: str):
        self.field = field
        self.__doc__ = doc

    def __get__(self, estimator: Any, owner: type | None = None) -> Any:
        return self if estimator is None else attrgetter(self.field)(estimator._solved())

    def __set__(self, estimator: Any, value: Any) -> None:
        raise AttributeError(f"the fitted {self.field} cannot be set: it belongs to the model. Fit again instead.")


class BaseContrast(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of estimators that contrast a target with backgrounds.

    Subclasses implement ``_check_parameters`` and ``_fit``, and have ``features``, ``mix``, ``centering`` and
    ``background_label``.
    """

    ratios_ = Fitted("ratios", "Target variance over background variance, largest first.")
    components_ = Fitted("components", "Filters, of shape (n_components, n_features).")
    patterns_ = Fitted("patterns", "Patterns, of shape (n_components, n_features).")
    mean_ = Fitted("mean", "What transform subtracts.")
    target_variance_ = Fitted("target_variance", "Target variance along each component.")
    background_variance_ = Fitted("background_variance", "Background variance along each component.")
    noise_edge_ = Fitted("noise_edge", "The largest ratio expected from pure noise.")
    p_value_ = Fitted("p_value", "Probability that noise gives a largest ratio at least this large.")
    debiased_ratios_ = Fitted("debiased_ratios", "Estimated population ratios; NaN if not above the noise edge.")
    shrinkage_ = Fitted("shrinkage", "The shrinkage used.")
    n_factors_ = Fitted("n_factors", "Shared factors that the background estimate keeps.")
    regime_ = Fitted("regime", "exact, structural or shrunk.")
    mix_ = Fitted("mix", "Shares of the backgrounds.")
    n_components_ = Fitted("n_components", "Number of components.")
    contrast_ = Fitted("contrast", "The bounded index (λ − 1)/(λ + 1) of each ratio.")
    solver_ = Fitted("solver", "The solver used.")

    _model: Model | None = None
    _sums: Inputs | None = None  # moments of all rows so far, if the fit computed them

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
    ) -> Self:
        """Find the components of the target against the background.

        Parameters
        ----------
        X : path, array-like, frame, sparse matrix, Source or Moments, of shape (n_rows, n_features)
            The target (files, Dask, Spark, MNE: see :func:`standout.read`); with ``background_label``, target and
            background rows together.
        y : array-like of shape (n_rows,), optional
            Label of each row of X; used with ``background_label`` only.
        background : dataset, or list or dict of datasets, optional
            The background(s), on the same features; frames are matched by column name.
        sample_weight, background_sample_weight : array-like of shape (n_rows,), optional
            Row weights; for several backgrounds a list or dict of them.
        groups, background_groups : array-like of shape (n_rows,), optional
            Id of the independent unit (subject) of each row. Noise edge, p-value and shrinkage are based on the
            effective number of rows, between the number of units and of rows, depending on how alike rows of a unit
            are.

        Returns
        -------
        self

        Examples
        --------
        >>> from standout import DPCA, datasets
        >>> target, background = datasets.FactorModel().sample(1000, 2000)
        >>> model = DPCA(n_components=1).fit(target, background=background)
        >>> model.ratios_.round(2), round(model.noise_edge_, 2)
        (array([4.79]), 1.3)
        """
        options = self._check_parameters()
        given = FitArguments(X, y, background, sample_weight, background_sample_weight, groups, background_groups)
        inputs = parse_inputs(given, self.background_label, whole=True)
        matched = match_features(inputs, self.features)
        notes = data_notes(inputs.datasets, matched.datasets)  # replicates, serial correlation, faulty tables
        model = self._fit(matched, options)  # moments, solver, assessment
        self._keep(model, matched, notes)
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
    ) -> Self:
        """Add a batch of target rows, background rows or both, of one or more rows.

        Only moments are updated; the components are computed when a fitted attribute is first accessed. The
        result does not depend on how the rows were split into batches. Rows with missing values that were
        read with ``missing="auto"`` raise an error, because they are filled for all datasets together.

        Parameters
        ----------
        X : array-like, frame, sparse matrix, Source or Moments, of shape (n_rows, n_features), optional
            Target rows (with ``background_label``, target and background rows).
        y, background, sample_weight, background_sample_weight, groups, background_groups
            As in :meth:`fit`. Several backgrounds must have the same names in every batch that has them.

        Returns
        -------
        self

        Examples
        --------
        >>> from standout import DPCA, datasets
        >>> target, background = datasets.FactorModel().sample(1000, 2000)
        >>> model = DPCA(n_components=1).partial_fit(target[:500], background=background)
        >>> model.partial_fit(target[500:]).ratios_.round(2)
        array([4.79])
        """
        self._check_parameters()
        given = FitArguments(X, y, background, sample_weight, background_sample_weight, groups, background_groups)
        if self._model is not None and self._sums is None:
            raise InputError(
                "this model keeps no moments (it was loaded from a file, fitted to more features than rows, or by the "
                "matrix-free solver), so rows cannot be added. Start a new one and give all rows to partial_fit."
            )
        if self.features == "common":
            raise FeatureError(
                "`features='common'` needs target and background at once, and partial_fit receives them one by one. "
                "Use fit, or leave the other columns out of every batch."
            )
        inputs = parse_inputs(given, self.background_label)
        if not inputs.datasets:
            raise InputError("partial_fit got neither X nor background. Give rows of at least one of them.")
        for data in inputs.datasets:
            if data.source is not None and data.is_incomplete and not data.source.imputes_means:
                raise InputError(
                    f"{data.role}: `missing='auto'` fills target and background together, and partial_fit gets them in "
                    "batches. Use fit with all rows, or read the batches with `missing='drop_rows'`."
                )
        if self._sums is None:
            sums = match_features(inputs, "all").as_moments()
        else:
            if X is not None:
                self._check_features(X, inputs.datasets[0])
            sums = self._sums.plus(match_features(inputs, "all", (self._names(), self.n_features_in_)))
        self._keep(None, self._ordered(sums))
        return self

    def transform(self, X: Any) -> Any:
        """Return the scores of rows: rows minus ``mean_``, times the components.

        Parameters
        ----------
        X : array-like, frame, sparse matrix or Source, of shape (n_rows, n_features)
            Any rows: target, background or new ones. Missing values in rows read with ``missing="auto"`` are
            replaced by the mean of the model (KernelDPCA: of its landmarks).

        Returns
        -------
        ndarray of shape (n_rows, n_components)
            float32 if the rows are, float64 otherwise. For a tensor, a tensor on the same device. For rows on a
            cluster, a lazy collection of the same kind (dask array or Spark DataFrame).

        Examples
        --------
        >>> from standout import DPCA, datasets
        >>> target, background = datasets.FactorModel().sample(1000, 2000)
        >>> model = DPCA(n_components=1).fit(target, background=background)
        >>> model.transform(target).std().round(2), model.transform(background).std().round(2)
        (np.float64(2.23), np.float64(1.02))
        """
        own = getattr(self, "_sklearn_output_config", {})
        container = own.get("transform", get_config()["transform_output"])
        if container != "default" and (is_on_cluster(X) or (isinstance(X, Source) and not X.is_local)):
            raise InputError(
                f"X: set_output requests scores as a {container} data frame, which would bring every row from the "
                "cluster. Call set_output(transform='default') for scores that stay there, or give rows in memory "
                "(compute() of dask, toPandas() of Spark)."
            )
        scores = as_precise(self._scores(X), X)
        return scores if container == "default" else as_numpy(scores)

    def inverse_transform(self, X: Any) -> Any:
        """Return rows from scores: ``mean_ + X @ patterns_``.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_components)
            Scores.

        Returns
        -------
        ndarray of shape (n_rows, n_features)
            float32 if the scores are, float64 otherwise. For a tensor, a tensor on the same device. For a dask array
            or data frame of scores, a lazy dask array.

        Examples
        --------
        >>> from standout import DPCA, datasets
        >>> target, background = datasets.FactorModel().sample(1000, 2000)
        >>> model = DPCA(n_components=1).fit(target, background=background)
        >>> rows = model.inverse_transform(model.transform(target))
        >>> rows.shape, bool(abs(model.transform(rows) - model.transform(target)).max() < 1e-9)
        ((1000, 12), True)
        """
        model = self._solved()
        scores = read_scores(X, model.n_components)
        if isinstance(scores, Source):
            return scores.map_rows(model.restoration, self._names() or [f"x{i}" for i in range(self.n_features_in_)])
        return as_precise(model.restore(scores), scores)

    def score(
        self,
        X: Any,
        y: Any = None,
        *,
        background: Any = None,
        sample_weight: Any = None,
        background_sample_weight: Any = None,
    ) -> float:
        """Return the log-likelihood gain per target row of the fitted ratios over no difference.

        The model behind dPCA is that target rows are Gaussian with the covariance of the background, except that
        their variance along component k is λₖ times that of the background. Scores zₖ, in background sd, are
        uncorrelated in both sets, so the log-likelihood of a row exceeds that of the background model by

            Σₖ [log N(zₖ; 0, λₖ) − log N(zₖ; 0, 1)] = ½ Σₖ [zₖ² (1 − 1/λₖ) − log λₖ],

        and its mean over rows is ½ Σₖ [rₖ (1 − 1/λₖ) − log λₖ], where rₖ is the ratio of the given rows. It is
        largest, ½ Σₖ (rₖ − 1 − log rₖ), if λₖ = rₖ. On held-out rows it is positive if the components generalise,
        and negative on average if nothing is specific to the target: then rₖ is one on average, and λₖ claims more.
        A sum over components is comparable between numbers of components: those of noise lower it.

        λₖ is the de-biased ratio, which is nearer to the ratio of new rows than the fitted one, or the fitted ratio
        where there is none (below the noise edge, with few background rows, for CPCA and most kernels); at least one,
        because the model only adds variance. An infinite λₖ is replaced by the fitted target variance over the
        variance of the given background, and the score is infinite if that background does not vary either. The
        ratio rₖ is unbiased for Gaussian rows if there are four background rows or more. The components of CPCA and
        of ``axes="signal"`` are correlated, and their gains are added all the same. A model fitted without a
        background (PCA) is scored against unit variance, its λₖ being the fitted variances.

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

        Examples
        --------
        >>> from standout import DPCA, datasets
        >>> target, background = datasets.FactorModel().sample(1000, 2000)
        >>> model = DPCA(n_components=1).fit(target[:500], background=background[:1000])
        >>> round(model.score(target[500:], background=background[1000:]), 2)
        0.95
        """
        given = FitArguments(X, y, background, sample_weight, background_sample_weight)
        return log_likelihood_gain(self._solved(), *self._variances(given))

    def top_features(self, count: int = 5) -> list[list[TopFeature]]:
        """Return, for each component, the features that change most along it.

        Parameters
        ----------
        count : int
            Number of features per component.

        Returns
        -------
        list of lists of TopFeature
            Feature (name or position) and weight: the change of the feature, in background sd, per target sd of
            the score (in the units of the feature if there is no background).

        Examples
        --------
        >>> from standout import DPCA, datasets
        >>> target, background = datasets.FactorModel().sample(1000, 2000)
        >>> model = DPCA(n_components=1).fit(target, background=background)
        >>> [(top.feature, round(top.weight, 2)) for top in model.top_features(2)[0]]
        [(10, 0.58), (0, 0.39)]
        """
        return self._solved().top_features(check_count("count", count))

    def extremes(self, X: Any, labels: Any = None, n: int = 10) -> list[Extremes]:
        """Return, for each component, the rows with the lowest and the highest scores.

        The ends of a component of embeddings show what it is about: read the texts that they belong to.

        Parameters
        ----------
        X : array-like, frame, sparse matrix or Source, of shape (n_rows, n_features)
            Any rows.
        labels : array-like of shape (n_rows,), optional
            Text or id of each row; by default the ids of the source (``ids`` of :func:`standout.read`), if any.
        n : int, default=10
            Number of rows at each end; fewer if there are not twice as many rows.

        Returns
        -------
        list of Extremes
            ``low`` and ``high`` of each component: lists of row number, label and score, the most extreme row first.

        Examples
        --------
        >>> from standout import DPCA, datasets
        >>> target, background = datasets.FactorModel().sample(1000, 2000)
        >>> model = DPCA(n_components=1).fit(target, background=background)
        >>> [round(row.score, 1) for row in model.extremes(target, n=3)[0].high]
        [7.0, 6.3, 6.1]
        """
        source = open_data(X, "X")
        source.check_order("X")
        scores = source.collect_mapped([self._scores], "X")[0]
        labels = source.row_values("ids", "X: ids") if labels is None else labels
        if labels is not None:
            labels = np.asarray(labels, dtype=object)
            if labels.shape != (len(scores),):
                found = f"shape {labels.shape} for {len(scores)} rows"
                raise InputError(f"labels: {found}. Give one text or id for each row.")
        return extreme_rows(scores, labels, check_count("n", n))

    def summary(self, X: Any = None, labels: Any = None) -> Summary:
        """Return a text summary of the model: its ratios, the verdict on them with reasons, and the next step.

        Parameters
        ----------
        X, labels : optional
            Rows, and a text or id for each, as in :meth:`extremes`: the summary then lists the rows at the ends of each
            component.

        Returns
        -------
        str

        Examples
        --------
        >>> from standout import DPCA, datasets
        >>> target, background = datasets.FactorModel().sample(1000, 2000)
        >>> DPCA(n_components=1).fit(target, background=background).summary().splitlines()[0]
        'dPCA: 1 component of 12 features (joint rank 12)'
        """
        return summarize(self._solved(), extremes=() if X is None else self.extremes(X, labels, N_EXTREMES))

    def methods_text(self, assessment: Any = None) -> Summary:
        """Return the methods paragraph of a paper: method, counts, estimates, tests, versions, references.

        Parameters
        ----------
        assessment : Assessment, optional
            Result of :func:`standout.assess` on the same data: the paragraph then reports the permutation test, the
            held-out ratio and the stability, and the verdict that follows from them.

        Returns
        -------
        str
            The paragraph, an empty line, and the references, one per line.

        Examples
        --------
        >>> import numpy as np
        >>> from standout import DPCA
        >>> rng = np.random.default_rng(0)
        >>> background = rng.normal(size=(2000, 5))
        >>> model = DPCA(1).fit(rng.normal(size=(100, 5)) * [1, 1, 1, 4, 1], background=background)
        >>> print(model.methods_text().split(". ")[1])
        The target had 100 rows and the background 2000 rows, with 5 features
        """
        return methods_text(self, assessment)

    def get_feature_names_out(self, input_features: Any = None) -> Any:  # noqa: ARG002
        """Return the names of the components: dpca0, dpca1, ..., or pca0, pca1, ... without a background.

        Parameters
        ----------
        input_features : ignored
            For compatibility with scikit-learn.

        Returns
        -------
        ndarray of str

        Examples
        --------
        >>> from standout import DPCA, datasets
        >>> target, background = datasets.FactorModel().sample(1000, 2000)
        >>> DPCA().fit(target, background=background).get_feature_names_out()
        array(['dpca0', 'dpca1'], dtype=object)
        """
        return np.array(self._solved().component_names, dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return self._model is not None or (self._sums is not None and self._sums.target is not None)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _solved(self) -> Model:
        """Return the model; solve it first if batches were added since the last solution."""
        if self._model is None:
            if self._sums is None or self._sums.target is None:
                what = "has seen no target rows yet" if self._sums is not None else "is not fitted yet"
                raise NotFittedError(f"this {type(self).__name__} {what}. Call fit, or partial_fit with X, first.")
            if self.background_label is not None and not self._sums.backgrounds:
                raise InputError(
                    f"no row with background_label={self.background_label!r} has come in yet. Check the label, or give "
                    "partial_fit a batch that has it."
                )
            self._keep(self._fit(self._sums, self._check_parameters()), self._sums)
        assert self._model is not None
        return self._model

    def _scores(self, X: Any) -> Any:
        """Return the scores of rows as an array; ``set_output`` applies to ``transform`` only."""
        return self._rows(X).map_rows(self._solved().narrowed().projection, self.get_feature_names_out())

    def _rows(self, X: Any) -> Source:
        """Return the rows that are projected: on the features in use, with missing values at the mean."""
        used = self._solved().used
        source = self._source(X, "transform")
        return source if used is None else select_columns(source, used)  # unused columns are not read

    def _variances(self, given: FitArguments) -> tuple[Array, Array, Array]:
        """Return target and background variance (divided by n) along each component, and their expected ratio.

        The expected ratio is that of Gaussian rows whose population variances are equal.
        """
        model = self._solved()
        inputs = parse_inputs(given, self.background_label, whole=True)
        if not inputs.backgrounds and model.background_counts:
            raise InputError(
                "score compares target rows with background rows, and no background was given. "
                "Give background= (or y, with background_label)."
            )
        self._check_features(given.X, inputs.datasets[0])
        used = model.used
        if used is None and self.features == "common":
            used = np.arange(self.n_features_in_)
        matched = match_features(inputs, self.features, (self._names(), self.n_features_in_), used)
        if model.n_components == 0:
            return np.empty(0), np.empty(0), np.empty(0)
        return score_variances(matched.datasets, model.narrowed(), own_mean=self.centering == "own")

    def _check_parameters(self) -> SolveOptions:
        """Validate the parameters before any data are read, and return them as solver options."""
        raise NotImplementedError

    def _fit(self, inputs: Inputs, options: SolveOptions) -> Model:
        """Return the model of inputs on the same features."""
        raise NotImplementedError

    def _keep(self, model: Model | None, inputs: Inputs, notes: Sequence[Note] = ()) -> None:
        """Set the fitted attributes, at the end, so that a failed fit keeps the previous model; warn of its notes."""
        if model is not None and inputs.kept is not None and inputs.names is not None:
            model = model.widened(inputs.kept, inputs.names)
        if model is not None and (notes := (*notes, *inputs.notes)):
            inputs, model = replace(inputs, notes=notes), model.noted([n for n in notes if n not in model.notes])
        summed = all(data.summed is not None for data in inputs.datasets)
        self._model, self._sums = model, inputs.as_moments() if summed else None
        self.n_features_in_ = inputs.n_features
        if inputs.names is not None:
            self.feature_names_in_ = np.array(inputs.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        for note in () if model is None else model.notes:
            warn_user(note.text, note.category)

    def _source(self, X: Any, method: str) -> Source:
        """Return X as a source with the features seen in fit."""
        model = self._solved()
        data = Dataset.of("X", X)
        if data.source is None:
            raise RowsNeededError(f"{method} works on rows, and moments were given. Give the rows.")
        self._check_features(X, data)
        source = align(data, self._names(), self.n_features_in_, "all").source
        assert source is not None
        if not source.is_incomplete:
            return source
        # A score depends only on its own row. The mean of a kernel model is that of the kernel columns.
        mean = model.landmarks.rows.mean(axis=0) if isinstance(model, KernelModel) else model.mean
        return filled_by(source, Fill.at(mean))

    def _ordered(self, sums: Inputs) -> Inputs:
        """Sort backgrounds by label or number, independently of the order of the batches."""
        numbers = range(len(sums.backgrounds))
        labels = numbers if self.background_label is None else label_list(self.background_label)
        order = ["target", *map(background_name, labels)]
        parts = sorted(sums.datasets, key=lambda data: order.index(data.role) if data.role in order else len(order))
        if sum(data.role not in order for data in parts) > 1 and not isinstance(self.mix, str | Mapping):
            raise InputError(
                "mix: an array of shares is ambiguous when named backgrounds are given in batches. Give mix as a dict "
                "from name to share."
            )
        return replace(sums, datasets=tuple(parts))

    def _names(self) -> tuple[str, ...] | None:
        return tuple(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None

    def _check_features(self, X: Any, data: Dataset) -> None:
        """Validate number and names of the features, as scikit-learn does."""
        if not isinstance(X, Moments) and is_array_like(X):
            try:
                validate_data(self, X, reset=False, skip_check_array=True)
            except ValueError as error:
                text = str(error).rstrip().rstrip(".")
                raise FeatureError(f"{text}. Give the features the model was fitted to, in their order.") from error
        elif data.n_features != self.n_features_in_:
            known = set(self._names() or data.names or ())
            extra = [name for name in data.names or () if name not in known]
            raise FeatureError(
                f"X has {data.n_features} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                f"features as input{f'; not in the fit: {listed(extra)}' if extra else ''}. Give the features the "
                "model was fitted to."
            )
