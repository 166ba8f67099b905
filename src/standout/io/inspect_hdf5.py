"""A script that looks into HDF5 files: paths on stdin, one line of JSON for each on stdout.

The HDF5 library crashes or never returns in some damaged files, and nothing in the same process can prevent it. This
process reads what may do so (objects, attributes, text, indices of chunks) before :mod:`standout.io.hdf5` reads it, and
ends if a step takes too long. It imports h5py alone, to start quickly.
"""

from __future__ import annotations

import faulthandler
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import h5py

# Seconds for one step, on a busy machine or a slow disk; usually it takes microseconds.
_SECONDS = 5
# Bytes that a file may take, and for each of its bytes.
_MEMORY, _MEMORY_PER_BYTE = 2**26, 100
_COPY = "Copy the data into one file, for instance with h5py: file.copy(..., expand_external=True)"
_TRUSTING = {h5py.h5z.FILTER_FLETCHER32, h5py.h5z.FILTER_SZIP, h5py.h5z.FILTER_NBIT, h5py.h5z.FILTER_SCALEOFFSET}
_ROWS = 2**14  # rows of text that are read in one step
_ANY_CLAIM, _MAX_EXPANSION = 10**7, 10_000  # arrays of text that claim more bytes are not read: their reader refuses it


class _RefusedError(Exception):
    """A file that must not be read."""


def main() -> None:
    """Inspect files until stdin ends."""
    _answer("ready")
    for line in sys.stdin:
        path = json.loads(line)
        found: dict[str, Any] = {}
        try:
            _step()
            _limit_memory(os.path.getsize(path))
            found["external"] = _inspected(path)
        except _RefusedError as error:
            found["refused"] = str(error)
        except Exception as error:  # of the structure: there may be more that was not read
            found["error"] = str(error)
        _step(end=True)
        _answer(found)


def _answer(found: Any) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def _limit_memory(size: int) -> None:
    """Limit the memory of this process for a file of ``size`` bytes."""
    with suppress(ImportError, OSError, ValueError):  # on systems without this limit
        import resource

        with open("/proc/self/statm") as status:
            used = int(status.read().split()[0]) * resource.getpagesize()
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY + _MEMORY_PER_BYTE * size, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


_deadline = 0.0


def _step(end: bool = False) -> None:
    """Restart the clock, or stop it at the end; when it runs out, the process ends, even within HDF5."""
    global _deadline
    if end:
        faulthandler.cancel_dump_traceback_later()
        _deadline = 0.0
    elif time.monotonic() > _deadline - _SECONDS / 2:  # it takes a tenth of a millisecond
        _deadline = time.monotonic() + _SECONDS
        faulthandler.dump_traceback_later(_SECONDS, exit=True)


def _inspected(path: str, may_refer: bool = True) -> list[str]:
    """Read all that is not numbers, and return the external links; data in other files must be beside this one."""
    external: list[str] = []
    size = os.path.getsize(path)

    def look(_: str, item: Any) -> None:
        _step()
        with _skipping_errors():
            if isinstance(item, h5py.Dataset):
                _check_place(item, path, may_refer)
                _look_up_chunks(item)
                _decode_chunks(item)
                _read_text(item, size)
            for attribute in item.attrs if h5py.h5a.get_num_attrs(item.id) else ():
                with _skipping_errors():
                    item.attrs[attribute]

    def find(name: bytes, link: Any) -> None:
        if link.type == h5py.h5l.TYPE_EXTERNAL:
            external.append(name.decode(errors="replace"))

    with h5py.File(path, "r") as root:
        look("", root)
        root.visititems(look)
        root.id.links.visit(find, info=True)
    return external


@contextmanager
def _skipping_errors() -> Iterator[None]:
    """Ignore errors, but of memory: many files have types that h5py does not know."""
    try:
        yield
    except _RefusedError:
        raise
    except Exception as error:
        if isinstance(error, MemoryError) or "memory" in str(error):
            problem = "a text claims to be longer than the file. It is damaged: give an intact copy"
            raise _RefusedError(problem) from error


def _check_place(array: Any, path: str, may_refer: bool) -> None:
    """Refuse arrays whose numbers are somewhere else, except of virtual arrays in files of the same directory."""
    created = array.id.get_create_plist()
    if created.get_external_count():
        raise _RefusedError(f"{array.name} is stored in another file ({array.external[0][0]}). {_COPY}")
    for source in array.virtual_sources() if created.get_layout() == h5py.h5d.VIRTUAL else ():
        name, folder = source.file_name, os.path.dirname(path)
        if name == ".":
            safe = may_refer and not array.file[source.dset_name].is_virtual
        else:
            other = os.path.normpath(os.path.join(folder, name))
            safe = may_refer and os.path.dirname(other) == folder and os.path.isfile(other)
            safe = safe and not _inspected(other, may_refer=False)
        if not safe:
            problem = f"{array.name} refers to {name}, and not to an array in a file of its directory"
            raise _RefusedError(f"{problem}. {_COPY}")


def _look_up_chunks(array: Any) -> None:
    """Go through the index of chunks, and look up the first and the last; one chunk may be larger than the memory."""
    if array.chunks:
        corners = [0] * array.ndim, [(n - 1) // c * c for n, c in zip(array.shape, array.chunks, strict=True)]
        with suppress(Exception):
            array.id.get_num_chunks()
        for corner in corners:
            with suppress(Exception):
                array.id.read_direct_chunk(tuple(corner))


def _decode_chunks(array: Any) -> None:
    """Decode all numbers with a filter that trusts the sizes in the file; most files have none."""
    created = array.id.get_create_plist()
    corners: list[tuple[int, ...]] = []
    if array.chunks and _TRUSTING & {created.get_filter(i)[0] for i in range(created.get_nfilters())}:
        array.id.chunk_iter(lambda chunk: corners.append(chunk.chunk_offset))
    for corner in corners:
        _step()
        with suppress(Exception):
            array[tuple(slice(start, start + size) for start, size in zip(corner, array.chunks, strict=True))]


def _read_text(array: Any, size: int) -> None:
    """Read text of variable length and references."""
    kind, dtype, shape = array.id.get_type().get_class(), array.dtype, array.shape
    text = h5py.check_string_dtype(dtype)
    has_heap = kind in (h5py.h5t.STRING, h5py.h5t.VLEN, h5py.h5t.REFERENCE) and (text is None or text.length is None)
    if has_heap and shape is not None and array.nbytes <= _ANY_CLAIM + _MAX_EXPANSION * size:
        rows = max(1, _ROWS // max(1, math.prod(shape[1:])))
        for start in range(0, shape[0] if shape else 1, rows):
            _step()
            found = array[start : start + rows] if shape else array[()]
            for reference in found.flat if dtype == h5py.ref_dtype else ():
                array.file[reference].shape  # noqa: B018


if __name__ == "__main__":
    main()
