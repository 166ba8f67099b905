"""dPCA on AnnData: results follow scanpy's conventions, sparse data stay sparse and backed data stay on disk."""

import subprocess
import sys
import tracemalloc
import warnings
from typing import Any, NamedTuple

import anndata
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
import sklearn
from scipy import sparse
from sklearn.metrics import roc_auc_score

import standout
from conftest import NAMES
from standout._dpca import DPCA
from standout.anndata import dpca
from standout.errors import FeatureError, FeatureWarning, InputError, NonFiniteError
from standout.io.matrix import OnDisk

noise = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")


@pytest.fixture
def cells(data):
    """Target and background cells in one AnnData, in mixed order, with a layer and donors."""
    rows = np.vstack([data.target, data.background])
    condition = np.repeat(["stim", "ctrl"], [200, 300])
    mixed = np.random.default_rng(0).permutation(500)
    obs = pd.DataFrame(
        {"condition": pd.Categorical(condition[mixed]), "donor": [f"d{i % 40}" for i in mixed]},
        index=[f"cell{i}" for i in mixed],
    )
    adata = anndata.AnnData(rows[mixed], obs=obs, var=pd.DataFrame(index=list(NAMES)))
    adata.layers["half"] = sparse.csr_matrix(adata.X / 2)
    return adata


def halves(adata):
    return [adata.X[(adata.obs["condition"] == side).to_numpy()] for side in ("stim", "ctrl")]


