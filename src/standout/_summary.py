"""Results as text and as JSON: the summary of a model, its methods paragraph, and values that can be serialised.

The summary shows the ratios with the noise edge, then the verdict of :mod:`standout._verdict`, then further notes. The
methods paragraph is what a paper needs to report, with references.
"""

from __future__ import annotations

import math
import platform
import textwrap
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from standout._blas import Array
from standout._display import Summary, Table, capitalized, count, display, joined, number, stacked, to_html
from standout._kernel_model import KernelModel
from standout._model import Model
from standout._moments import Counts
from standout._verdict import background_estimate, p_text, problem_text, ratio_text, verdict
from standout._version import __version__
from standout.errors import visible
from standout.io.options import as_text

if TYPE_CHECKING:
    from standout.inference.assess import Assessment

# Components that are listed one by one.
_LISTED = 5
# Rows listed at each end of a component in texts, and the length to which their labels are cut.
N_EXTREMES, _LABEL_WIDTH = 3, 90
# By the words that cite them.
_REFERENCES = {
    "Abid et al.": "Abid, A., Zhang, M. J., Bagaria, V. K. & Zou, J. (2018). Exploring patterns enriched in a dataset "
    "with contrastive principal component analysis. Nature Communications 9, 2134.",
    "Chen et al.": "Chen, Y., Wiesel, A., Eldar, Y. C. & Hero, A. O. (2010). Shrinkage algorithms for MMSE covariance "
    "estimation. IEEE Transactions on Signal Processing 58, 5016–5029.",
    "Chiani": "Chiani, M. (2016). Distribution of the largest root of a matrix for Roy's test in multivariate analysis "
    "of variance. Journal of Multivariate Analysis 143, 467–471.",
    "Phipson and Smyth": "Phipson, B. & Smyth, G. K. (2010). Permutation p-values should never be zero: calculating "
    "exact p-values when permutations are randomly drawn. Statistical Applications in Genetics and Molecular Biology "
    "9, 39.",
    "standout": f"The standout developers. standout: discriminative PCA and related methods (version {__version__}).",
    "Wang et al.": "Wang, G., Chen, J. & Giannakis, G. B. (2018). DPCA: dimensionality reduction for discriminative "
    "analytics of multiple large-scale datasets. IEEE International Conference on Acoustics, Speech and Signal "
    "Processing. arXiv:1710.09429.",
}
_MIXES = {"pooled": "by number of rows", "equal": "equal weights", "minimax": "minimax weights"}
_SEARCHES = {"auto": ", chosen by a search over subspaces", "trace_ratio": ", the trace ratio"}


class ExtremeRow(NamedTuple):
    """A row near one end of a component."""

    row: int  # position of the row, from 0
    label: str | None  # None if the row has none
    score: float


class Extremes(NamedTuple):
    """The rows near the two ends of a component, the most extreme first."""

    low: list[ExtremeRow]
    high: list[ExtremeRow]


