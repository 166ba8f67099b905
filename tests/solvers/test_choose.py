"""All solvers give the same model where they apply: tall and wide, dense and sparse, weighted and mixed."""

import numpy as np
import pytest
from scipy import linalg, sparse

from helpers import covariance, same_up_to_sign, sample_pair
from standout._dpca import DPCA
from standout._moments import Moments
from standout.solvers import dense

pytestmark = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")


def agree(models, tolerance):
    first, *others = models
    for other in others:
        assert other.ratios_ == pytest.approx(first.ratios_, rel=tolerance)
        assert other.shrinkage_ == pytest.approx(first.shrinkage_, rel=1e-11)
        for name in ("components_", "patterns_"):
            one, two = getattr(first, name), getattr(other, name)
            assert same_up_to_sign(two, one, 100 * tolerance)
            assert np.all(np.einsum("ij,ij->i", one, two) > 0)
        assert other.mean_ == pytest.approx(first.mean_, abs=1e-12)
        for name in ("target_variance_", "background_variance_"):
            assert getattr(other, name) == pytest.approx(getattr(first, name), rel=100 * tolerance)
        assert other.noise_edge_ == pytest.approx(first.noise_edge_, rel=1e-12, nan_ok=True)


def kinds_of(rows):
    """Return the same rows as arrays and sparse matrices."""
    return {
        "array": rows,
        "fortran": np.asfortranarray(rows),
        "csr": sparse.csr_array(rows),
        "csc": sparse.csc_matrix(rows),
    }


@pytest.mark.parametrize("shrinkage", [None, "oas", 0.3])
@pytest.mark.parametrize("centering", ["own", "background"])
def test_solvers_agree_on_tall_data_with_several_weighted_backgrounds(shrinkage, centering):
    rng = np.random.default_rng(16)
    target, background = sample_pair(rng, 80, 150, 12)
    weights = [rng.uniform(0.2, 3, size=90), rng.uniform(0.2, 3, size=60)]
    models = [
        DPCA(4, shrinkage=shrinkage, centering=centering, solver=solver, mix=[2, 1]).fit(
            target,
            background=[background[:90], 2 * background[90:] + 1],
            sample_weight=rng.permutation(80),
            background_sample_weight=weights,
        )
        for solver, rng in ((solver, np.random.default_rng(3)) for solver in ("dense", "lanczos", "gsvd", "span"))
    ]
    agree(models, 1e-11)


@pytest.mark.parametrize("kind", ["array", "fortran", "csr", "csc"])
@pytest.mark.parametrize("centering", ["own", "background"])
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("shrinkage", ["auto", 0.2])
def test_solvers_agree_on_wide_data_of_every_kind(kind, centering, several, shrinkage):
    rng = np.random.default_rng(17)
    # Strong common factors, so that shrinkage is far from complete; half of the entries are zero.
    rows = rng.normal(size=(70, 150)) + 3 * rng.normal(size=(70, 3)) @ rng.normal(size=(3, 150))
    rows *= rng.integers(0, 2, size=(70, 150)) * rng.uniform(0.1, 10, size=150)
    target, first, second = rows[:25] * 2, rows[25:50], rows[50:]
    weights = [rng.uniform(0.2, 3, size=25), rng.uniform(0.2, 3, size=20)]
    given = {"background": kinds_of(first)[kind], "background_sample_weight": weights[0]}
    if several:
        given = {"background": [kinds_of(first)[kind], second], "background_sample_weight": weights}
    models = [
        DPCA(4, shrinkage=shrinkage, centering=centering, solver=solver).fit(kinds_of(target)[kind], **given)
        for solver in ("auto", "span", "dense", "lanczos", "gsvd")
    ]
    assert [model.solver_ for model in models] == ["span", "span", "dense", "lanczos", "gsvd"]
    assert 0.05 < models[0].shrinkage_ < 0.95
    agree(models, 1e-11)


@pytest.mark.parametrize("solver", ["auto", "dense", "gsvd", "span"])
@pytest.mark.parametrize("value", [0.0, 0.1])
def test_features_that_vary_nowhere_change_nothing_on_wide_data(solver, value):
    # Sparse data have empty columns as a rule.
    target, background = (rows.copy() for rows in sample_pair(np.random.default_rng(18), 20, 25, 80))
    alive = np.r_[:30, 31:80]
    plain = DPCA(3, solver=solver).fit(target[:, alive], background=background[:, alive])
    target[:, 30] = background[:, 30] = value
    model = DPCA(3, solver=solver).fit(target, background=background)
    assert model.ratios_ == pytest.approx(plain.ratios_, rel=1e-11)
    assert np.all(model.components_[:, 30] == 0) and np.all(model.patterns_[:, 30] == 0)
    assert same_up_to_sign(model.components_[:, alive], plain.components_, 1e-10)


@pytest.mark.parametrize("rows_as", ["array", "csr", "csc"])
def test_pca_of_wide_data_is_the_same_by_rows_and_by_covariance(rows_as):
    rows = kinds_of(sample_pair(np.random.default_rng(19), 30, 5, 100)[0])[rows_as]
    models = [DPCA(4, solver=solver).fit(rows) for solver in ("auto", "span", "dense", "lanczos")]
    assert [model.solver_ for model in models] == ["span", "span", "dense", "lanczos"]
    agree(models, 1e-11)


