"""What holds for every solver: the same model on tall and wide, dense and sparse, weighted and mixed data."""

import numpy as np
import pytest
from scipy import linalg, sparse

from helpers import EPS, agree, covariance, exact_ratios, mixing, quiet, same_up_to_sign, sample_pair
from standout._cpca import CPCA
from standout._dpca import DPCA
from standout._moments import Moments
from standout.errors import ConditionWarning, NonFiniteError, RowsNeededError, StructuralWarning

pytestmark = pytest.mark.filterwarnings("ignore::standout.errors.OverfitWarning")


def kinds_of(rows):
    """Return the same rows as arrays and sparse matrices."""
    return {
        "array": rows,
        "fortran": np.asfortranarray(rows),
        "csr": sparse.csr_array(rows),
        "csc": sparse.csc_matrix(rows),
    }


@quiet
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


@quiet
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


@quiet
@pytest.mark.parametrize("solver", ["auto", "dense", "gsvd", "span"])
@pytest.mark.parametrize("value", [0.0, 0.1])
def test_constant_features_change_nothing_on_wide_data(solver, value):
    # Sparse data have empty columns as a rule.
    target, background = (rows.copy() for rows in sample_pair(np.random.default_rng(18), 20, 25, 80))
    alive = np.r_[:30, 31:80]
    plain = DPCA(3, solver=solver).fit(target[:, alive], background=background[:, alive])
    target[:, 30] = background[:, 30] = value
    model = DPCA(3, solver=solver).fit(target, background=background)
    assert model.ratios_ == pytest.approx(plain.ratios_, rel=1e-11)
    assert np.all(model.components_[:, 30] == 0) and np.all(model.patterns_[:, 30] == 0)
    assert same_up_to_sign(model.components_[:, alive], plain.components_, 1e-10)


@quiet
@pytest.mark.parametrize("solver", ["dense", "gsvd", "span"])
def test_directions_without_target_variance_have_ratio_zero(solver):
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


@quiet
@pytest.mark.parametrize("how", ["auto", "gsvd", "dense", "moments"])
def test_wide_data_of_low_rank_have_the_ratios_of_the_latent_data(how):
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


@quiet
@pytest.mark.parametrize("weighted", [False, True])
def test_solvers_agree_on_many_blocks_with_a_drifting_mean(weighted):
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


@quiet
@pytest.mark.parametrize("solver", ["auto", "dense", "gsvd"])
def test_a_shift_in_a_feature_constant_in_both_has_an_infinite_ratio(solver):
    target, background = (rows.copy() for rows in sample_pair(np.random.default_rng(24), 100, 200, 5))
    target[:, 1], background[:, 1] = 2.5, 0.1
    own = DPCA(None, solver=solver).fit(target, background=background)
    assert len(own.ratios_) == 4 and np.isfinite(own.ratios_).all()
    shifted = DPCA(None, solver=solver, centering="background").fit(target, background=background)
    assert np.isinf(shifted.ratios_).tolist() == [True, False, False, False, False]
    assert np.abs(shifted.components_[0]) == pytest.approx(np.eye(5)[1], abs=1e-13)
    assert shifted.target_variance_[0] == pytest.approx(2.4**2, rel=1e-12)


@quiet
@pytest.mark.parametrize("solver", ["dense", "gsvd", "span"])
def test_a_shift_in_a_feature_constant_in_both_counts_on_shrunk_wide_data(solver):
    target, background = (rows.copy() for rows in sample_pair(np.random.default_rng(25), 20, 25, 80))
    target[:, 1], background[:, 1] = 2.5, 0.1
    model = DPCA(3, solver=solver, centering="background", shrinkage=0.5).fit(target, background=background)
    C_yy, shift = covariance(background), target.mean(axis=0) - background.mean(axis=0)
    C_xx = covariance(target) + np.outer(shift, shift)
    scale = np.diag(C_yy) + np.diag(C_xx) * (np.arange(80) == 1)
    values = linalg.eigvalsh(C_xx, 0.5 * C_yy + 0.5 * np.diag(scale))
    assert model.ratios_ == pytest.approx(values[::-1][:3], rel=1e-11)


ROUTES = {
    "dense": (lambda: DPCA(2, centering="background"), 6, 100),
    "gsvd": (lambda: DPCA(2, centering="background", solver="gsvd"), 6, 100),
    "matrix_free": (lambda: DPCA(2, centering="background", solver="matrix_free"), 6, 100),
    "span": (lambda: DPCA(2, centering="background", solver="span"), 60, 20),
    "wide gsvd": (lambda: DPCA(2, centering="background", solver="gsvd"), 60, 20),
    "cPCA": (lambda: CPCA(2, centering="background", alpha=1.0), 6, 100),
    "wide cPCA": (lambda: CPCA(2, centering="background", alpha=1.0), 60, 20),
}


@quiet
@pytest.mark.parametrize("n_backgrounds", [1, 3])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("route", ROUTES)
def test_a_feature_that_is_constant_everywhere_has_no_weight_in_any_component(route, make, n_backgrounds):
    estimator, features, rows = ROUTES[route]
    for seed in range(8):
        rng = np.random.default_rng(seed)
        constant = rng.normal() * 10.0 ** rng.integers(-3, 4)

        def data(count, rng=rng, constant=constant):
            table = rng.normal(size=(count, features)) + rng.normal(size=features)
            table[:, 1] = constant
            return make(table)

        target = data(rows)
        backgrounds = [data(rows + 3 + 7 * k) for k in range(n_backgrounds)]
        model = estimator().fit(target, background=backgrounds)
        assert np.isfinite(model.ratios_).all(), seed
        assert np.all(model.components_[:, 1] == 0) and np.all(model.patterns_[:, 1] == 0), seed
        assert model.mean_[1] == constant


