"""From a path to a source: what kind of file it is, and who reads it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from glob import has_magic, iglob
from importlib import import_module
from pathlib import Path
from typing import Any

from standout.errors import InputError, MissingExtraError, StandoutWarning, did_you_mean, listed, warn_user
from standout.sources.files.inside import readable
from standout.sources.files.options import Options
from standout.sources.files.resume import Resumption
from standout.sources.files.source import Stream
from standout.sources.files.stamp import Stamped
from standout.sources.source import Source

# Suffix → (module, function). Tables are read from one file or from many with the same columns.
_TABLES = {
    ".csv": ("csv", "open_csv"),
    ".tsv": ("csv", "open_csv"),
    ".txt": ("csv", "open_csv"),
    ".parquet": ("arrow", "open_parquet"),
    ".pq": ("arrow", "open_parquet"),
    ".feather": ("arrow", "open_feather"),
    ".arrow": ("arrow", "open_feather"),
}
_MATRICES = {
    ".npy": ("npy", "open_npy"),
    ".npz": ("npy", "open_npz"),
    ".h5": ("hdf5", "open_hdf5"),
    ".hdf5": ("hdf5", "open_hdf5"),
    ".h5ad": ("h5ad", "open_h5ad"),
    ".zarr": ("zarr", "open_zarr"),
    ".mtx": ("mtx", "open_mtx"),
}
SUFFIXES = (*_TABLES, *_MATRICES)
_PACKED = (".gz",)


def open_path(given: str | bytes | os.PathLike[Any], options: Options, role: str) -> Source:
    """Return the source of a file, a directory of tables, or a pattern such as ``runs/*.parquet``."""
    if os.fsdecode(given) == "-":
        raise InputError(f"{role}: -: standard input is not read, as data are read more than once. Give a file.")
    path = Path(os.fsdecode(given)).expanduser()
    where = f"{role}: {path}"
    with readable(where, "a file"):
        paths = _files(path, where)
    kind = _kind(paths, where)
    files = Stamped.of(paths, where)
    if kind in _TABLES:
        return _as_opened(_reader(_TABLES[kind], where)(paths, path, options, role), files, options, role)
    if len(paths) > 1:
        raise InputError(
            f"{where}: {len(paths)} files of the kind {kind}, and only tables ({', '.join(_TABLES)}) are read as one "
            "dataset. Give one file."
        )
    return _as_opened(_reader(_MATRICES[kind], where)(paths[0], options, role), files, options, role)


def _as_opened(source: Any, files: Stamped, options: Options, role: str) -> Source:
    """Have passes know their files and, where it was asked for, be kept; what is in memory has been read already."""
    if isinstance(source, Stream):
        source.layout = replace(source.layout, files=files)
    if options.checkpoint is not None and isinstance(source, Stream):
        resumption = Resumption(options.checkpoint, files, options)
        resumption.check(role)
        source.layout = replace(source.layout, resumption=resumption)
    elif options.checkpoint is not None:
        warn_user(
            f"{role}: the checkpoint {options.checkpoint} is not used: the numbers fit the memory allowed, are read "
            "once and kept there. Leave checkpoint= out, or give less memory=.",
            StandoutWarning,
        )
    found: Source = source
    return found


def has_names(given: str | os.PathLike[Any]) -> bool:
    """Tell whether files of this kind always name their columns."""
    path = Path(given).expanduser()
    return (path.is_dir() and path.suffix != ".zarr") or _suffix(path) in (*_TABLES, ".h5ad")


def _files(path: Path, where: str) -> tuple[Path, ...]:
    """Return the files meant, in the order of their names."""
    if path.is_dir() and path.suffix != ".zarr":
        found = sorted(p for p in path.rglob("*") if p.is_file() and _suffix(p) in _TABLES and p.name[0] not in "._")
        if not found:
            raise InputError(f"{where}: this directory holds no tables. Give one with {listed(tuple(_TABLES))} files.")
        return tuple(found)
    if path.exists():
        return (path,)
    if has_magic(str(path)):
        matched = sorted(Path(name) for name in iglob(str(path), recursive=True))
        if matched:
            return tuple(matched)
        raise InputError(f"{where}: no file matches this pattern. Check the path.")
    label = where.startswith("background") and not path.suffix
    hint = " If it is a label, say in which column with --by (or where=)." if label else ""
    raise InputError(f"{where}: there is no such file.{_neighbour(path)}{hint} Check the path.")


def _neighbour(path: Path) -> str:
    if not path.parent.is_dir():
        return f" Neither is there a directory {str(path.parent)!r}."
    return did_you_mean(path.name, [file.name for file in path.parent.iterdir()])


def _suffix(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and (suffixes[-1] in _PACKED or suffixes[-2:] == [".zarr", ".zip"]):
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _kind(paths: tuple[Path, ...], where: str) -> str:
    kinds = sorted({_suffix(path) for path in paths})
    unknown = [kind for kind in kinds if kind not in SUFFIXES]
    if unknown:
        raise InputError(
            f"{where}: files of the kind {unknown[0]!r} are not known. Use one of {', '.join(SUFFIXES)} "
            "(tables may be packed with .gz)."
        )
    if len(kinds) > 1:
        raise InputError(f"{where}: files of several kinds ({', '.join(kinds)}). Give files of one kind.")
    return kinds[0]


def _reader(home: tuple[str, str], where: str) -> Callable[..., Source]:
    module, function = home
    try:
        reader: Callable[..., Source] = getattr(import_module(f"standout.sources.files.{module}"), function)
    except ImportError as error:
        how = "pip install 'standout[anndata]'" if module == "h5ad" else "pip install 'standout[io]'"
        raise MissingExtraError(
            f"{where}: reading this kind of file needs {error.name}. Install it with: {how}"
        ) from error
    return reader
