"""The few calls of LAPACK that the library makes up itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg

from standout._blas import n_above, rank_tolerance


def symmetric(values, seed):
    """Return a symmetric matrix with these eigenvalues."""
    turn = linalg.qr(np.random.default_rng(seed).normal(size=(len(values),) * 2))[0]
    return (turn * values) @ turn.T


@given(
    values=st.lists(st.integers(-50, 50), min_size=1, max_size=30),
    threshold=st.integers(-50, 50),
    seed=st.integers(0, 99),
)
def test_eigenvalues_above_a_threshold_are_counted(values, threshold, seed):
    matrix = symmetric(np.array(values, dtype=float), seed)
    before = matrix.copy()
    assert n_above(matrix, threshold + 0.5) == sum(value > threshold + 0.5 for value in values)
    np.testing.assert_array_equal(matrix, before)


def test_pivots_of_two_rows_are_counted_too():
    matrix = np.kron(np.eye(4), [[0.0, 3.0], [3.0, 0.0]])  # no pivot of one row is possible
    assert n_above(matrix, 0.0) == 4
    assert n_above(matrix, 3.5) == 0
    assert n_above(matrix, -3.5) == 8


@pytest.mark.parametrize(("n_rows", "rank"), [(50, 20), (700, 699), (900, 450)])
@pytest.mark.parametrize("decades", [0, 6])
def test_the_rank_of_a_gram_matrix_is_that_of_its_eigenvalues(n_rows, rank, decades):
    rng = np.random.default_rng(rank)
    rows = rng.normal(size=(n_rows, rank)) @ (
        np.logspace(0, -decades / 2, rank)[:, None] * rng.normal(size=(rank, 2000))
    )
    gram = rows @ rows.T
    threshold = rank_tolerance(n_rows) * linalg.eigvalsh(gram, subset_by_index=[n_rows - 1, n_rows - 1])[0]
    assert n_above(gram, threshold) == (linalg.eigvalsh(gram) > threshold).sum() == rank
