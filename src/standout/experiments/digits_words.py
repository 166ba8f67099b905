"""What the digits showed, in sentences: each says what the numbers of this run say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from standout.experiments.digits_views import METHODS
from standout.experiments.record import Spread
from standout.experiments.table import written

# A view shows the two digits as clusters from this ARI on: half way from chance to perfect.
TWO_CLUSTERS = 0.5

ByWeight = Mapping[str, Spread]
Numbers = Mapping[str, Mapping[str, ByWeight]]  # measure, method, weight
_NAMES = {method.key: method.name for method in METHODS}


def findings(numbers: Numbers, spectrum: Mapping[str, ByWeight], stand_in: bool = False) -> tuple[str, ...]:
    """Return the findings; the first is about the paper's own method."""
    ari = numbers["ari"]
    about = {key: _about(key, by_weight) for key, by_weight in ari.items()}
    return (
        _paper(ari["ratio_exact"], "two clusters on this stand-in" if stand_in else "the paper's two clusters"),
        _why(spectrum),
        about["ratio"],
        about["signal"],
        about["signal_unit"],
        about["pca"],
        about["cpca"],
        f"{about['cpca_search']} It takes alpha {_values(spectrum['searched_alpha'], list(ari['cpca_search']), 1)}.",
        about["kernel"],
        about["literal"],
        _best(ari),
        _new(numbers),
    )


def _paper(exact: ByWeight, clusters: str) -> str:
    shown, hidden = _sides(exact)
    if not shown:
        low, high = min(spread.low for spread in exact.values()), max(spread.high for spread in exact.values())
        return (
            f"dPCA by the exact ratio, the paper's method, does not give {clusters} at any weight tried: "
            f"two clusters of its scores match the two digits with an ARI of {low:.2f} to {high:.2f}, where 1 is "
            "perfect and 0 is chance."
        )
    some, less = (" at some weights", f", and does not at others: ARI {_values(exact, hidden)}") if hidden else ("", "")
    return (
        f"dPCA by the exact ratio, the paper's method, gives {clusters}{some}: ARI "
        f"{_values(exact, shown)}{less}. 1 is perfect and 0 is chance."
    )


def _why(spectrum: Mapping[str, ByWeight]) -> str:
    weights = list(spectrum["largest_ratio"])
    middle = weights[len(weights) // 2]
    found = {name: by_weight[middle].mean for name, by_weight in spectrum.items()}
    calmer = found["calm_by_ratio"] < 0.5 * found["calm_by_signal"]
    reason = ": the largest ratios lie in fine detail, where photographs hardly vary" if calmer else ""
    return (
        f"At weight {middle} the largest ratio is {found['largest_ratio']:.1f}, where noise alone reaches "
        f"{found['noise_edge']:.1f}, and {found['above_edge']:.0f} components are above that edge. Along the first of "
        f"them photographs have {found['calm_by_ratio']:.1%} of the variance that they have along an average direction "
        f"({found['calm_by_signal']:.1%} along the first axis by signal){reason}."
    )


def _about(key: str, ari: ByWeight) -> str:
    shown, hidden = _sides(ari)
    if not shown:
        return f"{_NAMES[key]} does not show the two digits: ARI {_values(ari, hidden)}."
    less = f", but not at others: ARI {_values(ari, hidden)}" if hidden else ""
    some = " at some weights" if hidden else ""
    return f"{_NAMES[key]} shows the two digits{some}: ARI {_values(ari, shown)}{less}.{_exceptions(ari, shown)}"


def _exceptions(ari: ByWeight, shown: Sequence[str]) -> str:
    """Return a sentence about the seeds in which the clusters are not the digits although they are on average."""
    short = {weight: sum(value < TWO_CLUSTERS for value in ari[weight].values) for weight in shown}
    told = [f"{count} of {len(ari[weight].values)} at weight {weight}" for weight, count in short.items() if count]
    return f" Not with every seed: the ARI is below {TWO_CLUSTERS} in {', '.join(told)}." if told else ""


def _best(ari: Mapping[str, ByWeight]) -> str:
    weights = next(iter(ari.values()))
    best = {weight: max(ari, key=lambda key: ari[key][weight].mean) for weight in weights}
    told = ", ".join(f"{_NAMES[key]} at {weight} ({ari[key][weight].mean:.2f})" for weight, key in best.items())
    return f"The largest mean ARI at each weight: {told}."


def _new(numbers: Numbers) -> str:
    gaps = {
        (key, weight): numbers["accuracy"][key][weight].mean - spread.mean
        for key, by_weight in numbers["new_accuracy"].items()
        for weight, spread in by_weight.items()
    }
    key, weight = max(gaps, key=lambda place: gaps[place])
    return (
        "On new digits over new photographs, which the axes never saw, the mean logistic accuracy is at most "
        f"{max(gaps[key, weight], 0.0):.2f} below that on the target itself ({_NAMES[key]} at weight {weight})."
    )


def _sides(ari: ByWeight) -> tuple[list[str], list[str]]:
    """Return the weights at which the clusters are the digits, and the others."""
    shown = [weight for weight, spread in ari.items() if spread.mean >= TWO_CLUSTERS]
    return shown, [weight for weight in ari if weight not in shown]


def _values(spreads: ByWeight, weights: Sequence[str], digits: int = 2) -> str:
    """Return the means at some weights, as one lists them in a sentence."""
    told = [f"{written(spreads[weight].mean, digits)} at weight {weight}" for weight in weights]
    return " and ".join(filter(None, [", ".join(told[:-1]), told[-1]]))
