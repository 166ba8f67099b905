"""Paths: subspaces along alpha and shrinkage, their clusters, and the trace ratio."""

import numpy as np
import pytest
from scipy import linalg
from sklearn.decomposition import PCA

from conftest import NAMES, OneShot
from helpers import (
    OptionalPackage,
    covariance,
    few_rows,
    quiet,
    readme_toy,
    same_subspace,
    sample_pair,
    top_of,
)
from standout._cpca import CPCA, path
from standout._dpca import DPCA
from standout._moments import Moments
from standout.errors import NotEnoughRowsError, ShrinkageWarning, StructuralWarning
from standout.solvers.contrastive import subspace_similarity

pd = OptionalPackage("pandas")
contrastive = OptionalPackage("contrastive")

pytestmark = quiet


def pair(seed=0, m=900, n=1000, size=8):
    return sample_pair(np.random.default_rng(seed), m, n, size)


def angle_between(one, other):
    return np.sin(linalg.subspace_angles(one.T, other.T)).max()


# --- over alpha -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_step_over_alpha_is_cpca(count, wide):
    target, background = few_rows() if wide else pair()
    found = path(target, background, values=[0, 0.5, 3.0, 40.0], n_components=count, n_representatives=2)
    assert found.components.shape == (4, count, target.shape[1]) and found.over == "alpha"
    for alpha, components in zip(found.values, found.components, strict=True):
        model = CPCA(count, alpha=alpha).fit(target, background=background)
        np.testing.assert_allclose(components, model.components_, atol=1e-12)


def test_the_natural_grid_goes_from_pca_to_the_largest_ratio():
    target, background = pair()
    found = path(target, background)
    top = DPCA(1).fit(target, background=background).ratios_[0]
    assert len(found.values) == 41 and found.values[0] == 0
    np.testing.assert_allclose(found.values[-1], top)
    np.testing.assert_allclose(np.diff(np.log(found.values[1:])), np.log(1000) / 39)
    # Where it ends no direction has more target than alpha times background.
    values = linalg.eigvalsh(covariance(target) - found.values[-1] * covariance(background))
    assert abs(values[-1]) < 1e-9 * values.max(initial=1.0)


@pytest.mark.parametrize("kind", ["constant", "few rows"])
def test_the_natural_grid_ends_at_the_shrunk_ratio_if_the_exact_one_is_meaningless(kind):
    target, background = few_rows() if kind == "few rows" else pair()
    if kind == "constant":
        background[:, 3] = 1.0
        assert np.isinf(DPCA(1).fit(target, background=background).ratios_[0])
    top = DPCA(1, shrinkage="oas").fit(target, background=background).ratios_[0]
    np.testing.assert_allclose(path(target, background).values[-1], top)


def test_named_grids_are_the_published_ones():
    target, background = pair()
    np.testing.assert_allclose(path(target, background, values="abid").values, [0, *np.logspace(-1, 3, 40)])
    np.testing.assert_allclose(path(target, background, values="paper").values, np.logspace(-3, 3, 15))
    np.testing.assert_array_equal(path(target, background, values=[3, 1, 1, 2]).values, [1, 2, 3])


# --- over shrinkage -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["regular", "constant", "twice", "few rows", "centred by the background", "several"])
def test_every_step_over_shrinkage_is_dpca(kind):
    target, background = few_rows() if kind == "few rows" else pair()
    centering = "background" if kind == "centred by the background" else "own"
    if kind == "constant":
        background[:, 3] = 1.0
    if kind == "twice":
        target, background = (np.hstack([rows, rows[:, :2]]) for rows in (target, background))
    if kind == "several":
        background = [background[:400] + 3, background[400:]]
    values = [1e-4, 0.01, 0.3, 1.0] if kind == "few rows" else [0, 1e-4, 0.01, 0.3, 1.0]
    found = path(target, background, over="shrinkage", values=values, centering=centering, n_representatives=2)
    for rho, components in zip(found.values, found.components, strict=True):
        model = DPCA(2, shrinkage=rho, centering=centering).fit(target, background=background)
        assert angle_between(components, model.components_) < 1e-6
        np.testing.assert_allclose(components, model.components_, atol=1e-6)


