"""Very sparse rows become moments by a sparse product, with the numbers of the dense rows."""

import numpy as np
import pytest
from scipy import sparse

from helpers import covariance
from standout._accumulate import Accumulator
from standout._dpca import DPCA
from standout._moments import Moments
from standout.errors import NonFiniteError

KINDS = {
    "csr_array": sparse.csr_array,
    "csc_matrix": sparse.csc_matrix,
    "csr of bytes": lambda rows: sparse.csr_array(rows.astype("u1")),
    "csr of float32": lambda rows: sparse.csr_array(rows.astype("f4")),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_moments_of_very_sparse_rows_are_a_sparse_product_and_the_same_numbers(kind, weighted, monkeypatch):
    rows = np.random.default_rng(10).poisson(0.03, size=(900, 300)).astype(float)
    weights = np.random.default_rng(11).integers(0, 3, size=900) if weighted else None
    added = []
    monkeypatch.setattr(Accumulator, "add", lambda *_: added.append(1))
    found = Moments.of(KINDS[kind](rows), weights=weights)
    assert not added, "the rows were added up in dense blocks"
    expected = np.cov(rows.T, fweights=weights, ddof=0)
    np.testing.assert_allclose(found.covariance(), expected, rtol=1e-12, atol=1e-15)
    assert np.array_equal(found.scatter, found.scatter.T)
    assert found.mean == pytest.approx(np.average(rows, axis=0, weights=weights), rel=1e-13)
    assert found.rows == (900 if weights is None else np.count_nonzero(weights))


def test_moments_of_sparse_rows_with_a_feature_far_from_zero_lose_no_digits():
    rng = np.random.default_rng(12)
    rows = rng.poisson(0.02, size=(900, 300)).astype(float)
    rows[:, 7] = rng.integers(0, 8, size=900)
    shifted = rows.copy()
    shifted[:, 7] += 2.0**20
    found = Moments.of(sparse.csr_array(shifted)).covariance()
    np.testing.assert_allclose(found, covariance(rows), rtol=1e-11, atol=1e-13)


def test_values_that_are_not_finite_are_located_in_very_sparse_rows(refused):
    rows = sparse.csr_array(np.random.default_rng(13).poisson(0.02, size=(900, 300)).astype(float))
    rows.data[40] = np.inf
    where = str(rows.indices[40])
    refused(lambda: Moments.of(rows, role="counts"), "counts", "1 inf", f"{where} (1)", kind=NonFiniteError)
    model = DPCA(1).fit(np.eye(300) + 0.1)
    refused(lambda: model.transform(rows), "X", "1 inf", f"{where} (1)", kind=NonFiniteError)
