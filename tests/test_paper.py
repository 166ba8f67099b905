"""The paper, equation by equation, and what it gets wrong: Wang, Chen and Giannakis, arXiv 1710.09429."""

import numpy as np
import pytest
from scipy import linalg, optimize
from sklearn.decomposition import PCA

from helpers import cosine, covariance, moments_of, ratio, rotation, same_up_to_sign, sample_pair
from standout._dpca import DPCA
from standout.datasets.factor import FactorModel
from standout.errors import StructuralWarning

pytestmark = pytest.mark.filterwarnings("ignore::standout.errors.OverfitWarning")
SIZE = 6


@pytest.fixture
def rows():
    return sample_pair(np.random.default_rng(17), 120, 150, SIZE)


@pytest.fixture
def matrices(rows):
    return covariance(rows[0]), covariance(rows[1])


def exact(n_components=None, **options):
    return DPCA(n_components, shrinkage=None, **options)


def fit_population(C_xx, C_yy, n_components=None, **options):
    return exact(n_components, **options).fit(moments_of(C_xx), background=moments_of(C_yy))


def test_no_random_direction_has_a_larger_ratio_equation_3(rows, matrices):
    model = exact().fit(rows[0], background=rows[1])
    directions = np.random.default_rng(0).normal(size=(5000, SIZE))
    # Directions near the optimum are the ones that could do better.
    directions[2500:] = model.components_[0] + 1e-3 * directions[2500:]
    best = max(ratio(u, *matrices) for u in directions)
    assert ratio(model.components_[0], *matrices) == pytest.approx(model.ratios_[0], rel=1e-12)
    assert best <= model.ratios_[0] * (1 + 1e-12)
    assert best > 0.999 * model.ratios_[0]


def test_no_optimiser_from_any_start_does_better_equation_3(rows, matrices):
    model = exact().fit(rows[0], background=rows[1])
    starts = np.random.default_rng(1).normal(size=(20, SIZE))
    found = [optimize.minimize(lambda u: -np.log(ratio(u, *matrices)), start, method="BFGS") for start in starts]
    best = [ratio(result.x, *matrices) for result in found]
    assert max(best) <= model.ratios_[0] * (1 + 1e-12)
    # The ratio has no false maxima: every start that converges gets there.
    assert np.median(best) == pytest.approx(model.ratios_[0], rel=1e-6)


def test_whitened_form_gives_the_same_equation_4(rows, matrices):
    C_xx, C_yy = matrices
    model = exact().fit(rows[0], background=rows[1])
    values, vectors = np.linalg.eigh(C_yy)
    whiten = vectors / np.sqrt(values)  # C_yy^{−1/2} = U_yᵀ Σ^{−1/2}, eigenvectors in the rows of U_y
    ratios, v = np.linalg.eigh(whiten.T @ C_xx @ whiten)
    u = (whiten @ v[:, ::-1]).T
    assert model.ratios_ == pytest.approx(ratios[::-1], rel=1e-11)
    assert same_up_to_sign(model.components_, u / np.linalg.norm(u, axis=1)[:, None], 1e-10)


def test_whiten_then_pca_then_retransform_gives_the_same_remark_2(rows, matrices):
    target, background = rows
    model = exact().fit(target, background=background)
    values, vectors = np.linalg.eigh(matrices[1])
    whiten = vectors / np.sqrt(values)
    pca = PCA().fit((target - target.mean(axis=0)) @ whiten)
    u = pca.components_ @ whiten.T
    assert model.ratios_ == pytest.approx(pca.explained_variance_ * (len(target) - 1) / len(target), rel=1e-11)
    assert same_up_to_sign(model.components_, u / np.linalg.norm(u, axis=1)[:, None], 1e-10)


