"""AnnData as a source: an h5ad file, a Zarr store, or an AnnData object (in memory, backed, lazy or a view).

Rows are cells and features are genes. Names come from ``var_names``, row ids from ``obs_names``, and the columns of
``obs`` are metadata. Only what is requested is read, and sparse matrices stay sparse.

anndata reads the columns. Rows of a CSR matrix are read by :class:`standout.io.matrix.CSRReader`: anndata's backed mode
loads all layers into memory, and its sparse dataset reads all row pointers again whenever the file is opened, does not
check them, and supports neither half precision nor the other byte order.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from anndata.io import read_elem
from numpy.typing import NDArray
from scipy import sparse

from standout.errors import InputError, NotNumbersError, did_you_mean, listed
from standout.io import matrix as files
from standout.io.arrays import Store
from standout.io.hdf5 import HDF5Store
from standout.io.matrix import InMemoryReader, MatrixFile, MatrixReader, Member, Open, as_source
from standout.io.memory import NUMBERS, checked_table, sparse_from_parts
from standout.io.options import Options
from standout.io.read import is_on_cluster
from standout.io.source import Source, import_extra, readable

OBS_NAMES = "obs_names"  # the metadata column that holds the index of obs
# Encodings of obs columns that can be converted to text; files of older versions do not record any.
_NULLABLE = ("nullable-integer", "nullable-boolean", "nullable-string-array")
_ENCODINGS = ("", "array", "string-array", "categorical", *_NULLABLE)


def open_h5ad(path: Path, options: Options, role: str) -> Source:
    """Return the source of an h5ad file.

    ``key`` is a layer (``"counts"`` or ``"layers/counts"``), ``"X"`` (the default) or ``"raw"``. Dense and CSR
    matrices are read in blocks of rows; CSC matrices must fit in ``memory``.
    """
    store = HDF5Store(path, f"{role}: {path}")
    with readable(store.location, "h5ad", path):
        store.check_links()
    return open_store(store, options, role)


def open_store(store: Store, options: Options, role: str) -> Source:
    """Return the source of an AnnData in an HDF5 or Zarr store."""
    path, location = store.path, store.location
    with readable(location, "h5ad", path), store.open() as root:
        for name in ("obs", "var"):
            if name not in root:
                raise InputError(f"{location}: it has no {name}, so it is not an AnnData. Give an intact copy.")
            if not hasattr(root[name], "keys"):
                how = "anndata.read_h5ad(path).write_h5ad(path)"
                raise InputError(f"{location}: it was written by anndata before 0.7. Convert it with {how}.")
        stored = [name for name in ("X", "raw/X") if name in root]
        stored += [f"layers/{name}" for name in root.get("layers", ())]
        key = _matrix_path(options.key, stored, location)
        store.check(root[key])
        open_matrix = partial(store.item, key)
        reader = _stored_reader(path, open_matrix, root[key], options, f"{location}: {key}")
        names = files.as_names(_read_column(store, "raw/var" if key == "raw/X" else "var", None))
        obs = root["obs"]
        columns = [str(name) for name in obs.attrs.get("column-order", ())]
        known = [name for name in columns if name in obs and obs[name].attrs.get("encoding-type", "") in _ENCODINGS]
        read = partial(_read_obs, store, reader.shape[0])
        metadata: dict[str, files.Column] = {name: partial(read, name) for name in columns}
        metadata[OBS_NAMES] = partial(read, None)
        matrix = MatrixFile(path, "h5ad", reader, names, metadata, tuple(known), OBS_NAMES, deferred=True)
    return as_source(_checked(matrix, location), options, role)


def from_anndata(adata: Any, options: Options, role: str) -> Source:
    """Return the source of an AnnData object; its matrix is not copied, a backed one stays on disk, and Dask's lazy."""
    location = f"{role}: {adata.filename}" if adata.isbacked else role
    stored = ["X", *["raw/X"] * (adata.raw is not None), *(f"layers/{name}" for name in adata.layers)]
    key = _matrix_path(options.key, stored, role)
    holder = adata.raw if key == "raw/X" else adata
    with readable(location, "AnnData"):
        matrix = adata.layers[key.removeprefix("layers/")] if key.startswith("layers/") else holder.X
        item = getattr(matrix, "group", matrix)  # a backed sparse matrix is an HDF5 group
        reader: MatrixReader
        if is_on_cluster(matrix):
            reader = MatrixReader(matrix.shape, matrix.dtype)
        elif isinstance(item, h5py.Dataset | h5py.Group):
            reader = _stored_reader(Path(item.file.filename), partial(nullcontext, item), item, options, location)
        else:
            reader = _object_reader(matrix, location)
        names = files.as_names(holder.var_names)
        obs = in_memory(adata.obs)
    metadata: dict[str, files.Column] = {str(name): partial(files.decode, obs[name]) for name in obs.columns}
    metadata[OBS_NAMES] = partial(np.asarray, adata.obs_names, dtype=object)
    known = [str(name) for name in obs.columns if obs[name].dtype.kind in NUMBERS + "OU"]
    path = Path(adata.filename) if adata.isbacked else Path("AnnData")
    file = MatrixFile(path, "AnnData", reader, names, metadata, tuple(known), OBS_NAMES, deferred=True)
    if is_on_cluster(matrix):
        return _lazy_source(matrix, _checked(file, location), options, role)
    return as_source(_checked(file, location), options, role)


