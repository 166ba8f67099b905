"""How many digits are right: ill-conditioned, offset, single-precision and singular data."""

from contextlib import nullcontext
from functools import cache

import numpy as np
import pytest
from scipy import linalg, sparse

from helpers import EPS, covariance, exact_ratios, mixing, same_up_to_sign, sample_pair
from standout._dpca import DPCA
from standout._moments import Moments
from standout.errors import ConditionWarning, NotEnoughRowsError, ShrinkageWarning, StructuralWarning

pytestmark = pytest.mark.filterwarnings("ignore::standout.errors.OverfitWarning")
quiet = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")

SIZE, TOP = 50, 5
# Error of the top five ratios at cond(rows) = 10^k that an implementation of each method is known to
# reach. Covariances have the square of the rows' condition; the generalized SVD does not (at k = 12 what
# a textbook QR whitening reaches: single draws differ by a factor of ten there).
MOMENTS_REACH = {2: 1e-13, 4: 1e-10, 6: 6e-7}
GSVD_REACH = {2: 2e-15, 4: 2e-14, 6: 2e-12, 8: 1e-10, 10: 7e-9, 12: 1e-6}


@cache
def ill_conditioned(k, seed=0):
    """Return target and background times a mixing matrix of condition 10^k, and their exact ratios."""
    rng = np.random.default_rng(100 * seed + k)
    sd = np.ones(SIZE)
    sd[:TOP] = [6, 5, 4, 3, 2]
    mix = mixing(rng, SIZE, 10.0**k)
    target, background = (rng.normal(size=(200, SIZE)) * sd) @ mix, rng.normal(size=(200, SIZE)) @ mix
    return target, background, exact_ratios(target, background, TOP)


def errors(k, solver, seeds):
    for seed in range(seeds):
        target, background, exact = ill_conditioned(k, seed)
        model = DPCA(TOP, shrinkage=None, solver=solver).fit(target, background=background)
        yield np.abs(model.ratios_ / exact - 1).max()


def test_the_reference_knows_a_case_that_can_be_done_by_hand():
    target = np.array([[2.0, 0.0], [-2.0, 0.0], [0.0, 3.0], [0.0, -3.0]]) + 1e6
    background = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]) / 2**30
    assert exact_ratios(target, background) == pytest.approx([9 * 2**60, 4 * 2**60], rel=1e-15)
    assert exact_ratios(target, background, 2) == pytest.approx([9 * 2**60, 4 * 2**60], rel=1e-15)


@quiet
@pytest.mark.parametrize("k", GSVD_REACH)
def test_ratios_lose_the_condition_once_by_generalized_svd_and_its_square_from_covariances(k):
    # One draw's error is a matter of luck within a factor of ten: the middle of five is not.
    found = list(errors(k, "gsvd", 5))
    assert np.median(found) <= 10 * GSVD_REACH[k]
    # Perturbation theory gives 2ε·cond·√λ for the worst draw; the sample makes cond worse by about three.
    assert max(found) <= 2 * EPS * 3 * 10.0**k * np.sqrt(100)
    if k in MOMENTS_REACH:
        assert np.median(list(errors(k, "dense", 5))) <= 10 * MOMENTS_REACH[k]


@pytest.mark.parametrize(("k", "solver"), [(2, "dense"), (5, "dense"), (6, "gsvd"), (9, "gsvd"), (12, "gsvd")])
def test_auto_turns_to_the_rows_when_covariances_are_not_enough(k, solver):
    # The sample makes the condition of the covariances about ten times worse: 1e11 at k = 5, 1e13 at k = 6.
    target, background, exact = ill_conditioned(k)
    model = DPCA(TOP, shrinkage=None).fit(target, background=background)
    assert model.solver_ == solver
    assert model.ratios_ == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("k", [6, 9, 12])
def test_moments_alone_warn_when_they_are_not_enough(k):
    target, background, _ = ill_conditioned(k)
    with pytest.warns(ConditionWarning, match="condition number"):
        model = DPCA(TOP, shrinkage=None).fit(Moments.of(target), background=Moments.of(background))
    assert model.solver_ == "dense"