def test_constrained_form_has_the_top_ratio_as_its_value_equation_5(rows, matrices):
    C_xx, C_yy = matrices
    model = exact(1, normalize="background").fit(rows[0], background=rows[1])
    start = np.ones(SIZE) / np.sqrt(np.ones(SIZE) @ C_yy @ np.ones(SIZE))
    solved = optimize.minimize(
        lambda u: -u @ C_xx @ u,
        start,
        jac=lambda u: -2 * C_xx @ u,
        constraints={"type": "eq", "fun": lambda u: u @ C_yy @ u - 1, "jac": lambda u: 2 * C_yy @ u},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert solved.success
    assert -solved.fun == pytest.approx(model.ratios_[0], rel=1e-8)
    assert cosine(solved.x, model.components_[0]) == pytest.approx(1, abs=1e-8)


def test_kkt_conditions_hold_at_every_component_equations_6_to_8(rows, matrices):
    C_xx, C_yy = matrices
    model = exact(normalize="background").fit(rows[0], background=rows[1])
    for u, lam in zip(model.components_, model.ratios_, strict=True):
        assert u @ C_yy @ u == pytest.approx(1, rel=1e-11)
        assert u @ C_xx @ u == pytest.approx(lam, rel=1e-11)
        gradient = C_xx @ u - lam * C_yy @ u
        assert np.linalg.norm(gradient) <= 1e-12 * np.linalg.cond(C_yy) * np.linalg.norm(C_xx @ u)
        assert np.linalg.solve(C_yy, C_xx @ u) == pytest.approx(lam * u, abs=1e-10 * lam * np.linalg.norm(u))


def test_several_components_maximise_the_ratio_trace_and_are_uncorrelated_in_both_datasets(rows, matrices):
    C_xx, C_yy = matrices
    model = exact(2).fit(rows[0], background=rows[1])
    for scores, variance in (
        (model.transform(rows[0]), model.target_variance_),
        (model.transform(rows[1]), model.background_variance_),
    ):
        assert np.abs(np.corrcoef(scores.T) - np.eye(2)).max() < 1e-11
        assert scores.var(axis=0) == pytest.approx(variance, rel=1e-11)
    assert abs(model.components_[0] @ model.components_[1]) > 1e-3  # but not orthogonal

    def ratio_trace(U):
        return np.trace(np.linalg.solve(U @ C_yy @ U.T, U @ C_xx @ U.T))

    assert ratio_trace(model.components_) == pytest.approx(model.ratios_.sum(), rel=1e-11)
    others = np.random.default_rng(2).normal(size=(2000, 2, SIZE))
    others[1000:] = model.components_ + 1e-2 * others[1000:]
    assert max(map(ratio_trace, others)) <= model.ratios_.sum() * (1 + 1e-12)


def test_contrastive_pca_at_the_top_ratio_has_the_first_component_and_only_that_section_3_2(rows, matrices):
    C_xx, C_yy = matrices
    model = exact().fit(rows[0], background=rows[1])
    values, vectors = np.linalg.eigh(C_xx - model.ratios_[0] * C_yy)
    assert abs(values[-1]) < 1e-12 * np.abs(values).max()
    assert cosine(vectors[:, -1], model.components_[0]) == pytest.approx(1, abs=1e-12)
    assert cosine(vectors[:, -2], model.components_[1]) < 0.97  # 17 degrees apart


def test_contrastive_pca_at_the_ith_ratio_has_i_minus_one_positive_eigenvalues_section_3_2(rows, matrices):
    C_xx, C_yy = matrices
    model = exact().fit(rows[0], background=rows[1])
    for i, (lam, u) in enumerate(zip(model.ratios_, model.components_, strict=True)):
        values, vectors = np.linalg.eigh(C_xx - lam * C_yy)
        tiny = 1e-12 * np.abs(values).max()
        assert (values > tiny).sum() == i
        assert cosine(vectors[:, np.abs(values).argmin()], u) == pytest.approx(1, abs=1e-9)


def test_simultaneously_diagonal_covariances_give_ratios_of_eigenvalues_equation_9():
    U = rotation(np.random.default_rng(3), 3)
    lam_x, lam_y = np.array([10, 37.5, 0.3]), np.array([1, 5, 0.1])
    model = fit_population(U.T * lam_x @ U, U.T * lam_y @ U)
    assert model.ratios_ == pytest.approx([10, 7.5, 3], rel=1e-12)
    assert same_up_to_sign(model.components_, U, 1e-12)  # rows of U, in the order of the ratios
    # Contrastive PCA at α = 10 orders them otherwise: the differences are 0, −12.5 and −0.7.
    order = np.argsort(-(lam_x - 10 * lam_y))
    assert order.tolist() == [0, 2, 1]


def test_no_background_is_pca_remark_1(rows):
    target, m = rows[0], len(rows[0])
    model, pca = DPCA(None).fit(target), PCA().fit(target)
    assert model.ratios_ * m / (m - 1) == pytest.approx(pca.explained_variance_, rel=1e-12)
    assert same_up_to_sign(model.components_, pca.components_, 1e-10)
    assert np.abs(model.transform(target)) == pytest.approx(np.abs(pca.transform(target)), abs=1e-10)
    assert model.inverse_transform(model.transform(target)) == pytest.approx(target, abs=1e-10)


@pytest.mark.parametrize("as_dict", [False, True])
@pytest.mark.parametrize(
    ("mix", "shares"),
    [("pooled", [0.5, 0.3, 0.2]), ("equal", [1 / 3] * 3), ([1, 2, 5], [0.125, 0.25, 0.625])],
)
def test_several_backgrounds_are_mixed_about_their_own_means_remark_1(rows, mix, shares, as_dict):
    target, whole = rows
    parts = [whole[:75] + 4, whole[75:120] * 2, whole[120:] - 9]
    background = dict(zip("abc", parts, strict=True)) if as_dict else parts
    model = exact(mix=mix).fit(target, background=background)
    mixed = sum(share * covariance(part) for share, part in zip(shares, parts, strict=True))
    assert model.mix_ == pytest.approx(shares)
    assert model.ratios_ == pytest.approx(linalg.eigh(covariance(target), mixed, eigvals_only=True)[::-1], rel=1e-11)


def test_the_answer_is_not_the_singular_vectors_of_algorithm_1():
    C_xx, C_yy = np.array([[2.0, 1.0], [1.0, 1.0]]), np.diag([1.0, 4.0])
    model = fit_population(C_xx, C_yy)
    # det(C_xx − λ C_yy) = 4λ² − 9λ + 1.
    assert model.ratios_ == pytest.approx([(9 + np.sqrt(65)) / 8, (9 - np.sqrt(65)) / 8], rel=1e-13)
    u = np.array([1, model.ratios_[0] - 2])
    assert model.components_[0] == pytest.approx(u / np.linalg.norm(u), rel=1e-12)
    assert model.components_[0] == pytest.approx([0.9913, 0.1316], abs=5e-5)
    literal = np.linalg.svd(np.linalg.solve(C_yy, C_xx))[2][0]
    assert ratio(literal, C_xx, C_yy) == pytest.approx(1.6089, abs=5e-5)
    assert cosine(literal, model.components_[0]) < 0.95


def test_new_rows_are_centred_with_the_stored_mean(rows):
    target, background = rows
    model = exact(2).fit(target, background=background)
    assert model.mean_ == pytest.approx(target.mean(axis=0), rel=1e-12)
    one = background[:1]
    assert model.transform(one) == pytest.approx((one - target.mean(axis=0)) @ model.components_.T, abs=1e-12)
    assert model.transform(target[:1]) == pytest.approx(model.transform(target)[:1], abs=1e-12)


def test_datasets_are_not_standardised_each_by_itself(rows):
    target, background = rows
    plain, louder = (exact().fit(s * target, background=background).ratios_ for s in (1, 3))
    assert louder == pytest.approx(9 * plain, rel=1e-12)


def test_pattern_not_filter_is_the_direction_added_to_the_target():
    # u_s at 45° to a shared direction of variance 101: the filter turns away from it.
    factor = FactorModel(background_sd=(10.0, 5.0, 4.0, 3.0), oblique=np.sqrt(0.5))
    model = fit_population(factor.target_covariance, factor.background_covariance, 1)
    inverse = np.linalg.inv(factor.background_covariance)
    assert model.ratios_[0] == pytest.approx(1 + 4 * factor.signal @ inverse @ factor.signal, rel=1e-11)
    assert cosine(model.patterns_[0], factor.signal) == pytest.approx(1, abs=1e-12)
    assert cosine(model.components_[0], factor.signal) == pytest.approx(
        (1 + 1 / 101) / np.sqrt(2 * (1 + 1 / 101**2)), rel=1e-11
    )
    assert cosine(model.components_[0], factor.signal) == pytest.approx(0.714, abs=5e-4)


@pytest.mark.parametrize(("oblique", "better"), [(np.sqrt(0.5), "patterns_"), (0.0, "components_")])
def test_in_samples_the_pattern_is_nearer_when_oblique_and_the_filter_when_orthogonal(oblique, better):
    factor = FactorModel(background_sd=(10.0, 5.0, 4.0, 3.0), oblique=oblique)
    near = {"patterns_": [], "components_": []}
    for seed in range(10):
        target, background = factor.sample(2000, 3000, seed=seed)
        model = DPCA(1).fit(target, background=background)
        for name, found in near.items():
            found.append(cosine(getattr(model, name)[0], factor.signal))
    worse = min(near, key=lambda name: np.mean(near[name]))
    assert worse != better
    assert np.mean(near[better]) > 0.95


def test_infinite_ratios_have_patterns_too(rows):
    target, background = rows[0], rows[1].copy()
    background[:, 2] = 7.0
    with pytest.warns(StructuralWarning, match="constant in the background"):
        model = exact().fit(target, background=background)
    C_xx = covariance(target)
    assert np.isinf(model.ratios_).tolist() == [True] + [False] * (SIZE - 1)
    assert same_up_to_sign(model.components_[:1], np.eye(SIZE)[2:3], 1e-14)
    # How much every feature moves with the third: the regression on it.
    assert same_up_to_sign(model.patterns_[:1], C_xx[2:3] / C_xx[2, 2], 1e-11)
    assert model.components_ @ model.patterns_.T == pytest.approx(np.eye(SIZE), abs=1e-10)


@pytest.mark.parametrize(("shared_ratio", "own_wins"), [(4.5, True), (6.0, False), (8.0, False)])
def test_a_shared_direction_that_grew_more_than_the_specific_one_comes_first(shared_ratio, own_wins):
    # The target's own direction has ratio 5; a shared one, of variance 37, grows by shared_ratio.
    factor = FactorModel(shared_growth=(37 * shared_ratio - 1) / 36)
    model = fit_population(factor.target_covariance, factor.background_covariance, 2)
    winner, loser = (0, 1) if own_wins else (1, 0)
    assert model.ratios_[winner] == pytest.approx(5, rel=1e-11)
    assert model.ratios_[loser] == pytest.approx(shared_ratio, rel=1e-11)
    assert cosine(model.components_[winner], factor.signal) == pytest.approx(1, abs=1e-11)
    assert cosine(model.components_[loser], factor.directions[:, 0]) == pytest.approx(1, abs=1e-11)


def test_distance_between_background_means_is_not_background_variance():
    rng = np.random.default_rng(5)
    target = rng.normal(size=(600, 4)) * [2.2, 1, 1, 1]
    first, second = rng.normal(size=(500, 4)), rng.normal(size=(500, 4)) + np.array([5, 0, 0, 0])
    apart = exact(1).fit(target, background=[first, second])
    within = (covariance(first) + covariance(second)) / 2
    together = covariance(np.vstack([first, second]))
    assert apart.ratios_[0] == pytest.approx(linalg.eigvalsh(covariance(target), within)[-1], rel=1e-11)
    assert apart.ratios_[0] == pytest.approx(4.8, abs=0.7)
    # Stacked into one dataset, the distance hides the direction the target is about.
    stacked = exact(1).fit(target, background=np.vstack([first, second]))
    assert stacked.ratios_[0] == pytest.approx(linalg.eigvalsh(covariance(target), together)[-1], rel=1e-11)
    assert stacked.ratios_[0] < 1.4
    moved = exact(1).fit(target, background=[first, second + 1000])
    assert moved.ratios_[0] == pytest.approx(apart.ratios_[0], rel=1e-10)


def test_whitening_by_the_inverse_root_scales_the_background_and_the_plain_root_amplifies_it():
    """The paper's (13) with +1/2 finds the background; with −1/2 the target's own direction."""
    model = FactorModel()
    values, vectors = np.linalg.eigh(model.background_covariance)
    shared, signal = model.directions[:, 0], model.signal
    wrong, right = (vectors * values**power @ vectors.T for power in (0.5, -0.5))
    top = [np.linalg.eigh(root @ model.target_covariance @ root)[1][:, -1] for root in (wrong, right)]
    assert abs(top[0] @ shared) > 0.99 and abs(top[0] @ signal) < 0.01
    assert abs(top[1] @ signal) > 0.99
    # Background directions are brought to unit variance: none of them is removed.
    whitened = right @ model.background_covariance @ right
    np.testing.assert_allclose(whitened, np.eye(12), atol=1e-12)