def extreme_rows(scores: Array, labels: NDArray[Any] | None, count: int) -> list[Extremes]:
    """Return the rows with the lowest and the highest scores along each component; no row is at both ends."""
    count = min(count, len(scores) // 2)
    found = []
    for column in np.asarray(scores, dtype=np.float64).T:
        order = np.argsort(column, kind="stable")
        ends = (order[:count], order[::-1][:count])
        found.append(
            Extremes(*(
                [ExtremeRow(int(i), None if labels is None else as_text(labels[i]), float(column[i])) for i in end]
                for end in ends
            ))
        )  # fmt: skip
    return found


def extremes_text(names: Sequence[str], extremes: Sequence[Extremes]) -> Summary:
    """Return the rows at the ends of each component, with their scores and in their order."""
    title = "rows at the ends of each component, with their scores:"
    lines, rows = [f"  {title}"], []
    for name, (low, high) in zip(names, extremes, strict=True):
        shown = [(each.score, _row_text(each)) for each in (*low[:N_EXTREMES], *reversed(high[:N_EXTREMES]))]
        lines += [f"  {name}", *(f"  {score:>+10.3g}  {text}" for score, text in shown)]
        rows += [(name, *row) for row in shown]
    return Summary("\n".join(lines), to_html(capitalized(title), Table(["component", "score", "row"], rows).html()))


def _row_text(each: ExtremeRow) -> str:
    text = f"row {each.row}" if each.label is None else each.label
    return textwrap.shorten(text, _LABEL_WIDTH, placeholder="…") or "(empty)"


def summarize(model: Model, command: str | None = None, extremes: Sequence[Extremes] = ()) -> Summary:
    """Return the summary of a model.

    With the command that tests the same data, that is the next step; with extremes, their rows are listed.
    """
    alpha = getattr(model, "alpha", None) if model.background_counts else None
    title = model.method if alpha is None else f"{model.method} (alpha = {alpha:.4g})"
    size = f"of {len(model.mean)} features ("
    if isinstance(model, KernelModel):
        size = f"over {len(model.landmarks.rows)} landmarks (kernel {model.landmarks.kernel.name}; "
    title = f"{title}: {count(model.n_components, 'component')} {size}joint rank {model.rank})"
    facts = []
    if isinstance(model, KernelModel) and model.landmarks.scale is not None:
        facts.append(("units", "features divided by their background sd"))
    facts.append(("target", _rows(model.target_counts)))
    for (name, counts), share in zip(model.background_counts, model.mix, strict=True):
        weight = f", share {share:.2f}" if len(model.mix) > 1 else ""
        facts.append((visible(name, lines=False), f"{_rows(counts)}{weight}"))
    facts.append(("problem", f"{problem_text(model)} (solver {model.solver})"))
    columns = ratio_columns(model)
    rows = list(zip(model.component_names, *columns.values(), strict=True))
    found = verdict(model, command=command)
    further = [note.text for note in model.notes if note.text not in found.reasons]
    parts = [
        display(title, Table(["component", *columns], rows), facts=facts),
        found.summary(further, on_command_line=command is not None),
    ]
    if extremes:
        parts.append(extremes_text(model.component_names, extremes))
    return stacked(parts)


def _rows(counts: Counts, units: str = " worth {:.4g} independent units") -> str:
    return f"{counts.rows} rows" + (units.format(counts.units) if round(counts.units) != counts.rows else "")


def ratio_columns(model: Model) -> dict[str, Array]:
    """Return the columns of a table with one row for each component, without empty ones."""
    target_sd = np.sqrt(model.target_variance)
    if not model.background_counts:
        return {"variance": model.target_variance, "sd": target_sd}
    shrunk = model.regime == "shrunk"
    columns = {
        "ratio": model.ratios,
        **({"unshrunk ratio": model.unshrunk_ratios} if shrunk else {}),
        "noise edge": np.full(model.n_components, model.noise_edge),
        "de-biased ratio": model.debiased_ratios,
        "target sd": target_sd,
        "background sd, shrunk" if shrunk else "background sd": np.sqrt(model.background_variance),
    }
    return {name: values for name, values in columns.items() if name == "noise edge" or not np.isnan(values).all()}


def to_dict(estimator: Any, n_top: int = 10) -> dict[str, Any]:
    """Return the results of a fitted estimator; infinite values become strings, undefined values None."""
    model: Model = estimator._solved()
    # Components of a kernel model are functions, which have no feature weights.
    tops = estimator.top_features(n_top) if hasattr(estimator, "top_features") else [[] for _ in model.ratios]
    found = {
        "method": type(estimator).__name__ if model.background_counts else model.method,
        "parameters": estimator.get_params(),
        "n_features": int(estimator.n_features_in_),
        "rank": model.rank,
        "regime": model.regime,
        "shrinkage": model.shrinkage,
        "n_factors": model.n_factors,
        "solver": model.solver,
        "noise_edge": model.noise_edge,
        "p_value": model.p_value,
        "target": {"rows": model.target_counts.rows, "units": model.target_counts.units},
        "backgrounds": {
            name: {"rows": counts.rows, "units": counts.units, "share": share}
            for (name, counts), share in zip(model.background_counts, model.mix, strict=True)
        },
        "components": [
            {
                "name": name,
                "ratio": model.ratios[k],
                "unshrunk_ratio": model.unshrunk_ratios[k],
                "debiased_ratio": model.debiased_ratios[k],
                "target_variance": model.target_variance[k],
                "background_variance": model.background_variance[k],
                "top_features": [top._asdict() for top in tops[k]],
            }
            for k, name in enumerate(model.component_names)
        ],
        "notes": [note.text for note in model.notes],
    }
    found |= {name: getattr(model, name) for name in ("alpha", "gamma") if hasattr(model, name)}
    return {name: plain(value) for name, value in found.items()}


def plain(value: Any) -> Any:
    """Return a value that can be serialised as JSON.

    Examples
    --------
    >>> plain(np.array([1.0, np.nan, np.inf])), plain({"a": (1, None)})
    ([1.0, None, 'inf'], {'a': [1, None]})
    """
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def methods_text(estimator: Any, assessment: Assessment | None = None) -> Summary:
    """Return the methods paragraph of a fitted estimator and its references, separated by an empty line."""
    model: Model = estimator._solved()
    sentences = [_method(estimator, model), _data(estimator, model)]
    if model.background_counts:
        sentences += [_background(estimator, model), _ratios(estimator, model)]
        sentences += [] if assessment is None else _resampling(assessment)
        found = verdict(model, assessment)
        sentences.append(f"Overall assessment: {found.headline}.")
        sentences += [f"Unresolved: {reason.rstrip('.')}." for reason in found.reasons[: found.n_doubts]]
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "scikit-learn"))
    sentences.append(f"Computations used standout {__version__} with Python {platform.python_version()}, {packages}.")
    text = " ".join(sentences)
    return Summary("\n".join([text, "", *(entry for cited, entry in _REFERENCES.items() if cited in text)]))