def test_units_of_features_cost_no_digits():
    rng = np.random.default_rng(8)
    target, background = sample_pair(rng, 100, 150, 8)
    units = np.geomspace(1e-12, 1e12, 8)
    model = DPCA(None, shrinkage=None).fit(target * units, background=background * units)
    assert model.solver_ == "dense"
    assert model.ratios_ == pytest.approx(exact_ratios(target * units, background * units), rel=1e-11)


@pytest.mark.parametrize("condition", [1.0, 10.0])
def test_ratios_from_1e14_to_1e_minus_12_have_nine_digits_by_generalized_svd(condition):
    rng, size = np.random.default_rng(4), 14
    ratios = np.geomspace(1e14, 1e-12, size)

    def scores(n):
        rows = rng.normal(size=(n, size))
        return np.linalg.qr(rows - rows.mean(axis=0))[0] * np.sqrt(n)

    mix = mixing(rng, size, condition)
    target = scores(60) * np.sqrt(ratios / (1 + ratios)) @ mix
    background = scores(80) / np.sqrt(1 + ratios) @ mix
    exact = exact_ratios(target, background)
    assert exact == pytest.approx(ratios, rel=1e-8)  # as far as doubles can hold such rows
    model = DPCA(None, shrinkage=None).fit(target, background=background)
    assert model.solver_ == "gsvd"
    assert model.ratios_ == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("solver", ["dense", "gsvd", "lanczos"])
@pytest.mark.parametrize("offset", [1e2, 1e4, 1e6, 1e8])
def test_a_large_mean_costs_nothing_but_what_storing_it_costs(offset, solver):
    rng = np.random.default_rng(6)
    target, background = sample_pair(rng, 300, 400, 8)
    far = offset * np.array([1, -1, 1, 0, 1, 1, -1, 0])
    plain = DPCA(4, shrinkage=None, solver=solver).fit(target, background=background)
    moved = DPCA(4, shrinkage=None, solver=solver).fit(target + far, background=background - far)
    # A double near 1e8 has steps of 1.5e−8: the moved rows are other rows, by ε·offset, before we see them.
    stored = (target + far) - far - target
    assert np.abs(stored).max() > 0
    assert moved.ratios_ == pytest.approx(plain.ratios_, rel=1e-12 + 10 * EPS * offset)
    assert moved.ratios_ == pytest.approx(exact_ratios(target + far, background - far, 4), rel=1e-12)


@pytest.mark.parametrize("offset", [1e4, 1e6, 1e8])
def test_moments_about_a_large_mean_are_those_of_the_rows_without_it(offset):
    # Rows in steps of 2^−20 can be moved by whole numbers up to 2^32 without any rounding.
    rows = np.round(np.random.default_rng(7).normal(size=(9000, 5)) * 2**20) / 2**20
    plain, moved = Moments.of(rows), Moments.of(rows + offset)
    assert moved.mean - offset == pytest.approx(plain.mean, abs=2 * EPS * offset)
    assert moved.covariance() == pytest.approx(plain.covariance(), abs=1e-13)
    parts = [Moments.of(part) for part in np.array_split(rows + offset, 300)]
    assert sum(parts[1:], start=parts[0]).covariance() == pytest.approx(plain.covariance(), abs=1e-13)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("offset", [0, 1e4, 1e6, 1e8])
def test_scores_about_a_large_mean_are_rows_minus_mean_times_components(offset, kind):
    target, background = sample_pair(np.random.default_rng(8), 300, 400, 8)
    model = DPCA(3).fit(kind(target + offset), background=kind(background + offset))
    exact = ((target + offset).astype(np.longdouble) - model.mean_) @ model.components_.T.astype(np.longdouble)
    np.testing.assert_allclose(model.transform(kind(target + offset)), exact.astype(float), rtol=1e-12, atol=1e-12)
    one_by_one = np.vstack([model.transform(row[None]) for row in target + offset])
    np.testing.assert_allclose(one_by_one, exact.astype(float), rtol=1e-12, atol=1e-12)


def test_rows_that_drift_far_keep_their_digits():
    rows = np.random.default_rng(9).normal(size=(20_000, 3))
    rows += np.linspace(0, 1, 20_000)[:, None] * [0, 1e3, 1e6]
    exact = np.cov(rows.astype(np.longdouble).T, ddof=0).astype(float)
    size = np.sqrt(np.outer(np.diag(exact), np.diag(exact)))
    assert np.abs((Moments.of(rows).covariance() - exact) / size).max() < 1e-14


