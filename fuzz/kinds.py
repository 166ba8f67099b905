"""The kinds of files to damage: how an intact one is written, how it is damaged, and how it is read."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import anndata
import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import zarr
from scipy import io as scipy_io
from scipy import sparse

import standout
from fuzz import damage
from standout._model_file import _content_of
from standout._model_values import pack
from standout.errors import StandoutError
from standout.io import checkpoint
from standout.io.source import watching

ROWS = np.arange(60.0).reshape(12, 5)
NAMES = ("a", "b", "c", "d", "e")
FRAME = pd.DataFrame({
    "id": [f"r{i}" for i in range(60)],
    "x": np.linspace(-1, 1, 60).round(3),
    "n": pd.array([*range(59), None]),
    "kind": pd.Categorical(["a", 'b,\n"c"'] * 30),
    "flag": [True, False] * 30,
    "day": pd.date_range("2020", periods=60),
})  # fmt: skip
TEXT = FRAME.to_csv(index=False).encode()
# Options of `read`, used in turn: in memory, on disk, with columns that describe rows, with missing values.
TABLE = ({}, {"memory": 0}, {"memory": 0, "label": "kind", "ids": "id"}, {"missing": "auto"})
MATRIX = ({}, {"memory": 0})
IN_MEMORY = ({},)
LABELLED = ({}, {"memory": 0}, {"label": "kind"})
CUBE = ({"cube": True}, {"cube": True, "memory": 0})
# How text is compressed and expanded, the same in every run.
GZIP = partial(gzip.compress, compresslevel=1, mtime=0), gzip.decompress
BZ2 = bz2.compress, bz2.decompress
ZIP = damage.zip_of({"a.csv": TEXT})
XZ = partial(lzma.compress, preset=0), lzma.decompress


def read_rows(path: Path, how: Mapping[str, Any]) -> str:
    """Read a file completely, in every way its source offers, and return a digest of what was found."""
    source = standout.read(path, **how)
    rows = 7 if (source.n_rows or 0) < 1000 else 4096  # thousands of small blocks only take time
    blocks = list(source.blocks(rows))
    assert all(block.ndim == 2 and block.shape[1] == source.n_features and 0 < len(block) <= rows for block in blocks)
    assert sum(map(len, blocks)) == source.n_rows, "other rows than announced"
    assert source.names is None or len(source.names) == source.n_features
    found = [source.n_rows, source.n_features, source.names, *(np.ascontiguousarray(b).tobytes() for b in blocks)]
    for values in (source.labels, source.row_ids):
        assert values is None or len(values) == source.n_rows
        found.append(None if values is None else values.tolist())
    if hasattr(source, "take"):
        ends = np.array([source.n_rows - 1, 0])
        assert source.take(ends).shape == (2, source.n_features)
        assert source.columns(0, 1).shape == (source.n_rows, 1)
    return _digest(found)


def load_model(path: Path, _: Mapping[str, Any]) -> str:
    """Load a model, use it in every way, and return a digest of its content."""
    model = standout.load(path)
    rows = np.ones((20, model.n_features_in_)) * np.arange(20)[:, None] % 7
    named = pd.DataFrame(rows, columns=model.feature_names_in_) if hasattr(model, "feature_names_in_") else rows
    calls: list[Callable[[], Any]] = [lambda: model.transform(named), model.summary, lambda: repr(model)]
    if not isinstance(model, standout.KernelDPCA):
        calls.append(lambda: model.top_features(3))
    if isinstance(model, standout.DPCA):
        calls.append(lambda: model.denoise(named))
    with np.errstate(all="ignore"):
        for call in calls:
            with suppress(StandoutError):
                call()
    header, arrays = _content_of(model, None)
    del header["created"]
    return _digest([header, {name: (a.shape, a.dtype.str, a.tobytes()) for name, a in arrays.items()}])


def resume_pass(path: Path, _: Mapping[str, Any]) -> str:
    """Complete the pass that a checkpoint belongs to, and return a digest of the moments."""
    found = standout.Moments.of(standout.read(path.with_name("rows.npy"), memory=0, checkpoint=path))
    return _digest([found.rows, found.weight, found.mean.tobytes(), found.scatter.tobytes()])


def _digest(found: Any) -> str:
    return sha256(pickle.dumps(found)).hexdigest()


@dataclass(frozen=True)
class Kind:
    """A kind of file. Mutation i damages the file of writer i, and reads it with the options i, both in turn."""

    file: str  # its name, with the suffix that `read` recognises
    writers: Sequence[Callable[[Path], Any]]
    damage: damage.Damage = damage.damaged
    options: Sequence[Mapping[str, Any]] = MATRIX
    read: Callable[[Path, Mapping[str, Any]], str] = read_rows
    beside: Sequence[str] = ()  # suffixes of files that belong to it
    sealed: bool = False  # protected by a checksum: no change may remain undetected
    count: int = 3_000  # mutations in a full run


def _hdf5(path: Path, **how: Any) -> None:
    with h5py.File(path, "w", **how) as file:
        file.create_dataset("rows", data=ROWS, chunks=(4, 2), compression="gzip")
        file["label"] = np.array(["a", "b", "c"] * 4, dtype="S1")
        file["more"] = ["text", "of any length"] * 6


def _structures(path: Path, libver: str, how: int) -> None:
    """Write the structures of HDF5 that other writers here do not: dense links and attributes, indices of chunks."""
    shape: Any = [{"chunks": (2, 1)}, {"chunks": (2, 1), "maxshape": (None, 5)}, {"maxshape": (None, None)}, {}][how]
    filters: Any = [{"compression": "lzf"}, {"fletcher32": True}, {"scaleoffset": 2, "shuffle": True}, {}][how]
    with h5py.File(path, "w", libver=libver, track_order=how == 1) as file:
        for i in range(30):
            file.create_dataset(f"g/{i}", data=i)
        file["g"].create_dataset("rows", data=ROWS, **shape, **filters)
        file["g"].create_dataset("label", data=list("abc") * 4, chunks=(4,) if how else None, dtype=h5py.string_dtype())
        file["g"].create_dataset("number", data=np.arange(12), dtype="f4" if how else ">i2")
        for i in range(12):
            file["g/rows"].attrs[f"note{i}"] = "text" * how
        file["g/rows"].attrs["names"] = list(NAMES)
        file["soft"] = h5py.SoftLink("/g/rows")


def _h5ad(path: Path, matrix: Any, **how: Any) -> None:
    obs = pd.DataFrame({"c": pd.Categorical(["a", "b"] * 6)}, index=[f"cell{i}" for i in range(12)])
    anndata.AnnData(matrix, obs=obs, var=pd.DataFrame(index=list(NAMES))).write_h5ad(path, **how)


def _cell_ranger(path: Path, version: int) -> None:
    counts, texts = sparse.csr_array(ROWS), np.array(NAMES, "S")
    with h5py.File(path, "w") as file:
        group = file.create_group("matrix" if version == 3 else "GRCh38")
        group["data"], group["indices"], group["indptr"] = counts.data.astype("i4"), counts.indices, counts.indptr
        group["shape"], group["barcodes"] = [5, 12], np.array([f"cell{i}" for i in range(12)], "S")
        if version == 2:
            group["genes"], group["gene_names"] = texts, texts
            return
        group["features/id"], group["features/name"] = texts, texts
        group["features/feature_type"] = np.array(["Gene Expression"] * 5, "S")


def _loom(path: Path, **how: Any) -> None:
    with h5py.File(path, "w", **how) as file:
        file.create_dataset("matrix", data=ROWS.T, chunks=(2, 4), compression="gzip")
        file["row_attrs/Gene"], file["col_attrs/CellID"] = NAMES, [f"cell{i}" for i in range(12)]
        file["col_attrs/kind"], file["layers/spliced"] = ["a", "b"] * 6, ROWS.T
        file["attrs/LOOM_SPEC_VERSION"] = "3.0.0"


VARIABLES = {"X": ROWS, "names": np.array([[name] for name in NAMES], object), "kind": np.array(["a", "b"] * 6)}


def _mat(path: Path, variables: Mapping[str, Any], **how: Any) -> None:
    scipy_io.savemat(path, dict(variables), **how)
    path.write_bytes(b"MATLAB 5.0 MAT-file".ljust(116) + path.read_bytes()[116:])  # without the time


def _mat73(path: Path, matrix: Any) -> None:
    with h5py.File(path, "w", userblock_size=512) as file:
        if sparse.issparse(matrix):
            group = file.create_group("X")
            group["data"], group["ir"], group["jc"] = matrix.data, matrix.indices, matrix.indptr
            group.attrs["MATLAB_sparse"] = matrix.shape[0]
        else:
            file.create_dataset("X", data=matrix.T, chunks=(2, *matrix.T.shape[1:]), compression="gzip")
        file["X"].attrs["MATLAB_class"] = np.bytes_("double")
        links = []
        for i, name in enumerate(NAMES):
            item = file.create_dataset(f"#refs#/{i}", data=np.array([[ord(name)]], "u2"))
            item.attrs["MATLAB_class"] = np.bytes_("char")
            links.append(item.ref)
        file.create_dataset("names", data=np.array([links], h5py.ref_dtype), dtype=h5py.ref_dtype)
        file["names"].attrs["MATLAB_class"] = np.bytes_("cell")
        file["kind"] = np.array([[97, 98] * 6], "u2")
        file["kind"].attrs["MATLAB_class"] = np.bytes_("char")
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")


def _gct(about: Mapping[str, Sequence[str]]) -> bytes:
    header = f"#1.3\n5\t12\t1\t{len(about)}" if about else "#1.2\n5\t12"
    lines = [["Name", "Description", *(f"s{i}" for i in range(12))]]
    lines += [[name, "na", *values] for name, values in about.items()]
    lines += [[name, "a gene", *map(str, column)] for name, column in zip(NAMES, ROWS.T, strict=True)]
    return "\n".join([header, *map("\t".join, lines), ""]).encode()


GCT = [_gct({}), _gct({"kind": ["a", "b"] * 6, "dose": ["1"] * 12})]


def _plink(path: Path) -> None:
    path.write_bytes(b"\x6c\x1b\x01" + bytes(range(0, 240, 16)))
    path.with_suffix(".bim").write_text("".join(f"1\trs{name}\t0\t10\tA\tG\n" for name in NAMES))
    path.with_suffix(".fam").write_text("".join(f"F{i // 2} I{i} 0 0 1 -9\n" for i in range(12)))


def _xlsx(path: Path) -> None:
    FRAME.to_excel(path, index=False)
    with ZipFile(path) as book:
        parts = {name: book.read(name) for name in book.namelist()}
    times = {name: re.sub(rb"\d{4}-\d\d-\d\dT[\d:]{8}Z", b"2020-01-01T00:00:00Z", part) for name, part in parts.items()}
    path.write_bytes(damage.zip_of(times))


def _zst(text: bytes) -> bytes:
    return pa.compress(text, "zstd", asbytes=True)


def _un_zst(text: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(text), "zstd") as stream:
        return stream.read()


def _vectors(path: Path, kind: Any) -> None:
    table = pa.table({"id": FRAME["id"][:12], "kind": ["a", "b"] * 6, "vector": pa.array(ROWS.tolist(), kind)})
    pa.parquet.write_table(table, path, row_group_size=5)


def _zarr_zip(path: Path) -> None:
    store = zarr.storage.ZipStore(path, mode="w")
    zarr.create_array(store, data=ROWS, chunks=(4, 2))
    store.close()


def _arrow(path: Path, new: Callable[..., Any]) -> None:
    table = pa.Table.from_pandas(FRAME)
    with new(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=20)


def _model(path: Path, make: Callable[..., Any]) -> None:
    rng = np.random.default_rng(0)
    target = pd.DataFrame(np.round(rng.normal(size=(60, 5)) * [1, 1, 3, 1, 1], 1), columns=NAMES)
    background = pd.DataFrame(np.round(rng.normal(size=(90, 5)), 1), columns=NAMES)
    header, arrays = _content_of(make().fit(target, background=background), None)
    path.write_bytes(pack({**header, "created": "2020-01-01T00:00:00+00:00"}, arrays))  # the same bytes in every run


CHAIN = sparse.diags_array([np.ones(4), np.ones(4)], offsets=[-1, 1]).tocsr()
MODELS = [
    lambda path: _model(path, standout.DPCA),
    lambda path: _model(path, lambda: standout.DPCA(graph=CHAIN, mix=np.array([1.0]))),
    lambda path: _model(path, standout.CPCA),
    lambda path: _model(path, lambda: standout.KernelDPCA(n_landmarks=20, random_state=1)),
]


def _packed_mtx() -> bytes:
    text = BytesIO()
    scipy_io.mmwrite(text, sparse.coo_array(ROWS))
    return GZIP[0](text.getvalue())


class _StopError(Exception):
    """Ends a pass early."""


def _checkpoint(path: Path, stop: int) -> None:
    """Write a checkpoint of a pass over a small file, which ends after ``stop`` rows."""
    rows = path.with_name("rows.npy")
    np.save(rows, np.random.default_rng(0).normal(size=(10_000, 6)) + 5)
    os.utime(rows, ns=(10**18, 10**18))

    def end(progress: Any) -> None:
        if progress.rows > stop:
            raise _StopError

    interval, checkpoint._INTERVAL = checkpoint._INTERVAL, 0.0  # save after every block
    try:
        with suppress(_StopError), watching(end):
            resume_pass(path, {})
    finally:
        checkpoint._INTERVAL = interval


CHECKPOINTS = [lambda path: _checkpoint(path, 5_000), lambda path: _checkpoint(path, 10_000)]
# One line for each kind of file.
KINDS = {
    "model": Kind("a.standout", MODELS, read=load_model, sealed=True, count=20_000),
    "model, checksums corrected": Kind("a.standout", MODELS, damage.model_resealed, read=load_model),
    "checkpoint": Kind("a.checkpoint", CHECKPOINTS, read=resume_pass, sealed=True),
    "checkpoint, checksums corrected": Kind("a.checkpoint", CHECKPOINTS, damage.checkpoint_resealed, read=resume_pass),
    "npy": Kind("a.npy", [lambda path: np.save(path, ROWS), lambda path: np.save(path, np.asfortranarray(ROWS))]),
    "npz": Kind("a.npz", [
        lambda path: np.savez(path, rows=ROWS, labels=np.arange(12), names=np.array(NAMES)),
        lambda path: np.savez_compressed(path, rows=ROWS),
    ], damage.zipped),
    "npz, sparse": Kind("a.npz", [
        lambda path, form=form: sparse.save_npz(path, sparse.csr_array(ROWS).asformat(form), compressed=False)
        for form in ("csr", "csc", "coo", "dia", "bsr")
    ], damage.zipped, IN_MEMORY),
    "csv": Kind("a.csv", [lambda path: path.write_bytes(TEXT)], options=TABLE),
    "tsv": Kind("a.tsv", [lambda path: FRAME.to_csv(path, index=False, sep="\t")], options=TABLE),
    "txt": Kind("a.txt", [lambda path: FRAME.to_csv(path, index=False, sep=";", decimal=",")], options=TABLE),
    "csv, UTF-16": Kind("a.csv", [lambda path: path.write_bytes(TEXT.decode().encode("utf-16"))], options=TABLE),
    "csv.gz": Kind("a.csv.gz", [lambda path: path.write_bytes(GZIP[0](TEXT))], damage.packed(*GZIP), TABLE),
    "csv.bz2": Kind("a.csv.bz2", [lambda path: path.write_bytes(BZ2[0](TEXT))], damage.packed(*BZ2), TABLE),
    "csv.xz": Kind("a.csv.xz", [lambda path: path.write_bytes(XZ[0](TEXT))], damage.packed(*XZ), TABLE),
    "csv.zst": Kind("a.csv.zst", [lambda path: path.write_bytes(_zst(TEXT))], damage.packed(_zst, _un_zst), TABLE),
    "csv.zip": Kind("a.csv.zip", [lambda path: path.write_bytes(ZIP)], damage.zipped, TABLE),
    "xlsx": Kind("a.xlsx", [_xlsx], damage.zipped, TABLE),
    "parquet": Kind("a.parquet", [lambda path: FRAME.to_parquet(path, row_group_size=20)], options=TABLE),
    "parquet, vectors": Kind("a.parquet", [
        lambda path: _vectors(path, pa.list_(pa.float32())),
        lambda path: _vectors(path, pa.list_(pa.float64(), 5)),
    ], options=LABELLED),
    "feather": Kind("a.feather", [
        lambda path: pa.feather.write_feather(pa.Table.from_pandas(FRAME), path, chunksize=20),
        lambda path: _arrow(path, pa.ipc.new_file),
    ], options=TABLE),
    "arrow stream": Kind("a.arrow", [lambda path: _arrow(path, pa.ipc.new_stream)], options=TABLE),
    "h5": Kind("a.h5", [_hdf5, lambda path: _hdf5(path, libver="latest")]),
    "h5, structures": Kind("a.h5", [
        partial(_structures, libver=libver, how=how) for libver in ("earliest", "v110", "latest") for how in range(4)
    ], damage.linked, options=({"key": "g/rows"}, {"key": "g/rows", "memory": 0})),
    "h5ad, structures": Kind("a.h5ad", [
        lambda path: _h5ad(path, ROWS),
        lambda path: _h5ad(path, sparse.csr_matrix(ROWS), compression="gzip"),
    ], damage.linked, options=({}, {"memory": 0}, {"label": "c"})),
    "loom, structures": Kind("a.loom", [
        _loom,
        lambda path: _loom(path, libver="latest"),
    ], damage.linked, options=LABELLED),
    "10x HDF5, structures": Kind("a.h5", [
        lambda path: _cell_ranger(path, 3),
        lambda path: _cell_ranger(path, 2),
    ], damage.linked),
    "mat 7.3, structures": Kind("a.mat", [
        lambda path: _mat73(path, ROWS),
        lambda path: _mat73(path, sparse.csc_array(ROWS)),
    ], damage.linked, options=LABELLED),
    "h5ad": Kind("a.h5ad", [
        lambda path: _h5ad(path, ROWS),
        lambda path: _h5ad(path, sparse.csr_matrix(ROWS)),
        lambda path: _h5ad(path, sparse.csc_matrix(ROWS)),
    ], options=({}, {"memory": 0}, {"label": "c"})),
    "10x HDF5": Kind("a.h5", [lambda path: _cell_ranger(path, 3), lambda path: _cell_ranger(path, 2)]),
    "loom": Kind("a.loom", [_loom, lambda path: _loom(path, libver="latest")], options=LABELLED),
    "mat, 5": Kind("a.mat", [
        lambda path: _mat(path, VARIABLES),
        lambda path: _mat(path, VARIABLES, do_compression=True),
        lambda path: _mat(path, {**VARIABLES, "X": sparse.csc_array(ROWS)}),
    ], options=({}, {"label": "kind"})),
    "mat, 7.3": Kind("a.mat", [
        lambda path: _mat73(path, ROWS),
        lambda path: _mat73(path, sparse.csc_array(ROWS)),
    ], options=LABELLED),
    "zarr, zip": Kind("a.zarr", [_zarr_zip], damage.zipped),
    "zarr": Kind("a.zarr", [
        lambda path: zarr.create_array(path, data=ROWS, chunks=(4, 2), zarr_format=2),
        lambda path: zarr.create_array(path, data=ROWS, chunks=(4, 2), zarr_format=3),
    ], damage.damaged_text_or_json),
    "mtx": Kind("a.mtx", [
        lambda path: scipy_io.mmwrite(path, sparse.coo_array(ROWS)),
        lambda path: scipy_io.mmwrite(path, ROWS),
    ], options=IN_MEMORY),
    "mtx.gz": Kind("a.mtx.gz", [lambda path: path.write_bytes(_packed_mtx())], damage.packed(*GZIP), IN_MEMORY),
    "gct": Kind("a.gct", [lambda path, text=text: path.write_bytes(text) for text in GCT], options=IN_MEMORY),
    "gct.gz": Kind("a.gct.gz", [lambda path: path.write_bytes(GZIP[0](GCT[1]))], damage.packed(*GZIP), IN_MEMORY),
    "PLINK": Kind("a.bed", [_plink], beside=(".bim", ".fam")),
    "cube, npy": Kind("a.npy", [lambda path: np.save(path, ROWS.reshape(3, 4, 5))], options=CUBE),
    "cube, mat 5": Kind("a.mat", [lambda path: _mat(path, {"X": ROWS.reshape(3, 4, 5)})], options=CUBE[:1]),
    "cube, mat 7.3": Kind("a.mat", [lambda path: _mat73(path, ROWS.reshape(3, 4, 5))], options=CUBE),
}  # fmt: skip


def _failing(fail: Callable[[], Any]) -> Kind:
    """Return a kind of which every damaged file fails."""
    intact = b"0123456789"

    def read(path: Path, _: Mapping[str, Any]) -> str:
        return "0" * 64 if path.read_bytes() == intact else fail()

    return Kind("a.bin", [lambda path: path.write_bytes(intact)], _inverted, IN_MEMORY, read, sealed=True)


def _inverted(_: np.random.Generator, whole: bytes) -> bytes:
    return whole[::-1]


def _loop() -> Any:
    while True:
        pass


def _raise(error: Exception) -> Any:
    raise error


# Failures that the fuzzer must notice.
FAULTS = {
    "changed": _failing(lambda: "1" * 64),
    "unclear": _failing(lambda: _raise(StandoutError("it\nis bad"))),
    "exception": _failing(lambda: _raise(KeyError("a"))),
    "crash": _failing(os.abort),
    "hang": _failing(_loop),
    "memory": _failing(lambda: str(np.ones(10**8).sum() * 0)[:0] + "0" * 64),
}
