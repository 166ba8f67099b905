"""A model in words and numbers: ratios only ever with the noise edge beside them."""

from __future__ import annotations

import math

from standout.model import Model
from standout.moments import Counts
from standout.shrinkage import estimate_text


class Summary(str):
    """Text that also shows as text, not as a quoted string, at the prompt and in notebooks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def summarize(model: Model, title: str, labels: list[str]) -> Summary:
    """Write the summary of a model."""
    lines = [
        f"{title}: {model.n_components} component{'s' if model.n_components != 1 else ''} "
        f"of {len(model.mean)} features (joint rank {model.rank})",
        f"  target      {_rows(model.target_counts)}",
    ]
    for (name, counts), share in zip(model.background_counts, model.mix, strict=True):
        weight = f", share {share:.2f}" if len(model.mix) > 1 else ""
        lines.append(f"  {name:<11} {_rows(counts)}{weight}")
    if not model.background_counts:
        lines.append("  background  none: this is PCA")
    lines.append(f"  problem     {_problem(model)} (solver {model.solver})")
    lines += ["", *_table(model, labels), "", _verdict(model)]
    lines += [f"  ! {note.text}" for note in model.notes]
    return Summary("\n".join(lines))


def _rows(counts: Counts) -> str:
    text = f"{counts.rows} rows"
    if round(counts.units) != counts.rows:
        text += f" worth {counts.units:.4g} independent units"
    return text


def _problem(model: Model) -> str:
    if model.regime == "shrunk":
        return f"background covariance estimated by {estimate_text(model.shrinkage, model.n_factors)}"
    if model.regime == "structural":
        return "exact; the background does not vary in some directions (infinite ratios)"
    return "exact"


def _table(model: Model, labels: list[str]) -> list[str]:
    if not model.background_counts:
        variances = zip(labels, model.target_variance, strict=True)
        rows = [[label, _number(value), _number(math.sqrt(value))] for label, value in variances]
        return _aligned([["component", "variance", "sd"], *rows])
    shrunk = model.regime == "shrunk"
    header = ["component", "ratio", *(["unshrunk"] if shrunk else []), "noise edge", "de-biased"]
    header += ["target sd", "background sd, shrunk" if shrunk else "background sd"]
    rows = []
    for k, label in enumerate(labels):
        rows.append(
            [
                label,
                _number(model.ratios[k]),
                *([_number(model.plain_ratios[k])] if shrunk else []),
                _number(model.noise_edge),
                _number(model.debiased_ratios[k]),
                _number(math.sqrt(model.target_variance[k])),
                _number(math.sqrt(model.background_variance[k])),
            ]
        )
    return _aligned([header, *rows])


def _aligned(rows: list[list[str]]) -> list[str]:
    width = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  " + "  ".join(cell.rjust(w) for cell, w in zip(row, width, strict=True)) for row in rows]


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4g}"


def _p_value(value: float) -> str:
    return f"= {value:.2g}" if value > 0 else "< 1e-300"


def _verdict(model: Model) -> str:
    if not model.background_counts:
        return "  No background: nothing is compared, and no noise edge applies."
    if math.isnan(model.p_value) and model.target_counts.units < 2:
        return f"  No p-value: the target has {model.target_counts.units:.2g} independent units, fewer than two."
    if math.isnan(model.p_value):
        units = f"{model.background_units:.0f} independent background unit{_s(model.background_units)}"
        freedom = f"{model.background_units - 1:.0f} degree{_s(model.background_units - 1)} of freedom"
        leave = "leaves" if round(model.background_units) == 1 else "leave"
        return f"  No noise edge or p-value: {units} {leave} {freedom} for {model.rank} dimension{_s(model.rank)}."
    return (
        f"  Noise alone reaches {model.noise_edge:.4g}; p {_p_value(model.p_value)} for the largest "
        f"{'unshrunk ' if model.regime == 'shrunk' else ''}ratio (Gaussian data; too small for heavy tails)."
    )


def _s(amount: float) -> str:
    return "" if round(amount) == 1 else "s"