def test_lanczos_is_accurate_along_shrinkage_from_600_features_on():
    rng = np.random.default_rng(1)
    target, background = rng.normal(size=(900, 620)), rng.normal(size=(900, 620))
    target[:, 0] *= 4
    target[:, 1] *= 3
    found = path(target, background, over="shrinkage", values=[0, 0.1, 0.9], n_representatives=2)
    for rho, components in zip(found.values, found.components, strict=True):
        model = DPCA(2, shrinkage=rho).fit(target, background=background)
        assert angle_between(components, model.components_) < 1e-8


def test_the_end_of_the_shrinkage_path_is_pca_in_background_sd_units():
    target, background = pair()
    sd = background.std(axis=0)
    found = path(target, background, over="shrinkage")
    axes = linalg.eigh(covariance(target / sd))[1][:, ::-1][:, :2].T
    assert angle_between(found.components[-1] * sd, axes) < 1e-9
    assert found.values[0] == 0 and found.values[-1] == 1 and len(found.values) == 41


def test_the_shrinkage_path_starts_above_zero_if_the_exact_problem_has_no_solution():
    target, background = few_rows()
    found = path(target, background, over="shrinkage")
    assert found.values[0] > 0 and np.isfinite(found.components).all()
    with pytest.raises(NotEnoughRowsError):
        path(target, background, over="shrinkage", values=[0, 0.5])


def test_similarity_along_shrinkage_is_invariant_under_rescaling_of_features():
    target, background = pair()
    units = np.geomspace(1e-3, 1e3, 8)
    plain = path(target, background, over="shrinkage")
    other = path(target * units, background * units, over="shrinkage")
    np.testing.assert_allclose(other.similarity, plain.similarity, atol=1e-7)


# --- similarity and representatives -----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_similarity_is_the_product_of_the_cosines_of_the_principal_angles(count):
    target, background = pair()
    found = path(target, background, values=[0, 1.0, 4.0, 9.0], n_components=count)
    for i, one in enumerate(found.components):
        for j, other in enumerate(found.components):
            expected = np.cos(linalg.subspace_angles(one.T, other.T)).prod()
            np.testing.assert_allclose(found.similarity[i, j], expected, atol=1e-9)


@pytest.mark.parametrize("wide", [False, True])
def test_similarity_of_scores_is_that_of_the_projected_rows(wide):
    target, background = few_rows() if wide else pair()
    found = path(target, background, values=[0, 1.0, 4.0, 9.0], affinity="scores", n_components=3)
    centred = target - target.mean(axis=0)
    bases = [np.linalg.qr(centred @ components.T)[0] for components in found.components]
    expected = [[np.linalg.svd(a.T @ b, compute_uv=False).prod() for b in bases] for a in bases]
    np.testing.assert_allclose(found.similarity, expected, atol=1e-9)


@pytest.mark.parametrize("affinity", ["features", "scores"])
def test_similarity_of_few_rows_along_shrinkage_is_that_of_the_components_of_dpca(affinity):
    target, background = few_rows()
    found = path(target, background, over="shrinkage", affinity=affinity)
    metric = np.diag(background.var(axis=0)) if affinity == "features" else covariance(target)
    root = linalg.sqrtm(metric).real
    bases = [linalg.orth(root @ components.T) for components in found.components]
    expected = [[abs(np.linalg.det(one.T @ two)) for two in bases] for one in bases]
    np.testing.assert_allclose(found.similarity, expected, atol=1e-6)


def test_a_subspace_without_scores_has_similarity_zero_to_others():
    bases = np.eye(3)[:, :, None]
    np.testing.assert_array_equal(subspace_similarity(bases, np.diag([1.0, 1.0, 0.0])), np.eye(3))


def test_clusters_are_represented_by_their_medoids_and_the_first_by_pca():
    target, background = pair(size=12)
    found = path(target, background, n_representatives=4)
    assert found.representatives[0] == 0 and (np.diff(found.representatives) > 0).all()
    assert sorted(found.labels[found.representatives]) == sorted(set(found.labels))
    assert (np.diff(np.unique(found.labels, return_index=True)[1]) > 0).all()
    for place in found.representatives[1:]:
        members = np.flatnonzero(found.labels == found.labels[place])
        sums = [found.similarity[i, members].sum() for i in members]
        assert found.similarity[place, members].sum() == pytest.approx(max(sums))
    np.testing.assert_array_equal(found.representative_values, found.values[found.representatives])


