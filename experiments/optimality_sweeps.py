"""Sweeps over the factor model of section 4: number of rows, alpha, growth of a shared direction, and angle.

Errors are sines of the angle to the target-specific direction, in two metrics: the plain metric of the features, and
the metric of the background covariance, which dPCA uses.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from experiments import Array
from experiments.literal import literal_components
from experiments.record import Spread
from standout._cpca import CPCA
from standout._dpca import DPCA
from standout._moments import Moments
from standout.datasets.factor import FactorModel
from standout.errors import StandoutWarning

Method = Callable[[Moments, Moments], Array]  # moments of target and background → the first component

ALPHA = 2.0
COMPARED_ROWS = 1600  # for the comparison of alphas and units
METHODS: Mapping[str, Method] = {
    "dpca": lambda x, y: DPCA(1, shrinkage=None).fit(x, background=y).components_[0],
    "cpca": lambda x, y: CPCA(1, alpha=ALPHA).fit(x, background=y).components_[0],
    "cpca_auto": lambda x, y: CPCA(1, alpha="auto").fit(x, background=y).components_[0],
    "pca": lambda x, _: DPCA(1).fit(x).components_[0],
    "literal": lambda x, y: literal_components(x, y, 1)[0],
}
NAMES: Mapping[str, str] = {
    "dpca": "dPCA",
    "cpca": f"cPCA, alpha = {ALPHA:g}",
    "cpca_auto": "cPCA, auto",
    "pca": "PCA",
    "literal": "Algorithm 1 as printed",
}
METRICS = ("plain", "background")


@dataclass(frozen=True)
class Errors:
    """Errors of one method at one setting: for each seed the root mean square over draws."""

    plain: Spread
    background: Spread

    def overall(self, metric: str) -> float:
        """Return the root mean square over all draws."""
        values = getattr(self, metric).values
        return float(np.sqrt(np.mean(np.square(values))))


def cosine(a: Array, b: Array, metric: Array | None = None) -> float:
    """Return the absolute cosine between two vectors, optionally in the metric of a matrix."""
    matrix = np.eye(len(a)) if metric is None else metric
    return float(abs(a @ matrix @ b) / np.sqrt((a @ matrix @ a) * (b @ matrix @ b)))


def sine(a: Array, b: Array, metric: Array | None = None) -> float:
    """Return the sine of the angle between two vectors, optionally in the metric of a matrix."""
    return float(np.sqrt(max(0.0, 1 - cosine(a, b, metric) ** 2)))


def predicted(model: FactorModel, alpha: float, metric: str = "plain") -> float:
    """Return c such that the error of cPCA with m = n = N rows is c/√N to first order; alpha = λ₁ gives dPCA.

    The errors along the other axes of C_xx − αC_yy are uncorrelated because both covariances share their axes, which
    requires that the target-specific direction is orthogonal to the shared ones.

    Parameters
    ----------
    model : FactorModel
        With ``oblique = 0``.
    alpha : float
        Weight of the background that is subtracted.
    metric : "plain" or "background"
        Metric of the angle.

    Returns
    -------
    float
        Infinite if the first component of cPCA is another direction even in the population.

    Examples
    --------
    >>> model = FactorModel()
    >>> round(predicted(model, model.top_ratio), 3), predicted(model, 0.0)
    (3.68, inf)
    """
    C_xx, C_yy = model.target_covariance, model.background_covariance
    values, axes = np.linalg.eigh(C_xx - alpha * C_yy)
    if cosine(axes[:, -1], model.signal) < 0.999:
        return float("inf")
    target, background = (np.einsum("ij,ij->j", axes, matrix @ axes) for matrix in (C_xx, C_yy))
    variance = target[:-1] * target[-1] + alpha**2 * background[:-1] * background[-1]
    scale = background[:-1] / background[-1] if metric == "background" else 1.0
    return float(np.sqrt(np.sum(scale * variance / (values[-1] - values[:-1]) ** 2)))


def recovery(
    sizes: tuple[int, ...], seeds: tuple[int, ...], draws: int, methods: tuple[str, ...]
) -> dict[str, list[Errors]]:
    """Return the error of each method for each number of target (and background) rows."""
    model = FactorModel()
    found: dict[str, list[Errors]] = {name: [] for name in methods}
    for size in sizes:
        errors = _errors(model, size, seeds, draws, [METHODS[name] for name in methods])
        for name, one in zip(methods, errors, strict=True):
            found[name].append(one)
    return found


def over_alpha(alphas: tuple[float, ...], size: int, seeds: tuple[int, ...], draws: int) -> list[Errors]:
    """Return the error of cPCA at each alpha."""

    def at(alpha: float) -> Method:
        return lambda x, y: CPCA(1, alpha=alpha).fit(x, background=y).components_[0]

    return _errors(FactorModel(), size, seeds, draws, [at(alpha) for alpha in alphas])


def mixed_units(size: int, seeds: tuple[int, ...], draws: int, methods: tuple[str, ...]) -> dict[str, Errors]:
    """Return the error of each method when features are rescaled by factors from 0.1 to 10."""
    units = np.geomspace(0.1, 10, FactorModel().n_features)

    def rewritten(name: str) -> Method:
        # Convert a filter of the rescaled features to the original units.
        return lambda x, y: units * METHODS[name](x.project(np.diag(units)), y.project(np.diag(units)))

    errors = _errors(FactorModel(), size, seeds, draws, [rewritten(name) for name in methods])
    return dict(zip(methods, errors, strict=True))


def slope(sizes: tuple[int, ...], errors: list[Errors], metric: str = "plain") -> Spread:
    """Return the log-log slope of the error against the number of rows, for each seed."""
    values = np.log([getattr(one, metric).values for one in errors])
    return Spread(tuple(float(np.polyfit(np.log(sizes), column, 1)[0]) for column in values.T))


@dataclass(frozen=True)
class Grown:
    """Components of dPCA when a shared direction has more variance in the target than in the background."""

    ratio: float  # of the shared direction, target over background
    population: float  # |cos| of the first component with the target-specific direction, in the population
    first_own: Spread  # |cos| in samples: first component and target-specific direction
    first_shared: Spread
    second_own: Spread


def growth(model: FactorModel, ratio: float) -> float:
    """Return the factor on the first shared variance that makes its ratio equal to ``ratio``."""
    shared, noise = model.background_sd[0] ** 2, model.noise_sd**2
    return ((shared + noise) * ratio - noise) / shared


def threshold(ratios: tuple[float, ...], size: int, seeds: tuple[int, ...], draws: int) -> list[Grown]:
    """Return the first two components as the ratio of a shared direction passes that of the target-specific one.

    Angles are measured in the metric of the background: a component and a direction coincide if their background
    scores do.
    """
    found = []
    for ratio in ratios:
        model = FactorModel(shared_growth=growth(FactorModel(), ratio))
        metric, shared = model.background_covariance, model.directions[:, 0]
        own: list[list[float]] = []
        for seed in seeds:
            fits = [_fit(x, y, 2) for x, y in _samples(model, size, size, seed, draws)]
            cosines = [
                (
                    cosine(fit[0], model.signal, metric),
                    cosine(fit[0], shared, metric),
                    cosine(fit[1], model.signal, metric),
                )
                for fit in (one.components_ for one in fits)
            ]
            own.append([float(value) for value in np.mean(cosines, axis=0)])
        population = _fit(*population_of(model), 1).components_[0]
        spreads = (Spread(values) for values in zip(*own, strict=True))
        found.append(Grown(ratio, cosine(population, model.signal, metric), *spreads))
    return found


@dataclass(frozen=True)
class Oblique:
    """Filter and pattern when the target-specific direction is oblique to a shared one."""

    angle: float  # degrees
    ratio: float  # λ₁ of the population
    ratio_formula: float  # 1 + σ_s² u_sᵀ C_yy⁻¹ u_s
    filter: float  # |cos| with the target-specific direction, in the population
    pattern: float
    literal: float  # of the singular vector of Algorithm 1
    literal_share: float  # its ratio, relative to the largest
    filter_sample: Spread
    pattern_sample: Spread


def oblique(angles: tuple[float, ...], sizes: tuple[int, int], seeds: tuple[int, ...], draws: int) -> list[Oblique]:
    """Return the cosines of filter and pattern with the target-specific direction, by its angle to a shared one."""
    return [_at_angle(angle, sizes, seeds, draws) for angle in angles]


def _at_angle(angle: float, sizes: tuple[int, int], seeds: tuple[int, ...], draws: int) -> Oblique:
    # The shared direction is strong, so the filter must turn away from it.
    model = FactorModel(background_sd=(10.0, 5.0, 4.0, 3.0), oblique=float(np.cos(np.radians(angle))))
    whole = population_of(model)
    fit, wrong = _fit(*whole, 1), literal_components(*whole, 1)[0]
    near = []
    for seed in seeds:
        fits = [_fit(x, y, 1) for x, y in _samples(model, *sizes, seed, draws)]
        pairs = [(cosine(one.components_[0], model.signal), cosine(one.patterns_[0], model.signal)) for one in fits]
        near.append([float(value) for value in np.mean(pairs, axis=0)])
    reached = (wrong @ model.target_covariance @ wrong) / (wrong @ model.background_covariance @ wrong)
    return Oblique(
        angle=angle,
        ratio=float(fit.ratios_[0]),
        ratio_formula=float(
            1 + model.signal_sd**2 * model.signal @ np.linalg.solve(model.background_covariance, model.signal)
        ),
        filter=cosine(fit.components_[0], model.signal),
        pattern=cosine(fit.patterns_[0], model.signal),
        literal=cosine(wrong, model.signal),
        literal_share=float(reached / fit.ratios_[0]),
        filter_sample=Spread(tuple(pair[0] for pair in near)),
        pattern_sample=Spread(tuple(pair[1] for pair in near)),
    )


def population_of(model: FactorModel, rows: int = 10**6) -> tuple[Moments, Moments]:
    """Return the moments of the population, with ``rows`` as the number of rows."""
    return as_moments(model.target_covariance, rows), as_moments(model.background_covariance, rows)


def as_moments(covariance: Array, rows: int = 10**6) -> Moments:
    """Return moments with a given covariance and zero mean."""
    mean = np.zeros(len(covariance))
    return Moments(mean=mean, scatter=covariance * rows, weight=rows, weight_squared=rows, rows=rows)


def _fit(target: Moments, background: Moments, n_components: int) -> DPCA:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StandoutWarning)
        return DPCA(n_components, shrinkage=None).fit(target, background=background)


def _errors(
    model: FactorModel,
    size: int,
    seeds: tuple[int, ...],
    draws: int,
    methods: list[Method],
) -> list[Errors]:
    metric = model.background_covariance
    squares = np.empty((len(seeds), draws, len(methods), len(METRICS)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StandoutWarning)
        for place, seed in enumerate(seeds):
            for draw, pair in enumerate(_samples(model, size, size, seed, draws)):
                for column, method in enumerate(methods):
                    u = method(*pair)
                    squares[place, draw, column] = sine(u, model.signal) ** 2, sine(u, model.signal, metric) ** 2
    roots = np.sqrt(squares.mean(axis=1))
    spreads = [[Spread(tuple(roots[:, column, k].tolist())) for k in range(2)] for column in range(len(methods))]
    return [Errors(*pair) for pair in spreads]


def _samples(model: FactorModel, m: int, n: int, seed: int, draws: int) -> Iterator[tuple[Moments, Moments]]:
    """Draw pairs of datasets and return their moments."""
    for draw in range(draws):
        state = int(np.random.SeedSequence([seed, m, n, draw]).generate_state(1)[0])
        target, background = model.sample(m, n, seed=state)
        yield Moments.of(target), Moments.of(background)