def _method(estimator: Any, model: Model) -> str:
    """Return what the components are."""
    if not model.background_counts:
        return "The components are the principal components of the target; there was no background."
    alpha = getattr(model, "alpha", None)
    if alpha is not None:
        search = _SEARCHES.get(estimator.alpha, "") if isinstance(estimator.alpha, str) else ""
        return (
            "Components were computed by contrastive PCA (cPCA; Abid et al., 2018) as the leading eigenvectors of "
            f"C_xx − α C_yy, the covariances of target and background, with α = {alpha:.4g}{search}."
        )
    text = (
        "Components specific to the target were computed by discriminative PCA (dPCA; Wang et al., 2018), which "
        "maximises the ratio λ of target to background variance by solving C_xx u = λ C_yy u"
    )
    if isinstance(model, KernelModel):
        text += (
            f", in the feature space of a kernel ({model.landmarks.kernel.name}; {len(model.landmarks.rows)} landmarks)"
        )
    if getattr(estimator, "axes", "ratio") == "signal":
        text += "; the axes are the principal axes of the target denoised by all components above the noise edge"
    if getattr(estimator, "graph", None) is not None:
        text += f"; components that are rough on a graph of features were penalised (weight {estimator.smoothness:g})"
    return f"{text}."


def _data(estimator: Any, model: Model) -> str:
    """Return the counts of rows, independent units and features, and the centring."""
    used = estimator.n_features_in_ if model.used is None else len(model.used)
    units = " ({:.4g} independent)"
    names = [visible(name, lines=False) for name, _ in model.background_counts]
    named = [(n if " " in n else f"the {n}", rows) for n, (_, rows) in zip(names, model.background_counts, strict=True)]
    counts = [f"{name} {_rows(rows, units)}" for name, rows in (("The target had", model.target_counts), *named)]
    text = f"{_and(counts)}, with {used} features."
    if len(model.mix) > 1:
        weights = _MIXES[estimator.mix] if isinstance(estimator.mix, str) else "given weights"
        text += f" The backgrounds were mixed with weights {_and(f'{share:.2f}' for share in model.mix)} ({weights})."
    if not model.background_counts:
        return f"{text} Rows were centred by their mean."
    if getattr(estimator, "centering", "own") == "own":
        return f"{text} Each dataset was centred by its own mean."
    return f"{text} The target was centred by the mean of the background."


