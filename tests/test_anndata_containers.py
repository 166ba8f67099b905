"""AnnData that are backed, Dask-backed, lazy or views: the same results, without reading everything into memory."""

import anndata
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import standout.anndata
from conftest import NAMES
from helpers import quiet
from standout._dpca import DPCA
from standout.anndata import cpca, denoise, dpca
from standout.errors import InputError

da = pytest.importorskip("dask.array", reason="dask is not installed: everything about Dask is left out")

BY = {"groupby": "condition", "background": "ctrl"}
FORMS = {"array": np.asarray, "csr_matrix": sparse.csr_matrix}


def labelled(matrix, data):
    """Return target and background cells in one AnnData, in mixed order, with donors."""
    condition = np.repeat(["stim", "ctrl"], [len(data.target), len(data.background)])
    mixed = np.random.default_rng(0).permutation(len(condition))
    obs = pd.DataFrame(
        {"condition": pd.Categorical(condition[mixed]), "donor": [f"d{i % 40}" for i in mixed]},
        index=[f"cell{i}" for i in mixed],
    )
    rows = np.vstack([data.target, data.background])[mixed]
    return anndata.AnnData(matrix(rows), obs=obs, var=pd.DataFrame(index=list(NAMES)))


@pytest.fixture
def cells(data):
    return labelled(np.asarray, data)


def dask_backed(cells, form=np.asarray, chunks=(61, -1)):
    lazy = da.from_array(cells.X, chunks=chunks).map_blocks(form, dtype=cells.X.dtype, meta=form(np.empty((0, 0))))
    return anndata.AnnData(lazy, obs=cells.obs, var=cells.var)