@pytest.mark.parametrize("n_left_out", [10, 3000, 5000])
@pytest.mark.parametrize("mingled", [False, True])
def test_rows_of_weight_zero_cost_the_others_no_digits(n_left_out, mingled):
    rng = np.random.default_rng(26)
    rows = rng.normal(size=(3000, 4))
    whole = np.vstack([1e7 + rng.normal(size=(n_left_out, 4)), rows])  # left out because they are far off
    weights = np.r_[np.zeros(n_left_out), np.ones(3000)]
    order = rng.permutation(len(whole)) if mingled else np.arange(len(whole))
    moments = Moments.of(whole[order], weights=weights[order])
    assert moments.covariance() == pytest.approx(covariance(rows), abs=1e-12)
    assert moments.rows == moments.weight == 3000


@quiet
@pytest.mark.parametrize(("size", "solvers"), [(20, ("dense", "lanczos", "gsvd")), (300, ("dense", "gsvd", "span"))])
def test_single_precision_rows_are_summed_in_double(size, solvers):
    # Only the storing is single precision (6e−8): everything after it is as for the same values in double.
    target, background = (rows.astype(np.float32) for rows in sample_pair(np.random.default_rng(10), 90, 120, size))
    wide = [rows.astype(np.float64) for rows in (target, background)]
    for solver in solvers:
        single = DPCA(3, solver=solver).fit(target, background=background)
        double = DPCA(3, solver=solver).fit(wide[0], background=wide[1])
        assert single.ratios_ == pytest.approx(double.ratios_, rel=1e-12)
        assert same_up_to_sign(single.components_, double.components_, 1e-10)
        assert single.ratios_.dtype == single.components_.dtype == np.float64


@pytest.mark.parametrize(
    ("solver", "from_moments"),
    [("auto", False), ("dense", False), ("gsvd", False), ("auto", True), ("dense", True)],
)
def test_a_duplicate_column_leaves_the_ratios_as_they_are(solver, from_moments):
    target, background = sample_pair(np.random.default_rng(11), 200, 300, 6)
    plain = DPCA(None, shrinkage=None).fit(target, background=background)
    twice = [np.column_stack([rows, rows[:, 2]]) for rows in (target, background)]
    if from_moments:
        twice = [Moments.of(rows) for rows in twice]
    sums_alone = from_moments or solver == "dense"
    with pytest.warns(ConditionWarning, match="1 direction is left out") if sums_alone else nullcontext():
        model = DPCA(None, solver=solver, shrinkage=None).fit(twice[0], background=twice[1])
    assert model.ratios_ == pytest.approx(plain.ratios_, rel=1e-12)
    assert model.regime_ == "exact"


@quiet
@pytest.mark.parametrize("apart", [1e-7, 1e-8, 1e-10])
def test_features_that_differ_by_less_than_sums_can_tell_are_found_from_rows_and_told_without(apart):
    rng = np.random.default_rng(14)
    target, background = rng.normal(size=(2000, 5)), rng.normal(size=(3000, 5))
    target[:, 4] = target[:, 3] + 10 * apart * rng.normal(size=2000)
    background[:, 4] = background[:, 3] + apart * rng.normal(size=3000)
    found = DPCA(1).fit(target, background=background)
    # The values themselves have 16 digits: their difference has a part of the spread of 1e-16 / apart.
    assert found.ratios_[0] == pytest.approx(100, rel=0.1 + 1e-14 / apart)
    with pytest.warns((ConditionWarning, StructuralWarning), match="left out|as sums tell no more") as told:
        DPCA(1).fit(Moments.of(target), background=Moments.of(background))
    assert any("memory" in str(warning.message) or "leave" in str(warning.message) for warning in told)


