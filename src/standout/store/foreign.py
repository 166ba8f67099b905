"""Files that are no models, told by their first bytes: what they are, and what to do with them."""

from __future__ import annotations

_FIT = "Fit the model and save it with standout.save."
_DATA = "Use standout.read for data, and give load a file that standout.save wrote."
_PICKLE = (
    "and pickles are never loaded, since loading one can run any code. Fit the model and save it with standout.save."
)
_STARTS = (
    (b"PK\x03\x04", f"a zip archive (an npz or the like), but none that standout.save wrote. {_DATA}"),
    (b"\x93NUMPY", f"an array in numpy's format. {_DATA}"),
    (b"\x89HDF", f"an HDF5 file. {_DATA}"),
    (b"PAR1", f"a parquet file. {_DATA}"),
    (b"\x1f\x8b", f"packed with gzip; if joblib packed it, it is a pickle, {_PICKLE}"),
    (b"\x78", f"packed with zlib; if joblib packed it, it is a pickle, {_PICKLE}"),
    (b"BZh", f"packed with bzip2; if joblib packed it, it is a pickle, {_PICKLE}"),
    (b"\xfd7zXZ", f"packed with xz; if joblib packed it, it is a pickle, {_PICKLE}"),
)
_PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"ccopy_reg\n")
_TEXT = frozenset({9, 10, 13, *range(32, 127), *range(128, 256)})


def what_it_is(head: bytes) -> str:
    r"""Say what a file that is no model is instead, by its first bytes, with a remedy.

    Examples
    --------
    >>> what_it_is(b"")
    'it is empty. Fit the model and save it with standout.save.'
    >>> what_it_is(b"name,weight\r\n")
    'it is a text file. Use standout.read for data, and give load a file that standout.save wrote.'
    """
    if not head:
        return f"it is empty. {_FIT}"
    if head.startswith(_PICKLES):
        return f"it is a {'joblib' if b'joblib' in head else 'pickle'} file, {_PICKLE}"
    text = set(head) <= _TEXT  # "x,y" also begins with the byte of zlib
    for start, what in _STARTS:
        if head.startswith(start) and not text:
            return f"it is {what}"
    if text:
        return f"it is a text file. {_DATA}"
    return f"it is not a model. {_DATA}"
