"""A fitted estimator as a header and arrays, and back."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from standout._version import __version__
from standout.errors import InputError, ModelFileError, StandoutError, listed
from standout.estimators.cpca import CPCA, ContrastiveModel
from standout.estimators.dpca import DPCA
from standout.estimators.kernel import KernelDPCA
from standout.estimators.kernel_model import KernelModel
from standout.inputs import label_list
from standout.model import Model
from standout.store.checks import check_model
from standout.store.container import Content, MalformedError
from standout.store.values import RECORDS, Decoder, Encoder

# A new field, kind or meaning is a new format; earlier formats can still be read.
# 2: the scale of a kernel's features (files of format 1 have none: their kernels use rows as given).
FORMAT = 2

Estimator = DPCA | CPCA | KernelDPCA


class _Kind(NamedTuple):
    estimator: type[Estimator]
    model: type[Model]


_KINDS = {
    "DPCA": _Kind(DPCA, Model),
    "CPCA": _Kind(CPCA, ContrastiveModel),
    "KernelDPCA": _Kind(KernelDPCA, KernelModel),
}
# Stands for the names in a model where they are those of the estimator's features: there may be many.
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


def content_of(estimator: Any, about: dict[str, Any] | None) -> Content:
    """Return what a file is to hold of a fitted estimator."""
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
    """Return the model with what denoising needs, which is otherwise found from moments: a file keeps none."""
    if not isinstance(estimator, DPCA):
        return model
    try:
        return replace(model, signal=estimator._denoiser().signal)
    except StandoutError:  # moments may know less than the rows of the fit did: denoising then uses the components
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
    type(estimator)(**given)._check_parameters()  # they may have been changed since the fit
    return codes


def check_header(header: dict[str, Any]) -> None:
    """Refuse the header of a newer format, of an estimator that is not known, or without what belongs to it."""
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
    """Return the fitted estimator that a file holds, or raise MalformedError."""
    check_header(content.header)
    try:
        # What a file may hold is compared and converted here, which is no reason to warn.
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
