"""Search for replicates among rows: several measurements of one unit, under ids such as 309_1, 309_2, or as copies.

Replicates are not independent, and p-values, intervals and folds that count them as independent rows are wrong: 135
rows of 9 mice are not 135 samples. Every column that is not a feature, the row ids and the index of a data frame are
tried as ids, as a whole and in part, and rows that are almost equal are looked for without ids.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from standout._blas import Array
from standout._closeness import MIN_UNITS, ratio_of_replicates, standardised
from standout._dataset import Dataset
from standout._folds import Index, coded
from standout.errors import InputError, ReplicateWarning
from standout.io.memory import is_missing
from standout.io.missing import raw_rows
from standout.io.read import read
from standout.io.source import ArraySource, IdColumn, RowSource, RowView, Source, block_rows, collect_values
from standout.io.stream import Stream
from standout.solvers.solution import Note

# Limits of the rows whose pairs are compared, and of the values of these rows.
_MAX_ROWS, _MAX_VALUES = 2_000, 2_000_000
_SEPARATORS = "_-.:/|# "
# Names of columns that identify what was measured; the last word counts, so that a sample type is not a sample.
_UNIT_NAMES = re.compile(
    "id|ids|subject|patient|donor|participant|individual|person|animal|mouse|rat|monkey|volunteer|proband|specimen|"
    "sample|session|trial|recording"
)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
# Rows are almost equal if they differ by less than this many sd, in the root mean square over features,
_SAME = 3e-4
# and count as copies if at least this share of the rows, and three rows, are almost equal to another one.
_MIN_SHARE, _MIN_COPIES = 0.05, 3
# Copies are improbable by chance only if values are continuous: at least this many features
_MIN_CONTINUOUS = 3
# take at least this many values per distinct row, of which there are at least that many.
_MIN_DISTINCT, _MIN_DISTINCT_ROWS = 0.5, 8
_MAX_COMPARED = 64
# Findings about sources with ids, because several fits and tests of the same rows follow each other.
_KNOWN: WeakKeyDictionary[Source, ReplicateFinding | None] = WeakKeyDictionary()


@dataclass(frozen=True)
class ReplicateFinding:
    """Rows that look like replicates.

    Attributes
    ----------
    n_rows, n_units : int
        Number of rows, and of the units they seem to come from.
    rule : str
        How the unit follows from the id of a row.
    ratio : float
        Mean squared distance between rows of one unit over that between rows of different units, features
        in units of their sd and outlying rows moved toward the mean.
    groups : ndarray of shape (n_rows,)
        The unit of each row, for use as ``groups``.
    text : str
        The finding as text, with what to do.
    match : str or None
        Regular expression for the unit in an id, for use as ``groups_match`` of :func:`standout.read`; None if the
        unit is the id itself, or if rows are almost equal.

    See Also
    --------
    standout.find_replicates : Look for replicates.
    standout.read : Reads the groups of a file, with ``groups_match``.

    Examples
    --------
    >>> import numpy as np
    >>> from standout import find_replicates
    >>> rng = np.random.default_rng(0)
    >>> rows = np.repeat(rng.normal(size=(9, 8)), 5, axis=0) + 0.3 * rng.normal(size=(45, 8))
    >>> finding = find_replicates(rows, [f"mouse{mouse}_{run}" for mouse in range(9) for run in range(5)])
    >>> finding.n_rows, finding.n_units, str(finding.groups[0])
    (45, 9, 'mouse0')
    """

    n_rows: int
    n_units: int
    rule: str
    ratio: float
    groups: NDArray[np.str_]
    text: str
    match: str | None = None


def find_replicates(rows: Any, ids: Any = None, labels: Any = None) -> ReplicateFinding | None:
    """Check whether rows look like replicates of fewer units.

    They do if ids share a part (309 of 309_1, 309_2, ...) for at least three units, and rows that share it
    are closer to each other than rows that do not. Pairs of rows are compared at the same lag in row order, and in the
    order of the units, so that a drift over time or a trend in the ids is not mistaken for units, and the evidence must
    come from several units, so that an outlying pair of rows is not. Differences between labels are removed, so that
    classes are not mistaken for units. Without such ids, rows look like replicates if many of them are almost equal to
    another one, in continuous features. The first 2,000 rows are compared.

    Parameters
    ----------
    rows : path, array-like, frame, sparse matrix or Source, of shape (n_rows, n_features)
        The rows; missing values (NaN) are allowed.
    ids : array-like of shape (n_rows,), optional
        Id of each row; by default the ids of the source, the index of a data frame, and all columns that are not
        features, if they may identify units.
    labels : array-like of shape (n_rows,), optional
        Class of each row; by default that of the source.

    Returns
    -------
    ReplicateFinding or None
        None if rows do not look like replicates.

    See Also
    --------
    standout.assess : Looks for replicates, and tests the components.
    standout.read : Reads the groups of a file.

    Examples
    --------
    >>> import numpy as np
    >>> from standout.inference import find_replicates
    >>> rng = np.random.default_rng(0)
    >>> ids = [f"mouse{mouse}_{run}" for mouse in range(9) for run in range(5)]
    >>> find_replicates(rng.normal(size=(45, 8)), ids) is None
    True
    >>> replicated = np.repeat(rng.normal(size=(9, 8)), 5, axis=0) + 0.3 * rng.normal(size=(45, 8))
    >>> finding = find_replicates(replicated, ids)
    >>> finding.n_units, finding.rule, finding.match
    (9, "the part of the id before the first '_'", '^[^_]+')
    """
    source = read(rows, role="rows")
    ids, labels = collect_values(ids, source, "ids"), collect_values(labels, source, "labels")
    if ids is None:
        source.check_row_values("ids", "ids")
    head = _Head.of(source, whole=True)
    _check_length(ids, source.n_rows, "ids")
    if labels is not None:
        head = replace(head, labels=_check_length(labels, source.n_rows, "labels"))
    if ids is not None:
        head = replace(head, ids=[IdColumn(np.asarray(ids), explicit=True)])
    return _found_by_ids(head) or _found_copies(head)


def replicate_notes(datasets: Sequence[Dataset]) -> tuple[Note, ...]:
    """Return a warning for each dataset whose rows look like replicates that its groups, if any, do not account for.

    Raise an error if only some of the datasets have groups. Moments cannot be grouped later, so that theirs is a
    warning.
    """
    if any(data.source is not None and data.source.is_checked for data in datasets):
        return ()
    grouped = [data.role for data in datasets if _is_grouped(data)]
    one_sided = _one_sided(datasets, grouped) if 0 < len(grouped) < len(datasets) else []
    return (*one_sided, *(Note(ReplicateWarning, finding.text) for finding in replicate_findings(datasets)))


def replicate_findings(datasets: Sequence[Dataset]) -> tuple[ReplicateFinding, ...]:
    """Return the findings about datasets in this process; their text starts with the role of the dataset."""
    found = []
    for data in datasets:
        source = data.source
        if type(source) is ArraySource and data.groups is None and source.groups is None and source.row_ids is None:
            finding = _found_copies(_Head(source, []))  # the common case: an array without ids
        elif not isinstance(source, RowSource | Stream):
            continue  # rows on a cluster, or rows that can be read only once
        elif _is_grouped(data):
            finding = _found_in_groups(data, source)
        else:
            if source not in _KNOWN:
                head = _Head.of(source)
                _KNOWN[source] = _found_by_ids(head) or _found_copies(head)
            finding = _KNOWN[source]
        if finding is not None:
            found.append(replace(finding, text=f"{data.role}: {finding.text}"))
    return tuple(found)


def _one_sided(datasets: Sequence[Dataset], grouped: list[str]) -> Iterator[Note]:
    for data in datasets:
        if data.role in grouped:
            continue
        if data.source is None:
            text = (
                f"{data.role}: its moments have no groups, and the {grouped[0]} has, so that its rows count as "
                "independent. Give the groups to Moments.of, unless every row is an independent unit."
            )
            yield Note(ReplicateWarning, text)
            continue
        argument = "groups" if data.role == "target" else "background_groups"
        raise InputError(
            f"{data.role}: it has no groups, and the {grouped[0]} has, so that units would be counted on one side and "
            f"rows on the other. Give the unit of each row as `{argument}=`, or its column as `groups` of "
            "standout.read; where every row is a unit, give row numbers."
        )


def _is_grouped(data: Dataset) -> bool:
    if data.source is None:
        return data.given is not None and data.given.groups is not None
    return data.groups is not None or data.source.has_groups


@dataclass(frozen=True)
class _Head:
    """The first rows of a source, with the columns that may identify their unit."""

    source: Source
    ids: list[IdColumn]
    labels: Any = None
    read: Array | None = None  # the first rows, where these had to be read for the ids
    own: tuple[int, ...] = ()  # features among the ids, which are not compared

    @classmethod
    def of(cls, source: Source, whole: bool = False) -> _Head:
        """Read the ids, of a file in blocks those of its first rows only, unless the ``whole`` of them is needed."""
        if isinstance(source, RowSource):
            named, own = _unit_features(source)
            # Labels are classes, whose differences are removed, unless their name says that they identify units.
            layout = getattr(source, "layout", None)
            label = None if layout is None else layout.options.label
            labels = None if is_unit_name(label) else source.labels
            return cls(source, [*source.id_columns(), *named], labels, own=own)
        if isinstance(source, Stream) and not whole:
            numbers, about = _first_block(source)
            label = source.layout.options.label
            ids = [IdColumn(about[name], name, explicit=name == source.layout.options.ids) for name in source.aside]
            return cls(source, ids, None if label is None else about[label], numbers)
        numbers = _first_rows(source)  # first: the ids and labels in a file are read with its rows
        return cls(source, source.id_columns(), source.row_values("label", "labels"), numbers)

    def rows(self) -> Array:
        """Return the first rows; missing values are NaN."""
        if self.read is not None:
            return self.read[:_MAX_ROWS]
        if self.source.is_incomplete:
            return np.asarray(raw_rows(self.source)[:_MAX_ROWS], dtype=np.float64)
        return _first_rows(self.source)


def _unit_features(source: RowSource) -> tuple[list[IdColumn], tuple[int, ...]]:
    """Return the features that by their name identify units, where they hold whole numbers, and their positions."""
    n_rows, found, own = source.n_rows or 0, [], []
    if _column_step(min(_MAX_ROWS, n_rows), source.n_features) == 1:
        for i in [i for i, name in enumerate(source.names or ()) if is_unit_name(name)]:
            values = np.asarray(source.columns(i, i + 1), dtype=np.float64)[:, 0]
            if np.isfinite(values).all() and (values == np.floor(values)).all() and np.abs(values).max() < 2**53:
                assert source.names is not None
                found.append(IdColumn(values.astype(np.int64), source.names[i]))
                own.append(i)
    return found, tuple(own)


def _first_block(source: Stream) -> tuple[Array, dict[str, NDArray[Any]]]:
    """Return the first rows of a file that is read in blocks, and the columns that describe them."""
    parts: list[Any] = []
    blocks = source.open_blocks(min(_MAX_ROWS, block_rows(source.n_features)), source.aside, None)
    for block in blocks:
        parts.append(block)
        if sum(len(part.numbers) for part in parts) >= _MAX_ROWS:
            break
    step = _column_step(_MAX_ROWS, source.n_features)
    about = {name: np.concatenate([part.about[name] for part in parts]) for name in source.aside} if parts else {}
    return np.concatenate([np.asarray(part.numbers[:, ::step], dtype=np.float64) for part in parts]), about


def _first_rows(source: Source) -> Array:
    """Return the first rows, with a subset of the features if these are many."""
    step = _column_step(_MAX_ROWS if source.n_rows is None else min(_MAX_ROWS, source.n_rows), source.n_features)
    matrix = source.sparse()
    if matrix is not None:
        return np.asarray(matrix[:_MAX_ROWS][:, ::step].toarray(), dtype=np.float64)
    parts, seen = [], 0
    for block in source.blocks(min(_MAX_ROWS, block_rows(source.n_features))):
        parts.append(np.asarray(block[: _MAX_ROWS - seen, ::step], dtype=np.float64))
        seen += len(parts[-1])
        if seen >= _MAX_ROWS:
            break
    return np.concatenate(parts)


def _column_step(n_rows: int, n_features: int) -> int:
    return max(1, math.ceil(n_rows * n_features / _MAX_VALUES))


def _check_length(given: Any, n_rows: int | None, what: str) -> Any:
    if given is None:
        return None
    values = np.asarray(given)
    if values.ndim != 1 or (n_rows is not None and len(values) != n_rows):
        raise InputError(f"{what}: shape {values.shape} for {n_rows} rows. Give one value for each row.")
    return values


# Replicates by id


@dataclass(frozen=True)
class _Rule:
    """A way to derive the unit of each row from a column of ids."""

    column: IdColumn
    text: str
    match: str | None
    units: Index  # of the rows that are compared

    def unit(self, name: str) -> str:
        """Return the unit in an id."""
        found = None if self.match is None else re.search(self.match, name)
        return name if found is None else found[0]


def _found_by_ids(head: _Head, whole: bool = True) -> ReplicateFinding | None:
    """Return the clearest way in which ids name replicates; ``whole``: an id may be a unit by itself."""
    rules = _rules(head.ids, whole)
    if not rules:
        return None
    from sklearn.metrics.pairwise import euclidean_distances  # takes long to import

    values = np.delete(head.rows(), head.own, axis=1)
    if values.shape[1] == 0:
        return None
    labels = None if head.labels is None else [str(label) for label in np.asarray(head.labels)[: len(values)].tolist()]
    classes = np.zeros(len(values), dtype=np.intp) if labels is None else coded(labels)[0]
    distance = np.asarray(euclidean_distances(standardised(values, classes), squared=True))
    found: tuple[float, _Rule] | None = None
    for rule in rules:
        if len(rule.units) != len(values) or rule.units.max() <= classes.max():
            continue
        ratio = ratio_of_replicates(distance, rule.units)
        if ratio is not None and (found is None or ratio < found[0]) and _is_without_trend(distance, rule):
            found = ratio, rule
    return None if found is None else _finding(*found)


def _finding(ratio: float, rule: _Rule) -> ReplicateFinding:
    column = rule.column
    names = [str(name) for name in column.values.tolist()]
    groups = [rule.unit(name) for name in names]
    count, times = len(set(groups)), f"{1 / ratio:.2g}" if ratio > 0 else "infinitely many"
    first = "" if rule.match is None else f" ({groups[0]!r} of {names[0]!r})"
    text = (
        f"{len(names)} rows look like replicates of {count} units, given by {rule.text}{first}: rows of one unit are "
        f"{times} times closer (in squared distance) than rows of different units. {_remedy(column, rule.match)} to "
        "count units instead of rows."
    )
    return ReplicateFinding(len(names), count, rule.text, ratio, np.array(groups), text, rule.match)


def _remedy(column: IdColumn, match: str | None) -> str:
    """Return the argument to give, such that it can be pasted."""
    if column.name is not None and not column.code:
        if match is None:
            return f"Use `standout.read(..., groups={column.name!r})`"
        return f"Use `standout.read(..., groups={column.name!r}, groups_match={match!r})`"
    if not column.code:
        return "Give the units as `groups=` (and likewise `background_groups=`)"
    code = column.code if match is None else f"{column.code}.str.extract({f'({match})'!r}, expand=False)"
    return f"Give `groups={code}` (and likewise `background_groups=`)"


def _rules(columns: Sequence[IdColumn], whole: bool) -> list[_Rule]:
    """Return the ways to derive units from ids that give at least two units, with two rows each on average."""
    found: dict[bytes, _Rule] = {}
    texts = [(column, _as_text(column.values[:_MAX_ROWS])) for column in columns]
    given = [(column, names) for column, names in texts if names is not None]
    for column, names in given if whole else ():
        _add_rule(found, column, names, None, "")
    for column, names in given:
        if len(set(names)) * 2 >= len(names) or column.explicit or is_unit_name(column.name):
            for text, pattern in _patterns(names):
                _add_rule(found, column, names, pattern, text)
    return list(found.values())


def _as_text(values: Any) -> list[str] | None:
    """Return ids as text; None if some are missing, or if they are measurements: decimal numbers or times."""
    if values.dtype.kind in "fcMm" or len(values) < 2 * MIN_UNITS:
        return None
    ids = values.tolist()
    if not all(isinstance(name, str) for name in ids):
        if any(isinstance(name, float) or is_missing(name) for name in ids):
            return None
        ids = [str(name) for name in ids]
    if any("." in name for name in ids[:100]) and all(_NUMBER.fullmatch(name) for name in ids):
        return None
    return list(ids)


def _patterns(names: list[str]) -> Iterator[tuple[str, str]]:
    """Return descriptions and regular expressions of the parts of ids that may be a unit."""
    for mark in _SEPARATORS:
        if mark in names[0] and all(mark in name for name in names):
            escaped = f"\\{mark}" if mark in ".|" else mark
            yield f"before the first {mark!r}", f"^[^{mark}]+"
            yield f"before the last {mark!r}", f"^.+(?={escaped})"
            yield f"after the last {mark!r}", f"[^{mark}]+$"
            yield f"after the first {mark!r}", f"(?<={escaped}).+"
    yield "before its last letter", r"^.*\d(?=[A-Za-z]$)"
    yield "before its last digits", r"^.*\D(?=\d+$)"


def _add_rule(found: dict[bytes, _Rule], column: IdColumn, names: list[str], match: str | None, part: str) -> None:
    """Add a rule, unless it does not name units or an earlier one gives the same."""
    units = names
    if match is not None:
        pattern = re.compile(match, re.DOTALL)
        matches = [pattern.search(name) for name in names]
        units = [one[0] for one in matches if one is not None]
        if len(units) < len(names):
            return
    distinct = set(units)
    if not 2 <= len(distinct) <= len(names) / 2:
        return
    # Classes are not units: they are few, and parts of ids that are words rather than numbers.
    many = len(distinct) ** 2 >= len(names)
    if match is None:
        is_unit = many or column.explicit or is_unit_name(column.name)
    else:
        is_unit = many or (column.explicit and part.startswith("before")) or all(map(_has_digit, distinct))
    if is_unit:
        what = "the id" if column.name is None else repr(column.name)
        whole = "the id itself" if column.name is None else f"the column {what}"
        text = f"the part of {what} {part}" if part else whole
        codes = coded(units)[0]
        found.setdefault(codes.tobytes(), _Rule(column, text, match, codes))


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))


@lru_cache(1024)
def is_unit_name(name: str | None) -> bool:
    """Return whether the name of a column says that it identifies what was measured.

    Examples
    --------
    >>> [name for name in ("MouseID", "patient", "sample_type", "class", "donor 2") if is_unit_name(name)]
    ['MouseID', 'patient', 'donor 2']
    """
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name or "")
    return bool(words) and _UNIT_NAMES.fullmatch(words[-1].lower().removesuffix("id") or "id") is not None


def _is_without_trend(distance: Array, rule: _Rule) -> bool:
    """Return whether rows of a unit are also closer than rows of the next units, in the order of the units.

    Rows of the same age or date are close, and rows of the next age or date are nearly as close.
    """
    names = [rule.unit(str(name)) for name in rule.column.values[: len(rule.units)].tolist()]
    whole = all(map(str.isdecimal, names))
    order = np.array(sorted(range(len(names)), key=lambda row: int(names[row]) if whole else names[row]))
    if (order[1:] > order[:-1]).all():
        return True
    return ratio_of_replicates(distance[np.ix_(order, order)], rule.units[order]) is not None


def _found_in_groups(data: Dataset, source: RowSource | Stream) -> ReplicateFinding | None:
    """Return a finding about groups of one row each whose ids share a part."""
    layout = getattr(source, "layout", None)
    column = None if data.groups is not None or layout is None else layout.options.groups
    head = _Head.of(source) if isinstance(source, Stream) else _Head(source, [], source.labels)
    given = next((one.values for one in head.ids if one.name == column), None) if head.ids else data.group_ids
    groups = np.asarray(given)
    for count in (_MAX_ROWS, None):  # most groups have several rows among the first
        if groups.ndim != 1 or len(set(map(str, groups[:count].tolist()))) < len(groups[:count]):
            return None
    if column is not None and isinstance(source, RowSource):
        described: Any = source
        groups = described.about(column)  # the whole ids, where only a part was used
    code = "" if column is not None else "pandas.Series(groups).astype(str)"
    ids = [IdColumn(groups, column, code=code, explicit=True)]
    finding = _found_by_ids(replace(head, ids=ids), whole=False)
    return finding and replace(finding, text=f"the groups are one row each, and the {finding.text}")


# Copies


def _found_copies(head: _Head) -> ReplicateFinding | None:
    """Return a finding if many rows are almost equal to another one; sparse rows and files in blocks are not read."""
    source = head.source.source if isinstance(head.source, RowView) else head.source
    if source.is_sparse or source.is_incomplete or not isinstance(source, RowSource) or head.source.n_features < 3:
        return None
    if type(head.source) is ArraySource:
        rows = head.source.array[:_MAX_ROWS]
    elif head.source.n_rows is None or head.source.n_features * min(head.source.n_rows, _MAX_ROWS) > 20 * _MAX_VALUES:
        return None
    else:
        rows = head.rows()
    if len(rows) < 2 * _MIN_DISTINCT_ROWS:
        return None
    with np.errstate(all="ignore"):
        # Almost equal rows are neighbours in any projection, where other rows rarely are so close.
        projected = rows @ _projection(rows.shape[1])
        ordered = np.sort(projected)
        limit = _SAME / 6 * (ordered[-1] - ordered[0])
        close = np.count_nonzero(ordered[1:] - ordered[:-1] <= limit)
        if close < max(_MIN_COPIES, _MIN_SHARE * len(rows)) or not 0 < limit < math.inf:
            return None
        units = _copies(rows, projected)
    if units is None:
        return None
    n_rows, count = len(units), int(units.max()) + 1
    all_rows = head.source.n_rows or n_rows
    if all_rows > n_rows:
        whole = head.source.collect("rows")
        found = _copies(whole, whole @ _projection(whole.shape[1]))
        units = units if found is None else found
    sample = f"{n_rows}" if n_rows == all_rows else f"the first {n_rows}"
    text = (
        f"{n_rows - count} of {sample} rows are equal or almost equal to another row, so that rows look like "
        f"replicates of {count} units. Drop the copies, or give the unit of each row as `groups` "
        "(standout.find_replicates returns them)."
    )
    return ReplicateFinding(len(units), int(units.max()) + 1, "almost equal rows", 0.0, units.astype(str), text)


@lru_cache(16)
def _projection(n_features: int) -> Array:
    return np.random.default_rng(0).normal(size=n_features)


def _copies(rows: NDArray[Any], projected: Array) -> Index | None:
    """Return the unit of each row if rows are almost equal and this is improbable, else None.

    Equal rows are common among few discrete values. In continuous data nearly every distinct row has a value of its
    own in every feature, so that three such features do not agree by chance. If rows change gradually, many differ by
    ten times the limit.
    """
    order = np.argsort(projected, kind="stable")
    step = max(1, rows.shape[1] // _MAX_COMPARED)
    values = np.asarray(rows[order][:, ::step], dtype=np.float64)
    sd = values.std(axis=0)
    values = values[:, sd > 0] / sd[sd > 0]
    if values.shape[1] < _MIN_CONTINUOUS:
        return None
    apart = np.sqrt(np.mean((values[1:] - values[:-1]) ** 2, axis=1))
    same = apart <= _SAME
    units = np.concatenate([[0], np.cumsum(~same)])
    sizes = np.bincount(units)
    copies = len(units) - len(sizes)
    if copies < max(_MIN_COPIES, _MIN_SHARE * len(units)) or 2 * same.sum() < (apart <= 10 * _SAME).sum():
        return None
    if len(sizes) < _MIN_DISTINCT_ROWS or (sizes > 1).sum() < MIN_UNITS:
        return None
    distinct = values[np.concatenate([[True], ~same])]
    n_values = np.array([len(np.unique(feature)) for feature in distinct.T])
    if (n_values >= _MIN_DISTINCT * len(distinct)).sum() < _MIN_CONTINUOUS:
        return None
    found = np.empty_like(units)
    found[order] = units
    return coded(found.tolist())[0]
