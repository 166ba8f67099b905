"""What the explorer knows: the data, the models of each method and stop, the verdict, and what can be taken away.

Every result is computed once and kept, as far as memory allows. Models are the library's own estimators, fitted to the
given data as ``fit`` does, so that exported code repeats what is on the screen. The rows behind the plots are those of
the models: on the features in use, with missing values filled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np
from sklearn.base import clone

from standout._base import BaseContrast
from standout._blas import Array
from standout._cpca import CPCA, path
from standout._dpca import DPCA
from standout._explore import stops as dial
from standout._explore.results import Results, kept
from standout._explore.selection import (
    CHOSEN_BY_LABEL,
    FEWEST_FEATURES,
    FEWEST_ROWS,
    TOO_FEW_FEATURES,
    Effects,
    HalfCheck,
    Mask,
    as_region,
    check_halves,
    effects,
    inside,
)
from standout._explore.stops import MOST_COMPONENTS, ShownRows, Stops
from standout._kernel_dpca import KernelDPCA
from standout._report.figures import sample_rows
from standout._verdict import verdict
from standout.errors import InputError, listed, without_warnings
from standout.inference.assess import Assessment
from standout.inference.resampling import Sample, background_keys, collect_samples, collect_sides
from standout.io.read import open_data
from standout.io.source import RowView
from standout.plot._scores import Labels
from standout.solvers.gram import sharing

# Points that are drawn; all rows are counted.
MOST_DRAWN = 20_000
# Values of all rows above which the check of a selection uses one split into halves instead of several.
_SPLITS, _MANY_VALUES = 4, 5e6
# Features shown in a list, and rows of one export.
N_FEATURES = 12
# Share of the variance of its features below which the background does not vary along a component.
_NULL = 1e-12
# Components of a method that cannot choose their number.
_COMPONENTS = 2
TITLES = {"pca": "PCA", "dpca": "dPCA", "signal": "dPCA, signal axes", "cpca": "cPCA", "kernel": "Kernel dPCA"}
PARAMETERS = {"dpca": "shrinkage", "cpca": "alpha"}
# Parameters that estimators of different methods share.
_SHARED = ("features", "centering", "random_state")
# Names on the page: longer ones are cut, so that one cell of a table cannot fill it.
_LONGEST_NAME, _LONGEST_TEXT = 200, 5000
# Bytes of the results that are kept, if they are more than twice the data. The rows themselves do not count.
_MOST_KEPT = 512e6


def shown(name: Any) -> str:
    """Return a name for the page: one line, not too long, without characters that change the direction of text."""
    text = shown_text(str(name)[: _LONGEST_NAME + 1])
    return text if len(text) <= _LONGEST_NAME else text[:_LONGEST_NAME] + "…"


def shown_text(text: str) -> str:
    """Return a sentence of the library for the page; names in it may hold anything."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:_LONGEST_TEXT])


@dataclass(frozen=True)
class View:
    """What one plot shows. Axes are places on the screen; -1 is the number of the row."""

    method: str
    stop: int
    x: int
    y: int
    on: tuple[int, ...]  # the backgrounds in use, by number

    @property
    def model(self) -> tuple[str, int, tuple[int, ...]]:
        """The key of the model."""
        return self.method, self.stop, self.on


@dataclass(frozen=True)
class Origin:
    """How the data are read again: Python code for each dataset, and a command, if there is one."""

    target: str
    backgrounds: tuple[str, ...]
    from_python: bool = True  # whether the names stand for objects that the reader of the code has
    command: Callable[[Any, View, str], str | None] | None = None  # of a view, by the name of the command
    spell: Callable[[str], str] = str  # how messages name arguments: as options, if the data came from a command


