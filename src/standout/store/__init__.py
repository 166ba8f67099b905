"""Saving and loading fitted estimators: arrays and a JSON header in one file, checked, never pickle."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG
from typing import Any, BinaryIO

from standout.errors import InputError, ModelFileError, did_you_mean
from standout.output import check_writable, replacing
from standout.store.container import MalformedError, pack, peek, seems_ours, unpack
from standout.store.content import Estimator, check_header, content_of, estimator_of
from standout.store.foreign import what_it_is

__all__ = ["header", "load", "save"]

_WHAT = "model file"
_AGAIN = "Use another copy of it, or fit the model and save it again."


def save(estimator: Any, path: str | os.PathLike[str], *, about: dict[str, Any] | None = None) -> Path:
    """Write a fitted estimator to a file.

    The file holds everything there is after a fit but the moments: what is loaded gives the same numbers to the
    last bit, and takes no further batches. It is written under another name and renamed, so a file that was
    there before is either replaced as a whole or left as it is.

    Parameters
    ----------
    estimator : DPCA, CPCA or KernelDPCA
        Fitted; where batches have come in since the last solution, it is solved first.
    path : str or path-like
        The file; any name will do, ``model.standout`` for instance.
    about : dict, optional
        Anything that can be written as JSON (where the data came from, by which command), for :func:`header`.

    Returns
    -------
    pathlib.Path
        The file written.

    Examples
    --------
    >>> import numpy as np, standout, tempfile
    >>> from standout.store import load, save
    >>> rng = np.random.default_rng(0)
    >>> target, background = rng.normal(size=(200, 3)) * [1, 5, 1], rng.normal(size=(300, 3))
    >>> model = standout.DPCA(1).fit(target, background=background)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = load(save(model, f"{folder}/model.standout", about={"study": "first"}))
    >>> np.array_equal(again.transform(target), model.transform(target))
    True
    """
    wanted = check_writable(path, _WHAT)
    blob = pack(content_of(estimator, about))
    try:
        estimator_of(unpack(blob))  # what cannot be read back does not take the place of what can
    except MalformedError as error:
        raise InputError(
            f"the model cannot be kept: {error}. Fit it again, and leave its arrays as they are."
        ) from error
    with replacing(wanted, _WHAT) as draft:
        draft.write_bytes(blob)
    return wanted


def load(path: str | os.PathLike[str]) -> Estimator:
    """Read a fitted estimator from a file that :func:`save` wrote.

    Nothing in the file is run or imported, so a file from anywhere may be loaded: at worst it is refused. A
    byte that has changed on the way is noticed before anything is made of it.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    DPCA, CPCA or KernelDPCA
        As it was saved: every method and fitted attribute gives the same numbers, to the last bit. It keeps no
        moments, so ``partial_fit`` cannot go on from it; ``fit`` starts anew as always.

    Examples
    --------
    >>> import numpy as np, standout, tempfile
    >>> from standout.store import load, save
    >>> rows = np.random.default_rng(0).normal(size=(50, 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(standout.DPCA(1).fit(rows), f"{folder}/model.standout").name
    ...     load(f"{folder}/model.standout")
    'model.standout'
    DPCA(n_components=1)
    """
    with _opened(path) as file:
        return estimator_of(unpack(file.read()))


def header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a model file says about itself, without reading its arrays.

    Parameters
    ----------
    path : str or path-like
        A file that :func:`save` wrote.

    Returns
    -------
    dict
        The header as JSON has it: ``estimator``, ``parameters``, ``n_features_in``, ``feature_names_in``, ``standout``
        (the version that wrote it), ``format``, ``created``, ``about``, ``model`` (all but its arrays) and ``arrays``
        (type and shape of each).

    Examples
    --------
    >>> import numpy as np, standout, tempfile
    >>> from standout.store import header, save
    >>> rows = np.random.default_rng(0).normal(size=(50, 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = header(save(standout.DPCA(1).fit(rows), f"{folder}/model.standout", about={"by": "hand"}))
    >>> found["estimator"], found["n_features_in"], found["about"]
    ('DPCA', 3, {'by': 'hand'})
    >>> found["arrays"]["model.components"]["shape"]
    [1, 3]
    """
    with _opened(path) as file:
        found = peek(file)
        check_header(found)
    return found


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open what seems to be a model, and say of which file it is when something is wrong."""
    wanted = Path(path).expanduser()
    try:
        if not S_ISREG(wanted.stat().st_mode):
            what = "a directory" if wanted.is_dir() else "not a file"
            raise ModelFileError(f"it is {what}. Give the name of a file that standout.save wrote.")
        with wanted.open("rb") as file:
            if not seems_ours(file):
                file.seek(0)
                raise ModelFileError(what_it_is(file.read(4096)))
            file.seek(0)
            yield file
    except FileNotFoundError as error:
        raise ModelFileError(f"{_WHAT} {wanted}: there is no such file.{_neighbour(wanted)} Check the path.") from error
    except PermissionError as error:
        raise ModelFileError(
            f"{_WHAT} {wanted}: there is no permission to read it. Ask its owner for it, or use a copy of your own."
        ) from error
    except MalformedError as error:
        raise ModelFileError(f"{_WHAT} {wanted}: it is damaged: {error}. {_AGAIN}") from error
    except ModelFileError as error:
        raise ModelFileError(f"{_WHAT} {wanted}: {error}") from error
    except OSError as error:
        raise ModelFileError(f"{_WHAT} {wanted}: it cannot be read ({error.strerror}). Check the path.") from error


def _neighbour(path: Path) -> str:
    if not path.parent.is_dir():
        return f" Neither is there a directory {str(path.parent)!r}."
    near: list[str] = []
    with suppress(OSError):  # a directory may let one in and not tell what is in it
        near = [file.name for file in path.parent.iterdir()]
    return did_you_mean(path.name, near)
