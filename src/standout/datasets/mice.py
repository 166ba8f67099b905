"""Expression of 77 proteins in the cortex of mice, from the csv file of the UCI repository or from OpenML."""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout._blas import Array
from standout.datasets.fetch import Public, digest, first_file, identified, obtain
from standout.errors import InputError, StandoutWarning, did_you_mean, listed, warn_user
from standout.io.output import replacing
from standout.io.source import Progress

_FILE = "Data_Cortex_Nuclear.csv"
_CACHED = "miceprotein_openml.csv"
_COUNTS = {
    "c-CS-m": 150, "c-SC-m": 150, "c-CS-s": 135, "c-SC-s": 135, "t-CS-m": 135, "t-SC-m": 135, "t-SC-s": 135,
    "t-CS-s": 105,
}  # fmt: skip
_SHA256 = "5ec490ae48bf7f2eb958fd33ef5036e58a2933cc05e816064c0ea3b14ad3903b"  # of the published file
_N_PROTEINS, _N_MISSING, _N_REPLICATES = 77, 1396, 15


@dataclass(frozen=True)
class Mice:
    """Protein expression of mice, with several rows (replicates) for each mouse.

    A label has three parts: c or t (control, or trisomic as in Down syndrome), CS or SC (stimulated to learn or
    not), and m or s (memantine or saline).

    See Also
    --------
    standout.datasets.load_mice : Load these data.
    standout.find_replicates : Check for replicates, which these rows are.

    Examples
    --------
    >>> import numpy as np
    >>> from standout.datasets import Mice
    >>> labels, ids = np.array(["c-CS-m", "t-SC-m"]), np.array(["309_1", "311_1"])
    >>> mice = Mice(np.ones((2, 1)), ("ARC_N",), labels, ids)
    >>> mice.rows("t-SC-m").mouse.tolist()
    ['311']
    """

    proteins: Array  # (n, 77), NaN for missing values
    names: tuple[str, ...]  # of the proteins
    label: NDArray[np.str_]  # (n,): class, such as t-SC-m
    row_ids: NDArray[np.str_]  # (n,): mouse and replicate, such as 309_1
    source: str = ""  # file name and checksum

    @cached_property
    def mouse(self) -> NDArray[np.str_]:
        """The mouse of each row."""
        return np.array([name.rpartition("_")[0] for name in self.row_ids], dtype=np.str_)

    def rows(self, *labels: str) -> Mice:
        """Return the rows with these labels, in their order."""
        for label in labels:
            if label not in _COUNTS:
                choices = listed(list(_COUNTS), 8)
                raise InputError(f"unknown class {label!r}.{did_you_mean(label, _COUNTS)} Choose from {choices}.")
        return self.where(np.isin(self.label, labels))

    def where(self, chosen: NDArray[np.bool_]) -> Mice:
        """Return the rows where the mask ``chosen`` of shape (n,) is true."""
        return Mice(self.proteins[chosen], self.names, self.label[chosen], self.row_ids[chosen], self.source)


def load_mice(
    data_dir: str | os.PathLike[str] | None = None, *, progress: Callable[[Progress], None] | None = None
) -> Mice:
    """Load the protein expression of 72 mice, 15 replicates each.

    The data are read from ``data_dir``, from the directory in the environment variable ``STANDOUT_DATA`` or from the
    cache, and downloaded from OpenML if they are in none of these.

    Parameters
    ----------
    data_dir : path, optional
        Directory with ``Data_Cortex_Nuclear.csv`` of the UCI repository.
    progress : callable, optional
        Callback during a download.

    Returns
    -------
    Mice
        ``proteins`` of shape (1080, 77) with NaN for missing values, ``names``, ``mouse``, ``label``, ``row_ids`` and
        ``source``.

    See Also
    --------
    standout.datasets.Mice : The result.
    standout.datasets.digits_over_tiles : Images that need no download.
    standout.datasets.FactorModel : Simulated rows with a known solution.

    Examples
    --------
    >>> from standout.datasets import load_mice
    >>> load_mice("data").rows("t-SC-m", "t-SC-s").proteins.shape  # doctest: +SKIP
    (270, 77)
    """
    return obtain(_MICE, data_dir, _read, progress)


