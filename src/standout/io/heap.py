"""HDF5 files with damaged heaps of text are refused, where the HDF5 library would never return.

Text of variable length (attributes, names, ids) is stored in *global heaps*, collections of objects with their sizes.
HDF5 steps from one object to the next, and on the spot for ever if a damaged size makes the step zero; nothing can
interrupt it. So texts and attributes are read through a :class:`HeapCheckedFile`, which checks a heap when HDF5 reads
it. A reference to a heap holds the length of its text, and HDF5 allocates that much before it looks into the heap:
these lengths are compared with the size of the file first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from standout.io.arrays import Store

# Signature and version of a heap, which is searched for in all metadata, as HDF5 may read it with what is before it and
# keep it in its cache. Text with these bytes, the last of which is a control character, is not expected.
# The size of the heap follows at byte 8, and its first object at byte 16.
_HEAP = b"GCOL\x01"
_HEAP_START = 16
# An object: its index (0: free space), number of references, reserved bytes, and size, in 8 or 4 bytes.
_OBJECTS = {8: struct.Struct("<H6xQ"), 4: struct.Struct("<H6xI4x")}
_OVERFLOW = 2**64  # HDF5 adds up sizes in 8 bytes
# Larger reads are of data, not of metadata, and begin with no heap.
_METADATA_BYTES = 2**20
# A reference: length of the text, address of the heap and index in it.
_REFERENCE = np.dtype([("length", "<u4"), ("address", "<u8"), ("index", "<u4")])


class HeapCheckedFile(FileIO):
    """A file for h5py, in which reading a heap that would make HDF5 loop is an error."""

    def __init__(self, path: Path):
        super().__init__(path)
        start = self.read(16) or b""
        # The size of lengths is at byte 14 of the first versions of the format, and at byte 10 of later ones.
        length = start[10 if start[8] > 1 else 14] if len(start) == 16 else 8
        self._object = _OBJECTS.get(length, _OBJECTS[8])
        self._checked: set[int] = set()

    def readinto(self, buffer: Any) -> int:
        address = self.tell()
        count = part = super().readinto(buffer) or 0
        while part and count < len(buffer):  # a read returns at most 2 GB
            part = super().readinto(memoryview(buffer)[count:]) or 0
            count += part
        if count <= _METADATA_BYTES:
            first = max(address - len(_HEAP) + 1, 0)  # a signature may begin in the bytes before
            content = self._at(first, address - first) + bytes(buffer[:count])
            place = content.find(_HEAP)
            while place >= 0:
                self._check(first + place)
                place = content.find(_HEAP, place + 1)
            self.seek(address + count)
        return count

    def _at(self, address: int, size: int) -> bytes:
        self.seek(address)
        return self.read(size) or b""

    def _check(self, address: int) -> None:
        """Raise OSError for a heap with a step of no length. HDF5 itself reports all other damage."""
        if address in self._checked:
            return
        size = int.from_bytes(self._at(address + 8, 8 if self._object is _OBJECTS[8] else 4), "little")
        heap, place, read = self._at(address, min(size, 2**31)), _HEAP_START, self._object.unpack_from
        stop = len(heap) - _HEAP_START
        while place <= stop:
            index, step = read(heap, place)
            if index:
                step = (step + 16 + 7) & -8
                if step >= _OVERFLOW:
                    step -= _OVERFLOW
            if step == 0:
                raise OSError("a heap of text is damaged")
            place += step
        self._checked.add(address)


@contextmanager
def open_checked(path: Path) -> Iterator[Any]:
    """Open an HDF5 file to read its attributes and texts."""
    # Opened as usual, too: errors are the usual ones, and the file is locked against other programs that write to it.
    with h5py.File(path, "r"), HeapCheckedFile(path) as file, h5py.File(file, "r") as root:
        yield root


class HDF5Store(Store):
    """An HDF5 file. Numbers have no heaps, and are read as usual, which is faster."""

    def open(self, numbers: bool = False) -> AbstractContextManager[Any]:
        return h5py.File(self.path, "r") if numbers else open_checked(self.path)

    def check(self, item: Any) -> None:
        parts = [item]
        if isinstance(item, h5py.Group):
            item.visititems(lambda _, part: parts.append(part))
        for array in parts:
            if isinstance(array, h5py.Dataset) and array.shape is not None:
                self.check_size(array)
                _check_text(array, self.path)


def _check_text(array: Any, path: Path) -> None:
    """Raise ValueError if an array holds references to texts that are longer than the file."""
    text = h5py.check_string_dtype(array.dtype)
    offset = None if text is None or text.length is not None else array.id.get_offset()  # None also for data in chunks
    if offset is not None:
        references = np.fromfile(path, _REFERENCE, array.size, offset=offset)
        if (references["length"] > path.stat().st_size).any():
            raise ValueError("a text claims to be longer than the file")
