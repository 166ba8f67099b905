"""Checks of the tables: transposed ones, columns that are not measurements, shared rows, rare features.

A ratio compares variances. It is meaningless for row numbers, batches and years, for rows that are in both datasets,
for a table whose rows are features, and for features that vary in a handful of background rows. The checks need rows in
memory and compare a few of them first, so that they cost next to nothing on data without such faults.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from standout._dataset import Dataset
from standout._effective import serial_notes
from standout._replicates import replicate_notes
from standout.errors import FeatureWarning, RareFeatureWarning, TableWarning, listed, named_features
from standout.io.memory import as_numpy
from standout.io.source import ArraySource
from standout.io.stream import Stream
from standout.solvers.solution import Note, identical_note

Rows = NDArray[Any]
Index = NDArray[np.intp]
# A chance finding among all features is less probable than this.
_CHANCE = 1e-4
# Rows that are compared first, to find sorted and separating columns, and rare features.
_GLANCE, _SAMPLE = 8, 16
# Values of rows that are read again from a file, and of rows that are compared between datasets.
_MOST_READ, _MOST_COMPARED = 1_000_000, 2_500_000
# A feature is rare if at most this many background rows, and at most this share of them, differ from its usual value;
_RARE_ROWS, _RARE_SHARE = 5, 0.1
# or if this share of its variance comes from as few of the rows, which must be neither few nor so many that a look at
# every value would cost as much as the moments.
_OUTLIER_SHARE, _MIN_OUTLIER_ROWS, _MOST_OUTLIER_ROWS = 0.98, 50, 2000
# Below this share of the target variance, the background variance is that of values that were filled in.
_TINY = 1e-3
# Columns, and rows, that are copied at a time.
_PANEL, _BLOCK = 64, 4096

_REMEDY = "Use `standout.read(X, transpose=True)`."
# Words in the names of columns that describe rows.
_ROW_WORD = re.compile(
    "ids?|index|idx|row|rownum|rowid|unnamed|year|yr|month|day|date|datetime|time|timestamp|age|sex|gender|male|female|"
    "batch|plate|well|lane|run|session|visit|site|cohort|subject|patient|participant|donor|animal|sample|barcode|fold|"
    "label|class|group"
)
# Names of genes and other molecular features, and names of samples.
_FEATURE_NAME = re.compile(
    r"ENS[A-Z]{0,4}[GTP]\d{6,}(\.\d+)?|[NX][MRP]_\d+(\.\d+)?|rs\d{3,}|cg\d{8}|\d+(_[a-z])?_at|ILMN_\d+|MIMAT\d+"
    r"|(hsa|mmu)-(mir|let)-.+|[OPQ]\d[A-Z\d]{3}\d|chr[\dXYM]+[:_]\d+.*",
    re.IGNORECASE,
)
_SAMPLE_NAME = re.compile(
    r"(GSM|SRR|ERR|DRR|SAMN|SAMEA)\d{4,}|TCGA-.+|[ACGT]{12,}(-\d+)?"
    r"|(sample|subject|patient|participant|donor|mouse|rat|animal|individual|replicate|rep|control|ctrl|case|treated|"
    r"untreated|treatment|tumou?r|healthy|disease[d]?|wt|ko)[-_. ]?\d+([-_. ].*)?",
    re.IGNORECASE,
)
_KNOWN_GENE = re.compile(
    "ACTB|GAPDH|B2M|TP53|BRCA[12]|EGFR|MYC|KRAS|PTEN|RB1|CD3E|CD4|CD8A|CD19|MS4A1|LYZ|NKG7|GNLY|ERBB2|ESR1|VEGFA|TNF|IL6|"
    "IL10|IL1B|IFNG|STAT[13]|AKT1|MTOR|MAPK1|JUN|FOS|CDKN[12]A|BCL2|RPL13A|EEF1A1|MALAT1|XIST|SOX2|NANOG|APOE",
    re.IGNORECASE,
)


def data_notes(given: Sequence[Dataset], matched: Sequence[Dataset]) -> tuple[Note, ...]:
    """Return all findings about the data of a fit, as given and on the same features: dependent rows, faulty tables."""
    return (*replicate_notes(given), *serial_notes(matched), *table_notes(matched))


def table_notes(datasets: Sequence[Dataset]) -> tuple[Note, ...]:
    """Return findings about the tables of a fit: the target and the backgrounds, on the same features."""
    with np.errstate(all="ignore"):  # bad values are located by the solver
        parts = [_rows(data) for data in datasets]
        notes, named = _transposed_notes(datasets), datasets[0].names is not None
        if parts[0] is not None and all(part is not None for part in parts[1:]):
            rows = [part for part in parts if part is not None]
            notes += _column_notes(datasets[0].names, rows)
            identical = _identical_columns(rows)
            notes += [identical_note(datasets[0].names, identical)] if identical else []
            if len(rows) > 1:
                raws = (getattr(data.source, "raw", None) for data in datasets)
                target, *backgrounds = (part if raw is None else raw for part, raw in zip(rows, raws, strict=True))
                notes += _rare_notes(datasets[0].names, rare_features(backgrounds, target, outliers=named))
        for data, part in zip(datasets[1:], parts[1:], strict=True):
            notes += _shared_notes(datasets[0], parts[0], data, part)
    return tuple(notes)


def _rows(data: Dataset) -> Rows | None:
    """Return the rows of a dataset with positive weight, where they are in memory or few; else None."""
    source = data.source
    if isinstance(source, ArraySource) and type(source.array) is np.ndarray:
        rows = source.array
    elif data.rows is not None and (data.rows.n_rows or 0) * data.n_features <= _MOST_READ:
        rows = np.asarray(data.rows.rows(0, data.rows.n_rows or 0))
    else:
        return None
    if data.weights is not None:
        weights = as_numpy(data.weights)
        rows = rows[weights > 0] if weights.shape == rows.shape[:1] and weights.dtype.kind in "fiub" else rows
    return rows if len(rows) else None


# Columns


def _column_notes(names: tuple[str, ...] | None, parts: Sequence[Rows]) -> list[Note]:
    """Return a note on columns that cannot be measurements, and one on those that may not be."""
    samples = [part[:: max(1, len(part) // _GLANCE)][:_GLANCE] for part in parts]
    n_features = parts[0].shape[1]
    named = {} if names is None else _named_like_rows(names)
    monotone, separate = _rises_or_falls(samples[0]), np.zeros(n_features, dtype=bool)
    for sample in samples[1:]:
        monotone |= _rises_or_falls(sample)
    if len(samples) > 1:
        rest = samples[1] if len(samples) == 2 else np.concatenate(samples[1:])
        low, high = np.minimum.reduce, np.maximum.reduce
        separate = (high(samples[0]) < low(rest)) | (low(samples[0]) > high(rest))
    if names is None and not (monotone | separate).any():
        return []
    whole = np.all([(sample == np.floor(sample)).all(axis=0) for sample in samples], axis=0)
    discrete = 2 * np.count_nonzero(whole) > n_features  # counts, genotypes: whole numbers are measurements
    doubtful: dict[int, str] = {}
    for i in np.flatnonzero(monotone | separate | np.isin(np.arange(n_features), list(named))):
        columns = [part[:, i] for part in parts]
        suspicious = i in named or (whole[i] and not discrete and all(_whole(column) for column in columns))
        if separate[i] and _separates(columns, n_features, suspicious, discrete):
            doubtful[int(i)] = "disjoint ranges in target and background"
        elif any(_is_monotone(column, n_features, suspicious) for column in columns):
            doubtful[int(i)] = "sorted in row order"
    notes = []
    if 2 * len(doubtful) > n_features:  # rows that drift as a whole
        doubtful = {}
    if doubtful:
        what = "feature does not look like a measurement"
        what = f"1 {what}" if len(doubtful) == 1 else f"{len(doubtful)} features do not look like measurements"
        text = f"{what}: {_with_reasons(names, doubtful)}. A ratio may be due to how the rows were collected or sorted."
        notes.append(Note(TableWarning, f"{text} {_left_out(names, doubtful)}."))
    if names is not None:
        odd = {} if discrete else {int(i): _kind([part[:, i] for part in parts]) for i in np.flatnonzero(whole)}
        reasons = {**{i: kind for i, kind in odd.items() if kind}, **named}
        reasons = {i: reasons[i] for i in sorted(reasons) if i not in doubtful}
        if reasons:
            text = f"used as features, and perhaps not measurements: {_with_reasons(names, reasons)}."
            notes.append(Note(FeatureWarning, f"{text} {_left_out(names, reasons)} unless measured."))
    return notes


def _rises_or_falls(sample: Rows) -> NDArray[np.bool_]:
    """Return which columns of a few rows rise throughout or nowhere."""
    rises = sample[1:] > sample[:-1]
    varies = sample[0] != sample[-1]
    return np.asarray((np.logical_and.reduce(rises) | ~np.logical_or.reduce(rises)) & varies)


def _named_like_rows(names: Sequence[str]) -> dict[int, str]:
    """Return the columns whose name is that of a property of rows; a word in half of all names is that of a series."""
    found: dict[int, str] = {}
    for i, name in enumerate(names):
        words = re.findall(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|\d+", name)
        if len(words) <= 3:
            word = next((word.lower() for word in words if _ROW_WORD.fullmatch(word.lower())), None)
            if word is not None:
                found[i] = word
    common = {word for word, count in Counter(found.values()).items() if count > 1 and 2 * count >= len(names)}
    return {i: "by its name" for i, word in found.items() if word not in common}


def _whole(column: Rows) -> bool:
    return bool((column == np.floor(column)).all())


def _separates(columns: Sequence[Rows], n_features: int, suspicious: bool, discrete: bool) -> bool:
    """Return whether a column predicts the dataset of every row, beyond chance, and is not a measurement.

    The classes of a study may differ that clearly in a measurement, but not in a constant of every dataset.
    """
    target, rest = columns[0], np.concatenate(columns[1:])
    if not (target.max() < rest.min() or target.min() > rest.max()):
        return False
    m, n = len(target), len(rest)
    chance = np.log(2 * n_features) + special.gammaln(m + 1) + special.gammaln(n + 1) - special.gammaln(m + n + 1)
    constant = all(column.min() == column.max() for column in columns)
    return bool(chance < np.log(_CHANCE)) and (suspicious or (constant and not discrete))


def _is_monotone(column: Rows, n_features: int, suspicious: bool) -> bool:
    """Return whether a column is sorted, beyond chance; with ties only if it is ``suspicious`` otherwise."""
    steps = np.diff(column.astype(np.float64))
    if not ((steps >= 0).all() or (steps <= 0).all()) or (not suspicious and (steps == 0).any()):
        return False
    _, counts = np.unique(column, return_counts=True)
    orders = special.gammaln(len(column) + 1) - special.gammaln(counts + 1).sum()  # of distinct values
    return len(counts) > 2 and bool(np.log(2 * n_features) - orders < np.log(_CHANCE))


def _kind(columns: Sequence[Rows]) -> str:
    """Return what whole numbers among measurements look like; an empty text for other numbers."""
    if not all(map(_whole, columns)):
        return ""
    together = np.concatenate(columns)
    values = np.unique(together)
    if values.tolist() == [0, 1]:
        return "0 or 1"
    if len(values) > 2 and len(together) >= 10:
        for column in (together, *columns):
            steps = np.diff(np.unique(column))
            if len(column) >= 10 and len(steps) == len(column) - 1 and (steps == steps[0]).all():
                return "evenly spaced"
        if values[0] >= 1900 and values[-1] <= 2100:
            return "like years"
        if values[0] >= 19000101 and values[-1] <= 21001231 and (values % 10000 // 100 <= 12).all():
            return "like dates"
    return ""


def _with_reasons(names: tuple[str, ...] | None, reasons: Mapping[int, str]) -> str:
    found = [f"{listed(named_features(names, [i]))} ({reason})" for i, reason in reasons.items()]
    return ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")


def _left_out(names: tuple[str, ...] | None, columns: Collection[int]) -> str:
    them = "it" if len(columns) == 1 else "them"
    if names is None:
        return f"Leave {them} out"
    found = named_features(names, columns)
    return f"Leave {them} out with `standout.read(X, drop={(found[0] if len(found) == 1 else found)!r})`"


def _identical_columns(parts: Sequence[Rows]) -> list[list[int]]:
    """Return groups of columns that are equal in every row, without constant ones."""
    first = np.sort(parts[0][0])
    if not (first[1:] == first[:-1]).any():
        return []
    _, places, counts = np.unique(parts[0][0], return_inverse=True, return_counts=True)
    alike = np.flatnonzero(counts[places] > 1).tolist()
    for stop in (_PANEL, max(map(len, parts))):  # a few rows rule out most candidates
        together: dict[bytes, list[int]] = {}
        for i in alike:
            columns = [part[:stop, i] for part in parts]
            if stop == _PANEL or any((column != column[0]).any() for column in columns):
                together.setdefault(b"".join(column.tobytes() for column in columns), []).append(i)
        alike = [i for group in together.values() if len(group) > 1 for i in group]
    return sorted(group for group in together.values() if len(group) > 1)


# Rows


def _shared_notes(target: Dataset, rows: Rows | None, other: Dataset, part: Rows | None) -> list[Note]:
    """Return a note if rows of the target are also in the other dataset."""
    text = ""
    rows, part = _observed(target, rows), _observed(other, part)
    if rows is not None and part is not None:
        most = max(64, _MOST_COMPARED // max(rows.shape[1], 1))
        shared = _count_shared(rows[:most], part[:most])
        if shared:
            n_rows = min(len(part), most)
            among = "" if n_rows == len(part) else "first "
            text = f"{shared} of the {among}{n_rows} rows are" if shared < n_rows else f"all {among}{n_rows} rows are"
            text = "its only row is" if len(part) == 1 else text
    elif isinstance(target.source, Stream) and isinstance(other.source, Stream):
        streams = (target.source, other.source)
        if streams[0].path == streams[1].path:  # the first block of each is read
            first, second = (next(iter(stream.open_blocks(256, (), None))).numbers for stream in streams)
            text = "its first rows are" if np.array_equal(first, second, equal_nan=True) else ""
    if not text:
        return []
    text = f"{other.role}: {text} also in the target, so that the datasets are not independent. Check that the right "
    return [Note(TableWarning, f"{text}data were given, and give each row to one dataset.")]


def _observed(data: Dataset, rows: Rows | None) -> Rows | None:
    """Return the rows of a dataset before missing values were drawn, which differ between datasets."""
    raw = getattr(data.source, "raw", None)
    return rows if rows is None or raw is None or data.weights is not None else np.nan_to_num(raw)


def _count_shared(rows: Rows, others: Rows) -> int:
    """Return how many of the other rows are also in ``rows``, unless rows are equal by chance.

    Equal rows have equal projections, so that only rows with neighbours along one direction are compared. Rows of
    measurements with many digits are never equal by chance. Otherwise (counts, genotypes) rows of different datasets
    must be equal far more often than rows of one dataset.
    """
    direction = np.sin(np.arange(1.0, 1 + rows.shape[1]))
    parts = (part[start : start + _BLOCK] for part in (rows, others) for start in range(0, len(part), _BLOCK))
    scores = np.concatenate([part @ direction for part in parts])
    ordered = np.sort(scores)
    close = ordered[1:] - ordered[:-1] <= 1e-9 * max(abs(ordered[0]), abs(ordered[-1]))
    if not close.any():
        return 0
    order = np.argsort(scores, kind="stable")
    near = np.zeros(len(scores), dtype=bool)
    near[order[1:][close]] = near[order[:-1][close]] = True
    counts = [
        Counter(hash((part[i].astype(np.float64) + 0.0).tobytes()) for i in np.flatnonzero(mask))  # -0.0 is 0.0
        for part, mask in ((rows, near[: len(rows)]), (others, near[len(rows) :]))
    ]
    shared = sum(count for row, count in counts[1].items() if row in counts[0])
    if not shared or rows is others or _has_digits(others):
        return shared
    between = sum(count * counts[0][row] for row, count in counts[1].items())
    within = sum(count * (count - 1) // 2 for part in counts for count in part.values())
    m, n = len(rows), len(others)
    share = m * n / (m * n + m * (m - 1) / 2 + n * (n - 1) / 2)
    return shared if stats.binom.sf(between - 1, between + within, share) < _CHANCE else 0


def _has_digits(rows: Rows) -> bool:
    """Return whether most rows have a unique value in at least two features, which are not whole numbers."""
    few = rows[:256]
    distinct = [len(np.unique(column)) for column in few.T[:: max(1, rows.shape[1] // 64)]]
    return sum(2 * count > len(few) for count in distinct) >= min(2, rows.shape[1]) and not _whole(few)


# Rare features


def rare_features(backgrounds: Sequence[Rows], target: Rows, *, outliers: bool = True) -> dict[int, int]:
    """Return the features that vary in a handful of background rows, with the number of these rows.

    Also those that vary in a handful of target rows and in no background row, and those whose variance is far smaller
    in the few background rows in which they vary, as after filling in means. NaN does not count as variation. Without
    ``outliers``, features whose variance rests on a few of many different values are not looked for, which takes most
    of the time; a fit of arrays leaves them to the permutation test.
    """
    n_rows = sum(map(len, backgrounds))
    found: dict[int, int] = {}
    samples = [part[:: max(1, len(part) // _SAMPLE)][:_SAMPLE] for part in backgrounds]
    # Of 16 sampled rows at most 5 differ from the usual value, hence at least 5 of 15 neighbours are equal.
    equal = [sample[1:] == sample[:-1] for sample in samples]
    candidates = np.empty(0, dtype=np.intp)
    if all(part.any() for part in equal):
        candidates = np.flatnonzero(np.all([3 * part.sum(axis=0) >= len(part) for part in equal], axis=0))
    for start in range(0, len(candidates), _PANEL):
        columns = candidates[start : start + _PANEL]
        differing = np.zeros(len(columns), dtype=np.intp)
        for part, sample in zip(backgrounds, samples, strict=True):
            usual = np.nanmedian(sample[:, columns], axis=0)
            differing += ((part[:, columns] != usual) & (part[:, columns] == part[:, columns])).sum(axis=0)
        rare = (differing > 0) & (differing <= min(_RARE_ROWS, _RARE_SHARE * n_rows))
        own = ((target[:, columns] != usual) & (target[:, columns] == target[:, columns])).sum(axis=0)
        few = (differing == 0) & (own > 0) & (own <= min(_RARE_ROWS, _RARE_SHARE * len(target)))
        spread = [np.nanvar(part[:, columns].astype(np.float64), axis=0) for part in (target, *backgrounds)]
        tiny = np.max(spread[1:], axis=0) < _TINY * spread[0]
        rare |= few | ((differing > 0) & (differing <= _RARE_SHARE * n_rows) & tiny)
        differing = np.where(few, own, differing)
        found |= dict(zip(columns[rare].tolist(), differing[rare].tolist(), strict=True))
    if outliers and _MIN_OUTLIER_ROWS <= n_rows <= _MOST_OUTLIER_ROWS:
        centred = [part - np.full(len(part), 1 / len(part)) @ part for part in backgrounds]
        squares = centred[0] if len(centred) == 1 else np.concatenate(centred)
        squares *= squares
        ones = np.ones(n_rows)
        total = ones @ squares
        # If k values make up the share s of the sum of squares, Σ d⁴ ≥ (s Σ d²)²/k.
        heavy = ones @ np.square(squares) >= (_OUTLIER_SHARE * total) ** 2 / _RARE_ROWS
        for i in np.flatnonzero(heavy & (total > 0)):
            largest = np.cumsum(np.sort(squares[:, i])[::-1][:_RARE_ROWS]) >= _OUTLIER_SHARE * total[i]
            if int(i) not in found and largest.any():
                found[int(i)] = int(np.argmax(largest)) + 1
    return dict(sorted(found.items()))


def _rare_notes(names: tuple[str, ...] | None, rare: Mapping[int, int]) -> list[Note]:
    """Return a note that names rare features."""
    if not rare:
        return []
    reasons = {i: f"{count} row{'s' * (count > 1)}" for i, count in rare.items()}
    vary = "1 feature varies" if len(rare) == 1 else f"{len(rare)} features vary"
    remedy = f"see the result without such features. {_left_out(names, rare)}."
    text = f"{vary} in few rows: {_with_reasons(names, reasons)}. A large ratio may rest on these rows alone: {remedy}"
    return [Note(RareFeatureWarning, text)]


# Transposed tables


def transposed_hint(target: Dataset | None, other: Dataset) -> str:
    """Return, for an error, why one of two datasets on different features may be transposed; else an empty text."""
    if target is None:
        return ""
    if target.names is None or other.names is None:
        same = other.source is not None and other.source.n_rows == target.n_features
        return f" It has as many rows as the target has features: is it transposed? {_REMEDY}" if same else ""
    features = set(target.names), set(other.names)
    ids = set(_row_names(target.source) or ()), set(_row_names(other.source) or ())
    if _alike(ids[1], features[0]):
        return f" Its rows have names of the features of the target, so that it looks transposed. {_REMEDY}"
    if _alike(ids[0], features[1]):
        return f" The rows of the target have names of its features, so that the target looks transposed. {_REMEDY}"
    if _alike(*ids):
        return f" Both have rows of the same names, so that both look transposed. {_REMEDY}"
    return ""


def _alike(one: Collection[str], other: Collection[str]) -> bool:
    common = len(set(one).intersection(other))
    return common >= 3 and 2 * common >= min(len(one), len(other))


def _transposed_notes(datasets: Sequence[Dataset]) -> list[Note]:
    """Return a note if rows have names of features, or columns have names of samples."""
    for data in datasets:
        ids = _row_names(data.source)
        found = []
        if ids and (_mostly(_FEATURE_NAME, ids) or sum(map(bool, map(_KNOWN_GENE.fullmatch, ids))) >= 3):
            found.append(f"its rows have names of features ({listed(ids, 3)})")
        if data.names is not None and _mostly(_SAMPLE_NAME, data.names):
            found.append(f"its columns have names of samples ({listed(data.names, 3)})")
        if found:
            what = f"{data.role}: {' and '.join(found)}"
            return [Note(TableWarning, f"{what}, so that the table looks transposed. {_REMEDY}")]
    return []


def _mostly(pattern: re.Pattern[str], names: Sequence[str]) -> bool:
    """Return whether at least four of five names match a pattern; of many names a sample is compared."""
    few = names[:: max(1, len(names) // 50)]
    return len(few) >= 3 and 5 * sum(map(bool, map(pattern.fullmatch, few))) >= 4 * len(few)


def _row_names(source: Any) -> Sequence[str] | None:
    """Return the names of rows in memory: their ids, a single text column, or the index of a frame."""
    inner = getattr(source, "source", source)
    if source is None or isinstance(inner, Stream) or not source.is_local:
        return None
    names = getattr(source, "row_ids", None)
    if names is None and len(getattr(inner, "aside", ())) == 1:
        names = inner.about(inner.aside[0])
    if names is None and hasattr(inner, "frame"):
        import narwhals.stable.v2 as nw

        index = nw.maybe_get_index(inner.frame)
        names = None if index is None or index.dtype.kind != "O" else index.to_numpy()
    return None if names is None else [name for name in list(names) if isinstance(name, str)]
