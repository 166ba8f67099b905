"""Bugs that a reader found: each has its test here, with the case that showed it."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.decomposition import PCA

from standout._dataset import Mixture
from standout._dpca import DPCA
from standout._moments import Counts, Moments
from standout.errors import ConditionWarning, FeatureError, InputError, StructuralWarning

IGNORE = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")
RNG = np.random.default_rng(0)
T, A, B = RNG.normal(size=(200, 4)) * [3, 1, 1, 1], RNG.normal(size=(150, 4)), RNG.normal(size=(90, 4)) * [9, 1, 1, 1]


@IGNORE
@pytest.mark.parametrize("n", [300, 1000, 3000])
def test_constants_that_are_not_zero_are_constants_on_wide_data_too(n):
    rng = np.random.default_rng(n)
    target, background = rng.normal(size=(100, n + 300)), rng.normal(size=(n, n + 300))
    background[:, :40] = 10 * rng.normal(size=40)
    target[:, 5] = background[:, 5] = 0.1
    some = slice(0, 400) if n == 3000 else slice(None)  # the dense side of a smaller problem is enough
    wide = DPCA().fit(target[:, some], background=background[:, some])
    dense = DPCA(solver="dense").fit(target[:, some], background=background[:, some])
    np.testing.assert_allclose(wide.ratios_, dense.ratios_, rtol=1e-8)
    span = DPCA(solver="span", shrinkage=0.5).fit(target[:, some], background=background[:, some])
    half = DPCA(solver="dense", shrinkage=0.5).fit(target[:, some], background=background[:, some])
    np.testing.assert_allclose(span.ratios_, half.ratios_, rtol=1e-8)
    assert (span.components_[:, 5] == 0).all()


@IGNORE
def test_shares_go_by_name_whatever_comes_first():
    whole = DPCA(mix={"a": 0.9, "b": 0.1}).fit(T, background={"a": A, "b": B})
    np.testing.assert_allclose(whole.ratios_, DPCA(mix=[0.9, 0.1]).fit(T, background=[A, B]).ratios_)
    batches = DPCA(mix={"a": 0.9, "b": 0.1}).partial_fit(T, background={"b": B}).partial_fit(background={"a": A})
    np.testing.assert_allclose(batches.ratios_, whole.ratios_, rtol=1e-10)
    with pytest.raises(InputError, match="mix as a dict"):
        DPCA(mix=[0.9, 0.1]).partial_fit(T, background={"b": B}).partial_fit(background={"a": A})
    with pytest.raises(InputError, match="shares for"):
        DPCA(mix={"a": 1, "c": 1}).fit(T, background={"a": A, "b": B})
    one, other = (whole.score(T, background=both) for both in ({"a": A, "b": B}, {"b": B, "a": A}))
    assert one == pytest.approx(other)
    with pytest.raises(InputError, match="same backgrounds"):
        whole.score(T, background=A)


@IGNORE
def test_labelled_backgrounds_keep_their_order_over_batches():
    X, y = np.vstack([T, A, B]), np.repeat(["t", "c", "d"], [200, 150, 90])
    whole = DPCA(mix=[0.1, 0.9], background_label=["c", "d"]).fit(X, y)
    batches = DPCA(mix=[0.1, 0.9], background_label=np.array(["c", "d"]))
    for label in "dtc":
        batches.partial_fit(X[y == label], y[y == label])
    np.testing.assert_allclose(batches.ratios_, whole.ratios_, rtol=1e-10)


def test_a_label_that_never_came_is_not_pca():
    model = DPCA(background_label="C").partial_fit(T, ["c"] * 100 + ["t"] * 100)
    with pytest.raises(InputError, match="no row with background_label='C'"):
        _ = model.ratios_


@IGNORE
def test_rows_that_hardly_weigh_are_no_evidence():
    rng = np.random.default_rng(1)
    target, background = rng.normal(size=(200, 50)), rng.normal(size=(3000, 50))
    weights = np.r_[np.ones(60), np.full(2940, 1e-9)]
    light = DPCA().fit(target, background=background, background_sample_weight=weights)
    assert light.regime_ == "shrunk"
    np.testing.assert_allclose(light.ratios_, DPCA().fit(target, background=background[:60]).ratios_, rtol=1e-3)
    lopsided = DPCA(mix=[0.999, 0.001]).fit(target, background=[background[:60], background])
    assert lopsided.regime_ == "shrunk"


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_rows_without_a_label_are_refused(missing):
    y = np.array(["c"] * 100 + ["t"] * 99 + [missing], dtype=object)
    with pytest.raises(InputError, match="1 of 200 rows have no label"):
        DPCA(background_label="c").fit(T, y)


@IGNORE
def test_one_varying_background_feature_is_never_shrunk_to_nonsense():
    rng = np.random.default_rng(2)
    for _ in range(40):
        for solver in ("auto", "gsvd", "span"):
            model = DPCA(1, solver=solver).fit(rng.normal(size=(5, 1)), background=rng.normal(size=(3, 1)))
            assert 0 <= model.shrinkage_ <= 1
        background = np.ones((2, 4))
        background[:, 0] = rng.normal(size=2)
        assert np.isfinite(DPCA(1).fit(rng.normal(size=(9, 4)), background=background).ratios_).all()


def test_columns_labelled_by_numbers_must_agree():
    frame = pd.DataFrame(A)
    with pytest.raises(FeatureError, match="not matched"):
        DPCA().fit(pd.DataFrame(T), background=frame[[3, 2, 1, 0]])


@IGNORE
def test_hardly_any_shrinkage_is_as_accurate_as_none_or_says_so():
    rng = np.random.default_rng(3)
    target, background = rng.normal(size=(60, 30)), rng.normal(size=(20, 30))
    by_rows = DPCA(1, shrinkage=1e-13).fit(target, background=background)
    assert by_rows.solver_ == "gsvd"
    with pytest.warns(ConditionWarning):
        DPCA(1, shrinkage=1e-9).fit(Moments.of(target), background=Moments.of(background))


def test_extreme_weights_are_refused_and_heavy_ones_cost_no_digits():
    for bad in (1e-170, 1e160):
        with pytest.raises(InputError, match="too far for sums"):
            DPCA().fit(T, sample_weight=np.full(200, bad))
    rng = np.random.default_rng(4)
    rows, weights = rng.normal(size=(5000, 3)) + 1e3, np.ones(5000)
    weights[777] = 1e15
    moments = Moments.of(rows, weights=weights)
    centred = rows - rows[777]
    np.testing.assert_allclose(moments.scatter, (centred.T * weights) @ centred, rtol=1e-6)


@IGNORE
def test_common_features_may_be_all_of_them_and_the_rest_is_not_looked_at():
    frame, other = pd.DataFrame(T, columns=list("abcd")), pd.DataFrame(A, columns=list("abcd"))
    model = DPCA(features="common").fit(frame, background=other)
    with pytest.raises(FeatureError, match="missing: 'd'"):
        model.score(frame, background=other[list("abc")])
    part = DPCA(features="common").fit(frame.assign(d=np.nan), background=other[list("abc")])
    assert np.isfinite(part.transform(frame.assign(d=np.nan))).all()


@IGNORE
def test_kinds_of_background_that_look_like_something_else():
    expected = DPCA().fit(T, background=A).ratios_
    np.testing.assert_allclose(DPCA().fit(T, background=sparse.dok_array(A)).ratios_, expected, rtol=1e-10)
    frame = pd.DataFrame(A).astype(pd.SparseDtype(float))
    np.testing.assert_allclose(DPCA().fit(T, background=frame).ratios_, expected, rtol=1e-10)


@IGNORE
def test_the_backgrounds_mean_adds_a_dimension():
    rng = np.random.default_rng(5)
    model = DPCA(2, centering="background").fit(rng.normal(size=(2, 5)), background=rng.normal(size=(100, 5)))
    assert model.ratios_[1] > 0


def test_more_principal_components_than_rank_are_refused():
    flat = T[:, :2] @ np.random.default_rng(6).normal(size=(2, 6))
    with pytest.raises(InputError, match="only 2 dimensions"):
        DPCA(3).fit(flat)
    assert DPCA(None).fit(flat).n_components_ == 2
    assert "joint rank 4" in DPCA(2).fit(T).summary()


def test_infinite_ratios_come_by_target_variance_as_a_pca_inside_them():
    rng = np.random.default_rng(7)
    target, background = rng.normal(size=(400, 6)) * [1, 5, 1, 2, 1, 9], rng.normal(size=(900, 6))
    background[:, [1, 3, 5]] = 4.0
    with pytest.warns(StructuralWarning, match="3 ratios are infinite: the features 1, 3, 5 are constant"):
        model = DPCA(3, shrinkage=None).fit(target, background=background)
    inside = PCA(3).fit(target[:, [1, 3, 5]])
    np.testing.assert_allclose(np.abs(model.components_[:, [1, 3, 5]]), np.abs(inside.components_), atol=1e-8)
    with pytest.warns(StructuralWarning, match="relation between 0, 1,|relation between 1, 0,"):
        DPCA().fit(target, background=np.c_[rng.normal(size=(900, 1)).repeat(2, axis=1), rng.normal(size=(900, 4))])


def test_the_worth_of_a_mixture_is_that_of_its_shares():
    counts = [Counts(101, 101.0, 51.0, 11.0), Counts(301, 301.0, 301.0, 301.0)]
    mixture = Mixture.of(counts, [0.5, 0.5])
    assert mixture.rows == 400
    assert mixture.effective == pytest.approx(1 / (0.25 / 50 + 0.25 / 300))
    assert mixture.units == pytest.approx(1 + 1 / (0.25 / 10 + 0.25 / 300))
    pooled = Mixture.of([Counts(100, 100.0, 100.0, 100.0)] * 3, "pooled")
    assert pooled.units == pytest.approx(1 + 297)


def test_fitted_attributes_cannot_be_set_and_moments_can_be_summed():
    model = DPCA().fit(T)
    with pytest.raises(AttributeError, match="Fit again"):
        model.ratios_ = 3
    parts = sum([Moments.of(A[:50]), Moments.of(A[50:90]), Moments.of(A[90:])])
    np.testing.assert_allclose(parts.scatter, Moments.of(A).scatter, rtol=1e-12)


def test_labels_that_a_source_brings_are_used():
    source = standout_source()
    model = DPCA(background_label="c").fit(source)
    np.testing.assert_allclose(model.ratios_, DPCA().fit(T, background=A).ratios_, rtol=1e-10)


def standout_source():
    from standout.io.read import read

    source = read(np.vstack([T, A]))
    source.labels = np.repeat(["t", "c"], [200, 150])
    return source


@IGNORE
def test_warnings_point_at_the_users_line():
    with pytest.warns(UserWarning, match="background rows") as caught:
        DPCA().fit_transform(T, background=A[:20])
    assert {warning.filename for warning in caught} == {__file__}


def _largest(target, backgrounds, shares, rho):
    """The largest ratio against a mixture shrunk toward its own diagonal, by definition."""
    from scipy import linalg

    cyy = sum(share * np.cov(part.T, ddof=0) for share, part in zip(shares, backgrounds, strict=True))
    return linalg.eigvalsh(np.cov(target.T, ddof=0), (1 - rho) * cyy + rho * np.diag(np.diag(cyy)))[-1]


@IGNORE
@pytest.mark.parametrize("shrinkage", [None, 0.5, 0.9, "auto", "oas"])
def test_minimax_is_minimax_for_the_problem_that_is_solved(shrinkage):
    rng = np.random.default_rng(8)
    target = rng.normal(size=(300, 6))
    backgrounds = [rng.normal(size=(60, 6)) * rng.uniform(0.3, 10, size=6) for _ in range(2)]
    model = DPCA(1, mix="minimax", shrinkage=shrinkage).fit(target, background=backgrounds)
    grid = [(share, 1 - share) for share in np.linspace(0, 1, 401)]
    best = min(_largest(target, backgrounds, shares, model.shrinkage_) for shares in grid)
    assert model.ratios_[0] <= best * (1 + 1e-9)
    assert model.ratios_[0] == pytest.approx(_largest(target, backgrounds, model.mix_, model.shrinkage_), rel=1e-8)


@IGNORE
def test_minimax_takes_features_that_stand_twice_and_refuses_what_is_not_linear():
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


@IGNORE
def test_a_target_with_less_variance_than_its_background_has_no_signal():
    rng = np.random.default_rng(3)
    target, background = rng.normal(size=(20, 60)) * 0.1, rng.normal(size=(25, 60))
    model = DPCA(2, axes="signal").fit(target, background=background)
    assert model.n_components_ == 0 and (model.denoise(target) == 0).all()
    target[:, 0] *= 100
    one = DPCA(2, axes="signal").fit(target, background=background)
    assert np.isfinite(one.patterns_).all() and np.isfinite(one.ratios_).all()
    np.testing.assert_allclose(one.components_ @ one.patterns_.T, np.eye(one.n_components_), atol=1e-8)


@IGNORE
def test_denoising_does_not_depend_on_how_the_fit_was_made():
    rng = np.random.default_rng(10)
    target, background = rng.normal(size=(300, 8)) * [5, 4, 1, 1, 1, 1, 1, 1], rng.normal(size=(900, 8))
    expected = DPCA(1, axes="signal").fit(target, background=background).denoise(target)
    by_rows = DPCA(1, solver="gsvd").fit(target, background=background)
    np.testing.assert_allclose(by_rows.denoise(target), expected, atol=1e-8)
    changed = DPCA(1).fit(target, background=background).set_params(shrinkage=0.9)
    np.testing.assert_allclose(changed.denoise(target), expected, atol=1e-8)
    basis = rng.normal(size=(5, 150))
    wide = (rng.normal(size=(30, 5)) * [1, 1, 1, 4, 6]) @ basis, rng.normal(size=(80, 5)) @ basis
    shown = DPCA(1).fit(wide[0], background=wide[1]).denoise(wide[0])
    np.testing.assert_allclose(
        shown, DPCA(1, axes="signal").fit(wide[0], background=wide[1]).denoise(wide[0]), atol=1e-8
    )


@IGNORE
def test_a_component_that_shrinkage_or_a_graph_chose_is_worth_no_more_than_its_own_ratio():
    rng = np.random.default_rng(11)
    size = 20
    rough, smooth = np.tile([1.0, -1.0], size // 2) / np.sqrt(size), np.ones(size) / np.sqrt(size)
    shared = np.outer(rng.normal(size=3000) * 8, smooth)
    background = rng.normal(size=(3000, size)) + shared
    target = rng.normal(size=(3000, size)) + shared + np.outer(rng.normal(size=3000) * 12, rough)
    chain = sparse.diags_array([np.ones(size - 1)] * 2, offsets=[-1, 1]).tocsr()
    model = DPCA(1, axes="signal", graph=chain, smoothness=1e4).fit(target, background=background)
    assert np.var(model.denoise(background)) < 0.1 * np.var(shared)


@IGNORE
def test_wide_noise_with_an_edge_has_nothing_to_denoise_whatever_is_shown():
    rng = np.random.default_rng(12)
    basis = rng.normal(size=(5, 400))
    target, background = rng.normal(size=(80, 5)) @ basis, rng.normal(size=(200, 5)) @ basis
    shown = DPCA(1, shrinkage=None).fit(target, background=background)
    assert shown.ratios_[0] <= shown.noise_edge_
    np.testing.assert_array_equal(shown.denoise(target), 0)
    np.testing.assert_array_equal(
        DPCA(1, axes="signal", shrinkage=None).fit(target, background=background).denoise(target), 0
    )
