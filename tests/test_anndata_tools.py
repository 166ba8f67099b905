"""Contrastive PCA, tests, denoising and plots of AnnData; scanpy's own plots read the results."""

import anndata
import matplotlib
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from scipy import sparse

import standout.anndata
from helpers import quiet
from standout import CPCA, DPCA, assess
from standout._blas import physical_memory
from standout.anndata import cpca, denoise, dpca
from standout.errors import InputError

matplotlib.use("Agg")
import matplotlib.pyplot as plt

BY = {"groupby": "bulk_labels", "target": "Dendritic", "background": "CD14+ Monocyte"}
# scanpy and anndata emit FutureWarnings about themselves.
pytestmark = [quiet, pytest.mark.filterwarnings("ignore::FutureWarning")]


@pytest.fixture
def cells():
    """The blood cells that scanpy ships: scaled values of variable genes, log-normalised ones in raw."""
    adata = sc.datasets.pbmc68k_reduced()
    adata.var["highly_variable"] = np.asarray(adata.raw.X.mean(axis=0)).ravel() > 1  # 50 genes or so
    return adata


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def sides(adata, values=None):
    """Return the used genes of target and background cells."""
    used = adata.var["highly_variable"].to_numpy()
    rows = adata.X if values is None else values
    return [rows[(adata.obs["bulk_labels"] == BY[side]).to_numpy()][:, used] for side in ("target", "background")]


