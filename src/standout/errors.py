"""Exceptions and warnings of standout, and helpers that write their messages.

A message names arguments in backticks, as in "Use `missing='auto'`.", and the command line shows them as options.

::

    StandoutError
    ├── InputError (ValueError)            the data or an argument cannot be used
    │   ├── NonFiniteError                 NaN or infinite values
    │   ├── NotNumbersError (TypeError)    text, dates or objects instead of numbers
    │   ├── FeatureError                   the datasets have different features
    │   ├── ColumnError                    a named column is not in the file
    │   ├── NotEnoughRowsError             too few rows
    │   └── ModelFileError                 the file is not a model, is damaged, or is too new
    ├── RowsNeededError (TypeError)        moments were given where rows are needed
    ├── MissingExtraError (ImportError)    an optional package is not installed
    ├── DataMissingError (FileNotFoundError)  a public dataset was not found and cannot be downloaded
    └── OutputError (OSError)              a file cannot be written

    StandoutWarning (UserWarning)
    ├── OverfitWarning                     ratios that noise could explain, or too few rows
    ├── ShrinkageWarning                   the background covariance was shrunk
    ├── StructuralWarning                  the background is constant in some direction: infinite ratios
    ├── ConditionWarning                   the covariances are ill-conditioned: reduced accuracy
    │   └── RankWarning                    directions without variance in the moments were left out
    ├── FeatureWarning                     features were left out, or may not be measurements
    │   └── RareFeatureWarning             features that vary in a handful of background rows
    └── DoubtWarning                       a finding about the data that withholds a positive verdict
        ├── ReplicateWarning               rows look like replicates of fewer independent units
        ├── SerialWarning                  consecutive rows are correlated
        └── TableWarning                   transposed table, shared rows, or columns that are not measurements
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches


class StandoutError(Exception):
    """Base class of all errors that standout raises."""


class InputError(StandoutError, ValueError):
    """The data or an argument cannot be used."""


class NonFiniteError(InputError):
    """The data contain NaN or infinite values."""


class NotNumbersError(InputError, TypeError):
    """The data contain values that are not numbers."""


class FeatureError(InputError):
    """The datasets have different features."""


class ColumnError(InputError):
    """A named column is not in the file.

    Attributes
    ----------
    argument : str
        Name of the argument of :func:`standout.read` that names the column.
    column : str
        The column.
    """

    def __init__(self, message: str, argument: str = "", column: str = ""):
        super().__init__(message)
        self.argument, self.column = argument, column


class NotEnoughRowsError(InputError):
    """There are too few rows."""


class ModelFileError(InputError):
    """A file cannot be loaded as a model: not a model, damaged, or written by a newer version."""


class RowsNeededError(StandoutError, TypeError):
    """Moments were given where rows are needed."""


class MissingExtraError(StandoutError, ImportError):
    """An optional package is not installed."""


class DataMissingError(StandoutError, FileNotFoundError):
    """A public dataset was not found on this machine and could not be downloaded."""


class OutputError(StandoutError, OSError):
    """A file cannot be written."""


class StandoutWarning(UserWarning):
    """Base class of all warnings of standout."""


class OverfitWarning(StandoutWarning):
    """Noise could explain the ratios, or there are too few background rows."""


class ShrinkageWarning(StandoutWarning):
    """The background covariance was shrunk because there are few background rows."""


class StructuralWarning(StandoutWarning):
    """The background is constant in some direction, so some ratios are infinite."""


class ConditionWarning(StandoutWarning):
    """The covariances are too ill-conditioned for full accuracy."""


class RankWarning(ConditionWarning):
    """Directions without variance in the moments were left out; the rows could have variance there."""


class FeatureWarning(StandoutWarning):
    """Some features were left out, or may not be measurements."""


class RareFeatureWarning(FeatureWarning):
    """Some features vary in a handful of background rows, so their ratios rest on these rows."""


class DoubtWarning(StandoutWarning):
    """A finding about the data that withholds a positive verdict until it is resolved."""


class ReplicateWarning(DoubtWarning):
    """Rows look like replicates of fewer independent units."""


class SerialWarning(DoubtWarning):
    """Consecutive rows are correlated, so that they are not independent."""


class TableWarning(DoubtWarning):
    """A table looks transposed, datasets share rows, or columns that are not measurements are used as features."""


_KINDS = (StandoutError, StandoutWarning)
# Characters that a terminal obeys instead of showing them: control characters, and those that change the direction of
# text. Surrogates stand for bytes of a file name that are not valid text, and cannot be printed.
_CONTROLS = re.compile("[\0-\t\v-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
__all__ = sorted(name for name, kind in vars().items() if isinstance(kind, type) and issubclass(kind, _KINDS))


def spell_arguments(message: str, spell: Callable[[str, object], str | None]) -> str:
    """Return a message with the arguments that it names in backticks in another spelling.

    ``spell`` takes the name and the value of an argument (``...`` if the message gives no value) and returns its
    spelling, or None to keep that of the message.

    Examples
    --------
    >>> def option(name, value):
    ...     return f"--{name}" if value is ... else f"--{name} {value}"
    >>> spell_arguments("Use `missing='auto'`, or name the column in `label` or `drop`.", option)
    'Use --missing auto, or name the column in --label or --drop.'
    >>> spell_arguments("Use `standout.read(X, missing='auto', drop='id')` and give `groups=`.", option)
    'Use --missing auto --drop id and give --groups.'
    """
    parts = message.split("`")
    if len(parts) % 2 == 0:  # a backtick without a partner
        return message
    for i in range(1, len(parts), 2):
        spellings = [spell(name, value) for name, value in _keywords(parts[i]).items()]
        known = [spelling for spelling in spellings if spelling is not None]
        if not known or len(known) < len(spellings):
            parts[i] = f"`{parts[i]}`"
        elif ... in _keywords(parts[i]).values():  # only names are given: any of these arguments is meant
            parts[i] = " or ".join([*filter(None, [", ".join(known[:-1])]), known[-1]])
        else:
            parts[i] = " ".join(known)
    return "".join(parts)


def _keywords(code: str) -> dict[str, object]:
    """Return the arguments that a piece of code names, with their values."""
    if code.removesuffix("=").isidentifier():
        return {code.removesuffix("="): ...}
    try:
        call = ast.parse(code if code.endswith(")") else f"f({code})", mode="eval").body
        keywords = call.keywords if isinstance(call, ast.Call) else []
        return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in keywords}
    except (SyntaxError, ValueError):
        return {}


_silent = ContextVar("silent", default=False)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Suppress the warnings of this library, in this thread only.

    ``warnings.catch_warnings`` changes all threads, and leaves its filters behind if two threads overlap.
    """
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