@pytest.mark.parametrize("solver", ["dense", "gsvd", "span"])
def test_directions_in_which_only_the_background_varies_have_ratio_zero(solver):
    # Repeated target rows: fewer dimensions than rows less one.
    target, background = sample_pair(np.random.default_rng(20), 12, 20, 60)
    target = np.vstack([target, target[:3]])
    model = DPCA(None, solver=solver).fit(target, background=background)
    assert len(model.ratios_) == 14
    assert np.all(model.ratios_[:11] > 1e-3) and np.abs(model.ratios_[11:]).max() < 1e-12
    assert np.linalg.norm(model.components_, axis=1) == pytest.approx(np.ones(14), rel=1e-12)
    # The target has no variance along them, and the background has.
    assert model.transform(target)[:, 11:].var(axis=0).max() < 1e-12
    assert model.components_ @ model.patterns_.T == pytest.approx(np.eye(14), abs=1e-9)


@pytest.mark.parametrize("how", ["auto", "gsvd", "dense", "moments"])
def test_wide_data_of_low_rank_have_the_ratios_of_their_few_dimensions(how):
    rng = np.random.default_rng(21)
    few, others = sample_pair(rng, 60, 90, 5)
    loadings = rng.normal(size=(5, 200))
    target, background = few @ loadings, others @ loadings
    expected = linalg.eigvalsh(covariance(few), covariance(others))[::-1]
    if how == "moments":
        target, background = Moments.of(target), Moments.of(background)
    model = DPCA(None, solver="auto" if how == "moments" else how, shrinkage=None).fit(target, background=background)
    assert model.regime_ == "exact"
    assert model.ratios_ == pytest.approx(expected, rel=1e-11)


def test_lanczos_is_chosen_for_a_few_of_many_features_and_agrees_with_dense():
    target, background = sample_pair(np.random.default_rng(22), 900, 1500, 620)
    models = [DPCA(3, solver=solver, shrinkage=0.1).fit(target, background=background) for solver in ("auto", "dense")]
    assert [model.solver_ for model in models] == ["lanczos", "dense"]
    agree(models, 1e-10)


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_in_many_blocks_with_a_drifting_mean_give_the_same_by_every_solver(weighted):
    rng = np.random.default_rng(23)
    target, background = sample_pair(rng, 9000, 13_000, 6)
    target += np.linspace(-3, 3, 9000)[:, None] * rng.normal(size=6)
    background += np.linspace(-3, 3, 13_000)[:, None] * rng.normal(size=6)
    weights = [rng.uniform(size=9000), rng.uniform(size=13_000)] if weighted else [None, None]
    models = [
        DPCA(6, shrinkage=None, solver=solver).fit(
            target, background=background, sample_weight=weights[0], background_sample_weight=weights[1]
        )
        for solver in ("dense", "gsvd")
    ]
    agree(models, 1e-11)
    pair = [np.cov(rows.T, aweights=weight, ddof=0) for rows, weight in zip((target, background), weights, strict=True)]
    assert models[0].ratios_ == pytest.approx(linalg.eigvalsh(*pair)[::-1], rel=1e-11)


@pytest.mark.parametrize("solver", ["auto", "dense", "gsvd"])
def test_a_shift_in_a_feature_constant_in_both_is_an_infinite_ratio_about_the_background_mean(solver):
    target, background = (rows.copy() for rows in sample_pair(np.random.default_rng(24), 100, 200, 5))
    target[:, 1], background[:, 1] = 2.5, 0.1
    own = DPCA(None, solver=solver).fit(target, background=background)
    assert len(own.ratios_) == 4 and np.isfinite(own.ratios_).all()
    shifted = DPCA(None, solver=solver, centering="background").fit(target, background=background)
    assert np.isinf(shifted.ratios_).tolist() == [True, False, False, False, False]
    assert np.abs(shifted.components_[0]) == pytest.approx(np.eye(5)[1], abs=1e-13)
    assert shifted.target_variance_[0] == pytest.approx(2.4**2, rel=1e-12)


@pytest.mark.parametrize("solver", ["dense", "gsvd", "span"])
def test_a_shift_in_a_feature_constant_in_both_counts_on_wide_data(solver):
    target, background = (rows.copy() for rows in sample_pair(np.random.default_rng(25), 20, 25, 80))
    target[:, 1], background[:, 1] = 2.5, 0.1
    model = DPCA(3, solver=solver, centering="background", shrinkage=0.5).fit(target, background=background)
    C_yy, shift = covariance(background), target.mean(axis=0) - background.mean(axis=0)
    C_xx = covariance(target) + np.outer(shift, shift)
    scale = np.diag(C_yy) + np.diag(C_xx) * (np.arange(80) == 1)
    values = linalg.eigvalsh(C_xx, 0.5 * C_yy + 0.5 * np.diag(scale))
    assert model.ratios_ == pytest.approx(values[::-1][:3], rel=1e-11)


def test_lanczos_repeats_to_the_last_bit_even_where_it_must_start_anew():
    # Every vector is an eigenvector of the identity: the Krylov space is exhausted after one step.
    first, again = (dense.lanczos_pairs(np.eye(700), None, 3) for _ in range(2))
    np.testing.assert_array_equal(first[1], again[1])
    np.testing.assert_allclose(first[1].T @ first[1], np.eye(3), atol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_a_target_that_is_the_background_has_ratios_of_one(seed):
    # All eigenvalues are one and the same up to rounding, on which bisection may give up.
    rows = np.random.default_rng(seed).poisson(3, size=(700, 60)).astype(float)
    np.testing.assert_allclose(DPCA(3, shrinkage=None).fit(rows, background=rows).ratios_, 1, atol=1e-9)
