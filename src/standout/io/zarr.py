"""Zarr arrays, version 2 and 3, in a directory or a zip file: read by blocks of rows as they are chunked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import numpy as np
import zarr
from numpy.typing import NDArray

from standout.errors import InputError, MissingExtraError
from standout.io.containers import (
    NAMES,
    Member,
    as_names,
    beside,
    check_claim,
    check_file,
    check_matrix,
    check_no_key,
    pick,
    readable,
    stored,
)
from standout.io.matrix import ChunkedNumbers, Matrix, as_source
from standout.io.options import Options
from standout.io.source import Source


def open_zarr(path: Path, options: Options, role: str) -> Source:
    """Return the source of a Zarr array, or of one in a group.

    ``key`` is the path of the array in its group; names and describing columns are found as in HDF5 files. An
    AnnData in Zarr is read as one.
    """
    where = f"{role}: {path}"
    with readable(where, "Zarr"):
        check_file(path, where)
        if path.is_file() and not is_zipfile(path):
            raise InputError(f"{where}: this is neither a directory nor a zip file. Give a Zarr store.")
        with opened(path) as root:
            if isinstance(root, zarr.Array):
                check_no_key(options.key, where, "this store")
                arrays = {"": root}
            elif root.attrs.get("encoding-type") == "anndata":
                return _anndata(path, root, options, role)
            else:
                arrays = {name: item for name, item in root.members(max_depth=None) if isinstance(item, zarr.Array)}
            members = {name: _member(array) for name, array in arrays.items()}
            chosen = pick(members, options.key, where)
            array = arrays[chosen]
            check_matrix(members[chosen], f"{where}: {chosen}" if chosen else where)
            check_stored(array, path, where)
            numbers = ChunkedNumbers(partial(_array, path, chosen), array)
            named = [array.attrs[name] for name in NAMES if name in array.attrs]
        others = beside(members, chosen, partial(_whole, path))
        names = as_names(named[0]) if named and len(named[0]) == array.shape[1] else others.names
    return as_source(Matrix(path, "Zarr", numbers, names, others.about, tuple(others.about)), options, role)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open a store: a directory, or a zip file of one."""
    store = zarr.storage.ZipStore(path, mode="r") if path.is_file() else zarr.storage.LocalStore(path, read_only=True)
    try:
        yield zarr.open(store, mode="r")
    finally:
        store.close()


def check_stored(array: Any, path: Path, where: str) -> None:
    """Refuse an array that could run code, or that claims far more than its store could hold."""
    check_codecs(array, where)
    check_claim(max(math.prod(array.shape), math.prod(array.chunks)) * array.dtype.itemsize, stored(path), where)


def check_codecs(array: Any, where: str) -> None:
    """Refuse pickles, which version 2 allows among its filters: reading one can run any code."""
    metadata = array.metadata
    codecs = [*(getattr(metadata, "filters", None) or ()), getattr(metadata, "compressor", None)]
    if any(getattr(codec, "codec_id", "") == "pickle" for codec in codecs):
        raise InputError(
            f"{where}: {array.path or 'its array'} is stored as pickles, which could run any code, so it is not read. "
            "Convert it to numbers or text, and save it again."
        )


@contextmanager
def _array(path: Path, key: str) -> Iterator[Any]:
    with opened(path) as root:
        yield root[key] if key else root


def _whole(path: Path, key: str) -> NDArray[Any]:
    with _array(path, key) as array:
        check_codecs(array, str(path))
        return np.asarray(array[...])


def _member(array: Any) -> Member:
    return Member(array.shape, array.dtype, array.dtype.kind in "UST")


def _anndata(path: Path, root: Any, options: Options, role: str) -> Source:
    try:
        from standout.io.h5ad import open_store
    except ImportError as error:
        raise MissingExtraError(
            f"{role}: {path}: an AnnData needs {error.name}. Install it with: pip install 'standout[anndata]'"
        ) from error
    for _, item in root.members(max_depth=None):
        if isinstance(item, zarr.Array):
            check_codecs(item, f"{role}: {path}")
    return open_store(path, partial(opened, path), options, role)
