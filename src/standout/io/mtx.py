"""Matrix Market files, as 10x Genomics and many others write them, plain or packed with gz.

Rows are rows as in the file. In the layout of 10x Genomics (``features.tsv`` or ``genes.tsv`` and ``barcodes.tsv``
beside the matrix) rows of the file are genes: the lengths of the two lists tell, the matrix is turned where
needed so that rows are cells, and the lists give the names. A gene is called by its symbol, and by its id where
several genes share the symbol.
"""

from __future__ import annotations

import gzip
from collections import Counter
from io import RawIOBase
from pathlib import Path
from typing import Any

import numpy as np
from scipy import io, sparse

from standout.errors import InputError
from standout.io.containers import (
    Member,
    check_claim,
    check_file,
    check_held,
    check_matrix,
    check_no_key,
    check_sparse_claim,
    readable,
)
from standout.io.matrix import HeldNumbers, Matrix, as_source
from standout.io.options import Options
from standout.io.source import Source

_BARCODES = "barcodes"


def open_mtx(path: Path, options: Options, role: str) -> Source:
    """Return the source of a Matrix Market file; it is text, so it is held in memory, sparse where it is sparse."""
    where = f"{role}: {path}"
    check_no_key(options.key, where, "an mtx file")
    with readable(where, "Matrix Market"):
        check_file(path, where, packed=True)
        _check_header(path, options, where)
        with (gzip.open if path.suffix.lower() == ".gz" else open)(path, "rb") as file:
            text = Lines(file)
            found = io.mmread(text)
        if text.damaged:
            raise ValueError("there are zero bytes among its lines")
        check_matrix(Member(found.shape, found.dtype), where)
        genes, cells = _list(path, ("features", "genes")), _list(path, (_BARCODES,))
        matrix = _arranged(path, found, genes, cells, where)
    return as_source(matrix, options, role)


class Lines(RawIOBase):
    """The text of a file, without what scipy's reader cannot bear: zero bytes, or a last line without an end.

    It looks for the end of a line beyond the end of the text, and both end the process.
    """

    def __init__(self, file: Any):
        self.file, self.damaged = file, False
        self._last = b"\n"

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes; after the last ones, the end of the last line where there is none."""
        found: bytes = self.file.read(size)
        if b"\0" in found:
            self.damaged = True
            found = found.replace(b"\0", b" ")
        if not found and self._last != b"\n":
            found = b"\n"
        self._last = found[-1:] or self._last
        return found


def _check_header(path: Path, options: Options, where: str) -> None:
    """Refuse a header that promises more than the file could hold, or more than the memory allowed."""
    n_rows, n_columns, entries, form, _, symmetry = io.mminfo(str(path))
    size = path.stat().st_size
    unpacked = size * (1032 if path.suffix.lower() == ".gz" else 1)  # gz packs no better than that
    if 2 * entries > unpacked * (2 if symmetry != "general" else 1):
        raise InputError(
            f"{where}: it is cut short: its header promises {entries:,} entries, and the file has {size:,} bytes. "
            "Give a whole copy."
        )
    if form == "coordinate":
        check_sparse_claim((n_rows, n_columns), size, where)
    else:
        check_claim(8 * n_rows * n_columns, size, where)
    nbytes = entries * (16 if form == "coordinate" else 8) * (1 if symmetry == "general" else 2)
    check_held(
        nbytes, options.memory, where, "a text file is not read in blocks", "convert it to h5ad in CSR, which is"
    )


def _arranged(
    path: Path, found: Any, genes: list[list[str]] | None, cells: list[list[str]] | None, where: str
) -> Matrix:
    """Return the matrix with rows as rows; with lists of genes and cells beside it, rows as cells."""
    if genes is None or cells is None:
        return Matrix(path, "Matrix Market", _held(found))
    if found.shape == (len(genes), len(cells)):  # also where both fit: 10x Genomics writes genes × cells
        found = found.T
    elif found.shape != (len(cells), len(genes)):
        raise InputError(
            f"{where}: its shape is {found.shape}, and beside it lie lists of {len(genes)} features and {len(cells)} "
            "barcodes. Check that they belong together, or leave the lists out of its directory."
        )
    barcodes = np.array([cell[0] for cell in cells], dtype=object)
    return Matrix(path, "Matrix Market", _held(found), _symbols(genes), {_BARCODES: lambda: barcodes}, ids=_BARCODES)


def _held(found: Any) -> HeldNumbers:
    return HeldNumbers(sparse.csr_array(found) if sparse.issparse(found) else np.asarray(found))


def _list(path: Path, names: tuple[str, ...]) -> list[list[str]] | None:
    """Return the lines of a list beside the matrix, cut at tabs; ``a_matrix.mtx`` belongs to ``a_features.tsv``."""
    stem = path.name.removesuffix(".gz").removesuffix(".mtx")
    prefix = stem.removesuffix("matrix") if stem.endswith("matrix") else ""
    for name in names:
        for ending in (".tsv", ".tsv.gz"):
            beside = path.with_name(f"{prefix}{name}{ending}")
            if beside.is_file():
                with (gzip.open if ending.endswith(".gz") else open)(beside, "rt", encoding="utf-8") as file:
                    return [line.rstrip("\r\n").split("\t") for line in file if line.strip()]
    return None


def _symbols(genes: list[list[str]]) -> tuple[str, ...]:
    """Return what genes are called: the symbol, and the id where several share it."""
    symbols = [gene[1] if len(gene) > 1 else gene[0] for gene in genes]
    count = Counter(symbols)
    return tuple(symbol if count[symbol] == 1 else gene[0] for symbol, gene in zip(symbols, genes, strict=True))
