"""The dense solver: Cholesky, eigh and Lanczos on covariances."""

import numpy as np
import pytest

from helpers import exact_ratios, sample_pair
from standout._dpca import DPCA
from standout.errors import TableWarning
from standout.solvers import dense

pytestmark = pytest.mark.filterwarnings("ignore::standout.errors.OverfitWarning")


def test_the_units_of_the_features_do_not_reduce_accuracy():
    rng = np.random.default_rng(8)
    target, background = sample_pair(rng, 100, 150, 8)
    units = np.geomspace(1e-12, 1e12, 8)
    model = DPCA(None, shrinkage=None).fit(target * units, background=background * units)
    assert model.solver_ == "dense"
    assert model.ratios_ == pytest.approx(exact_ratios(target * units, background * units), rel=1e-11)


def test_lanczos_is_bitwise_reproducible_when_it_restarts():
    # Every vector is an eigenvector of the identity: the Krylov space is exhausted after one step.
    first, again = (dense.lanczos_pairs(np.eye(700), None, 3) for _ in range(2))
    np.testing.assert_array_equal(first[1], again[1])
    np.testing.assert_allclose(first[1].T @ first[1], np.eye(3), atol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_ratios_of_a_dataset_against_itself_are_one(seed):
    # All eigenvalues are one and the same up to rounding, on which bisection may give up.
    rows = np.random.default_rng(seed).poisson(3, size=(700, 60)).astype(float)
    with pytest.warns(TableWarning, match="all 700 rows are also in the target"):
        model = DPCA(3, shrinkage=None).fit(rows, background=rows)
    np.testing.assert_allclose(model.ratios_, 1, atol=1e-9)
