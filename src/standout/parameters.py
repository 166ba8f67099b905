"""Checking the constructor's parameters, when fit is called: what was given, what is possible."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np

from standout.errors import InputError
from standout.solve import Wanted

SOLVERS = ("auto", "dense", "lanczos", "gsvd", "span", "matrix_free")


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Refuse a value that is not among the choices, and list them."""
    value = bool(value) if isinstance(value, np.bool_) else value
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        raise InputError(f"{name}={value!r} is not possible. Use one of {', '.join(map(repr, choices))}.")


def wanted_from(estimator: Any) -> Wanted:
    """Return what a DPCA estimator's parameters ask for, checked."""
    check_choice("axes", estimator.axes, ("ratio", "signal"))
    check_choice("normalize", estimator.normalize, (None, "background"))
    check_choice("centering", estimator.centering, ("own", "background"))
    check_choice("solver", estimator.solver, SOLVERS)
    check_choice("features", estimator.features, ("all", "common"))
    return Wanted(
        n_components=_n_components(estimator.n_components),
        shrinkage=_shrinkage(estimator.shrinkage),
        mix=check_mix(estimator.mix),
        own_centre=estimator.centering == "own",
        solver=estimator.solver,
        axes=estimator.axes,
        graph=estimator.graph,
        smoothness=_smoothness(estimator),
        seed=seed_from(estimator.random_state),
    )


def _n_components(value: Any) -> int | str | None:
    if value is None or (isinstance(value, str) and value == "auto"):
        return value
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1:
        return int(value)
    raise InputError(f"n_components={value!r} is not possible. Use a whole number from 1 on, None (all) or 'auto'.")


def _shrinkage(value: Any) -> str | float | None:
    if value is None or (isinstance(value, str) and value in ("auto", "oas")):
        return value
    if isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) <= 1:
        return float(value)
    raise InputError(f"shrinkage={value!r} is not possible. Use 'auto', 'oas', None or a number from 0 to 1.")


def _smoothness(estimator: Any) -> float:
    value = estimator.smoothness
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) < math.inf:
        raise InputError(f"smoothness={value!r} is not possible. Use a number from 0 on.")
    if estimator.graph is not None and estimator.solver in ("gsvd", "span", "matrix_free"):
        raise InputError(f"solver={estimator.solver!r} cannot use a graph. Use solver='auto', 'dense' or 'lanczos'.")
    return float(value)


def check_mix(value: Any) -> Any:
    """Return the shares as given; what is in them is checked against the backgrounds."""
    if isinstance(value, str):
        check_choice("mix", value, ("pooled", "equal", "minimax"))
    return value


def seed_from(random_state: Any) -> int:
    """Return a seed; None is 0, so that the same data always give the same bits."""
    if random_state is None:
        return 0
    if isinstance(random_state, Integral):
        return int(random_state) % 2**32
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**32))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    raise InputError(f"random_state={random_state!r} is not possible. Use a whole number or None.")


def check_count(name: str, value: Any) -> int:
    """Return a whole number from 1 on, or say what is wrong."""
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1:
        return int(value)
    shown = value if not (isinstance(value, float) and math.isnan(value)) else "NaN"
    raise InputError(f"{name}={shown!r} is not possible. Use a whole number from 1 on.")
