"""Section 4 of the paper as an experiment: how well dPCA recovers the target-specific direction, and when.

The factor model is that of equations (10) and (12): four shared directions and one that is specific to the target.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments import optimality_results as results
from experiments.optimality_errata import errata
from experiments.optimality_sweeps import (
    ALPHA,
    COMPARED_ROWS,
    METHODS,
    METRICS,
    Errors,
    Grown,
    Oblique,
    mixed_units,
    oblique,
    over_alpha,
    predicted,
    recovery,
    slope,
    threshold,
)
from experiments.record import Picture, Plan, Record
from standout.datasets.factor import FactorModel

_UNIT_METHODS = ("dpca", "cpca", "cpca_auto")


@dataclass(frozen=True)
class Sizes:
    """Sizes of the samples."""

    rows: tuple[int, ...] = (100, 200, 400, 800, 1600, 3200, 6400)
    draws: int = 10  # for each seed and number of rows
    alphas: tuple[float, ...] = (0.5, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 20.0)
    ratios: tuple[float, ...] = (1.0, 2.0, 3.0, 4.0, 4.5, 4.8, 5.2, 5.5, 6.0, 7.0, 8.0, 10.0)
    ratio_rows: int = 3200
    angles: tuple[float, ...] = (90.0, 75.0, 60.0, 45.0, 30.0, 20.0)
    angle_rows: tuple[int, int] = (2000, 3000)
    sweep_draws: int = 5


_REDUCED = Sizes(
    rows=(200, 400, 1600),
    draws=5,
    alphas=(0.5, 1.0, 2.0, 5.0, 20.0),
    ratios=(1.0, 4.5, 6.0, 8.0),
    angles=(90.0, 45.0, 20.0),
    sweep_draws=2,
)


@dataclass(frozen=True)
class Found:
    """All results of the experiment."""

    sizes: Sizes
    recovery: Mapping[str, list[Errors]]
    alphas: list[Errors]
    units: Mapping[str, Errors]
    threshold: list[Grown]
    oblique: list[Oblique]
    errata: Mapping[str, Any]

    def at(self, method: str, rows: int) -> Errors:
        """Return the error of a method at a number of rows."""
        return self.recovery[method][self.sizes.rows.index(rows)]


def optimality(plan: Plan) -> Record:
    """Measure how well dPCA recovers the target-specific direction, against theory and other methods.

    Parameters
    ----------
    plan : Plan
        Seeds, and whether to run at reduced size. No data are read.

    Returns
    -------
    Record
    """
    found = _measured(plan)
    numbers = _numbers(found)
    return Record(
        name="optimality",
        title="The factor model: what is recovered, how fast, and when",
        claim=(
            "dPCA is optimal in the least-squares sense, provided that the background's component vectors are also "
            "present in the target: it recovers the direction that only the target has."
        ),
        findings=results.findings(numbers),
        settings=_settings(plan, found.sizes),
        numbers=numbers,
        tables=results.tables(numbers),
        pictures=_pictures(found, numbers),
    )


def _measured(plan: Plan) -> Found:
    sizes = _REDUCED if plan.reduced else Sizes()
    seeds = plan.seeds
    return Found(
        sizes=sizes,
        recovery=recovery(sizes.rows, seeds, sizes.draws, tuple(METHODS)),
        alphas=over_alpha(sizes.alphas, COMPARED_ROWS, seeds, sizes.draws),
        units=mixed_units(COMPARED_ROWS, seeds, sizes.draws, _UNIT_METHODS),
        threshold=threshold(sizes.ratios, sizes.ratio_rows, seeds, sizes.sweep_draws),
        oblique=oblique(sizes.angles, sizes.angle_rows, seeds, sizes.sweep_draws),
        errata=errata(),
    )


def _settings(plan: Plan, sizes: Sizes) -> dict[str, Any]:
    model = FactorModel()
    return {
        "seeds": list(plan.seeds),
        "reduced": plan.reduced,
        "embedded": False,  # never embedded: all rows are simulated
        "n_features": model.n_features,
        "background_sd": list(model.background_sd),
        "signal_sd": model.signal_sd,
        "noise_sd": model.noise_sd,
        "rows": list(sizes.rows),
        "draws": sizes.draws,
        "alpha": ALPHA,
        "compared_rows": COMPARED_ROWS,
        "ratio_rows": sizes.ratio_rows,
        "angle_rows": list(sizes.angle_rows),
        "sweep_draws": sizes.sweep_draws,
    }


def _numbers(found: Found) -> dict[str, Any]:
    return {
        "recovery": {name: _recovery_numbers(found.sizes.rows, errors) for name, errors in found.recovery.items()},
        "predicted": _predictions(found),
        "alphas": {
            f"alpha_{_key(alpha)}": {"alpha": alpha, **_error_numbers(errors)}
            for alpha, errors in zip(found.sizes.alphas, found.alphas, strict=True)
        },
        "units": {name: _error_numbers(errors) for name, errors in found.units.items()},
        "threshold": {
            "own_ratio": FactorModel().top_ratio,
            **{f"ratio_{_key(one.ratio)}": vars(one) for one in found.threshold},
        },
        "oblique": {f"angle_{_key(one.angle)}": vars(one) for one in found.oblique},
        "errata": found.errata,
    }


def _key(value: float) -> str:
    """Return a number as part of a name: 4.5 becomes 4_5."""
    return f"{value:g}".replace(".", "_")


def _recovery_numbers(rows: tuple[int, ...], errors: list[Errors]) -> dict[str, Any]:
    found: dict[str, Any] = {f"n_{size}": _error_numbers(one) for size, one in zip(rows, errors, strict=True)}
    for metric in METRICS:
        overall = [one.overall(metric) for one in errors]
        found[f"slope_{metric}"] = float(np.polyfit(np.log(rows), np.log(overall), 1)[0])
        found[f"slopes_{metric}"] = slope(rows, errors, metric)
    return found


def _error_numbers(errors: Errors) -> dict[str, Any]:
    return {metric: errors.overall(metric) for metric in METRICS} | {
        f"{metric}_seeds": getattr(errors, metric) for metric in METRICS
    }


def _predictions(found: Found) -> dict[str, Any]:
    """Return the constants c of c/√N and the deviations of the measured errors from them."""
    model = FactorModel()
    numbers: dict[str, Any] = {}
    for name, alpha in (("dpca", model.top_ratio), ("cpca", ALPHA)):
        constants = {metric: predicted(model, alpha, metric) for metric in METRICS}
        numbers[name] = dict(constants)
        for metric, constant in constants.items():
            quotients = {
                f"n_{size}": one.overall(metric) / (constant / np.sqrt(size))
                for size, one in zip(found.sizes.rows, found.recovery[name], strict=True)
            }
            numbers[name][f"measured_over_{metric}"] = {size: float(value) for size, value in quotients.items()}
    return numbers


def _pictures(found: Found, numbers: Mapping[str, Any]) -> tuple[Picture, ...]:
    sizes, own_ratio = found.sizes, FactorModel().top_ratio
    slopes = {metric: numbers["recovery"]["dpca"][f"slope_{metric}"] for metric in METRICS}
    lines = {"dpca": own_ratio, "cpca": ALPHA}
    return (
        Picture(
            "recovery",
            "Error against the number of rows",
            "Distance of the first component of each method from the direction that only the target has. Dashed: "
            "prediction of perturbation theory.",
            lambda: results.draw_recovery(sizes.rows, found.recovery, lines, slopes),
        ),
        Picture(
            "alphas",
            "cPCA against alpha",
            "cPCA is closer than dPCA for well-chosen alphas and misses the direction for others.",
            lambda: results.draw_alphas(sizes.alphas, found.alphas, COMPARED_ROWS, found.at("dpca", COMPARED_ROWS)),
        ),
        Picture(
            "threshold",
            "When a shared direction grows",
            "The first component is the target's own direction only while no shared direction has a larger ratio; the "
            "second component is, otherwise. Cosines between background scores; bands are the range over seeds.",
            lambda: results.draw_threshold(found.threshold, own_ratio),
        ),
        Picture(
            "oblique",
            "Filter and pattern",
            "If the target's own direction is oblique to a shared one, the filter differs from it and the pattern does "
            "not. Bands are the range over seeds.",
            lambda: results.draw_oblique(found.oblique),
        ),
    )
