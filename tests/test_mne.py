"""MNE objects as data: rows of time points with epochs as units, and components as spatial filters in SI units."""

import re
import sys
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from scipy import linalg, signal
from sklearn.exceptions import NotFittedError

import standout
from standout import CPCA, DPCA, KernelDPCA, Moments, permutation_test
from standout.errors import (
    FeatureError,
    FeatureWarning,
    InputError,
    MissingExtraError,
    RowsNeededError,
    SerialWarning,
    StandoutWarning,
)

mne = pytest.importorskip("mne", reason="mne is not installed: everything about MNE is left out")
mne.set_log_level("error")

QUIET = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")
CHANNELS = ("Fz", "Cz", "Pz", "Oz", "C3", "C4")
MIXING = np.random.default_rng(7).normal(size=(6, 6))


def measurement(names=CHANNELS, types="eeg", sfreq=250.0):
    return mne.create_info(list(names), sfreq, types)


def recorded(n_epochs, strength=1.0, seed=0, smooth=0.9, n_times=60, unit=1e-6):
    """Epochs × channels × times, in volts: sources correlated in time, the first of them stronger."""
    rng = np.random.default_rng(seed)
    sources = signal.lfilter([1], [1, -smooth], rng.normal(size=(n_epochs, 6, n_times + 50)))[:, :, 50:]
    sources[:, 0] *= strength
    return unit * MIXING @ sources


def epochs_of(data, info=None, **named):
    return mne.EpochsArray(data, measurement() if info is None else info, **named)


def by_hand(data):
    """Rows of time points, written out."""
    return np.array([data[epoch, :, time] for epoch in range(len(data)) for time in range(data.shape[2])])


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def same_up_to_sign(one, other, tolerance):
    signs = np.sign(np.sum(one * other, axis=1, keepdims=True))
    np.testing.assert_allclose(one * signs, other, atol=tolerance)


@pytest.fixture(scope="module")
def arrays():
    return recorded(40, strength=3), recorded(50, seed=1)


@pytest.fixture
def task(arrays):
    return epochs_of(arrays[0])


@pytest.fixture
def rest(arrays):
    return epochs_of(arrays[1])


@pytest.fixture
def model(task, rest):
    return DPCA(3).fit(task, background=rest)


def of_rows(arrays):
    """The model of data frames with the epoch of each row as its group."""
    frames = [pd.DataFrame(by_hand(data), columns=list(CHANNELS)) for data in arrays]
    groups = [np.repeat(np.arange(len(data)), data.shape[2]) for data in arrays]
    return DPCA(3).fit(frames[0], background=frames[1], groups=groups[0], background_groups=1000 + groups[1])


# What the estimators take


@pytest.mark.shows("MNE Epochs", "accepted", "names", "groups")
def test_epochs_are_rows_of_time_points_with_channel_names_and_epochs_as_groups(arrays, model, task):
    plain = of_rows(arrays)
    np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-12)
    assert model.feature_names_in_.tolist() == list(CHANNELS)
    np.testing.assert_allclose([model.noise_edge_, model.p_value_], [plain.noise_edge_, plain.p_value_], rtol=1e-9)
    scores = plain.transform(pd.DataFrame(by_hand(arrays[0]), columns=CHANNELS))
    np.testing.assert_allclose(model.transform(task), scores, rtol=1e-9, atol=1e-15)


@pytest.mark.shows("3-D array", "accepted", "groups")
def test_arrays_of_epochs_channels_and_times_give_the_model_of_the_epochs(arrays, model):
    plain = DPCA(3).fit(arrays[0], background=arrays[1])
    np.testing.assert_array_equal(plain.components_, model.components_)
    assert (plain.noise_edge_, plain.p_value_) == (model.noise_edge_, model.p_value_)
    assert plain.transform(arrays[0].astype(np.float32)).dtype == np.float32
    assert plain.transform(arrays[0]).shape == (40 * 60, 3)


def test_a_nested_list_is_not_mistaken_for_epochs(arrays, refused):
    refused(lambda: DPCA().fit(arrays[0][:2].tolist()), "three dimensions", "standout.mne.read")


@pytest.mark.shows("MNE Raw", "accepted", "names")
def test_raw_is_rows_without_groups_and_its_serial_correlation_is_reported(arrays):
    data = [np.hstack(part) for part in arrays]
    raws = [mne.io.RawArray(part, measurement()) for part in data]
    with pytest.warns(SerialWarning, match="consecutive rows are correlated.*trial.*`groups=`"):
        found = DPCA(3).fit(raws[0], background=raws[1])
    assert found.feature_names_in_.tolist() == list(CHANNELS)
    ratios = linalg.eigh(*(np.cov(part, ddof=0) for part in data), eigvals_only=True)[::-1][:3]
    np.testing.assert_allclose(found.ratios_, ratios, rtol=1e-9)
    assert standout.read(raws[0]).groups is None


