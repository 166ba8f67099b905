"""Tensors on any device: the results of the numpy arrays, as tensors of the same library on the same device.

array-api-strict represents every library of the array API standard. Its devices refuse implicit conversion to numpy,
and two of them have no float64. PyTorch and JAX are tested where they are installed.
"""

import contextlib
import importlib
import sys

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import standout
from conftest import whole_numbers
from helpers import quiet
from standout import CPCA, DPCA, KernelDPCA, Moments
from standout.errors import FeatureError, InputError, MissingExtraError, NonFiniteError, NotNumbersError
from standout.io import tensors
from standout.io.memory import as_numpy

strict = pytest.importorskip("array_api_strict", reason="array-api-strict is not installed: no tests of tensors")
pytest.importorskip("array_api_compat", reason="array-api-compat is not installed: no tests of tensors")
KINDS = [
    pytest.param("strict", marks=pytest.mark.shows("array API array", "accepted", "groups")),
    pytest.param("strict, other device", marks=pytest.mark.shows("array API array", "accepted", "groups")),
    "strict, no float64",
    "strict, no x64",
    pytest.param("torch", marks=pytest.mark.shows("torch tensor", "accepted", "groups")),
    pytest.param("jax", marks=pytest.mark.shows("JAX array", "accepted", "groups")),
    "jax, no x64",
]
# float32 is all that these devices compute.
SINGLE = ("strict, no float64", "strict, no x64", "jax, no x64")


def namespace(kind):
    """Return the array namespace of a kind, and the device."""
    if kind == "torch":
        return pytest.importorskip("torch", reason="torch is not installed: no tests of its tensors"), "cpu"
    if kind.startswith("jax"):
        jax = pytest.importorskip("jax", reason="jax is not installed: no tests of its arrays")
        return importlib.import_module("jax.numpy"), jax.devices("cpu")[0]
    names = {"strict": "CPU_DEVICE", "strict, other device": "device1", "strict, no x64": "no_x64"}
    return strict, strict.Device(names.get(kind, "no_float64"))


@pytest.fixture(params=KINDS)
def kind(request):
    """A kind of tensor; JAX computes in float64 only where that is set."""
    with contextlib.ExitStack() as stack:
        if request.param == "jax":
            jax = pytest.importorskip("jax", reason="jax is not installed: no tests of its arrays")
            stack.enter_context(jax.enable_x64(True))
        yield request.param


@pytest.fixture
def make(kind):
    """Return a function that makes a tensor of numpy rows, of float32 where the device has nothing better."""
    xp, device = namespace(kind)
    return lambda rows: xp.asarray(rows.astype(np.float32) if kind in SINGLE else rows, device=device)


@pytest.fixture
def small_blocks(monkeypatch):
    """Let tensors be summed in many blocks."""
    monkeypatch.setattr(tensors, "_BLOCK_BYTES", 1000)
    monkeypatch.setattr(tensors, "_LEAST_ROWS", 7)


@pytest.fixture(scope="module")
def data():
    """Whole numbers, which float32 holds exactly."""
    return whole_numbers(900, 950)