def fit_by(how, model, target, background):
    if how == "moments":
        model.fit(Moments.of(target), background=Moments.of(background))
    elif how == "row by row":
        model.partial_fit(target)
        for row in background:
            model.partial_fit(background=row[None])
        model.ratios_  # noqa: B018 - the solving happens when a result is first read
    else:
        model.fit(target, background=background)


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e6 + 0.1])
@pytest.mark.parametrize("how", ["auto", "dense", "gsvd", "moments", "row by row"])
def test_a_feature_constant_in_the_background_has_an_infinite_ratio_exactly_on_it(constant, how):
    target, background = sample_pair(np.random.default_rng(12), 200, 5000 if how == "auto" else 300, 6)
    background[:, 3] = constant
    model = DPCA(None, solver=how if how in ("dense", "gsvd") else "auto")
    with pytest.warns(StructuralWarning, match="feature 3 is constant"):
        fit_by(how, model, target, background)
    assert model.regime_ == "structural"
    assert np.isinf(model.ratios_).tolist() == [True, False, False, False, False, False]
    assert np.abs(model.components_[0]) == pytest.approx(np.eye(6)[3], abs=1e-13 if how == "gsvd" else 1e-15)
    # The finite ratios: what the target varies besides the constant feature.
    others = [0, 1, 2, 4, 5]
    C_xx = covariance(target)
    rest = C_xx - np.outer(C_xx[3], C_xx[3]) / C_xx[3, 3]
    expected = linalg.eigvalsh(rest[np.ix_(others, others)], covariance(background)[np.ix_(others, others)])[::-1]
    assert model.ratios_[1:] == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("from_moments", [False, True])
@pytest.mark.parametrize("condition", [1.0, 1e3])
def test_an_exact_linear_relation_in_the_background_has_an_infinite_ratio(from_moments, condition):
    rng = np.random.default_rng(13)
    target, background = rng.normal(size=(200, 6)), rng.normal(size=(300, 6))
    background[:, 2] = background[:, 0] + background[:, 1]
    relation = np.array([1, 1, -1, 0, 0, 0]) / np.sqrt(3)
    # What the target varies besides the relation: residuals of a regression on it.
    along = (target - target.mean(axis=0)) @ relation
    residual = target - target.mean(axis=0) - np.outer(along, along @ (target - target.mean(axis=0)) / (along @ along))
    kept = [0, 1, 3, 4, 5]
    expected = linalg.eigvalsh(covariance(residual)[np.ix_(kept, kept)], covariance(background)[np.ix_(kept, kept)])
    mix = mixing(rng, 6, condition)
    mapped = [target @ mix, background @ mix]
    if from_moments:
        mapped = [Moments.of(rows) for rows in mapped]
    with pytest.warns(StructuralWarning, match="exact linear relation"):
        model = DPCA(None).fit(mapped[0], background=mapped[1])
    assert model.regime_ == "structural"
    assert np.isinf(model.ratios_).tolist() == [True, False, False, False, False, False]
    known = 1e-12 * condition ** (2 if from_moments else 1)
    assert model.ratios_[1:] == pytest.approx(expected[::-1], rel=known)
    direction = np.linalg.solve(mix, relation)
    assert same_up_to_sign(model.components_[:1], direction[None] / np.linalg.norm(direction), 100 * known)


@pytest.mark.parametrize(("size", "solver"), [(40, "dense"), (200, "span")])
def test_fewer_background_rows_than_features_are_shrunk_and_units_do_not_matter(size, solver):
    rng = np.random.default_rng(14)
    target, background = sample_pair(rng, 60, 30, size)
    units = 10 ** rng.uniform(-5, 5, size=size)
    with pytest.warns(ShrinkageWarning, match="30 background rows are few"):
        model = DPCA(3).fit(target, background=background)
    with pytest.warns(ShrinkageWarning):
        other = DPCA(3).fit(target * units, background=background * units)
    assert (model.regime_, model.solver_, other.solver_) == ("shrunk", solver, solver)
    assert other.shrinkage_ == pytest.approx(model.shrinkage_, rel=1e-12)
    assert other.ratios_ == pytest.approx(model.ratios_, rel=1e-11)
    back = other.components_ * units
    assert same_up_to_sign(back / np.linalg.norm(back, axis=1)[:, None], model.components_, 1e-9)
    assert np.all(np.einsum("ij,ij->i", back, model.components_) > 0)


def test_fewer_background_rows_than_features_have_no_exact_answer():
    target, background = sample_pair(np.random.default_rng(15), 60, 30, 40)
    with pytest.raises(NotEnoughRowsError, match="30 rows, and 40 dimensions"):
        DPCA(3, shrinkage=None).fit(target, background=background)