@pytest.mark.shows("list of MNE Evoked", "accepted", "names", "groups")
def test_a_list_of_evoked_is_the_same_as_epochs(arrays, model, task, rest):
    evoked = [list(part.iter_evoked()) for part in (task, rest)]
    found = DPCA(3).fit(evoked[0], background=evoked[1])
    np.testing.assert_array_equal(found.components_, model.components_)
    assert (found.noise_edge_, found.p_value_) == (model.noise_edge_, model.p_value_)
    assert found.feature_names_in_.tolist() == list(CHANNELS)


def test_a_list_of_epochs_is_several_backgrounds_and_a_list_of_evoked_is_one(task, rest):
    several = DPCA(1).fit(task, background=[rest[:25], rest[25:]])
    np.testing.assert_allclose(several.mix_, [0.5, 0.5])
    assert len(DPCA(1).fit(task, background=list(rest.iter_evoked())).mix_) == 1
    assert len(DPCA(1).fit(task, background=[list(rest[:25].iter_evoked()), rest[25:].get_data()]).mix_) == 2


def test_a_single_evoked_has_no_units(task, rest):
    with pytest.warns(SerialWarning):
        DPCA(1, shrinkage=None).fit(task.average(), background=rest.average())
    assert standout.read(rest.average()).groups is None


def test_epochs_and_a_continuous_recording_cannot_be_counted_alike(task, arrays, refused):
    raw = mne.io.RawArray(np.hstack(arrays[1]), measurement())
    refused(lambda: DPCA(1).fit(task, background=raw), "background: it has no groups", "epoch")
    cut = mne.make_fixed_length_epochs(raw, duration=60 / 250, preload=True)
    assert DPCA(1).fit(task, background=cut).ratios_[0] > 5


def test_other_estimators_and_tests_take_epochs(task, rest):
    assert CPCA(1, alpha=1.0).fit(task, background=rest).components_.shape == (1, 6)
    assert KernelDPCA(1, n_landmarks=20).fit(task[:4], background=rest[:4]).transform(task[:1]).shape == (60, 1)
    test = permutation_test(task, rest, n_permutations=19, random_state=0)
    assert (test.permuted, test.units) == ("groups", (40, 50))
    assert test.p_values[0] == 0.05


def test_events_are_labels_so_that_one_of_them_can_be_the_background(arrays, model):
    events = np.column_stack([np.arange(90), np.zeros(90, dtype=int), np.repeat([7, 8], [40, 50])])
    both = epochs_of(np.concatenate(arrays), events=events, event_id={"task": 7, "rest": 8})
    found = DPCA(3, background_label="rest").fit(both)
    np.testing.assert_allclose(found.ratios_, model.ratios_, rtol=1e-12)
    assert found.p_value_ == pytest.approx(model.p_value_, rel=1e-9)


# Counts of independent units


@QUIET
def test_noise_with_serial_correlation_is_not_significant_when_epochs_are_counted():
    significant = {"epochs": 0, "samples": 0}
    for seed in range(20):
        parts = [recorded(30, seed=2 * seed + side, smooth=0.95) for side in range(2)]
        significant["epochs"] += DPCA(1).fit(parts[0], background=parts[1]).p_value_ < 0.05
        rows = [Moments.of(by_hand(part)) for part in parts]
        significant["samples"] += DPCA(1).fit(rows[0], background=rows[1]).p_value_ < 0.05
    assert significant["samples"] >= 15
    assert significant["epochs"] <= 3  # 4 or more of 20 at a level of 5 % have a probability below 2 %


def test_subjects_can_be_given_as_ids_of_epochs_or_by_a_column_of_the_metadata(task):
    subject = np.repeat(["anna", "ben", "cleo", "dora"], 10)
    task.metadata = pd.DataFrame({"subject": subject})
    for groups in ("subject", subject):
        assert Moments.of(standout.mne.read(task, groups=groups)).units == 4


# Channels


def test_channels_are_matched_by_name_and_lacking_ones_are_named(task, rest, model, refused):
    other = rest.copy().reorder_channels(list(CHANNELS[::-1]))
    np.testing.assert_allclose(DPCA(3).fit(task, background=other).ratios_, model.ratios_, rtol=1e-9)
    rest.info["bads"] = ["Cz", "Oz"]
    refused(lambda: DPCA().fit(task, background=rest), "background", "'Cz', 'Oz'", kind=FeatureError)
    with pytest.warns(StandoutWarning, match="'Cz', 'Oz'"):
        common = DPCA(1, features="common").fit(task, background=rest)
    assert common.components_[0, 1] == 0


def test_bad_channels_and_other_types_are_left_out_unless_they_are_named(arrays):
    epochs = epochs_of(arrays[0], measurement(types=["eeg", "eeg", "eog", "mag", "grad", "stim"]))
    epochs.info["bads"] = ["Cz"]

    def names(picks):
        return standout.mne.read(epochs, picks=picks).names

    assert names(None) == names("data") == ("Fz", "Oz", "C3")
    assert names("eeg") == ("Fz",)
    assert names(["eeg", "eog"]) == ("Fz", "Pz")
    assert names("meg") == ("Oz", "C3")
    assert names(["C3", "Cz"]) == names([1, 4]) == ("Cz", "C3")


