"""Saving and loading of fitted estimators: a JSON header and arrays in one file, validated, without pickle.

An estimator is converted to a header and arrays, and back. The parts of a model read from a file are checked for
consistency, which holds for every fitted model but not for every file.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from stat import S_ISREG
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from standout._cpca import CPCA, ContrastiveModel
from standout._dpca import DPCA
from standout._inputs import label_list
from standout._kernel_dpca import KernelDPCA
from standout._kernel_model import KERNELS, Kernel, KernelModel, Landmarks
from standout._model import Model
from standout._model_values import (
    RECORDS,
    Content,
    Decoder,
    Encoder,
    MalformedError,
    pack,
    peek,
    seems_ours,
    unpack,
    what_it_is,
)
from standout._moments import Counts
from standout._path import SubspacePath
from standout._version import __version__
from standout.errors import InputError, ModelFileError, StandoutError, did_you_mean, listed
from standout.io.output import check_writable, replacing
from standout.solvers.solution import Note, Signal

# A new field, kind or meaning requires a new format number; earlier formats remain readable.
# 2: the scale of the features of a kernel (absent in format 1, where kernels use unscaled rows).
FORMAT = 2
# Placeholder for the names in a model if they are the feature names of the estimator, to avoid storing them twice.
_SAME = "feature_names_in"
_OUTPUTS = (None, "default", "pandas", "polars")
_HEADER: dict[str, Any] = {
    "standout": str,
    "estimator": str,
    "created": str,
    "about": dict | None,
    "parameters": dict,
    "output": str | None,
    "n_features_in": int,
    "feature_names_in": list | None,
    "model_names": list | str | None,
    "model": dict,
}
_WHAT = "model file"
_AGAIN = "Use another copy of it, or fit the model and save it again."


def check_model(model: Any, kind: type[Model], n_features: int) -> None:
    """Raise an error for a model of another kind, or with a part whose type, shape or range is invalid."""
    _need(type(model) is kind, "its model is of another kind")
    columns, shown = n_features, n_features
    if isinstance(model, KernelModel):
        columns, shown = _check_landmarks(model.landmarks, n_features), 0
        _need(model.used is None and model.signal is None, "a kernel has no features")
    _check_arrays(model, columns, shown)
    _check_numbers(model)
    _check_counts(model)
    _check_notes(model.notes)
    if model.used is not None:
        _places(model.used, n_features)
        _need(bool((np.diff(model.used) > 0).all()), "the features that take part are not in order")
    if model.signal is not None:
        _check_signal(model.signal, n_features)
    if isinstance(model, ContrastiveModel):
        _need(isinstance(model.alpha, float), "alpha is no number")
        if model.path is not None:
            _check_path(model.path, model.n_components, n_features)


def _need(condition: bool, otherwise: str) -> None:
    if not condition:
        raise MalformedError(otherwise)


def _floats(array: Any, shape: Sequence[int], *, finite: bool = True, least: float = -math.inf) -> None:
    """Check an array of floats; ``least`` is the smallest value allowed."""
    _need(isinstance(array, np.ndarray) and array.dtype == np.float64, "an array is not one of floats")
    _need(array.shape == tuple(shape), f"an array has shape {array.shape} in the place of {tuple(shape)}")
    _need(not finite or bool(np.isfinite(array).all()), "an array has values that are not finite")
    _need(not (array < least).any(), "an array has values that are not possible")


def _places(array: Any, limit: int) -> None:
    """Check a non-empty array of indices below a limit."""
    whole = isinstance(array, np.ndarray) and array.dtype.kind == "i" and array.ndim == 1 and len(array) > 0
    _need(whole and array.min() >= 0 and array.max() < limit, "an array of positions points outside")


def _check_arrays(model: Model, columns: int, shown: int) -> None:
    _need(isinstance(model.ratios, np.ndarray) and model.ratios.ndim == 1, "the ratios are no list of numbers")
    count = len(model.ratios)
    _floats(model.components, (count, columns))
    _floats(model.patterns, (count, shown), finite=False)
    for ratios in (model.ratios, model.unshrunk_ratios, model.debiased_ratios):
        _floats(ratios, (count,), finite=False)
    for variance in (model.target_variance, model.background_variance):
        _floats(variance, (count,), finite=False, least=0.0)
    _floats(model.mean, (columns,))
    _floats(model.scale, (columns,), least=np.nextafter(0, 1))


def _check_numbers(model: Model) -> None:
    for value in (model.noise_edge, model.p_value, model.shrinkage, model.background_units):
        _need(isinstance(value, float), "a number of the model is not one")
    _need(_is_count(model.rank), "the rank is no whole number")
    _need(
        isinstance(model.regime, str) and model.regime in ("exact", "structural", "shrunk"), "the regime is not known"
    )
    _need(isinstance(model.solver, str), "the solver has no name")


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and 0 <= int(value) < 2**63


def _check_counts(model: Model) -> None:
    named = model.background_counts
    pairs = isinstance(named, tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in named)
    _need(pairs and all(isinstance(name, str) for name, _ in named), "the backgrounds have no names")
    _floats(model.mix, (len(named),), least=0.0)
    for counts in (model.target_counts, *(counts for _, counts in named)):
        _need(isinstance(counts, Counts) and _is_count(counts.rows), "rows are not counted")
        for value in (counts.weight, counts.effective, counts.units):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            _need(number and 0 <= value < math.inf, "rows are not counted")


def _check_notes(notes: Any) -> None:
    _need(isinstance(notes, tuple), "the notes are no list")
    for note in notes:
        valid = isinstance(note, Note) and isinstance(note.text, str) and isinstance(note.category, type)
        _need(valid, "a note is not one")


def _check_signal(signal: Any, n_features: int) -> None:
    _need(isinstance(signal, Signal) and np.ndim(signal.gains) == 1, "the signal is not one")
    _floats(signal.gains, (len(signal.gains),))
    _floats(signal.filters, (n_features, len(signal.gains)))
    _floats(signal.patterns, (n_features, len(signal.gains)))


def _check_path(path: Any, count: int, n_features: int) -> None:
    _need(
        isinstance(path, SubspacePath) and isinstance(path.over, str) and path.over in ("alpha", "shrinkage"),
        "the path is not one",
    )
    _need(isinstance(path.values, np.ndarray) and path.values.ndim == 1, "the path has no values")
    steps = len(path.values)
    _floats(path.values, (steps,))
    _floats(path.components, (steps, count, n_features))
    _floats(path.similarity, (steps, steps))
    _places(path.labels, steps)
    _need(len(path.labels) == steps, "a step of the path has no label")
    _places(path.representatives, steps)


def _check_landmarks(landmarks: Any, n_features: int) -> int:
    """Check landmarks and their kernel, and return the number of landmarks."""
    _need(isinstance(landmarks, Landmarks) and isinstance(landmarks.kernel, Kernel), "the landmarks are not there")
    rows, kernel = landmarks.rows, landmarks.kernel
    _need(isinstance(rows, np.ndarray) and rows.ndim == 2 and len(rows) > 0, "the landmarks are no rows")
    _floats(rows, (len(rows), n_features))
    if landmarks.scale is not None:
        _floats(landmarks.scale, (n_features,), least=np.nextafter(0, 1))
    numbers = all(isinstance(value, float) and math.isfinite(value) for value in (kernel.gamma, kernel.coef0))
    known = isinstance(kernel.kind, str) and kernel.kind in KERNELS
    _need(known and numbers and _is_count(kernel.degree) and kernel.degree > 0, "the kernel is not known")
    return len(rows)


Estimator = DPCA | CPCA | KernelDPCA


class _Kind(NamedTuple):
    estimator: type[Estimator]
    model: type[Model]


_KINDS = {
    "DPCA": _Kind(DPCA, Model),
    "CPCA": _Kind(CPCA, ContrastiveModel),
    "KernelDPCA": _Kind(KernelDPCA, KernelModel),
}


def content_of(estimator: Any, about: dict[str, Any] | None) -> Content:
    """Return the file content for a fitted estimator."""
    name = type(estimator).__name__
    if name not in _KINDS or type(estimator) is not _KINDS[name].estimator:
        raise InputError(
            f"a {name} cannot be kept in a model file, only {listed(list(_KINDS))} can. Give one of these, fitted; of "
            "a pipeline, give its step."
        )
    model, names = _with_signal(estimator, estimator._solved()), estimator._names()
    arrays: dict[str, NDArray[Any]] = {}
    header = {
        "format": FORMAT,
        "standout": __version__,
        "estimator": name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "about": _checked_about(about),
        "parameters": _parameters(estimator, arrays),
        "output": getattr(estimator, "_sklearn_output_config", {}).get("transform"),
        "n_features_in": int(estimator.n_features_in_),
        "feature_names_in": names,
        "model_names": _SAME if names is not None and model.names == names else model.names,
        "model": Encoder(arrays, RECORDS).encode(replace(model, names=None), "model"),
    }
    return Content(header, arrays)


def _with_signal(estimator: Estimator, model: Model) -> Model:
    """Return the model with its signal for denoising, otherwise computed from moments, which are not saved."""
    if not isinstance(estimator, DPCA):
        return model
    try:
        return replace(model, signal=estimator._denoiser().signal)
    except StandoutError:  # moments may not suffice where rows did; denoising then uses the components
        return model


def _checked_about(about: Any) -> Any:
    try:
        if about is None or isinstance(about, dict):
            return json.loads(json.dumps(about, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        pass
    raise InputError("about: not made of plain values. Give a dict of text, finite numbers, lists and dicts of them.")


def _parameters(estimator: Estimator, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    given = estimator.get_params(deep=False)
    codes = {name: Encoder(arrays).encode(value, f"parameters.{name}") for name, value in given.items()}
    type(estimator)(**given)._check_parameters()  # parameters may have been changed since the fit
    return codes


def check_header(header: dict[str, Any]) -> None:
    """Raise an error for a header of a newer format, of an unknown estimator, or with missing entries."""
    version = str(header.get("standout"))
    number = header.get("format")
    if type(number) is not int or number < 1:
        raise MalformedError("its header has no format")
    if number > FORMAT:
        raise ModelFileError(
            f"standout {version} wrote it in format {number}, and this is standout {__version__}, which reads formats "
            f"up to {FORMAT}. Install standout {version} or newer: pip install --upgrade standout"
        )
    for key, kind in _HEADER.items():
        if key not in header or not isinstance(header[key], kind):
            raise MalformedError(f"its header has no {key}")
    if header["estimator"] not in _KINDS:
        raise ModelFileError(
            f"it holds a {header['estimator']}, and standout {__version__} knows only {listed(list(_KINDS))}. Install "
            f"standout {version}, which wrote it."
        )


def estimator_of(content: Content) -> Estimator:
    """Return the fitted estimator stored in a file, or raise MalformedError."""
    check_header(content.header)
    try:
        # Comparing and converting arbitrary file content should not issue warnings.
        with np.errstate(all="ignore"):
            return _estimator(content.header, dict(content.arrays))
    except MalformedError:
        raise
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise MalformedError("some of its values are not possible") from error


def _estimator(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Estimator:
    kind, n_features = _KINDS[header["estimator"]], int(header["n_features_in"])
    estimator = kind.estimator(**_decoded_parameters(header["parameters"], kind.estimator, n_features, arrays))
    estimator._check_parameters()
    if not all(label is None or np.isscalar(label) for label in label_list(estimator.background_label)):
        raise MalformedError("a background label is not one")
    model = Decoder(arrays, RECORDS).decode(header["model"])
    if arrays:
        raise MalformedError("some of its arrays belong to nothing")
    check_model(model, kind.model, n_features)
    names, of_model = _names(header["feature_names_in"], n_features), header["model_names"]
    if model.used is not None and names is None:
        raise MalformedError("the features that take part have no names")
    if header["output"] not in _OUTPUTS:
        raise MalformedError("its kind of output is not known")
    estimator.set_output(transform=header["output"])
    estimator.n_features_in_ = n_features
    if names is not None:
        estimator.feature_names_in_ = np.array(names, dtype=object)
    estimator._model = replace(model, names=names if of_model == _SAME else _names(of_model, n_features))
    return estimator


def _decoded_parameters(
    codes: dict[str, Any], kind: type[Estimator], n_features: int, arrays: dict[str, NDArray[Any]]
) -> dict[str, Any]:
    if not set(codes) <= set(kind._get_param_names()):
        raise MalformedError("some of its parameters are not known")
    parameters = {name: Decoder(arrays).decode(code) for name, code in codes.items()}
    if any(sparse.issparse(value) and value.shape != (n_features, n_features) for value in parameters.values()):
        raise MalformedError("the graph is not one of its features")
    return parameters


def _names(given: Any, n_features: int) -> tuple[str, ...] | None:
    if given is None:
        return None
    if not isinstance(given, list) or len(given) != n_features or not all(isinstance(name, str) for name in given):
        raise MalformedError("its features are not named one by one")
    return tuple(given)


__all__ = ["header", "load", "save"]


def save(estimator: Any, path: str | os.PathLike[str], *, about: dict[str, Any] | None = None) -> Path:
    """Write a fitted estimator to a file.

    The file holds the complete fitted state except the moments: a loaded estimator gives bit-identical results, but
    does not support further batches. The file is written atomically, under a temporary name and renamed, so an
    existing file is either replaced completely or left unchanged.

    Parameters
    ----------
    estimator : DPCA, CPCA or KernelDPCA
        Fitted estimator; if batches were added since the last solution, it is solved first.
    path : str or path-like
        The file, for instance ``model.standout``; any name is allowed.
    about : dict, optional
        JSON-serialisable metadata (for instance the origin of the data), returned by :func:`header`.

    Returns
    -------
    pathlib.Path
        The file written.

    Examples
    --------
    >>> import numpy as np, standout, tempfile
    >>> from standout import load, save
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
        estimator_of(unpack(blob))  # never replace a readable file by an unreadable one
    except MalformedError as error:
        raise InputError(
            f"the model cannot be kept: {error}. Fit it again, and leave its arrays as they are."
        ) from error
    with replacing(wanted, _WHAT) as draft:
        draft.write_bytes(blob)
    return wanted


