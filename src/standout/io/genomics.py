"""Files of genomics: HDF5 of Cell Ranger (10x Genomics), loom, GCT and PLINK bed.

They store features × samples. Here samples (cells, individuals) are rows, and genes or variants are features. A feature
is called by its symbol, or by its id if several features share the symbol.

PLINK files need no package: a table of 256 entries decodes them, and the rest is the same as for other array files.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from standout.errors import InputError, did_you_mean, listed
from standout.io import matrix as files
from standout.io.arrays import NpyHeader, NpyReader, Store
from standout.io.matrix import ChunkedReader, CSRReader, InMemoryReader, MatrixFile, MatrixReader, Member
from standout.io.options import Options
from standout.io.source import Index, Names, Source, import_extra, readable

# The names under which loom files store symbols and ids of genes and names of cells, in order of preference.
_LOOM_SYMBOLS = ("Gene", "var_names", "gene_names", "Name")
_LOOM_IDS = ("Accession", "gene_ids", "ensembl_ids", "EnsemblID")
_LOOM_CELLS = ("CellID", "obs_names", "cell_names", "barcodes")
# The longest line of a header (characters), and the parts in which rows are parsed (bytes).
_MAX_LINE = 64 * 2**20
_PARSE_BYTES = 4 * 2**20
_MISSING = ("", "na", "NA", "nan", "NaN", "N/A", "null")
# Columns of a .fam file, as PLINK writes them.
_FAM = ("FID", "IID", "PAT", "MAT", "SEX", "PHENOTYPE")
# Copies of the first allele, by two bits, and those of the four samples in a byte, lowest bits first.
_COPIES = np.array([2, np.nan, 1, 0], dtype=np.float32)
_COPIES_OF_BYTE = _COPIES[(np.arange(256)[:, None] >> np.array([0, 2, 4, 6])) & 3]


def choose_genes(
    ids: Sequence[str], symbols: Sequence[str], types: Sequence[str], genomes: Sequence[str], key: str | None,
    location: str,
) -> tuple[Names, Index | None]:  # fmt: skip
    """Return the names and positions (None: all) of the features whose type or genome is ``key``.

    One of several feature types must be chosen, as counts of genes and of antibodies are not comparable; several
    genomes are read together.
    """
    found = Counter(types)
    if key is None and len(found) > 1:
        shown = listed([f"{value} ({count})" for value, count in found.items()])
        raise InputError(f"{location}: it has {len(found)} feature types. Choose one with `key`: {shown}.")
    if key is None:
        return _distinct(ids, symbols), None
    chosen = np.flatnonzero(np.array(types if key in types else genomes, dtype=object) == key)
    if not len(chosen):
        known = list(dict.fromkeys((*types, *genomes)))
        remedy = f"{did_you_mean(key, known)} Use one of {listed(known)}." if known else " Leave `key` out."
        raise InputError(f"{location}: `key={key!r}` is not one of its feature types or genomes.{remedy}")
    return _distinct(*([values[i] for i in chosen.tolist()] for values in (ids, symbols))), chosen


def _distinct(ids: Sequence[str], symbols: Sequence[str]) -> tuple[str, ...]:
    count = Counter(symbols)
    return tuple(symbol if count[symbol] == 1 else id for symbol, id in zip(symbols, ids, strict=True))


def stored_matrix(store: Store, root: Any, options: Options) -> MatrixFile | None:
    """Return the matrix of an open HDF5 file in the layout of Cell Ranger or loom; None for other files."""
    if store.path.suffix.lower() == ".loom":
        return _loom_matrix(store, root, options)
    parts = {*files.CSR_ARRAYS, "shape", "barcodes"}
    groups = [name for name, item in root.items() if hasattr(item, "keys") and parts <= set(item)]
    return _cell_ranger_matrix(store, root, groups, options) if groups else None


def _cell_ranger_matrix(store: Store, root: Any, groups: list[str], options: Options) -> MatrixFile:
    """Return the matrix of Cell Ranger 3 and later (one group, ``matrix``), or 2 (one group for each genome)."""
    name, key, location = "matrix", options.key, store.location
    if not ("matrix" in groups and "features" in root["matrix"]):
        if len(groups) > 1 and key is None:
            raise InputError(f"{location}: it has {len(groups)} genomes. Choose one with `key`: {listed(groups)}.")
        name, key = groups[0] if key is None else key.strip("/"), None
        if name not in groups:
            remedy = f"{did_you_mean(name, groups)} Use one of {listed(groups)}."
            raise InputError(f"{location}: `key={name!r}` is not one of its genomes.{remedy}")
    group = root[name]
    n_features, n_cells = (int(length) for length in _values(store, f"{name}/shape", 2))
    files.check_sparse_parts(group, (n_cells, n_features), store.size, location)
    reader = CSRReader(partial(store.item, name), group, (n_cells, n_features))
    genes = ["genes", "gene_names"]
    if "features" in group:
        genes = [f"features/{part}" for part in ("id", "name", "feature_type", "genome")]
    found = [files.as_names(_values(store, f"{name}/{part}", n_features)) if part in group else () for part in genes]
    ids, symbols, types, genomes = (*found, (), ())[:4]
    names, subset = choose_genes(ids, symbols, types, genomes, key, location)
    about = {"barcodes": partial(_values, store, f"{name}/barcodes", n_cells)}
    return MatrixFile(store.path, "10x HDF5", reader, names, about, (), "barcodes", deferred=True, subset=subset)


def _loom_matrix(store: Store, root: Any, options: Options) -> MatrixFile:
    """Return the main matrix of a loom file, or the layer ``key``; names of genes and columns that describe cells."""
    location = store.location
    stored = ["matrix", *(f"layers/{name}" for name in root.get("layers", ()))]
    key = "matrix" if options.key is None else options.key.strip("/")
    key = key if key in stored else f"layers/{key}"
    if key not in stored:
        raise InputError(f"{location}: it has no {key}.{did_you_mean(key, stored)} Use `key` with {listed(stored)}.")
    array = root[key]
    files.check_matrix(Member(array.shape[::-1], array.dtype), f"{location}: {key}")
    store.check(array)
    reader = ChunkedReader(partial(store.item, key), array, reverse=True)
    n_cells, n_features = reader.shape
    genes = root["row_attrs"]
    symbols, ids = (
        next((_values(store, f"row_attrs/{name}", n_features) for name in known if name in genes), None)
        for known in (_LOOM_SYMBOLS, _LOOM_IDS)
    )
    symbols = ids if symbols is None else symbols
    names = None if symbols is None else _distinct(*map(files.as_names, (symbols if ids is None else ids, symbols)))
    metadata: dict[str, files.Column] = {
        name: partial(_values, store, f"col_attrs/{name}", n_cells)
        for name, item in root["col_attrs"].items()
        if getattr(item, "shape", None) == (n_cells,)
    }
    row_ids = next((name for name in _LOOM_CELLS if name in metadata), None)
    return MatrixFile(store.path, "loom", reader, names, metadata, tuple(metadata), row_ids, deferred=True)


def _values(store: Store, key: str, count: int) -> NDArray[Any]:
    """Return the values of a 1-D dataset, which must be as many as expected."""
    found = files.decode(store.read(key))
    if found.shape != (count,):
        raise ValueError(f"/{key} has the shape {found.shape} instead of ({count},)")
    return found


def open_gct(path: Path, options: Options, role: str) -> Source:
    """Return the source of a GCT file of version 1.2 or 1.3 (metadata of samples are columns), plain or compressed."""
    location = f"{role}: {path}"
    files.check_no_key(options.key, location, "a GCT file")
    tables, csv, arrow = (import_extra(name, location) for name in ("standout.io.tables", "pyarrow.csv", "pyarrow"))
    size, packed = path.stat().st_size, path.suffix.lower() == ".gz"
    with readable(location, "GCT", path):
        with (gzip.open if packed else open)(path, "rt", encoding="utf-8", errors="replace") as file:
            n_features, n_rows, n_about, n_fields = _gct_counts(file, location)
            if 2 * n_features * n_rows > size * (1032 if packed else 1):  # the largest ratio of gzip
                raise ValueError(f"its header claims {n_features:,} features of {n_rows:,} samples in {size:,} bytes")
            reason, remedy = "a GCT file cannot be read in blocks of samples", "convert it to h5ad, which can"
            files.check_fits(8 * n_features * n_rows, options.memory, location, reason, remedy)
            lines = [_gct_line(file, 1 + n_about + n_rows) for _ in range(1 + n_fields)]
        texts = {"sample" if i == 0 else line[0]: line[1 + n_about :] for i, line in enumerate(lines)}
        about = {name: [None if v in _MISSING else v for v in values] for name, values in texts.items()}
        columns = [str(i) for i in range(len(lines[0]))]
        numbers = columns[1 + n_about :]
        types = {columns[0]: arrow.string()} | dict.fromkeys(numbers, arrow.float64())
        block = max(_PARSE_BYTES, 8 * sum(map(len, lines[0])))
        names: list[str] = []
        table = np.empty((n_rows, n_features))
        with csv.open_csv(
            str(path),
            csv.ReadOptions(column_names=columns, skip_rows=3 + n_fields, block_size=block),
            csv.ParseOptions(delimiter="\t", quote_char=False),
            csv.ConvertOptions(
                include_columns=[columns[0], *numbers], column_types=types, null_values=_MISSING, check_utf8=False
            ),
        ) as reader:
            for batch in reader:
                part = tables.numbers_of(batch.select(numbers)).T[:, : n_features - len(names)]
                table[:, len(names) : len(names) + part.shape[1]] = part
                names += batch.column(0).to_pylist()
        if len(names) != n_features:
            raise ValueError(f"its header claims {n_features:,} features, but {len(names):,} follow")
    metadata = {name: partial(np.array, values, dtype=object) for name, values in about.items()}
    matrix = MatrixFile(path, "GCT", InMemoryReader(table), tuple(names), metadata, tuple(metadata), "sample")
    return files.as_source(matrix, options, role)


def _gct_counts(file: IO[str], location: str) -> list[int]:
    """Return the numbers of features, of samples, and of the lines that describe each, from the first two lines."""
    version = file.readline(80).strip()
    if version not in ("#1.2", "#1.3"):
        problem = f"its first line is {version[:20]!r}, and that of a GCT file is #1.2 or #1.3"
        raise InputError(f"{location}: {problem}. Convert it to GCT, or rename it to its own type.")
    counts = [int(count) for count in file.readline(200).split()]
    counts = [*counts[:2], 1, 0] if version == "#1.2" else counts  # version 1.2 has one description
    if len(counts) != 4 or min(counts) < 0 or min(counts[:2]) < 1:
        raise ValueError(f"its second line has the numbers {listed(counts)}")
    return counts


def _gct_line(file: IO[str], count: int) -> list[str]:
    line = file.readline(_MAX_LINE).rstrip("\r\n").split("\t")
    if len(line) != count:
        raise ValueError(f"the line that starts with {line[0][:20]!r} has {len(line)} fields instead of {count}")
    return line


def open_bed(path: Path, options: Options, role: str) -> Source:
    """Return the source of a PLINK file: 0, 1 or 2 copies of the first allele of the ``.bim`` file, or NaN.

    Rows are the individuals of the ``.fam`` file, whose columns are metadata (FID is the family). Variants are called
    by their ids, or by chromosome:position:allele2:allele1 if several share an id.
    """
    location = f"{role}: {path}"
    files.check_no_key(options.key, location, "a bed file")
    with readable(location, "PLINK", path):
        with path.open("rb") as file:
            magic = file.read(3)
        if magic != b"\x6c\x1b\x01":
            problem = "this is not a bed file of PLINK 1.9 (tables of intervals have the same suffix)"
            raise InputError(f"{location}: {problem}. Convert files of older versions with plink --make-bed.")
        people, variants = (_read_fields(path.with_suffix(suffix), location) for suffix in (".fam", ".bim"))
        expected, size = 3 + -(-len(people) // 4) * len(variants), path.stat().st_size
        if size != expected or not people or not variants:
            found = f"{len(people):,} individuals (.fam) and {len(variants):,} variants (.bim) take {expected:,} bytes"
            remedy = "Check that the three files belong together, or give an intact copy."
            raise InputError(f"{location}: {found}, but it has {size:,}. {remedy}")
        places = [":".join((line[0], line[3], line[5], line[4])) for line in variants]
        names = _distinct(places, [line[1] for line in variants])
        about = {name: [line[i] for line in people] for i, name in enumerate(_FAM)}
        ids = "IID"
        if len(set(about["IID"])) < len(people):  # they are distinct within families only
            ids, about["FID_IID"] = "FID_IID", [f"{line[0]}_{line[1]}" for line in people]
        metadata = {name: partial(np.array, values, dtype=object) for name, values in about.items()}
        reader = _BedReader(path, len(people), len(variants), options.memory)
    return files.as_source(MatrixFile(path, "PLINK", reader, names, metadata, tuple(metadata), ids), options, role)


def _read_fields(path: Path, location: str) -> list[list[str]]:
    """Return the six fields of each line of a ``.bim`` or ``.fam`` file."""
    if not path.is_file():
        raise InputError(f"{location}: {path.name} is not in its directory. Add it: a bed file is read with it.")
    with path.open(encoding="utf-8", errors="replace") as file:
        found = [line.split() for line in file if line.strip()]
    wrong = next((i for i, line in enumerate(found, 1) if len(line) != 6), None)
    if wrong is not None:
        raise ValueError(f"line {wrong} of {path.name} has {len(found[wrong - 1])} fields instead of 6")
    return found


class _BedReader(MatrixReader):
    """Genotypes of two bits, variant by variant, in bytes of four individuals; in memory until they are decoded."""

    def __init__(self, path: Path, n_rows: int, n_variants: int, memory: int):
        super().__init__((n_rows, n_variants), _COPIES.dtype)
        header = NpyHeader((-(-n_rows // 4), n_variants), np.dtype(np.uint8), fortran=True, offset=3)
        self._file = NpyReader(path, header)
        self._held = self._file.columns(0, n_variants) if header.nbytes <= memory // 2 else None
        self.chunk_rows = 4 * (1 if self._held is not None else self._file.chunk_rows)

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        first, last = start // 4, -(-stop // 4)
        held = self._file.rows(first, last) if self._held is None else self._held[first:last]
        return _copies(held)[start - 4 * first : stop - 4 * first]

    def columns(self, start: int, stop: int) -> NDArray[Any]:
        held = self._file.columns(start, stop) if self._held is None else self._held[:, start:stop]
        return _copies(held)[: self.shape[0]]


def _copies(held: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return the genotypes of some bytes × variants, four rows for each byte."""
    return np.asarray(_COPIES_OF_BYTE[held].swapaxes(1, 2).reshape(4 * len(held), -1))
