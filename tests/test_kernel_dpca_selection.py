"""Kernel dPCA in background units, and what it chooses by held-out rows: gamma, shrinkage, number of components."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import linalg, optimize, special
from simulations.kernels import PROBLEMS, held_out
from simulations.table import repeat
from sklearn.base import clone

from helpers import covariance, quiet, ridge, same_up_to_sign, sample_pair, second_order
from model_files import GOLDEN, sealed, taken_apart
from standout._dataset import Dataset
from standout._kernel_dpca import KernelDPCA, count_above_one, held_out_logs, split
from standout._model_file import load, save
from standout.errors import (
    ConditionWarning,
    DoubtWarning,
    InputError,
    ModelFileError,
    NotEnoughRowsError,
    OverfitWarning,
)

pytestmark = quiet


@pytest.fixture(scope="module")
def pair():
    return sample_pair(np.random.default_rng(0), 60, 80, 6)


@pytest.fixture(scope="module")
def new():
    return np.random.default_rng(1).normal(size=(40, 6))


@pytest.mark.parametrize("problem", PROBLEMS)
def test_background_units_find_held_out_structure_that_nuisance_features_hide(problem):
    raw, standardized = repeat(held_out(problem), 8, 41).mean(axis=0)
    # The generators give figures of the order of the published ones (4.11, 4.40, 4.05, 1.99).
    assert standardized >= PROBLEMS[problem][1]
    assert standardized > raw + 1


@pytest.mark.parametrize(
    "kernel", ["rbf", "poly", "linear", "cosine", lambda x, z: np.exp(-abs(x[:, None] - z).sum(2))]
)
def test_background_units_are_rows_divided_by_the_background_sd(pair, new, kernel):
    sd = pair[1].std(axis=0)
    model = KernelDPCA(kernel=kernel).fit(pair[0], background=pair[1])
    by_hand = KernelDPCA(kernel=kernel, standardize=False).fit(pair[0] / sd, background=pair[1] / sd)
    assert model.scale_ == pytest.approx(sd, rel=1e-14) and np.array_equal(by_hand.scale_, np.ones(6))
    assert model.ratios_ == pytest.approx(by_hand.ratios_, rel=AGREED)
    assert model.transform(new) == pytest.approx(by_hand.transform(new / sd), rel=1e-8, abs=1e-10)
    assert {tuple(row) for row in model.landmarks_} == {tuple(row) for row in np.vstack(pair)}


def test_the_scale_comes_from_the_mixture_or_from_the_target_where_no_background_varies(pair):
    target, background = (rows.copy() for rows in pair)
    background[:, 2], background[:, 3], target[:, 3] = 0.1, 1e3 / 3, 7.0
    parts, weights = [background[:30], background[30:] + 50.0], np.arange(80) % 3
    model = KernelDPCA(mix=[1, 3]).fit(target, background=parts, background_sample_weight=[weights[:30], weights[30:]])
    repeated = [np.repeat(part, count, axis=0) for part, count in zip(parts, (weights[:30], weights[30:]), strict=True)]
    expected = np.sqrt(0.25 * repeated[0].var(axis=0) + 0.75 * repeated[1].var(axis=0))
    expected[2], expected[3] = target[:, 2].std(), 1.0
    assert model.scale_ == pytest.approx(expected, rel=1e-12)
    assert np.array_equal(KernelDPCA().fit(target).scale_, np.ones(6))  # no background, no background units


@pytest.mark.parametrize("shift", [0.0, 2.0])
@pytest.mark.parametrize("coef0", [0.5, 1.0, 3.0])
def test_an_exact_polynomial_component_has_no_constant_part(new, coef0, shift):
    target, background = (rows + shift for rows in sample_pair(np.random.default_rng(2), 300, 400, 3))
    model = KernelDPCA(3, kernel="poly", gamma=0.3, coef0=coef0, standardize=False).fit(target, background=background)
    assert model.regime_ == "exact"
    explicit = [second_order(rows, 0.3, coef0)[:, 1:] for rows in (target, background, new[:, :3])]
    values, vectors = linalg.eigh(*[covariance(rows) for rows in explicit[:2]])
    top = vectors[:, ::-1][:, :3] / np.linalg.norm(vectors[:, ::-1][:, :3], axis=0)
    assert model.ratios_ == pytest.approx(values[::-1][:3], rel=1e-9)
    assert model.target_variance_ == pytest.approx(np.var(explicit[0] @ top, axis=0), rel=1e-8)
    assert same_up_to_sign(model.transform(new[:, :3]).T, ((explicit[2] - explicit[0].mean(axis=0)) @ top).T, 1e-8)


def minimax_raw(target, parts, rho):
    """The smallest largest ratio over shares of two backgrounds, from the definition."""
    C_xx, parts = covariance(target), [covariance(part) for part in parts]
    shrunk = [(1 - rho) * C + rho * np.trace(C) / len(C) * np.eye(len(C)) for C in parts]

    def largest(share):
        return linalg.eigh(C_xx, share * shrunk[0] + (1 - share) * shrunk[1], eigvals_only=True)[-1]

    found = optimize.minimize_scalar(largest, bounds=(0, 1), method="bounded", options={"xatol": 1e-10})
    return found.x, found.fun


@pytest.mark.parametrize("shrinkage", [0.05, "oas", None])
def test_minimax_shares_leave_the_smallest_largest_ratio(shrinkage):
    rng = np.random.default_rng(3)
    target = rng.normal(size=(200, 5)) * np.sqrt([8, 8, 3, 1, 1])
    parts = [rng.normal(size=(300, 5)) * np.sqrt(sd) for sd in ([10, 1, 1, 1, 1], [1, 10, 1, 1, 1])]
    model = KernelDPCA(1, kernel="linear", shrinkage=shrinkage, mix="minimax", standardize=False)
    model.fit(target, background=parts)
    share, ratio = minimax_raw(target, parts, model.shrinkage_)
    assert model.mix_ == pytest.approx([share, 1 - share], abs=1e-4)
    assert model.ratios_[0] == pytest.approx(ratio, rel=1e-6)
    # Against the second background alone, the first axis would stand out, which the first background shares.
    assert ratio < clone(model).set_params(mix=[0, 1]).fit(target, background=parts).ratios_[0] / 1.5


def test_minimax_finds_a_function_specific_to_the_target_against_each_background():
    rng = np.random.default_rng(4)

    def ring(radius):
        angle = rng.uniform(0, 2 * np.pi, len(radius))
        return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])

    def rows(first, second, spread):
        columns = np.hstack([ring(first), 4 * ring(second), spread * rng.normal(size=(len(first), 1))])
        return columns + 0.1 * rng.normal(size=columns.shape)

    two, one = rng.choice([0.5, 1.5], (3, 150)), np.ones(150)
    target = rows(two[0], two[1], 0.4)
    parts = [rows(one, two[2], 0.1), rows(rng.choice([0.5, 1.5], 150), one, 0.1)]
    shares = {mix: KernelDPCA(1, mix=mix).fit(target, background=parts) for mix in ("minimax", "equal")}
    worst = {
        mix: max(np.var(model.transform(part)) for part in parts) / np.var(model.transform(target))
        for mix, model in shares.items()
    }
    assert shares["minimax"].mix_.sum() == pytest.approx(1) and shares["minimax"].mix_.min() > 0
    assert shares["minimax"].ratios_[0] <= shares["equal"].ratios_[0] * (1 + 1e-9)
    assert worst["minimax"] < worst["equal"] * 1.05


def test_held_out_log_ratios_follow_their_definition(pair):
    target, background = pair
    data = [Dataset.of(role, rows) for role, rows in zip(("target", "background"), pair, strict=True)]
    folds = split(data, 0)
    assert [len(held) for held in folds[0]] == [12, 16]
    for own in range(2):
        assert sorted(np.concatenate([fold[own] for fold in folds])) == list(range(len(pair[own])))
    estimator = KernelDPCA(2, kernel="linear", shrinkage=0.1, standardize=False)
    options = estimator._check_parameters()
    found = held_out_logs(lambda parts: estimator._selected(parts, options), data, folds)
    for logs, (x, y) in zip(found, folds, strict=True):
        _, vectors = ridge(np.delete(target, x, axis=0), np.delete(background, y, axis=0), 0.1, 2)
        variances = [np.var(rows @ vectors, axis=0, ddof=1) for rows in (target[x], background[y])]
        bias = [special.digamma(free / 2) - np.log(free / 2) for free in (11, 15)]
        assert logs == pytest.approx(np.log(variances[0] / variances[1]) - (bias[0] - bias[1]), rel=1e-8)


def test_folds_keep_groups_together_also_across_datasets():
    rows = np.random.default_rng(5).normal(size=(60, 2))
    groups = [np.repeat(list("abcdefghijkl"), 5), np.repeat(list("ghijklmnop"), 6)]
    data = [Dataset.of(role, rows, groups=own) for role, own in zip(("target", "background"), groups, strict=True)]
    folds = split(data, 1)
    assert len(folds) == 5
    seen = {}
    for number, fold in enumerate(folds):
        for own, held in zip(groups, fold, strict=True):
            assert len(set(own[held])) >= 2
            for name in set(own[held]):
                assert seen.setdefault(name, number) == number
    with pytest.raises(NotEnoughRowsError, match="3 independent units"):
        split([data[0], replace(data[1], groups=np.repeat(list("xyz"), 20))], 1)


def waves(rng, n):
    """A narrow wave in the background; the same two features, unrelated, in the target."""
    x, w = rng.uniform(-5, 5, (2, n)), rng.uniform(-5, 5, n)
    return [np.column_stack([own, np.sin(3 * of) + 0.1 * rng.normal(size=n)]) for own, of in ((w, x[0]), (x[1], x[1]))]


def test_cross_validated_gamma_improves_on_a_median_that_is_too_wide():
    gains = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        (target, background), (new_target, new_background) = waves(rng, 150), waves(rng, 400)
        models = KernelDPCA(), KernelDPCA(gamma="cv")
        median, chosen = (
            model.fit(target, background=background).score(new_target, background=new_background) for model in models
        )
        assert models[1].gamma_ / models[0].gamma_ in (4.0, 16.0)
        gains.append(chosen - median)
    assert np.mean(gains) > 0.5


def test_cross_validated_shrinkage_is_close_to_the_best_fixed_value():
    target, background = PROBLEMS["variance"][0](np.random.default_rng(6), 150)
    new_target, new_background = PROBLEMS["variance"][0](np.random.default_rng(7), 500)

    def score(shrinkage):
        model = KernelDPCA(shrinkage=shrinkage).fit(target, background=background)
        return model.score(new_target, background=new_background), model.shrinkage_

    (chosen, rho), (usual, formula) = score("cv"), score("auto")
    assert rho in (formula, 0.001, 0.01, 0.1, 0.5)
    best = max(score(value)[0] for value in (0.001, 0.01, 0.1, 0.5))
    assert chosen > max(best, usual) - 0.5


def test_refitting_with_the_chosen_values_gives_the_same_model(pair, new):
    chosen = KernelDPCA(gamma="cv", shrinkage="cv").fit(pair[0], background=pair[1])
    fixed = KernelDPCA(gamma=chosen.gamma_, shrinkage=chosen.shrinkage_).fit(pair[0], background=pair[1])
    assert fixed.transform(new) == pytest.approx(chosen.transform(new), rel=1e-9)
    again = clone(chosen).fit(pair[0], background=pair[1])
    assert np.array_equal(again.transform(new), chosen.transform(new))


def test_the_number_of_components_is_found_on_held_out_rows():
    target, background = PROBLEMS["rings"][0](np.random.default_rng(8), 150)
    model = KernelDPCA("auto").fit(target, background=background)
    assert 1 <= model.n_components_ <= 10 and model.transform(target).shape == (150, model.n_components_)
    counts = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        noise, other = rng.normal(size=(60, 3)), rng.normal(size=(50, 3))
        counts.append(KernelDPCA("auto").fit(noise, background=other).n_components_)
    assert np.mean(np.array(counts) > 0) <= 0.1


def test_a_component_without_background_variance_is_counted():
    rng = np.random.default_rng(12)
    target, background = rng.normal(size=(100, 3)), rng.normal(size=(120, 3)) * [1, 1, 0]
    model = KernelDPCA("auto", kernel="linear", shrinkage=None).fit(target, background=background)
    assert model.n_components_ == 1 and np.isinf(model.ratios_[0])


def test_folds_without_a_ratio_are_left_out_with_a_message():
    data = [Dataset.of(role, np.zeros((50, 1))) for role in ("target", "background")]
    folds = split(data, 0)
    values = np.zeros((2, 50, 1))
    for fold in folds[:2]:  # the others hold out zeros only
        for own, held in zip(values, fold, strict=True):
            own[held, 0] = np.random.default_rng(0).normal(size=len(held))
    data = [Dataset.of(role, own) for role, own in zip(("target", "background"), values, strict=True)]
    estimator = KernelDPCA(1, kernel="linear", standardize=False)

    def fit(parts):
        return estimator._selected(parts, estimator._check_parameters())

    assert np.isnan(held_out_logs(fit, data, folds)[:, 0]).tolist() == [False, False, True, True, True]
    count, (note,) = count_above_one(fit, data, 0)
    assert count == 0 and "in 3 of 5 folds, which are left out" in note


@pytest.mark.parametrize(("rows", "n_components"), [(4, 2), (6, 5), (6, None)])
def test_the_choice_of_gamma_uses_at_most_as_many_components_as_a_fold_has(pair, rows, n_components, refused):
    model = KernelDPCA(n_components, gamma="cv").fit(pair[0][:rows], background=pair[1])
    assert model.n_components_ == (n_components or rows - 1)
    refused(
        lambda: KernelDPCA(rows, gamma="cv").fit(pair[0][:rows], background=pair[1]),
        f"n_components={rows}", f"n_samples={rows}", f"at most {rows - 1}",
    )  # fmt: skip


def test_the_choice_uses_at_most_n_components(pair):
    data = [Dataset.of(role, rows) for role, rows in zip(("target", "background"), pair, strict=True)]
    estimator = KernelDPCA(1, gamma="cv")
    folds, options = split(data, 0), estimator._check_parameters()
    values = [
        held_out_logs(lambda part, f=factor: estimator._solved_for(part, options, f), data, folds).mean()
        for factor in (1.0, 1 / 16, 1 / 4, 4.0, 16.0)
    ]
    chosen = estimator.fit(pair[0], background=pair[1]).gamma_ / KernelDPCA().fit(pair[0], background=pair[1]).gamma_
    assert chosen == (1.0, 1 / 16, 1 / 4, 4.0, 16.0)[int(np.argmax(values))]


def test_replicates_are_not_counted_as_rows():
    rng = np.random.default_rng(9)
    target, background = (np.repeat(rng.normal(size=(n, 4)), 8, axis=0) for n in (18, 12))
    target, background = (rows + 0.3 * rng.normal(size=rows.shape) for rows in (target, background))
    by_rows = KernelDPCA("auto").fit(target, background=background)
    by_groups = clone(by_rows).fit(
        target, background=background, groups=np.arange(144) // 8, background_groups=100 + np.arange(96) // 8
    )
    assert by_rows.n_components_ > 0 and by_groups.n_components_ == 0


def test_groups_of_independent_rows_do_not_turn_noise_into_components():
    counts = []
    for seed in range(20):
        target, background = np.random.default_rng(seed).normal(size=(2, 150, 3))
        model = KernelDPCA("auto", kernel="linear")
        model.fit(target, background=background, groups=np.arange(150) // 15, background_groups=1000 + np.arange(150))
        counts.append(model.n_components_)
    assert np.mean(np.array(counts) > 0) <= 0.1


def test_pure_noise_has_no_components_and_gives_a_warning(tmp_path):
    rng = np.random.default_rng(10)
    rows = rng.normal(size=(100, 3))
    with pytest.warns(OverfitWarning, match="no component has a held-out ratio above one"):
        model = KernelDPCA("auto", gamma="cv").fit(rows[:50], background=rows[50:])
    assert model.n_components_ == 0 and model.transform(rows).shape == (100, 0)
    assert "held-out ratio" in model.summary()
    assert load(save(model, tmp_path / "m")).transform(rows).shape == (100, 0)


@pytest.mark.parametrize("options", [{"n_components": "auto"}, {"gamma": "cv"}, {"shrinkage": "cv"}])
def test_choices_by_cross_validation_need_a_background_and_enough_rows(pair, options, refused):
    model, name = KernelDPCA(**options), next(iter(options))
    refused(lambda: model.fit(pair[0]), name, "there is none")
    refused(lambda: model.fit(pair[0], background=pair[1][:3]), "3 independent", "each fold", kind=NotEnoughRowsError)


def test_a_kernel_so_wide_that_all_rows_are_alike_is_not_called_narrow(pair):
    with warnings.catch_warnings():
        warnings.simplefilter("error", OverfitWarning)
        KernelDPCA(1, gamma=1e-12).fit(pair[0], background=pair[1])


def test_groups_that_target_and_background_share_can_be_split_twice():
    rng = np.random.default_rng(0)
    target, background = rng.normal(size=(150, 5)), rng.normal(size=(120, 5))
    model = KernelDPCA("auto", gamma="cv", random_state=0)
    model.fit(target, background=background, groups=np.arange(150) // 10, background_groups=np.arange(120) // 10)
    assert model.gamma_ > 0


def test_a_kernel_that_is_too_narrow_is_warned_of(pair):
    with pytest.warns(OverfitWarning, match="nearly the identity.*gamma='cv'"):
        KernelDPCA(gamma=20.0).fit(np.repeat(pair[0], 2, axis=0), background=pair[1])
    with pytest.warns(OverfitWarning, match="nearly the identity.*wider kernel"):
        KernelDPCA(kernel=lambda x, z: 5.0 * (np.abs(x[:, None] - z).sum(axis=2) < 0.1)).fit(
            *pair[:1], background=pair[1]
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error", OverfitWarning)
        KernelDPCA().fit(pair[0], background=pair[1])
        wide = np.random.default_rng(11).normal(size=(40, 3000))  # orthogonal rows, and a kernel without a width
        KernelDPCA(kernel="linear").fit(wide[:20], background=wide[20:])


def test_a_kernel_that_is_far_too_narrow_still_gives_finite_results(pair):
    model = KernelDPCA(gamma=100.0).fit(pair[0], background=pair[1])
    assert np.isfinite(model.ratios_).all() and np.isfinite(model.transform(pair[0])).all()


def kernel_messages():
    """Fits that fail or warn for a reason in the kernel's space."""
    target, background = sample_pair(np.random.default_rng(0), 200, 250, 6)
    ones = np.ones((9, 3))
    yield "too many components", {"n_components": 28, "kernel": "poly", "shrinkage": None}, target, background
    yield "too many components, kernel PCA", {"n_components": 28, "kernel": "poly"}, target, None
    yield "nothing varies, kernel PCA", {"kernel": "linear"}, ones, None
    yield "all rows alike to the kernel", {"gamma": 1e-30}, target, None
    yield "few rows", {"kernel": "linear", "shrinkage": None}, target, background[:5]
    yield "hardly enough rows", {"kernel": "poly", "shrinkage": None}, target, background[:40]
    yield "noise", {"kernel": "linear", "shrinkage": None}, background, background[::-1]
    yield "units far apart", {"kernel": "linear", "shrinkage": None, "standardize": False}, 1e140 * target, background
    yield "tiny", {"kernel": "linear", "standardize": False}, 1e-160 * target, 1e-160 * background
    yield "huge", {"kernel": "poly", "degree": 9, "standardize": False, "gamma": 1.0}, 1e12 * target, 1e12 * background


