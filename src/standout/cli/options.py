"""Options that several commands share, and help pages with headings and examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from standout._cpca import CPCA
from standout._dpca import DPCA
from standout._kernel_dpca import KernelDPCA
from standout._kernel_model import KERNELS

_OUTPUT, _METHOD = "Output", "Method"
_ESTIMATORS: dict[str, Any] = {"dpca": DPCA, "cpca": CPCA, "kernel-dpca": KernelDPCA, "pca": DPCA}
# The methods that an option belongs to.
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
# The parameter of the estimator, where its name is not that of the option.
_PARAMETERS = {"landmarks": "n_landmarks", "seed": "random_state", "common": "features"}


class Option(click.Option):
    """An option that is listed under a heading of the help."""

    def __init__(self, *args: Any, heading: str = "Options", **rest: Any):
        super().__init__(*args, **rest)
        self.heading = heading


class Page(click.Command):
    """A command whose help groups its options under headings and ends with examples."""

    def __init__(self, *args: Any, examples: str = "", **rest: Any):
        super().__init__(*args, **rest)
        self.examples = examples.strip("\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings, in order of first use."""
        headings: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and not isinstance(param, click.Argument):
                headings.setdefault(getattr(param, "heading", "Options"), []).append(record)
        for heading, records in headings.items():
            with formatter.section(heading):
                formatter.write_dl(records, col_max=26)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples without wrapping them."""
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples.splitlines():
                    formatter.write(f"  {line}\n" if line else "\n")


def option(*names: str, heading: str, **rest: Any) -> Callable[[Any], Any]:
    """Declare an option under a heading."""
    return click.option(*names, cls=Option, heading=heading, **rest)


def together(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Combine options into one decorator that keeps their order."""

    def decorate(command: Any) -> Any:
        for declare in reversed(options):
            command = declare(command)
        return command

    return decorate


def telling_options() -> Callable[[Any], Any]:
    """Return the options that every command has."""
    return together(
        option("--json", "as_json", is_flag=True, heading=_OUTPUT, help="Print the result as JSON."),
        option("--quiet", is_flag=True, heading=_OUTPUT, help="Do not show progress or notes."),
        option("--debug", is_flag=True, heading=_OUTPUT, help="Show the traceback of an error."),
    )


class _NumberOr(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions of click only
    """A number or one of a few keywords; 'none' and 'all' become None."""

    def __init__(self, *words: str, whole: bool = False):
        self.words, self.whole = words, whole
        self.name = "|".join([*words, "NUMBER"])

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if value in self.words:
            return None if value in ("none", "all") else value
        try:
            return int(value) if self.whole else float(value)
        except (TypeError, ValueError):
            self.fail(f"{value!r} is not valid. Use {', '.join(self.words)} or a number.", param, ctx)


def _shares(_ctx: Any, _param: Any, value: str | None) -> Any:
    if value is None or value in ("pooled", "equal", "minimax"):
        return value
    try:
        return [float(part) for part in value.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not valid. Use pooled, equal, minimax or numbers separated by commas."
        ) from None


def contrast_options() -> Callable[[Any], Any]:
    """Return the method options of fit, report, compare and test."""
    return together(
        option("-k", "--components", type=_NumberOr("auto", "all", whole=True), default="2", show_default=True,
               heading=_METHOD, help="Number of components. auto keeps those that are significant."),
        option("--shrinkage", type=_NumberOr("auto", "oas", "none"), heading=_METHOD,
               help="Estimator of the background covariance: auto (keep shared factors, shrink the rest), oas or a "
               "number from 0 to 1 (shrink toward the diagonal), or none."),
        option("--mix", callback=_shares, metavar="MIX", heading=_METHOD,
               help="Weights of several backgrounds: pooled (by number of rows), equal, minimax (ratios hold against "
               "each background), or numbers separated by commas."),
        option("--common", is_flag=True, default=None, heading=_METHOD,
               help="Use only the features that the target and all backgrounds have in common."),
    )  # fmt: skip


def method_options() -> Callable[[Any], Any]:
    """Return the method options of fit and report."""
    return together(
        option("--method", type=click.Choice(list(_ESTIMATORS)), default="dpca", show_default=True, heading=_METHOD,
               help="Discriminative PCA, contrastive PCA, kernel dPCA, or PCA of the target alone."),
        contrast_options(),
        option("--axes", type=click.Choice(["ratio", "signal"]), heading=_METHOD,
               help="dPCA: order components by ratio, or use the principal axes of the target-specific signal."),
        option("--normalize", type=click.Choice(["background"]), heading=_METHOD,
               help="dPCA: scale components to background variance 1."),
        option("--centering", type=click.Choice(["own", "background"]), heading=_METHOD,
               help="Center the target at its own mean, or at the background's, which keeps a shift in the mean."),
        option("--alpha", type=_NumberOr("auto", "trace_ratio"), heading=_METHOD,
               help="cPCA: weight of the background covariance that is subtracted. auto searches."),
        option("--kernel", type=click.Choice(KERNELS), heading=_METHOD, help="Kernel dPCA: the kernel."),
        option("--gamma", type=_NumberOr("median", "cv"), heading=_METHOD,
               help="Kernel dPCA: width of rbf and poly. cv maximizes the held-out ratio."),
        option("--landmarks", type=click.IntRange(min=1), heading=_METHOD,
               help="Kernel dPCA: number of landmark rows. A few hundred suffice for any number of rows."),
        option("--solver", type=click.Choice(["auto", "dense", "lanczos", "gsvd", "span", "matrix_free"]),
               heading=_METHOD, help="dPCA: the eigensolver. auto chooses by shape and conditioning."),
        option("--seed", type=int, heading=_METHOD, help="Random seed."),
    )  # fmt: skip


def take_estimator(given: dict[str, Any]) -> Any:
    """Remove the method options of fit and report from ``given`` and return the estimator they describe."""
    method, components = given.pop("method"), given.pop("components")
    chosen = _take_given(given)
    for name in chosen:
        if method not in _BELONGS[name]:
            methods = " or ".join(_BELONGS[name])
            raise click.UsageError(f"--{name} cannot be used with --method {method}. Use it with {methods}.")
    if method == "pca" and given["background"]:
        raise click.UsageError("--method pca uses the target alone. Leave the background out, or use another method.")
    if method != "pca":
        _need_background(given, ", or use --method pca")
    return _ESTIMATORS[method](n_components=components, **_parameters(chosen))


def take_parameters(given: dict[str, Any]) -> dict[str, Any]:
    """Remove the method options of compare and test from ``given`` and return them as parameters of DPCA."""
    _need_background(given)
    components = given.pop("components")
    if not isinstance(components, int):
        raise click.UsageError("this command needs a fixed number of components. Give -k a whole number.")
    return {"n_components": components, **_parameters(_take_given(given))}


def _take_given(given: dict[str, Any]) -> dict[str, Any]:
    """Take the method options that the user gave. None can be a value (--shrinkage none)."""
    context = click.get_current_context()
    chosen = {name: given.pop(name) for name in _BELONGS if name in given}
    default = click.core.ParameterSource.DEFAULT
    return {name: value for name, value in chosen.items() if context.get_parameter_source(name) is not default}


def _parameters(chosen: dict[str, Any]) -> dict[str, Any]:
    return {_PARAMETERS.get(name, name): "common" if name == "common" else chosen[name] for name in chosen}


def _need_background(given: dict[str, Any], otherwise: str = "") -> None:
    if not given["background"]:
        raise click.UsageError(f"There is no background to compare with. Give one with -b{otherwise}.")
