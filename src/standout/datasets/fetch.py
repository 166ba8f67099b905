"""Find a public dataset in ``data_dir``, ``STANDOUT_DATA`` or the cache, or download it from OpenML."""

from __future__ import annotations

import hashlib
import os
import socket
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from standout.errors import DataMissingError, InputError, OutputError, StandoutError
from standout.io.source import Progress, report, watching

T = TypeVar("T")

# Seconds between two progress reports, and until a server that does not answer times out.
_INTERVAL = 0.5
_TIMEOUT = 30.0


@dataclass(frozen=True)
class Public:
    """A public dataset: its names, its files, and how a download is cached."""

    title: str
    files: str  # that a directory may hold, for messages
    openml: str
    version: int
    keep: Callable[[Any, Path], None]  # check the result of fetch_openml and write it to a directory
    columns: tuple[str, ...] | None = None  # of OpenML's table that are not features

    @property
    def remedy(self) -> str:
        """What to do if the dataset is missing or wrong."""
        return f"Give a directory that holds {self.files}, as data_dir or in the environment variable STANDOUT_DATA."


def obtain(
    public: Public,
    data_dir: str | os.PathLike[str] | None,
    read: Callable[[Path], T | None],
    progress: Callable[[Progress], None] | None = None,
) -> T:
    """Read the dataset from the first directory that has it; download it if none has.

    ``read`` takes a directory and returns the dataset, or None if the directory does not have it.
    """
    searched = []
    for folder in _folders(data_dir):
        if (found := read(folder)) is not None:
            return found
        searched.append(str(folder))
    cache = _cache(make=True)  # before the download, which is useless without it
    with watching(progress) if progress is not None else nullcontext():
        _download(public, cache, searched)
    found = read(cache)
    assert found is not None, "a cached download must be readable"
    return found


def _folders(data_dir: str | os.PathLike[str] | None) -> Iterator[Path]:
    """Yield the directories to search; those that the user names must exist."""
    for named, role in ((data_dir, "data_dir"), (os.environ.get("STANDOUT_DATA"), "STANDOUT_DATA")):
        if named:
            folder = Path(named).expanduser()
            if not folder.is_dir():
                found = f"{folder} is a file, not a directory" if folder.exists() else f"there is no directory {folder}"
                raise InputError(f"{role}: {found}. Give a directory that holds the data, or none.")
            yield folder
    yield _cache()


def _cache(make: bool = False) -> Path:
    """Return the cache directory, inside the data directory of scikit-learn."""
    from sklearn.datasets import get_data_home

    try:
        folder = Path(get_data_home()) / "standout"
        if make:
            folder.mkdir(exist_ok=True)
    except OSError as error:
        remedy = "Name another in the environment variable SCIKIT_LEARN_DATA, or give data_dir."
        raise OutputError(f"cache: scikit-learn's data directory cannot be created ({error}). {remedy}") from error
    return folder


def _download(public: Public, cache: Path, searched: list[str]) -> None:
    """Download the dataset from OpenML to the cache, and report progress."""
    done: Future[Any] = Future()

    def run() -> None:
        try:
            done.set_result(_fetch(public))
        except BaseException as error:
            done.set_exception(error)

    Thread(target=run, daemon=True).start()  # a daemon does not block Ctrl-C
    report(f"{public.openml} from OpenML", 0)
    while not wait([done], timeout=_INTERVAL).done:
        report(f"{public.openml} from OpenML", 0)
    server = f"OpenML ({public.openml}, version {public.version})"
    try:
        bunch = done.result()
    except Exception as error:  # networks and parsers fail in many ways, with the same remedy
        reason = getattr(error, "reason", None) or str(error) or type(error).__name__
        found = f"{public.title} was not found in {', '.join(searched)}"
        raise DataMissingError(
            f"{found}, and could not be downloaded from {server}: {reason}. {public.remedy}"
        ) from error
    try:
        public.keep(bunch, cache)
    except StandoutError:
        raise
    except Exception as error:  # malformed data can fail anywhere
        reason = f"{type(error).__name__}: {error}"
        raise DataMissingError(f"{server}: the response is malformed ({reason}). {public.remedy}") from error


def _fetch(public: Public) -> Any:
    from sklearn.datasets import fetch_openml

    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_TIMEOUT)  # fetch_openml has no timeout
    columns = list(public.columns) if public.columns else "default-target"
    parser = "pandas" if find_spec("pandas") else "liac-arff"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about retries and about the row identifier as a target
            return fetch_openml(
                public.openml, version=public.version, target_column=columns, as_frame=False, parser=parser,
                n_retries=1, delay=0.5,
            )  # fmt: skip
    finally:
        socket.setdefaulttimeout(before)


def first_file(folder: Path, names: Iterable[str]) -> Path | None:
    """Return the first of these files that exists in the directory."""
    return next((folder / name for name in names if (folder / name).is_file()), None)


def identified(paths: Iterable[Path]) -> str:
    """Return the names of files with the start of their sha256."""
    return ", ".join(f"{path.name} (sha256 {digest(path)[:12]})" for path in paths)


def digest(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