@pytest.mark.parametrize("case", list(kernel_messages()), ids=lambda case: case[0])
def test_messages_distinguish_kernel_dimensions_from_features(case, remedy):
    _, options, target, background = case
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            KernelDPCA(**options).fit(target, background=background)
            ignored = (ConditionWarning, DoubtWarning)
            found = [str(warning.message) for warning in caught if not issubclass(warning.category, ignored)]
        except InputError as error:
            found = [str(error)]
    assert len(found) == 1
    remedy(found[0])
    for wrong in ("features:", "(feature ", "n_features", "fewer features", "1 features"):
        assert wrong not in found[0]


def test_a_model_file_keeps_the_scale_and_format_1_has_none(pair, new, tmp_path):
    model = KernelDPCA(n_landmarks=30).fit(pair[0] * 10.0 ** np.arange(6), background=pair[1] * 10.0 ** np.arange(6))
    again = load(save(model, tmp_path / "m"))
    assert np.array_equal(again.scale_, model.scale_) and np.array_equal(again.transform(new), model.transform(new))
    assert "background sd" in again.summary()
    old = load(GOLDEN / "kernel.standout")
    assert np.array_equal(old.scale_, np.ones(4)) and "background sd" not in str(old.summary()).split("component ")[0]


@pytest.mark.parametrize("spoil", [0.0, -1.0, np.nan, np.inf])
def test_a_model_file_with_an_impossible_scale_is_an_error(pair, tmp_path, spoil):
    path = save(KernelDPCA(n_landmarks=30).fit(pair[0], background=pair[1]), tmp_path / "m")
    head, members = taken_apart(path)
    name = next(name for name in members if "scale" in name and "landmarks" in name)
    raw = bytearray(members[name])
    raw[-8:] = np.float64(spoil).tobytes()
    path.write_bytes(sealed(head, {**members, name: bytes(raw)}))
    with pytest.raises(ModelFileError, match="damaged"):
        load(path)


# Scores rest on the inverse root of the landmarks' kernel matrix, which rounding disturbs by ε times its condition:
# about 1e-16·1e5 here.
AGREED = 1e-10
