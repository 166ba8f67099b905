"""What the estimators do with rows and scores that come in many forms: in memory, as moments, on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn import get_config

from standout.blas import Array, rank_tolerance
from standout.dataset import Dataset
from standout.errors import InputError
from standout.model import Model
from standout.moments import Moments
from standout.solve import check_rows
from standout.sources import Source, has_moments, is_lazy, is_on_cluster
from standout.sources.here import check_fits, check_order, computed


def needed(target: Dataset | None) -> Dataset:
    """Return the target, or say that there is none."""
    if target is None:
        raise InputError("X: no target rows were given. Give the target's rows, or its Moments, as X.")
    return target


# Along a component with an infinite ratio the background has no variance: less than this part of the target's sd.
_NULL = 1e-6
_EPS = float(np.finfo(float).eps)


def projected(data: Dataset, model: Model, *, background: bool = False) -> Moments:
    """Return the moments of a dataset's scores; a variance that is only rounding is exactly zero."""
    summed = data.given is not None or is_lazy(data.source) or (has_moments(data.source) and data.weights is None)
    if summed:
        moments = data.moments.project(model.components.T)
    else:
        assert data.source is not None
        moments = Moments.of(model.project(data.source, data.role), weights=data.weights, role=data.role)
    check_rows(data.role, moments.rows)
    rounding = np.diagonal(moments.covariance()) <= _rounding(model, background, summed) ** 2
    if not rounding.any():
        return moments
    scatter = np.where(rounding | rounding[:, None], 0.0, moments.scatter)
    return replace(moments, scatter=scatter)


def _rounding(model: Model, background: bool, summed: bool) -> Array:
    """Return the sd along each component below which scores vary by rounding alone."""
    target = np.sqrt(model.target_variance)
    sd = 10 * _EPS * (np.abs(model.components) @ np.abs(model.mean) + target)
    if summed and model.background_counts:  # sums over rows have half the digits of the rows
        features = np.sqrt(model.components**2 @ model.scale**2)
        sd = np.maximum(sd, np.sqrt(rank_tolerance(len(model.scale))) * features)
    if background:
        sd = np.where(np.isinf(model.ratios), np.maximum(sd, _NULL * target), sd)
    return np.asarray(sd)


def check_container(estimator: Any) -> None:
    """Refuse to put scores on a cluster into a data frame in memory, as ``set_output`` would."""
    own = getattr(estimator, "_sklearn_output_config", {})
    wanted = own.get("transform", get_config()["transform_output"])
    if wanted != "default":
        raise InputError(
            f"X: set_output asks for scores as a {wanted} data frame, which would bring every row from the cluster. "
            "Call set_output(transform='default') for scores that stay there, or give rows in memory (compute() of "
            "dask, toPandas() of Spark)."
        )


def scores_here(transforms: Sequence[Callable[[Any], Any]], source: Source, role: str) -> list[Array]:
    """Return in memory what each of these makes of the rows; rows on a cluster are gone over once for all of them."""
    if not is_lazy(source):
        # An estimator may have been told to return frames.
        return [np.asarray(transform(source)) for transform in transforms]
    check_order(source, role)
    lazily = [transform(source) for transform in transforms]
    check_fits(source.n_rows, sum(scores.shape[1] for scores in lazily), role)
    return computed(lazily, role)


def as_given(background: Any, parts: Mapping[str, Any]) -> Any:
    """Return one thing for each background in the form the backgrounds were given in."""
    if list(parts) == ["background"]:
        return parts["background"]
    keys = background if isinstance(background, Mapping) else range(len(background))
    return dict(zip(keys, parts.values(), strict=True))


def given_scores(scores: Any, n_components: int) -> Any:
    """Return scores as a numpy array, or as a dask array where they lie on a cluster."""
    if not is_on_cluster(scores):
        scores = np.asarray(scores)
    # On the type: a delayed object has any attribute one asks it for.
    elif hasattr(type(scores), "to_dask_array"):
        scores = scores.to_dask_array()
    elif not hasattr(type(scores), "chunks"):
        raise InputError(
            f"scores: a {type(scores).__name__} on a cluster is not taken. Give a dask array, or bring the scores "
            "into memory first: toPandas().to_numpy() of Spark, compute() of dask."
        )
    if scores.ndim != 2 or scores.shape[1] != n_components or scores.dtype.kind not in "fiub":
        raise InputError(
            f"scores: values of type {scores.dtype} and shape {scores.shape} do not fit {n_components} "
            "components. Give one column of numbers for each component."
        )
    return scores