def test_a_fit_is_that_of_the_arrays(data, make, small_blocks):
    rng = np.random.default_rng(0)
    weights, groups = rng.integers(0, 3, size=900), rng.integers(0, 40, size=900)
    units = {"groups": groups, "background_groups": np.arange(950) // 9}
    for given in ({}, {"sample_weight": weights}, units):
        model = DPCA(3).fit(make(data[0]), background=make(data[1]), **given)
        plain = DPCA(3).fit(data[0], background=data[1], **given)
        np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(model.ratios_, plain.ratios_, rtol=1e-12)
        np.testing.assert_allclose(model.mean_, plain.mean_, rtol=1e-14)
        np.testing.assert_allclose(model.noise_edge_, plain.noise_edge_, rtol=1e-10)


def test_scores_and_rows_are_tensors_on_the_device_and_of_the_precision_of_their_input(data, kind, make, small_blocks):
    model = DPCA(2).fit(data[0], background=data[1])
    for dtype in (np.float32, np.float64):
        rows = make(data[0].astype(dtype))
        scores = model.transform(rows)
        plain = model.transform(data[0].astype(dtype))
        found = {"transform": (scores, plain), "denoise": (model.denoise(rows), model.denoise(data[0].astype(dtype)))}
        found["inverse_transform"] = model.inverse_transform(scores), model.inverse_transform(plain)
        single = dtype == np.float32 or kind in SINGLE
        for name, (ours, expected) in found.items():
            assert type(ours) is type(rows) and ours.device == rows.device and ours.dtype == rows.dtype, name
            tolerance = 1e-4 if single else 1e-10
            np.testing.assert_allclose(as_numpy(ours), expected, rtol=tolerance, atol=tolerance)


def test_only_moments_leave_the_device(data, monkeypatch):
    moved, moments, move = [], Moments.of(data[0]), tensors.to_numpy
    monkeypatch.setattr(tensors, "to_numpy", lambda tensor: moved.append(tuple(tensor.shape)) or move(tensor))
    found = Moments.of(strict.asarray(data[0], device=strict.Device("device1")))
    assert sorted(set(moved)) == [(5,), (5, 5)]
    np.testing.assert_allclose(found.scatter, moments.scatter, rtol=1e-13)


def test_rows_of_weight_zero_are_left_out_whatever_their_values(data, make, small_blocks):
    rows, weights = data[0].copy(), np.random.default_rng(0).integers(0, 3, size=900) + 0.5
    weights[:40] = weights[500] = 0
    rows[:40], rows[500] = np.nan, np.inf
    found, plain = (Moments.of(kind(rows), weights=weights) for kind in (make, np.asarray))
    np.testing.assert_allclose(found.mean, plain.mean, rtol=1e-14)
    np.testing.assert_allclose(found.scatter, plain.scatter, rtol=1e-12, atol=1e-9)
    assert found.counts == pytest.approx(plain.counts)


def test_weights_groups_and_labels_may_be_tensors(data, kind, make):
    both, labels = np.concatenate(data), np.repeat([1, 0], [900, 950]).astype(np.int32)
    weights, groups = np.random.default_rng(0).random(1850), np.arange(1850, dtype=np.int32) // 5
    xp, device = namespace(kind)
    model, plain = (
        DPCA(2, background_label=0).fit(rows(both), y, sample_weight=w, groups=g)
        for rows, y, w, g in (
            (make, xp.asarray(labels, device=device), make(weights), xp.asarray(groups, device=device)),
            (np.asarray, labels, weights.astype(np.float32) if kind in SINGLE else weights, groups),
        )
    )
    np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(model.p_value_, plain.p_value_, rtol=1e-9)


def test_parts_of_a_constant_feature_have_no_variance(make, small_blocks):
    rows = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    rows[:, 1] = 0.1
    assert Moments.of(make(rows)).scatter[1].tolist() == [0, 0, 0]


def test_target_and_background_may_be_in_different_containers_and_on_different_devices(data):
    plain = DPCA(2).fit(data[0], background=data[1])
    here, there = (strict.asarray(data[0], device=strict.Device(name)) for name in ("device1", "device2"))
    background = pd.DataFrame(data[1])
    other = strict.asarray(data[1], device=strict.Device("device2"))
    for target, control in ((here, other), (here, data[1]), (data[0], other), (there, background)):
        model = DPCA(2).fit(target, background=control)
        np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-10, atol=1e-10)
    scores = model.transform(here)
    assert scores.device == here.device and isinstance(model.transform(data[0]), np.ndarray)


def test_several_backgrounds_and_batches_may_be_tensors(data, make):
    parts = [data[1][:400], data[1][400:]]
    several = DPCA(2).fit(make(data[0]), background=[make(part) for part in parts])
    np.testing.assert_allclose(several.ratios_, DPCA(2).fit(data[0], background=parts).ratios_, rtol=1e-10)
    batches = DPCA(2).partial_fit(make(data[0][:300]), background=make(data[1]))
    batches.partial_fit(make(data[0][300:]))
    np.testing.assert_allclose(batches.ratios_, DPCA(2).fit(*data[:1], background=data[1]).ratios_, rtol=1e-10)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float16", "bfloat16"])