def in_memory(table: Any) -> Any:
    """Return obs or var as a data frame; ``anndata.experimental.read_lazy`` leaves them in the file."""
    return table.to_memory() if hasattr(table, "to_memory") else table


def _lazy_source(array: Any, matrix: MatrixFile, options: Options, role: str) -> Source:
    """Return the source of a Dask-backed matrix: its rows stay lazy, and the requested columns of obs are in memory."""
    if options.missing or options.groups_match:
        rule = "`missing` and `groups_match` are not for a Dask-backed AnnData"
        raise InputError(f"{role}: {rule}. Call adata.to_memory() first.")
    columns, _, metadata, rows = files.chosen_part(matrix, options, role)
    described = replace(options, ids=options.ids or OBS_NAMES)
    wanted = [name for name in (described.label, described.groups, described.ids) if name is not None]
    about = {name: metadata[name]()[slice(None) if rows is None else rows] for name in wanted}
    engine = import_extra("standout.distributed.dask", role, "dask")
    source: Source = engine.open_array(array if rows is None else array[rows], role, matrix.names, described, about)
    return source if columns is None else source.select(columns)


def _checked(matrix: MatrixFile, location: str) -> MatrixFile:
    """Return the matrix if it has one distinct name for each column."""
    names = matrix.names or ()
    if matrix.reader.shape[1] != len(names):
        problem = f"{matrix.reader.shape[1]} columns, but {len(names)} var_names. It is damaged"
        raise InputError(f"{location}: {problem}: give an intact copy.")
    duplicates = [name for name, count in Counter(names).items() if count > 1]
    if duplicates:
        found = f"{len(duplicates)} duplicate var_names: {listed(duplicates)}"
        raise InputError(f"{location}: {found}. Call adata.var_names_make_unique() first.")
    return matrix


def _matrix_path(key: str | None, stored: list[str], location: str) -> str:
    """Return the path of the matrix that ``key`` names, among those that are stored."""
    found = {None: "X", "X": "X", "raw": "raw/X", "raw/X": "raw/X"}.get(key)
    found = found or f"layers/{str(key).removeprefix('layers/')}"
    if found not in stored:
        remedy = f"Use `key` with one of {listed(stored)}." if stored else "Give an intact copy."
        raise InputError(f"{location}: it has no {found}.{did_you_mean(found, stored)} {remedy}")
    return found


def _read_column(store: Store, table: str, name: str | None) -> NDArray[Any]:
    """Read a column of obs or var, or its index (None)."""
    with store.item(table) as group:
        column = group[group.attrs["_index"] if name is None else name]
        store.check(column)
        return files.decode(read_elem(column))


def _read_obs(store: Store, n_rows: int, name: str | None) -> NDArray[Any]:
    found = _read_column(store, "obs", name)
    if found.shape != (n_rows,):
        raise ValueError(f"{len(found)} values of obs for {n_rows} rows")
    return found


def _stored_reader(path: Path, open_matrix: Open, item: Any, options: Options, location: str) -> MatrixReader:
    """Return the reader of a matrix in a store: dense or CSR on disk, CSC in memory."""
    available = files.size_on_disk(path)
    if hasattr(item, "shape"):
        files.check_matrix(Member(tuple(item.shape), item.dtype), location)
        files.check_size(int(item.nbytes), available, location)
        return files.ChunkedReader(open_matrix, item)
    kind = str(item.attrs.get("encoding-type", item.attrs.get("h5sparse_format", ""))).removesuffix("_matrix")
    if kind not in ("csr", "csc") or not all(part in item for part in files.CSR_ARRAYS):
        raise InputError(f"{location}: this is neither an array nor a sparse matrix. Give an intact copy.")
    shape = tuple(int(length) for length in item.attrs.get("shape", item.attrs.get("h5sparse_shape", ())))
    files.check_sparse_parts(item, shape, available, location)
    if kind == "csr":
        return files.CSRReader(open_matrix, item, (shape[0], shape[1]))
    size, reason = (
        sum(int(item[part].nbytes) for part in files.CSR_ARRAYS),
        "a CSC matrix cannot be read in blocks of rows",
    )
    remedy = "convert it to CSR (adata.X = adata.X.tocsr(), then write it again)"
    files.check_fits(size, options.memory, location, reason, remedy)
    with open_matrix() as group:
        parts = {part: np.asarray(group[part][...]) for part in files.CSR_ARRAYS}
    return InMemoryReader(sparse_from_parts("csc", parts, shape).tocsr())


def _object_reader(matrix: Any, location: str) -> InMemoryReader:
    """Return the reader of a matrix in memory, without a copy."""
    if matrix is None:
        raise InputError(f"{location}: this AnnData has no X. Use `key` with one of its layers, or set X.")
    if sparse.issparse(matrix):
        # The views of anndata are subclasses that copy on every access; the classes of scipy do not.
        plain = sparse.csc_array if matrix.format == "csc" else sparse.csr_array
        return InMemoryReader(checked_table(plain(matrix), location).tocsr())
    if not isinstance(matrix, np.ndarray):
        found = f"its matrix is a {type(matrix).__name__} and not in memory"
        raise NotNumbersError(f"{location}: {found}. Call adata.to_memory() first.")
    return InMemoryReader(checked_table(np.asarray(matrix), location))
