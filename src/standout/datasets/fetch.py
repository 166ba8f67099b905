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

# Seconds between two signs of life, and until a silent server is given up.
_PULSE = 0.5
_SILENCE = 30.0


@dataclass(frozen=True)
class Public:
    """A public dataset: its names, the files that are understood, and how a download is kept."""

    title: str
    files: str  # for messages: what a directory may hold
    openml: str
    version: int
    keep: Callable[[Any, Path], None]  # check what fetch_openml gave, and write it into a directory
    columns: tuple[str, ...] | None = None  # of OpenML's table, those that are not features

    @property
    def remedy(self) -> str:
        """What to do when it is not there, or not what it should be."""
        return f"Give a directory that holds {self.files}, as data_dir or in the environment variable STANDOUT_DATA."


def obtain(
    public: Public,
    data_dir: str | os.PathLike[str] | None,
    read: Callable[[Path], T | None],
    progress: Callable[[Progress], None] | None = None,
) -> T:
    """Return what ``read`` makes of the first directory that has the dataset; download it if none has."""
    looked_in = []
    for folder in _folders(data_dir):
        found = read(folder)
        if found is not None:
            return found
        looked_in.append(folder)
    with watching(progress) if progress is not None else nullcontext():
        kept = _download(public, looked_in)
    found = read(kept)
    assert found is not None, "what was kept from a download is read by its own reader"
    return found


def _folders(data_dir: str | os.PathLike[str] | None) -> Iterator[Path]:
    """Yield the directories to look in; one that was named must be there."""
    for named, how in ((data_dir, "data_dir"), (os.environ.get("STANDOUT_DATA"), "STANDOUT_DATA")):
        if named:
            folder = Path(named).expanduser()
            if not folder.is_dir():
                found = f"{folder} is a file, not a directory" if folder.exists() else f"there is no directory {folder}"
                raise InputError(f"{how}: {found}. Give a directory that holds the data, or none.")
            yield folder
    yield _cache()


def _cache(make: bool = False) -> Path:
    """Return where downloads are kept: beside those of scikit-learn."""
    from sklearn.datasets import get_data_home

    try:
        kept = Path(get_data_home()) / "standout"
        if make:
            kept.mkdir(exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"cache: the directory of scikit-learn's data, or standout in it, cannot be made ({error}). Name another "
            "in the environment variable SCIKIT_LEARN_DATA, or give data_dir."
        ) from error
    return kept


def _download(public: Public, looked_in: list[Path]) -> Path:
    """Fetch the dataset from OpenML and keep it in the cache, where ``read`` finds it the next time."""
    kept = _cache(make=True)  # before the download, which would be in vain without it
    try:
        bunch = _with_signs_of_life(lambda: _fetch(public), f"{public.openml} from OpenML")
    except Exception as error:  # a network and a parser fail in many ways; what to do is always the same
        why = getattr(error, "reason", None) or str(error) or type(error).__name__
        raise DataMissingError(
            f"{public.title} was not found in {', '.join(map(str, looked_in))}, and could not be downloaded from "
            f"OpenML ({public.openml}, version {public.version}): {why}. {public.remedy}"
        ) from error
    try:
        public.keep(bunch, kept)
    except StandoutError:
        raise
    except Exception as error:  # what an answer lacks shows wherever it is first used
        raise DataMissingError(
            f"{public.openml} of OpenML, version {public.version}: the answer is not understood "
            f"({type(error).__name__}: {error}). {public.remedy}"
        ) from error
    return kept


def _fetch(public: Public) -> Any:
    from sklearn.datasets import fetch_openml

    silence = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_SILENCE)  # fetch_openml itself would wait for ever
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on retries, and on asking for the column of the row names
            return fetch_openml(
                public.openml,
                version=public.version,
                target_column=list(public.columns) if public.columns else "default-target",
                as_frame=False,
                parser="pandas" if find_spec("pandas") else "liac-arff",
                n_retries=1,
                delay=0.5,
            )
    finally:
        socket.setdefaulttimeout(silence)


def _with_signs_of_life(work: Callable[[], T], what: str) -> T:
    """Do the work in a thread, and report again and again that it goes on: nobody knows how long it is."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    report(what, 0)
    Thread(target=run, daemon=True).start()  # a daemon, so that Ctrl-C need not wait for the server
    while not wait([done], timeout=_PULSE).done:
        report(what, 0)
    return done.result()


def first_file(folder: Path, names: Iterable[str]) -> Path | None:
    """Return the first of these files that the directory holds."""
    return next((folder / name for name in names if (folder / name).is_file()), None)


def identified(paths: Iterable[Path]) -> str:
    """Name files and the beginning of their sha256, without the directory they are in."""
    return ", ".join(f"{path.name} (sha256 {digest(path)[:12]})" for path in paths)


def digest(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
