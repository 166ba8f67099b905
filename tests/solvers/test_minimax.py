"""Minimax mixture of several backgrounds: components with a large ratio against each of them."""

import numpy as np
import pytest
from scipy import linalg, optimize

from helpers import likelihood_gain, quiet
from standout._dpca import DPCA
from standout._moments import Moments
from standout.errors import InputError
from standout.solvers.minimax import minimax_shares


def moments(covariance, rows=100_000):
    size = len(covariance)
    return Moments(np.zeros(size), np.asarray(covariance, dtype=float) * rows, float(rows), float(rows), rows)


def test_an_example_with_a_closed_form_solution():
    first, second = np.diag([10.0, 1, 1, 1, 1]), np.diag([1.0, 10, 1, 1, 1])
    target = np.diag([8.0, 8, 3, 1, 1])
    alone = DPCA(1, shrinkage=None, mix=[0, 1]).fit(moments(target), background=[moments(first), moments(second)])
    assert alone.ratios_[0] == pytest.approx(8)  # one background alone: the wrong axis
    model = DPCA(1, shrinkage=None, mix="minimax").fit(moments(target), background=[moments(first), moments(second)])
    assert model.ratios_[0] == pytest.approx(3, rel=1e-8)
    np.testing.assert_allclose(np.abs(model.components_[0]), [0, 0, 1, 0, 0], atol=1e-6)


@pytest.mark.parametrize(("size", "count"), [(4, 2), (6, 3), (10, 4)])
def test_no_other_shares_give_a_smaller_largest_ratio(size, count):
    rng = np.random.default_rng(size)

    def random():
        rows = rng.normal(size=(4 * size, size)) * rng.uniform(0.3, 3, size=size)
        return rows.T @ rows / len(rows)

    target, backgrounds = random(), [random() for _ in range(count)]

    def largest(shares):
        return linalg.eigvalsh(target, np.einsum("k,kij->ij", shares, backgrounds))[-1]

    found, ratio, gap = minimax_shares(target, backgrounds)
    assert ratio == pytest.approx(largest(found), rel=1e-10)
    assert gap < 1e-8
    assert all(largest(shares) >= ratio * (1 - 1e-8) for shares in rng.dirichlet(np.ones(count), size=300))
    # A general-purpose optimiser finds no smaller value either.
    start = np.full(count, 1 / count)
    other = optimize.minimize(
        lambda v: largest(np.abs(v) / np.abs(v).sum()),
        start,
        method="Nelder-Mead",
        options={"maxiter": 4000, "fatol": 1e-12},
    )
    assert ratio <= other.fun * (1 + 1e-8)
    # Where the top ratio is simple it is the largest ratio that holds against every background.
    u = linalg.eigh(target, np.einsum("k,kij->ij", found, backgrounds))[1][:, -1]
    assert (u @ target @ u) / max(u @ part @ u for part in backgrounds) <= ratio * (1 + 1e-8)


@quiet
def test_one_background_is_not_mixed_and_scores_use_the_fitted_shares():
    rng = np.random.default_rng(0)
    target, background = rng.normal(size=(90, 5)), rng.normal(size=(200, 5))
    plain = DPCA().fit(target, background=background)
    minimax = DPCA(mix="minimax").fit(target, background=[background])
    np.testing.assert_allclose(minimax.ratios_, plain.ratios_, rtol=1e-12)
    several = DPCA(mix="minimax").fit(target, background={"a": background, "b": background * 3})
    assert several.mix_ == pytest.approx([0, 1], abs=1e-6)
    assert several.score(target, background={"b": background * 3, "a": background}) == pytest.approx(
        likelihood_gain(several, target, background * 3), rel=1e-5
    )


@quiet
def test_wide_rows_and_their_moments_give_the_same_shares():
    rng = np.random.default_rng(1)
    target = rng.normal(size=(20, 70))
    backgrounds = [rng.normal(size=(15, 70)) * rng.uniform(0.5, 2, size=70) for _ in range(3)]
    by_rows = DPCA(mix="minimax").fit(target, background=backgrounds)
    by_moments = DPCA(mix="minimax").fit(Moments.of(target), background=[Moments.of(part) for part in backgrounds])
    assert by_rows.ratios_[0] == pytest.approx(by_moments.ratios_[0], rel=1e-6)


def _largest(target, backgrounds, shares, rho):
    """The largest ratio against a mixture shrunk toward its diagonal, by definition."""
    cyy = sum(share * np.cov(part.T, ddof=0) for share, part in zip(shares, backgrounds, strict=True))
    return linalg.eigvalsh(np.cov(target.T, ddof=0), (1 - rho) * cyy + rho * np.diag(np.diag(cyy)))[-1]


@quiet
@pytest.mark.parametrize("shrinkage", [None, 0.5, 0.9, "auto", "oas"])
def test_minimax_shares_minimise_the_largest_ratio_of_the_shrunk_problem(shrinkage):
    rng = np.random.default_rng(8)
    target = rng.normal(size=(300, 6))
    backgrounds = [rng.normal(size=(60, 6)) * rng.uniform(0.3, 10, size=6) for _ in range(2)]
    model = DPCA(1, mix="minimax", shrinkage=shrinkage).fit(target, background=backgrounds)
    grid = [(share, 1 - share) for share in np.linspace(0, 1, 401)]
    best = min(_largest(target, backgrounds, shares, model.shrinkage_) for shares in grid)
    assert model.ratios_[0] <= best * (1 + 1e-9)
    assert model.ratios_[0] == pytest.approx(_largest(target, backgrounds, model.mix_, model.shrinkage_), rel=1e-8)


@quiet
def test_minimax_accepts_duplicate_features_and_rejects_nonlinear_problems():
    rng = np.random.default_rng(9)
    target, parts = rng.normal(size=(400, 3)), [rng.normal(size=(400, 3)) * s for s in ([1, 2, 3], [3, 2, 1])]
    plain = DPCA(1, mix="minimax").fit(target, background=parts)
    twice = [0, 1, 2, 0]
    doubled = DPCA(1, mix="minimax").fit(target[:, twice], background=[part[:, twice] for part in parts])
    assert doubled.ratios_[0] == pytest.approx(plain.ratios_[0], rel=1e-6)
    with pytest.raises(InputError, match="cannot be combined"):
        DPCA(mix="minimax", centering="background").fit(target, background=parts)
    constant = [np.c_[part[:, :2], np.ones(400)] for part in parts]
    with pytest.raises(InputError, match="infinite whatever the shares"):
        DPCA(mix="minimax").fit(target, background=constant)
