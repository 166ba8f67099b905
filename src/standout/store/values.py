"""Values of parameters and models as JSON, and back: a closed list of kinds, so that no file can ask for more.

JSON's own values stand for themselves. Everything else is an object with one key, its kind: ``{"tuple": [...]}``,
``{"array": name}`` for numbers, which are kept beside the header, and so on. Records are the dataclasses a model
is made of; parameters may not hold any.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from standout import errors
from standout.errors import InputError, StandoutWarning, listed
from standout.estimators.cpca import ContrastiveModel
from standout.estimators.kernel_model import KernelModel
from standout.kernels import KERNELS, Kernel, Landmarks
from standout.model import Model
from standout.moments import Counts
from standout.paths import Path
from standout.solve import Note
from standout.solve.signal import Signal
from standout.store.container import MalformedError, can_hold, is_shape

RECORDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (Model, ContrastiveModel, KernelModel, Signal, Path, Landmarks, Kernel, Counts, Note)
}
_WARNINGS = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, StandoutWarning)
}
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
# The arrays a sparse matrix is made of; formats that have none of their own are kept as CSR.
_SPARSE = {
    "csr": ("data", "indices", "indptr"),
    "csc": ("data", "indices", "indptr"),
    "coo": ("data", "row", "col"),
    "dia": ("data", "offsets"),
}
_AS_CSR = ("bsr", "dok", "lil")
_CLASSES = {f"{form}_{kind}" for form in (*_SPARSE, *_AS_CSR) for kind in ("array", "matrix")}
# An array of text gives every entry the room of the longest: a short file could ask for a lot of it.
_MOST_TEXT = 2**22


@dataclass
class Encoder:
    """Writes values as JSON; arrays of numbers are put aside under names, and records are taken where allowed."""

    arrays: dict[str, NDArray[Any]]
    records: Mapping[str, Any] = field(default_factory=dict)

    def encode(self, value: Any, name: str) -> Any:
        """Return a value as JSON; ``name`` is its place, for its arrays and for messages."""
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if kind is list:
            return self._items(value, name)
        if kind is tuple:
            return {"tuple": self._items(value, name)}
        if kind is dict:
            return {"dict": [self._items(pair, f"{name}.{i}") for i, pair in enumerate(value.items())]}
        if kind is np.ndarray:
            return self._array(value, name)
        if kind is np.str_:
            return {"scalar": ["U", str(value)]}
        if isinstance(value, np.generic) and can_hold(value.dtype.str):
            return {"scalar": [value.dtype.str, self.encode(value.item(), name)]}
        if sparse.issparse(value) and value.ndim == 2 and can_hold(value.dtype.str):
            return {"sparse": self._sparse(value, name)}
        if self.records.get(kind.__name__) is kind:
            own = {item.name: self.encode(getattr(value, item.name), f"{name}.{item.name}") for item in fields(value)}
            return {"record": [kind.__name__, own]}
        if self.records and isinstance(value, type) and value in _WARNINGS.values():
            return {"warning": value.__name__}
        raise _refused(value, name)

    def _items(self, values: Any, name: str) -> list[Any]:
        return [self.encode(value, f"{name}.{i}") for i, value in enumerate(values)]

    def _array(self, value: NDArray[Any], name: str) -> Any:
        if value.dtype.kind in "OU":
            items = self._items(value.ravel().tolist(), name)
            return {"labels": [value.dtype.kind, list(value.shape), items]}
        if not can_hold(value.dtype.str):
            raise _refused(value, name)
        self.arrays[name] = value
        return {"array": name}

    def _sparse(self, value: Any, name: str) -> list[Any]:
        kind = f"{value.format}_{'array' if isinstance(value, sparse.sparray) else 'matrix'}"
        kept = value.tocsr() if value.format in _AS_CSR else value
        parts = {part: self._array(getattr(kept, part), f"{name}.{part}") for part in _SPARSE[kept.format]}
        return [kind, [int(n) for n in value.shape], parts]


def _refused(value: Any, name: str) -> InputError:
    where = name.split(".")[1]
    what = f"an array of type {value.dtype}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
    if where == "kernel":
        what, remedy = "a function", f"Use one of the kernels {listed(KERNELS)} for a model that is to be kept."
    elif isinstance(value, np.random.Generator | np.random.RandomState):
        remedy = f"Call set_params({where}=0), or another whole number: the fit stays as it is."
    else:
        remedy = f"Call set_params({where}=...) with numbers, text, lists, dicts or numpy arrays of the same meaning."
    return InputError(f"{where}: a model file cannot hold {what}. {remedy}")


@dataclass
class Decoder:
    """Reads values from JSON; each array can be taken once, and records only where they are allowed."""

    arrays: dict[str, NDArray[Any]]
    records: Mapping[str, Any] = field(default_factory=dict)

    def decode(self, code: Any) -> Any:
        """Return the value that some JSON stands for, or raise MalformedError."""
        if code is None or isinstance(code, bool | int | float | str):
            return code
        if isinstance(code, list):
            return [self.decode(item) for item in code]
        if not isinstance(code, dict) or len(code) != 1:
            raise MalformedError("a value is of no known kind")
        ((kind, content),) = code.items()
        known: dict[str, Callable[[Any], Any]] = {
            "float": _float, "tuple": self._tuple, "dict": self._dict, "array": self._array, "labels": self._labels,
            "scalar": self._scalar, "sparse": self._sparse,
        }  # fmt: skip
        if self.records:
            known |= {"record": self._record, "warning": _warning}
        if kind not in known:
            raise MalformedError("a value is of no known kind")
        return known[kind](content)

    def _tuple(self, content: Any) -> tuple[Any, ...]:
        return tuple(self.decode(_list(content)))

    def _dict(self, content: Any) -> dict[Any, Any]:
        return dict(self.decode([_list(pair, 2) for pair in _list(content)]))

    def _array(self, content: Any) -> NDArray[Any]:
        if not isinstance(content, str) or content not in self.arrays:
            raise MalformedError("an array is missing")
        return self.arrays.pop(content)

    def _labels(self, content: Any) -> NDArray[Any]:
        kind, shape, items = _list(content, 3)
        values = self.decode(_list(items))
        if kind not in ("O", "U") or not is_shape(shape) or math.prod(shape) != len(values):
            raise MalformedError("labels do not fit their shape")
        if kind == "U":
            if not all(isinstance(value, str) and len(value) * len(values) <= _MOST_TEXT for value in values):
                raise MalformedError("labels are not text, or too long")
            return np.array(values, dtype=str).reshape(shape)
        array = np.empty(len(values), dtype=object)
        for i, value in enumerate(values):
            array[i] = value
        return array.reshape(shape)

    def _scalar(self, content: Any) -> Any:
        code, value = _list(content, 2)
        value = self.decode(value)
        if code == "U" and isinstance(value, str):
            return np.str_(value)
        if not can_hold(code) or not isinstance(value, bool | int | float):
            raise MalformedError("a number is of no known type")
        return np.dtype(code).type(value)

    def _sparse(self, content: Any) -> Any:
        name, shape, parts = _list(content, 3)
        form = str(name).partition("_")[0]
        kept = "csr" if form in _AS_CSR else form
        if name not in _CLASSES or not is_shape(shape) or len(shape) != 2 or not isinstance(parts, dict):
            raise MalformedError("a sparse matrix is of no known kind")
        if set(parts) != set(_SPARSE[kept]):
            raise MalformedError("a sparse matrix lacks a part")
        data, *index = (self.decode(parts[part]) for part in _SPARSE[kept])
        if not isinstance(data, np.ndarray) or not all(isinstance(part, np.ndarray) for part in index):
            raise MalformedError("a sparse matrix is not made of arrays")
        if any(part.dtype.kind != "i" or part.ndim != 1 for part in index):
            raise MalformedError("a sparse matrix has places that are no whole numbers")
        matrix = _made(kept, name.endswith("array"), data, index, tuple(shape))
        return matrix.asformat(form)

    def _record(self, content: Any) -> Any:
        name, codes = _list(content, 2)
        if not isinstance(name, str) or name not in self.records or not isinstance(codes, dict):
            raise MalformedError("a record is of no known kind")
        kind = self.records[name]
        own = {item.name: item for item in fields(kind)}
        needed = {name for name, item in own.items() if item.default is MISSING}
        if not needed <= set(codes) <= set(own):
            raise MalformedError(f"a {name} has other fields than are known")
        return kind(**{name: self.decode(code) for name, code in codes.items()})


def _made(form: str, is_array: bool, data: NDArray[Any], index: list[NDArray[Any]], shape: tuple[int, ...]) -> Any:
    """Return a sparse matrix of its parts, all of whose places lie inside it."""
    make = getattr(sparse, f"{form}_{'array' if is_array else 'matrix'}")
    if form == "coo":
        return make((data, (index[0], index[1])), shape=shape)
    if form == "dia":
        if data.ndim != 2 or ((index[0] <= -max(shape)) | (index[0] >= max(shape))).any():
            raise MalformedError("a sparse matrix has diagonals outside itself")
        return make((data, index[0]), shape=shape)
    matrix = make((data, index[0], index[1]), shape=shape)
    matrix.check_format(full_check=True)
    return matrix


def _list(content: Any, length: int | None = None) -> list[Any]:
    if not isinstance(content, list) or (length is not None and len(content) != length):
        raise MalformedError("a list is missing or of another length")
    return content


def _float(content: Any) -> float:
    if not isinstance(content, str) or content not in _NOT_FINITE:
        raise MalformedError("a number is not one")
    return _NOT_FINITE[content]


def _warning(content: Any) -> type[StandoutWarning]:
    if not isinstance(content, str) or content not in _WARNINGS:
        raise MalformedError("a warning is of no known kind")
    return _WARNINGS[content]
