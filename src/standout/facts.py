"""A fitted model as plain facts, for scripts: numbers, text and lists that JSON can hold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from standout.model import Model
from standout.moments import Counts


def facts_of(estimator: Any, count: int = 10) -> dict[str, Any]:
    """Return what a fitted estimator has found; infinite numbers are text, those without a meaning None.

    Parameters
    ----------
    estimator : fitted estimator
        The model.
    count : int
        How many of the top features of each component.

    Returns
    -------
    dict

    Examples
    --------
    >>> import numpy as np
    >>> from standout import DPCA
    >>> rng = np.random.default_rng(0)
    >>> model = DPCA(1).fit(rng.normal(size=(50, 3)) * [1, 1, 9], background=rng.normal(size=(999, 3)))
    >>> facts = facts_of(model)
    >>> facts["method"], facts["regime"], facts["components"][0]["top_features"][0]["feature"]
    ('DPCA', 'exact', 2)
    """
    model: Model = estimator._solved()
    found = {
        "method": type(estimator).__name__,
        "parameters": {name: plain(value) for name, value in estimator.get_params().items()},
        "n_features": int(estimator.n_features_in_),
        "rank": model.rank,
        "regime": model.regime,
        "shrinkage": plain(model.shrinkage),
        "n_factors": model.n_factors,
        "solver": model.solver,
        "noise_edge": plain(model.noise_edge),
        "p_value": plain(model.p_value),
        "target": _counts(model.target_counts),
        "backgrounds": {
            name: {**_counts(counts), "share": plain(share)}
            for (name, counts), share in zip(model.background_counts, model.mix, strict=True)
        },
        "components": _components(estimator, model, count),
        "notes": [note.text for note in model.notes],
    }
    for name in ("alpha", "gamma"):
        if hasattr(model, name):
            found[name] = plain(getattr(model, name))
    return found


def _components(estimator: Any, model: Model, count: int) -> list[dict[str, Any]]:
    # A kernel's components are functions: no feature stands for them.
    tops = estimator.top_features(count) if hasattr(estimator, "top_features") else [[] for _ in model.ratios]
    return [
        {
            "name": str(name),
            "ratio": plain(model.ratios[k]),
            "debiased_ratio": plain(model.debiased_ratios[k]),
            "target_variance": plain(model.target_variance[k]),
            "background_variance": plain(model.background_variance[k]),
            "top_features": [{"feature": top.feature, "weight": plain(top.weight)} for top in tops[k]],
        }
        for k, name in enumerate(estimator.get_feature_names_out())
    ]


def _counts(counts: Counts) -> dict[str, Any]:
    return {"rows": counts.rows, "units": plain(counts.units)}


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it.

    Examples
    --------
    >>> plain(np.array([1.0, np.nan, np.inf])), plain({"a": (1, None)})
    ([1.0, None, 'inf'], {'a': [1, None]})
    """
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value.tolist()]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