def warn_user(text: str, category: type[Warning]) -> None:
    """Warn at the line of the user's code, regardless of how many layers are between."""
    if _silent.get():
        return
    text = visible(text, lines=False)
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("standout", "sklearn"):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


def visible(text: str, *, lines: bool = True) -> str:
    r"""Return text that is safe to print: control characters become escapes, as JSON writes them.

    Line breaks are kept, unless the text is a name or a sentence (``lines=False``).

    Examples
    --------
    >>> print(visible("\x1b[2Jgene\u202e\nnext line"))
    \u001b[2Jgene\u202e
    next line
    >>> print(visible("a\nb", lines=False))
    a\u000ab
    """
    text = text if lines else text.replace("\n", r"\u000a")
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def did_you_mean(name: object, choices: Iterable[object]) -> str:
    """Return a question that suggests the closest choice, after a space, or an empty string if none is close.

    Examples
    --------
    >>> did_you_mean("heigth", ["Height", "width"])
    " Did you mean 'Height'?"
    >>> did_you_mean("colour", ["Height", "width"])
    ''
    """
    written = {str(choice).lower(): choice for choice in choices}
    near = get_close_matches(str(name).lower(), list(written), n=1)
    return f" Did you mean {listed([written[near[0]]])}?" if near else ""


def listed(names: Sequence[object], most: int = 5) -> str:
    """Return names for a message: all of them, or the first few and how many more.

    Examples
    --------
    >>> listed(["a", "b"])
    "'a', 'b'"
    >>> listed(range(9), most=3)
    '0, 1, 2 and 6 more'
    >>> len(listed(["x" * 10**6]))  # the start of a name of any length
    103
    """
    texts = (repr(str(name)) if isinstance(name, str) else str(name) for name in names[:most])
    shown = ", ".join(text if len(text) <= 150 else f"{text[:100]}..." for text in texts)
    rest = len(names) - most
    return f"{shown} and {rest} more" if rest > 0 else shown


def named_features(names: Sequence[str] | None, positions: Iterable[int]) -> list[str | int]:
    """Return the names of the features at ``positions``, or the positions if there are no names.

    Examples
    --------
    >>> named_features(("a", "b", "c"), [2, 0])
    ['c', 'a']
    """
    return [names[i] if names is not None else int(i) for i in positions]
