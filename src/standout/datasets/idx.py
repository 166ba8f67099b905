"""The idx files in which MNIST was published: a magic number, the shape, and bytes."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout.datasets.images import Images
from standout.datasets.prepared import first_file, identified
from standout.errors import InputError, listed

IDX_FILES = "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte"
_UNSIGNED_BYTES = 0x08


def read_idx_folder(folder: Path, remedy: str) -> Images | None:
    """Return the images of the four files, training before test; None where none of the four is there."""
    wanted = IDX_FILES.split(", ")
    paths = [first_file(folder, _spellings(name)) for name in wanted]
    there = [path for path in paths if path is not None]
    if not there:
        return None
    if len(there) < len(wanted):
        missing = [name for name, path in zip(wanted, paths, strict=True) if path is None]
        raise InputError(
            f"{folder}: holds {listed([path.name for path in there])}, but not {listed(missing)}. {remedy}"
        )
    parts = [read_idx(path, rank, remedy) for path, rank in zip(there, (3, 1, 3, 1), strict=True)]
    for (images, labels), path in zip((parts[:2], parts[2:]), there[::2], strict=True):
        if len(images) != len(labels):
            raise InputError(f"{path}: {len(images)} images, but {len(labels)} labels. {remedy}")
        if images.shape[1:] != parts[0].shape[1:]:
            sizes = " and ".join("{}×{}".format(*part.shape[1:]) for part in parts[::2])
            raise InputError(f"{path}: training and test images have unlike sizes, {sizes}. {remedy}")
    images, labels = np.concatenate(parts[::2]), np.concatenate(parts[1::2]).astype(np.int64)
    return Images(images, labels, np.arange(len(labels)) >= len(parts[1]), identified(there))


def _spellings(name: str) -> list[str]:
    return [spelt + packed for spelt in (name, name.replace("-idx", ".idx")) for packed in ("", ".gz")]


def read_idx(path: Path, rank: int, remedy: str) -> NDArray[Any]:
    """Return the array of bytes in an idx file, packed or not."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be unpacked ({error}). {remedy}") from error
    head = 4 + 4 * rank
    if len(content) < head or content[:4] != bytes([0, 0, _UNSIGNED_BYTES, rank]):
        raise InputError(
            f"{path}: starts with {content[:4].hex() or 'nothing'}, where an idx file of bytes with {rank} "
            f"dimensions starts with {bytes([0, 0, _UNSIGNED_BYTES, rank]).hex()}. {remedy}"
        )
    shape = tuple(int(size) for size in np.frombuffer(content[4:head], ">u4"))
    expected = int(np.prod(shape, dtype=object))
    if len(content) - head != expected:
        raise InputError(f"{path}: {len(content) - head} bytes of data, where {expected} were announced. {remedy}")
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)
