"""Validation of constructor parameters and of the arguments of fit.

Parameters are validated when fit is called. The arguments of fit are converted to one target and named backgrounds on
the same features. The background is given either as one or more separate datasets, or as the rows of X that have a
certain label in y.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout._dataset import Dataset, fill_together
from standout._moments import Moments
from standout._table_checks import transposed_hint
from standout.errors import (
    FeatureError,
    FeatureWarning,
    InputError,
    RowsNeededError,
    did_you_mean,
    listed,
)
from standout.io.checkpoint import check_apart, warn_unused
from standout.io.memory import as_numpy, is_missing
from standout.io.read import is_dataset, open_data
from standout.io.source import ColumnView, RowSource, RowView, Source
from standout.solvers.problem import SolveOptions
from standout.solvers.solution import Note

SOLVERS = ("auto", "dense", "lanczos", "gsvd", "span", "matrix_free")
_SINGLE = "background"


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise an error that lists the choices if the value is not one of them."""
    value = bool(value) if isinstance(value, np.bool_) else value
    if not isinstance(value, str | bool | None) or value not in choices:
        raise InputError(f"`{name}={value!r}` is not possible. Use one of {', '.join(map(repr, choices))}.")


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number from 0 on."""
    return isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) < math.inf


def solve_options(
    *,
    n_components: Any,
    mix: Any,
    random_state: Any,
    shrinkage: Any = "auto",
    axes: Any = "ratio",
    normalize: Any = None,
    centering: Any = "own",
    solver: Any = "auto",
    features: Any = "all",
    graph: Any = None,
    smoothness: Any = 0.0,
) -> SolveOptions:
    """Validate the parameters of an estimator and return them as solver options."""
    check_choice("axes", axes, ("ratio", "signal"))
    check_choice("normalize", normalize, (None, "background"))
    check_choice("centering", centering, ("own", "background"))
    check_choice("solver", solver, SOLVERS)
    check_choice("features", features, ("all", "common"))
    if isinstance(mix, str):
        check_choice("mix", mix, ("pooled", "equal", "minimax"))
    if isinstance(n_components, float | np.floating) and 0 < n_components < 1:
        n_components = float(n_components)
    elif not (n_components is None or (isinstance(n_components, str) and n_components == "auto")):
        if not isinstance(n_components, Integral) or isinstance(n_components, bool) or int(n_components) < 1:
            possible = "Use a whole number from 1 on, None (all), 'auto' or, without a background, a share of the "
            possible += "variance between 0 and 1."
            raise InputError(f"`n_components={n_components!r}` is not possible. {possible}")
        n_components = int(n_components)
    if not (shrinkage is None or (isinstance(shrinkage, str) and shrinkage in ("auto", "oas"))):
        if not is_number(shrinkage) or shrinkage > 1:
            possible = "Use 'auto', 'oas', None or a number from 0 to 1."
            raise InputError(f"`shrinkage={shrinkage!r}` is not possible. {possible}")
        shrinkage = float(shrinkage)
    if not is_number(smoothness):
        raise InputError(f"smoothness={smoothness!r} is not possible. Use a number from 0 on.")
    if graph is not None and solver in ("gsvd", "span", "matrix_free"):
        raise InputError(f"`solver={solver!r}` cannot use a graph. Use `solver='auto'`, 'dense' or 'lanczos'.")
    return SolveOptions(
        n_components=n_components,
        shrinkage=shrinkage,
        mix=mix,
        own_centre=centering == "own",
        solver=solver,
        axes=axes,
        graph=graph,
        smoothness=float(smoothness),
        seed=0 if random_state is None else seed_from(random_state),
    )


def seed_from(random_state: Any) -> int:
    """Return a seed; None maps to 0, so that results are reproducible bit for bit."""
    if random_state is None:
        return 0
    if isinstance(random_state, Integral):
        return int(random_state) % 2**32
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**32))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    raise InputError(f"`random_state={random_state!r}` is not possible. Use a whole number or None.")


def check_count(name: str, value: Any) -> int:
    """Return a positive integer; raise an error for any other value."""
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1:
        return int(value)
    shown = value if not (isinstance(value, float) and math.isnan(value)) else "NaN"
    raise InputError(f"`{name}={shown!r}` is not possible. Use a whole number from 1 on.")


@dataclass(frozen=True)
class FitArguments:
    """The arguments of fit, partial_fit and score, as given."""

    X: Any
    y: Any = None
    background: Any = None
    sample_weight: Any = None
    background_sample_weight: Any = None
    groups: Any = None
    background_groups: Any = None


@dataclass(frozen=True)
class Inputs:
    """The target and the backgrounds; after :func:`match_features`, on the same features."""

    datasets: tuple[Dataset, ...]  # target first, which a batch of rows may lack
    names: tuple[str, ...] | None = None  # all features of the target
    n_features: int = 0
    kept: NDArray[np.intp] | None = None  # indices of the features in use, if some were left out
    notes: tuple[Note, ...] = ()

    @property
    def target(self) -> Dataset | None:
        """The target, if there is one."""
        return next((data for data in self.datasets if data.role == "target"), None)

    @property
    def backgrounds(self) -> tuple[Dataset, ...]:
        """The backgrounds."""
        return tuple(data for data in self.datasets if data.role != "target")

    def as_moments(self) -> Inputs:
        """Return the inputs with moments in place of rows."""
        datasets = tuple(Dataset(data.role, given=data.moments) for data in self.datasets)
        return Inputs(datasets, self.names, self.n_features, self.kept, self.notes)

    def plus(self, batch: Inputs) -> Inputs:
        """Return the inputs with the moments of one more batch added."""
        total = {data.role: data.moments for data in self.datasets}
        for data in batch.datasets:
            total[data.role] = total[data.role] + data.moments if data.role in total else data.moments
        return replace(self, datasets=tuple(Dataset(role, given=part) for role, part in total.items()))


def parse_inputs(given: FitArguments, background_label: Any = None, whole: bool = False) -> Inputs:
    """Convert arguments to datasets, by label or by dataset; ``whole``: the target and every label must be there."""
    if whole and given.X is None:
        raise InputError("X: no target rows were given. Give the target's rows, or its Moments, as X.")
    if background_label is not None:
        return _by_label(given, background_label, whole)
    datasets = []
    if given.X is not None:
        datasets.append(Dataset.of("target", given.X, given.sample_weight, given.groups))
    weights, groups = given.background_sample_weight, given.background_groups
    if given.background is None:
        if weights is not None or groups is not None:
            raise InputError(
                "background_sample_weight or background_groups was given without a background. Give background= too."
            )
    elif not are_several(given.background):
        datasets.append(Dataset.of(_SINGLE, given.background, weights, groups))
    else:
        named = _named(given.background)
        if not named:
            raise InputError("background: an empty list or dict was given. Give at least one dataset, or None for PCA.")
        weights = _one_for_each("background_sample_weight", weights, named)
        groups = _one_for_each("background_groups", groups, named)
        datasets += [Dataset.of(name, data, weights.get(name), groups.get(name)) for name, data in named.items()]
    if given.y is not None:
        _check_unused_labels(given.y, None if given.X is None else datasets[0].source)
    if any(data.source is not None and data.source.checkpoint is not None for data in datasets):
        check_apart({data.role: data.source for data in datasets})
    return Inputs(tuple(datasets))


def _check_unused_labels(y: Any, source: Source | None) -> None:
    """Raise an error unless y, which is not used, is a label for each row: a background given as y would be ignored."""
    if isinstance(y, list | tuple):
        shape = (len(y), *np.shape(y[0])) if y else (0,)
    else:
        shape = tuple(y.shape) if hasattr(y, "shape") else np.asarray(y).shape
    n_rows = None if source is None else source.n_rows
    if len(shape) == 1 and (n_rows is None or shape[0] == n_rows or shape[0] != shape[0]):  # NaN: unknown to Dask
        return
    what = f"shape {shape}" if shape else f"a {type(y).__name__}"
    rows = "the rows of X" if n_rows is None else f"the {n_rows} rows of X"
    raise InputError(
        f"y: {what} was given as the second argument, which takes one label for each of {rows}. Give a background as "
        "`background=`."
    )


def label_list(background_label: Any) -> list[Any]:
    """Return the distinct labels of background rows, in order."""
    if isinstance(background_label, np.ndarray):
        background_label = background_label.tolist()
    several = background_label if isinstance(background_label, list | tuple | set) else [background_label]
    return list(dict.fromkeys(several))


def background_name(key: Any) -> str:
    """Return the name of one of several backgrounds, used in messages and in the model."""
    return f"{_SINGLE} {key!r}"


def are_several(background: Any) -> bool:
    """Return whether this is a collection of datasets, as opposed to one dataset given as a list of rows."""
    if isinstance(background, Mapping):  # some tables, sparse matrices and covariances are mappings too
        return not is_dataset(background)
    if not isinstance(background, list | tuple):
        return False
    return not background or isinstance(background[0], Moments) or is_dataset(background[0])


def _named(several: Any) -> dict[str, Any]:
    items = several.items() if isinstance(several, Mapping) else enumerate(several)
    return {background_name(key): data for key, data in items}


def _one_for_each(argument: str, values: Any, named: dict[str, Any]) -> dict[str, Any]:
    if values is None:
        return {}
    if not isinstance(values, list | tuple | Mapping):
        raise InputError(
            f"{argument}: one {type(values).__name__} for {len(named)} backgrounds. Give a list or dict with one "
            "entry for each background."
        )
    chosen = _named(values)
    unknown = [name for name in chosen if name not in named]
    if unknown or (isinstance(values, list | tuple) and len(values) != len(named)):
        raise InputError(
            f"{argument}: {len(values)} entries do not fit the {len(named)} backgrounds {listed(list(named))}. "
            "Give one entry for each background, under the same names."
        )
    return chosen


def _by_label(given: FitArguments, background_label: Any, whole: bool) -> Inputs:
    """Split X into target and background rows by label, without copying."""
    wanted = label_list(background_label)
    if given.background is not None:
        raise InputError(
            f"both background= and background_label={background_label!r} define the background. Give one of them."
        )
    if not wanted:
        raise InputError("background_label: an empty list was given. Name at least one label, or use None.")
    if given.X is None or isinstance(given.X, Moments):
        raise RowsNeededError("background_label splits rows by their label, so X must hold rows. Give rows and y.")
    if given.background_sample_weight is not None or given.background_groups is not None:
        raise InputError(
            "with background_label, sample_weight and groups cover the background rows too. "
            "Leave background_sample_weight and background_groups out."
        )
    source = open_data(given.X, "X")
    roles = [_SINGLE if len(wanted) == 1 else background_name(label) for label in wanted]
    if not isinstance(source, RowSource) and (source.is_incomplete or not (source.is_local and source.rereadable)):
        moments, found = source.moments_by_label(given.y, wanted, given.sample_weight, given.groups, roles)
        if whole:
            _check_occurring([label for i, label in enumerate(wanted) if i not in moments], -1 in moments, found)
        return Inputs(tuple(Dataset([*roles, "target"][i], given=part) for i, part in sorted(moments.items())))
    warn_unused(
        source,
        "X",
        "passes over rows selected by background_label are not saved. Choose target and background with `where`, as "
        "two datasets with separate checkpoints.",
    )
    labels = _labels(given.y, source, wanted)
    masks = {label: equal_labels(labels, label) for label in wanted}
    chosen = np.any(list(masks.values()), axis=0)
    if whole:
        absent = [label for label, mask in masks.items() if not mask.any()]
        _check_occurring(absent, not chosen.all(), list(dict.fromkeys(labels.tolist())))
    parts = {} if chosen.all() else {"target": ~chosen}
    parts |= {role: mask for role, mask in zip(roles, masks.values(), strict=True) if mask.any()}
    return Inputs(tuple(_part(role, given, source, mask) for role, mask in parts.items()))


def _check_occurring(absent: Sequence[Any], has_target: bool, found: list[Any]) -> None:
    """Raise an error if a background label does not occur, or no other label does; ``found`` are those that occur."""
    for label in absent:
        problem = f"background_label={label!r} does not occur in y, which has {listed(found)}"
        raise InputError(f"{problem}.{did_you_mean(label, found)} Name a label that occurs.")
    if not has_target:
        raise InputError(
            f"y has only background rows ({listed(found)}), so there is no target. Give rows with other labels too."
        )


def _labels(y: Any, source: Source, wanted: list[Any]) -> NDArray[Any]:
    if y is None:
        y = source.labels
    if y is None:
        shown = wanted[0] if len(wanted) == 1 else wanted
        raise InputError(f"background_label={shown!r} needs y, the label of each row. Give y, or use background=.")
    labels = as_numpy(y)
    if labels.ndim != 1 or source.n_rows not in (len(labels), None):
        raise InputError(f"y: shape {labels.shape} for {source.n_rows} rows. Give one label for each row.")
    check_no_missing(count_missing(labels), len(labels))
    return labels


def count_missing(labels: NDArray[Any]) -> int:
    """Return how many labels are missing."""
    return sum(map(is_missing, labels.tolist())) if labels.dtype.kind in "Of" else 0


def check_no_missing(missing: int, n_rows: int) -> None:
    """Raise an error if rows have no label."""
    if missing:
        raise InputError(
            f"y: {missing} of {n_rows} rows have no label (None or NaN), so it is not known what they are. "
            "Drop these rows, or give them a label."
        )


def equal_labels(labels: NDArray[Any], label: Any) -> NDArray[np.bool_]:
    """Return which labels equal ``label``."""
    equal = labels == label
    # For incompatible types numpy returns a scalar ("a" == 1 is False, not an array of False).
    return equal if isinstance(equal, np.ndarray) else np.zeros(len(labels), dtype=bool)


def _part(role: str, given: FitArguments, source: Source, mask: NDArray[np.bool_]) -> Dataset:
    cut: dict[str, Any] = {"sample_weight": given.sample_weight, "groups": given.groups}
    for name, values in cut.items():
        if values is not None:
            array = as_numpy(values)
            if array.shape[:1] != mask.shape:
                raise InputError(f"{name}: shape {array.shape} for {len(mask)} rows. Give one value for each row of X.")
            cut[name] = array[mask]
    if not isinstance(source, RowSource):  # a stream: one pass for each part, with weight zero for the other rows
        weights = mask * (1.0 if given.sample_weight is None else as_numpy(given.sample_weight))
        stream = ColumnView(source, np.arange(source.n_features))
        stream.checkpoint = None
        return Dataset(role, given=stream.moments(weights, given.groups, names=source.names, role=role))
    return Dataset(role, RowView(source, np.flatnonzero(mask)), weights=cut["sample_weight"], groups=cut["groups"])


def match_features(
    inputs: Inputs,
    features: str,
    fitted: tuple[tuple[str, ...] | None, int] | None = None,
    kept: NDArray[np.intp] | None = None,
) -> Inputs:
    """Align all datasets to the same features: by name if both have names, otherwise by position.

    Missing values are imputed here if ``missing="auto"``, because this requires all datasets. ``fitted`` are the names
    and the number of features of an earlier fit, by default those of the first dataset, and ``kept`` the indices of
    those that it uses.
    """
    first, notes = inputs.datasets[0], inputs.notes
    all_names, n_all = names, n_features = (first.names, first.n_features) if fitted is None else fitted
    target = first if first.role == "target" else None
    backgrounds = inputs.datasets if target is None else inputs.datasets[1:]
    if kept is None and features == "common" and names is not None:
        common = set(names).intersection(*(data.names for data in backgrounds if data.names is not None))
        if len(common) < len(names):
            kept = np.array([i for i, name in enumerate(names) if name in common], dtype=np.intp)
            notes = (_left_out(names, common),)
        if not common:
            hints = (transposed_hint(target, data) for data in backgrounds)
            raise FeatureError(
                "target and background have no feature in common. Check the column names of both."
                f"{next(filter(None, hints), '')}"
            )
    if kept is not None:
        names, n_features = None if names is None else tuple(names[i] for i in kept), len(kept)
    datasets = []
    if target is not None:
        datasets.append(align(target, all_names, n_all, "all"))
        if kept is not None:
            datasets[0] = datasets[0].select(kept)
    for data in backgrounds:
        labels, others = (None if one is None or one.source is None else one.source.unnamed for one in (target, data))
        if labels is not None and others is not None and labels != others:
            raise FeatureError(
                f"{data.role}: its columns are labelled {listed(others)}, those of the target {listed(labels)}, and "
                "labels that are not text are not matched. Give both the same columns in the same order, or make the "
                "labels text."
            )
        try:
            datasets.append(align(data, names, n_features, features))
        except FeatureError as error:
            raise FeatureError(f"{error}{transposed_hint(target, data)}") from None
    if any(data.is_incomplete for data in datasets):
        datasets = fill_together(datasets)
    return Inputs(tuple(datasets), all_names, n_all, kept, notes)


def _left_out(names: Sequence[str], common: set[str]) -> Note:
    lost = [name for name in names if name not in common]
    return Note(
        FeatureWarning,
        f"{len(lost)} of {len(names)} target features are not in every background and take no part: {listed(lost)}. "
        "Add them to the background to use them.",
    )


def align(data: Dataset, names: tuple[str, ...] | None, n_features: int, features: str) -> Dataset:
    """Align a dataset to these features; raise an error that lists missing or extra features."""
    if data.names == names and data.n_features == n_features:
        return data
    if names is not None and data.names is not None:
        position = {name: i for i, name in enumerate(data.names)}
        missing = [name for name in names if name not in position]
        wanted = set(names)
        extra = [name for name in data.names if name not in wanted]
        if missing or (extra and features == "all"):
            parts = [f"missing features of the target ({len(missing)}): {listed(missing)}"] if missing else []
            parts += [f"features that are not in the target ({len(extra)}): {listed(extra)}"] if extra else []
            remedy = "Give the same features, or use `features='common'` to take those in common."
            raise FeatureError(f"{data.role}: {'; '.join(parts)}. {remedy}")
        return data.select(np.array([position[name] for name in names], dtype=np.intp))
    if data.n_features != n_features:
        raise FeatureError(
            f"{data.role}: {data.n_features} features, and the target has {n_features}. Both must be measured on "
            "the same features; give data frames with column names to have them matched by name."
        )
    return data
