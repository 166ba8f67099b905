"""Which method: the options that say it, and the estimator they mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from standout.cli.help import option, together
from standout.estimators.cpca import CPCA
from standout.estimators.dpca import DPCA
from standout.estimators.kernel import KernelDPCA
from standout.kernels import KERNELS

_HEADING = "Method"
METHODS = ("dpca", "cpca", "kernel-dpca", "pca")
# Which options belong to which methods, and the estimator's own name for them.
_BELONGS = {
    "shrinkage": ("dpca", "kernel-dpca"),
    "axes": ("dpca",),
    "mix": ("dpca", "cpca", "kernel-dpca"),
    "normalize": ("dpca",),
    "centering": ("dpca", "cpca"),
    "solver": ("dpca",),
    "alpha": ("cpca",),
    "kernel": ("kernel-dpca",),
    "gamma": ("kernel-dpca",),
    "landmarks": ("kernel-dpca",),
    "common": ("dpca", "cpca"),
    "seed": ("dpca", "cpca", "kernel-dpca"),
}
_NAMES = {"landmarks": "n_landmarks", "seed": "random_state", "common": "features"}


class _NumberOr(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions of click only
    """A number, or one of some words."""

    def __init__(self, *words: str, whole: bool = False):
        self.words, self.whole = words, whole
        self.name = "|".join([*words, "NUMBER"])

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the number or the word; 'none' and 'all' are None."""
        if value in self.words:
            return None if value in ("none", "all") else value
        try:
            return int(value) if self.whole else float(value)
        except (TypeError, ValueError):
            self.fail(f"{value!r} is not possible. Use {' or '.join(self.words)}, or a number.", param, ctx)


def _shares(_ctx: Any, _param: Any, value: str | None) -> Any:
    if value is None or value in ("pooled", "equal", "minimax"):
        return value
    try:
        return [float(part) for part in value.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not possible. Use pooled, equal, minimax, or numbers separated by commas."
        ) from None


def components_option() -> Callable[[Any], Any]:
    """Return the option on how many components."""
    return option("-k", "--components", type=_NumberOr("auto", "all", whole=True), default="2", show_default=True,
                  heading=_HEADING, help="How many components; auto counts those that pass a test.")  # fmt: skip


def contrast_options() -> Callable[[Any], Any]:
    """Return the options that several methods share."""
    return together(
        components_option(),
        option("--shrinkage", type=_NumberOr("auto", "oas", "none"), heading=_HEADING,
               help="How the background covariance is estimated: auto (keep shared factors, shrink the rest), "
                    "oas or a number from 0 to 1 (shrink toward its diagonal), none (as it is)."),
        option("--mix", callback=_shares, metavar="MIX", heading=_HEADING,
               help="Shares of several backgrounds: pooled (by their rows), equal, minimax (what stands out against "
               "each), or numbers separated by commas."),
        option("--common", is_flag=True, default=None, heading=_HEADING,
               help="Use the features that target and background have in common, when they have others."),
    )  # fmt: skip


def method_options() -> Callable[[Any], Any]:
    """Return all options on the method."""
    return together(
        option("--method", type=click.Choice(METHODS), default="dpca", show_default=True, heading=_HEADING,
               help="Discriminative PCA, contrastive PCA, kernel dPCA, or PCA of the target alone."),
        contrast_options(),
        option("--axes", type=click.Choice(["ratio", "signal"]), heading=_HEADING,
               help="dPCA: largest ratio first, or the principal axes of what is specific to the target."),
        option("--normalize", type=click.Choice(["background"]), heading=_HEADING,
               help="dPCA: give the background variance 1 on every axis."),
        option("--centering", type=click.Choice(["own", "background"]), heading=_HEADING,
               help="The target's centre: its own mean, or the background's, which keeps a shift between them."),
        option("--alpha", type=_NumberOr("auto", "trace_ratio"), heading=_HEADING,
               help="cPCA: how much of the background is subtracted; auto searches."),
        option("--kernel", type=click.Choice(KERNELS), heading=_HEADING, help="Kernel dPCA: the kernel."),
        option("--gamma", type=_NumberOr("median", "cv"), heading=_HEADING,
               help="Kernel dPCA: width of rbf and poly; cv chooses it by held-out ratio."),
        option("--landmarks", type=click.IntRange(min=1), heading=_HEADING,
               help="Kernel dPCA: how many rows carry the components; a few hundred serve any number of rows."),
        option("--solver", type=click.Choice(["auto", "dense", "lanczos", "gsvd", "span", "matrix_free"]),
               heading=_HEADING, help="dPCA: how the problem is solved; auto knows."),
        option("--seed", type=int, heading=_HEADING, help="Seed of what is random."),
    )  # fmt: skip


def take_method(given: dict[str, Any]) -> Any:
    """Take what belongs to the method out of a command's options and return the estimator."""
    method, components = given.pop("method"), given.pop("components")
    chosen = {name: given.pop(name) for name in _BELONGS if name in given}
    # None can be a value (--shrinkage none): what counts is whether the option was given.
    asked = {name: value for name, value in chosen.items() if was_given(name)}
    for name in asked:
        if method not in _BELONGS[name]:
            methods = " or ".join(_BELONGS[name])
            raise click.UsageError(f"--{name} has no meaning with --method {method}. Use it with {methods}.")
    if asked.pop("common", None):
        asked["common"] = "common"
    parameters = {_NAMES.get(name, name): value for name, value in asked.items()}
    kinds = {"dpca": DPCA, "pca": DPCA, "cpca": CPCA, "kernel-dpca": KernelDPCA}
    return kinds[method](n_components=components, **parameters)


def was_given(name: str) -> bool:
    """Tell whether an option was given, whatever its value."""
    source = click.get_current_context().get_parameter_source(name)
    return source is not click.core.ParameterSource.DEFAULT
