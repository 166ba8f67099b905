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
from io import BytesIO
from pathlib import Path
from stat import S_ISREG
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from standout._cpca import CPCA, ContrastiveModel, SubspacePath
from standout._dpca import DPCA
from standout._inputs import label_list
from standout._kernel_dpca import KernelDPCA
from standout._kernel_model import KERNELS, Kernel, KernelModel, Landmarks
from standout._model import Model
from standout._model_values import RECORDS, Decoder, Encoder, MalformedError, pack, peek, unpack
from standout._moments import Counts
from standout._version import __version__
from standout.errors import InputError, ModelFileError, StandoutError, did_you_mean, listed
from standout.io.output import check_writable, replacing
from standout.solvers.solution import Note, Signal

__all__ = ["header", "load", "save"]

# A new field, kind or meaning requires a new format number; earlier formats remain readable.
# 2: the scale of the features of a kernel (absent in format 1, where kernels use unscaled rows).
FORMAT = 2
# Placeholder for the names in a model if they are the feature names of the estimator, to avoid storing them twice.
_SAME = "feature_names_in"
_OUTPUTS = (None, "default", "pandas", "polars")
_HEADER: dict[str, Any] = {
    "standout": str, "estimator": str, "created": str, "about": dict | None, "parameters": dict, "output": str | None,
    "n_features_in": int, "feature_names_in": list | None, "model_names": list | str | None, "model": dict,
}  # fmt: skip
_WHAT = "model file"
_TINY = float(np.nextafter(0, 1))

Estimator = DPCA | CPCA | KernelDPCA
_KINDS: dict[str, tuple[type[Estimator], type[Model]]] = {
    "DPCA": (DPCA, Model),
    "CPCA": (CPCA, ContrastiveModel),
    "KernelDPCA": (KernelDPCA, KernelModel),
}


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

    See Also
    --------
    standout.load : Read the file.
    standout.report : Write a report on a model.

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
    target = check_writable(path, _WHAT)
    blob = pack(*_content_of(estimator, about))
    try:
        _estimator_of(*unpack(BytesIO(blob)))  # never replace a readable file by an unreadable one
    except MalformedError as error:
        raise InputError(f"the model cannot be saved: {error}. Fit it again, and do not modify its arrays.") from error
    with replacing(target, _WHAT) as draft:
        draft.write_bytes(blob)
    return target


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

    See Also
    --------
    standout.save : Write the file.
    standout.DPCA : Discriminative PCA, one of the estimators that can be saved.

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
        return _estimator_of(*unpack(file))