def sensors():
    """One eighth of the rows that would make shrinkage unnecessary, of magnetometers, gradiometers and electrodes."""
    types = ["mag"] * 4 + ["grad"] * 4 + ["eeg"] * 4
    info = measurement([f"{kind} {i}" for i, kind in enumerate(types)], types)
    units = np.array([1e-13] * 4 + [1e-12] * 4 + [1e-5] * 4)[:, None]
    rng = np.random.default_rng(3)
    parts = [rng.normal(size=(n, 12, 5)) for n in (10, 15)]
    parts[0][:, 5] *= 4
    mixing = np.eye(12) + 0.3 * rng.normal(size=(12, 12))
    return [epochs_of(units * (mixing @ part), info) for part in parts]


def fitted(parts, scalings=None, **parameters):
    rows = [standout.mne.read(part, scalings=scalings) for part in parts]
    return DPCA(2, **parameters).fit(rows[0], background=rows[1])


@QUIET  # the background is shrunk
@pytest.mark.parametrize("shrinkage", ["auto", "oas", 0.3])
def test_sensors_of_different_types_are_on_a_common_scale_shrinkage_included(shrinkage):
    plain, scaled = (fitted(sensors(), scalings, shrinkage=shrinkage) for scalings in (None, "mne"))
    np.testing.assert_allclose(plain.ratios_, scaled.ratios_, rtol=1e-9)
    np.testing.assert_allclose(plain.p_value_, scaled.p_value_, rtol=1e-7)
    assert plain.shrinkage_ == pytest.approx(scaled.shrinkage_, rel=1e-9)
    info = sensors()[0].info
    # Filters have unit length in the units of the rows; the directions are the same in SI units.
    one, other = standout.mne.spatial_filter(plain, info), standout.mne.spatial_filter(scaled, info, scalings="mne")
    lengths = np.linalg.norm(one.filters, axis=1) / np.linalg.norm(other.filters, axis=1)
    np.testing.assert_allclose(other.filters * lengths[:, None], one.filters, rtol=1e-6)
    np.testing.assert_allclose(other.patterns / lengths[:, None], one.patterns, rtol=1e-6)


def test_scaled_rows_have_the_units_of_the_data_frames_of_mne():
    epochs = sensors()[0]
    frame = epochs.to_data_frame()
    np.testing.assert_allclose(standout.mne.read(epochs, scalings="mne").array, frame[epochs.ch_names], rtol=1e-12)
    doubled = standout.mne.read(epochs, picks="eeg", scalings={"eeg": 2.0})
    np.testing.assert_allclose(doubled.array, 2 * standout.mne.read(epochs, picks="eeg").array)


# Delays


def test_delayed_channels_hold_earlier_values_and_never_those_of_another_epoch(arrays, task):
    source = standout.mne.read(task, lags=[0, 2, -1])
    expected = [
        np.concatenate([epoch[:, time - lag] for lag in (0, 2, -1)]) for epoch in arrays[0] for time in range(2, 59)
    ]
    np.testing.assert_array_equal(source.array, expected)
    assert source.names[:8] == (*CHANNELS, "Fz -8 ms", "Cz -8 ms")
    assert source.names[-1] == "C4 +4 ms"
    assert np.array_equal(source.groups == source.groups[0], np.arange(40 * 57) < 57)
    np.testing.assert_array_equal(
        standout.mne.read(arrays[0], lags=2).array, standout.mne.read(task, lags=[0, 1, 2]).array
    )


@QUIET
def test_delays_find_a_filter_in_time_that_no_filter_in_space_can_replace():
    rng = np.random.default_rng(0)
    task, rest = rng.normal(size=(2, 40, 2, 200))
    task = signal.lfilter([1, 0.9], [1.0], task) / np.sqrt(1.81)  # another spectrum, the same variances
    plain, delayed = (
        DPCA(1).fit(standout.mne.read(task, lags=lags), background=standout.mne.read(rest, lags=lags))
        for lags in (0, 3)
    )
    assert plain.ratios_[0] < 1.15
    # The largest eigenvalue of the Toeplitz matrix of autocorrelations 1 and 0.9/1.81 at lag 1.
    assert delayed.ratios_[0] == pytest.approx(1 + 2 * 0.9 / 1.81 * np.cos(np.pi / 5), rel=0.05)


def test_recordings_with_different_sampling_rates_do_not_match_when_channels_are_delayed(task, arrays, refused):
    other = epochs_of(arrays[1], measurement(sfreq=500.0))
    DPCA(1).fit(task, background=other)  # without delays the rate does not matter
    rows = [standout.mne.read(part, lags=1) for part in (task, other)]
    refused(lambda: DPCA().fit(rows[0], background=rows[1]), "'Fz -4 ms'", "'Fz -2 ms'", kind=FeatureError)


