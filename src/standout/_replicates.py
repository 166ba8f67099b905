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
from scipy import stats

from standout._blas import Array
from standout._dataset import Dataset
from standout._display import Table, display
from standout._folds import Index, coded, rows_by_unit, unit_means
from standout.errors import InputError, ReplicateWarning
from standout.io.memory import is_missing
from standout.io.missing import raw_rows
from standout.io.read import read
from standout.io.source import ArraySource, IdColumn, RowSource, RowView, Source, block_rows, collect_values
from standout.io.stream import Block, Stream
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
# Rows look like replicates if their mean squared distance within units is below this share of that between units,
_MAX_RATIO = 0.9
# smaller than under any of this many random assignments of rows to units,
_N_RANDOM = 99
# and significantly so by a jackknife over this many blocks of units (one-sided t interval). Chosen by simulation.
_N_BLOCKS, _CONFIDENCE = 20, 0.9
# With two units, replicates cannot be distinguished from a drift.
_MIN_UNITS = 3
# Rows farther from the mean than this many times the median distance are moved to it: outliers are not evidence.
_MAX_DISTANCE = 2.0
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
        Mean squared distance within units over that between units, of features in units of their sd.
    groups : ndarray of shape (n_rows,)
        The unit of each row, for use as ``groups``.
    text : str
        The finding as text, with what to do.
    match : str or None
        Regular expression for the unit in an id, for use as ``groups_match`` of :func:`standout.read`; None if the
        unit is the id itself, or if rows are almost equal.

    See Also
    --------
    standout.find_replicates, standout.read

    Examples
    --------
    >>> import numpy as np
    >>> from standout import find_replicates
    >>> rng = np.random.default_rng(0)
    >>> rows = np.repeat(rng.normal(size=(9, 8)), 5, axis=0) + 0.3 * rng.normal(size=(45, 8))
    >>> finding = find_replicates(rows, [f"mouse{mouse}_{run}" for mouse in range(9) for run in range(5)])
    >>> finding.n_rows, finding.n_units, str(finding.groups[0]), finding.match
    (45, 9, 'mouse0', '^[^_]+')
    """

    n_rows: int
    n_units: int
    rule: str
    ratio: float
    groups: NDArray[np.str_]
    text: str
    match: str | None = None

    def _repr_html_(self) -> str | None:
        return display("Replicates", Table(["rows", "units"], [(self.n_rows, self.n_units)]), notes=[self.text]).html


def find_replicates(rows: Any, ids: Any = None, labels: Any = None) -> ReplicateFinding | None:
    """Check whether rows look like replicates of fewer units.

    They do if ids share a part (309 of 309_1, 309_2, ...) for at least three units, and rows that share it are closer
    to each other than rows that do not. Pairs of rows are compared at the same lag in row order, and in the order of
    the units, so that a drift over time or a trend in the ids is not mistaken for units. The evidence must come from
    several units. Differences between labels are removed, so that classes are not mistaken for units. Without such ids,
    rows look like replicates if many of them are almost equal to another one, in continuous features. The first 2,000
    rows are compared.

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
    standout.assess, standout.read

    Examples
    --------
    >>> import numpy as np
    >>> from standout import find_replicates
    >>> rng = np.random.default_rng(0)
    >>> ids = [f"mouse{mouse}_{run}" for mouse in range(9) for run in range(5)]
    >>> find_replicates(rng.normal(size=(45, 8)), ids) is None
    True
    >>> replicated = np.repeat(rng.normal(size=(9, 8)), 5, axis=0) + 0.3 * rng.normal(size=(45, 8))
    >>> find_replicates(replicated, ids).rule
    "the part of the id before the first '_'"
    """
    source = read(rows, role="rows")
    ids, labels = collect_values(ids, source, "ids"), collect_values(labels, source, "labels")
    if ids is None:
        source.check_row_values("ids", "ids")
    head = _Head.of(source, whole=True)
    for what, values in (("ids", ids), ("labels", labels)):
        shape = np.shape(values)
        if values is not None and (len(shape) != 1 or source.n_rows not in (None, shape[0])):
            raise InputError(f"{what}: shape {shape} for {source.n_rows} rows. Give one value for each row.")
    if labels is not None:
        head = replace(head, labels=labels)
    if ids is not None:
        head = replace(head, ids=[IdColumn(np.asarray(ids), explicit=True)])
    return _found_by_ids(head) or _found_copies(head)


def replicate_notes(datasets: Sequence[Dataset]) -> tuple[Note, ...]:
    """Return a warning for each dataset whose rows look like replicates that its groups, if any, do not account for.

    Raise an error if only some of the datasets have groups; moments cannot be grouped later, so theirs is a warning.
    """
    if any(data.source is not None and data.source.is_checked for data in datasets):
        return ()
    texts = []
    grouped = [data.role for data in datasets if _is_grouped(data)]
    for data in datasets if grouped else ():
        if data.role in grouped:
            continue
        if data.source is not None:
            argument = "groups" if data.role == "target" else "background_groups"
            raise InputError(
                f"{data.role}: it has no groups, and the {grouped[0]} has, so that units would be counted on one side "
                f"and rows on the other. Give the unit of each row (subject, epoch) as `{argument}=`, or its column as "
                "`groups` of standout.read; where every row is a unit, give row numbers."
            )
        texts.append(
            f"{data.role}: its moments have no groups, and the {grouped[0]} has, so that its rows count as "
            "independent. Give the groups to Moments.of, unless every row is an independent unit."
        )
    texts += [finding.text for finding in replicate_findings(datasets)]
    return tuple(Note(ReplicateWarning, text) for text in texts)


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
        layout: Any = getattr(source, "layout", None)
        label = "" if layout is None else layout.options.label or ""
        numbers: Array | None = None
        own: tuple[int, ...] = ()
        if isinstance(source, RowSource):
            named, own = _unit_features(source)
            ids, labels = [*source.id_columns(), *named], source.labels
        elif isinstance(source, Stream) and not whole:
            numbers, about = _first_rows(source, source.aside)
            ids = [IdColumn(about[name], name, explicit=name == layout.options.ids) for name in source.aside]
            labels = about.get(label)
        else:
            numbers, _ = _first_rows(source)  # first: the ids and labels in a file are read with its rows
            ids, labels = source.id_columns(), source.row_values("label", "labels")
        # Labels are classes, whose differences are removed, unless their name indicates that they identify units.
        return cls(source, ids, None if is_unit_name(label) else labels, numbers, own)

    def rows(self) -> Array:
        """Return the first rows; missing values are NaN."""
        if self.read is None and self.source.is_incomplete:
            return np.asarray(raw_rows(self.source)[:_MAX_ROWS], dtype=np.float64)
        return (_first_rows(self.source)[0] if self.read is None else self.read)[:_MAX_ROWS]


def _unit_features(source: RowSource) -> tuple[list[IdColumn], tuple[int, ...]]:
    """Return the features that by their name identify units, where they hold whole numbers, and their positions."""
    found = {}
    for i, name in enumerate(source.names or ()) if _column_step(source) == 1 else ():
        if is_unit_name(name):
            values = np.asarray(source.columns(i, i + 1), dtype=np.float64)[:, 0]
            if np.isfinite(values).all() and (values == np.floor(values)).all() and np.abs(values).max() < 2**53:
                found[i] = IdColumn(values.astype(np.int64), name)
    return list(found.values()), tuple(found)


def _first_rows(source: Any, aside: tuple[str, ...] | None = None) -> tuple[Array, dict[str, NDArray[Any]]]:
    """Return the first rows, with a subset of the features if these are many, and columns that describe them."""
    step, count = _column_step(source), min(_MAX_ROWS, block_rows(source.n_features))
    matrix = source.sparse()
    if matrix is not None:
        return np.asarray(matrix[:_MAX_ROWS][:, ::step].toarray(), dtype=np.float64), {}
    plain = (Block(rows, {}) for rows in source.blocks(count))
    blocks = plain if aside is None else source.open_blocks(count, aside, None)
    parts: list[Array] = []
    about: dict[str, list[Any]] = {name: [] for name in aside or ()}
    for block in blocks:
        parts.append(np.asarray(block.numbers[:, ::step], dtype=np.float64))
        for name, values in about.items():
            values.append(block.about[name])
        if sum(map(len, parts)) >= _MAX_ROWS:
            break
    return np.concatenate(parts), {name: np.concatenate(values) for name, values in about.items()}


def _column_step(source: Source) -> int:
    n_rows = _MAX_ROWS if source.n_rows is None else min(_MAX_ROWS, source.n_rows)
    return max(1, math.ceil(n_rows * source.n_features / _MAX_VALUES))


@dataclass(frozen=True)
class _Rule:
    """A way to derive the unit of each row from a column of ids."""

    column: IdColumn
    text: str
    match: str | None
    names: list[str]  # of the units of the rows that are compared
    units: Index


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
    distance = np.asarray(euclidean_distances(_standardised(values, classes), squared=True))
    found: tuple[float, _Rule] | None = None
    for rule in rules:
        if len(rule.units) != len(values) or rule.units.max() <= classes.max():
            continue
        ratio = _ratio_of_replicates(distance, rule.units)
        if ratio is not None and (found is None or ratio < found[0]) and _is_without_trend(distance, rule):
            found = ratio, rule
    return None if found is None else _finding(*found)


def _finding(ratio: float, rule: _Rule) -> ReplicateFinding:
    names = [str(name) for name in rule.column.values.tolist()]
    groups = names
    if rule.match is not None:
        groups = [found[0] if (found := re.search(rule.match, name)) else name for name in names]
    count, times = len(set(groups)), f"{1 / ratio:.2g}" if ratio > 0 else "infinitely many"
    first = "" if rule.match is None else f" ({groups[0]!r} of {names[0]!r})"
    text = (
        f"{len(names)} rows look like replicates of {count} units, given by {rule.text}{first}: rows of one unit are "
        f"{times} times closer (in squared distance) than rows of different units. {_remedy(rule.column, rule.match)} "
        "to count units instead of rows."
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
    texts = [(column, _as_text(column.values[:_MAX_ROWS])) for column in columns]
    given = [(column, names) for column, names in texts if names is not None]
    tried: list[tuple[IdColumn, list[str], str | None, str]] = []
    tried += [(column, names, None, "") for column, names in given if whole]
    for column, names in given:
        if len(set(names)) * 2 >= len(names) or column.explicit or is_unit_name(column.name):
            tried += [(column, names, match, part) for part, match in _patterns(names)]
    rules: dict[bytes, _Rule] = {}
    for column, names, match, part in tried:
        units = names
        if match is not None:
            units = [found[0] for name in names if (found := re.search(match, name, re.DOTALL)) is not None]
        distinct = set(units)
        if len(units) < len(names) or not 2 <= len(distinct) <= len(names) / 2:
            continue
        # Classes are not units: they are few, and parts of ids that are words rather than numbers.
        is_unit = len(distinct) ** 2 >= len(names)
        if match is None:
            is_unit |= column.explicit or is_unit_name(column.name)
        else:
            numbered = all(any(map(str.isdigit, unit)) for unit in distinct)
            is_unit |= numbered or (column.explicit and part.startswith("before"))
        if is_unit:
            what = "the id" if column.name is None else repr(column.name)
            text = "the id itself" if column.name is None else f"the column {what}"
            codes = coded(units)[0]
            rule = _Rule(column, f"the part of {what} {part}" if part else text, match, units, codes)
            rules.setdefault(codes.tobytes(), rule)
    return list(rules.values())


def _as_text(values: Any) -> list[str] | None:
    """Return ids as text; None if some are missing, or if they are measurements: decimal numbers or times."""
    if values.dtype.kind in "fcMm" or len(values) < 2 * _MIN_UNITS:
        return None
    if any(isinstance(name, float) or is_missing(name) for name in values.tolist()):
        return None
    ids = [str(name) for name in values.tolist()]
    decimal = any("." in name for name in ids[:100]) and all(_NUMBER.fullmatch(name) for name in ids)
    return None if decimal else ids


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


@lru_cache(1024)
def is_unit_name(name: str | None) -> bool:
    """Return whether the name of a column indicates that it identifies what was measured.

    Examples
    --------
    >>> [name for name in ("MouseID", "patient", "sample_type", "class", "donor 2") if is_unit_name(name)]
    ['MouseID', 'patient', 'donor 2']
    """
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name or "")
    return bool(words) and _UNIT_NAMES.fullmatch(words[-1].lower().removesuffix("id") or "id") is not None


def _is_without_trend(distance: Array, rule: _Rule) -> bool:
    """Return whether rows of a unit are also closer than rows of the next units (of the next age or date)."""
    names: list[Any] = list(map(int, rule.names)) if all(map(str.isdecimal, rule.names)) else rule.names
    order = np.array(sorted(range(len(names)), key=names.__getitem__))
    if (order[1:] > order[:-1]).all():
        return True
    return _ratio_of_replicates(distance[np.ix_(order, order)], rule.units[order]) is not None


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


def _found_copies(head: _Head) -> ReplicateFinding | None:
    """Return a finding if many rows are almost equal to another one; sparse rows and files in blocks are not read."""
    source = head.source
    inner = source.source if isinstance(source, RowView) else source
    if inner.is_sparse or inner.is_incomplete or not isinstance(inner, RowSource) or source.n_features < 3:
        return None
    all_rows = source.n_rows or 0
    if type(source) is not ArraySource and source.n_features * min(all_rows, _MAX_ROWS) > 20 * _MAX_VALUES:
        return None
    units = _copies(source.array[:_MAX_ROWS] if type(source) is ArraySource else head.rows())
    if units is None:
        return None
    n_rows, count = len(units), int(units.max()) + 1
    if all_rows > n_rows:
        found = _copies(source.collect("rows"))
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


@np.errstate(all="ignore")
def _copies(rows: NDArray[Any]) -> Index | None:
    """Return the unit of each row if rows are almost equal and this is improbable, else None.

    Equal rows are common among few discrete values. In continuous data, three features do not agree by chance. If rows
    change gradually, many differ by ten times the limit.
    """
    if len(rows) < 2 * _MIN_DISTINCT_ROWS:
        return None
    least = max(_MIN_COPIES, _MIN_SHARE * len(rows))
    # Almost equal rows are neighbours in any projection, where other rows rarely are so close.
    projected = rows @ _projection(rows.shape[1])
    ordered = np.sort(projected)
    limit = _SAME / 6 * (ordered[-1] - ordered[0])
    if np.count_nonzero(ordered[1:] - ordered[:-1] <= limit) < least or not 0 < limit < math.inf:
        return None
    order = np.argsort(projected, kind="stable")
    step = max(1, rows.shape[1] // _MAX_COMPARED)
    values = np.asarray(rows[:, ::step][order], dtype=np.float64)
    sd = values.std(axis=0)
    values = values[:, sd > 0] / sd[sd > 0]
    if values.shape[1] < _MIN_CONTINUOUS:
        return None
    apart = np.sqrt(np.mean((values[1:] - values[:-1]) ** 2, axis=1))
    same = apart <= _SAME
    units = np.concatenate([[0], np.cumsum(~same)])
    sizes = np.bincount(units)
    few = len(units) - len(sizes) < least or len(sizes) < _MIN_DISTINCT_ROWS or (sizes > 1).sum() < _MIN_UNITS
    if few or 2 * same.sum() < (apart <= 10 * _SAME).sum():
        return None
    distinct = values[np.concatenate([[True], ~same])]
    n_values = np.array([len(np.unique(feature)) for feature in distinct.T])
    if (n_values >= _MIN_DISTINCT * len(distinct)).sum() < _MIN_CONTINUOUS:
        return None
    found = np.empty_like(units)
    found[order] = units
    return coded(found.tolist())[0]


def _standardised(values: Array, classes: Index) -> Array:
    """Return rows centred by class, features in units of their sd; missing values are replaced by the mean."""
    # Outlying rows are moved toward the mean. This is done twice, because they also move the mean and inflate the sd.
    missing = ~np.isfinite(values)
    observed = unit_means((~missing).astype(np.float64), classes)
    rows = np.where(missing, 0.0, values)
    for _ in range(2):
        means = unit_means(rows, classes) / np.where(observed > 0, observed, 1.0)
        rows = np.where(missing, 0.0, rows - means[classes])
        sd = np.sqrt((rows**2).mean(axis=0))
        varies = sd > 1e-12 * np.abs(means).max(axis=0)
        rows = np.where(varies, rows / np.where(varies, sd, 1.0), 0.0)
        length = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        limit = _MAX_DISTANCE * (np.median(length[length > 0]) if length.any() else 1.0)
        rows *= np.minimum(1.0, limit / np.where(length > 0, length, limit))[:, None]
    return np.asarray(rows)


def _ratio_of_replicates(distance: Array, units: Index) -> float | None:
    """Return the ratio of squared distances within and between units if it is clearly below one, else None.

    Relative to pairs of different units at the same lag in row order, pairs of one unit must also be closer than under
    any random assignment of rows to units, so that a drift over time, which makes adjacent rows similar, does not
    count; and the evidence must not be due to a single unit, by a jackknife over units (blocks of them, if many).
    """
    pairs = [rows[np.stack(np.triu_indices(len(rows), 1))] for rows in rows_by_unit(units)]
    first, second = np.concatenate(pairs, axis=1)
    n_rows, n_units = len(units), len(pairs)
    if n_units < _MIN_UNITS or len(first) == 0:
        return None
    lags = _lag_sums(distance, np.arange(n_rows))
    within = float(distance[first, second].sum())
    between = (lags[0].sum() - within) / (lags[1].sum() - len(first))
    ratio = within / len(first) / between if between > 0 else 1.0
    if ratio >= _MAX_RATIO:
        return None
    observed = _log_closeness(distance, lags, first, second)
    rng = np.random.default_rng(0)
    for _ in range(_N_RANDOM):
        moved = rng.permutation(n_rows)
        if _log_closeness(distance, lags, moved[first], moved[second]) <= observed:
            return None
    count = min(n_units, _N_BLOCKS)
    block, without = (np.arange(n_units) * count // n_units)[units], []
    for number in range(count):
        kept = block != number
        left = kept[first]
        if left.any():
            lags = _lag_sums(distance, np.flatnonzero(kept))
            without.append(_log_closeness(distance, lags, first[left], second[left]))
    if len(without) < 2:
        return None
    error = np.sqrt((len(without) - 1) * np.var(without))
    return ratio if observed < -stats.t.ppf(_CONFIDENCE, len(without) - 1) * error else None


def _lag_sums(distance: Array, rows: Index) -> tuple[NDArray[Any], Index]:
    """Return sums and numbers of the squared distances of all pairs of rows, by difference of row numbers from 1 on."""
    first, second = (rows[index] for index in np.triu_indices(len(rows), 1))
    lag, size = second - first, len(distance)
    return np.bincount(lag, distance[first, second], size)[1:], np.bincount(lag, minlength=size)[1:]


def _log_closeness(distance: Array, lags: tuple[NDArray[Any], Index], first: Index, second: Index) -> float:
    """Return the log squared distance of some pairs relative to that expected of all other pairs at the same lags."""
    from sklearn.isotonic import isotonic_regression  # takes long to import

    lag, apart, size = np.abs(first - second), distance[first, second], len(distance)
    counts = lags[1] - np.bincount(lag, minlength=size)[1:]
    present = np.flatnonzero(counts > 0)
    if len(present) == 0:
        return 0.0
    sums = (lags[0] - np.bincount(lag, apart, size)[1:])[present]
    # The expectation is monotone in the lag, as it is under any drift.
    rising = isotonic_regression(sums / counts[present], sample_weight=counts[present])
    expected = float(np.interp(lag, present + 1, rising).sum())
    return float(np.log(max(float(apart.sum()) / expected, 1e-12))) if expected > 0 else 0.0