@pytest.mark.parametrize("count", [1, 2, 3, 5, 9])
def test_any_number_of_representatives_works_with_any_number_of_steps(count):
    target, background = pair()
    for values in ([0], [0, 2.0], [1.0, 2.0, 4.0], [0, 1.0, 2.0, 3.0, 9.0]):
        found = path(target, background, values=values, n_representatives=count)
        assert 1 <= len(found.representatives) <= min(count, len(values))
        assert 0 <= found.pick < len(values) and found.pick in found.representatives


def test_a_path_is_repeatable_and_needs_only_moments():
    target, background = pair()
    found = path(target, background)
    sources = [
        (target, background),
        (Moments.of(target), Moments.of(background)),
        (OneShot(target), OneShot(background)),
    ]
    for given in sources:
        other = path(*given, random_state=0)
        np.testing.assert_array_equal(other.labels, found.labels)
        np.testing.assert_allclose(other.components, found.components, atol=1e-8)


def test_features_in_common_are_used():
    target, background = pair(size=5)
    frame, other = pd.DataFrame(target, columns=NAMES), pd.DataFrame(background[:, 1:], columns=NAMES[1:])
    found = path(frame, other, features="common", n_components=1)
    assert found.components.shape == (41, 1, 5) and (found.components[..., 0] == 0).all()


def test_the_minimax_mixture_is_used():
    target, background = pair()
    several = [background[:400] * np.linspace(1, 2, 8), background[400:]]
    found = path(target, several, over="shrinkage", values=[0.0, 0.5], mix="minimax")
    model = DPCA(2, shrinkage=None, mix="minimax").fit(target, background=several)
    assert angle_between(found.components[0], model.components_) < 1e-3


# --- the search of CPCA -----------------------------------------------------------------------------------------------


def test_the_pick_is_the_medoid_of_the_largest_cluster_without_alpha_zero():
    target, background = readme_toy(0)
    model = fit(target, background)
    path = model.path_
    sizes = {label: (path.labels == label).sum() for label in set(path.labels) - {path.labels[0]}}
    largest = np.flatnonzero(path.labels == max(sizes, key=sizes.get))
    medoid = largest[np.argmax(path.similarity[np.ix_(largest, largest)].sum(axis=0))]
    assert model.alpha_ == path.values[medoid] and model.alpha_ in path.representative_values
    np.testing.assert_array_equal(path.components[medoid], model.components_)


def test_the_search_separates_groups_that_pca_does_not():
    target, background = readme_toy(0)
    kinds = np.repeat(np.arange(4), 100)
    centres = [np.array([scores[kinds == k].mean(0) for k in range(4)]) for scores in (
        fit(target, background).transform(target), PCA(2).fit_transform(target)
    )]  # fmt: skip
    apart = [min(np.linalg.norm(a - b) for i, a in enumerate(c) for b in c[:i]) for c in centres]
    assert apart[0] > 5 and apart[1] < 5


@pytest.mark.parametrize("seed", range(5))
def test_the_search_picks_the_alphas_of_contrastive_on_its_own_grid_and_affinity(seed):
    target, background = readme_toy(seed)
    _, theirs = contrastive.CPCA(standardize=False).fit_transform(target, background, return_alphas=True)
    model = fit(target, background, grid="abid", affinity="scores")
    np.testing.assert_allclose(model.path_.representative_values, theirs)


# --- the trace ratio ------------------------------------------------------------------------------------------------


def value(basis, target, background):
    return np.trace(basis @ covariance(target) @ basis.T) / np.trace(basis @ covariance(background) @ basis.T)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_trace_ratio_is_a_fixed_point_that_no_other_subspace_beats(count):
    target, background = pair(m=900, n=1000)
    model = fit(target, background, count, alpha="trace_ratio")
    values, vectors = top_of(target, background, model.alpha_, count)
    assert abs(values.sum()) < 1e-11 * np.trace(covariance(target))
    assert same_subspace(model.components_, vectors, 1e-8)
    best = value(model.components_, target, background)
    np.testing.assert_allclose(best, model.alpha_, rtol=1e-12)
    rng = np.random.default_rng(0)
    rivals = [np.linalg.qr(rng.normal(size=(8, count)))[0].T for _ in range(300)]
    near = [np.linalg.qr(model.components_.T + 0.05 * rng.normal(size=(8, count)))[0].T for _ in range(300)]
    dpca = np.linalg.qr(DPCA(count).fit(target, background=background).components_.T)[0].T
    assert max(value(basis, target, background) for basis in [*rivals, *near, dpca]) <= best * (1 + 1e-12)