def test_spans_annotated_as_bad_are_left_out_and_not_bridged_by_delays(arrays):
    data = np.hstack(arrays[0][:2])  # 120 samples at 250 Hz
    raw = mne.io.RawArray(data, measurement())
    raw.set_annotations(mne.Annotations(onset=[40 / 250], duration=[20 / 250], description=["BAD_blink"]))
    kept = [*range(40), *range(60, 120)]
    rows = standout.mne.read(raw).array
    np.testing.assert_array_equal(rows[:40], data[:, :40].T)
    assert len(rows) in (99, 100, 101)  # whether the last sample of a span is in it depends on the version of MNE
    if len(rows) == 100:
        np.testing.assert_array_equal(rows, data[:, kept].T)
    assert len(standout.mne.read(raw, lags=3).array) == len(rows) - 6
    assert len(standout.mne.read(raw, reject_by_annotation=False).array) == 120


def test_delays_do_not_bridge_joined_recordings(arrays, tmp_path):
    parts = [mne.io.RawArray(np.hstack(arrays[0][i : i + 2]), measurement()) for i in (0, 2)]  # 120 samples each
    joined = mne.concatenate_raws([part.copy() for part in parts])
    rows = [standout.mne.read(part, lags=3).array for part in parts]
    np.testing.assert_array_equal(standout.mne.read(joined, lags=3).array, np.concatenate(rows))
    joined.crop(tmin=10 / 250)  # boundaries are found where the recording does not start at its first sample
    np.testing.assert_array_equal(standout.mne.read(joined, lags=3).array, np.concatenate([rows[0][10:], rows[1]]))
    assert standout.mne.read(joined).n_rows == 230


def test_events_without_a_name_are_labelled_by_their_code(task):
    task.events[:3, 2] = 7
    labels = standout.mne.read(task).labels
    assert list(labels[:: len(task.times)][:4]) == ["7", "7", "7", "1"]


# Data on disk


def test_recordings_on_disk_are_loaded_without_changing_them(tmp_path, arrays, task, model):
    task.save(tmp_path / "task-epo.fif", fmt="double")
    on_disk = mne.read_epochs(tmp_path / "task-epo.fif", preload=False)
    np.testing.assert_allclose(model.transform(on_disk), model.transform(task), rtol=1e-12)
    assert not on_disk.preload
    retained = standout.mne.apply(model, on_disk)
    assert not on_disk.preload
    np.testing.assert_allclose(retained.get_data(), standout.mne.apply(model, arrays[0]), rtol=1e-9)
    mne.io.RawArray(np.hstack(arrays[0]), measurement()).save(tmp_path / "task_raw.fif", fmt="double")
    raw = mne.io.read_raw_fif(tmp_path / "task_raw.fif")
    np.testing.assert_allclose(model.transform(raw), model.transform(task), rtol=1e-12)
    assert not raw.preload


# Covariance


def quietly(function):
    """Return the result of a call that warns of the samples that a covariance counts."""
    with pytest.warns(StandoutWarning) as found:
        result = function()
    assert any(re.search(r"counts \d+ samples.*n_epochs", str(one.message)) for one in found)
    return result


@pytest.mark.shows("MNE Covariance", "accepted", "names")
def test_a_covariance_gives_the_model_of_the_recording_that_it_was_computed_from(arrays, task, rest, model):
    covariances = [mne.compute_covariance(part, keep_sample_mean=True, method="empirical") for part in (task, rest)]
    raw = mne.io.RawArray(np.hstack(arrays[1]), measurement())
    for cov in (mne.compute_raw_covariance(raw, tstep=None), mne.compute_raw_covariance(raw, method="empirical")):
        found = quietly(lambda cov=cov: DPCA(3).fit(task, background=cov))
        np.testing.assert_allclose(found.ratios_, model.ratios_, rtol=1e-9)
    shuffled = mne.pick_channels_cov(covariances[1], list(CHANNELS[::-1]), ordered=True)
    found = quietly(lambda: DPCA(3).fit(covariances[0], background=shuffled))
    plain = quietly(lambda: DPCA(3).fit(covariances[0], background=covariances[1]))
    np.testing.assert_allclose(found.ratios_, plain.ratios_, rtol=1e-9)
    assert found.feature_names_in_.tolist() == list(CHANNELS)
    expected = linalg.eigh(*(cov.data for cov in covariances), eigvals_only=True)[::-1][:3]
    counts = [(cov.nfree + 1) / cov.nfree for cov in covariances]
    np.testing.assert_allclose(found.ratios_ * counts[0] / counts[1], expected, rtol=1e-9)
    assert len(quietly(lambda: DPCA(1).fit(task, background=covariances)).mix_) == 2


