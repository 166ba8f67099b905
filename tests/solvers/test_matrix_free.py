"""The matrix-free solver gives the components of the covariances that it never forms."""

import tracemalloc

import numpy as np
import pytest
from scipy import linalg, sparse

from helpers import covariance, quiet, same_up_to_sign
from standout import _blas
from standout._dpca import DPCA
from standout._shrinkage import Shrinkage
from standout.errors import ConditionWarning, ShrinkageWarning
from standout.solvers import davidson, matrix_free
from standout.solvers.solution import Eigenpairs

pytestmark = quiet


def counts(seed, rows, features, own, density=0.2):
    """Poisson counts with three common factors, and ``own`` more."""
    shape = np.random.default_rng(99)
    factors = shape.lognormal(0, 1, size=(8, features))[: 3 + own]
    rng = np.random.default_rng(seed)
    rates = rng.gamma(0.5, 2.0, size=(rows, 3 + own)) @ factors
    return rng.poisson(density * rates / rates.mean()).astype(float)


@pytest.fixture(scope="module")
def pair():
    return counts(0, 700, 150, 4), counts(1, 1100, 150, 0)


def weighted_covariance(rows, weights):
    centred = rows - np.average(rows, axis=0, weights=weights)
    return (centred * weights[:, None]).T @ centred / weights.sum()


def reference(target, background, rho, count):
    """Return ratios and unit-norm vectors of the shrunk problem by scipy, from covariances."""
    shrunk = (1 - rho) * background + rho * np.diag(np.diag(background))
    size = len(target)
    values, vectors = linalg.eigh(target, shrunk, subset_by_index=[size - count, size - 1])
    return values[::-1], (vectors / np.linalg.norm(vectors, axis=0))[:, ::-1].T


def check(model, target, background, tolerance=1e-6):
    """Check a model against scipy on dense covariances: ratios, components, and the residual of each component."""
    assert model.solver_ == "matrix_free"
    rho = model.shrinkage_
    ratios, vectors = reference(target, background, rho, model.n_components_)
    assert model.ratios_ == pytest.approx(ratios, rel=1e-10)
    assert same_up_to_sign(model.components_, vectors, 20 * tolerance)
    image = ((1 - rho) * background + rho * np.diag(np.diag(background))) @ model.components_.T
    apart = target @ model.components_.T - image * model.ratios_
    assert (np.linalg.norm(apart, axis=0) <= 1.001 * tolerance * np.linalg.norm(image * model.ratios_, axis=0)).all()
    expected = np.einsum("ki,ij,kj->k", model.components_, target, model.components_)
    assert model.target_variance_ == pytest.approx(expected, rel=1e-9)


