"""float32 in, float32 out; sums and fitted attributes stay float64."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import PCA

import standout
from helpers import OptionalPackage
from standout import CPCA, DPCA, KernelDPCA, Moments

pd = OptionalPackage("pandas")
pl = OptionalPackage("polars")

RNG = np.random.default_rng(0)
TARGET = (RNG.normal(size=(300, 6)) * [1, 1, 4, 1, 1, 1] + 3).astype(np.float32)
BACKGROUND = (RNG.normal(size=(500, 6)) + 3).astype(np.float32)
CONTAINERS = {
    "array": lambda rows: rows,
    "column-major": np.asfortranarray,
    "pandas": lambda rows: pd.DataFrame(rows, columns=list("abcdef")),
    "polars": lambda rows: pl.DataFrame({name: rows[:, i] for i, name in enumerate("abcdef")}),
    "csr": sparse.csr_array,
    "csc": sparse.csc_matrix,
    "source": standout.read,
}


def estimators():
    return [DPCA(2), CPCA(2), KernelDPCA(2)]


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("estimator", estimators(), ids=["DPCA", "CPCA", "KernelDPCA"])
def test_scores_have_the_precision_of_the_rows(container, estimator):
    make = CONTAINERS[container]
    model = estimator.fit(make(TARGET), background=make(BACKGROUND))
    single, double = model.transform(make(TARGET)), model.transform(make(TARGET.astype(np.float64)))
    assert single.dtype == np.float32 and double.dtype == np.float64
    np.testing.assert_allclose(single, double, rtol=1e-5, atol=1e-5)


def test_rows_restored_and_denoised_have_the_precision_of_their_input():
    model = DPCA(2).fit(TARGET, background=BACKGROUND)
    scores = model.transform(TARGET)
    assert model.inverse_transform(scores).dtype == np.float32
    assert model.inverse_transform(scores.astype(np.float64)).dtype == np.float64
    assert model.denoise(TARGET).dtype == np.float32
    assert model.denoise(TARGET.astype(np.float64)).dtype == np.float64


def test_fitted_attributes_equal_those_of_the_same_rows_in_double_precision():
    single = DPCA(2).fit(TARGET, background=BACKGROUND)
    double = DPCA(2).fit(TARGET.astype(np.float64), background=BACKGROUND.astype(np.float64))
    for name in ("components_", "patterns_", "ratios_", "mean_", "explained_variance_ratio_"):
        assert getattr(single, name).dtype == np.float64
        np.testing.assert_array_equal(getattr(single, name), getattr(double, name))
    assert single.score(TARGET, background=BACKGROUND) == double.score(
        TARGET.astype(np.float64), background=BACKGROUND.astype(np.float64)
    )
    assert Moments.of(TARGET).scatter.dtype == np.float64


def test_single_precision_rows_far_from_zero_lose_less_than_with_scikit_learn():
    rows = (np.random.default_rng(1).normal(size=(5000, 5)) * [3, 2, 1, 1, 1] + 1000).astype(np.float32)
    exact = PCA(2, svd_solver="full").fit_transform(rows.astype(np.float64))
    ours = DPCA(2).fit(rows).transform(rows)
    theirs = PCA(2, svd_solver="full").fit(rows).transform(rows)
    errors = [np.abs(np.abs(found) - np.abs(exact)).max() for found in (ours, theirs)]
    assert errors[0] < 1e-5 and errors[0] <= errors[1]


@pytest.mark.parametrize("dtype", [np.float16, np.int32, np.int64, np.uint8, bool])
def test_scores_of_other_types_are_float64(dtype):
    rows = (TARGET > 3).astype(dtype)
    assert DPCA(2).fit(rows).transform(rows).dtype == np.float64


def test_frames_of_mixed_types_are_transformed_to_float64():
    frame = pd.DataFrame(TARGET, columns=list("abcdef")).astype({"c": np.float64})
    assert DPCA(2).fit(frame).transform(frame).dtype == np.float64


def test_scores_on_a_cluster_stay_lazy_and_have_the_precision_of_the_rows():
    dask = pytest.importorskip("dask.array")
    rows = dask.from_array(TARGET, chunks=(100, 6))
    model = DPCA(2).fit(TARGET, background=BACKGROUND)
    scores = model.transform(rows)
    assert scores.dtype == np.float32 and scores.compute().dtype == np.float32
    assert model.inverse_transform(scores).compute().dtype == np.float32


def test_set_output_keeps_the_precision():
    frame = pd.DataFrame(TARGET, columns=list("abcdef"))
    found = DPCA(2).set_output(transform="pandas").fit_transform(frame)
    assert (found.dtypes == np.float32).all()