def header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the header of a model file as in the JSON, without reading the arrays.

    Examples
    --------
    >>> import numpy as np, standout, tempfile
    >>> from standout._model_file import header, save
    >>> rows = np.random.default_rng(0).normal(size=(50, 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = header(save(standout.DPCA(1).fit(rows), f"{folder}/model.standout", about={"by": "hand"}))
    >>> found["estimator"], found["n_features_in"], found["about"], found["arrays"]["model.components"]["shape"]
    ('DPCA', 3, {'by': 'hand'}, [1, 3])
    """
    with _opened(path) as file:
        found = peek(file)
        _check_header(found)
    return found


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file, and add its name to errors."""
    source = Path(path).expanduser()
    try:
        if not S_ISREG(source.stat().st_mode):
            what = "a directory" if source.is_dir() else "not a file"
            raise ModelFileError(f"it is {what}. Give the name of a file that standout.save wrote.")
        with source.open("rb") as file:
            yield file
    except (MalformedError, ModelFileError, OSError) as error:
        raise ModelFileError(f"{_WHAT} {source}: {_reason(error, source)}") from error


def _reason(error: Exception, path: Path) -> str:
    match error:
        case MalformedError():
            return f"it is damaged: {error}. Use another copy of it, or fit the model and save it again."
        case FileNotFoundError():
            hint = "" if path.parent.is_dir() else f" Neither is there a directory {str(path.parent)!r}."
            with suppress(OSError):  # a directory may be accessible but not listable
                hint = did_you_mean(path.name, os.listdir(path.parent))
            return f"there is no such file.{hint} Check the path."
        case PermissionError():
            return "there is no permission to read it. Ask its owner for access, or use a copy."
        case OSError():
            return f"it cannot be read ({error.strerror}). Check the path."
    return str(error)


def _content_of(estimator: Any, about: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return header and arrays of a fitted estimator."""
    name = type(estimator).__name__
    if name not in _KINDS or type(estimator) is not _KINDS[name][0]:
        raise InputError(
            f"a {name} cannot be saved in a model file, only {listed(list(_KINDS))} can. Give one of these, fitted; of "
            "a pipeline, give its step."
        )
    model, names, parameters = estimator._solved(), estimator._names(), estimator.get_params(deep=False)
    if isinstance(estimator, DPCA):
        # The signal for denoising is computed from moments, which are not saved. Where these do not suffice although
        # the rows did, denoising uses the components.
        with suppress(StandoutError):
            model = replace(model, signal=estimator._denoiser().signal)
            model = replace(model, specific_shares=getattr(estimator, "specific_variance_ratio_", None))
    arrays: dict[str, NDArray[Any]] = {}
    codes = {key: Encoder(arrays).encode(value, f"parameters.{key}") for key, value in parameters.items()}
    type(estimator)(**parameters)._check_parameters()  # parameters may have been changed since the fit
    content = {
        "format": FORMAT,
        "standout": __version__,
        "estimator": name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "about": _checked_about(about),
        "parameters": codes,
        "output": getattr(estimator, "_sklearn_output_config", {}).get("transform"),
        "n_features_in": int(estimator.n_features_in_),
        "feature_names_in": names,
        "model_names": _SAME if names is not None and model.names == names else model.names,
        "model": Encoder(arrays, RECORDS).encode(replace(model, names=None), "model"),
    }
    return content, arrays


def _checked_about(about: Any) -> Any:
    try:
        if about is None or isinstance(about, dict):
            return json.loads(json.dumps(about, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        pass
    raise InputError("about: not JSON-serialisable. Give a dict of text, finite numbers, lists and dicts of them.")


def _check_header(header: dict[str, Any]) -> None:
    """Raise an error for a header of a newer format, of an unknown estimator, or with missing entries."""
    version, number = str(header.get("standout")), header.get("format")
    if type(number) is not int or number < 1:
        raise MalformedError("its header has no format")
    if number > FORMAT:
        raise ModelFileError(
            f"standout {version} wrote it in format {number}, but standout {__version__} reads formats up to {FORMAT}. "
            f"Install standout {version} or newer: pip install --upgrade standout"
        )
    for key, kind in _HEADER.items():
        if key not in header or not isinstance(header[key], kind):
            raise MalformedError(f"its header has no {key}")
    if header["estimator"] not in _KINDS:
        raise ModelFileError(
            f"it holds a {header['estimator']}, but standout {__version__} supports only {listed(list(_KINDS))}. "
            f"Install standout {version}, which wrote it."
        )


def _estimator_of(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Estimator:
    """Return the fitted estimator stored in a file, or raise MalformedError."""
    _check_header(header)
    (kind, model_kind), n_features = _KINDS[header["estimator"]], int(header["n_features_in"])
    _need(set(header["parameters"]) <= set(kind._get_param_names()), "its parameters")
    try:
        # Comparing and converting arbitrary file content should not issue warnings.
        with np.errstate(all="ignore"):
            parameters = {name: Decoder(arrays).decode(code) for name, code in header["parameters"].items()}
            graphs = [value for value in parameters.values() if sparse.issparse(value)]
            _need(all(graph.shape == (n_features, n_features) for graph in graphs), "its graph")
            estimator = kind(**parameters)
            estimator._check_parameters()
            labels = label_list(estimator.background_label)
            _need(all(label is None or np.isscalar(label) for label in labels), "its background label")
            model = Decoder(arrays, RECORDS).decode(header["model"])
            _need(not arrays, "its list of arrays")
            _check_model(model, model_kind, n_features)
    except MalformedError:
        raise
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise MalformedError("some of its values are not valid") from error
    names, of_model = _names(header["feature_names_in"], n_features), header["model_names"]
    _need(model.used is None or names is not None, "its list of feature names")
    _need(header["output"] in _OUTPUTS, "its output container")
    estimator.set_output(transform=header["output"])
    estimator.n_features_in_ = n_features
    if names is not None:
        estimator.feature_names_in_ = np.array(names, dtype=object)
    estimator._model = replace(model, names=names if of_model == _SAME else _names(of_model, n_features))
    return estimator


def _names(given: Any, n_features: int) -> tuple[str, ...] | None:
    if given is None:
        return None
    _need(isinstance(given, list) and len(given) == n_features, "its list of feature names")
    _need(all(isinstance(name, str) for name in given), "a feature name")
    return tuple(given)


def _check_model(model: Any, kind: type[Model], n_features: int) -> None:
    """Raise an error for a model of another kind, or with a part whose type, shape or range is not valid."""
    _need(type(model) is kind, "its model")
    columns = shown = n_features
    if isinstance(model, KernelModel):
        columns, shown = _check_landmarks(model.landmarks, n_features), 0
        _need(model.used is None and model.signal is None, "its kernel model")
    count = _length(model.ratios)
    _floats((count, columns), model.components)
    _floats((count, shown), model.patterns, finite=False)
    _floats((count,), model.ratios, model.unshrunk_ratios, model.debiased_ratios, finite=False)
    _floats((count,), model.target_variance, model.background_variance, finite=False, least=0.0)
    _floats((columns,), model.mean)
    _floats((columns,), model.scale, least=_TINY)
    p_value = math.nan if model.known_p_value is None else model.known_p_value
    numbers = (
        model.noise_edge,
        model.top_ratio,
        p_value,
        model.shrinkage,
        model.background_units,
        model.total_variance,
    )
    counts = (model.rank, model.n_factors)
    _need(all(isinstance(value, float) for value in numbers) and all(map(_is_count, counts)), "a number of its model")
    _need(model.regime in ("exact", "structural", "shrunk") and isinstance(model.solver, str), "its solver")
    _need(not model.total_variance < 0, "its total variance")
    if model.specific_shares is not None:
        _floats((count,), model.specific_shares, least=0.0)
    _check_counts(model)
    _need(isinstance(model.notes, tuple) and all(isinstance(note, Note) for note in model.notes), "a note")
    for note in model.notes:
        _need(isinstance(note.text, str) and isinstance(note.category, type), "a note")
    if model.used is not None:
        _check_indices(model.used, n_features)
        _need(bool((np.diff(model.used) > 0).all()), "the order of its features")
    if model.signal is not None:
        _need(isinstance(model.signal, Signal), "its signal")
        gains = _length(model.signal.gains)
        _floats((gains,), model.signal.gains)
        _floats((n_features, gains), model.signal.filters, model.signal.patterns)
    if isinstance(model, ContrastiveModel):
        _need(isinstance(model.alpha, float), "its alpha")
        if model.path is not None:
            _check_path(model.path, count, n_features)


def _check_counts(model: Model) -> None:
    named = model.background_counts
    pairs = isinstance(named, tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in named)
    _need(pairs and all(isinstance(name, str) for name, _ in named), "the names of its backgrounds")
    _floats((len(named),), model.mix, least=0.0)
    for counts in (model.target_counts, *(counts for _, counts in named)):
        _need(isinstance(counts, Counts) and _is_count(counts.rows), "a number of rows")
        for value in (counts.weight, counts.effective, counts.units):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            _need(number and 0 <= value < math.inf, "a number of rows")


def _check_path(path: Any, count: int, n_features: int) -> None:
    _need(isinstance(path, SubspacePath) and path.over in ("alpha", "shrinkage"), "its path")
    steps = _length(path.values)
    _floats((steps,), path.values)
    _floats((steps, count, n_features), path.components)
    _floats((steps, steps), path.similarity)
    _check_indices(path.labels, steps)
    _need(len(path.labels) == steps, "a label of its path")
    _check_indices(path.representatives, steps)


def _check_landmarks(landmarks: Any, n_features: int) -> int:
    """Check landmarks and their kernel, and return the number of landmarks."""
    _need(isinstance(landmarks, Landmarks) and isinstance(landmarks.kernel, Kernel), "its list of landmarks")
    rows, kernel = landmarks.rows, landmarks.kernel
    _need(isinstance(rows, np.ndarray) and rows.ndim == 2 and len(rows) > 0, "its list of landmarks")
    _floats((len(rows), n_features), rows)
    if landmarks.scale is not None:
        _floats((n_features,), landmarks.scale, least=_TINY)
    numbers = all(isinstance(value, float) and math.isfinite(value) for value in (kernel.gamma, kernel.coef0))
    known = isinstance(kernel.kind, str) and kernel.kind in KERNELS
    _need(known and numbers and _is_count(kernel.degree) and kernel.degree > 0, "its kernel")
    return len(rows)


def _need(condition: bool, part: str) -> None:
    if not condition:
        raise MalformedError(f"{part} is not valid")


def _floats(shape: Sequence[int], *arrays: Any, finite: bool = True, least: float = -math.inf) -> None:
    """Check arrays of floats; ``least`` is the smallest value allowed."""
    for array in arrays:
        _need(isinstance(array, np.ndarray) and array.dtype == np.float64, "the type of an array")
        _need(array.shape == tuple(shape), f"the shape of an array, {array.shape} instead of {tuple(shape)},")
        if finite and not np.isfinite(array).all():
            raise MalformedError("an array has values that are not finite")
        _need(not (array < least).any(), "the range of an array")


def _check_indices(array: Any, limit: int) -> None:
    """Check a non-empty array of indices below a limit."""
    valid = isinstance(array, np.ndarray) and array.dtype.kind == "i" and array.ndim == 1 and len(array) > 0
    _need(valid and array.min() >= 0 and array.max() < limit, "an array of indices")


def _length(array: Any) -> int:
    _need(isinstance(array, np.ndarray) and array.ndim == 1, "the type of an array")
    return len(array)


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and 0 <= int(value) < 2**63
