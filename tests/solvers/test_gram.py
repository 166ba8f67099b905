"""More features than rows, sparse: a sparse Gram matrix, with the numbers of the dense rows."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from helpers import quiet
from standout._cpca import CPCA
from standout._dpca import DPCA
from standout.errors import NonFiniteError
from standout.solvers import gram

pytestmark = quiet
KINDS = {
    "csr_array": sparse.csr_array,
    "csc_matrix": sparse.csc_matrix,
    "csr of bytes": lambda rows: sparse.csr_array(rows.astype("u1")),
    "csr of float32": lambda rows: sparse.csr_array(rows.astype("f4")),
}
FEATURES = 3000


def counts(rows, seed, features=FEATURES):
    """Counts with a group of rows in which some features are more frequent; some features never occur."""
    rng = np.random.default_rng(seed)
    rate = rng.gamma(0.5, 0.06, size=features) * np.where(np.arange(features) % 50, 1, 0)
    table = rng.poisson(rate, size=(rows, features)).astype(float)
    table[: rows // 3, 100:160] += rng.poisson(0.4 + seed, size=(rows // 3, 60))
    return table


@pytest.fixture
def dense_panels(monkeypatch):
    """Count the panels of columns that are made dense."""
    made, panels = [], gram.RowSpan._panels
    monkeypatch.setattr(gram.RowSpan, "_panels", lambda rows: made.append(1) or panels(rows))
    return made


def same(found, expected):
    np.testing.assert_allclose(found.ratios_, expected.ratios_, rtol=1e-10)
    np.testing.assert_allclose(found.shrinkage_, expected.shrinkage_, rtol=1e-10)
    scale = np.abs(expected.components_).max()
    np.testing.assert_allclose(found.components_ / scale, expected.components_ / scale, atol=1e-10)
    np.testing.assert_allclose(found.mean_, expected.mean_, rtol=1e-12, atol=1e-14)
    assert found.solver_ == expected.solver_ == "span"


@pytest.mark.parametrize("kind", KINDS)
def test_sparse_rows_give_the_components_of_dense_rows_without_dense_panels(kind, dense_panels):
    target, background = counts(120, 1), counts(150, 0)
    found = DPCA(3).fit(KINDS[kind](target), background=KINDS[kind](background))
    assert not dense_panels
    same(found, DPCA(3).fit(target, background=background))


@pytest.mark.parametrize(
    "options",
    [{"shrinkage": 0.2}, {"centering": "background"}, {"mix": "equal"}, {"mix": [0.2, 0.8], "centering": "background"}],
    ids=str,
)
def test_sparse_and_dense_rows_agree_with_every_option(options, dense_panels):
    target, first, second = counts(120, 1), counts(90, 0), counts(100, 2)
    backgrounds = {"one": first, "two": second} if "mix" in options else first
    weights = np.random.default_rng(5).integers(0, 3, size=120).astype(float)
    sparse_ones = (
        {name: sparse.csr_array(rows) for name, rows in backgrounds.items()}
        if isinstance(backgrounds, dict)
        else sparse.csr_array(backgrounds)
    )
    found = DPCA(3, **options).fit(sparse.csr_array(target), background=sparse_ones, sample_weight=weights)
    assert not dense_panels
    same(found, DPCA(3, **options).fit(target, background=backgrounds, sample_weight=weights))


def test_without_a_background_the_fit_is_pca(dense_panels):
    target = counts(120, 1)
    found = DPCA(3).fit(sparse.csr_array(target))
    assert not dense_panels
    values = np.linalg.svd(target - target.mean(axis=0), compute_uv=False)[:3]
    np.testing.assert_allclose(found.ratios_, values**2 / 120, rtol=1e-10)


@pytest.mark.parametrize("centering", ["own", "background"])
def test_contrastive_pca_of_sparse_rows_makes_no_dense_panels(centering, dense_panels):
    target, background = counts(120, 1), counts(150, 0)
    estimator = CPCA(3, alpha=2.0, centering=centering)
    found = estimator.fit(sparse.csr_array(target), background=sparse.csr_array(background)).components_
    assert not dense_panels
    np.testing.assert_allclose(found, estimator.fit(target, background=background).components_, atol=1e-10)


def test_duplicate_sparse_entries_are_summed(dense_panels):
    target, background = counts(120, 1), counts(150, 0)
    rows = sparse.csr_array(target)
    twice = sparse.csr_array((np.repeat(rows.data / 2, 2), np.repeat(rows.indices, 2), 2 * rows.indptr), rows.shape)
    found = DPCA(3).fit(twice, background=sparse.csr_array(background))
    assert not dense_panels
    same(found, DPCA(3).fit(target, background=background))
    assert twice.nnz == 2 * rows.nnz


@pytest.mark.parametrize("value", [5.0, 2.0**20])
def test_a_sparse_feature_far_from_zero_uses_dense_panels_and_loses_no_precision(value, dense_panels):
    target, background = counts(120, 1), counts(150, 0)
    shifted = [rows.copy() for rows in (target, background)]
    for rows in shifted:
        rows[:, 7] += value * 3
    found = DPCA(3).fit(sparse.csr_array(shifted[0]), background=sparse.csr_array(shifted[1]))
    assert dense_panels
    np.testing.assert_allclose(found.ratios_, DPCA(3).fit(target, background=background).ratios_, rtol=1e-9)


def test_sparse_matrices_with_many_entries_use_dense_panels(dense_panels):
    rng = np.random.default_rng(3)
    rows = [sparse.csr_array(rng.poisson(1.0, size=(40, 400))) for _ in range(2)]
    DPCA(2).fit(rows[0], background=rows[1])
    assert dense_panels


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_a_bad_value_is_located_in_wide_sparse_rows(bad, refused):
    target, background = sparse.csr_array(counts(120, 1)), sparse.csr_array(counts(150, 0))
    background.data[40] = bad
    where = str(background.indices[40])
    fit = lambda: DPCA(1).fit(target, background=background)  # noqa: E731
    refused(fit, "background", where, kind=NonFiniteError if bad != 1e200 else ValueError)


def test_memory_stays_far_below_that_of_dense_rows():
    rows = [sparse.random(60, 40_000, density=0.002, format="csr", random_state=seed) for seed in (0, 1)]
    DPCA(1).fit(rows[0], background=rows[1])
    tracemalloc.start()
    try:
        DPCA(1).fit(rows[0], background=rows[1])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.5 * 2 * 60 * 40_000 * 8


@quiet
@pytest.mark.parametrize("n", [300, 1000, 3000])
def test_constant_features_have_no_weight_on_wide_data(n):
    rng = np.random.default_rng(n)
    features = 400 if n == 3000 else n + 300  # of many rows, the dense side of a smaller problem is enough
    target, background = rng.normal(size=(100, features)), rng.normal(size=(n, features))
    background[:, :40] = 10 * rng.normal(size=40)
    target[:, 5] = background[:, 5] = 0.1
    wide = DPCA().fit(target, background=background)
    dense = DPCA(solver="dense").fit(target, background=background)
    np.testing.assert_allclose(wide.ratios_, dense.ratios_, rtol=1e-8)
    span = DPCA(solver="span", shrinkage=0.5).fit(target, background=background)
    half = DPCA(solver="dense", shrinkage=0.5).fit(target, background=background)
    np.testing.assert_allclose(span.ratios_, half.ratios_, rtol=1e-8)
    assert (span.components_[:, 5] == 0).all()
