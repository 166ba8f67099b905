"""What a report is made of: the views, the rows that are drawn, and what is said about them.

From models and data to the contents of a report: every row is read once for each model, and few are kept.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from standout._base import BaseContrast
from standout._blas import Array
from standout._dataset import Dataset
from standout._dpca import DPCA
from standout._inputs import FitArguments, align, background_name, parse_inputs
from standout._model import Model
from standout._report.text import code_of, method_name
from standout.errors import InputError, RowsNeededError, StandoutWarning, listed
from standout.io.source import RowSource, Source
from standout.io.stream import ReadSummary
from standout.plot._style import Labels, checked_estimator, fitted_model

if TYPE_CHECKING:
    from standout.inference.assess import Assessment

# Points drawn on the whole page. A view with more points than can be drawn one by one takes three WebGL contexts of
# the browser's sixteen, so with more views than fit each stays small.
MOST_POINTS = 100_000
MOST_ONE_BY_ONE = 5_000
MOST_WEBGL_VIEWS = 5
# The covariances of more features than this take gigabytes.
_MOST_FEATURES = 12_000


@dataclass(frozen=True)
class View:
    """One method's look at the data."""

    name: str
    estimator: BaseContrast
    model: Model
    scores: tuple[Array, ...]  # of each part, (n_drawn, n_components)


@dataclass(frozen=True)
class Part:
    """The rows of one dataset that are drawn."""

    name: str
    n_rows: int  # all of them
    drawn: NDArray[np.intp]  # positions of those that are drawn
    labels: Labels | None  # of those drawn
    ids: tuple[str, ...] | None  # of those drawn


@dataclass(frozen=True)
class Contents:
    """Everything a report tells."""

    title: str
    views: tuple[View, ...]  # the main one first
    parts: tuple[Part, ...]  # the target first
    accounts: tuple[ReadSummary, ...]
    notes: tuple[str, ...]
    command: str | None
    code: str
    trust: Assessment | None = None

    @property
    def main(self) -> View:
        """The view the report is about."""
        return self.views[0]


@dataclass(frozen=True)
class Section:
    """A part of the page: a heading, what stands under it, and the figures in it.

    A figure called ``name`` is drawn in the element ``figure-name``: ``{"data": [...], "layout": {...}}`` as plotly
    has it.
    """

    key: str
    title: str
    html: str  # safe: what comes from the data is escaped in it
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """The arguments of a report, as given."""

    models: Any
    target: Any
    background: Any
    labels: Any
    background_labels: Any
    ids: Any
    title: str | None
    command: str | None
    code: str | None
    accounts: Sequence[ReadSummary]
    notes: Sequence[str]
    trust: Any = None


def collect_contents(asked: Asked) -> Contents:
    """Read the rows, and keep what is drawn."""
    _check_trust(asked.trust)
    estimators = _estimators(asked.models)
    inputs = parse_inputs(FitArguments(asked.target, background=asked.background))
    sources, left_out = _sources(inputs.target, inputs.backgrounds)
    about = _background_labels(asked.background_labels, [name for name in sources if name != "target"])
    main = fitted_model(next(iter(estimators.values())))
    narrow = [_narrowed(main, name, source) for name, source in sources.items()]
    if len(estimators) == 1 and main.background_counts:
        beside, said = _beside(main, narrow[0])
        estimators |= beside
        left_out += said
    scores = _scores(estimators, dict(zip(sources, narrow, strict=True)))
    sizes = [len(values) for values in next(iter(scores.values()))]
    drawn = _drawn(sizes, len(estimators))
    parts = []
    for (name, source), size, index in zip(sources.items(), sizes, drawn, strict=True):
        labels = asked.labels if name == "target" else about.get(name)
        ids = asked.ids if name == "target" else None
        parts.append(_part(name, source, labels, ids, size, index))
    views = [
        View(name, estimator, fitted_model(estimator), _kept(scores[name], drawn))
        for name, estimator in estimators.items()
    ]
    return Contents(
        title=asked.title or ("What is specific to the target" if main.background_counts else "The target, by itself"),
        views=tuple(views),
        parts=tuple(parts),
        accounts=tuple(asked.accounts) or tuple(_accounts(sources.values())),
        notes=(*asked.notes, *left_out),
        command=asked.command,
        code=asked.code or code_of(views[0].estimator, views[0].model),
        trust=asked.trust,
    )


def _check_trust(given: Any) -> None:
    if given is not None and not all(hasattr(given, part) for part in ("test", "held_out", "stability", "replicates")):
        raise InputError(
            f"trust: a {type(given).__name__} was given, which is no Trust. Give what "
            "standout.inference.assess returns."
        )


def _estimators(models: Any) -> dict[str, BaseContrast]:
    if not isinstance(models, Mapping):
        checked_estimator(models, "models")
        return {method_name(fitted_model(models)): models}
    if not models:
        raise InputError("models: an empty dict was given. Give at least one fitted estimator.")
    return {str(name): checked_estimator(model, f"models[{name!r}]") for name, model in models.items()}