KINDS = {
    "csr_array": sparse.csr_array,
    "csc_matrix": sparse.csc_matrix,
    "csr of bytes": lambda rows: sparse.csr_array(rows.astype("u1")),
    "csr of float32": lambda rows: sparse.csr_array(rows.astype("f4")),
    "array": np.asarray,
    "F order": np.asfortranarray,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shrinkage", [None, "oas", 0.3])
def test_the_components_are_those_of_the_covariances(pair, kind, shrinkage):
    target, background = pair
    make = KINDS[kind]
    model = DPCA(5, solver="matrix_free", shrinkage=shrinkage).fit(make(target), background=make(background))
    check(model, covariance(target), covariance(background))
    assert model.mean_ == pytest.approx(target.mean(axis=0), rel=1e-13)


@pytest.mark.parametrize("centering", ["own", "background"])
@pytest.mark.parametrize("shrinkage", [None, "oas"])
def test_the_dense_solver_agrees_on_weighted_and_mixed_backgrounds(pair, centering, shrinkage):
    target, background = pair
    rng = np.random.default_rng(2)
    weights = rng.integers(0, 4, size=len(target)).astype(float)
    spoilt = target.copy()
    spoilt[weights == 0] = np.nan  # rows of weight zero are ignored
    others = [rng.uniform(0.2, 3, size=500), rng.uniform(0.2, 3, size=600)]
    models = [
        DPCA(4, shrinkage=shrinkage, centering=centering, mix=[2, 1], normalize="background", solver=solver).fit(
            make(spoilt),
            background=[make(background[:500]), make(2 * background[500:])],
            sample_weight=weights,
            background_sample_weight=others,
        )
        for solver, make in (("dense", np.asarray), ("matrix_free", sparse.csr_array), ("matrix_free", np.asarray))
    ]
    dense = models[0]
    for model in models[1:]:
        assert model.ratios_ == pytest.approx(dense.ratios_, rel=1e-10)
        assert model.shrinkage_ == pytest.approx(dense.shrinkage_, rel=1e-11)
        for name in ("components_", "patterns_"):
            assert same_up_to_sign(getattr(model, name), getattr(dense, name), 2e-5)
            assert np.all(np.einsum("ij,ij->i", getattr(model, name), getattr(dense, name)) > 0)
        assert model.mean_ == pytest.approx(dense.mean_, rel=1e-12)
        assert model.background_variance_ == pytest.approx(np.ones(4), rel=1e-9)
        assert model.noise_edge_ == pytest.approx(dense.noise_edge_, rel=1e-12)
        # Unshrunk ratios are computed to three digits.
        assert np.log(model.p_value_) == pytest.approx(np.log(dense.p_value_), rel=3e-3)
        assert model.debiased_ratios_ == pytest.approx(dense.debiased_ratios_, rel=3e-3, nan_ok=True)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_mean_of_ten_thousand_sd_loses_no_precision(make, weighted):
    rng = np.random.default_rng(3)
    sd = np.geomspace(0.1, 10, 60)
    target, background = (rng.normal(size=(m, 60)) for m in (400, 900))
    target[:, :3] *= [4, 3, 2]
    # Whole multiples of 2^-20: adding the offset is exact, so the shifted data have the same covariance.
    target, background = (np.round(rows * sd * 2**20) / 2**20 for rows in (target, background))
    offset = np.round(1e4 * sd)
    weights = rng.uniform(0.5, 2, size=400) if weighted else None
    model = DPCA(3, solver="matrix_free", shrinkage=None).fit(
        make(target + offset), background=make(background + offset), sample_weight=weights
    )
    check(model, weighted_covariance(target, np.ones(400) if weights is None else weights), covariance(background))


@pytest.mark.parametrize("count", [1, 3, 6])
@pytest.mark.parametrize("shrinkage", [None, "oas", 0.2])
def test_the_dense_solver_agrees_on_constant_features(pair, count, shrinkage):
    target, background = (rows.copy() for rows in pair)
    background[:, [4, 9, 30]] = 0
    background[:, 77] = target[:, 77] = 0.1
    background[:, 78] = target[:, 78] = 0
    models = [
        DPCA(count, shrinkage=shrinkage, solver=solver).fit(make(target), background=make(background))
        for solver, make in (("dense", np.asarray), ("matrix_free", sparse.csr_array))
    ]
    dense, model = models
    assert np.isinf(model.ratios_).sum() == (min(count, 3) if shrinkage is None else 0)
    assert model.regime_ == dense.regime_
    assert model.ratios_ == pytest.approx(dense.ratios_, rel=1e-10)
    assert model.shrinkage_ == pytest.approx(dense.shrinkage_, rel=1e-11)
    assert model.p_value_ == dense.p_value_ == 0
    assert same_up_to_sign(model.components_, dense.components_, 2e-5)
    assert same_up_to_sign(model.patterns_, dense.patterns_, 2e-5)
    assert np.all(model.components_[:, [77, 78]] == 0) and np.all(model.patterns_[:, [77, 78]] == 0)


def test_crowded_ratios_converge_after_restarts(monkeypatch):
    # Pure noise, hardly more rows than features: the top ratios lie close together and the background is
    # nearly singular. A small space forces restarts.
    rng = np.random.default_rng(4)
    target, background = rng.normal(size=(300, 120)), rng.normal(size=(200, 120))
    rooms = []
    restart = davidson.Space._restart

    def counted(self, best):
        restart(self, best)
        rooms.append(self.room)

    monkeypatch.setattr(davidson.Space, "_restart", counted)
    monkeypatch.setattr(davidson, "FIRST_ROOM", 24)
    model = DPCA(6, solver="matrix_free", shrinkage=None).fit(sparse.csr_array(target), background=background)
    assert len(rooms) >= 2 and rooms == sorted(rooms) and rooms[0] > 24
    check(model, covariance(target), covariance(background))


def test_the_iteration_converges_when_its_space_cannot_grow(monkeypatch):
    rng = np.random.default_rng(5)
    target, background = rng.normal(size=(300, 120)), rng.normal(size=(400, 120))
    starts = []
    restart = davidson.Space._restart
    monkeypatch.setattr(davidson.Space, "_restart", lambda self, best: (starts.append(1), restart(self, best)))
    monkeypatch.setattr(davidson, "FIRST_ROOM", 26)
    monkeypatch.setattr(davidson, "_GROWTH", 1.0)
    model = DPCA(4, solver="matrix_free", shrinkage=None).fit(target, background=background)
    assert len(starts) > 3
    check(model, covariance(target), covariance(background))


def test_a_large_residual_gives_a_warning(pair, monkeypatch, remedy):
    monkeypatch.setattr(davidson, "TOLERANCE", 1e-17)
    with pytest.warns(ConditionWarning, match="residual of") as warned:
        model = DPCA(3, solver="matrix_free", shrinkage=0.1).fit(*pair[:1], background=pair[1])
    remedy(next(w.message for w in warned if issubclass(w.category, ConditionWarning)))
    assert model.ratios_ == pytest.approx(reference(*map(covariance, pair), 0.1, 3)[0], rel=1e-10)


def test_the_trace_estimate_is_unbiased_and_reproducible(pair):
    correlation = np.corrcoef(pair[1].T)
    exact = float((correlation**2).sum())
    work = matrix_free.EXACT_WORK  # as if one product were that expensive

    def estimate(seed):
        return matrix_free.trace_squared(lambda v: correlation @ v, np.ones(150), work, seed, 150.0)

    found = [estimate(seed) for seed in range(60)]
    assert estimate(0) == found[0]
    values, errors = np.transpose(found)
    errors = errors * (values - 150)  # relative to tr S² − p
    assert abs(values.mean() - exact) < 4 * values.std() / np.sqrt(60)
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(values.std(ddof=1), rel=0.3)
    computed = matrix_free.trace_squared(lambda v: correlation @ v, np.ones(150), 150.0**2, 0, 150.0)
    assert computed == (pytest.approx(exact), 0)


def test_shrinkage_from_an_estimated_trace_is_close_to_the_exact_one(pair, monkeypatch):
    target, background = pair
    exact = DPCA(3, solver="matrix_free").fit(target, background=background)
    monkeypatch.setattr(matrix_free, "EXACT_WORK", 0)
    with pytest.warns(ShrinkageWarning, match=r"\(estimated from random vectors, to .* %\)"):
        model = DPCA(3, solver="matrix_free").fit(sparse.csr_array(target), background=background)
    assert model.shrinkage_ != exact.shrinkage_
    assert model.shrinkage_ == pytest.approx(exact.shrinkage_, rel=0.1)


def test_in_factor_coordinates_the_shrinkage_target_is_the_identity_and_ratios_stay_the_same():
    rng = np.random.default_rng(8)
    target, background = (covariance(rng.normal(size=(40, 12))) for _ in range(2))
    shrinkage = Shrinkage(0.4, rng.normal(size=(12, 2)), rng.uniform(0.5, 2, size=12))
    scale = rng.uniform(0.1, 9, size=(12, 1))
    plain = davidson.Operator(
        lambda v: (target @ v, background @ v), lambda v: background @ v, lambda image: image * scale
    )
    turned, back = matrix_free._in_factor_coordinates(plain, shrinkage)
    A, S = turned.products(np.eye(12))
    np.testing.assert_allclose(turned.background(np.eye(12)), S, atol=1e-13)
    values, vectors = linalg.eigh(A, 0.6 * S + 0.4 * np.eye(12))
    assert values == pytest.approx(linalg.eigvalsh(target, shrinkage.of(background)), rel=1e-11)
    pairs = back(Eigenpairs(values, vectors, A @ vectors, S @ vectors))
    np.testing.assert_allclose(pairs.target_image, target @ pairs.vectors, atol=1e-12)
    np.testing.assert_allclose(pairs.background_image, background @ pairs.vectors, atol=1e-12)
    np.testing.assert_allclose(turned.in_units(A @ vectors), scale * pairs.target_image, atol=1e-12)


@pytest.fixture
def little_memory(monkeypatch):
    monkeypatch.setattr(_blas, "_LEAST", 10_000)
    monkeypatch.setattr(_blas, "_MOST", 10_000)


@pytest.mark.usefixtures("little_memory")
def test_auto_chooses_matrix_free_when_covariances_exceed_the_memory(pair):
    target, background = map(sparse.csr_array, pair)
    model = DPCA(3).fit(target, background=background)
    assert model.solver_ == "matrix_free"
    expected = (pair[0] - model.mean_) @ model.components_.T
    np.testing.assert_allclose(model.transform(target), expected, atol=1e-12)
    assert model.score(target, background=background) > 0
    wide = DPCA(3).fit(target[:40], background=background[:60])
    assert wide.solver_ == "matrix_free"
    dense = DPCA(3, solver="dense").fit(pair[0][:40], background=pair[1][:60])
    assert np.isnan(wide.noise_edge_) and np.isnan(wide.p_value_) and np.isnan(wide.debiased_ratios_).all()
    assert wide.ratios_ == pytest.approx(dense.ratios_, rel=1e-10)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(("parameter", "value"), [("n_components", None), ("n_components", "auto"), ("axes", "signal")])
def test_options_that_need_every_ratio_are_an_error_beyond_the_memory(pair, refused, parameter, value):
    estimator = DPCA(3).set_params(**{parameter: value})
    refused(lambda: estimator.fit(pair[0], background=pair[1]), f"{parameter}={value!r}", "solver='dense'")


def test_a_source_read_with_more_memory_may_form_covariances(pair, little_memory):
    import standout

    source = standout.read(pair[0])
    source.memory = 10**8
    assert DPCA(3).fit(source, background=pair[1]).solver_ == "dense"


def test_partial_fit_of_a_model_without_moments_is_an_error(pair, refused):
    model = DPCA(2, solver="matrix_free").fit(pair[0], background=pair[1])
    refused(lambda: model.partial_fit(pair[0]), "keeps no moments")


def test_more_components_than_the_target_has_dimensions_are_an_error(pair, refused):
    few = np.repeat(pair[0][:4], 30, axis=0)
    fit = DPCA(130, solver="matrix_free", shrinkage=0.5).fit
    refused(lambda: fit(few, background=pair[1]), "n_components=130", "Use at most 119")


def test_ratios_are_zero_beyond_the_dimensions_of_the_target(pair):
    few = np.repeat(pair[0][:4], 30, axis=0)
    model = DPCA(5, solver="matrix_free", shrinkage=0.5).fit(sparse.csr_array(few), background=pair[1])
    dense = DPCA(5, solver="dense", shrinkage=0.5).fit(few, background=pair[1])
    assert model.ratios_[:3] == pytest.approx(dense.ratios_[:3], rel=1e-10)
    assert np.abs(model.ratios_[3:]).max() < 1e-10 * model.ratios_[0]


def test_rows_selected_by_label_stay_sparse(pair):
    target, background = pair
    whole = sparse.csr_array(np.vstack([target, background]))
    label = np.repeat([1, 0], [len(target), len(background)])
    model = DPCA(3, solver="matrix_free", background_label=0).fit(whole, label)
    plain = DPCA(3, solver="matrix_free").fit(sparse.csr_array(target), background=sparse.csr_array(background))
    assert model.components_ == pytest.approx(plain.components_, abs=1e-12)


def test_duplicate_sparse_entries_are_summed_without_changing_the_matrix(pair):
    once = sparse.csr_array(pair[0])
    twice = sparse.csr_array(
        (np.repeat(once.data / 2, 2), np.repeat(once.indices, 2), 2 * once.indptr), shape=once.shape
    )
    model = DPCA(3, solver="matrix_free", shrinkage="oas").fit(twice, background=pair[1])
    assert twice.nnz == 2 * once.nnz
    check(model, *map(covariance, pair))


def peak(work):
    tracemalloc.start()
    work()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def large_sparse(seed, rows, features, density, factor=1.0):
    """Return random entries; some features share a factor of ``factor`` in half of the rows."""
    rng = np.random.default_rng(seed)
    matrix = sparse.random_array((rows, features), density=density, format="csr", random_state=rng)
    # int64 in scipy 1.13
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)
    high = np.repeat(rng.integers(0, 2, size=rows), np.diff(matrix.indptr)).astype(bool)
    matrix.data[high & (matrix.indices < features // 10)] *= factor
    return matrix


def nbytes(matrix):
    return matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes


def test_fit_and_transform_need_less_memory_than_twice_the_input():
    target, background = large_sparse(6, 20_000, 3000, 0.02, factor=9.0), large_sparse(7, 20_000, 3000, 0.02)
    held = nbytes(target) + nbytes(background)
    assert 2 * held < 8 * 3000**2
    model = DPCA(1, solver="matrix_free", shrinkage=0.5)
    assert peak(lambda: model.fit(target, background=background)) < 2 * held
    assert peak(lambda: model.transform(target)) < held / 2


def test_wide_sparse_rows_use_the_gram_solver_without_a_dense_copy():
    target, background = large_sparse(8, 150, 60_000, 0.02, factor=9.0), large_sparse(9, 150, 60_000, 0.02)
    model = DPCA(3)
    most = peak(lambda: model.fit(target, background=background))
    assert model.solver_ == "span"
    assert most < 8 * 150 * 60_000 / 2