def test_the_moments_of_a_covariance_are_those_of_the_samples(arrays, rest):
    raw = mne.io.RawArray(np.hstack(arrays[1]), measurement())
    found = standout.mne.moments(mne.compute_raw_covariance(raw, tstep=None), n_epochs=50)
    plain = Moments.of(by_hand(arrays[1]))
    assert (found.rows, found.units, found.names) == (plain.rows, 50, CHANNELS)
    np.testing.assert_allclose(found.scatter, plain.scatter, rtol=1e-9)
    assert not found.mean.any()
    scaled = standout.mne.moments(
        mne.compute_raw_covariance(raw, tstep=None), raw.info, n_epochs=50, scalings={"eeg": 10.0}
    )
    np.testing.assert_allclose(scaled.scatter, 100 * found.scatter)


def test_bad_channels_of_a_covariance_are_left_out_and_a_diagonal_is_a_matrix():
    cov = mne.Covariance(np.arange(1.0, 7.0), list(CHANNELS), bads=["Cz"], projs=[], nfree=99)
    found = standout.mne.moments(cov, n_epochs=3)
    assert found.names == ("Fz", "Pz", "Oz", "C3", "C4")
    np.testing.assert_allclose(found.covariance(ddof=1), np.diag([1, 3, 4, 5, 6]))


def test_a_covariance_without_a_count_or_rows_is_refused(task, rest, model, refused):
    ad_hoc = mne.make_ad_hoc_cov(task.info)
    refused(lambda: DPCA().fit(task, background=ad_hoc), "background", "nfree=0")
    cov = mne.compute_covariance(rest)
    refused(lambda: standout.mne.moments(cov, scalings="mne", n_epochs=3), "`info=`")
    refused(lambda: standout.mne.moments(rest), "not an mne.Covariance")
    cov["bads"] = list(CHANNELS)
    refused(lambda: standout.mne.moments(cov), "all 6 channels", "bad")
    cov["bads"] = []
    for call in (lambda: model.transform(cov), lambda: Moments.of(cov)):
        refused(lambda call=call: quietly(call), "rows", kind=RowsNeededError)
    refused(lambda: quietly(lambda: DPCA().fit(task, background=cov, background_groups=[1])), "moments already hold")


# Spatial filters


def test_the_spatial_filter_of_mne_has_filters_and_patterns_in_si_units(arrays, task, model):
    # The info has more channels, in another order.
    info = measurement(("EOG", *CHANNELS[::-1]), ["eog", *["eeg"] * 6])
    found = standout.mne.spatial_filter(model, info)
    assert isinstance(found, mne.decoding.SpatialFilter)
    assert found.info["ch_names"] == list(CHANNELS)
    scores = (by_hand(arrays[0]) - model.mean_) @ found.filters.T
    np.testing.assert_allclose(scores, model.transform(task), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.filters @ found.patterns.T, np.eye(3), atol=1e-9)
    np.testing.assert_array_equal(found.evals, model.ratios_)
    # The pattern of the source that is stronger in the task is its column of the mixing matrix.
    assert abs(np.corrcoef(found.patterns[0], MIXING[:, 0])[0, 1]) > 0.99


def test_the_spatial_filter_draws_a_topography_for_each_component(arrays):
    import matplotlib.pyplot as plt

    info = measurement().set_montage("standard_1020")
    model = DPCA(2).fit(*arrays[:1], background=arrays[1])
    figure = standout.mne.spatial_filter(model, info).plot_patterns(show=False, colorbar=False)
    assert [axes.get_title() for axes in figure.axes] == ["Pattern0", "Pattern1"]
    plt.close(figure)


def test_the_spatial_filter_of_a_delay_has_the_features_of_that_delay(task, rest):
    rows = [standout.mne.read(part, lags=2) for part in (task, rest)]
    model = DPCA(1).fit(rows[0], background=rows[1])
    for lag in range(3):
        found = standout.mne.spatial_filter(model, task.info, lag=lag)
        np.testing.assert_array_equal(found.patterns, model.patterns_[:, 6 * lag : 6 * lag + 6])
        assert found.info["ch_names"] == list(CHANNELS)


def test_an_mne_without_spatial_filters_is_named_with_the_version_needed(model, task, monkeypatch, refused):
    monkeypatch.setitem(sys.modules, "mne.decoding", ModuleType("mne.decoding"))
    words = ("mne>=1.11", mne.__version__)
    refused(lambda: standout.mne.spatial_filter(model, task.info), *words, kind=MissingExtraError)


# Keep or remove


def instances(arrays):
    """Recordings of every type, with one more channel, and their values."""
    info = measurement((*CHANNELS[:3], "EOG", *CHANNELS[3:]), [*["eeg"] * 3, "eog", *["eeg"] * 3])
    data = np.insert(arrays[0] + 3e-6, 3, 5e-5, axis=1)
    epochs = mne.EpochsArray(data, info)
    evoked = list(epochs[:3].iter_evoked())
    return {"Epochs": epochs, "Raw": mne.io.RawArray(np.hstack(data), info), "Evoked": evoked[0], "list": evoked}


def values(inst):
    return np.stack([one.data for one in inst]) if isinstance(inst, list) else np.array(inst.get_data())