def test_labels_select_target_and_background(cells):
    stim, ctrl = halves(cells)
    plain = DPCA().fit(stim, background=ctrl)
    assert dpca(cells, groupby="condition", target="stim", background="ctrl") is None
    scores = (cells.X - stim.mean(axis=0)) @ plain.components_.T
    np.testing.assert_allclose(cells.obsm["X_dpca"], scores, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(cells.varm["dPCs"], plain.components_.T, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(cells.varm["dPCs_patterns"], plain.patterns_.T, rtol=1e-9, atol=1e-11)
    found = cells.uns["dpca"]
    for name in ("ratios", "target_variance", "background_variance", "noise_edge", "p_value", "debiased_ratios"):
        np.testing.assert_allclose(found[name], getattr(plain, f"{name}_"), rtol=1e-9)
    assert found["regime"] == plain.regime_ and found["shrinkage"] == plain.shrinkage_ and found["notes"] == ""
    chosen = {"groupby": "condition", "target": "stim", "background": "ctrl", "n_comps": 2}
    scanpy = {"zero_center": True, "use_highly_variable": False, "mask_var": None, "use_raw": False}
    assert found["params"] == scanpy | chosen


@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_the_scores_are_an_array_whatever_the_output_configuration(cells, container):
    dpca(cells, groupby="condition", target="stim", background="ctrl")
    with sklearn.config_context(transform_output=container):
        again = dpca(cells, groupby="condition", target="stim", background="ctrl", copy=True)
    assert isinstance(again.obsm["X_dpca"], np.ndarray)
    np.testing.assert_array_equal(again.obsm["X_dpca"], cells.obsm["X_dpca"])


def test_stored_filters_and_mean_reproduce_the_scores_of_every_cell(cells):
    dpca(cells, groupby="condition", background="ctrl")
    scores = (cells.X - cells.uns["dpca"]["mean"]) @ cells.varm["dPCs"]
    np.testing.assert_allclose(cells.obsm["X_dpca"], scores, rtol=1e-10, atol=1e-10)


def test_by_default_all_other_labelled_cells_are_the_target(cells):
    dpca(cells, groupby="condition", target="stim", background="ctrl", key_added="named")
    dpca(cells, groupby="condition", background="ctrl", key_added="rest")
    np.testing.assert_array_equal(cells.obsm["named"], cells.obsm["rest"])
    cells.obs.loc[cells.obs_names[:50], "condition"] = np.nan
    dpca(cells, groupby="condition", background="ctrl")
    dpca(cells, groupby="condition", target=["stim"], background=["ctrl"], key_added="named")
    np.testing.assert_array_equal(cells.obsm["X_dpca"], cells.obsm["named"])
    assert len(cells.obsm["X_dpca"]) == 500


def test_results_are_stored_under_key_added(cells):
    dpca(cells, groupby="condition", background="ctrl", key_added="mine", n_comps=3)
    assert cells.obsm["mine"].shape == (500, 3)
    assert cells.varm["mine"].shape == cells.varm["mine_patterns"].shape == (5, 3)
    assert "mine" in cells.uns and "X_dpca" not in cells.obsm


@noise
def test_several_labels_are_several_backgrounds(cells):
    third = np.array(["stim", "a", "b"])[np.where(cells.obs["condition"] == "stim", 0, 1 + np.arange(500) % 2)]
    cells.obs["three"] = third
    dpca(cells, groupby="three", background=["a", "b"], mix="equal")
    parts = {side: cells.X[third == side] for side in ("a", "b")}
    plain = DPCA(mix="equal").fit(cells.X[third == "stim"], background=parts)
    np.testing.assert_allclose(cells.uns["dpca"]["ratios"], plain.ratios_, rtol=1e-10)
    assert cells.uns["dpca"]["mix"].tolist() == [0.5, 0.5]
    assert cells.uns["dpca"]["params"]["background"].tolist() == ["a", "b"]


@noise
@pytest.mark.shows("AnnData", "accepted", "names")
@pytest.mark.parametrize("form", ["one", "list", "dict", "path", "sparse", "backed"])
def test_another_anndata_can_be_the_background_and_genes_are_matched_by_name(cells, tmp_path, form):
    stim, ctrl = (cells[cells.obs["condition"] == side].copy() for side in ("stim", "ctrl"))
    turned = ctrl[:, list("ecabd")].copy()
    plain = DPCA().fit(stim.X, background=ctrl.X)
    if form in ("path", "backed"):
        turned.write_h5ad(tmp_path / "ctrl.h5ad")
    background = {
        "one": lambda: turned,
        "list": lambda: [turned[:150], turned[150:].copy()],
        "dict": lambda: {"first": turned[:150], "second": turned[150:]},
        "path": lambda: tmp_path / "ctrl.h5ad",
        "sparse": lambda: anndata.AnnData(sparse.csc_matrix(turned.X), obs=turned.obs, var=turned.var),
        "backed": lambda: anndata.read_h5ad(tmp_path / "ctrl.h5ad", backed="r"),
    }[form]()
    dpca(stim, background)
    if form in ("list", "dict"):
        plain = DPCA().fit(stim.X, background=[ctrl.X[:150], ctrl.X[150:]])
    np.testing.assert_allclose(stim.uns["dpca"]["ratios"], plain.ratios_, rtol=1e-10)
    np.testing.assert_allclose(stim.varm["dPCs"], plain.components_.T, rtol=1e-9, atol=1e-11)


def test_without_a_background_the_fit_is_pca(cells):
    dpca(cells)
    np.testing.assert_allclose(cells.uns["dpca"]["ratios"], DPCA().fit(cells.X).ratios_, rtol=1e-12)


def test_a_layer_replaces_x(cells):
    dpca(cells, groupby="condition", background="ctrl", key_added="x")
    dpca(cells, groupby="condition", background="ctrl", layer="half")
    np.testing.assert_allclose(cells.obsm["X_dpca"] * 2, cells.obsm["x"], rtol=1e-9, atol=1e-9)


def test_common_genes_are_used_on_request_with_a_warning(cells):
    stim, ctrl = (cells[cells.obs["condition"] == side].copy() for side in ("stim", "ctrl"))
    with pytest.raises(FeatureError, match=r"'b'.*features='common'"):
        dpca(stim, ctrl[:, list("acde")])
    with pytest.warns(FeatureWarning, match="'b'"):
        dpca(stim, ctrl[:, list("edca")], features="common")
    plain = DPCA().fit(stim[:, list("acde")].X, background=ctrl[:, list("acde")].X)
    np.testing.assert_allclose(stim.uns["dpca"]["ratios"], plain.ratios_, rtol=1e-10)
    assert not stim.varm["dPCs"][1].any() and "'b'" in stim.uns["dpca"]["notes"]


@noise
def test_masked_genes_get_weight_zero(cells):
    stim, ctrl = (cells[cells.obs["condition"] == side].copy() for side in ("stim", "ctrl"))
    keep = np.array([True, False, True, True, False])
    cells.var["highly_variable"] = keep
    plain = DPCA().fit(stim.X[:, keep], background=ctrl.X[:, keep])
    dpca(cells, groupby="condition", background="ctrl", mask_var="highly_variable")
    dpca(stim, ctrl[:, list("edcba")], mask_var=keep)
    for found in (cells, stim):
        np.testing.assert_allclose(found.uns["dpca"]["ratios"], plain.ratios_, rtol=1e-10)
        assert not found.varm["dPCs"][~keep].any() and not found.uns["dpca"]["mean"][~keep].any()
        np.testing.assert_allclose(found.varm["dPCs_patterns"][keep], plain.patterns_.T, rtol=1e-9, atol=1e-11)


@noise
def test_highly_variable_genes_are_the_default_as_in_scanpy(cells):
    keep = np.array([True, False, True, True, False])
    by = {"groupby": "condition", "background": "ctrl"}
    every = dpca(cells, **by, copy=True)
    cells.var["highly_variable"] = keep
    for n_comps in (2, None):  # scanpy's own choice on the same object
        sc.pp.pca(cells, n_comps=n_comps)
    default, named, all_genes = (
        dpca(cells, **by, copy=True, **how) for how in ({}, {"mask_var": "highly_variable"}, {"mask_var": None})
    )
    np.testing.assert_array_equal(default.varm["dPCs"], named.varm["dPCs"])
    np.testing.assert_array_equal((default.varm["dPCs"] != 0).any(axis=1), (cells.varm["PCs"] != 0).any(axis=1))
    np.testing.assert_array_equal(all_genes.varm["dPCs"], every.varm["dPCs"])
    for found, used in ((default, True), (named, True), (all_genes, False)):
        params = found.uns["dpca"]["params"]
        assert params["use_highly_variable"] is used
        assert params.get("mask_var") == ("highly_variable" if used else None)
    shared = ("zero_center", "use_highly_variable", "mask_var")
    scanpy, ours = cells.uns["pca"]["params"], default.uns["dpca"]["params"]
    assert {name: scanpy[name] for name in shared} == {name: ours[name] for name in shared}


@noise
def test_a_mask_of_the_nullable_type_of_pandas_is_accepted(cells):
    keep = np.array([True, False, True, True, False])
    cells.var["chosen"] = pd.array(keep, dtype="boolean")
    by = {"groupby": "condition", "background": "ctrl"}
    dpca(cells, **by, mask_var="chosen")
    dpca(cells, **by, mask_var=keep, key_added="array")
    np.testing.assert_array_equal(cells.varm["dPCs"], cells.varm["array"])
    np.testing.assert_array_equal(cells.uns["array"]["params"]["mask_var"], keep)


@noise
def test_a_series_as_a_mask_is_matched_by_gene_name(cells):
    by = {"groupby": "condition", "background": "ctrl"}
    keep = pd.Series([True, True, False, False, False], index=cells.var_names)
    for mask in (keep, keep[::-1]):
        dpca(cells, **by, mask_var=mask)
        np.testing.assert_array_equal(cells.varm["dPCs"][:, 0] != 0, keep)


def test_use_raw_takes_the_values_of_raw_for_the_genes_of_adata(cells, tmp_path):
    full = cells.copy()
    cells.raw = full
    few = cells[:, list("dca")].copy()
    sc.pp.scale(few)
    by = {"groupby": "condition", "background": "ctrl"}
    expected = dpca(full[:, list("dca")].copy(), **by, copy=True)
    dpca(few, **by, use_raw=True)
    np.testing.assert_allclose(few.varm["dPCs"], expected.varm["dPCs"], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(few.obsm["X_dpca"], expected.obsm["X_dpca"], rtol=1e-10, atol=1e-10)
    assert few.uns["dpca"]["params"]["use_raw"] is True
    stim, ctrl = (few[few.obs["condition"] == side].copy() for side in ("stim", "ctrl"))
    with pytest.raises(InputError, match="use_raw=True: background has no raw"):
        dpca(stim, anndata.AnnData(ctrl.X, var=ctrl.var), use_raw=True)
    ctrl.write_h5ad(tmp_path / "ctrl.h5ad")
    for background in (ctrl, tmp_path / "ctrl.h5ad"):
        dpca(stim, background, use_raw=True)
        np.testing.assert_allclose(stim.varm["dPCs"], expected.varm["dPCs"], rtol=1e-9, atol=1e-11)


@noise
@pytest.mark.shows("AnnData", "groups")
def test_subjects_are_the_independent_units(cells):
    dpca(cells, groupby="condition", background="ctrl", key_added="cells")
    dpca(cells, groupby="condition", background="ctrl", subjects="donor")
    stim, ctrl = halves(cells)
    donors = [cells.obs["donor"][cells.obs["condition"] == side].to_numpy() for side in ("stim", "ctrl")]
    plain = DPCA().fit(stim, background=ctrl, groups=donors[0], background_groups=donors[1])
    assert cells.uns["dpca"]["p_value"] == pytest.approx(plain.p_value_, rel=1e-6)
    assert cells.uns["dpca"]["noise_edge"] > cells.uns["cells"]["noise_edge"]


@noise
def test_results_survive_saving_and_loading(cells, tmp_path):
    dpca(cells, groupby="condition", background=["ctrl"], subjects="donor", shrinkage=0.3, mix=np.array([1.0]))
    cells.write_h5ad(tmp_path / "cells.h5ad")
    again = anndata.read_h5ad(tmp_path / "cells.h5ad")
    np.testing.assert_array_equal(again.obsm["X_dpca"], cells.obsm["X_dpca"])
    np.testing.assert_array_equal(again.varm["dPCs_patterns"], cells.varm["dPCs_patterns"])
    for name, value in cells.uns["dpca"].items():
        if name != "params":
            np.testing.assert_array_equal(again.uns["dpca"][name], value)
    assert again.uns["dpca"]["params"]["shrinkage"] == 0.3


@noise
def test_a_result_without_components_can_be_saved(tmp_path):
    rng = np.random.default_rng(0)
    adata = anndata.AnnData(rng.normal(size=(400, 4)))
    adata.obs["side"] = ["a", "b"] * 200
    dpca(adata, groupby="side", background="b", n_comps="auto")
    adata.write_h5ad(tmp_path / "none.h5ad")
    assert anndata.read_h5ad(tmp_path / "none.h5ad").obsm["X_dpca"].shape == (400, 0)


def test_a_copy_leaves_the_original_unchanged(cells):
    found = dpca(cells, groupby="condition", background="ctrl", copy=True)
    assert "X_dpca" in found.obsm and "X_dpca" not in cells.obsm and "dpca" not in cells.uns


@pytest.mark.shows("AnnData view", "accepted", "names")
def test_a_view_becomes_a_separate_anndata(cells):
    some = cells[:400, :4]
    with pytest.warns(anndata.ImplicitModificationWarning):
        dpca(some, groupby="condition", background="ctrl")
    assert some.obsm["X_dpca"].shape == (400, 2) and "X_dpca" not in cells.obsm
    stim = some.X[(some.obs["condition"] == "stim").to_numpy()]
    scores = (some.X - stim.mean(axis=0)) @ some.varm["dPCs"]
    np.testing.assert_allclose(some.obsm["X_dpca"], scores, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix, sparse.csc_matrix, sparse.csr_array])
def test_every_matrix_type_gives_the_same_result_in_memory_and_backed(cells, tmp_path, form):
    dpca(cells, groupby="condition", background="ctrl")
    other = anndata.AnnData(form(cells.X), obs=cells.obs, var=cells.var)
    other.write_h5ad(tmp_path / "other.h5ad")
    for mode in (None, "r"):
        found = other if mode is None else anndata.read_h5ad(tmp_path / "other.h5ad", backed=mode)
        dpca(found, groupby="condition", background="ctrl")
        np.testing.assert_allclose(found.obsm["X_dpca"], cells.obsm["X_dpca"], rtol=1e-9, atol=1e-9)
        assert mode is None or found.isbacked


@pytest.mark.shows("AnnData, backed", "accepted", "names", "out of core")
def test_a_backed_anndata_stays_on_disk(cells, tmp_path):
    cells.write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    source = standout.read(backed, label="condition", memory=0)
    assert isinstance(source, OnDisk)
    np.testing.assert_array_equal(np.concatenate(list(source.blocks(99))), cells.X)
    np.testing.assert_array_equal(standout.read(backed[50:60, :3]).rows(0, 10), cells.X[50:60, :3])


@noise
def test_sparse_cells_are_never_converted_to_one_dense_array():
    rng = np.random.default_rng(0)
    X = sparse.random_array((600, 30_000), density=0.01, format="csr", random_state=rng)
    adata = anndata.AnnData(X, obs=pd.DataFrame({"side": ["a", "b"] * 300}, index=[str(i) for i in range(600)]))
    tracemalloc.start()
    try:
        dpca(adata, groupby="side", background="b")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.5 * 600 * 30_000 * 8


class Simulated(NamedTuple):
    """Log-normalised counts of two conditions, with the genes and cells of a programme in the target."""

    target: Any
    control: Any
    genes: set[str]
    responds: Any


def simulated(n_target, n_control, n_genes, form=sparse.csr_matrix, rare=False, fold=4.0):
    """Draw cells of two shared types; 30% of the target cells upregulate a programme of 50 genes.

    Some genes are never expressed, some only in the target, one is constant; two cells of each condition are empty.
    Without ``rare``, genes expressed in one or two control cells are also set in three others.
    """
    rng = np.random.default_rng(3)
    rate = rng.gamma(0.5, 0.6, n_genes) + (0.0 if rare else 0.02)
    rate[:100] = 0
    shared = np.exp(rng.normal(0, 0.5, n_genes) * (rng.random(n_genes) < 0.05))
    likely = np.flatnonzero((rate > 0.3) & (rate < 2) & (np.arange(n_genes) > 300))
    programme = rng.choice(likely, 50, replace=False)
    responds = rng.random(n_target) < 0.3

    def draw(count, responding):
        mean = rate * np.where(rng.random((count, 1)) < 0.4, shared, 1.0) * rng.lognormal(0, 0.3, (count, 1))
        if responding is None:
            mean[:, 100:150] = 0
        else:
            mean[np.ix_(responding, programme)] *= fold
        counts = rng.poisson(mean).astype(np.float32)
        counts[:2] = 0
        return counts

    sides = [draw(n_target, responds), draw(n_control, None)]
    if not rare:
        seen = np.count_nonzero(sides[1], axis=0)
        sides[1][2:5, (seen > 0) & (seen < 3)] = 1
    names = pd.DataFrame(index=[f"gene{i}" for i in range(n_genes)])
    found = []
    for counts, letter in zip(sides, "tc", strict=True):
        total = np.maximum(counts.sum(axis=1, keepdims=True), 1)
        values = np.log1p(counts * (1e4 / total))
        values[:, 200] = 1.0
        obs = pd.DataFrame(index=[f"{letter}{i}" for i in range(len(counts))])
        found.append(anndata.AnnData(form(values), obs=obs, var=names))
    return Simulated(*found, {f"gene{i}" for i in programme}, responds)


def separation(scores, responds):
    """Return the largest area under the curve over the components."""
    areas = [roc_auc_score(responds, column) for column in scores.T]
    return max(max(area, 1 - area) for area in areas)


def check_useful(model, path, found):
    assert model.regime_ == "shrunk" and model.solver_ == "span" and 0 < model.shrinkage_ < 1
    assert "background covariance estimated by" in model.summary() and "there is no noise edge" in model.summary()
    scores = model.transform(path)
    for values in (model.components_, model.patterns_, model.ratios_, model.mean_, scores):
        assert np.isfinite(values).all()
    tops = [sum(top.feature in found.genes for top in component) for component in model.top_features(50)]
    assert max(tops) >= 45 and separation(scores, found.responds) > 0.95
    used = np.abs(model.components_).max(axis=0) > 0
    assert not used[:100].any() and not used[200] and used[100:150].any()


@noise
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("memory", [0, "256MB"])
def test_a_programme_is_found_among_more_genes_than_cells(tmp_path, form, memory):
    found = simulated(500, 150, 4000, form)
    for adata, name in ((found.target, "t.h5ad"), (found.control, "c.h5ad")):
        adata.write_h5ad(tmp_path / name)
    sources = [standout.read(tmp_path / name, memory=memory) for name in ("t.h5ad", "c.h5ad")]
    model = DPCA(3).fit(sources[0], background=sources[1])
    check_useful(model, tmp_path / "t.h5ad", found)


@pytest.mark.slow
@noise
def test_a_programme_is_found_among_twenty_thousand_genes(tmp_path):
    found = simulated(1500, 300, 20_000, fold=3.0)
    found.target.write_h5ad(tmp_path / "t.h5ad")
    found.control.write_h5ad(tmp_path / "c.h5ad")
    check_useful(DPCA(3).fit(tmp_path / "t.h5ad", background=tmp_path / "c.h5ad"), tmp_path / "t.h5ad", found)


def warned(found, category, **how):
    """Return the warnings of a category that a call raises."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dpca(found.target, found.control, n_comps=4, **how)
    return " ".join(str(warning.message) for warning in caught if warning.category is category)


def test_genes_expressed_in_few_background_cells_raise_a_warning_and_can_be_dropped():
    found = simulated(500, 150, 4000, rare=True)
    assert "fewer than 3 background cells" in warned(found, FeatureWarning)
    assert "min_cells=3" in found.target.uns["dpca"]["notes"]
    assert warned(found, FeatureWarning, min_cells=3) == ""
    assert separation(found.target.obsm["X_dpca"], found.responds) > 0.95
    seen = np.asarray((found.control.X != 0).sum(axis=0)).ravel()
    assert not found.target.varm["dPCs"][(seen > 0) & (seen < 3)].any()
    assert found.target.varm["dPCs"][100:150].any(), "genes that only the target expresses are kept"


def test_wrong_arguments_are_refused_with_the_valid_choices(cells, refused, tmp_path):
    stim = cells[cells.obs["condition"] == "stim"].copy()
    by = {"groupby": "condition", "background": "ctrl"}
    refused(lambda: dpca(cells, groupby="conditon", background="ctrl"), "'conditon'", "Did you mean 'condition'")
    refused(lambda: dpca(cells, groupby="condition", background="ctl"), "background='ctl'", "Did you mean 'ctrl'")
    refused(lambda: dpca(cells, **by, target="stm"), "target='stm'", "Did you mean 'stim'", "'ctrl', 'stim'")
    refused(lambda: dpca(cells, **by, target=["stim", "ctrl"]), "300 are both", "Give distinct labels")
    refused(lambda: dpca(cells, **by, layer="haf"), "layer='haf'", "Did you mean 'half'")
    refused(lambda: dpca(stim, cells[:50], layer="raw"), "layer='raw'", "leave layer= out")
    refused(lambda: dpca(cells, **by, subjects="doner"), "subjects='doner'", "Did you mean 'donor'")
    refused(lambda: dpca(cells, **by, mask_var="hvg"), "mask_var='hvg'", "boolean array")
    refused(lambda: dpca(cells, **by, mask_var=np.zeros(5, dtype=bool)), "leave no gene")
    refused(lambda: dpca(cells, **by, mask_var=np.arange(5)), "mask_var", "int64", "boolean array")
    refused(lambda: dpca(cells, **by, min_cells=0), "min_cells=0")
    refused(lambda: dpca(cells, **by, use_raw=True), "use_raw=True", "no raw", "Leave use_raw= out")
    refused(lambda: dpca(cells, **by, use_raw=True, layer="half"), "use_raw=True and layer='half'", "Give one")
    cells.raw = cells[:, list("abcd")].copy()
    refused(lambda: dpca(cells, **by, use_raw=True), "1 genes of adata are not in adata.raw: 'e'", "Use adata.raw")
    cells.var["highly_variable"] = ["yes"] * 5
    refused(lambda: dpca(cells, **by), "mask_var='highly_variable'", "type object", "None for all genes")
    del cells.var["highly_variable"]
    refused(lambda: dpca(cells, **by, key_added=3), "key_added=3", "Give a text")
    refused(lambda: dpca(cells, **by, n_comps=0), "`n_comps=0`")
    refused(lambda: dpca(cells, **by, n_comps=77), "`n_comps=77`")
    cells[cells.obs["condition"] == "ctrl"].copy().write_h5ad(tmp_path / "ctrl.h5ad")
    del stim.layers["half"]
    stim.layers["other"] = stim.X
    refused(lambda: dpca(stim, tmp_path / "ctrl.h5ad", layer="other"), "background", "no layers/other", "`layer`")
    refused(lambda: dpca(cells, **by, shrinkge=0.1), "'shrinkge'", "Did you mean 'shrinkage'")
    refused(lambda: dpca(cells, groupby="condition"), "needs a background label", "Give background=")
    refused(lambda: dpca(cells, groupby="condition", background=[]), "list is empty")
    refused(lambda: dpca(cells, []), "background", "empty list", "None for PCA")
    for column in (["condition"], cells.obs["condition"]):
        refused(lambda column=column: dpca(cells, "ctrl", groupby=column), "groupby", "column of adata.obs")
    refused(lambda: dpca(cells, groupby="condition", background=stim), "together with groupby")
    refused(lambda: dpca(cells, "ctrl"), "'ctrl' is neither an AnnData nor a file", "groupby=")
    refused(lambda: dpca(cells, target="stim", background=stim), "target='stim'", "Give groupby=")
    refused(lambda: dpca(cells.X, groupby="condition"), "ndarray is not an AnnData", "Use standout.DPCA")
    cells.write_h5ad(tmp_path / "a.h5ad")
    backed = anndata.read_h5ad(tmp_path / "a.h5ad", backed="r")
    refused(lambda: dpca(backed, **by, copy=True), "copy=True", "backed")


def test_bad_values_and_duplicate_names_are_reported_by_gene(cells, refused):
    cells.X[3, 1] = np.nan
    refused(lambda: dpca(cells, groupby="condition", background="ctrl"), "1 NaN", "b (1)", kind=NonFiniteError)
    cells.var_names = ["a", "b", "c", "d", "a"]  # in place: only a new AnnData warns of it
    refused(lambda: dpca(cells, groupby="condition", background="ctrl"), "var_names_make_unique")


def test_an_anndata_without_x_is_an_error(cells, refused):
    refused(lambda: dpca(anndata.AnnData(obs=cells.obs, var=cells.var)), "no X")


def test_a_failed_call_changes_nothing(cells):
    with pytest.raises(InputError):
        dpca(cells, groupby="condition", background="ctrl", n_comps=77)
    assert not cells.obsm and not cells.varm and not cells.uns


def test_importing_the_module_does_not_import_anndata():
    code = "import sys, standout.anndata; assert 'anndata' not in sys.modules and 'h5py' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
