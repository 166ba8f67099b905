"""HDF5 files: one dataset of numbers, read by blocks of rows as it is chunked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from standout.errors import InputError
from standout.io.containers import (
    NAMES,
    Member,
    as_names,
    beside,
    check_claim,
    check_file,
    check_matrix,
    pick,
    readable,
)
from standout.io.matrix import ChunkedNumbers, Matrix, as_source
from standout.io.options import Options
from standout.io.source import Source


def open_hdf5(path: Path, options: Options, role: str) -> Source:
    """Return the source of an HDF5 file.

    ``key`` is the path of the dataset. Without it the only 2-D dataset of numbers is taken. The names of the
    features are text in an attribute of the dataset, or in a 1-D dataset beside it, called ``names``,
    ``feature_names``, ``columns`` or ``features``; other 1-D datasets beside it, with one value for each row,
    describe rows.
    """
    where = f"{role}: {path}"
    with readable(where, "HDF5"):
        check_file(path, where)
        with h5py.File(path, "r") as file:
            members = _members(file)
            _check_kind(file, members, options.key, where)
            chosen = pick(members, options.key, where)
            dataset = file[chosen]
            check_matrix(members[chosen], f"{where}: {chosen}")
            check_stored(dataset, path, f"{where}: {chosen}")
            numbers = ChunkedNumbers(partial(_opened, path, chosen), dataset)
            names = _attribute(dataset)
        others = beside(members, chosen, partial(_whole, path))
        if names is not None:
            others = replace(others, names=names)
        matrix = Matrix(path, "HDF5", numbers, others.names, others.about, tuple(others.about))
    return as_source(matrix, options, role)


def check_stored(dataset: Any, path: Path, where: str) -> None:
    """Refuse a dataset that claims far more than the file could hold; one that lies elsewhere is believed."""
    if dataset.is_virtual or dataset.external:
        return
    chunk = math.prod(dataset.chunks or ()) * dataset.dtype.itemsize
    check_claim(max(int(dataset.nbytes), chunk), path.stat().st_size, where)


@contextmanager
def _opened(path: Path, key: str) -> Iterator[Any]:
    with h5py.File(path, "r") as file:
        yield file[key]


def _whole(path: Path, key: str) -> NDArray[Any]:
    with _opened(path, key) as dataset:
        return np.asarray(dataset[()])


def _members(file: Any) -> dict[str, Member]:
    found: dict[str, Member] = {}

    def note(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.shape is not None:
            found[name] = Member(item.shape, item.dtype, h5py.check_string_dtype(item.dtype) is not None)

    file.visititems(note)
    return found


def _attribute(dataset: Any) -> tuple[str, ...] | None:
    """Return the names in an attribute of the dataset, where there is one for each feature."""
    for name in NAMES:
        values = np.asarray(dataset.attrs[name]) if name in dataset.attrs else np.empty(0)
        if values.shape == dataset.shape[1:] and values.dtype.kind in "OUS":
            return as_names(values)
    return None


def _check_kind(file: Any, members: dict[str, Member], key: str | None, where: str) -> None:
    """Refuse files of other programs that only look like arrays."""
    if "encoding-type" in file.attrs and file.attrs["encoding-type"] == "anndata":
        raise InputError(f"{where}: this is an h5ad file by another name. Rename it to end in .h5ad.")
    frames: list[str] = []
    matrices: list[str] = []

    def note(name: str, item: Any) -> None:
        if "pandas_type" in item.attrs:
            frames.append(name)
        if isinstance(item, h5py.Group) and {"data", "indices", "indptr"} <= set(item):
            matrices.append(name)

    file.visititems(note)
    if frames and (key is None or any(key.strip("/").startswith(name) for name in frames)):
        raise InputError(
            f"{where}: it holds data frames of pandas ({', '.join(frames[:3])}). Load one with "
            f"pandas.read_hdf(path, {frames[0]!r}), and give that."
        )
    if matrices and key is None and not any(member.numeric for member in members.values()):
        raise InputError(
            f"{where}: it holds a sparse matrix ({matrices[0]}), which HDF5 has no rule for. Load it with the program "
            "it is from (for instance scanpy.read_10x_h5), and give that, or convert it to h5ad."
        )