def test_other_types_of_numbers_give_the_fit_of_their_values(data, dtype):
    torch = pytest.importorskip("torch", reason="torch is not installed: no tests of its tensors")
    rows = torch.asarray(data[0] > 30) if dtype == "bool" else torch.asarray(data[0]).to(getattr(torch, dtype))
    plain = DPCA(2).fit(rows.double().numpy())
    model = DPCA(2).fit(rows)
    np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-10, atol=1e-10)
    scores = model.transform(rows)
    assert scores.dtype == torch.float64
    np.testing.assert_allclose(scores.numpy(), plain.transform(rows.double().numpy()), rtol=1e-10, atol=1e-10)
    assert standout.read(rows).collect("rows").dtype.kind in "fiub"


def test_bfloat16_of_jax_gives_the_fit_of_its_values(data):
    jnp = namespace("jax, no x64")[0]
    rows = jnp.asarray(data[0], dtype=jnp.bfloat16)
    np.testing.assert_allclose(DPCA(2).fit(rows).ratios_, DPCA(2).fit(data[0]).ratios_, rtol=1e-10)


def test_booleans_with_a_constant_feature_give_the_fit_of_their_values():
    rows = np.random.default_rng(0).random((300, 4)) < [0.5, 0.3, 0.2, 0.0]
    rows[100:, 0] &= rows[100:, 1]  # varies less in the background
    model = DPCA(1).fit(strict.asarray(rows[:100]), background=strict.asarray(rows[100:]))
    np.testing.assert_allclose(model.ratios_, DPCA(1).fit(rows[:100], background=rows[100:]).ratios_, rtol=1e-12)


def test_values_that_torch_negates_lazily_or_that_numpy_lacks_give_the_fit_of_their_values(data):
    torch = pytest.importorskip("torch", reason="torch is not installed: no tests of its tensors")
    expected = DPCA(1).fit(data[0], background=data[1]).ratios_
    lazy = torch.tensor(-1j * data[0]).conj().imag  # a view with the negative bit set
    assert lazy.is_neg()
    np.testing.assert_allclose(DPCA(1).fit(lazy, background=data[1]).ratios_, expected, rtol=1e-12)
    tiny = torch.tensor(data[0]).to(torch.float8_e4m3fn)
    expected = DPCA(1).fit(tiny.to(torch.float64), background=data[1]).ratios_
    np.testing.assert_allclose(DPCA(1).fit(tiny, background=data[1]).ratios_, expected, rtol=1e-12)


def test_gradients_are_not_tracked(data):
    torch = pytest.importorskip("torch", reason="torch is not installed: no tests of its tensors")
    rows = torch.nn.Parameter(torch.asarray(data[0]))
    model = DPCA(2).fit(rows, background=torch.asarray(data[1]))
    scores = model.transform(rows)
    assert not scores.requires_grad and not model.inverse_transform(scores.requires_grad_()).requires_grad
    np.testing.assert_allclose(model.ratios_, DPCA(2).fit(data[0], background=data[1]).ratios_, rtol=1e-10)


def test_a_tensor_is_not_changed(data, make):
    rows = make(data[0])
    model = DPCA(2).fit(rows, background=make(data[1]))
    model.transform(rows), model.denoise(rows)
    np.testing.assert_array_equal(as_numpy(rows), data[0])


def test_other_shapes_and_types_are_refused(make, refused):
    rows = make(np.ones((6, 2)))
    refused(lambda: DPCA().fit(rows[:, 0]), "target", "Expected 2D array, got 1D array")
    refused(lambda: DPCA().fit(rows[:, :, None]), "target", "three dimensions")
    refused(lambda: DPCA().fit(rows[:0, :]), "target", "0 sample")
    model = DPCA(1).fit(np.random.default_rng(0).normal(size=(9, 2)))
    refused(lambda: model.transform(make(np.ones((6, 3)))), "3 features", kind=FeatureError)
    refused(lambda: model.inverse_transform(rows), "scores", "do not fit 1 components")


def test_complex_sparse_and_inexact_tensors_are_refused(refused):
    wrong = strict.asarray(np.ones((6, 2), dtype=complex))
    refused(lambda: DPCA().fit(wrong), "target", "Complex data not supported")
    large = strict.asarray(2**60 + np.arange(6).reshape(3, 2))
    refused(lambda: DPCA().fit(large), "target", "float64 keeps only multiples of 256")
    torch = pytest.importorskip("torch", reason="torch is not installed: no tests of its tensors")
    refused(lambda: DPCA().fit(torch.eye(5).to_sparse()), "target", "sparse tensors are not supported")