@pytest.mark.parametrize("kind", ["Epochs", "Raw", "Evoked", "list"])
def test_what_is_kept_and_what_is_removed_add_up_to_the_recording_at_its_scale(arrays, model, kind):
    inst = instances(arrays)[kind]
    before = values(inst)
    retained, rest = (standout.mne.apply(model, inst, mode) for mode in ("retain", "subtract"))
    assert type(retained) is type(rest) is type(inst)
    eeg = [0, 1, 2, 4, 5, 6]
    mean = model.mean_[:, None]
    kept, removed, whole = (values(part)[..., eeg, :] for part in (retained, rest, inst))
    np.testing.assert_allclose((kept - mean) + (removed - mean), whole - mean, atol=1e-6 * 1e-9)
    # The definition, row by row.
    rows = np.moveaxis(whole, -2, -1).reshape(-1, 6)
    named = pd.DataFrame(rows, columns=list(CHANNELS))
    again = np.moveaxis(kept, -2, -1).reshape(-1, 6)
    np.testing.assert_allclose(again, model.inverse_transform(model.transform(named)), atol=1e-6 * 1e-9)
    np.testing.assert_array_equal(values(retained)[..., 3, :], before[..., 3, :])  # the EOG is kept as it is
    np.testing.assert_array_equal(values(inst), before)


def test_all_components_restore_the_recording_and_its_variance(arrays, task, rest):
    model = DPCA(None).fit(task, background=rest)
    assert model.n_components_ == 6
    np.testing.assert_allclose(standout.mne.apply(model, task).get_data(), arrays[0], atol=1e-6 * 1e-8)
    first = standout.mne.apply(model, arrays[0], components=0)
    removed = standout.mne.apply(model, arrays[0], "subtract", components=[1, 2, 3, 4, 5])
    np.testing.assert_allclose(first, removed, atol=1e-6 * 1e-8)


@QUIET
def test_the_scale_of_the_rows_does_not_change_what_is_kept():
    parts = sensors()
    plain, scaled = (fitted(parts, scalings) for scalings in (None, "mne"))
    one = standout.mne.apply(plain, parts[0]).get_data()
    other = standout.mne.apply(scaled, parts[0], scalings="mne").get_data()
    np.testing.assert_allclose(one, other, atol=1e-8 * np.abs(one).max(axis=(0, 2), keepdims=True).max(), rtol=1e-6)
    sizes = one.std(axis=(0, 2)) / parts[0].get_data().std(axis=(0, 2))
    assert (sizes < 1.01).all()  # meegkit's results were of another order of magnitude (issue 86)


# Agreement with MNE


def test_filters_patterns_and_values_agree_with_csp(arrays):
    centred = [part - part.mean(axis=(0, 2), keepdims=True) for part in arrays]
    csp = mne.decoding.CSP(n_components=6, component_order="alternate", cov_est="concat", rank="full")
    csp.fit(1e6 * np.concatenate(centred), np.repeat([0, 1], [40, 50]))
    order = np.argsort(-csp.evals_)
    parts = [epochs_of(part) for part in centred]
    model = DPCA(None, shrinkage=None).fit(parts[0], background=parts[1])
    m, n = 40 * 60, 50 * 60
    ratios = model.ratios_ * m / (m - 1) * (n - 1) / n
    np.testing.assert_allclose(csp.evals_[order], ratios / (1 + ratios), rtol=1e-8)
    same_up_to_sign(unit(csp.filters_[order]), model.components_, 1e-7)
    same_up_to_sign(unit(csp.patterns_[order]), unit(model.patterns_), 1e-7)


def test_filters_and_values_agree_with_ssd():
    rng = np.random.default_rng(5)
    time = np.arange(250 * 60) / 250.0
    sources = rng.normal(size=(6, len(time)))
    sources[0] += 2 * np.sin(2 * np.pi * 10 * time)
    info = measurement()
    raw = mne.io.RawArray(1e-6 * MIXING @ sources, info)
    signal_band, noise_band = ({"l_freq": low, "h_freq": high} for low, high in ((9, 11), (5, 15)))
    band = {"l_trans_bandwidth": 1, "h_trans_bandwidth": 1}
    ssd = mne.decoding.SSD(
        info, {**signal_band, **band}, {**noise_band, **band}, sort_by_spectral_ratio=False, rank="full"
    )
    ssd.fit(raw.get_data())
    inside = raw.copy().filter(**signal_band, **band)
    outside = raw.copy().filter(**noise_band, **band)
    outside = mne.io.RawArray(outside.get_data() - inside.get_data(), info)
    # SSD does not centre, and neither does a covariance; epochs do, which changes little in filtered data.
    covariances = [
        mne.Covariance(data @ data.T / len(time), list(CHANNELS), bads=[], projs=[], nfree=len(time))
        for data in (inside.get_data(), outside.get_data())
    ]
    exact = quietly(lambda: DPCA(None, shrinkage=None).fit(covariances[0], background=covariances[1]))
    np.testing.assert_allclose(exact.ratios_, ssd.evals_, rtol=1e-10)
    same_up_to_sign(unit(ssd.filters_), exact.components_, 1e-9)
    parts = [mne.make_fixed_length_epochs(part, duration=1.0, preload=True) for part in (inside, outside)]
    model = DPCA(1, shrinkage=None).fit(parts[0], background=parts[1])
    same_up_to_sign(unit(ssd.filters_)[:1], model.components_, 1e-4)


