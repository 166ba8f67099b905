"""Whether the parts of a model fit together: what a fit makes always does, what is in a file might not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from standout.estimators.cpca import ContrastiveModel
from standout.estimators.kernel_model import KernelModel
from standout.kernels import KERNELS, Kernel, Landmarks
from standout.model import Model
from standout.moments import Counts
from standout.paths import Path
from standout.solve import Note
from standout.solve.signal import Signal
from standout.store.container import MalformedError


def check_model(model: Any, kind: type[Model], n_features: int) -> None:
    """Refuse a model that is not of this kind, or has a part of another type, shape or range than a fit gives it."""
    _need(type(model) is kind, "its model is of another kind")
    columns, shown = n_features, n_features
    if isinstance(model, KernelModel):
        columns, shown = _check_landmarks(model.landmarks, n_features), 0
        _need(model.used is None and model.signal is None, "a kernel has no features")
    _check_arrays(model, columns, shown)
    _check_numbers(model)
    _check_counts(model)
    _check_notes(model.notes)
    if model.used is not None:
        _places(model.used, n_features)
        _need(bool((np.diff(model.used) > 0).all()), "the features that take part are not in order")
    if model.signal is not None:
        _check_signal(model.signal, n_features)
    if isinstance(model, ContrastiveModel):
        _need(isinstance(model.alpha, float), "alpha is no number")
        if model.path is not None:
            _check_path(model.path, model.n_components, n_features)


def _need(condition: bool, otherwise: str) -> None:
    if not condition:
        raise MalformedError(otherwise)


def _floats(array: Any, shape: Sequence[int], *, finite: bool = True, least: float = -math.inf) -> None:
    """Check an array of floats, where ``least`` is the smallest value allowed."""
    _need(isinstance(array, np.ndarray) and array.dtype == np.float64, "an array is not one of floats")
    _need(array.shape == tuple(shape), f"an array has shape {array.shape} in the place of {tuple(shape)}")
    _need(not finite or bool(np.isfinite(array).all()), "an array has values that are not finite")
    _need(not (array < least).any(), "an array has values that are not possible")


def _places(array: Any, limit: int) -> None:
    """Check an array of positions below a limit; there is at least one."""
    whole = isinstance(array, np.ndarray) and array.dtype.kind == "i" and array.ndim == 1 and len(array) > 0
    _need(whole and array.min() >= 0 and array.max() < limit, "an array of positions points outside")


def _check_arrays(model: Model, columns: int, shown: int) -> None:
    _need(isinstance(model.ratios, np.ndarray) and model.ratios.ndim == 1, "the ratios are no list of numbers")
    count = len(model.ratios)
    _floats(model.components, (count, columns))
    _floats(model.patterns, (count, shown), finite=False)
    for ratios in (model.ratios, model.plain_ratios, model.debiased_ratios):
        _floats(ratios, (count,), finite=False)
    for variance in (model.target_variance, model.background_variance):
        _floats(variance, (count,), finite=False, least=0.0)
    _floats(model.mean, (columns,))
    _floats(model.scale, (columns,), least=np.nextafter(0, 1))


def _check_numbers(model: Model) -> None:
    for value in (model.noise_edge, model.p_value, model.shrinkage, model.background_units):
        _need(isinstance(value, float), "a number of the model is not one")
    _need(_is_count(model.rank), "the rank is no whole number")
    _need(
        isinstance(model.regime, str) and model.regime in ("exact", "structural", "shrunk"), "the regime is not known"
    )
    _need(isinstance(model.solver, str), "the solver has no name")


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and 0 <= int(value) < 2**63


def _check_counts(model: Model) -> None:
    named = model.background_counts
    pairs = isinstance(named, tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in named)
    _need(pairs and all(isinstance(name, str) for name, _ in named), "the backgrounds have no names")
    _floats(model.mix, (len(named),), least=0.0)
    for counts in (model.target_counts, *(counts for _, counts in named)):
        _need(isinstance(counts, Counts) and _is_count(counts.rows), "rows are not counted")
        for value in (counts.weight, counts.effective, counts.units):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            _need(number and 0 <= value < math.inf, "rows are not counted")


def _check_notes(notes: Any) -> None:
    _need(isinstance(notes, tuple), "the notes are no list")
    for note in notes:
        told = isinstance(note, Note) and isinstance(note.text, str) and isinstance(note.category, type)
        _need(told, "a note is not one")


def _check_signal(signal: Any, n_features: int) -> None:
    _need(isinstance(signal, Signal) and np.ndim(signal.gains) == 1, "the signal is not one")
    _floats(signal.gains, (len(signal.gains),))
    _floats(signal.filters, (n_features, len(signal.gains)))
    _floats(signal.patterns, (n_features, len(signal.gains)))


def _check_path(path: Any, count: int, n_features: int) -> None:
    _need(
        isinstance(path, Path) and isinstance(path.over, str) and path.over in ("alpha", "shrinkage"),
        "the path is not one",
    )
    _need(isinstance(path.values, np.ndarray) and path.values.ndim == 1, "the path has no values")
    steps = len(path.values)
    _floats(path.values, (steps,))
    _floats(path.components, (steps, count, n_features))
    _floats(path.similarity, (steps, steps))
    _places(path.labels, steps)
    _need(len(path.labels) == steps, "a step of the path has no label")
    _places(path.representatives, steps)


def _check_landmarks(landmarks: Any, n_features: int) -> int:
    """Check landmarks and their kernel, and return how many there are."""
    _need(isinstance(landmarks, Landmarks) and isinstance(landmarks.kernel, Kernel), "the landmarks are not there")
    rows, kernel = landmarks.rows, landmarks.kernel
    _need(isinstance(rows, np.ndarray) and rows.ndim == 2 and len(rows) > 0, "the landmarks are no rows")
    _floats(rows, (len(rows), n_features))
    if landmarks.scale is not None:
        _floats(landmarks.scale, (n_features,), least=np.nextafter(0, 1))
    numbers = all(isinstance(value, float) and math.isfinite(value) for value in (kernel.gamma, kernel.coef0))
    known = isinstance(kernel.kind, str) and kernel.kind in KERNELS
    _need(known and numbers and _is_count(kernel.degree) and kernel.degree > 0, "the kernel is not known")
    return len(rows)