@pytest.mark.parametrize("rows", [(900, 1000), (300, 40), (12, 15)], ids=["exact", "shrunk", "wide"])
def test_one_component_of_the_trace_ratio_is_dpca(rows):
    target, background = few_rows() if rows == (12, 15) else pair(m=rows[0], n=rows[1])
    model = fit(target, background, 1, alpha="trace_ratio")
    dpca = DPCA(1, shrinkage=None if rows == (900, 1000) else "oas").fit(target, background=background)
    np.testing.assert_allclose(model.components_, dpca.components_, atol=1e-6)
    np.testing.assert_allclose(model.patterns_, dpca.patterns_, atol=1e-6 * np.abs(dpca.patterns_).max())
    np.testing.assert_allclose([model.alpha_, *model.ratios_], [*dpca.ratios_, *dpca.ratios_], rtol=1e-9)
    assert (model.shrinkage_, model.regime_) == (dpca.shrinkage_, dpca.regime_)


def test_the_trace_ratio_is_infinite_in_the_null_space_of_the_background():
    target, background = pair(m=900, n=1000)
    background[:, [1, 4]] = 7.0
    with pytest.warns(StructuralWarning):
        model = fit(target, background, 2, alpha="trace_ratio")
    assert np.isinf(model.alpha_) and np.isinf(model.ratios_).all() and model.regime_ == "structural"
    np.testing.assert_allclose(np.linalg.norm(model.components_[:, [1, 4]], axis=1), 1, atol=1e-9)
    finite = fit(target, background, 3, alpha="trace_ratio")  # a third one has background variance
    assert np.isfinite(finite.alpha_)
    assert abs(top_of(target, background, finite.alpha_, 3)[0].sum()) < 1e-9 * np.trace(covariance(target))


def test_few_background_rows_shrink_the_trace_ratio_with_a_warning():
    target, background = few_rows()
    with pytest.warns(ShrinkageWarning):
        model = fit(target, background, 3, alpha="trace_ratio")
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(3), atol=1e-10)
    np.testing.assert_allclose(model.patterns_ @ model.components_.T, np.eye(3), atol=1e-9)


# --- bad arguments --------------------------------------------------------------------------------------------------


ARGUMENTS = [
    ({"over": "ratio"}, "'shrinkage'"),
    ({"affinity": "angle"}, "'scores'"),
    ({"values": "log"}, "'natural'"),
    ({"values": [-1.0, 2.0]}, "from 0 on"),
    ({"values": [np.nan]}, "from 0 on"),
    ({"values": []}, "numbers from 0 on"),
    ({"values": ["a"]}, "numbers from 0 on"),
    ({"values": [0.5, 1.5], "over": "shrinkage"}, "from 0 to 1"),
    ({"values": "natural", "over": "shrinkage"}, "from 0 to 1"),
    ({"n_components": 0}, "whole number"),
    ({"n_components": None}, "whole number"),
    ({"n_components": 9}, "5 dimensions"),
    ({"n_representatives": 0}, "whole number"),
    ({"mix": "half"}, "'equal'"),
    ({"centering": "mean"}, "'own'"),
    ({"features": "any"}, "'common'"),
    ({"random_state": "x"}, "whole number"),
]


@pytest.mark.parametrize(("arguments", "possible"), ARGUMENTS)
def test_a_bad_argument_raises_an_error_with_the_allowed_values(data, arguments, possible, refused):
    refused(lambda: path(data.target, data.background, **arguments), possible)


def test_a_path_needs_target_and_background(data, refused):
    refused(lambda: path(data.target, None), "background")
    refused(lambda: path(None, data.background), "target")
    refused(lambda: path(data.target[:1], data.background), "n_samples=1")


def fit(target, background, count=2, **parameters):
    return CPCA(count, **parameters).fit(target, background=background)
