"""Results as text and as JSON: the summary of a model, and values that can be serialised.

The summary shows the ratios with the noise edge, then the verdict of :mod:`standout._verdict`, then further notes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from standout._blas import Array
from standout._kernel_model import KernelModel
from standout._model import Model
from standout._moments import Counts
from standout._shrinkage import estimate_text
from standout._verdict import verdict


class Summary(str):
    """String whose repr is the text itself, without quotes, for the prompt and notebooks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def summarize(model: Model, command: str | None = None) -> Summary:
    """Return the summary of a model; given the command that tests the same data, with that as the next step."""
    alpha = getattr(model, "alpha", None) if model.background_counts else None
    title = model.method if alpha is None else f"{model.method} (alpha = {alpha:.4g})"
    size = f"of {len(model.mean)} features ("
    if isinstance(model, KernelModel):
        size = f"over {len(model.landmarks.rows)} landmarks (kernel {model.landmarks.kernel.name}; "
    components = f"{model.n_components} component{'s' if model.n_components != 1 else ''}"
    lines = [f"{title}: {components} {size}joint rank {model.rank})"]
    if isinstance(model, KernelModel) and model.landmarks.scale is not None:
        lines.append("  units       features divided by their background sd")
    lines.append(f"  target      {_rows(model.target_counts)}")
    for (name, counts), share in zip(model.background_counts, model.mix, strict=True):
        weight = f", share {share:.2f}" if len(model.mix) > 1 else ""
        lines.append(f"  {name:<11} {_rows(counts)}{weight}")
    lines.append(f"  problem     {_problem(model)} (solver {model.solver})")
    found = verdict(model, command=command)
    lines += ["", *_table(model), "", *found.lines(on_command_line=command is not None)]
    lines += [f"  ! {note.text}" for note in model.notes if note.text not in found.reasons]
    return Summary("\n".join(lines))


def _rows(counts: Counts) -> str:
    text = f"{counts.rows} rows"
    if round(counts.units) != counts.rows:
        text += f" worth {counts.units:.4g} independent units"
    return text


def _problem(model: Model) -> str:
    if model.regime == "shrunk" and isinstance(model, KernelModel):
        return f"background covariance shrunk by {model.shrinkage:.3g} toward the identity, in the kernel's norm"
    if model.regime == "shrunk":
        return f"background covariance estimated by {estimate_text(model.shrinkage, model.n_factors)}"
    if model.regime == "structural":
        return "exact; the background does not vary in some directions (infinite ratios)"
    return "exact"


def ratio_columns(model: Model) -> dict[str, Array]:
    """Return the columns of a table with one row for each component."""
    target_sd = np.sqrt(model.target_variance)
    if not model.background_counts:
        return {"variance": model.target_variance, "sd": target_sd}
    shrunk = model.regime == "shrunk"
    return {
        "ratio": model.ratios,
        **({"unshrunk ratio": model.unshrunk_ratios} if shrunk else {}),
        "noise edge": np.full(model.n_components, model.noise_edge),
        "de-biased ratio": model.debiased_ratios,
        "target sd": target_sd,
        "background sd, shrunk" if shrunk else "background sd": np.sqrt(model.background_variance),
    }


def _table(model: Model) -> list[str]:
    columns = ratio_columns(model)
    shown = {name: values for name, values in columns.items() if name == "noise edge" or not np.isnan(values).all()}
    rows = [
        [label, *(_number(values[k]) for values in shown.values())] for k, label in enumerate(model.component_names)
    ]
    return _aligned([["component", *shown], *rows])


def _aligned(rows: list[list[str]]) -> list[str]:
    width = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  " + "  ".join(cell.rjust(w) for cell, w in zip(row, width, strict=True)) for row in rows]


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4g}"


def to_dict(estimator: Any, count: int = 10) -> dict[str, Any]:
    """Return the results of a fitted estimator; infinite values become strings, undefined values None.

    Parameters
    ----------
    estimator : fitted estimator
        The model.
    count : int
        Number of top features of each component.

    Returns
    -------
    dict

    Examples
    --------
    >>> import numpy as np
    >>> from standout import DPCA
    >>> rng = np.random.default_rng(0)
    >>> model = DPCA(1).fit(rng.normal(size=(50, 3)) * [1, 1, 9], background=rng.normal(size=(999, 3)))
    >>> facts = to_dict(model)
    >>> facts["method"], facts["regime"], facts["components"][0]["top_features"][0]["feature"]
    ('DPCA', 'exact', 2)
    """
    model: Model = estimator._solved()
    found = {
        "method": type(estimator).__name__ if model.background_counts else model.method,
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
    # Components of a kernel model are functions, which have no feature weights.
    tops = estimator.top_features(count) if hasattr(estimator, "top_features") else [[] for _ in model.ratios]
    return [
        {
            "name": name,
            "ratio": plain(model.ratios[k]),
            "unshrunk_ratio": plain(model.unshrunk_ratios[k]),
            "debiased_ratio": plain(model.debiased_ratios[k]),
            "target_variance": plain(model.target_variance[k]),
            "background_variance": plain(model.background_variance[k]),
            "top_features": [{"feature": top.feature, "weight": plain(top.weight)} for top in tops[k]],
        }
        for k, name in enumerate(model.component_names)
    ]


def _counts(counts: Counts) -> dict[str, Any]:
    return {"rows": counts.rows, "units": plain(counts.units)}


def plain(value: Any) -> Any:
    """Return a value that can be serialised as JSON.

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
