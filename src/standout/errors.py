"""Everything standout can raise or warn about; every message says what was found and ends with a remedy.

::

    StandoutError
    ├── InputError (ValueError)            the data or an argument cannot be used as it is
    │   ├── NonFiniteError                 NaN or infinite values
    │   ├── NotNumbersError (TypeError)    text, dates or objects where numbers are expected
    │   ├── FeatureError                   the datasets do not have the same features
    │   ├── ColumnError                    a file has no column of this name
    │   ├── NotEnoughRowsError             too few rows for what was asked
    │   └── ModelFileError                 a file is not a model that can be loaded
    ├── RowsNeededError (TypeError)        moments were given where the rows are needed
    ├── MissingExtraError (ImportError)    an optional package is not installed
    ├── DataMissingError (FileNotFoundError)  a public dataset is neither here nor to be downloaded
    └── OutputError (OSError)              a file cannot be written

    StandoutWarning (UserWarning)
    ├── OverfitWarning                     ratios that cannot be told from noise, or rest on too few rows
    ├── ShrinkageWarning                   the background covariance was shrunk
    ├── StructuralWarning                  the background does not vary in some direction: infinite ratios
    ├── ConditionWarning                   the covariances alone cannot give the answer to full accuracy
    ├── FeatureWarning                     features were left out
    ├── ReplicateWarning                   rows look like replicates of fewer independent units
    └── GraphWarning                       a cluster is sent the data themselves instead of the way to them
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

__all__ = [
    "ColumnError",
    "ConditionWarning",
    "DataMissingError",
    "FeatureError",
    "FeatureWarning",
    "GraphWarning",
    "InputError",
    "MissingExtraError",
    "ModelFileError",
    "NonFiniteError",
    "NotEnoughRowsError",
    "NotNumbersError",
    "OutputError",
    "OverfitWarning",
    "ReplicateWarning",
    "RowsNeededError",
    "ShrinkageWarning",
    "StandoutError",
    "StandoutWarning",
    "StructuralWarning",
    "did_you_mean",
    "listed",
    "named_features",
    "warn_user",
]


class StandoutError(Exception):
    """The root of every error standout raises on purpose."""


class InputError(StandoutError, ValueError):
    """The data or an argument cannot be used as it is."""


class NonFiniteError(InputError):
    """The data hold NaN or infinite values."""


class NotNumbersError(InputError, TypeError):
    """The data hold something other than numbers."""


class FeatureError(InputError):
    """The datasets do not have the same features."""


class ColumnError(InputError):
    """A file has no column of this name."""

    def __init__(self, message: str, argument: str = "", column: str = ""):
        super().__init__(message)
        self.argument, self.column = argument, column


class NotEnoughRowsError(InputError):
    """There are too few rows for what was asked."""


class ModelFileError(InputError):
    """A file is not a model that can be loaded: foreign, damaged, or of a newer version."""


class RowsNeededError(StandoutError, TypeError):
    """Moments were given where the rows themselves are needed."""


class MissingExtraError(StandoutError, ImportError):
    """An optional package is not installed."""


class DataMissingError(StandoutError, FileNotFoundError):
    """A public dataset was not found on this machine and could not be downloaded."""


class OutputError(StandoutError, OSError):
    """A file cannot be written."""


class StandoutWarning(UserWarning):
    """The root of every warning standout gives."""


class OverfitWarning(StandoutWarning):
    """The ratios cannot be told from noise, or rest on too few background rows."""


class ShrinkageWarning(StandoutWarning):
    """The background covariance was shrunk because it rests on few rows."""


class StructuralWarning(StandoutWarning):
    """The background does not vary at all in some direction, so ratios are infinite."""


class ConditionWarning(StandoutWarning):
    """The covariances are too ill-conditioned for full accuracy."""


class RankWarning(ConditionWarning):
    """Directions were left out in which sums show no variance, where the rows might."""


class FeatureWarning(StandoutWarning):
    """Some features take no part."""


class ReplicateWarning(StandoutWarning):
    """Rows look like replicates of fewer independent units."""


class GraphWarning(StandoutWarning):
    """A cluster is sent the data themselves, where the way to them would do."""


def warn_user(text: str, category: type[Warning]) -> None:
    """Warn at the line of the user's code, however many layers lie between."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("standout", "sklearn"):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


def did_you_mean(name: object, choices: Iterable[object]) -> str:
    """Return a question that helps with a misspelt name, after a space, or nothing where no choice is near.

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
    """Write names for a message: all of them, or the first few and how many more.

    Examples
    --------
    >>> listed(["a", "b"])
    "'a', 'b'"
    >>> listed(range(9), most=3)
    '0, 1, 2 and 6 more'
    """
    shown = ", ".join(repr(str(name)) if isinstance(name, str) else str(name) for name in names[:most])
    rest = len(names) - most
    return f"{shown} and {rest} more" if rest > 0 else shown


def named_features(names: Sequence[str] | None, positions: Iterable[int]) -> list[str | int]:
    """Return the names of the features at ``positions``, or the positions where there are no names.

    Examples
    --------
    >>> named_features(("a", "b", "c"), [2, 0])
    ['c', 'a']
    """
    return [names[i] if names is not None else int(i) for i in positions]