def assert_same(found, expected, key="dpca"):
    for name in ("ratios", "noise_edge", "p_value", "variance_ratio", "mean", "scale"):
        np.testing.assert_allclose(found.uns[key][name], expected.uns[key][name], rtol=1e-8)
    np.testing.assert_allclose(found.varm["dPCs"], expected.varm["dPCs"], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(np.asarray(found.obsm["X_dpca"]), expected.obsm["X_dpca"], rtol=1e-8, atol=1e-8)


@quiet
@pytest.mark.shows("AnnData, Dask-backed", "accepted", "names", "groups", "lazy")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("chunks", [(61, -1), (100, 2)])
def test_a_dask_backed_anndata_gives_the_same_result_and_stays_lazy(cells, form, chunks):
    lazy = dask_backed(cells, FORMS[form], chunks)
    for how in (BY, {**BY, "subjects": "donor"}, {**BY, "mask_var": np.array([1, 0, 1, 1, 1], dtype=bool)}):
        dpca(cells, **how)
        dpca(lazy, **how)
        assert isinstance(lazy.X, da.Array) and isinstance(lazy.obsm["X_dpca"], da.Array)
        # A cluster does not estimate how alike the cells of a subject are.
        if "subjects" not in how:
            assert_same(lazy, cells)
    assert lazy.obsm["X_dpca"].shape == (500, 2)


@quiet
def test_the_workers_read_the_cells_and_none_is_fetched_for_a_fit(cells):
    rows_at_once = []

    def noted(block):
        rows_at_once.append(len(block))
        return block

    lazy = anndata.AnnData(
        da.from_array(cells.X, chunks=(50, -1)).map_blocks(noted, dtype=float, meta=np.empty((0, 0))),
        obs=cells.obs,
        var=cells.var,
    )
    assert rows_at_once == []
    source = standout.read(lazy)
    assert not source.is_local and source.names == NAMES and rows_at_once == []
    dpca(lazy, **BY, min_cells=2)
    assert max(rows_at_once) == 50


@quiet
def test_subjects_of_dask_backed_cells_are_the_groups_of_a_dask_frame(cells):
    lazy = dask_backed(cells)
    dpca(lazy, **BY, subjects="donor")
    sides = [(cells.obs["condition"] == side).to_numpy() for side in ("stim", "ctrl")]
    arrays = [da.from_array(cells.X[side], chunks=(61, -1)) for side in sides]
    donors = [cells.obs["donor"].to_numpy()[side] for side in sides]
    plain = DPCA().fit(arrays[0], background=arrays[1], groups=donors[0], background_groups=donors[1])
    assert lazy.uns["dpca"]["p_value"] == pytest.approx(plain.p_value_, rel=1e-9)
    assert lazy.uns["dpca"]["noise_edge"] == pytest.approx(plain.noise_edge_, rel=1e-9)


def test_read_selects_rows_and_columns_of_dask_backed_cells_by_obs_and_var_names(cells):
    lazy = dask_backed(cells)
    how = {"where": {"condition": "stim"}, "columns": ["d", "b"], "groups": "donor", "label": "condition"}
    found, plain = standout.read(lazy, **how), standout.read(cells, **how)
    np.testing.assert_array_equal(found.collect("adata"), plain.collect("adata"))
    for name in ("groups", "labels", "row_ids"):
        np.testing.assert_array_equal(getattr(found, name), getattr(plain, name))
    assert found.names == ("d", "b") and found.has_groups


def test_options_that_need_the_cells_in_memory_are_refused_for_dask_backed_cells(cells, refused):
    lazy = dask_backed(cells)
    refused(lambda: standout.read(lazy, missing="auto"), "Dask-backed", "Call adata.to_memory() first")
    refused(lambda: standout.read(lazy, groups="donor", groups_match="."), "Dask-backed", "to_memory()")
    refused(lambda: standout.read(lazy, groups="doner"), "'doner'", "Did you mean 'donor'")
    refused(lambda: standout.read(lazy, transpose=True), "whole table in memory")


@quiet
@pytest.mark.parametrize("where", ["layer", "raw", "view"])
def test_dask_arrays_in_layers_raw_and_views_stay_lazy(cells, where):
    lazy = dask_backed(cells)
    plain, how = cells.copy(), dict(BY)
    if where == "layer":
        lazy.layers["x"], lazy.X, how["layer"] = lazy.X, np.zeros(lazy.shape), "x"
        plain.layers["x"] = plain.X
    elif where == "raw":
        for one in (lazy, plain):
            one.raw = one
        lazy, plain, how["use_raw"] = lazy[:, list("dca")].copy(), plain[:, list("dca")].copy(), True
    else:
        lazy, plain = lazy[50:450, list("dca")], plain[50:450, list("dca")].copy()
        with pytest.warns(anndata.ImplicitModificationWarning):
            dpca(lazy, **how)
    dpca(plain, **how)
    if where != "view":
        dpca(lazy, **how)
    assert isinstance(lazy.obsm["X_dpca"], da.Array)
    assert_same(lazy, plain)


@quiet
def test_genes_in_few_background_cells_are_counted_on_the_workers(cells):
    X = cells.X.copy()
    X[:, 1] = 0
    ctrl = np.flatnonzero(cells.obs["condition"] == "ctrl")
    X[ctrl[:2], 1] = 30
    cells.X = X
    lazy = dask_backed(cells)
    dpca(lazy, **BY, min_cells=3)
    assert not lazy.varm["dPCs"][1].any() and lazy.varm["dPCs"][[0, 2, 3, 4]].any(axis=1).all()


@quiet
def test_denoise_and_cpca_of_dask_backed_cells_are_lazy_too(cells):
    lazy = dask_backed(cells)
    keep = np.array([1, 0, 1, 1, 1], dtype=bool)
    for function in (denoise, cpca):
        function(lazy, **BY, mask_var=keep)
        function(cells, **BY, mask_var=keep)
    assert isinstance(lazy.layers["denoised"], da.Array) and isinstance(lazy.obsm["X_cpca"], da.Array)
    np.testing.assert_allclose(lazy.layers["denoised"].compute(), cells.layers["denoised"], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(lazy.obsm["X_cpca"].compute(), cells.obsm["X_cpca"], rtol=1e-8, atol=1e-8)


@quiet
def test_a_test_of_dask_backed_cells_is_that_of_the_cells_in_memory(cells):
    found, plain = (standout.anndata.test(one, **BY, n_permutations=49, folds=0) for one in (dask_backed(cells), cells))
    np.testing.assert_allclose(found.test.null, plain.test.null, rtol=1e-8)


@quiet
@pytest.mark.shows("AnnData, read_lazy", "accepted", "names", "groups", "lazy")
@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
@pytest.mark.filterwarnings("ignore::UserWarning:anndata")
@pytest.mark.filterwarnings("ignore::UserWarning:zarr")
def test_an_anndata_of_read_lazy_stays_in_its_file(cells, tmp_path, suffix):
    pytest.importorskip("xarray", reason="read_lazy needs xarray")
    path = tmp_path / f"cells.{suffix}"
    stored = anndata.AnnData(sparse.csr_matrix(cells.X), obs=cells.obs, var=cells.var)
    stored.write_h5ad(path) if suffix == "h5ad" else stored.write_zarr(path)
    lazy = anndata.experimental.read_lazy(path)
    dpca(lazy, **BY)
    dpca(cells, **BY)
    assert isinstance(lazy.X, da.Array) and isinstance(lazy.obsm["X_dpca"], da.Array)
    assert_same(lazy, cells)
    source = standout.read(lazy, groups="donor")
    np.testing.assert_array_equal(source.groups, cells.obs["donor"])


@quiet
@pytest.mark.shows("AnnData, backed", "groups")
@pytest.mark.parametrize("form", FORMS)
def test_a_backed_anndata_takes_the_results_of_every_function(cells, tmp_path, form):
    anndata.AnnData(FORMS[form](cells.X), obs=cells.obs, var=cells.var).write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    for one in (backed, cells):
        dpca(one, **BY, subjects="donor")
        cpca(one, **BY)
        denoise(one, **BY)
        standout.anndata.test(one, **BY, pairs="donor", n_permutations=49, folds=0)
    assert backed.isbacked
    assert_same(backed, cells)
    np.testing.assert_allclose(backed.layers["denoised"], cells.layers["denoised"], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(backed.uns["dpca_test"]["p_values"], cells.uns["dpca_test"]["p_values"])


@pytest.mark.parametrize("function", ["dpca", "cpca", "denoise", "test"])
def test_a_view_of_a_backed_anndata_is_refused_before_its_cells_are_read(cells, tmp_path, function, refused):
    cells.X[0, 0] = np.nan  # an error as soon as the cells are read
    cells.write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    call = getattr(standout.anndata, function)
    refused(lambda: call(backed[:400], **BY), "a view of a backed AnnData", "to_memory()")
    with pytest.raises(InputError, match="NaN"):
        call(backed, **BY)


@quiet
@pytest.mark.shows("AnnData view", "groups")
def test_a_view_of_a_backed_anndata_can_be_the_background(cells, tmp_path):
    cells.write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    stim, ctrl = (cells[cells.obs["condition"] == side].copy() for side in ("stim", "ctrl"))
    expected = dpca(stim, ctrl, subjects="donor", copy=True)
    dpca(stim, backed[backed.obs["condition"] == "ctrl"], subjects="donor")
    assert_same(stim, expected)
