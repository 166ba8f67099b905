"""Grey images with labels: the container, the checks against published counts, and npz files."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout.errors import InputError, listed
from standout.io.output import replacing


@dataclass(frozen=True)
class Images:
    """Grey images with their labels, and which belong to the test set of their collection.

    Examples
    --------
    >>> import numpy as np
    >>> some = Images(np.zeros((3, 2, 2), np.uint8), np.array([6, 9, 6]), np.array([False, False, True]))
    >>> some.only([6]).is_test
    array([False,  True])
    """

    images: NDArray[np.uint8]  # (n, side, side)
    labels: NDArray[np.int64]  # (n,)
    is_test: NDArray[np.bool_]  # (n,)
    source: str = ""  # the files they were read from

    def only(self, labels: object) -> Images:
        """Return the images with these labels, in their original order."""
        chosen = np.isin(self.labels, np.asarray(labels))
        return Images(self.images[chosen], self.labels[chosen], self.is_test[chosen], self.source)


def check_collection(found: Images, side: int, counts: Mapping[int, tuple[int, int]], what: str, remedy: str) -> Images:
    """Return the images, or raise if their size, number or labels are not as expected.

    ``counts`` has the number of training and test images of each label; ``what`` names the file in errors.
    """
    images = found.images
    if images.dtype != np.uint8 or images.shape[1:] != (side, side):
        raise InputError(
            f"{what}: images of shape {images.shape} and type {images.dtype}, where (n, {side}, {side}) and uint8 "
            f"were expected. {remedy}"
        )
    labels, is_test = (
        one_for_each(images, values, name, what, remedy)
        for values, name in ((found.labels, "labels"), (found.is_test, "is_test"))
    )
    found = Images(images, labels, is_test.astype(bool), found.source)
    seen = {name: (_count(found, name, False), _count(found, name, True)) for name in np.unique(found.labels).tolist()}
    for label in sorted(seen.keys() | counts.keys()):
        here, known = seen.get(label, (0, 0)), counts.get(label, (0, 0))
        if here != known:
            raise InputError(
                f"{what}: {here[0]} training and {here[1]} test images of label {label}, where {known[0]} and "
                f"{known[1]} were expected. {remedy}"
            )
    return found


def one_for_each(images: NDArray[Any], values: NDArray[Any], name: str, what: str, remedy: str) -> NDArray[np.int64]:
    """Return the values as integers, or raise unless there is one integer for each image."""
    if values.ndim != 1 or values.shape != images.shape[:1] or values.dtype.kind not in "biu":
        raise InputError(
            f"{what}: {name} of shape {values.shape} and type {values.dtype} for images of shape {images.shape}, where "
            f"one whole number for each was expected. {remedy}"
        )
    return values.astype(np.int64)


def _count(found: Images, label: int, test: bool) -> int:
    return int(np.sum((found.labels == label) & (found.is_test == test)))


def read_npz(path: Path, names: Sequence[str], remedy: str) -> list[NDArray[Any]]:
    """Return these arrays of an npz file, or raise an error that describes the problem."""
    try:
        # Opened here, because numpy does not close a file that is not an archive.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            missing = [name for name in names if name not in archive]
            if missing:
                raise InputError(f"{path}: holds {listed(list(archive))}, but not {listed(missing)}. {remedy}")
            return [archive[name] for name in names]
    except (OSError, ValueError, EOFError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: cannot be read as an npz file ({error}). {remedy}") from error


def write_npz(path: Path, **arrays: NDArray[Any]) -> None:
    """Write arrays to the cache."""
    with replacing(path, "cache") as draft, draft.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