def load(path: str | os.PathLike[str]) -> Estimator:
    """Read a fitted estimator from a file that :func:`save` wrote.

    Nothing in the file is executed or imported, so untrusted files can be loaded: at worst an error is raised.
    Corruption is detected by a checksum before anything is decoded.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    DPCA, CPCA or KernelDPCA
        The saved estimator: every method and fitted attribute gives bit-identical results. It has no moments, so
        ``partial_fit`` cannot continue from it; ``fit`` can be called as usual.

    Examples
    --------
    >>> import numpy as np, standout, tempfile
    >>> from standout import load, save
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
    """Return the header of a model file, without reading its arrays.

    Parameters
    ----------
    path : str or path-like
        A file that :func:`save` wrote.

    Returns
    -------
    dict
        The header as in the JSON: ``estimator``, ``parameters``, ``n_features_in``, ``feature_names_in``, ``standout``
        (the version that wrote it), ``format``, ``created``, ``about``, ``model`` (all but its arrays) and ``arrays``
        (type and shape of each).

    Examples
    --------
    >>> import numpy as np, standout, tempfile
    >>> from standout._model_file import header, save
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
    """Open a file that appears to be a model, and add the file name to errors."""
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
    with suppress(OSError):  # a directory may be accessible but not listable
        near = [file.name for file in path.parent.iterdir()]
    return did_you_mean(path.name, near)
