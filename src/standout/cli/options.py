"""Options of the commands, their help pages, and the estimators that they describe."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import click

from standout._cpca import CPCA
from standout._dpca import DPCA
from standout._kernel_dpca import KernelDPCA
from standout._kernel_model import KERNELS
from standout.errors import spell_arguments
from standout.io.options import MISSING

_ROWS, _COLUMNS, _METHOD, _OUTPUT = "Rows", "Columns", "Method", "Output"
MEMORY = "256MB"
_COMMANDLINE = click.core.ParameterSource.COMMANDLINE
_ESTIMATORS: dict[str, Any] = {"dpca": DPCA, "cpca": CPCA, "kernel-dpca": KernelDPCA, "pca": DPCA}
# The parameters of the estimators that the options of the method set, by option.
PARAMETERS = {name: name for name in ("shrinkage", "axes", "mix", "normalize", "centering", "solver", "alpha", "kernel",
                                      "gamma")}  # fmt: skip
PARAMETERS |= {"landmarks": "n_landmarks", "seed": "random_state", "common": "features"}
# The options for other arguments of the library, by argument.
ARGUMENTS = {name: f"--{name}" for name in ("missing", "label", "groups", "ids", "drop", "key", "header", "encoding",
                                           "censored", "transpose", "cube", "memory", "checkpoint")}  # fmt: skip
ARGUMENTS |= {"columns": "--features", "groups_match": "--groups-match", "where": "--by", "n_components": "-k"}
ARGUMENTS |= {parameter: f"--{name}" for name, parameter in PARAMETERS.items() if name != "common"}


class Option(click.Option):
    """An option that is listed under a heading of the help."""

    def __init__(self, *args: Any, heading: str, **rest: Any):
        super().__init__(*args, **rest)
        self.heading = heading


class Page(click.Command):
    """A command whose help groups its options under headings and ends with examples."""

    def __init__(self, *args: Any, examples: str, **rest: Any):
        rest["context_settings"] = {"help_option_names": ["-h", "--help"]}
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

    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples without wrapping them."""
        with formatter.section("Examples"):
            formatter.write("".join(f"  {line}\n" for line in self.examples.splitlines()))


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


output_options = together(
    option("--json", "as_json", is_flag=True, heading=_OUTPUT, help="Print the result as JSON."),
    option("--quiet", is_flag=True, heading=_OUTPUT, help="Do not show progress or notes."),
    option("--debug", is_flag=True, heading=_OUTPUT, help="Show the traceback of an error."),
)
file_options = together(
    option("--ids", metavar="COLUMN", heading=_COLUMNS, help="Name of each row. Not used as a feature."),
    option("--key", metavar="NAME", heading=_ROWS,
           help="Array to read from a file with several (npz, h5, zarr, mat), layer of an h5ad or loom file, feature "
           "type or genome of a Cell Ranger file, or sheet of a workbook. FILE::NAME does the same for one file: "
           "-b book.xlsx::Controls."),
    option("--header", type=click.IntRange(min=1), metavar="N", heading=_ROWS,
           help="Line of a text file, or row of a sheet, with the column names. Default: the first that is neither "
           "empty nor a comment (#)."),
    option("--encoding", metavar="NAME", heading=_ROWS,
           help="Encoding of text files, such as cp1252 or latin-1. Default: UTF-8, or UTF-16 with a byte-order mark."),
    option("--censored", type=click.Choice(["missing"]), heading=_ROWS,
           help="How to handle values beyond a detection limit (<0.5, >1000, <LOD, ND, BDL) in numeric columns: as "
           "missing values, which --missing handles. Default: an error that counts them."),
    option("--transpose", is_flag=True, heading=_ROWS,
           help="Read tables that have features in rows and samples in columns."),
    option("--cube", is_flag=True, heading=_ROWS,
           help="Read arrays of height × width × bands: each pixel is a row, each band a feature."),
    option("--memory", default=MEMORY, show_default=True, metavar="SIZE", heading=_ROWS,
           help="Read files up to this size into memory, where every solver can be used. Larger files are read in "
           "blocks of at most this size."),
)  # fmt: skip
reading_options = together(
    option("-b", "--background", multiple=True, metavar="FILE|LABELS", heading=_ROWS,
           help="Background: a file, directory, glob pattern, sheet (book.xlsx::Controls) or standard input (-); with "
           "--by, labels separated by commas. Repeat for several backgrounds, each centred at its own mean."),
    option("--by", metavar="COLUMN", heading=_ROWS,
           help="Split one file into target and background by the labels in this column. Give the labels with "
           "--target and --background."),
    option("--target", "target_labels", multiple=True, metavar="LABELS", heading=_ROWS,
           help="With --by: labels of the target rows, separated by commas. Default: all rows that are not "
           "background."),
    option("--missing", type=click.Choice(MISSING), heading=_ROWS,
           help="How to handle missing values: impute them by draws from a model of the observed values (auto; "
           "p-values stay valid), leave out their rows or features, or fill them with the mean of the feature "
           "(mean; p-values become too small). Default: an error."),
    option("--features", multiple=True, metavar="NAMES", heading=_COLUMNS,
           help="Columns to use as features, separated by commas (write \\, for a comma in a name). Glob patterns "
           "such as '*_N' are allowed. Default: all numeric columns."),
    option("--drop", multiple=True, metavar="NAMES", heading=_COLUMNS,
           help="Columns to leave out: names or glob patterns, separated by commas."),
    option("--label", metavar="COLUMN", heading=_COLUMNS,
           help="Colour rows by this column. Not used as a feature."),
    option("--groups", metavar="COLUMN", heading=_COLUMNS,
           help="Independent unit (subject, batch) of each row, so that rows of one unit do not count as independent. "
           "Not used as a feature."),
    option("--groups-match", metavar="REGEX", heading=_COLUMNS,
           help="Part of the groups column that identifies the subject: '^[^_]+' assigns 309_1 and 309_2 to "
           "subject 309."),
    file_options,
)  # fmt: skip


