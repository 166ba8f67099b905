"""Interface for MNE-Python: recordings as rows, covariances as moments, components as spatial filters.

Rows are points in time, features are channels, and each epoch is an independent unit. Estimators accept Epochs, Raw,
Evoked, lists of Evoked, Covariance, and arrays of epochs × channels × times directly; the functions here add options.

Values stay in the SI units of MNE (V, T, T/m), so that recordings, arrays from ``get_data()`` and covariances can be
combined. dPCA with a background divides every channel by its background standard deviation internally, which puts
sensors of different types on a common scale. PCA and contrastive PCA do not: use ``scalings="mne"`` for them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from importlib import import_module
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from standout import errors
from standout._blas import Array
from standout._cpca import CPCA
from standout._dpca import DPCA
from standout._inputs import check_choice, check_count, is_number
from standout._moments import Moments
from standout.errors import FeatureError, InputError, did_you_mean, listed, named_features
from standout.io.memory import as_ids, checked_table
from standout.io.options import Options
from standout.io.read import as_precise
from standout.io.source import ArraySource, Source, import_extra

__all__ = ["apply", "moments", "read", "spatial_filter"]

# The types of channels that MNE calls data channels, and the classes that hold them.
_DATA_TYPES = ("mag", "grad", "eeg", "csd", "seeg", "ecog", "dbs", "hbo", "hbr", "fnirs_cw_amplitude",
    "fnirs_fd_ac_amplitude", "fnirs_fd_phase", "fnirs_od")  # fmt: skip
_INSTANCES = ("BaseEpochs", "BaseRaw", "Evoked")
_AXES = "An array of three dimensions is read as epochs × channels × times"
_SUPPORTED = "Epochs, Raw, Evoked, a list of Evoked, or an array of epochs × channels × times"
Scalings = str | Mapping[str, float] | None


def read(
    inst: Any,
    *,
    picks: Any = None,
    lags: int | Sequence[int] = 0,
    scalings: Scalings = None,
    groups: str | ArrayLike | None = None,
    reject_by_annotation: bool = True,
    role: str = "data",
) -> Source:
    """Read a recording as rows: one row for each point in time, one feature for each channel.

    Every epoch is an independent unit (``groups``), so that p-values count epochs, not samples. A continuous recording
    (Raw) and a single Evoked have no units; cut a recording into epochs with ``mne.make_fixed_length_epochs``.

    Parameters
    ----------
    inst : Epochs, Raw, Evoked, list of Evoked, or ndarray of shape (n_epochs, n_channels, n_times)
        The recording; it is not modified. Data on disk are loaded. Arrays are read as they are.
    picks : str, int, or list of these, optional
        Channels: types such as ``"eeg"`` or ``"meg"``, names, or indices. By default all data channels (MEG, EEG, sEEG,
        ECoG, DBS, fNIRS). Channels that are marked as bad are left out unless they are named.
    lags : int or sequence of int, default=0
        Delays in samples, for spatio-temporal filters: every channel also enters with the value that it had so many
        samples earlier. A number n means 0, 1, ..., n; negative delays are later values. Rows never combine
        samples of different epochs, so each epoch loses the first ``max(lags)`` points in time. A delayed channel is
        named by its delay, as in ``"Cz -8 ms"``, so that recordings with different sampling rates do not match.
    scalings : None, "mne" or dict, default=None
        Factor for each channel type. None keeps SI units. "mne" uses the units in which MNE exports data frames (µV,
        fT, fT/cm), which are of similar size. Give the same to the other functions of this module. Ratios of dPCA do
        not depend on it.
    groups : str or array-like of shape (n_epochs,), optional
        Independent unit of each epoch, by default the epoch itself: ids, or a column of ``epochs.metadata``.
    reject_by_annotation : bool, default=True
        Whether to leave out the spans of a Raw that are annotated as bad.
    role : str
        Name of the data in messages.

    Returns
    -------
    Source
        The rows, in the order of epochs and of times within an epoch. Labels are the event names of Epochs and the
        comments of Evoked, so that ``DPCA(background_label="rest").fit(epochs)`` works.

    See Also
    --------
    standout.read : Other data.

    Examples
    --------
    >>> import numpy as np
    >>> import standout
    >>> epochs = np.random.default_rng(0).normal(size=(20, 4, 100))     # as of epochs.get_data()
    >>> rows = standout.mne.read(epochs)
    >>> rows.n_rows, rows.n_features, len(set(rows.groups))
    (2000, 4, 20)
    >>> standout.mne.read(epochs, lags=2).n_features                    # delays of 0, 1 and 2 samples
    12
    """
    recording = _recording(inst, picks, scalings, reject_by_annotation, role)
    longest = max((segment.shape[1] for segment in recording.segments), default=0)
    if longest == 0:
        problem = "no samples: all epochs were dropped, or the whole recording is annotated as bad"
        raise InputError(f"{role}: {problem}. Give data with at least one good epoch.")
    delays = _checked_lags(lags, longest)
    parts = [_lagged(segment, delays) for segment in recording.segments]
    if not any(map(len, parts)):
        raise InputError(f"{role}: lags={lags!r} exceed the epochs of at most {longest} samples. Use smaller lags.")
    rows = checked_table(np.ascontiguousarray(np.concatenate(parts)), role)
    names, size = recording.names, len(recording.segments[0])
    flat = np.flatnonzero(rows.max(axis=0)[:size] == rows.min(axis=0)[:size])
    if len(flat) and len(rows) > 1:
        found = f"{len(flat)} of {size} channels are flat: {listed(named_features(names, flat))}"
        remedy = "Mark them as bad, in target and background alike" if names else f"Leave them out. {_AXES}"
        errors.warn_user(f"{role}: {found}. {remedy}.", errors.FeatureWarning)
    if names is not None:
        names = tuple(name + _delay(lag, recording.sfreq) for lag in delays for name in names)
    source, sizes = ArraySource(rows, names), [len(part) for part in parts]
    units = _units(inst, recording, groups, role)
    source.groups = None if units is None else np.repeat(units, sizes)
    if recording.labels is not None:
        source.labels = np.repeat(np.array(recording.labels, dtype=object), sizes)
    return source


def moments(
    cov: Any, info: Any = None, *, n_epochs: int | None = None, scalings: Scalings = None, role: str = "data"
) -> Moments:
    """Convert a covariance of MNE to moments, which ``fit`` takes as target or background.

    MNE divides by ``cov.nfree``, the number of samples minus one: the moments are those of ``nfree + 1`` rows with mean
    zero. Bad channels are left out. Projections are not applied: compare it with data that have the same ones applied.

    Parameters
    ----------
    cov : mne.Covariance
        As from ``mne.compute_covariance``. An ad hoc covariance has no number of samples and is refused.
    info : mne.Info, optional
        Needed with ``scalings`` only: a covariance does not record the types of its channels.
    n_epochs : int, optional
        Number of epochs that it was computed from, which p-values then count. Without it they count samples, which are
        correlated, and a :class:`standout.errors.SerialWarning` is issued.
    scalings : None, "mne" or dict, default=None
        As in :func:`standout.mne.read`.
    role : str
        Name of the data in messages.

    Returns
    -------
    Moments

    Examples
    --------
    >>> import mne
    >>> import numpy as np
    >>> import standout
    >>> cov = mne.Covariance(np.diag([4.0, 1.0]), ["Fz", "Cz"], bads=[], projs=[], nfree=499)
    >>> found = standout.mne.moments(cov, n_epochs=20)
    >>> found.names, found.rows, found.units, found.covariance(ddof=1).diagonal()
    (('Fz', 'Cz'), 500, 20.0, array([4., 1.]))
    """
    if _kind(cov) != "Covariance":
        raise InputError(f"{role}: {type(cov).__name__} is not an mne.Covariance. Use standout.mne.read instead.")
    kept = [i for i, name in enumerate(cov["names"]) if name not in cov["bads"]]
    names, count = tuple(cov["names"][i] for i in kept), int(cov["nfree"] or 0) + 1
    if not kept:
        raise InputError(f"{role}: all {len(cov['names'])} channels of the covariance are bad. Use other channels.")
    if count < 2:
        raise InputError(f"{role}: no number of samples (nfree={cov['nfree']}). Use mne.compute_covariance for it.")
    if scalings is not None and info is None:
        raise InputError(f"{role}: a covariance does not record channel types. Give `info=` too.")
    units = None
    if n_epochs is not None:
        units = frozenset(f"epoch {i} of {role}" for i in range(check_count("n_epochs", n_epochs)))
    else:
        found = f"{role}: a covariance counts {count} samples, which are correlated in time, so p-values are too small"
        errors.warn_user(f"{found}. Use standout.mne.moments(cov, n_epochs=...).", errors.SerialWarning)
    factors = np.ones(len(kept)) if info is None else _factors(info, _positions(info, names, "info"), scalings)
    matrix = np.diag(cov["data"]) if cov["diag"] else np.asarray(cov["data"])
    scatter = np.asfortranarray(matrix[np.ix_(kept, kept)] * np.outer(factors, factors) * (count - 1))
    return Moments(np.zeros(len(kept)), scatter, float(count), float(count), count, units, names)


def spatial_filter(model: DPCA | CPCA, info: Any, *, lag: int = 0, scalings: Scalings = None) -> Any:
    """Return the components of a model as a spatial filter of MNE, which plots topographies.

    Parameters
    ----------
    model : DPCA or CPCA
        Fitted to recordings.
    info : mne.Info
        Measurement info with the channels of the model and their positions; it may have more channels.
    lag : int, default=0
        For a model with delayed channels: the delay to show, in samples.
    scalings : None, "mne" or dict, default=None
        What was given to :func:`standout.mne.read`. Filters and patterns are converted to SI units.

    Returns
    -------
    mne.decoding.SpatialFilter
        With ``filters``, ``patterns`` and ``evals`` (the ratios), and ``plot_patterns()``, ``plot_filters()`` and
        ``plot_scree()``. A pattern is the change of the channels per unit of the score. Needs mne ≥ 1.11.

    Examples
    --------
    >>> import mne
    >>> import numpy as np
    >>> import standout
    >>> info = mne.create_info(["Fz", "Cz", "Pz"], sfreq=100, ch_types="eeg")
    >>> task, rest = np.random.default_rng(0).normal(size=(2, 30, 3, 100)) * 1e-6
    >>> model = standout.DPCA(2).fit(task * [[3], [1], [1]], background=rest)
    >>> standout.mne.spatial_filter(model, info).patterns.shape
    (2, 3)
    """
    _check_linear(model)
    mne, decoding = (import_extra(name, "spatial_filter", "mne") for name in ("mne", "mne.decoding"))
    if not hasattr(decoding, "SpatialFilter"):
        found = f"mne.decoding.SpatialFilter needs mne>=1.11, and {mne.__version__} is installed"
        remedy = "Install it with pip install 'mne>=1.11', or use mne.viz.plot_topomap(model.patterns_[0], info)."
        raise errors.MissingExtraError(f"spatial_filter: {found}. {remedy}")
    if not isinstance(info, mne.Info):
        raise InputError(f"info: {type(info).__name__} is not an mne.Info. Give epochs.info.")
    features, suffix = _features(model, info), _delay(lag, info["sfreq"])
    shown = [i for i, name in enumerate(features) if name.endswith(suffix) and (suffix or name[-3:] != " ms")]
    if not shown:
        raise InputError(f"lag={lag}: no feature of the model has this delay, see {listed(features)}. Use another.")
    channels = _positions(info, [features[i].removesuffix(suffix) for i in shown], "info")
    factors = _factors(info, channels, scalings)
    filters, patterns = model.components_[:, shown] * factors, model.patterns_[:, shown] / factors
    info, ratios = mne.pick_info(info, channels), np.asarray(model.ratios_)
    return decoding.SpatialFilter(info, filters, evals=ratios, patterns=patterns, patterns_method="haufe")


def apply(
    model: DPCA | CPCA, inst: Any, mode: str = "retain", *, components: Any = None, scalings: Scalings = None
) -> Any:
    """Keep only some components of a recording, or remove them.

    Parameters
    ----------
    model : DPCA or CPCA
        Fitted to recordings, without delays.
    inst : Epochs, Raw, Evoked, list of Evoked, or ndarray of shape (n_epochs, n_channels, n_times)
        The recording; it is not modified. Channels are matched by name; those not in the model are kept as they are.
    mode : "retain" or "subtract", default="retain"
        "retain" returns ``mean_ + scores @ patterns_``, that is ``inverse_transform(transform(rows))``; "subtract" the
        recording minus ``scores @ patterns_``. Their deviations from ``mean_`` add up to that of the recording.
    components : int or list of int, optional
        The components to keep or to remove, by default all of the model.
    scalings : None, "mne" or dict, default=None
        What was given to :func:`standout.mne.read`.

    Returns
    -------
    Epochs, Raw, Evoked, list of Evoked, or ndarray
        A copy of the same type.

    See Also
    --------
    standout.DPCA.denoise : The target-specific part of each row, as a Wiener estimate.

    Examples
    --------
    >>> import numpy as np
    >>> import standout
    >>> task, rest = np.random.default_rng(0).normal(size=(2, 30, 3, 100))
    >>> task[:, 0] *= 3
    >>> model = standout.DPCA(1).fit(task, background=rest)
    >>> standout.mne.apply(model, task, "subtract").std(axis=(0, 2)).round(1)
    array([0., 1., 1.])
    """
    _check_linear(model)
    check_choice("mode", mode, ("retain", "subtract"))
    every = range(model.n_components_)
    given = _listed(every if components is None else components)
    if not all(isinstance(k, Integral) and not isinstance(k, bool) and int(k) in every for k in given):
        raise InputError(f"components={components!r}: the model has {model.n_components_}. Use numbers from 0 on.")
    chosen = sorted(set(given))
    if isinstance(inst, list | tuple) and inst and all(_kind(one) == "Evoked" for one in inst):
        return [apply(model, one, mode, components=components, scalings=scalings) for one in inst]
    if isinstance(inst, np.ndarray):
        if inst.ndim != 3 or inst.shape[1] != model.n_features_in_:
            found = f"shape {inst.shape} does not fit (n_epochs, {model.n_features_in_}, n_times)"
            raise InputError(f"inst: {found}. Give the channels that the model was fitted to.")
        function = _filter(model, chosen, mode, np.ones(inst.shape[1]), slice(None))
        return as_precise(function(inst.astype(np.result_type(inst, np.float64))), inst)
    if _kind(inst) not in _INSTANCES:
        raise InputError(f"inst: unsupported type {type(inst).__name__}. Give {_SUPPORTED}.")
    channels = _positions(inst.info, _features(model, inst.info), "inst")
    function = _filter(model, chosen, mode, _factors(inst.info, channels, scalings), channels)
    result = inst.copy() if _kind(inst) == "Evoked" else inst.copy().load_data()
    return result.apply_function(function, picks="all", channel_wise=False, verbose="error")


class CovarianceSource(Source):
    """A covariance, which has no rows: estimators use its moments."""

    is_local = False

    def __init__(self, given: Moments, role: str):
        self.given, self.role = given, role
        self.n_features, self.n_rows, self.names = given.n_features, given.rows, given.names

    def blocks(self, rows: int) -> Iterator[NDArray[Any]]:  # noqa: ARG002
        """Raise an error: there are no rows."""
        raise errors.RowsNeededError(f"{self.role}: a covariance has no rows. Give the recording that it is of.")


def open_recording(data: Any, options: Options, role: str) -> Source:
    """Return the source of an MNE object, or of an array of epochs × channels × times, as given to an estimator."""
    if not options.is_default:
        what = "an array with three dimensions" if isinstance(data, np.ndarray) else f"MNE's {type(data).__name__}"
        remedy = "Use those of standout.mne.read, and drop epochs or channels with missing values"
        raise InputError(f"{role}: these options are not for {what}. {remedy}.")
    return CovarianceSource(moments(data, role=role), role) if _kind(data) == "Covariance" else read(data, role=role)


@dataclass(frozen=True)
class _Recording:
    segments: Sequence[NDArray[Any]]  # (n_channels, n_times) each: epochs, or the good spans of a continuous recording
    names: tuple[str, ...] | None = None
    sfreq: float | None = None
    labels: list[str] | None = None  # of each segment
    are_units: bool = True  # whether segments are epochs


def _kind(data: Any) -> str | None:
    """Return which of the supported classes of MNE this is an instance of; MNE itself is not imported."""
    bases = {kind.__name__ for kind in type(data).__mro__ if kind.__module__.split(".")[0] == "mne"}
    return next((name for name in (*_INSTANCES, "Covariance") if name in bases), None)


def _recording(inst: Any, picks: Any, scalings: Scalings, reject: bool, role: str) -> _Recording:
    if isinstance(inst, np.ndarray):
        if inst.ndim != 3:
            raise InputError(f"{role}: an array of shape {inst.shape}. Give epochs × channels × times.")
        if picks is not None or scalings is not None:
            raise InputError(f"{role}: picks and scalings need channel names and types. Choose the channels by index.")
        if isinstance(inst, np.ma.MaskedArray):
            checked_table(inst.reshape(len(inst), -1), role)  # raises for masked values
        return _Recording(list(np.asarray(inst)))
    parts, is_list = (list(inst), True) if isinstance(inst, list | tuple) else ([inst], False)
    wrong = [one for one in parts if _kind(one) not in (("Evoked",) if is_list else _INSTANCES)]
    if wrong or not parts:
        found = f"unsupported type {type(wrong[0]).__name__}" if wrong else "an empty list"
        found += " in a list" if wrong and is_list else ""
        raise InputError(f"{role}: {found}. Give {_SUPPORTED}.")
    info, kind = parts[0].info, _kind(parts[0])
    channels = _picked(info, picks, {name for one in parts for name in one.info["bads"]}, role)
    names = tuple(info["ch_names"][i] for i in channels)
    labels = None
    if kind == "Evoked":
        rates = sorted({one.info["sfreq"] for one in parts})
        if len(rates) > 1:
            raise InputError(
                f"{role}: Evoked with sampling rates of {listed(rates)} Hz. Make them equal with resample()."
            )
        segments = [one.data[_positions(one.info, names, f"{role}: Evoked {i}")] for i, one in enumerate(parts)]
        labels = [one.comment or "" for one in parts]
    elif kind == "BaseEpochs":
        epochs = inst if inst.preload else inst.copy().load_data()
        segments = list(epochs.get_data(picks=channels, verbose="error"))
        events = {code: name for name, code in epochs.event_id.items()}
        labels = [events.get(code, str(code)) for code in epochs.events[:, 2].tolist()]
    else:
        omit = "omit" if reject else None
        data, times = inst.get_data(picks=channels, reject_by_annotation=omit, return_times=True, verbose="error")
        samples = np.rint(times * info["sfreq"]).astype(np.intp) + inst.first_samp
        starts, joint = samples[1:][np.diff(samples) > 1], "EDGE boundary"  # as marked by mne.concatenate_raws
        if joint in inst.annotations.description:
            events = import_module("mne").events_from_annotations(inst, {joint: 1}, regexp=None, verbose="error")[0]
            starts = np.append(starts, events[:, 0])
        segments = np.split(data, np.unique(np.searchsorted(samples, starts)), axis=1)
    if scalings is not None:
        factors = _factors(info, channels, scalings)[:, None]
        segments = [segment * factors for segment in segments]
    return _Recording(segments, names, float(info["sfreq"]), labels, is_list or kind == "BaseEpochs")


def _picked(info: Any, picks: Any, bad: Collection[str], role: str) -> list[int]:
    """Return the indices of the channels to use, in the order of the recording."""
    names, types = list(info["ch_names"]), info.get_channel_types()
    found, chosen = list(dict.fromkeys(types)), set[int]()
    kinds: dict[Any, Any] = {"meg": ("mag", "grad"), "data": _DATA_TYPES}
    for pick in _listed("data" if picks is None else picks):
        wanted = kinds.get(pick, (pick,)) if isinstance(pick, str) else ()
        if pick in names or (isinstance(pick, Integral) and 0 <= int(pick) < len(names)):
            chosen.add(names.index(pick) if pick in names else int(pick))
        elif picks is None or not set(wanted).isdisjoint(found):
            chosen |= {i for i, name in enumerate(names) if types[i] in wanted and name not in bad}
        else:
            hint = f"{did_you_mean(pick, [*names, *found])} Use names, or the types {listed(found)}."
            raise InputError(f"{role}: picks: {pick!r} is neither a channel nor the type of one.{hint}")
    if not chosen:
        problem = f"no good data channels among {len(names)} of type {listed(found)} ({len(bad)} are marked as bad)"
        raise InputError(f"{role}: {problem}. Name channels or types in picks, or set their types in MNE.")
    return sorted(chosen)


def _listed(given: Any) -> list[Any]:
    return list(given) if np.iterable(given) and not isinstance(given, str) else [given]


def _factors(info: Any, channels: Sequence[int], scalings: Any) -> Array:
    """Return the factor of each of these channels."""
    if scalings is None:
        return np.ones(len(channels))
    if isinstance(scalings, str):
        check_choice("scalings", scalings, ("mne",))
        scalings = import_extra("mne.defaults", "scalings", "mne").DEFAULTS["scalings"]
    elif not isinstance(scalings, Mapping):
        raise InputError(
            f"scalings={scalings!r} is not possible. Use None, 'mne' or a dict of factors by channel type."
        )
    types = info.get_channel_types()
    used = list(dict.fromkeys(types[i] for i in channels))
    wrong = [kind for kind in used if not (is_number(scalings.get(kind)) and scalings[kind] > 0)]
    if wrong:
        raise InputError(f"scalings: no positive factor for {listed(wrong)}. Give one for each channel type.")
    return np.array([scalings[types[i]] for i in channels], dtype=np.float64)


def _checked_lags(lags: Any, longest: int) -> tuple[int, ...]:
    """Return the delays; of a number that exceeds the longest epoch, only so many that this is found."""
    one = isinstance(lags, Integral) and not isinstance(lags, bool)
    given = list(range(min(int(lags), longest) + 1)) if one else np.atleast_1d(lags).tolist()
    if not all(type(lag) is int for lag in given) or not 0 < len(given) == len(set(given)):
        raise InputError(f"`lags={lags!r}` is not possible. Use a number from 0 on, or different whole numbers.")
    return tuple(given)


def _lagged(segment: NDArray[Any], lags: Sequence[int]) -> NDArray[Any]:
    """Return rows of the segment at each delay, side by side, for the times at which all of them exist."""
    first, stop = max(0, *lags, 0), segment.shape[1] + min(0, *lags, 0)
    return np.concatenate([segment[:, first - lag : max(stop, first) - lag] for lag in lags]).T


def _delay(lag: int, sfreq: float | None) -> str:
    """Return the suffix of the name of a delayed channel."""
    return "" if lag == 0 or sfreq is None else f" {-1000 * lag / sfreq:+g} ms"


def _units(inst: Any, recording: _Recording, groups: Any, role: str) -> NDArray[Any] | None:
    """Return the independent unit of each segment."""
    if not recording.are_units:
        if groups is not None:
            raise InputError(f"{role}: groups are for epochs. Use mne.make_fixed_length_epochs(raw) first.")
        return None
    if groups is None:  # digests of values: equal numbers would make epochs of target and background one unit
        parts = (np.ascontiguousarray(segment).tobytes() for segment in recording.segments)
        groups = [f"epoch {blake2b(part, digest_size=8).hexdigest()}" for part in parts]
    if isinstance(groups, str):
        metadata = getattr(inst, "metadata", None)
        if metadata is None or groups not in metadata:
            columns = "no metadata" if metadata is None else f"the columns {listed(list(metadata))}"
            raise InputError(f"{role}: `groups={groups!r}`: there are {columns}. Name a column, or give ids of epochs.")
        groups = np.asarray(metadata[groups])
    ids = as_ids(groups)
    if ids.shape != (count := len(recording.segments),):
        raise InputError(f"{role}: groups: shape {ids.shape} for {count} epochs. Give one id for each epoch.")
    return ids


def _check_linear(model: Any) -> None:
    if not isinstance(model, DPCA | CPCA):
        raise InputError(f"model: {type(model).__name__} has no filters of channels. Give a fitted DPCA or CPCA.")
    _ = model.n_components_  # raises if it is not fitted


def _features(model: Any, info: Any) -> list[str]:
    """Return the feature names of a model; of one that was fitted to arrays, the good data channels."""
    if hasattr(model, "feature_names_in_"):
        return [str(name) for name in model.feature_names_in_]
    names = [info["ch_names"][i] for i in _picked(info, None, info["bads"], "info")]
    if len(names) != model.n_features_in_:
        found = f"{len(names)} good data channels, and the model was fitted to arrays with {model.n_features_in_}"
        raise FeatureError(f"info: {found}. Give the info of these channels, in their order: mne.pick_info.")
    return names


def _positions(info: Any, names: Sequence[str], role: str) -> list[int]:
    """Return the indices of channels by name."""
    place = {name: i for i, name in enumerate(info["ch_names"])}
    lost = [name for name in names if name not in place]
    if lost:
        remedy = "Use transform or spatial_filter for delayed channels." if lost[0][-3:] == " ms" else "Add them."
        raise FeatureError(f"{role}: {len(lost)} of {len(names)} channels are missing: {listed(lost)}. {remedy}")
    return [place[name] for name in names]


def _filter(model: Any, chosen: list[int], mode: str, factors: Array, channels: Any) -> Callable[[Array], Array]:
    """Return a function of (..., n_channels, n_times) that keeps or removes components in some channels."""
    # The model is in units of x · f. In those of x, the filter is w · f, the pattern a / f and the mean μ / f.
    filters, patterns = model.components_[chosen] * factors, model.patterns_[chosen] / factors
    mean = (model.mean_ / factors)[:, None]

    def function(data: Array) -> Array:
        result, used = np.array(data), data[..., channels, :]
        part = patterns.T @ (filters @ (used - mean))
        result[..., channels, :] = mean + part if mode == "retain" else used - part
        return result

    return function