class Exploration:
    """The state behind the page. All methods may be called from several threads."""

    def __init__(
        self, target: Any, background: Any, *, estimator: Any = None, groups: Any = None, background_groups: Any = None,
        labels: Any = None, ids: Any = None, title: str | None = None, origin: Origin | None = None,
    ):  # fmt: skip
        self.estimator = DPCA() if estimator is None else estimator
        if not isinstance(self.estimator, DPCA | CPCA | KernelDPCA):
            raise InputError(
                f"estimator: unsupported type {type(estimator).__name__}. Give a DPCA, CPCA or KernelDPCA."
            )
        if isinstance(self.estimator, KernelDPCA) and self.estimator.random_state is None:
            # A model that is fitted again, here or by exported code, has the same landmarks.
            self.estimator = clone(self.estimator).set_params(random_state=0)
        if self.estimator.background_label is not None:
            raise InputError("estimator: the explorer takes backgrounds as `background=`. Leave background_label out.")
        if background is None or (isinstance(background, Mapping | list | tuple) and len(background) == 0):
            raise InputError("background: there is none to compare with. Give `background=`.")
        self.title = title or "What is specific to the target"
        target, background = collect_sides(open_data(target, "target"), background)
        keys = background_keys(background)
        self.target = target
        self.keys: tuple[Any, ...] = keys or ()
        self.names = ["background"] if keys is None else [str(key) for key in keys]
        parts = [background] if keys is None else [background[key] for key in keys]
        self.backgrounds = [open_data(part, "background") for part in parts]
        self.groups, self.given_groups = groups, background_groups
        grouped = [background_groups] if keys is None else background_groups
        self.background_groups = (
            [None] * len(parts) if grouped is None
            else [grouped.get(key) for key in self.keys] if isinstance(grouped, Mapping) else list(grouped)
        )  # fmt: skip
        self.origin = origin or Origin("target", tuple(f"background[{key!r}]" for key in self.keys) or ("background",))
        self.results = Results(_MOST_KEPT)
        self.every = tuple(range(len(self.names)))
        main = self.fitted(self.default_method, 0, self.every)  # errors appear here, before a page is opened
        self.rows = self._shown_rows()
        values = main.n_features_in_ * sum(rows.n_rows for rows in self.rows)
        self.results.limit = max(_MOST_KEPT, 16.0 * values)
        self.columns = self._label_columns(labels)
        self.ids = self._row_ids(ids)
        self.feature_names = [str(name) for name in self._used_names(main)]

    # Data

    def _samples(self, on: tuple[int, ...]) -> tuple[Sample, ...]:
        with without_warnings():  # the fit has given them
            return collect_samples(
                self.target, self.background(on), self.groups, self.grouped(on), self.estimator.features, "the explorer"
            ).sets

    def _shown_rows(self) -> tuple[ShownRows, ...]:
        samples = self._samples(self.every)
        drawn = sample_rows([sample.n_rows for sample in samples], MOST_DRAWN)
        parts = zip(["target", *self.names], samples, drawn, strict=True)
        return tuple(ShownRows(name, sample.source, sample.units, index) for name, sample, index in parts)

    @kept
    def rows_of(self, method: str, on: tuple[int, ...]) -> tuple[ShownRows, ...]:
        """Return the rows as a model has them: missing values filled by its datasets, for scores at its mean."""
        sources = (self.target, *self.backgrounds)
        if method == "kernel" or not any(source.is_incomplete for source in sources):
            return self.rows
        used = dict(zip((0, *(number + 1 for number in on)), self._samples(on), strict=True))
        model = self.fitted(method, 0, on)
        return tuple(
            rows._replace(source=used[number].source if number in used else rows.source, scored=model._rows(source))
            for number, (rows, source) in enumerate(zip(self.rows, sources, strict=True))
        )

    def background(self, on: Sequence[int]) -> Any:
        """Return the backgrounds in use, as ``fit`` takes them."""
        if not on:
            raise InputError("background: all are switched off. Switch one on.")
        if not self.keys:
            return self.backgrounds[0]
        return {self.keys[number]: self.backgrounds[number] for number in on}

    def grouped(self, on: Sequence[int]) -> Any:
        """Return the groups of the backgrounds in use, as ``fit`` takes them."""
        if all(self.background_groups[number] is None for number in on):
            return None
        if not self.keys:
            return self.background_groups[0]
        return {self.keys[number]: self.background_groups[number] for number in on}

    def _label_columns(self, labels: Any) -> dict[str, list[Labels | None]]:
        """Return the columns that rows can be coloured by: for each, the labels of every dataset that has it."""
        found: dict[str, list[Any]] = {}
        given = labels if isinstance(labels, Mapping) or labels is None else {"label": labels}
        for name, values in (given or {}).items():
            found[str(name)] = [values, *[None] * len(self.names)]
        for number, source in enumerate((self.target, *self.backgrounds)):
            options: Any = getattr(getattr(source, "layout", None), "options", None)
            listed_columns = [(getattr(options, "label", None) or "label", source.row_values("label", "labels"))]
            listed_columns += [(column.name or "index", column.values) for column in source.id_columns()]
            if getattr(options, "groups", None) is None or options.groups_match is not None:
                listed_columns.append(("groups", source.row_values("groups", "groups")))
            for name, values in listed_columns:
                if values is not None and len(values) == self.rows[number].n_rows:
                    columns = found.setdefault(name, [None] * (1 + len(self.names)))
                    columns[number] = values if columns[number] is None else columns[number]
        return {
            name: [
                None if values is None else Labels.of(values, rows.n_rows, name)
                for values, rows in zip(columns, self.rows, strict=True)
            ]
            for name, columns in found.items()
        }

    def _row_ids(self, ids: Any) -> list[Any]:
        found = []
        for number, (source, rows) in enumerate(zip((self.target, *self.backgrounds), self.rows, strict=True)):
            values = ids if number == 0 and ids is not None else source.row_values("ids", "ids")
            if values is not None and len(values) != rows.n_rows:
                raise InputError(f"ids: {len(values)} for {rows.n_rows} rows of the target. Give one for each row.")
            found.append(None if values is None else np.asarray(values))
        return found

    def _used_names(self, main: BaseContrast) -> Sequence[Any]:
        model = main._solved()
        names: Sequence[Any] = range(main.n_features_in_) if model.names is None else model.names
        return names if model.used is None else [names[index] for index in model.used]

    def colour(self, column: str) -> list[Labels | None]:
        """Return what a column says of every dataset: a column of labels, or, after "feature:", a feature."""
        if column in self.columns:
            return self.columns[column]
        name = column.removeprefix("feature:")
        if name == column or name not in self.feature_names:
            raise InputError(f"there is no column {column!r} to colour by. Choose one that is listed.")
        at = self.feature_names.index(name)
        values = (np.asarray(rows.source.columns(at, at + 1), dtype=np.float64)[:, 0] for rows in self.rows)
        return [Labels([], np.full(len(each), -1, dtype=np.intp), each) for each in values]

    # Models

    @property
    def default_method(self) -> str:
        """The method of the estimator that was given."""
        if isinstance(self.estimator, KernelDPCA):
            return "kernel"
        if isinstance(self.estimator, CPCA):
            return "cpca"
        return "signal" if self.estimator.axes == "signal" else "dpca"

    @property
    def methods(self) -> dict[str, str]:
        """The methods that a view can show, and their titles."""
        return {key: title for key, title in TITLES.items() if key != "kernel" or self.default_method == "kernel"}

    def make(self, method: str, stop: int, on: tuple[int, ...], n_components: Any = None) -> BaseContrast:
        """Return the estimator of a method at a stop, not fitted."""
        given = self.estimator.get_params()
        count, mix = given["n_components"] if n_components is None else n_components, self._mix(given["mix"], on)
        if method == "kernel":
            return clone(self.estimator).set_params(mix=mix)  # type: ignore[no-any-return]
        if method in ("pca", "cpca") and count == "auto":  # needs the ratios of dPCA
            count = _COMPONENTS
        if method == "pca" and given.get("features") != "common":
            return DPCA(count, random_state=given["random_state"])
        kind = CPCA if method in ("pca", "cpca") else DPCA
        own = given if isinstance(self.estimator, kind) else {name: given[name] for name in _SHARED if name in given}
        fixed: dict[str, dict[str, Any]] = {
            "pca": {"alpha": 0.0}, "cpca": {}, "dpca": {"axes": "ratio"}, "signal": {"axes": "signal"},
        }  # fmt: skip
        changed = fixed[method]
        if stop:
            values = self.stops(method, on).values
            if stop >= len(values):
                raise InputError(f"the dial of {TITLES[method]} has {len(values)} stops. Choose one of them.")
            changed[PARAMETERS[method]] = values[stop]
        return kind(**{**own, "n_components": count, "mix": mix, **changed})

    def _mix(self, mix: Any, on: tuple[int, ...]) -> Any:
        """Return the mixture weights of the backgrounds in use, as numbers that code can show."""
        if mix is None or isinstance(mix, str):
            return mix
        if isinstance(mix, Mapping):
            return {self.keys[n]: float(mix[self.keys[n]]) for n in on}
        return [float(mix[n]) for n in on]

    def fit(self, estimator: BaseContrast, method: str, on: tuple[int, ...]) -> BaseContrast:
        """Fit an estimator of a method to the given data, without repeating warnings: the verdict shows them."""
        with without_warnings() if hasattr(self, "rows") else nullcontext(), sharing(self.results.once):
            if method == "pca" and isinstance(estimator, DPCA):
                estimator.fit(self.target, groups=self.groups)
            else:
                background, groups = self.background(on), self.grouped(on)
                estimator.fit(self.target, background=background, groups=self.groups, background_groups=groups)
        return estimator

    @kept
    def fitted(self, method: str, stop: int, on: tuple[int, ...]) -> Any:
        """Return the fitted estimator of a method at a stop, as ``fit`` gives it."""
        return self.fit(self.make(method, stop, on), method, on)

    def best(self, view: View) -> Stops:
        """Return the stops that a view needs: all of them if the dial was moved."""
        return self.stops(view.method, view.on) if view.stop else self.start(view.method, view.on)

    @kept
    def whole(self, method: str, on: tuple[int, ...]) -> BaseContrast:
        """Return the model of stop 0 with as many components as can be shown."""
        given = self.fitted(method, 0, on)
        model = given._solved()
        count = max(min(MOST_COMPONENTS, model.rank, model.target_counts.rows - 1), given.n_components_)
        if method in ("kernel", "signal") or count == given.n_components_:
            return given  # type: ignore[no-any-return]
        estimator = self.make(method, 0, on, count)
        if method == "cpca":  # the search for alpha depends on the number of components
            estimator.set_params(alpha=given.alpha_)
        try:
            return self.fit(estimator, method, on)
        except InputError:  # the rank of the target may be lower than that of both
            return given  # type: ignore[no-any-return]

    @kept
    def start(self, method: str, on: tuple[int, ...]) -> Stops:
        """Return the first stop of a method alone: what the library chooses. It needs no path."""
        whole = self.whole(method, on)
        model = whole._solved()
        if whole.n_components_ == 0:
            raise InputError(f"{TITLES[method]}: no component stands out from noise, so there is nothing to draw.")
        if method == "kernel":
            found = dial.of_scores(self.rows, [whole._scores(source) for source in (self.target, *self.backgrounds)])
        else:
            model = model.narrowed()
            name = PARAMETERS.get(method)
            value = None if name is None else float(getattr(self.fitted(method, 0, on), f"{name}_"))
            found = dial.collect(
                self.rows_of(method, on), model.components[None], model.mean, model.scale, [value],
                centred=self._centred(method),
            )  # fmt: skip
        return replace(found, ratios=model.ratios[None] if model.background_counts else None)

    def _centred(self, method: str) -> bool:
        """Return whether the variance of the target is about its own mean."""
        return method == "pca" or getattr(self.estimator, "centering", "own") == "own"

    @kept
    def stops(self, method: str, on: tuple[int, ...]) -> Stops:
        """Return all stops of a method."""
        first = self.start(method, on)
        parameter = PARAMETERS.get(method)
        if parameter is None or (method == "dpca" and getattr(self.estimator, "graph", None) is not None):
            return first
        given = self.make(method, 0, on)
        with without_warnings(), sharing(self.results.once):
            found = path(
                self.target, self.background(on), over=parameter, n_components=first.n_components, mix=given.mix,
                centering=given.centering, features=given.features, random_state=given.random_state,
            )  # fmt: skip
        model = self.whole(method, on)._solved()
        components = found.components if model.used is None else found.components[..., model.used]
        narrow = model.narrowed()
        stops = dial.collect(
            self.rows_of(method, on), np.concatenate([narrow.components[None], components]), narrow.mean, narrow.scale,
            [first.values[0], *map(float, found.values)], parameter=parameter,
            representatives=[1 + int(number) for number in found.representatives], centred=self._centred(method),
        )  # fmt: skip
        return self._with_shrunk_ratios(stops, first, on) if method == "dpca" else stops

    def _with_shrunk_ratios(self, stops: Stops, first: Stops, on: tuple[int, ...]) -> Stops:
        """Return the stops with the ratios of the library: over the background with its correlations shrunk."""
        assert first.ratios is not None
        model = self.fitted("dpca", 0, on)
        rho = np.array([0.0, *stops.values[1:]])[:, None]
        diagonal = stops.directions**2 @ model._solved().narrowed().scale ** 2
        shrunk = (1 - rho) * self._background_variance(stops, model.mix_, on) + rho * diagonal
        shrunk[shrunk <= _NULL * diagonal] = 0.0  # no variance, but for rounding
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = stops.target_variance / shrunk
        ratios[0] = first.ratios[0]
        if model.normalize == "background":
            factors = np.divide(1.0, np.sqrt(shrunk), out=np.ones_like(shrunk), where=shrunk > 0)
            factors[0] = 1.0
            stops = stops.scaled(factors)
        return replace(stops, ratios=ratios)

    def _background_variance(self, stops: Stops, shares: Array, on: tuple[int, ...]) -> Array:
        parts = [share * stops.background_variance[number] for share, number in zip(shares, on, strict=True)]
        return np.sum(parts, axis=0)  # type: ignore[no-any-return]

    def shares(self, method: str, on: tuple[int, ...]) -> Array:
        """Return the share of each background in use."""
        mix: Array = self.fitted("dpca" if method == "pca" else method, 0, on).mix_
        return mix

    # What a view shows

    def view(self, method: Any, stop: Any, x: Any, y: Any, on: Any) -> View:
        """Return a view from values that came from outside."""
        if not isinstance(method, str) or method not in self.methods:
            raise InputError(f"unknown method {method!r}. Use one of {listed(list(self.methods))}.")
        if not isinstance(on, list | tuple) or not all(type(value) is int for value in (stop, x, y, *on)):
            raise InputError("view: stop, axes and backgrounds are whole numbers.")
        chosen = tuple(sorted(set(on)))
        if not chosen or chosen[0] < 0 or chosen[-1] >= len(self.names):
            raise InputError(f"background: choose one or more of the numbers 0 to {len(self.names) - 1}.")
        found = View(method, stop, x, y, self.every if method == "pca" else chosen)
        if method == "signal" and stop == 0 and self.fitted(*found.model).n_components_ == 0:
            return found  # nothing to draw, but a model with a verdict
        available = self.best(found)
        if not 0 <= stop < len(available.values):
            raise InputError(f"stop: the dial of {TITLES[method]} has {len(available.values)} stops.")
        if not (0 <= x < available.n_components and -1 <= y < available.n_components):
            raise InputError(f"axes: {TITLES[method]} has {available.n_components} components.")
        return found

    @kept
    def target_scores(self, view: View) -> Array:
        """Return the scores of all target rows on the axes of a view, (n_rows, 2)."""
        both = self.all_scores(view, 0)
        y = np.arange(len(both), dtype=np.float64) if view.y < 0 else both[:, view.y]
        return np.column_stack([both[:, view.x], y])

    def all_scores(self, view: View, number: int) -> Array:
        """Return the scores of all rows of a dataset on the components of a view, as on the screen."""
        if view.method == "kernel":
            source = (self.target, *self.backgrounds)[number]
            return np.asarray(self.fitted("kernel", 0, view.on)._scores(source))
        rows = self.rows_of(view.method, view.on)[number]
        mean = self.fitted(view.method, 0, view.on)._solved().narrowed().mean  # that of all stops
        return dial.scores(rows.scored or rows.source, self.best(view).directions[view.stop], mean)

    def component_names(self, view: View) -> list[str]:
        """Return the names of the components at the places of the screen."""
        found = self.best(view)
        prefix = {"pca": "pca", "cpca": "cpca"}.get(view.method, "dpca")
        if view.method == "kernel":
            return [str(name) for name in self.fitted("kernel", 0, view.on).get_feature_names_out()]
        return [f"{prefix}{number}" for number in found.order[view.stop]]

    def describe(self, view: View) -> dict[str, Any]:
        """Return the ratios, the noise edge and the patterns of a view."""
        found = self.best(view)
        if found.ratios is None:
            of_background = self._background_variance(found, self.shares(view.method, view.on), view.on)
            with np.errstate(divide="ignore", invalid="ignore"):
                ratios = (found.target_variance / of_background)[view.stop]
        else:
            ratios = found.ratios[view.stop]
        given = self.fitted("dpca" if view.method == "pca" else view.method, 0, view.on)
        moves = None if found.moves is None else found.moves[view.stop]
        tops = []
        for row in [] if moves is None else moves:
            order = np.argsort(-np.abs(row), kind="stable")[:N_FEATURES]
            tops.append([{"feature": shown(self.feature_names[j]), "weight": float(row[j])} for j in order if row[j]])
        value = found.values[view.stop]
        return {
            "names": self.component_names(view), "ratios": ratios, "noise_edge": given.noise_edge_,
            "shrunk": view.method in ("dpca", "signal") and bool(value if view.stop else given.shrinkage_),
            "value": value, "top_features": tops,
        }  # fmt: skip

    def points(self, view: View) -> bytes:
        """Return the scores of the drawn rows on the axes of a view: x then y of each dataset, as float32."""
        found, parts = self.best(view), []
        for rows, drawn in zip(self.rows, found.drawn, strict=True):
            y = rows.drawn.astype(np.float32) if view.y < 0 else drawn[:, view.stop, view.y]
            parts += [drawn[:, view.stop, view.x], y]
        return np.ascontiguousarray(np.concatenate(parts), dtype="<f4").tobytes()

    # Trust

    def judge(self, view: View, assessment: Assessment | None = None) -> dict[str, Any]:
        """Return the verdict of the library on the model of a view."""
        fitted = self.fitted(*view.model)
        command = self.origin.command and self.origin.command(self, view, "test")
        found = verdict(fitted._solved(), assessment, command)
        step = found.next_step and found.next_step.text(on_command_line=command is not None)
        reasons = [self.origin.spell(reason) for reason in found.reasons]
        return {**found.to_dict(), "reasons": reasons, "next_step": step, "n_doubts": found.n_doubts}

    def select(self, selection: Any) -> tuple[Mask, View | None, Array | None]:
        """Return the selected target rows, and the view and region that selected them, or None for labels."""
        if not isinstance(selection, dict):
            raise InputError("selection: give a region of a view, or a label.")
        if selection.get("kind") == "label":
            column, value = str(selection.get("column")), selection.get("value")
            labels = self.colour(column)[0]
            if labels is None or type(value) is not int or not 0 <= value < len(labels.names):
                raise InputError(f"selection: the target has no label number {value!r} in {column!r}.")
            return labels.codes == value, None, None
        view = self.view(*(selection.get(name) for name in ("method", "stop", "x", "y", "on")))
        region = as_region(selection.get("points"))
        return inside(self.target_scores(view), region), view, region

    def compare(self, first: Any, second: Any = None) -> dict[str, Any]:
        """Return how selected target rows differ from the others, or from a second selection."""
        found = self.effects(first, second)
        return {
            "counts": found.counts,
            "units": found.units if self.rows[0].units.ids else None,
            "features": [
                {
                    "feature": shown(self.feature_names[j]), "difference": found.difference[j],
                    "size": found.size[j], "low": found.low[j], "high": found.high[j],
                }
                for j in found.largest(N_FEATURES)
            ],
        }  # fmt: skip

    def effects(self, first: Any, second: Any = None) -> Effects:
        """Return the effect sizes of all features."""
        one, two = self._sides(first, second)
        key = ("effects", *(sha256(mask.tobytes()).digest() for mask in (one, two)))
        return self.results.once(key, lambda: effects(self.rows[0].source, self.rows[0].units, one, two))

    def _sides(self, first: Any, second: Any) -> tuple[Mask, Mask]:
        one = self.select(first)[0]
        two = ~one if second is None else self.select(second)[0]
        if (one & two).any():
            raise InputError(f"the two selections share {int((one & two).sum())} rows. Select rows apart.")
        for name, mask in (("selection", one), ("second selection" if second is not None else "other rows", two)):
            if mask.sum() < FEWEST_ROWS:
                raise InputError(f"{name}: {int(mask.sum())} rows. A comparison needs {FEWEST_ROWS} or more.")
        return one, two

    def check(self, selection: Any) -> dict[str, Any]:
        """Return whether a selection holds on rows that did not choose the axis."""
        _, view, region = self.select(selection)
        if view is None or region is None:
            return {"kind": "labels", "sentence": CHOSEN_BY_LABEL}
        if len(self.feature_names) < FEWEST_FEATURES:
            return {"kind": "impossible", "sentence": TOO_FEW_FEATURES}
        key = ("check", view, region.tobytes())  # a region has few corners
        try:
            found = self.results.once(key, lambda: self._check(view, region))
        except InputError as error:
            return {"kind": "impossible", "sentence": f"The check on halves is not possible: {error}"}
        largest = self.effects(selection).largest(N_FEATURES)
        return {
            "kind": found.kind, "sentence": found.sentence(), "again": found.again, "chance": found.chance,
            "size": found.size[largest], "low": found.low[largest], "high": found.high[largest],
        }  # fmt: skip

    def _check(self, view: View, region: Array) -> HalfCheck:
        shown = self.target_scores(view)
        axes = [view.x] if view.y < 0 else [view.x, view.y]
        count = 1 + int(self.best(view).order[view.stop, axes].max())
        on = () if view.method == "pca" else view.on
        sources = [self.rows[0], *(self.rows[1 + number] for number in on)]

        def fit(halves: list[Any]) -> Array:
            estimator = self.make(view.method, view.stop, view.on, None if view.method == "kernel" else count)
            parts = [RowView(rows.source, half) for rows, half in zip(sources, halves, strict=True)]
            groups = [
                each.units.rows[half] if each.units.ids else None for each, half in zip(sources, halves, strict=True)
            ]
            if not isinstance(estimator.mix, str):
                estimator.set_params(mix=list(self.shares(view.method, view.on)))
            sides: dict[str, Any] = {"background": dict(enumerate(parts[1:]))} if on else {}
            if any(each is not None for each in groups[1:]):
                sides["background_groups"] = dict(enumerate(groups[1:]))
            with without_warnings():
                estimator.fit(parts[0], groups=groups[0], **sides)
            scores = np.asarray(estimator._scores(self.rows[0].source))
            # The number of the row is its own second axis.
            return scores if view.y >= 0 else np.column_stack([scores, shown[:, 1]])

        values = sum(float(rows.n_rows) for rows in self.rows) * len(self.feature_names)
        n_splits = 1 if values > _MANY_VALUES else _SPLITS
        return check_halves(self.rows[0].source, [rows.units for rows in sources], region, shown, fit, n_splits)