def test_contrastive_pca_is_that_of_the_estimator(cells):
    assert cpca(cells, **BY) is None
    target, background = sides(cells)
    plain = CPCA().fit(target, background=background)
    used = cells.var["highly_variable"].to_numpy()
    np.testing.assert_allclose(cells.varm["cPCs"][used], plain.components_.T, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(cells.varm["cPCs_patterns"][used], plain.patterns_.T, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(cells.obsm["X_cpca"], (cells.X[:, used] - plain.mean_) @ plain.components_.T, atol=1e-5)
    found = cells.uns["cpca"]
    assert found["alpha"] == pytest.approx(plain.alpha_) and found["method"] == "cPCA"
    np.testing.assert_allclose(found["representative_alphas"], plain.path_.representative_values)
    np.testing.assert_allclose(found["variance_ratio"], plain.explained_variance_ratio_, rtol=1e-6)
    cpca(cells, **BY, alpha=2.5, key_added="fixed", affinity="scores")
    assert cells.uns["fixed"]["alpha"] == 2.5 and "representative_alphas" not in cells.uns["fixed"]
    with pytest.raises(InputError, match="parameter='shrinkage' is not a parameter of CPCA"):
        cpca(cells, **BY, shrinkage=0.1)


def test_variances_are_scanpys_without_a_background(cells):
    dpca(cells, n_comps=5)
    sc.pp.pca(cells, n_comps=5)
    for name in ("variance", "variance_ratio"):
        np.testing.assert_allclose(cells.uns["dpca"][name], cells.uns["pca"][name], rtol=1e-4)
    assert set(cells.uns["pca"]) <= set(cells.uns["dpca"])
    assert cells.uns["dpca"]["method"] == "PCA"


def test_a_test_has_the_verdict_of_assess_and_is_stored(cells, tmp_path):
    lanes = cells.obs_names.str.rsplit("-", n=1).str[-1]
    cells.obs["lane"] = lanes.to_numpy()
    found = standout.anndata.test(cells, **BY, n_comps=2, n_permutations=49, n_bootstrap=10, shrinkage="oas")
    target, background = sides(cells)
    plain = assess(target, background, estimator=DPCA(2, shrinkage="oas"), n_permutations=49, n_bootstrap=10)
    np.testing.assert_allclose(found.test.p_values, plain.test.p_values)
    np.testing.assert_allclose(found.held_out.ratios, plain.held_out.ratios, rtol=1e-4)
    stored = cells.uns["dpca_test"]
    assert stored["verdict"] == found.verdict().headline == plain.verdict().headline
    assert stored["summary"] == str(found.summary()) and stored["params"]["shrinkage"] == "oas"
    np.testing.assert_array_equal(stored["critical_values"], found.test.edge())
    np.testing.assert_array_equal(stored["stability"], found.stability.median)
    cells.write_h5ad(tmp_path / "cells.h5ad")
    again = anndata.read_h5ad(tmp_path / "cells.h5ad").uns["dpca_test"]
    np.testing.assert_array_equal(again["p_values"], stored["p_values"])
    assert again["reasons"] == stored["reasons"]


def test_subjects_are_permuted_as_a_whole_and_pairs_within(cells):
    cells.obs["lane"] = cells.obs_names.str.rsplit("-", n=1).str[-1].to_numpy()
    target, background = sides(cells)
    lanes = [cells.obs["lane"][cells.obs["bulk_labels"] == BY[side]].to_numpy() for side in ("target", "background")]
    paired = standout.anndata.test(cells, **BY, pairs="lane", n_permutations=49, folds=0)
    plain = assess(
        target, background, n_components=1, pairs=lanes[0], background_pairs=lanes[1],
        n_permutations=49, n_bootstrap=0, folds=0,
    )  # fmt: skip
    assert cells.uns["dpca_test"]["permuted"] == paired.test.permuted == "pairs"
    np.testing.assert_allclose(paired.test.null, plain.test.null, rtol=1e-4)
    cells.obs["batch"] = cells.obs["lane"] + cells.obs["bulk_labels"].astype(str)
    grouped = standout.anndata.test(cells, **BY, subjects="batch", n_permutations=49, folds=0, key_added="mine")
    assert grouped.test.permuted == cells.uns["mine"]["permuted"] == "groups"
    assert cells.uns["mine"]["params"]["subjects"] == "batch"
    with pytest.raises(InputError, match=r"8 subjects have target and background cells .* Use pairs='lane'"):
        standout.anndata.test(cells, **BY, subjects="lane")


def test_a_subject_in_the_target_and_in_one_of_several_backgrounds_is_an_error(cells, refused):
    labels = cells.obs["bulk_labels"].astype(str)
    cells.obs["donor"] = labels + "-" + (np.arange(cells.n_obs) % 5).astype(str)
    cells.obs.loc[(labels == "CD19+ B").to_numpy(), "donor"] = "Dendritic-0"
    several = {**BY, "background": ["CD14+ Monocyte", "CD19+ B"]}
    refused(
        lambda: standout.anndata.test(cells, **several, subjects="donor"),
        "1 subjects have target and background cells ('Dendritic-0')", "Use pairs='donor'",
    )  # fmt: skip


def test_pairs_of_several_backgrounds(cells):
    cells.obs["lane"] = cells.obs_names.str.rsplit("-", n=1).str[-1].to_numpy()
    several = {**BY, "background": ["CD14+ Monocyte", "CD19+ B"], "pairs": "lane"}
    found = standout.anndata.test(cells, **several, n_permutations=19, folds=0)
    assert found.test.permuted == "pairs" and len(found.test.units) == 3


def test_denoised_cells_are_those_of_the_estimator(cells):
    used = cells.var["highly_variable"].to_numpy()
    target, background = sides(cells)
    plain = DPCA().fit(target, background=background).denoise(cells.X[:, used])
    assert denoise(cells, **BY, key_added=None) is None
    layer = cells.layers["denoised"]
    assert sparse.issparse(layer) and layer.shape == cells.shape and layer.dtype == np.float32  # few genes are used
    np.testing.assert_allclose(layer.toarray()[:, used], plain, atol=1e-4)
    assert not layer[:, ~used].nnz
    wide = denoise(cells[:, used].copy(), **BY, key_added="wide", copy=True)
    assert isinstance(wide.layers["wide"], np.ndarray)
    np.testing.assert_allclose(wide.layers["wide"], plain, atol=1e-4)
    np.testing.assert_allclose(cells[:, used].layers["denoised"].toarray(), wide.layers["wide"], atol=1e-5)


def test_denoising_sparse_cells_needs_little_more_memory_than_the_layer(peak_of):
    rng = np.random.default_rng(0)
    X = sparse.random_array((12_000, 3_000), density=0.02, format="csr", random_state=rng, dtype=np.float32)
    obs = pd.DataFrame({"side": ["a", "b"] * 6_000}, index=[str(i) for i in range(12_000)])
    adata = anndata.AnnData(X, obs=obs)
    adata.var["highly_variable"] = np.arange(3_000) < 200
    peak = peak_of(lambda: denoise(adata, groupby="side", background="b"))
    layer = adata.layers["denoised"]
    size = layer.data.nbytes + layer.indices.nbytes + layer.indptr.nbytes
    assert peak < 2 * size + 40e6 < 0.6 * 12_000 * 3_000 * 4  # of one dense array


@pytest.fixture
def peak_of():
    import tracemalloc

    def measure(call):
        tracemalloc.start()
        try:
            call()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    return measure


def texts(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_the_plots_of_scanpy_read_the_results(cells):
    dpca(cells, **BY, n_comps=3)
    axes = sc.pl.embedding(cells, basis="dpca", color="bulk_labels", show=False)
    assert axes.get_xlabel() == "dpca1"
    np.testing.assert_allclose(axes.collections[0].get_offsets(), cells.obsm["X_dpca"][:, :2], rtol=1e-5)
    sc.pl.embedding(cells, basis="dpca", color=["louvain", "CST3"], components=["1,2", "2,3"], show=False)
    sc.pl.scatter(cells, basis="dpca", color="bulk_labels", show=False)
    sc.pl.ranking(cells, "varm", "dPCs_patterns", indices=[0, 1, 2], include_lowest=True, show=False)
    top = cells.var_names[np.argmax(cells.varm["dPCs_patterns"][:, 0])]
    assert top in texts(plt.gcf())
    for key in ("variance_ratio", "ratios"):
        sc.pl.ranking(cells, "uns", key, dictionary="dpca", labels="dPC", show=False)
        assert sorted(texts(plt.gcf())) == ["dPC1", "dPC2", "dPC3"]


def test_the_pca_plots_of_scanpy_work_under_its_key(cells):
    del cells.obsm["X_pca"], cells.varm["PCs"], cells.uns["pca"]
    dpca(cells, **BY, n_comps=3, key_added="pca")
    sc.pl.pca_variance_ratio(cells, n_pcs=3, show=False)
    assert sorted(texts(plt.gcf())) == ["PC1", "PC2", "PC3"]
    cells.varm["PCs"], cells.obsm["X_pca"] = cells.varm["pca_patterns"], cells.obsm["pca"]
    sc.pl.pca_loadings(cells, components="1,2,3", show=False)
    top = cells.var_names[np.argmax(cells.varm["pca_patterns"][:, 0])]
    assert top in texts(plt.gcf())
    axes = sc.pl.pca(cells, annotate_var_explained=True, show=False)
    assert axes.get_xlabel() == f"PC1 ({round(100 * cells.uns['pca']['variance_ratio'][0], 2)}%)"


@pytest.mark.parametrize("function", [dpca, cpca])
def test_the_plot_shows_the_scores_and_the_top_genes(cells, function):
    function(cells, **BY)
    key = function.__name__
    figure = standout.anndata.plot(cells, "louvain", key=key, count=7)
    scatter, *bars = figure.axes
    assert scatter.get_title() == "louvain" and scatter.get_xlabel() == f"{key}0"
    target = (cells.obs["bulk_labels"] == "Dendritic").to_numpy()
    others = (cells.obs["bulk_labels"] == "CD14+ Monocyte").to_numpy()
    drawn = np.vstack([part.get_offsets() for part in scatter.collections])
    expected = cells.obsm[f"X_{key}"][others | target]
    np.testing.assert_allclose(np.sort(drawn[:, 0]), np.sort(expected[:, 0]), rtol=1e-6)
    values = sides(cells)
    frames = [pd.DataFrame(part, columns=cells.var_names[cells.var["highly_variable"]]) for part in values]
    model = (DPCA if function is dpca else CPCA)().fit(frames[0], background=frames[1])
    for panel, top in zip(bars, model.top_features(7), strict=True):
        assert [label.get_text() for label in panel.get_yticklabels()] == [one.feature for one in top]
        np.testing.assert_allclose([bar.get_width() for bar in panel.patches], [one.weight for one in top], rtol=1e-3)
    figure.draw_without_rendering()


def test_plots_of_one_component_and_without_a_background(cells):
    dpca(cells, **BY, n_comps=1)
    assert len(standout.anndata.plot(cells).axes) == 2
    dpca(cells, n_comps=4, key_added="alone")
    figure = standout.anndata.plot(cells, "n_genes", key="alone", figure=plt.figure())
    assert len(figure.axes) == 4 and figure.axes[0].get_xlabel() == "pca0"  # with a colour bar


def test_wrong_arguments_are_refused_before_any_work(cells, refused):
    plot, test = standout.anndata.plot, standout.anndata.test
    refused(lambda: plot(cells), "key='dpca'", "call standout.anndata.dpca first")
    refused(lambda: plot(cells.X), "ndarray is not an AnnData")
    dpca(cells, **BY)
    refused(lambda: plot(cells, "louvian"), "color='louvian'", "Did you mean 'louvain'")
    refused(lambda: plot(cells, count=0), "count=0")
    refused(lambda: plot(cells[:, :50]), "765 genes, and adata has 50", "dpca again")
    before = set(cells.uns), set(cells.layers)
    cells.X[0, 0] = np.nan  # an error as soon as the cells are read
    refused(lambda: test(cells), "background", "Give background=")
    refused(lambda: test(cells, **BY, pairs="lane"), "pairs='lane'", "a column of adata.obs")
    refused(lambda: test(cells, **BY, pairs="phase", subjects="phase"), "subjects and pairs", "Give one")
    refused(lambda: test(cells, **BY, n_comps="auto"), "n_comps='auto'")
    refused(lambda: test(cells, **BY, solvr="dense"), "'solvr'", "Did you mean 'solver'")
    refused(lambda: test(cells, **BY, shrinkage=2), "shrinkage=2")
    refused(lambda: denoise(cells, **BY, layer="x"), "layer='x'")
    refused(lambda: denoise(cells, **BY, shrinkage="x"), "shrinkage='x'")
    refused(lambda: cpca(cells, **BY, alpha=-1), "alpha=-1")
    for call in (denoise, cpca, test):
        with pytest.raises(InputError, match="NaN"):
            call(cells, **BY, mask_var=None)
    assert (set(cells.uns), set(cells.layers)) == before and "X_cpca" not in cells.obsm


def test_a_layer_that_cannot_fit_into_memory_is_refused_before_the_fit(refused):
    n_cells = 100_000
    n_genes = 2 * physical_memory() // (4 * n_cells)
    obs = pd.DataFrame({"side": np.repeat(["a", "b"], n_cells // 2)}, index=pd.RangeIndex(n_cells).astype(str))
    adata = anndata.AnnData(sparse.csr_matrix((n_cells, n_genes), dtype=np.float32), obs=obs)
    refused(lambda: denoise(adata, groupby="side", background="b"), "GB, more than the memory", "mask_var=")
