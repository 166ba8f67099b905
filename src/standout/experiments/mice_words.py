"""What the mice showed, in sentences: each says what the numbers of this run say."""

from __future__ import annotations

from standout.experiments.mice_measures import (
    BEST,
    DEFAULT,
    EXACT,
    LITERAL,
    PCA,
    Found,
    Separation,
    Singular,
    Worth,
    paired_p,
)
from standout.experiments.mice_readings import Reading
from standout.experiments.mice_tables import p_value
from standout.experiments.record import Spread
from standout.experiments.table import written

_LEVEL = 0.05
_GUESS = 0.5
_FAR = 5.0  # a ratio from here on is called far above 1


def findings(found: Found) -> list[str]:
    """Return the findings; those about ratios come first."""
    worth = {(one.reading, one.problem): one for one in found.worth}
    return [
        *(_pseudo_replication(worth[reading.name, "exact"], reading) for reading, _ in found.main),
        *(_shrunk(worth[reading.name, "default"], reading) for reading, _ in found.main),
        *(_separated(reading, methods, found.chance[reading.name]) for reading, methods in found.main),
        _alphas(found),
        *(_twin(one) for one in found.singular),
    ]


def _pseudo_replication(one: Worth, reading: Reading) -> str:
    return (
        f"{one.reading}: the largest ratio of the exact problem is {one.ratio:,.0f} on the rows it was found on, and "
        f"p = {one.p_by_rows:.0e} if all rows were independent. On other rows of the same mice it is "
        f"{one.held_out_by_rows.mean:,.0f}, on other mice {_over_splits(one.held_out_by_mouse, 1)}: "
        f"{_verdict(one, reading)}."
    )


def _shrunk(one: Worth, reading: Reading) -> str:
    return (
        f"{one.reading}: against the shrunk background, the default, the ratio on other mice is "
        f"{_over_splits(one.held_out_by_mouse, 1)}: {_verdict(one, reading)}."
    )


def _verdict(one: Worth, reading: Reading) -> str:
    """Say what a held-out ratio is worth, and what reshuffling says: the two need not agree."""
    held = one.held_out_by_mouse
    count = len(held.values)
    if held.low > 1:
        told = f"held out it stays {'far ' if held.low > _FAR else ''}above 1"
    else:
        told = "held out it is not above 1" + (" in every split" if held.high > 1 else "")
    if one.intervals_with_1:
        which = f" in {one.intervals_with_1} of {count} splits" if count > 1 else ""
        told = f"{told} (the 95 % interval holds 1{which})"
    if one.p_shuffled_mice <= _LEVEL:
        turn = "and" if held.low > 1 else "but"
        return f"{told}, {turn} reshuffled mice seldom reach it ({p_value(one.p_shuffled_mice)}): this stands out"
    rows, animals = len(reading.background), len(set(reading.background_mice))
    return (
        f"{told}, {'but' if held.low > 1 else 'and'} reshuffling whole mice cannot exclude chance "
        f"({p_value(one.p_shuffled_mice)}): {animals} background animals are not {rows}"
    )


def _separated(reading: Reading, methods: list[Separation], chance: Spread) -> str:
    by_name = {one.method: one for one in methods}
    exact, default = by_name[EXACT], by_name[DEFAULT]
    best, second = sorted(methods, key=lambda one: one.unseen.mean, reverse=True)[:2]
    p = paired_p(best.by_mouse - second.by_mouse)
    return (
        f"{reading.name}: on mice that neither axes nor line have seen, PCA tells the classes apart with accuracy "
        f"{by_name[PCA].unseen.mean:.2f}, exact dPCA with {exact.unseen.mean:.2f}, {_to_pca(exact)}; the default "
        f"reaches {default.unseen.mean:.2f}, {_to_pca(default)}, Algorithm 1 taken literally "
        f"{by_name[LITERAL].unseen.mean:.2f}. Best is {best.method} with {best.unseen.mean:.2f}, "
        f"{'' if p <= _LEVEL else 'not '}clearly before {second.method} ({second.unseen.mean:.2f}, {p_value(p)} mouse "
        f"by mouse). {_by_chance(exact, chance)} {_flattered(methods)}"
    )


