"""Agreement with the package ccPCA (its module cpca): given alpha, and its own search against the trace ratio."""

import numpy as np
import pytest
from scipy.linalg import subspace_angles

from standout._cpca import CPCA

peer = pytest.importorskip("cpca", reason="the package ccpca is in the extra 'peers'")


@pytest.fixture(scope="module")
def pair():
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(10, 10))
    return (rng.normal(size=(300, 10)) * np.r_[4, 3, np.ones(8)]) @ mix, rng.normal(size=(800, 10)) @ mix


def unbiased(m, n):
    """What an alpha between covariances that divide by n − 1 is for those that divide by n."""
    return (m - 1) / m * n / (n - 1)


@pytest.mark.parametrize("alpha", [0.0, 0.7, 3.0])
def test_the_subspace_at_an_alpha_is_theirs(pair, alpha):
    theirs = peer.CPCA(n_components=2, standardize=False).fit(*pair, alpha=alpha)
    ours = CPCA(2, alpha=alpha * unbiased(300, 800)).fit(pair[0], background=pair[1])
    assert subspace_angles(ours.components_.T, theirs.components_).max() < 1e-7


def test_their_best_alpha_is_the_trace_ratio(pair):
    theirs = peer.CPCA(n_components=2, standardize=False)
    theirs.fit(*pair, eta=1e-12, convergence_ratio=1e-14, max_iter=100)
    ours = CPCA(2, alpha="trace_ratio").fit(pair[0], background=pair[1])
    assert ours.alpha_ == pytest.approx(theirs.best_alpha_ * unbiased(300, 800), rel=1e-6)
    assert subspace_angles(ours.components_.T, theirs.components_).max() < 1e-4
