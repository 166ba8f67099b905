"""Kernel dPCA: equal to the linear method on an explicit feature map, and able to see what no direction shows."""

import pickle
import warnings

import numpy as np
import pytest
from scipy import linalg, sparse
from scipy.spatial.distance import pdist
from sklearn.base import clone
from sklearn.decomposition import KernelPCA
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from helpers import OptionalPackage, covariance, quiet, ridge, same_up_to_sign, sample_pair, second_order
from standout._dataset import Dataset
from standout._dpca import DPCA
from standout._kernel_dpca import KernelDPCA, choose_landmarks, median_gamma
from standout._kernel_model import Kernel
from standout._model_file import load, save
from standout._moments import Moments
from standout.errors import FeatureError, InputError, NonFiniteError, NotEnoughRowsError, RowsNeededError

pd = OptionalPackage("pandas")

pytestmark = quiet


# Scores rest on the inverse root of the landmarks' kernel matrix, which rounding disturbs by ε times its condition:
# about 1e-16·1e5 here.
AGREED = 1e-10


@parametrize_with_checks(
    [KernelDPCA(), KernelDPCA(1, kernel="poly", n_landmarks=20), KernelDPCA(1, kernel="linear", shrinkage="oas")]
)
def test_scikit_learn_estimator_checks_pass(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        check(estimator)


def rings(n, seed):
    """Two rings in the target, one of the same covariance in the background, and a large nuisance in both."""
    rng = np.random.default_rng(seed)

    def around(radius):
        angle = rng.uniform(0, 2 * np.pi, n)
        ring = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
        return np.hstack([ring, 3 * rng.normal(size=(n, 2))]) + 0.2 * rng.normal(size=(n, 4))

    which = rng.integers(0, 2, n)
    return around(np.where(which == 1, 3.0, 1.0)), around(np.full(n, np.sqrt(5))), which


def separation(model, seed=0):
    """Fit to rings, and return the share of held-out rows that a line through the scores puts on the right ring."""
    target, background, which = rings(400, seed)
    new, _, expected = rings(400, seed + 100)
    model.fit(target, background=background)
    scale = np.sqrt(model.target_variance_)
    line = LogisticRegression().fit(model.transform(target) / scale, which)
    return line.score(model.transform(new) / scale, expected)


@pytest.fixture(scope="module")
def pair():
    return sample_pair(np.random.default_rng(0), 60, 80, 6)


@pytest.fixture(scope="module")
def new():
    return np.random.default_rng(1).normal(size=(40, 6))


@pytest.mark.parametrize("rho", [0.01, 0.3, 1.0])
def test_a_linear_kernel_is_linear_dpca_with_a_ridge_also_out_of_sample(pair, new, rho):
    target, background = pair
    model = KernelDPCA(3, kernel="linear", shrinkage=rho, standardize=False).fit(target, background=background)
    ratios, vectors = ridge(target, background, rho, 3)
    assert model.ratios_ == pytest.approx(ratios, rel=AGREED)
    assert same_up_to_sign(model.transform(new).T, ((new - target.mean(axis=0)) @ vectors).T, AGREED)
    assert model.target_variance_ == pytest.approx(np.var(target @ vectors, axis=0), rel=AGREED)
    assert model.ratios_ == pytest.approx(model.target_variance_ / model.background_variance_)


def test_a_linear_kernel_with_many_rows_is_dpca(new):
    target, background = sample_pair(np.random.default_rng(2), 150, 200, 6)
    kernel = KernelDPCA(3, kernel="linear", standardize=False).fit(target, background=background)
    linear = DPCA(3, shrinkage=None).fit(target, background=background)
    assert kernel.regime_ == linear.regime_ == "exact" and kernel.shrinkage_ == 0
    for name in ("ratios_", "target_variance_", "noise_edge_", "p_value_", "debiased_ratios_"):
        assert getattr(kernel, name) == pytest.approx(getattr(linear, name), rel=AGREED, nan_ok=True)
    assert same_up_to_sign(kernel.transform(new).T, linear.transform(new).T, AGREED)


@pytest.mark.parametrize("coef0", [1.0, 0.5])
def test_a_polynomial_kernel_is_its_explicit_map_also_out_of_sample(pair, new, coef0):
    target, background = pair
    model = KernelDPCA(3, kernel="poly", gamma=0.3, coef0=coef0, shrinkage=0.1, standardize=False)
    model.fit(target, background=background)
    explicit = [second_order(rows, 0.3, coef0) for rows in (target, background, new)]
    ratios, vectors = ridge(explicit[0], explicit[1], 0.1, 3)
    assert model.ratios_ == pytest.approx(ratios, rel=AGREED)
    assert same_up_to_sign(model.transform(new).T, ((explicit[2] - explicit[0].mean(axis=0)) @ vectors).T, AGREED)


def test_a_cosine_kernel_is_the_linear_one_of_unit_rows(pair, new):
    target, background = pair
    model = KernelDPCA(2, kernel="cosine", shrinkage=0.1, standardize=False).fit(target, background=background)
    unit = [rows / np.linalg.norm(rows, axis=1)[:, None] for rows in (target, background, new)]
    ratios, vectors = ridge(unit[0], unit[1], 0.1, 2)
    assert model.ratios_ == pytest.approx(ratios, rel=AGREED)
    assert same_up_to_sign(model.transform(new).T, ((unit[2] - unit[0].mean(axis=0)) @ vectors).T, AGREED)


def test_a_radial_kernel_is_the_block_centred_gram_problem(pair, new):
    target, background = pair
    gamma, rho, rows = 0.2, 0.1, np.vstack(pair)
    model = KernelDPCA(2, gamma=gamma, shrinkage=rho, standardize=False).fit(target, background=background)

    def kernel(one, other):
        return np.exp(-gamma * ((one[:, None] - other) ** 2).sum(axis=2))

    J = linalg.block_diag(*[np.eye(len(part)) - 1 / len(part) for part in pair])
    values, E = linalg.eigh(J @ kernel(rows, rows) @ J)
    kept = values > 1e-10 * values[-1]
    F = E[:, kept] * np.sqrt(values[kept])
    ratios, vectors = ridge(F[:60], F[60:], rho, 2)
    assert model.ratios_ == pytest.approx(ratios, rel=AGREED)
    dual = J @ (E[:, kept] / np.sqrt(values[kept])) @ vectors
    expected = (kernel(new, rows) - kernel(target, rows).mean(axis=0)) @ dual
    assert same_up_to_sign(model.transform(new).T, expected.T, 1e-8)


def test_the_shrinkage_is_the_published_formula_on_the_explicit_covariance(pair):
    target, background = pair
    model = KernelDPCA(2, kernel="poly", gamma=0.3, standardize=False).fit(target, background=background)
    S, p, free = covariance(second_order(background, 0.3, 1.0)), 27, 79
    square, trace = np.trace(S @ S), np.trace(S)
    published = ((1 - 2 / p) * square + trace**2) / ((free + 1 - 2 / p) * (square - trace**2 / p))
    assert model.regime_ == "shrunk" and model.shrinkage_ == pytest.approx(published, rel=AGREED)


def test_without_a_background_it_is_scikit_learns_kernel_pca(pair, new):
    target = pair[0]
    model = KernelDPCA(3, gamma=0.2).fit(target)
    peer = KernelPCA(3, kernel="rbf", gamma=0.2).fit(target)
    assert model.ratios_ == pytest.approx(peer.eigenvalues_ / len(target), rel=AGREED)
    assert same_up_to_sign(model.transform(new).T, peer.transform(new).T, AGREED)


def test_a_callable_is_the_kernel_of_its_formula(pair, new):
    by_name = KernelDPCA(gamma=0.2).fit(pair[0], background=pair[1])
    by_function = KernelDPCA(kernel=Kernel("rbf", gamma=0.2).between).fit(pair[0], background=pair[1])
    assert by_function.transform(new) == pytest.approx(by_name.transform(new), rel=1e-12)


@pytest.mark.parametrize("degree", [1, 2, 3, 5, 8])
def test_a_polynomial_kernel_is_the_power_of_the_affine_product(degree):
    rows = np.random.default_rng(3).normal(size=(5, 3))
    found = Kernel("poly", gamma=0.5, degree=degree, coef0=0.7).between(rows, rows[:4])
    assert found == pytest.approx((0.5 * rows @ rows[:4].T + 0.7) ** degree, rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("options", [{"kernel": "poly"}, {}, {"n_landmarks": 100}], ids=["poly", "rbf", "landmarks"])
def test_rings_are_separated_on_held_out_rows_and_not_by_a_direction(options, seed):
    # Local functions of the angle may have ratios as large as the radius has: it is among the first three.
    assert separation(KernelDPCA(3, **options), seed) > 0.95
    assert separation(DPCA(3), seed) < 0.7


def test_as_many_landmarks_as_rows_are_the_exact_method(pair, new):
    exact = KernelDPCA().fit(pair[0], background=pair[1])
    for count in (140, 1000):
        model = KernelDPCA(n_landmarks=count).fit(pair[0], background=pair[1])
        assert np.array_equal(model.transform(new), exact.transform(new))


def test_landmarks_are_rows_of_every_set_and_the_seed_chooses_them(pair):
    backgrounds = [pair[1][:60], pair[1][60:]]
    model = KernelDPCA(n_landmarks=20, random_state=1).fit(pair[0], background=backgrounds)
    assert model.landmarks_.shape == (20, 6) and model.dual_coef_.shape == (2, 20)
    parts = [{tuple(row) for row in rows} for rows in (pair[0], *backgrounds)]
    assert [sum(tuple(row) in part for row in model.landmarks_) for part in parts] == [10, 8, 2]
    again, other = clone(model), clone(model).set_params(random_state=2)
    assert np.array_equal(again.fit(pair[0], background=backgrounds).landmarks_, model.landmarks_)
    assert not np.array_equal(other.fit(pair[0], background=backgrounds).landmarks_, model.landmarks_)


@pytest.mark.parametrize(("sizes", "counts"), [([50, 300, 100], [10, 8, 2]), ([5, 300, 100], [5, 11, 4])])
def test_half_of_the_landmarks_are_target_rows_if_there_are_as_many(sizes, counts):
    assert [len(rows) for rows in choose_landmarks(sizes, 20, np.random.default_rng(0))] == counts


def test_few_landmarks_never_form_a_full_kernel_matrix():
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(120_000, 3))  # rows × rows would be 115 GB
    model = KernelDPCA(1, n_landmarks=30).fit(rows[:60_000] * [1, 1, 4], background=rows[60_000:])
    assert model.score(rows[:1000] * [1, 1, 4], background=rows[-1000:]) > 0.5


def test_several_backgrounds_keep_their_means_and_shares(pair, new):
    target, background = pair
    parts = [background[:30], background[30:] + 50.0]
    model = KernelDPCA(2, kernel="linear", shrinkage=0.2, mix=[1, 3], standardize=False).fit(target, background=parts)
    C_yy = 0.25 * covariance(parts[0]) + 0.75 * covariance(parts[1])
    assert KernelDPCA(None, kernel="linear").fit(target, background=parts).n_components_ == 6
    values = linalg.eigh(covariance(target), 0.8 * C_yy + 0.2 * np.trace(C_yy) / 6 * np.eye(6), eigvals_only=True)
    assert model.ratios_ == pytest.approx(values[::-1][:2], rel=AGREED)
    assert model.mix_ == pytest.approx([0.25, 0.75])
    shifted = clone(model).fit(target, background=[parts[0], parts[1] - 50])
    assert shifted.ratios_ == pytest.approx(model.ratios_, rel=AGREED)


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("kernel", ["rbf", "poly", "linear"])
def test_repeating_every_row_changes_nothing(pair, new, kernel, standardize):
    once = KernelDPCA(2, kernel=kernel, shrinkage=0.05, standardize=standardize).fit(pair[0], background=pair[1])
    thrice = clone(once).fit(np.tile(pair[0], (3, 1)), background=np.tile(pair[1], (3, 1)))
    # The sd of three times the rows may differ in its last digit.
    assert thrice.gamma_ == pytest.approx(once.gamma_, rel=1e-14 if standardize else 0.0)
    assert thrice.ratios_ == pytest.approx(once.ratios_, rel=AGREED)
    assert thrice.transform(new) == pytest.approx(once.transform(new), rel=1e-8, abs=1e-10)


def test_the_ridge_of_the_literature_changes_when_rows_are_repeated(pair):
    # ε‖a‖² on coefficients instead of ε aᵀKa: the reason for the kernel's own norm.
    def top_ratio(target, background, epsilon=1e-2):
        rows = np.vstack([target, background])
        sizes = len(target), len(background)
        J = linalg.block_diag(*[np.eye(size) - 1 / size for size in sizes])
        K = J @ (rows @ rows.T) @ J
        A, B = K[:, : sizes[0]], K[:, sizes[0] :]
        return linalg.eigh(A @ A.T / sizes[0], B @ B.T / sizes[1] + epsilon * np.eye(len(K)), eigvals_only=True)[-1]

    once, twice = top_ratio(*pair), top_ratio(np.tile(pair[0], (2, 1)), np.tile(pair[1], (2, 1)))
    assert abs(twice / once - 1) > 1e-3


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_the_order_of_the_rows_does_not_matter(pair, new, kernel):
    rng = np.random.default_rng(5)
    model = KernelDPCA(2, kernel=kernel).fit(pair[0], background=pair[1])
    mixed = KernelDPCA(2, kernel=kernel).fit(rng.permutation(pair[0]), background=rng.permutation(pair[1]))
    assert mixed.ratios_ == pytest.approx(model.ratios_, rel=AGREED)
    assert mixed.transform(new) == pytest.approx(model.transform(new), rel=1e-8, abs=1e-10)


def test_integer_weights_repeat_rows_and_zero_weights_remove_them(pair, new):
    weights = np.random.default_rng(6).integers(0, 4, 60)
    spoiled = np.where(weights[:, None] == 0, np.nan, pair[0])
    weighted = KernelDPCA(2, shrinkage=0.1).fit(spoiled, background=pair[1], sample_weight=weights)
    repeated = KernelDPCA(2, shrinkage=0.1, gamma=weighted.gamma_)
    repeated.fit(np.repeat(pair[0], weights, axis=0), background=pair[1])
    assert weighted.ratios_ == pytest.approx(repeated.ratios_, rel=AGREED)
    assert weighted.transform(new) == pytest.approx(repeated.transform(new), rel=1e-8, abs=1e-10)


def test_the_median_heuristic_is_the_median_of_squared_distances(pair):
    for standardize in (True, False):
        model = KernelDPCA(standardize=standardize).fit(pair[0], background=pair[1])
        rows = np.vstack(pair) / (pair[1].std(axis=0) if standardize else 1.0)
        # With an even number of pairs numpy takes the middle of two, which are neighbours.
        assert 1 / model.gamma_ == pytest.approx(np.median(pdist(rows, "sqeuclidean")), rel=1e-2)


def test_the_median_heuristic_ignores_copies_of_a_row():
    data = [Dataset.of("target", np.array([[0.0], [2.0]])), Dataset.of("background", np.array([[2.0]]))]
    assert median_gamma(data, None, np.random.default_rng(0)) == 0.25


def test_the_radial_kernel_is_invariant_to_units_and_shifts(pair, new):
    model = KernelDPCA().fit(pair[0], background=pair[1])
    units = 10.0 ** np.arange(-3, 3)
    moved = KernelDPCA().fit(units * pair[0] + 1e3 * units, background=units * pair[1] + 1e3 * units)
    assert moved.transform(units * new + 1e3 * units) == pytest.approx(model.transform(new), rel=1e-8, abs=1e-10)


@pytest.mark.parametrize("far", [1e4, 1e8])
def test_distances_within_distant_clusters_stay_accurate(far):
    rng = np.random.default_rng(0)
    target, background = rng.normal(size=(60, 3)), rng.normal(size=(50, 3))
    background[:, 2] = far
    model = KernelDPCA(gamma=0.2).fit(target, background=background)
    rows = np.vstack([target, background]) / model.scale_
    exact = np.exp(-0.2 * ((rows[:, None] - rows) ** 2).sum(axis=2))
    assert Kernel("rbf", gamma=0.2).between(rows, rows) == pytest.approx(exact, abs=1e-8)
    assert KernelDPCA(gamma="median").fit(target, background=background[:20]).n_components_ == 2


def test_numpy_booleans_are_accepted(pair, new, tmp_path):
    for value in (True, False):
        models = [KernelDPCA(standardize=kind(value)).fit(pair[0], background=pair[1]) for kind in (bool, np.bool_)]
        assert np.array_equal(models[0].transform(new), models[1].transform(new))
        assert np.array_equal(load(save(models[1], tmp_path / "m")).transform(new), models[0].transform(new))


def test_labels_select_the_background(pair, new):
    rows, labels = np.vstack(pair), np.repeat(["case", "control"], [60, 80])
    model = KernelDPCA(background_label="control").fit(rows, labels)
    assert np.array_equal(model.transform(new), KernelDPCA().fit(pair[0], background=pair[1]).transform(new))
    assert model.score(rows, labels) == pytest.approx(
        KernelDPCA().fit(*pair[:1], background=pair[1]).score(pair[0], background=pair[1])
    )


def test_sparse_rows_frames_and_arrays_give_the_same(pair, new):
    plain = KernelDPCA().fit(pair[0], background=pair[1]).transform(new)
    thin = [sparse.csr_array(rows) for rows in (*pair, new)]
    assert KernelDPCA().fit(thin[0], background=thin[1]).transform(thin[2]) == pytest.approx(plain, rel=1e-12)
    names = list("abcdef")
    frames = [pd.DataFrame(rows, columns=names) for rows in (*pair, new)]
    model = KernelDPCA().fit(frames[0], background=frames[1][names[::-1]])
    assert model.transform(frames[2]) == pytest.approx(plain, rel=1e-12)
    assert list(model.get_feature_names_out()) == ["kerneldpca0", "kerneldpca1"]


def test_the_score_is_the_likelihood_gain_of_held_out_scores():
    target, background, _ = rings(300, 0)
    new_target, new_background, _ = rings(300, 1)
    model = KernelDPCA(kernel="poly").fit(target, background=background)
    variances = [np.var(model.transform(rows), axis=0, ddof=1) for rows in (new_target, new_background)]
    freedom = len(new_background) - 1
    ratios, claimed = variances[0] / variances[1] * (freedom - 2) / freedom, model.debiased_ratios_
    expected = np.sum(ratios * (1 - 1 / claimed) - np.log(claimed)) / 2
    assert model.score(new_target, background=new_background) == pytest.approx(expected, rel=1e-9)
    assert expected > 1
    assert model.score(new_background, background=new_background) < 0


def test_a_model_survives_pickling_and_has_a_summary(pair, new):
    model = KernelDPCA(n_landmarks=30).fit(
        pair[0], background=pair[1], groups=np.arange(60) // 4, background_groups=np.arange(len(pair[1]))
    )
    assert np.array_equal(pickle.loads(pickle.dumps(model)).transform(new), model.transform(new))
    summary = str(model.summary())
    for word in (
        "kernel dPCA: 2 components over 30 landmarks",
        "rbf, gamma",
        "15 independent units",
        "held_out_ratio(",
    ):
        assert word in summary
    assert f"{model.ratios_[0]:.4g}" in summary and f"shrunk by {model.shrinkage_:.3g}" in summary
    assert "kernel PCA" in KernelDPCA().fit(pair[0]).summary()


@pytest.mark.parametrize("name", ["components_", "patterns_", "top_features", "inverse_transform", "partial_fit"])
def test_methods_without_meaning_for_a_kernel_are_absent(pair, name, remedy):
    model = KernelDPCA().fit(pair[0], background=pair[1])
    assert not hasattr(model, name) and not hasattr(KernelDPCA, name)
    with pytest.raises(AttributeError, match=f"KernelDPCA has no {name}") as error:
        getattr(model, name)
    assert str(error.value).endswith(".")


PARAMETERS = [
    *[("kernel", value, "'rbf'") for value in ("sigmoid", None, 3)],
    *[("gamma", value, "positive") for value in (0, -1.0, "scale", None, np.nan, True)],
    *[("degree", value, "whole number") for value in (0, 2.5, "two")],
    *[("coef0", value, "not negative") for value in (-1, None, np.inf)],
    *[("n_landmarks", value, "whole number") for value in (0, 10.0, "all")],
    *[("n_components", value, "whole number") for value in (0, "all", 1.5)],
    *[("shrinkage", value, "") for value in (-1, 2, "lw", None, 0, 0.0)],
    *[("mix", value, "") for value in ("maximin", [1, 2])],
    *[("standardize", value, "True, False") for value in (None, "yes", 1)],
    ("random_state", "seed", "whole number"),
]


@pytest.mark.parametrize(("name", "value", "possible"), PARAMETERS)
def test_a_bad_parameter_raises_an_error_with_the_allowed_values(pair, name, value, possible, refused):
    refused(lambda: KernelDPCA(**{name: value}).fit(pair[0], background=pair[1]), name, possible)


def test_the_exact_problem_is_an_error_for_an_infinite_dimensional_kernel(pair, refused):
    target, background = pair

    def fitted(**options):
        return KernelDPCA(**options).fit(target, background=background)

    refused(lambda: fitted(shrinkage=None), "shrinkage=None", "infinite ratio", "shrinkage='auto'")
    refused(lambda: fitted(kernel="poly", degree=9, shrinkage=0), "shrinkage=0", "infinite ratio")
    refused(lambda: fitted(kernel="linear", n_components=7), "n_components=7", "6 dimensions")
    few = background[:5]
    call = KernelDPCA(kernel="linear", shrinkage=None)
    refused(lambda: call.fit(target, background=few), "5 rows", kind=NotEnoughRowsError)


def test_errors_name_the_dataset_with_bad_data(pair, new, refused):
    target, background = pair
    spoiled = background.copy()
    spoiled[3, 2] = np.nan
    refused(lambda: KernelDPCA().fit(target, background=spoiled), "background: 1 NaN", kind=NonFiniteError)
    refused(lambda: KernelDPCA(n_landmarks=9).fit(spoiled, background=target), "target: 1 NaN", kind=NonFiniteError)
    model = KernelDPCA().fit(target, background=background)
    refused(lambda: model.transform(np.where(new > 2, np.inf, new)), "X: 0 NaN and", "inf", kind=NonFiniteError)
    refused(lambda: model.transform(1e200 * new), "overflow")
    refused(lambda: model.transform(new[:, :3]), "3 features", kind=FeatureError)
    refused(lambda: KernelDPCA().fit(np.ones((5, 2)), background=np.ones((5, 2))), "constant")
    refused(lambda: KernelDPCA(gamma=1.0).fit(target, background=np.ones((9, 6))), "background", "constant")
    refused(lambda: KernelDPCA().fit(target[:1], background=background), "n_samples=1", kind=NotEnoughRowsError)


def test_moments_and_invalid_kernels_are_an_error(pair, refused):
    target, background = pair
    moments = Moments.of(background)
    refused(lambda: KernelDPCA().fit(target, background=moments), "background", "rows", kind=RowsNeededError)
    model = KernelDPCA().fit(target, background=background)
    refused(lambda: model.score(target, background=moments), "background", "rows", kind=RowsNeededError)
    refused(lambda: KernelDPCA(kernel=lambda x, _: x).fit(target, background=background), "kernel", "shape")
    negative = KernelDPCA(kernel=lambda x, z: -x @ z.T)
    refused(lambda: negative.fit(target, background=background), "negative eigenvalue")
    large = KernelDPCA(kernel="poly", degree=80, gamma=1.0)
    refused(lambda: large.fit(1e4 * target, background=background), "not finite")


def test_too_many_rows_for_an_exact_kernel_are_an_error_that_suggests_landmarks(refused):
    rows = np.random.default_rng(7).normal(size=(6000, 2))
    refused(lambda: KernelDPCA().fit(rows, background=rows), "12000 rows", "1.2 GB", "n_landmarks=500")


def test_a_failed_fit_leaves_the_model_unchanged(pair, new):
    model = KernelDPCA().fit(pair[0], background=pair[1])
    before = model.transform(new)
    with pytest.raises(InputError):
        model.fit(pair[0][:, :3], background=pair[1])
    assert np.array_equal(model.transform(new), before)