def _to_pca(one: Separation) -> str:
    """Say how an accuracy compares with PCA's; below a guess it is not compared."""
    if one.unseen.mean < _GUESS:
        return "below a guess"
    if one.p_to_pca > _LEVEL:
        return f"not clearly other than PCA ({p_value(one.p_to_pca)})"
    # The sign of what the test looked at: every mouse counts the same there.
    return f"{'better' if one.gain > 0 else 'worse'} than PCA ({p_value(one.p_to_pca)})"


def _by_chance(exact: Separation, chance: Spread) -> str:
    count = len(chance.values)
    as_good = sum(value >= exact.unseen.mean for value in chance.values)
    told = (
        f"With the classes reshuffled over mice exact dPCA has {chance.low:.2f} to {chance.high:.2f}, and as much as "
        f"with the true ones in {as_good} of {count} reshufflings of one split"
    )
    if exact.unseen.mean < _GUESS:
        return (
            f"{told}: an accuracy below a guess is an artefact of cross-validation with few mice, and no evidence that "
            "PCA is better."
        )
    return f"{told}: chance is {'possible' if (1 + as_good) / (1 + count) > _LEVEL else 'unlikely'}."


def _flattered(methods: list[Separation]) -> str:
    """Say which method gains most when its axes, but not the line, see the held-out mice."""
    gains = {
        one.method: Spread(tuple(seen - new for seen, new in zip(one.seen.values, one.unseen.values, strict=True)))
        for one in methods
    }
    most = max(gains, key=lambda name: gains[name].mean)
    if gains[most].mean < 0.005:
        return "Axes that saw the held-out mice flatter no method."
    return f"Axes that saw the held-out mice flatter {most} most, by {_over_splits(gains[most], 2)}."


def _over_splits(spread: Spread, digits: int) -> str:
    """Return the mean and the range over splits; the number alone where there is one split."""
    told = written(spread, digits)
    return f"{told[:-1]} over splits)" if told.endswith(")") else told


def _alphas(found: Found) -> str:
    grid = found.grid
    kept = "; ".join(
        f"{', '.join(f'{alpha:.3g}' for alpha in found.alphas[reading.name])} ({reading.name})"
        for reading, _ in found.main
    )
    reached = ", ".join(
        f"{one.unseen.mean:.2f} ({reading.name})"
        for reading, methods in found.main
        for one in methods
        if one.method == BEST
    )
    return (
        f"The paper's alphas, {' and '.join(f'{alpha:.4f}' for alpha in grid.alphas)}, are not among the 15 it says it "
        f"searched (the nearest are {' and '.join(f'{alpha:.3g}' for alpha in grid.nearest)}); a grid from 0.001 to "
        f"1000 that holds both has at least {grid.smallest_grid} values. The search keeps {kept}; the one of "
        f"four that shows the known mice best reaches {reached} on unseen mice."
    )


def _twin(one: Singular) -> str:
    scipy = f"scipy.linalg.eigh refuses in {one.scipy_raises}"
    if one.scipy_ratios:
        error = max(abs(ratio / one.ratio - 1) for ratio in one.scipy_ratios)
        scipy = f"{scipy} and is right to {error:.0e} in the others"
    literal = "Algorithm 1 has no inverse to take in any"
    if one.literal_cosines:
        literal = (
            f"Algorithm 1 refuses in {one.literal_refuses} and in the others gives, without a word, an axis with |cos| "
            f"{min(one.literal_cosines):.2f} to {max(one.literal_cosines):.2f} to the one without the twin"
        )
    return (
        f"{one.reading}, all {one.n_features} features: one stands twice, so C_yy has rank {one.rank} and the "
        f"assumption of full rank fails. Over {one.n_orders} orders of the columns {scipy}; {literal}. standout gives "
        f"the ratios without the twin to {one.difference:.0e}."
    )