def test_values_that_are_not_numbers_are_refused(refused):
    jax = pytest.importorskip("jax", reason="jax is not installed: no tests of its arrays")
    keys = jax.random.split(jax.random.key(0), (4, 2))
    refused(lambda: DPCA().fit(keys), "target", "are not numbers", kind=NotNumbersError)


def test_non_finite_values_are_located(data, make, refused, small_blocks):
    bad = data[0].copy()
    bad[[10, 800], 2] = np.nan, np.inf
    refused(lambda: DPCA().fit(make(bad)), "target", "1 NaN and 1 inf", "2 (2)", kind=NonFiniteError)
    model = DPCA(2).fit(data[0], background=data[1])
    for method in (model.transform, model.denoise):
        refused(lambda method=method: method(make(bad)), "X", "1 NaN and 1 inf", kind=NonFiniteError)


def test_missing_values_are_filled_in_as_in_arrays(data, make):
    holes = data[0].copy()
    holes[::7, 1] = np.nan
    found, plain = (DPCA(2).fit(standout.read(kind(holes), missing="auto")) for kind in (make, np.asarray))
    np.testing.assert_allclose(found.ratios_, plain.ratios_, rtol=1e-10)


@quiet
def test_more_features_than_rows_give_the_fit_of_the_arrays(make):
    rng = np.random.default_rng(0)
    target, background = (rng.normal(size=(30, 80)).astype(np.float32) for _ in range(2))
    target[:, 0] *= 4
    model, plain = (DPCA(1).fit(kind(target), background=kind(background)) for kind in (make, np.asarray))
    np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(as_numpy(model.transform(make(target))), plain.transform(target), rtol=1e-4, atol=1e-4)


def test_a_data_frame_of_scores_can_be_asked_for(data, make):
    model = DPCA(2).fit(data[0], background=data[1])
    frame = clone(model).set_output(transform="pandas").fit(data[0], background=data[1]).transform(make(data[0]))
    assert isinstance(frame, pd.DataFrame)
    np.testing.assert_allclose(frame, model.transform(data[0]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("estimator", [CPCA(2, alpha=1.0), KernelDPCA(2, gamma=0.1)], ids=["CPCA", "KernelDPCA"])
def test_other_estimators_return_tensors(data, make, estimator):
    rows = [part[:200] for part in data]
    target, background = map(make, rows)
    model, plain = (clone(estimator).fit(a, background=b) for a, b in ((target, background), rows))
    scores = model.transform(target)
    assert type(scores) is type(target) and scores.device == target.device
    np.testing.assert_allclose(as_numpy(scores), plain.transform(rows[0]), rtol=1e-4, atol=1e-4)


def test_inference_gives_the_results_of_the_arrays(data, make):
    rows = [part[:150] for part in data]
    pairs = [[make(part) for part in rows], rows]
    ours, plain = (standout.permutation_test(*pair, n_permutations=99) for pair in pairs)
    assert ours.p_values.tolist() == plain.p_values.tolist()
    ours, plain = (standout.assess(*pair, n_permutations=99, n_bootstrap=20) for pair in pairs)
    assert str(ours) == str(plain)
    for ours, plain in zip(*(standout.compare(*pair) for pair in pairs), strict=True):
        assert ours.name == plain.name
        np.testing.assert_allclose(ours.ratios, plain.ratios, rtol=1e-10)


def test_scores_can_be_plotted(data, make):
    model = DPCA(2).fit(data[0], background=data[1])
    axes = standout.plot.scores(model.transform(make(data[0])))
    drawn = np.concatenate([part.get_offsets() for part in axes.collections])
    np.testing.assert_allclose(np.sort(drawn[:, 0]), np.sort(model.transform(data[0])[:, 0]), rtol=1e-4, atol=1e-4)
    plt.close("all")


def test_without_the_package_the_error_names_the_extra(data, monkeypatch):
    monkeypatch.setitem(sys.modules, "array_api_compat", None)
    with pytest.raises(MissingExtraError, match=r"target: .*pip install 'standout\[array-api\]'"):
        DPCA().fit(strict.asarray(data[0]))


def test_transposed_tensors_and_column_names(data, make, refused):
    source = standout.read(make(data[0]), transpose=True)
    np.testing.assert_array_equal(source.collect("rows"), data[0].T)
    refused(lambda: standout.read(make(data[0]), columns="a"), "has no column names", kind=InputError)