def _sources(target: Dataset | None, backgrounds: dict[str, Dataset]) -> tuple[dict[str, Source], list[str]]:
    """Return the rows of each dataset; a background of which only moments are left cannot be drawn."""
    if target is None or target.source is None:
        raise RowsNeededError("target: a report draws rows, and none were given. Give the target's rows.")
    sources, left_out = {"target": target.source}, []
    for name, data in backgrounds.items():
        if data.source is None:
            left_out.append(f"{name} was given as moments, so there are no rows of it to draw.")
        else:
            sources[name] = data.source
    for name, source in sources.items():  # before anything is computed on a cluster
        if not source.ordered:
            raise RowsNeededError(
                f"{name}: a report shows every row with its label, and the rows of a Spark DataFrame have no order. "
                "Bring them into memory first, with toPandas()."
            )
    return sources, left_out


def _background_labels(given: Any, names: list[str]) -> dict[str, Any]:
    """Return the labels of each background under its name."""
    if given is None:
        return {}
    if names == ["background"]:
        return {"background": given}
    if isinstance(given, Mapping):
        chosen = {background_name(key): labels for key, labels in given.items()}
    else:
        chosen = {background_name(place): labels for place, labels in enumerate(given)}
    unknown = [name for name in chosen if name not in names]
    if unknown:
        raise InputError(
            f"background_labels: {listed(unknown)} is not among the backgrounds {listed(names)}. "
            "Give one entry for each background, under the same names."
        )
    return chosen


def _narrowed(main: Model, name: str, source: Source) -> Source:
    """Return a dataset with the features that take part, where features="common" left some out."""
    if main.used is None or main.names is None:
        return source
    names = tuple(main.names[place] for place in main.used)
    narrow = align(Dataset(name, source), names, len(names), "common").source
    assert narrow is not None
    return narrow


def _scores(estimators: Mapping[str, BaseContrast], sources: Mapping[str, Source]) -> dict[str, list[Array]]:
    """Return the scores of all rows of each dataset, by model."""
    transforms = [_transform(estimator) for estimator in estimators.values()]
    by_source = [source.collect_mapped(transforms, name) for name, source in sources.items()]
    return {name: [scores[place] for scores in by_source] for place, name in enumerate(estimators)}


def _transform(estimator: BaseContrast) -> Callable[[Source], Any]:
    """Return what makes scores of rows that have only the features that take part."""
    model = fitted_model(estimator)
    if model.used is None:
        return cast(Callable[[Source], Any], estimator.transform)
    project, names = model.narrowed().project, estimator.get_feature_names_out()
    return lambda source: source.map_rows(project, names)


def _beside(main: Model, target: Source) -> tuple[dict[str, BaseContrast], list[str]]:
    """Return the PCA of the target, to be shown beside a single model, or say why there is none."""
    rows, size = main.target_counts.rows, target.n_features
    if size > _MOST_FEATURES and not (isinstance(target, RowSource) and rows <= size):
        return {}, [f"There is no PCA beside this: its covariances of {size:,} features would take too much memory."]
    refused = None
    for wanted in (max(min(max(main.n_components, 2), size, rows - 1), 1), 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StandoutWarning)
            try:
                return {"PCA": DPCA(wanted).fit(target)}, []
            except InputError as error:  # the target may vary in fewer directions than that
                refused = error
    return {}, [f"There is no PCA beside this: {refused}"]


def _drawn(sizes: list[int], n_views: int) -> list[NDArray[np.intp]]:
    """Choose the rows to draw: all, or a fair share of each dataset, small ones as a whole."""
    budget = MOST_POINTS // n_views if n_views <= MOST_WEBGL_VIEWS else MOST_ONE_BY_ONE
    rng = np.random.default_rng(0)
    share, shares = budget, [0] * len(sizes)
    for left, place in enumerate(np.argsort(sizes, kind="stable")):
        shares[place] = min(sizes[place], share // (len(sizes) - left))
        share -= shares[place]
    return [
        np.arange(size) if count == size else np.sort(rng.choice(size, count, replace=False))
        for size, count in zip(sizes, shares, strict=True)
    ]


def _kept(scores: list[Array], drawn: list[NDArray[np.intp]]) -> tuple[Array, ...]:
    return tuple(values[index] for values, index in zip(scores, drawn, strict=True))


def _part(name: str, source: Source, labels: Any, ids: Any, size: int, drawn: NDArray[np.intp]) -> Part:
    """Return a dataset's rows to draw; a stream knows its own labels and ids now that it was read."""
    labels = source.row_values("label", f"{name}: labels") if labels is None else labels
    ids = source.row_values("ids", f"{name}: ids") if ids is None else ids
    about = None if labels is None else Labels.of(labels, size, f"{name}: labels").take(drawn)
    if ids is not None:
        ids = np.asarray(ids)
        if ids.shape != (size,):
            raise InputError(f"{name}: ids of shape {ids.shape} for {size} rows. Give one id for each row.")
        ids = tuple(str(value) for value in ids[drawn].tolist())
    return Part(name, size, drawn, about, ids)


def _accounts(sources: Any) -> list[ReadSummary]:
    return [source.account for source in sources if isinstance(getattr(source, "account", None), ReadSummary)]