class _WordOr(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions of click only
    """One of a few words, or a number; 'none' and 'all' become None."""

    def __init__(self, *words: str, parse: Callable[[str], Any] = float, otherwise: str = "a number"):
        self.words, self.parse, self.otherwise = words, parse, otherwise
        self.name = "|".join([*words, "NUMBER"])

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if value in self.words:
            return None if value in ("none", "all") else value
        try:
            return self.parse(value)
        except (TypeError, ValueError):
            self.fail(f"{value!r} is not valid. Use {', '.join(self.words)} or {self.otherwise}.", param, ctx)


contrast_options = together(
    option("-k", "--components", type=_WordOr("auto", "all", parse=int), default="2", show_default=True,
           heading=_METHOD, help="Number of components. auto keeps those that are significant."),
    option("--shrinkage", type=_WordOr("auto", "oas", "none"), heading=_METHOD,
           help="Estimator of the background covariance: auto (keep shared factors, shrink the rest), oas or a "
           "number from 0 to 1 (shrink toward the diagonal), or none."),
    option("--mix", metavar="MIX", heading=_METHOD,
           type=_WordOr("pooled", "equal", "minimax", parse=lambda text: [float(part) for part in text.split(",")],
                        otherwise="numbers separated by commas"),
           help="Weights of several backgrounds: pooled (by number of rows), equal, minimax (ratios hold against "
           "each background), or numbers separated by commas."),
    option("--common", is_flag=True, default=None, heading=_METHOD,
           help="Use only the features that the target and all backgrounds have in common."),
)  # fmt: skip
fit_options = together(
    reading_options,
    option("--checkpoint", type=click.Path(path_type=Path), metavar="DIRECTORY", heading=_ROWS,
           help="Directory for checkpoints, one for each file larger than --memory. A fit that was killed resumes "
           "from them and gives the same result."),
    option("--method", type=click.Choice(list(_ESTIMATORS)), default="dpca", show_default=True, heading=_METHOD,
           help="Discriminative PCA, contrastive PCA, kernel dPCA, or PCA of the target alone."),
    contrast_options,
    option("--axes", type=click.Choice(["ratio", "signal"]), heading=_METHOD,
           help="dPCA: order components by ratio, or use the principal axes of the target-specific signal."),
    option("--normalize", type=click.Choice(["background"]), heading=_METHOD,
           help="dPCA: scale components to background variance 1."),
    option("--centering", type=click.Choice(["own", "background"]), heading=_METHOD,
           help="Centre the target at its own mean, or at the background's, which keeps a shift in the mean."),
    option("--alpha", type=_WordOr("auto", "trace_ratio"), heading=_METHOD,
           help="cPCA: weight of the background covariance that is subtracted. auto searches."),
    option("--kernel", type=click.Choice(KERNELS), heading=_METHOD, help="Kernel dPCA: the kernel."),
    option("--gamma", type=_WordOr("median", "cv"), heading=_METHOD,
           help="Kernel dPCA: width of rbf and poly. cv maximises the held-out ratio."),
    option("--landmarks", type=click.IntRange(min=1), heading=_METHOD,
           help="Kernel dPCA: number of landmark rows. A few hundred suffice for any number of rows."),
    option("--solver", type=click.Choice(["auto", "dense", "lanczos", "gsvd", "span", "matrix_free"]),
           heading=_METHOD, help="dPCA: the eigensolver. auto chooses by shape and conditioning."),
    option("--seed", type=int, heading=_METHOD, help="Random seed."),
)  # fmt: skip


def take_estimator(given: dict[str, Any]) -> Any:
    """Remove the method options of fit and report from ``given`` and return the estimator that they describe."""
    method, components, parameters = given.pop("method"), given.pop("components"), _take_parameters(given)
    for name, parameter in PARAMETERS.items():
        methods = [key for key, kind in _ESTIMATORS.items() if key != "pca" and parameter in signature(kind).parameters]
        if parameter in parameters and method not in methods:
            allowed = " or ".join(methods)
            raise click.UsageError(f"--{name} cannot be used with --method {method}. Use it with {allowed}.")
    if method == "pca" and given["background"]:
        raise click.UsageError("--method pca uses the target alone. Leave the background out, or use another method.")
    if method != "pca":
        _check_background(given, ", or use --method pca")
    return _ESTIMATORS[method](n_components=components, **parameters)


def take_parameters(given: dict[str, Any]) -> dict[str, Any]:
    """Remove the method options of compare and test from ``given`` and return them as parameters of DPCA."""
    _check_background(given)
    components = given.pop("components")
    if not isinstance(components, int):
        raise click.UsageError("this command needs a fixed number of components. Give -k a whole number.")
    return {"n_components": components, **_take_parameters(given)}


def _take_parameters(given: dict[str, Any]) -> dict[str, Any]:
    """Take the method options that the user gave. None can be a value (--shrinkage none)."""
    source, default = click.get_current_context().get_parameter_source, click.core.ParameterSource.DEFAULT
    values = {name: given.pop(name) for name in PARAMETERS if name in given}
    chosen = {PARAMETERS[name]: value for name, value in values.items() if source(name) is not default}
    return {**chosen, "features": "common"} if "features" in chosen else chosen


def _check_background(given: dict[str, Any], otherwise: str = "") -> None:
    if not given["background"]:
        raise click.UsageError(f"There is no background to compare with. Give one with -b{otherwise}.")


def given_words(param: click.Parameter, context: click.Context, name: str | None = None) -> list[str]:
    """Return an option as it was given on the command line, in words, under ``name`` or its last name; else []."""
    if not isinstance(param, Option) or context.get_parameter_source(param.name or "") is not _COMMANDLINE:
        return []
    name, value, words = name or param.opts[-1], context.params.get(param.name or ""), []
    for each in value or () if param.multiple else [value]:
        each = ",".join(map(str, each)) if isinstance(each, list) else "none" if each is None else str(each)
        words += [name] if param.is_flag else [name, each]
    return words


def in_options(message: str) -> str:
    """Return a message of the library with its arguments shown as options."""
    return spell_arguments(message, _spelling)


def _spelling(name: str, value: object) -> str | None:
    if (name, value) == ("features", "common"):
        return "--common"
    option = ARGUMENTS.get(name)
    if option is None or value is ... or value is True:
        return option
    if value is None:
        value = "all" if name == "n_components" else "none"
    if isinstance(value, list):
        value = ",".join(str(item).replace(",", "\\,") for item in value)
    return f"{option} {shlex.quote(value if isinstance(value, str) else repr(value))}"