def _background(estimator: Any, model: Model) -> str:
    """Return how the background covariance was estimated."""
    if model.regime == "structural":
        return "Shrinkage was not used; the background does not vary in some directions, where ratios are infinite."
    if model.regime == "exact":
        return "Shrinkage was not used."
    is_chosen = isinstance(getattr(estimator, "shrinkage", "auto"), str)  # cPCA has no such parameter
    cited = ", by oracle approximating shrinkage (Chen et al., 2010)" if is_chosen else ""
    return f"The background covariance was {background_estimate(model)}{cited}."


def _ratios(estimator: Any, model: Model) -> str:
    """Return the ratios, the noise edge, and the p-value of the fit."""
    text = "No component was retained."
    if model.n_components:
        what = "ratio of the component was" if model.n_components == 1 else "ratios of the components were"
        text = f"The {what} {_and(map(number, model.ratios))}."
    if math.isnan(model.noise_edge):
        return f"{text} There is no noise edge."
    shrunk = " without shrinkage" if model.regime == "shrunk" else ""
    text += f" The largest ratio expected from noise{shrunk} is {number(model.noise_edge)}"
    if math.isnan(model.p_value):
        return f"{text}."
    # Components of cPCA and signal axes do not have the largest ratio, to which the p-value refers.
    other = hasattr(model, "alpha") or getattr(estimator, "axes", "ratio") == "signal"
    which = "the largest ratio of any direction" if other else "the largest ratio"
    return f"{text}; {which} has {p_text(model)} by Roy's largest root (Chiani, 2016), which assumes Gaussian rows."


def _resampling(found: Assessment) -> list[str]:
    """Return the tests by resampling, with their results."""
    sentences = []
    if found.test is not None:
        test = found.test
        drawn = (
            f"all {test.n_possible:,.0f} labellings" if test.complete else f"{test.null.shape[1]:,} random labellings"
        )
        what = "swapped within pairs" if test.permuted == "pairs" else f"permuted between {test.permuted}"
        sentences.append(
            f"Significance was tested by permutation: labels were {what} ({drawn}), and components were tested "
            f"one after the other (p = {_and(f'{p:.2g}' for p in test.p_values)}; Phipson and Smyth, 2010)."
        )
    if found.held_out is not None:
        held = found.held_out
        n_folds = len(held.fold_ratios)
        split = f"{n_folds}-fold cross-validation" if n_folds > 1 else "one split"
        columns = zip(held.ratios, held.low, held.high, strict=True)
        ratios = (ratio_text(*values, held.level) for values in columns)
        sentences.append(f"In {split} by {held.by}, the held-out ratio was {_and(ratios)}.")
    if found.stability is not None:
        stable = found.stability
        sentences.append(
            f"In {len(stable.correlations):,} bootstrap samples of {stable.by}, the median absolute correlation of the "
            f"scores with those of the fit was {_and(f'{median:.2f}' for median in stable.median)}."
        )
    return sentences


def _and(items: Iterable[str]) -> str:
    """Return a list in words; of more than a few items the first ones and their number."""
    shown = list(items)
    if len(shown) > _LISTED:
        return f"{', '.join(shown[:_LISTED])} (the first {_LISTED} of {len(shown)})"
    return joined(shown)