# Bad input


def bad_calls(task, rest, model):
    info = measurement()
    holed = task.get_data().copy()
    holed[3, 2, 5:9] = np.nan
    unknown = mne.EpochsArray(task.get_data(), measurement(types="misc"))
    all_bad = task.copy()
    all_bad.info["bads"] = list(CHANNELS)
    evoked = list(task[:2].iter_evoked())
    raw = mne.io.RawArray(np.hstack(task.get_data()), info)
    annotated = raw.copy().set_annotations(mne.Annotations(0, 100, "BAD"))
    other = evoked[1].copy().resample(125)
    few = evoked[1].copy().pick(["Fz", "Cz"])
    read = standout.mne.read
    apply, spatial = standout.mne.apply, standout.mne.spatial_filter
    delayed = DPCA(1).fit(read(task, lags=1), background=read(rest, lags=1))
    unnamed = DPCA(1).fit(task.get_data(), background=rest.get_data())
    return {
        "masked array": (lambda: DPCA().fit(np.ma.masked_invalid(holed)), ["target", "4 values are masked"]),
        "no times": (lambda: DPCA().fit(holed[:, :, :0]), ["target: no samples"]),
        "all dropped": (lambda: DPCA().fit(task.copy().drop(range(40))), ["target: no samples", "dropped"]),
        "all annotated": (lambda: DPCA().fit(annotated), ["target: no samples", "annotated as bad"]),
        "pick of another type": (lambda: read(task, picks=slice(2)), ["slice", "neither a channel"]),
        "scalings of another type": (lambda: read(task, scalings=3), ["scalings=3", "dict of factors"]),
        "scalings of text": (lambda: read(task, scalings={"eeg": "µV"}), ["no positive factor for 'eeg'"]),
        "component of another type": (lambda: apply(model, task, components=[0.5]), ["components=[0.5]"]),
        "mask of components": (lambda: apply(model, task, components=[True, False, True]), ["components=[True"]),
        "epochs instead of info": (lambda: spatial(model, task), ["EpochsArray is not an mne.Info", "epochs.info"]),
        "no data channels": (lambda: DPCA().fit(unknown), ["target", "no good data channels", "'misc'"]),
        "all bad": (lambda: DPCA().fit(all_bad), ["no good data channels", "6 are marked as bad"]),
        "pick": (lambda: read(task, picks="Czz"), ["'Czz'", "Did you mean 'Cz'?"]),
        "pick of a type": (lambda: read(task, picks="mag"), ["'mag'", "'eeg'"]),
        "spectrum": (lambda: DPCA().fit(task.compute_psd()), ["unsupported type EpochsSpectrum", "Epochs, Raw"]),
        "mixed list": (lambda: DPCA().fit([*evoked, task]), ["unsupported type EpochsArray in a list"]),
        "list of Epochs": (lambda: DPCA().fit([task, task]), ["target", "EpochsArray in a list", "Give Epochs, Raw"]),
        "list of arrays": (lambda: DPCA().fit([holed, holed]), ["target", "ndarray in a list", "Give Epochs, Raw"]),
        "rates": (lambda: read([evoked[0], other]), ["sampling rates of 125.0, 250.0 Hz"]),
        "channels of Evoked": (lambda: read([evoked[0], few]), ["Evoked 1", "4 of 6 channels", "'Pz'"]),
        "lags": (lambda: read(task, lags=-1), ["`lags=-1`"]),
        "lags twice": (lambda: read(task, lags=[1, 1]), ["`lags=[1, 1]`"]),
        "lags of time": (lambda: read(task, lags=0.5), ["`lags=0.5`"]),
        "lags of a mask": (lambda: read(task, lags=True), ["`lags=True`"]),
        "nested lags": (lambda: read(task, lags=[[0, 1]]), ["`lags=[[0, 1]]`"]),
        "endless lags": (lambda: read(task, lags=10**12), ["lags=1000000000000", "epochs of at most 60 samples"]),
        "long lags": (lambda: read(task, lags=60), ["lags=60", "epochs of at most 60 samples"]),
        "scalings": (lambda: read(task, scalings="si"), ["`scalings='si'`", "'mne'"]),
        "scalings of a type": (lambda: read(task, scalings={"mag": 1}), ["no positive factor for 'eeg'"]),
        "groups of Raw": (lambda: read(raw, groups=[1]), ["groups are for epochs", "make_fixed_length_epochs"]),
        "few groups": (lambda: read(task, groups=[1, 2]), ["shape (2,) for 40 epochs"]),
        "no metadata": (lambda: read(task, groups="subject"), ["groups='subject'", "no metadata"]),
        "picks of an array": (lambda: read(task.get_data(), picks="eeg"), ["picks and scalings need channel names"]),
        "2-D array": (lambda: read(np.ones((3, 4))), ["shape (3, 4)", "epochs × channels × times"]),
        "no epochs": (lambda: DPCA().fit(task[:0].get_data()), ["target: no samples"]),
        "options of tables": (lambda: standout.read(task, columns="Fz"), ["standout.mne.read"]),
        "table options of an array": (lambda: standout.read(holed, missing="auto"), ["dimensions", "drop epochs"]),
        "missing values": (lambda: DPCA().fit(epochs_of(holed)), ["target", "4 NaN", "Pz (4)"]),
        "mode": (lambda: apply(model, task, "keep"), ["`mode='keep'`", "'retain', 'subtract'"]),
        "components": (lambda: apply(model, task, components=[0, 3]), ["components=[0, 3]", "3"]),
        "kernel": (lambda: apply(KernelDPCA(), task), ["KernelDPCA", "DPCA or CPCA"]),
        "delays": (lambda: apply(delayed, task), ["'Fz -4 ms'", "spatial_filter"]),
        "delay": (lambda: spatial(delayed, info, lag=5), ["lag=5"]),
        "channels of the model": (lambda: apply(model, few), ["inst", "4 of 6", "'Pz'"]),
        "info": (lambda: spatial(model, measurement(["Fz"])), ["info", "5 of 6", "'Cz'"]),
        "info of arrays": (lambda: spatial(unnamed, measurement(["Fz"])), ["1 good data channels", "arrays with 6"]),
        "array": (lambda: apply(model, task.get_data()[:, :2]), ["(40, 2, 60)", "(n_epochs, 6, n_times)"]),
        "covariance": (lambda: apply(model, mne.make_ad_hoc_cov(info)), ["unsupported type Covariance"]),
        "transform": (lambda: model.transform(task.copy().pick(["Fz"])), ["X has 1 features", "6"]),
    }  # fmt: skip


