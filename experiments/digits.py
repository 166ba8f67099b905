"""Fig. 1 of the paper: digits over photographs, by PCA, dPCA, cPCA and related methods."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import Array
from experiments.data import digits_over_photographs
from experiments.digits_methods import LANDMARKS, METHODS, Sample, Seen, see
from experiments.digits_results import findings, pictures
from experiments.record import Plan, Record, Spread, Table, written
from standout.datasets.tiles import digits_over_tiles
from standout.io.source import report

_CLAIM = (
    "PCA is unable to discover the two digits, and two clusters emerge in the plot of dPCA (Fig. 1: 2,000 digits 6 and "
    "9 over photographs of frogs, against 3,000 frogs without digits). It does not say how strong the digits are."
)
_MEASURES = {
    "ari": ("ARI of two clusters with the two digits", "k-means on the raw scores; 1 is perfect, 0 is chance."),
    "silhouette": ("Silhouette of the two digits in the scores", "From -1 to 1."),
    "accuracy": ("Accuracy of a logistic regression on the scores", "Mean of five folds; axes fitted to all rows."),
    "new_accuracy": ("Accuracy on new digits over new photographs", "Not used for the axes or the regression."),
}  # fmt: skip
_SPECTRUM = {  # label and number of decimals
    "largest_ratio": ("largest ratio, exact", 1),
    "noise_edge": ("noise edge", 2),
    "above_edge": ("components above the noise edge", 0),
    "calm_by_ratio": ("background variance along component 1 (average direction: 1)", 4),
    "calm_by_signal": ("background variance along signal axis 1", 4),
    "default_shrinkage": ("shrinkage of the default", 4),
    "searched_alpha": ("alpha selected by the search of cPCA", 1),
}


@dataclass(frozen=True)
class _Tiles:
    """The embedded example, with some of its digits held out for evaluation."""

    target: Array
    digit: NDArray[np.int64]
    background: Array
    new: Array
    new_digit: NDArray[np.int64]


@dataclass(frozen=True)
class _Size:
    """Sizes of the experiment."""

    weights: tuple[float, ...]
    seeds: tuple[int, ...]
    counts: Mapping[str, Any]  # n_each, n_background, n_new; tiles: n_background, and one in this many held out
    data: str


def digits(plan: Plan) -> Record:
    """Run the experiment.

    Parameters
    ----------
    plan : Plan
        ``reduced`` uses fewer rows, weights and seeds. ``embedded`` replaces the paper's data by scikit-learn's 8×8
        digits over tiles of its photograph.

    Returns
    -------
    Record

    Examples
    --------
    >>> import warnings
    >>> from experiments.record import Plan
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     found = digits(Plan(seeds=(0,), reduced=True, embedded=True))
    >>> found.numbers["ari"]["ratio_exact"]["0.5"].mean > 0.7 > found.numbers["ari"]["pca"]["0.5"].mean
    True
    """
    began = time.perf_counter()
    size = _size(plan)
    sample = _sampler(plan, size)
    seen: dict[str, list[Seen]] = {f"{weight:g}": [] for weight in size.weights}
    for number, seed in enumerate(size.seeds):
        for place, weight in enumerate(size.weights):
            found = sample(weight, seed)
            seen[f"{weight:g}"].append(see(found, seed))
            done = number * len(size.weights) + place + 1
            report("digits", done * len(found.digit), done / (len(size.seeds) * len(size.weights)))
    numbers, spectrum = _numbers(seen), _spectrum(seen)
    samples = {f"{weight:g}": sample(weight, size.seeds[0]) for weight in size.weights}
    views = {weight: every[0].views for weight, every in seen.items()}
    return Record(
        name="digits",
        title="Digits over tiles: a substitute for Fig. 1" if plan.embedded else "Digits over photographs (Fig. 1)",
        claim=_CLAIM,
        findings=findings(numbers, spectrum, plan.embedded),
        settings={**_settings(plan, size), "source": getattr(next(iter(samples.values())), "source", size.data)},
        numbers={**numbers, "spectrum": spectrum},
        times={"seconds": time.perf_counter() - began, "fit_seconds": _fit_seconds(seen)},
        tables=_tables(numbers, spectrum, len(size.seeds)),
        pictures=pictures(samples, views, numbers, size.seeds[0]),
    )


def _size(plan: Plan) -> _Size:
    if plan.embedded:
        data = "scikit-learn's 8×8 digits 6 and 9 over tiles of its photograph of a temple"
        weights = (0.25, 0.5) if plan.reduced else (0.25, 0.5, 1.0)
        return _Size(
            weights, plan.seeds[:2] if plan.reduced else plan.seeds, {"n_background": 3000, "one_new_in": 4}, data
        )
    data = "MNIST digits 6 and 9 over CIFAR-10 frogs, grey, cropped to 28×28"
    if plan.reduced:
        return _Size((0.5, 1.0), plan.seeds[:1], {"n_each": 500, "n_background": 2000, "n_new": 200}, data)
    return _Size((0.25, 0.5, 1.0), plan.seeds, {"n_each": 1000, "n_background": 3000, "n_new": 500}, data)


def _sampler(plan: Plan, size: _Size) -> Callable[[float, int], Sample]:
    def photographs(weight: float, seed: int) -> Sample:
        return digits_over_photographs(weight, **size.counts, data_dir=plan.data_dir, seed=seed)

    def tiles(weight: float, seed: int) -> Sample:
        example = digits_over_tiles(weight, size.counts["n_background"], seed)
        new = np.random.default_rng(seed).permutation(len(example.digit)) % size.counts["one_new_in"] == 0
        return _Tiles(
            example.target[~new], example.digit[~new], example.background, example.target[new], example.digit[new]
        )

    return tiles if plan.embedded else photographs


def _numbers(seen: Mapping[str, list[Seen]]) -> dict[str, dict[str, dict[str, Spread]]]:
    """Return each measure for each method and weight, over the seeds."""
    return {
        measure: {
            method.key: {
                weight: Spread(tuple(one.views[method.key].measures[measure] for one in every))
                for weight, every in seen.items()
            }
            for method in METHODS
        }
        for measure in _MEASURES
    }


def _spectrum(seen: Mapping[str, list[Seen]]) -> dict[str, dict[str, Spread]]:
    return {
        name: {weight: Spread(tuple(one.spectrum[name] for one in every)) for weight, every in seen.items()}
        for name in _SPECTRUM
    }


def _fit_seconds(seen: Mapping[str, list[Seen]]) -> dict[str, float]:
    """Return the mean fit time of each method, excluding the moments."""
    every = [one for several in seen.values() for one in several]
    return {method.key: float(np.mean([one.views[method.key].seconds for one in every])) for method in METHODS}


def _settings(plan: Plan, size: _Size) -> dict[str, Any]:
    return {
        "data": size.data,
        "seeds": list(size.seeds),
        "weights": list(size.weights),
        **size.counts,
        "landmarks": LANDMARKS,
        "methods": {method.name: _recipe(method.make(size.seeds[0])) for method in METHODS},
        "reduced": plan.reduced,
        "embedded": plan.embedded,
    }


def _recipe(estimator: Any) -> str:
    """Return the code that creates an estimator, without the seed."""
    if not hasattr(estimator, "get_params"):
        return "right singular vectors of the inverse background covariance times the target's"
    return repr(estimator.set_params(random_state=None))


def _tables(
    numbers: Mapping[str, Mapping[str, Mapping[str, Spread]]],
    spectrum: Mapping[str, Mapping[str, Spread]],
    n_seeds: int,
) -> tuple[Table, ...]:
    weights = list(spectrum["largest_ratio"])
    over = f"mean and range over {n_seeds} seeds" if n_seeds > 1 else "one seed"
    measured = [
        Table(
            f"digits_{measure}",
            f"{title}, by weight of the digits ({over})",
            ("method", *weights),
            tuple((method.name, *numbers[measure][method.key].values()) for method in METHODS),
            note,
        )
        for measure, (title, note) in _MEASURES.items()
    ]
    rows = tuple(
        (title, *(written(spread, decimals) for spread in spectrum[name].values()))
        for name, (title, decimals) in _SPECTRUM.items()
    )
    known = Table(
        "digits_spectrum", f"The exact problem, by weight of the digits ({over})", ("quantity", *weights), rows
    )
    return (*measured, known)
