"""Run time: cPCA with 15 alphas against one dPCA, by part, number of features and number of rows.

Parts are timed in turn in one process, on one thread and in CPU time, and medians are compared, so that other load on
the machine matters little. Seconds depend on the machine, ratios less so. The plain implementation uses full
eigendecompositions, as the paper counts; standout computes only the requested components.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from scipy import linalg
from threadpoolctl import threadpool_limits

from experiments import Array
from experiments.record import Cell, Picture, Plan, Record, Spread, Table
from standout._cpca import CPCA, path
from standout._dpca import DPCA
from standout._moments import Moments
from standout.errors import StandoutWarning
from standout.plot import _style
from standout.plot._style import pyplot
from standout.solvers.contrastive import subspace_similarity

ALPHAS = np.logspace(-3, 3, 15)
_KEPT = 4  # number of representative alphas
_PEER = "contrastive, search"
# The other package does not exploit symmetry; above this size it would dominate the run time of the experiment.
_PEER_FEATURES = 400
_SAME = 1.3  # ratios below this are called hardly longer
_PARTS = ("covariances", "15 eigenproblems", "selection")


@dataclass(frozen=True)
class Size:
    """Size of a problem."""

    n_features: int
    n_target: int
    n_background: int

    @property
    def n_rows(self) -> int:
        """Rows of both datasets together."""
        return self.n_target + self.n_background

    @property
    def name(self) -> str:
        """The size as text."""
        return f"{self.n_target} + {self.n_background} × {self.n_features}"

    def rows(self, seed: int) -> tuple[Array, Array]:
        """Draw a target and a background with decaying variances; the target varies more in two features."""
        rng = np.random.default_rng(seed)
        scale = np.geomspace(3.0, 0.3, self.n_features)
        background = rng.normal(size=(self.n_background, self.n_features)) * scale
        scale[[1, self.n_features // 2]] *= 3
        return rng.normal(size=(self.n_target, self.n_features)) * scale, background


@dataclass(frozen=True)
class Timed:
    """Median seconds of each part at one size."""

    size: Size
    seconds: dict[str, float]

    def ratio(self, *parts: str) -> float:
        """Return the time of cPCA over dPCA for the eigenproblems plus the given parts."""
        shared = self.seconds["covariances"] if "covariances" in parts else 0.0
        more = self.seconds["selection"] if "selection" in parts else 0.0
        return (shared + self.seconds["15 eigenproblems"] + more) / (shared + self.seconds["one eigenproblem"])

    def ratios(self) -> dict[str, float]:
        """Return all time ratios of cPCA to dPCA."""
        found = {
            "eigenproblems alone": self.ratio(),
            "with covariances": self.ratio("covariances"),
            "with selection": self.ratio("covariances", "selection"),
            "standout, eigenproblems": self.seconds["standout, 15 alphas"] / self.seconds["standout, dPCA"],
            "standout, from rows": self.seconds["standout, path of rows"] / self.seconds["standout, dPCA of rows"],
        }
        if _PEER in self.seconds:
            found["contrastive to standout"] = self.seconds[_PEER] / self.seconds["standout, dPCA of rows"]
        return found


def runtime(plan: Plan) -> Record:
    """Time cPCA over 15 alphas against one dPCA.

    Parameters
    ----------
    plan : Plan
        Seeds determine the simulated data; only the first is timed. ``reduced`` uses small sizes and few repeats. No
        data are read.

    Returns
    -------
    Record
    """
    by_features, by_rows = _sizes(plan)
    sizes = list(dict.fromkeys([*by_features, *by_rows]))
    # One thread, for reproducible numbers and no contention between thread pools.
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", StandoutWarning)
        agreed = {size.name: _agreement(size, plan.seeds) for size in by_features}
        found = {size: _timed(size, plan.seeds[0], _turns(size, plan)) for size in sizes}
    first, second = [found[size] for size in by_features], [found[size] for size in by_rows]
    return Record(
        name="runtime",
        title="Run time: 15 alphas against one dPCA",
        claim="cPCA takes 15 times the run time of dPCA, which needs no parameter and only one SVD.",
        findings=tuple(_findings(list(found.values()), agreed)),
        settings=_settings(plan, sizes),
        numbers={"n_alphas": len(ALPHAS), "sizes": {size.name: vars(size) for size in sizes}, "agreement": agreed},
        times={one.size.name: {"seconds": one.seconds, "ratios": one.ratios()} for one in found.values()},
        tables=(*_tables(list(found.values())), _agreement_table(agreed)),
        pictures=_pictures(first, second),
    )


def _settings(plan: Plan, sizes: Sequence[Size]) -> dict[str, Any]:
    # Never embedded: all rows are simulated.
    return {
        "source": "drawn from the seeds", "seeds": list(plan.seeds), "alphas": ALPHAS.tolist(),
        "sizes": [size.name for size in sizes], "reduced": plan.reduced, "embedded": False,
    }  # fmt: skip


def _sizes(plan: Plan) -> tuple[list[Size], list[Size]]:
    """Return the sizes with growing features, the last of which is that of Fig. 1, and those with growing rows."""
    features, shape = ((50, 100, 200), (400, 600)) if plan.reduced else ((50, 100, 200, 400, 784), (2000, 3000))
    rows, width = ((500, 2000), 50) if plan.reduced else ((500, 1000, 2000, 5000, 20_000), 200)
    return [Size(count, *shape) for count in features], [Size(width, 2 * n // 5, 3 * n // 5) for n in rows]


def _turns(size: Size, plan: Plan) -> int:
    """Return the number of timings of each part; slow parts need fewer."""
    return 3 if plan.reduced or size.n_features > 500 else 9


def _timed(size: Size, seed: int, repeats: int) -> Timed:
    """Time all parts in turn."""
    work = _work(*size.rows(seed))
    if size.n_features > _PEER_FEATURES:
        work.pop(_PEER, None)
    seconds: dict[str, list[float]] = {name: [] for name in work}
    # The first turn is a warm-up and does not count; the other package is slow and is timed only once.
    for turn in range(repeats + 1):
        for name, part in work.items():
            if (turn > 0) == (name != _PEER):
                start = time.process_time()
                part()
                seconds[name].append(time.process_time() - start)
            elif turn == 0:
                part()
    return Timed(size, {name: float(np.median(values)) for name, values in seconds.items()})


def _work(target: Array, background: Array) -> dict[str, Callable[[], Any]]:
    """Return the parts to time; parts after the covariances start from covariances, the others from rows."""
    first, second = Moments.of(target), Moments.of(background)
    C_xx, C_yy = first.covariance(), second.covariance()
    subspaces = _plain_path(C_xx, C_yy)
    work: dict[str, Callable[[], Any]] = {
        "covariances": lambda: (Moments.of(target).covariance(), Moments.of(background).covariance()),
        "one eigenproblem": lambda: linalg.eigh(C_xx, C_yy),
        "15 eigenproblems": lambda: _plain_path(C_xx, C_yy),
        "selection": lambda: _select(subspaces),
        "standout, dPCA": lambda: DPCA(2, shrinkage=None).fit(first, background=second),
        # As many representatives as alphas, so that nothing is selected.
        "standout, 15 alphas": lambda: path(first, second, values=ALPHAS, n_representatives=len(ALPHAS)),
        "standout, dPCA of rows": lambda: DPCA(2, shrinkage=None).fit(target, background=background),
        "standout, path of rows": lambda: path(target, background, values=ALPHAS, n_representatives=_KEPT),
    }
    peer = _peer()
    return work if peer is None else {**work, _PEER: lambda: _peer_search(peer, target, background)}


def _plain_path(C_xx: Array, C_yy: Array) -> Array:
    """Return the top two axes at each alpha by a full eigendecomposition, (15, n_features, 2)."""
    return np.stack([linalg.eigh(C_xx - alpha * C_yy)[1][:, :-3:-1] for alpha in ALPHAS])


def _select(subspaces: Array) -> Any:
    """Cluster the subspaces by similarity, as the authors of cPCA do."""
    from sklearn.cluster import SpectralClustering

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of orthogonal subspaces
        clustering = SpectralClustering(_KEPT, affinity="precomputed", random_state=0)
        return clustering.fit(subspace_similarity(subspaces)).labels_


def _peer() -> Any:
    """Return the class of the authors of cPCA, or None if their package is not installed."""
    try:
        return import_module("contrastive").CPCA
    except ImportError:
        return None


def _peer_search(peer: Any, target: Array, background: Array) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it treats eigenvalues of a symmetric matrix as complex
        peer(n_components=2, standardize=False).fit_transform(target, background, n_alphas=len(ALPHAS))


def _agreement(size: Size, seeds: Sequence[int]) -> dict[str, Spread]:
    """Return the agreement of axes: dPCA and cPCA at the largest ratio, and both implementations along the alphas."""
    first, second = zip(*(_cosines(*size.rows(seed)) for seed in seeds), strict=True)
    # The plain implementation is slow, so it is run for one seed only.
    ways = Spread((_least_alike(*size.rows(seeds[0])),))
    return {"first axis": Spread(first), "second axis": Spread(second), "two ways, least alike": ways}


def _cosines(target: Array, background: Array) -> tuple[float, float]:
    first, second = Moments.of(target), Moments.of(background)
    dpca = DPCA(2, shrinkage=None).fit(first, background=second)
    cpca = CPCA(2, alpha=float(dpca.ratios_[0])).fit(first, background=second)
    own, other = np.abs((dpca.components_ * cpca.components_).sum(axis=1)).tolist()
    return own, other


def _least_alike(target: Array, background: Array) -> float:
    first, second = Moments.of(target), Moments.of(background)
    plain = _plain_path(first.covariance(), second.covariance())
    ours = path(first, second, values=ALPHAS, n_representatives=len(ALPHAS)).components
    return float(min(subspace_similarity(np.stack([one, two.T]))[0, 1] for one, two in zip(plain, ours, strict=True)))


def _findings(found: Sequence[Timed], agreed: dict[str, dict[str, Spread]]) -> list[str]:
    known = [one.ratios() for one in found]
    everywhere = set.intersection(*(set(one) for one in known))
    ranges = {name: _range([one[name] for one in known]) for name in everywhere}
    sentences = [
        f"15 is the number of alphas. With full eigendecompositions, the 15 eigenproblems of cPCA take "
        f"{ranges['eigenproblems alone']} times as long as that of dPCA, because a problem with two matrices costs "
        f"more than one with a single matrix. The factor is {ranges['with covariances']} with the covariances that "
        f"both need, and {ranges['with selection']} with the selection of {_KEPT} alphas as well.",
        _shared(found),
        f"standout computes only the two requested components. In standout, 15 alphas take "
        f"{ranges['standout, eigenproblems']} times as long as one dPCA from covariances, and "
        f"{ranges['standout, from rows']} times as long from rows, including the selection.{_slow(found)}",
    ]
    peers = [one.ratios()["contrastive to standout"] for one in found if _PEER in one.seconds]
    if peers:
        sentences.append(
            f"The package of cPCA's authors takes {_range(peers)} times as long as one dPCA of standout to search as "
            f"many alphas (up to {_PEER_FEATURES} features)."
        )
    first = min(one["first axis"].low for one in agreed.values())
    second = [one["second axis"].mean for one in agreed.values()]
    mean = "mean " if any(len(one["second axis"].values) > 1 for one in agreed.values()) else ""
    return [
        *sentences,
        f"At alpha equal to the largest ratio, the first axis of cPCA is that of dPCA (|cos| at least {first:.6f}); "
        f"the second axis is {'not' if min(second) < 0.99 else 'the same too'} ({mean}|cos| {_range(second, 2)}).",
    ]


def _shared(found: Sequence[Timed]) -> str:
    """Return a sentence on the size at which the shared covariances bring the two methods closest."""
    most = min(found, key=lambda one: one.ratio("covariances"))
    matters = "hardly matters" if most.ratio("covariances") < _SAME else "matters less"
    return (
        f"The covariances take the largest share at {most.size.name}, where the factor including them is "
        f"{most.ratio('covariances'):.1f}: with many rows, the choice of the method {matters}."
    )


def _slow(found: Sequence[Timed]) -> str:
    """Return a sentence on the sizes at which 15 alphas take more than 15 times as long."""
    slowest = max(found, key=lambda one: one.ratios()["standout, eigenproblems"])
    if slowest.ratios()["standout, eigenproblems"] < len(ALPHAS):
        return ""
    return (
        f" The maximum is at {slowest.size.name}: Lanczos iterations, used with many features, converge quickly for "
        "the ratios of dPCA and slowly for the differences of cPCA at alphas above the largest ratio."
    )


def _range(values: Sequence[float], digits: int = 1) -> str:
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"


def _tables(found: Sequence[Timed]) -> tuple[Table, Table]:
    parts = tuple(dict.fromkeys(name for one in found for name in one.seconds))
    names = tuple(dict.fromkeys(name for one in found for name in one.ratios()))
    milliseconds = [{part: 1000 * value for part, value in one.seconds.items()} for one in found]
    rows = tuple((one.size.name, *map(of.get, parts)) for one, of in zip(found, milliseconds, strict=True))
    ratios = tuple((one.size.name, *(one.ratios().get(name) for name in names)) for one in found)
    size = "target + background × features"
    made = "Ratios of medians of processor time, measured in alternation in one process on one thread."
    return (
        Table("times_ratios", "How many times longer cPCA takes than dPCA", (size, *names), ratios, made, digits=1),
        Table("times_parts", "Milliseconds of each part", (size, *parts), rows, "Medians of processor time.", digits=1),
    )


def _agreement_table(agreed: dict[str, dict[str, Spread]]) -> Table:
    rows: tuple[tuple[Cell, ...], ...] = tuple((name, *one.values()) for name, one in agreed.items())
    return Table(
        "agreement",
        "Agreement of dPCA with cPCA, and of two implementations of cPCA",
        ("target + background × features", "|cos| of first axes", "|cos| of second axes", "implementations"),
        rows,
        "Axes: dPCA against cPCA at alpha equal to the largest ratio. Implementations: cPCA by full "
        "eigendecompositions against standout, the smallest similarity of subspaces over the 15 alphas.",
        digits=4,
    )


def _pictures(by_features: list[Timed], by_rows: list[Timed]) -> tuple[Picture, ...]:
    return (
        Picture(
            "times",
            "Times and ratios over features and rows",
            f"Full eigendecompositions, as the paper counts. Left: {by_features[0].size.n_target} + "
            f"{by_features[0].size.n_background} rows; right: {by_rows[0].size.n_features} features. The dashed line "
            "is the paper's 15.",
            partial(_draw_times, by_features, by_rows),
        ),
        Picture(
            "parts",
            "Where the time goes",
            "Shares of the time of cPCA over 15 alphas. The black mark is what one dPCA takes, covariances and one "
            "eigenproblem, in the same units.",
            partial(_draw_parts, by_features, by_rows),
        ),
    )


def _draw_times(by_features: Sequence[Timed], by_rows: Sequence[Timed]) -> Any:
    """Draw the seconds of each part (top) and the ratios of cPCA to dPCA (bottom), by features and by rows."""
    figure, grid = pyplot().subplots(2, 2, figsize=(10, 7.2), layout="constrained", sharex="col", sharey="row")
    sides = (
        ([one.size.n_features for one in by_features], by_features, "features"),
        ([one.size.n_rows for one in by_rows], by_rows, "rows, target and background"),
    )
    for column, (sizes, found, name) in enumerate(sides):
        above, below = grid[:, column]
        for number, part in enumerate(("one eigenproblem", *_PARTS)):
            of = {"one eigenproblem": " (dPCA)", "covariances": " (both)"}.get(part, " (cPCA)")
            _line(above, sizes, [one.seconds[part] for one in found], number, part + of)
        for number, ratio in enumerate(("eigenproblems alone", "with covariances", "with selection")):
            _line(below, sizes, [one.ratios()[ratio] for one in found], number, ratio)
        below.axhline(len(ALPHAS), color=_style.GREYS[1], linestyle="--", linewidth=1)
        above.set(xscale="log", yscale="log")
        below.set(yscale="log", xlabel=name)
        below.set_xticks(sizes, [f"{size:,}" for size in sizes])
        below.minorticks_off()
    grid[0, 0].set_ylabel("CPU seconds")
    grid[1, 0].set_ylabel("time of cPCA / time of dPCA")
    high = max(20.0, grid[1, 0].get_ylim()[1])
    ticks = [tick for tick in (1, 2, 5, 10, 15, 20, 50, 100) if tick <= high]
    grid[1, 0].set_ylim(1, high)
    grid[1, 0].set_yticks(ticks, [str(tick) for tick in ticks])
    for axes in grid.flat:
        axes.grid(alpha=0.3)
    for axes in grid[:, 0]:
        axes.legend(frameon=False, fontsize=9)
    return figure


def _line(axes: Any, sizes: Sequence[int], values: Sequence[float], number: int, name: str) -> None:
    look = _style.style(number)
    axes.plot(sizes, values, color=look.color, marker=look.marker, label=name)


def _draw_parts(by_features: Sequence[Timed], by_rows: Sequence[Timed]) -> Any:
    """Draw the shares of the time of cPCA as bars, next to the time of one dPCA."""
    found = list({one.size: one for one in (*by_features, *by_rows)}.values())
    figure, axes = pyplot().subplots(figsize=(8.4, 0.42 * len(found) + 1.6), layout="constrained")
    places = np.arange(len(found))[::-1]
    total = np.array([sum(one.seconds[part] for part in _PARTS) for one in found])
    start = np.zeros(len(found))
    for number, part in enumerate(_PARTS, 1):
        share = np.array([one.seconds[part] for one in found]) / total
        axes.barh(places, share, left=start, height=0.68, color=_style.style(number).color, label=part)
        start = start + share
    dpca = np.array([one.seconds["covariances"] + one.seconds["one eigenproblem"] for one in found]) / total
    axes.scatter(dpca, places, marker="|", s=260, color="black", linewidths=2.2, label="one dPCA", zorder=3)
    axes.set_yticks(places, [one.size.name for one in found])
    axes.set(xlabel="share of the time of cPCA over 15 alphas", xlim=(0, 1), ylabel="rows × features")
    figure.legend(loc="outside upper center", ncols=4, frameon=False)
    return figure