BAD = [
    "masked array", "no times", "all dropped", "all annotated",
    "lags of a mask", "nested lags", "endless lags", "pick of another type", "scalings of another type",
    "scalings of text",
    "component of another type", "mask of components", "epochs instead of info",
    "no data channels", "all bad", "pick", "pick of a type", "spectrum", "mixed list", "list of Epochs",
    "list of arrays", "rates",
    "channels of Evoked", "lags", "lags twice", "lags of time", "long lags", "scalings", "scalings of a type",
    "groups of Raw", "few groups", "no metadata", "picks of an array", "2-D array", "no epochs", "options of tables",
    "table options of an array", "missing values", "mode", "components", "kernel", "delays", "delay",
    "channels of the model", "info", "info of arrays", "array", "covariance", "transform",
]  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_used_is_refused_with_the_reason(task, rest, model, refused, name):
    calls = bad_calls(task, rest, model)
    assert set(calls) == set(BAD)
    call, words = calls[name]
    refused(call, *words, kind=InputError)


@QUIET
def test_flat_channels_are_named_in_a_warning_and_new_epochs_may_have_them(task, rest, model):
    flat = task.get_data().copy()
    flat[:, 2] = 1e-6
    with pytest.warns(FeatureWarning, match="background: 1 of 6 channels are flat: 'Pz'. Mark them as bad"):
        DPCA().fit(task, background=epochs_of(flat))
    with pytest.warns(FeatureWarning, match="target: .* flat: 2. .* is read as epochs × channels × times"):
        DPCA().fit(flat, background=rest.get_data())
    np.testing.assert_allclose(
        model.transform(epochs_of(flat)), model.transform(pd.DataFrame(by_hand(flat), columns=CHANNELS)), rtol=1e-9
    )


def test_arrays_keep_their_precision_and_the_phase_of_analytic_signals(model, arrays):
    expected = standout.mne.apply(model, arrays[0])
    single = standout.mne.apply(model, arrays[0].astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, rtol=0, atol=1e-6 * np.abs(expected).max())
    mean = model.mean_[:, None]
    found = standout.mne.apply(model, arrays[0] + 1j * (arrays[0] - mean))
    np.testing.assert_allclose(found, expected + 1j * (expected - mean), atol=1e-12 * np.abs(expected).max())


def test_a_component_that_is_named_twice_is_kept_once(model, task):
    once, twice = (standout.mne.apply(model, task, components=chosen).get_data() for chosen in (0, [0, 0]))
    np.testing.assert_array_equal(once, twice)


@pytest.mark.parametrize("function", [standout.mne.spatial_filter, standout.mne.apply])
def test_a_model_that_is_not_fitted_is_an_error_of_scikit_learn(task, function):
    with pytest.raises(NotFittedError, match="Call fit"):
        function(DPCA(), task)


def test_an_average_reference_leaves_no_infinite_ratio(task, rest):
    parts = [part.set_eeg_reference("average") for part in (task, rest)]
    found = DPCA(3).fit(parts[0], background=parts[1])
    assert np.isfinite(found.ratios_).all()
    assert found.ratios_[0] < 20
