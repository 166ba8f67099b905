"""The methods paragraph of a fitted model: what a paper needs to report, in words, with references.

It states the method, the counts, the estimate of the background, the ratios with the noise edge, the tests by
resampling if there are any, the verdict of :mod:`standout._verdict` with unresolved doubts, and the versions.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from standout._kernel_model import KernelModel
from standout._model import Model
from standout._moments import Counts
from standout._shrinkage import estimate_text
from standout._summary import Summary
from standout._verdict import number, p_text, verdict
from standout._version import __version__

if TYPE_CHECKING:
    from standout.inference.assess import Assessment

# Components that are listed one by one.
_LISTED = 5
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
    counts = [f"The target had {_rows(model.target_counts)}"]
    counts += [f"{name if ' ' in name else 'the ' + name} {_rows(rows)}" for name, rows in model.background_counts]
    text = f"{_and(counts)}, with {used} features."
    if len(model.mix) > 1:
        weights = _MIXES[estimator.mix] if isinstance(estimator.mix, str) else "given weights"
        text += f" The backgrounds were mixed with weights {_and(f'{share:.2f}' for share in model.mix)} ({weights})."
    if not model.background_counts:
        return f"{text} Rows were centred by their mean."
    if getattr(estimator, "centering", "own") == "own":
        return f"{text} Each dataset was centred by its own mean."
    return f"{text} The target was centred by the mean of the background."


def _rows(counts: Counts) -> str:
    independent = f" ({counts.units:.4g} independent)" if round(counts.units) != counts.rows else ""
    return f"{counts.rows} rows{independent}"


def _background(estimator: Any, model: Model) -> str:
    """Return how the background covariance was estimated."""
    if model.regime == "structural":
        return "Shrinkage was not used; the background does not vary in some directions, where ratios are infinite."
    if model.regime == "exact":
        return "Shrinkage was not used."
    cited = ", by oracle approximating shrinkage (Chen et al., 2010)" if isinstance(estimator.shrinkage, str) else ""
    if isinstance(model, KernelModel):
        return f"The background covariance was shrunk toward the identity by {model.shrinkage:.3g}{cited}."
    return f"The background covariance was estimated by {estimate_text(model.shrinkage, model.n_factors)}{cited}."


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
        ratios = (
            number(ratio) + ("" if math.isnan(low) else f" ({100 * held.level:g} % interval {low:.3g} to {high:.3g})")
            for ratio, low, high in zip(held.ratios, held.low, held.high, strict=True)
        )
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
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
