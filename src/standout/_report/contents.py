"""The data behind a report: models, the scores of the rows that are drawn, and their labels.

Every row is read once for each model; only the rows that are drawn are kept.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from standout._base import BaseContrast
from standout._blas import Array
from standout._compare import Comparison
from standout._dataset import Dataset
from standout._dpca import DPCA
from standout._inputs import FitArguments, Inputs, align, background_name, parse_inputs
from standout._model import Model
from standout.errors import InputError, RowsNeededError, StandoutWarning, listed
from standout.io.source import RowSource, Source
from standout.io.stream import ReadSummary
from standout.plot._components import fitted_model
from standout.plot._scores import Labels

# Points on the whole page. A panel with more points than SVG can draw takes three of the sixteen WebGL contexts of a
# browser, so a page with more panels than that draws few points in each.
_MAX_POINTS = 100_000
MAX_SVG_POINTS = 5_000
_MAX_WEBGL_PANELS = 5
# Components that can be chosen as axes.
_MAX_AXES = 10
# A covariance matrix of more features than this takes gigabytes.
_MAX_FEATURES = 12_000


class Panel(NamedTuple):
    """A model and the scores of the rows that are drawn."""

    name: str
    estimator: BaseContrast
    model: Model
    scores: list[Array]  # of each dataset, (n_drawn, n_components)
    sample_ratios: Array  # of the variances of the scores, by which all models can be compared; may be empty
    held_out_ratios: Array  # empty if they were not computed

    @property
    def n_axes(self) -> int:
        """Number of components that can be chosen as axes."""
        return min(self.model.n_components, _MAX_AXES)


class DrawnRows(NamedTuple):
    """The rows of one dataset that are drawn."""

    name: str
    n_rows: int  # of the whole dataset
    positions: NDArray[np.intp]  # of the rows that are drawn
    labels: Labels | None
    ids: list[str] | None


class Contents(NamedTuple):
    """The models and the data that a report shows."""

    panels: list[Panel]  # the model that the report describes first
    datasets: list[DrawnRows]  # the target first
    accounts: list[ReadSummary]
    notes: list[str]


def collect_contents(
    models: Any, target: Any, background: Any, *, labels: Any, background_labels: Any, ids: Any,
    accounts: Sequence[ReadSummary], notes: Sequence[str],
) -> Contents:  # fmt: skip
    """Compute the scores of all rows and keep those that are drawn."""
    estimators, held_out = _estimators(models)
    sources, messages = _sources(parse_inputs(FitArguments(target, background=background)))
    labels_of = {"target": labels, **_background_labels(background_labels, list(sources)[1:])}
    main = next(iter(estimators.values()))._solved()
    used = {name: _used_features(main, name, source) for name, source in sources.items()}
    if len(estimators) == 1 and main.background_counts:
        pca, refused = _pca(main, used["target"])
        estimators |= pca
        messages += refused
    transforms = [_transform(estimator) for estimator in estimators.values()]
    scores = [source.collect_mapped(transforms, name) for name, source in used.items()]
    sizes = [len(by_model[0]) for by_model in scores]
    drawn = _sample(sizes, len(estimators))
    panels = []
    for k, (name, estimator) in enumerate(estimators.items()):
        own = [by_model[k] for by_model in scores]
        ratios = _sample_ratios(own, main.mix) if 0 < len(main.mix) == len(sources) - 1 else np.empty(0)
        kept = [values[rows] for values, rows in zip(own, drawn, strict=True)]
        panels.append(Panel(name, estimator, estimator._solved(), kept, ratios, held_out.get(name, np.empty(0))))
    datasets = [
        _drawn_rows(name, source, labels_of.get(name), ids if name == "target" else None, size, index)
        for (name, source), size, index in zip(sources.items(), sizes, drawn, strict=True)
    ]
    recorded = [getattr(source, "account", None) for source in sources.values()]
    read = list(accounts) or [account for account in recorded if isinstance(account, ReadSummary)]
    return Contents(panels, datasets, read, [*notes, *messages])


def _estimators(models: Any) -> tuple[dict[str, BaseContrast], dict[str, Array]]:
    """Return the estimators, and the held-out ratios of those that ``compare`` measured, by name."""
    held_out = {}
    if isinstance(models, list) and models and all(isinstance(view, Comparison) for view in models):
        held_out = {view.name: view.held_out.ratios for view in models if view.held_out}
        models = {view.name: view.estimator for view in models}
    if not isinstance(models, Mapping):
        return {fitted_model(models, "models").method: models}, held_out
    if not models:
        raise InputError("models: the dict is empty. Give at least one fitted estimator.")
    for name, model in models.items():
        fitted_model(model, f"models[{name!r}]")
    return {str(name): model for name, model in models.items()}, held_out


def _sample_ratios(scores: list[Array], shares: Array) -> Array:
    """Return target over background variance of the scores."""
    target, *parts = (own.var(axis=0) for own in scores)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(target / sum(share * part for share, part in zip(shares, parts, strict=True)))


def _sources(inputs: Inputs) -> tuple[dict[str, Source], list[str]]:
    """Return the rows of each dataset, and a message for each background without rows."""
    target = inputs.target
    if target is None or target.source is None:
        raise RowsNeededError("target: a report needs rows to draw, and none were given. Give the rows of the target.")
    backgrounds = {data.role: data.source for data in inputs.backgrounds}
    sources = {"target": target.source} | {name: source for name, source in backgrounds.items() if source is not None}
    for name, source in sources.items():  # before anything is computed on a cluster
        source.check_order(name)
    return sources, [
        f"{name} was given as moments, so it has no rows to draw." for name in backgrounds if name not in sources
    ]


def _background_labels(given: Any, names: list[str]) -> dict[str, Any]:
    """Return the labels of each background under its name."""
    if given is None:
        return {}
    if names == ["background"]:
        return {"background": given}
    items = given.items() if isinstance(given, Mapping) else enumerate(given)
    labels = {background_name(key): values for key, values in items}
    unknown = [name for name in labels if name not in names]
    if unknown:
        found = f"{listed(unknown)} is not among the backgrounds {listed(names)}"
        raise InputError(f"background_labels: {found}. Give one entry for each background, under its name.")
    return labels


def _used_features(main: Model, name: str, source: Source) -> Source:
    """Return a dataset with the features of the model; features="common" may have dropped some."""
    if main.used is None or main.names is None:
        return source
    names = tuple(main.names[index] for index in main.used)
    aligned = align(Dataset(name, source), names, len(names), "common").source
    assert aligned is not None
    return aligned


def _transform(estimator: BaseContrast) -> Callable[[Source], Any]:
    """Return the transform of rows that have only the features of the model."""
    model = estimator._solved()
    if model.used is None:
        return estimator._scores
    project, names = model.narrowed().project, estimator.get_feature_names_out()
    return lambda source: source.map_rows(project, names)


def _pca(main: Model, target: Source) -> tuple[dict[str, BaseContrast], list[str]]:
    """Fit a PCA of the target to compare a single model with, or return the reason why there is none."""
    rows, size = main.target_counts.rows, target.n_features
    reason = f"a covariance matrix of {size:,} features would take too much memory."
    if size <= _MAX_FEATURES or (isinstance(target, RowSource) and rows <= size):
        for n_components in (max(min(max(main.n_components, 2), size, rows - 1), 1), 1):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", StandoutWarning)
                try:
                    return {"PCA": DPCA(n_components).fit(target)}, []
                except InputError as error:  # the rank of the target may be lower
                    reason = str(error)
    return {}, [f"PCA is not shown for comparison: {reason}"]


def _sample(sizes: list[int], n_panels: int) -> list[NDArray[np.intp]]:
    """Choose the rows to draw: an equal share of each dataset, or all rows of a dataset smaller than its share."""
    remaining = _MAX_POINTS // n_panels if n_panels <= _MAX_WEBGL_PANELS else MAX_SVG_POINTS
    rng = np.random.default_rng(0)
    shares = [0] * len(sizes)
    for done, smallest in enumerate(np.argsort(sizes, kind="stable")):
        shares[smallest] = min(sizes[smallest], remaining // (len(sizes) - done))
        remaining -= shares[smallest]
    return [
        np.arange(size) if share == size else np.sort(rng.choice(size, share, replace=False))
        for size, share in zip(sizes, shares, strict=True)
    ]


def _drawn_rows(name: str, source: Source, labels: Any, ids: Any, size: int, index: NDArray[np.intp]) -> DrawnRows:
    """Return the rows to draw. The labels and ids of a stream are available only after it was read."""
    labels = source.row_values("label", f"{name}: labels") if labels is None else labels
    ids = source.row_values("ids", f"{name}: ids") if ids is None else ids
    encoded = None if labels is None else Labels.of(labels, size, f"{name}: labels").take(index)
    if ids is not None:
        ids = np.asarray(ids)
        if ids.shape != (size,):
            raise InputError(f"{name}: ids of shape {ids.shape} for {size} rows. Give one id for each row.")
        ids = [str(value) for value in ids[index].tolist()]
    return DrawnRows(name, size, index, encoded, ids)