def _read(folder: Path) -> Mice | None:
    path = first_file(folder, [_FILE, _CACHED])
    if path is None:
        return None
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            found = _from_table(list(csv.reader(file)), identified([path]))
    except (ValueError, IndexError, csv.Error) as error:
        raise InputError(f"{path}: not the table of the UCI repository ({error}). {_MICE.remedy}") from error
    _check(found, str(path))
    if path.name == _FILE and digest(path) != _SHA256:
        warn_user(
            f"{path}: not the published file (sha256 {digest(path)[:12]}, not {_SHA256[:12]}), so values may differ "
            "from the published ones. Use the file of the UCI repository.",
            StandoutWarning,
        )
    return found


def _from_table(table: list[list[str]], source: str) -> Mice:
    header, *rows = [row for row in table if row] or [[]]
    if any(header.count(name) != 1 for name in ("MouseID", "class")):
        found = f"its header begins with {','.join(header)[:40]!r}" if header else "it is empty"
        raise ValueError(
            f"{found}; expected are comma-separated columns 'MouseID', {_N_PROTEINS} proteins with names that end in "
            "'_N', and 'class'"
        )
    if any(len(row) != len(header) for row in rows):
        line = next(number for number, row in enumerate(rows, 2) if len(row) != len(header))
        raise ValueError(f"line {line} has {len(rows[line - 2])} fields, the header {len(header)}")
    names = tuple(name for name in header if name.endswith("_N"))
    columns = [header.index(name) for name in names]
    proteins = np.array([[float(row[i]) if row[i] else np.nan for i in columns] for row in rows])
    ids, labels = ([row[header.index(name)] for row in rows] for name in ("MouseID", "class"))
    return Mice(proteins.reshape(len(rows), len(names)), names, np.array(labels, str), np.array(ids, str), source)


def _check(found: Mice, what: str) -> None:
    """Raise an error if a known property of the published data does not hold."""
    # ARC_N and pS6_N are identical in the published file.
    first, second = (found.proteins[:, [name == twin for name in found.names]] for twin in ("ARC_N", "pS6_N"))
    mice_and_classes = set(zip(found.mouse.tolist(), found.label.tolist(), strict=True))
    properties = {
        "rows": (len(found.label), sum(_COUNTS.values())),
        "proteins": (len(found.names), _N_PROTEINS),
        "duplicate names": (_repeated([*found.names, *found.row_ids.tolist()]), []),
        "rows of each class": (dict(sorted(Counter(found.label.tolist()).items())), dict(sorted(_COUNTS.items()))),
        "rows of each mouse": (sorted(set(Counter(found.mouse.tolist()).values())), [_N_REPLICATES]),
        "mice of several classes": (_repeated([mouse for mouse, _ in mice_and_classes]), []),
        "infinite values": (int(np.isinf(found.proteins).sum()), 0),
        "missing values": (int(np.isnan(found.proteins).sum()), _N_MISSING),
        "ARC_N equal to pS6_N": (first.size > 0 and np.array_equal(first, second, equal_nan=True), True),
    }
    wrong = [f"{name}: {seen}, not {known}" for name, (seen, known) in properties.items() if seen != known]
    if wrong:
        raise InputError(f"{what}: not the published mice ({'; '.join(wrong)}). {_MICE.remedy}")


def _repeated(names: list[str]) -> list[str]:
    """Return at most five names that occur more than once."""
    return sorted(name for name, n in Counter(names).items() if n > 1)[:5]


def _cache(bunch: Any, folder: Path) -> None:
    ids, labels = np.asarray(bunch.target).astype(str).T
    found = Mice(np.asarray(bunch.data, dtype=np.float64), tuple(bunch.feature_names), labels, ids)
    _check(found, "miceprotein of OpenML")
    with replacing(folder / _CACHED, "cache") as draft, draft.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file)
        out.writerow(["MouseID", *found.names, "class"])
        for name, row, label in zip(ids, found.proteins.tolist(), labels, strict=True):
            out.writerow([name, *("" if np.isnan(value) else repr(value) for value in row), label])


_MICE = Public("The protein expression of mice", _FILE, "miceprotein", 4, _cache, columns=("MouseID", "class"))