@quiet
@pytest.mark.parametrize("kind", ["f2", "f4", ">f8", "longdouble", "i2", "i8", "u8"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("solver", ["auto", "dense", "gsvd", "matrix_free"])
@pytest.mark.parametrize("sizes", [(70, 90), (4, 12)])
def test_every_dtype_gives_the_components_of_float64(kind, weighted, solver, sizes):
    rng = np.random.default_rng(1)
    target, background = (np.round(20 * rng.normal(size=(rows, 5)) + 100).astype(kind) for rows in sizes)
    background[:, 2] = 7  # structural: the target varies here and the background does not
    weights = [rng.uniform(0.5, 2, size=len(rows)) if weighted else None for rows in (target, background)]
    models = [
        DPCA(3, shrinkage=None, solver=solver).fit(
            target.astype(to), background=background.astype(to),
            sample_weight=weights[0], background_sample_weight=weights[1],
        )
        for to in (kind, "f8")
    ]  # fmt: skip
    assert np.isinf(models[0].ratios_[0])
    np.testing.assert_allclose(models[0].ratios_, models[1].ratios_, rtol=1e-10)
    np.testing.assert_allclose(models[0].components_, models[1].components_, atol=1e-8)


@pytest.mark.parametrize("solver", ["dense", "gsvd", "lanczos", "matrix_free"])
@pytest.mark.parametrize("offset", [1e2, 1e4, 1e6, 1e8])
def test_a_large_mean_costs_no_more_accuracy_than_storing_it_does(offset, solver):
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


@quiet
@pytest.mark.parametrize(("size", "solvers"), [(20, ("dense", "lanczos", "gsvd")), (300, ("dense", "gsvd", "span"))])
def test_single_precision_rows_are_summed_in_double_precision(size, solvers):
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
    [("auto", False), ("dense", False), ("gsvd", False), ("matrix_free", False), ("auto", True), ("dense", True)],
)
def test_a_duplicate_column_does_not_change_the_ratios(solver, from_moments):
    target, background = sample_pair(np.random.default_rng(11), 200, 300, 6)
    plain = DPCA(None, shrinkage=None).fit(target, background=background)
    twice = [np.column_stack([rows, rows[:, 2]]) for rows in (target, background)]
    if from_moments:
        twice = [Moments.of(rows) for rows in twice]
    warning = "identical features: 2 = 6" + "|condition number" * (solver == "matrix_free")
    count = 4 if solver == "matrix_free" else None
    with pytest.warns(ConditionWarning, match=warning):
        model = DPCA(count, solver=solver, shrinkage=None).fit(twice[0], background=twice[1])
    assert model.ratios_ == pytest.approx(plain.ratios_[:count], rel=1e-10 if solver == "matrix_free" else 1e-12)
    assert model.regime_ == "exact"
    assert sum("identical" in note.text for note in model._solved().notes) == 1


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
def test_a_feature_constant_in_the_background_alone_has_an_infinite_ratio(constant, how):
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
def test_an_exact_linear_relation_in_the_background_gives_an_infinite_ratio(from_moments, condition):
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


@quiet
@pytest.mark.parametrize("shape", [(200, 60), (30, 100)], ids=["tall", "wide"])
@pytest.mark.parametrize("kind", ["array", "csr", "csc"])
def test_without_a_background_every_solver_gives_pca(shape, kind):
    rows = sample_pair(np.random.default_rng(19), shape[0], 5, shape[1])[0]
    solvers = ["auto", "span", "dense", "lanczos", "matrix_free"]
    models = [DPCA(4, solver=solver).fit(kinds_of(rows)[kind]) for solver in solvers]
    assert [model.solver_ for model in models] == ["span" if shape[0] < shape[1] else "dense", *solvers[1:]]
    agree(models[:-1], 1e-11)
    values, vectors = np.linalg.eigh(covariance(rows))
    for model in models:
        assert model.regime_ == "exact" and model.shrinkage_ == 0
        assert model.ratios_ == pytest.approx(values[::-1][:4], rel=1e-10)
        assert same_up_to_sign(model.components_, vectors[:, ::-1].T[:4], 2e-5)


@quiet
@pytest.mark.parametrize("role", ["target", "background"])
@pytest.mark.parametrize("kind", ["array", "csr"])
@pytest.mark.parametrize("solver", ["dense", "lanczos", "gsvd", "span", "matrix_free"])
def test_every_solver_locates_non_finite_values(solver, kind, role, refused):
    rows = dict(zip(("target", "background"), sample_pair(np.random.default_rng(26), 30, 40, 20), strict=True))
    rows[role][5, 17] = np.nan
    target, background = (kinds_of(part)[kind] for part in rows.values())
    fit = DPCA(2, solver=solver).fit
    refused(lambda: fit(target, background=background), role, "1 NaN", "17 (1)", kind=NonFiniteError)


@pytest.mark.parametrize("solver", ["gsvd", "span", "matrix_free"])
def test_solvers_of_rows_reject_moments(solver, refused):
    target, background = sample_pair(np.random.default_rng(27), 30, 40, 5)
    fit = DPCA(2, solver=solver).fit
    for given in (Moments.of(background), background):
        refused(lambda given=given: fit(Moments.of(target), background=given), solver, kind=RowsNeededError)
