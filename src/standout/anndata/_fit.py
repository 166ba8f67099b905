"""Fit to the cells of an AnnData, and write the results to it as scanpy does."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from standout._base import BaseContrast
from standout._blas import Array, physical_memory
from standout._cpca import CPCA
from standout._dpca import DPCA
from standout._model import Model
from standout.anndata._cells import (
    HIGHLY_VARIABLE,
    Contrast,
    Mask,
    check_name,
    check_writable,
    contrast_of,
    in_scanpy_terms,
    rare_genes,
    spelled,
)
from standout.errors import FeatureWarning, InputError, listed, warn_user
from standout.io.source import ArraySource, Source, block_rows

# Warn if, of the top _TOP genes of a component, at least _RARE are expressed in fewer than _FEW_CELLS background cells.
_TOP, _RARE, _FEW_CELLS = 10, 3, 3
# Fitted attributes that are written to uns.
_ARRAYS = ("ratios", "target_variance", "background_variance", "debiased_ratios", "mix")
_SCALARS = ("noise_edge", "p_value", "shrinkage", "n_factors", "regime", "solver")
# Default keys of obsm and varm, by the key of uns.
_KEYS = {"dpca": ("X_dpca", "dPCs"), "cpca": ("X_cpca", "cPCs")}
# A layer is a CSR matrix if at most this share of its columns is not zero: then it is no larger than an array.
_SPARSE_SHARE = 0.5


@in_scanpy_terms
def dpca(
    adata: Any,
    background: Any = None,
    *,
    groupby: str | None = None,
    target: Any = None,
    layer: str | None = None,
    use_raw: bool = False,
    n_comps: int | str | None = 2,
    mask_var: Any = HIGHLY_VARIABLE,
    min_cells: int | None = None,
    subjects: str | None = None,
    key_added: str | None = None,
    copy: bool = False,
    **params: Any,
) -> Any:
    """Find variation among some cells of an AnnData that other cells do not have.

    Sparse data stay sparse, a backed AnnData stays on disk, and a Dask-backed one stays lazy.

    Parameters
    ----------
    adata : AnnData of shape (n_obs, n_vars)
        The cells. Log-normalised values are recommended; raw counts are accepted.
    background : label, list of labels, AnnData, list or dict of AnnData, optional
        With ``groupby``: the label(s) of the background cells; each label of a list is a background with its own mean.
        Without ``groupby``: other cells, whose genes are matched by name. Without a background the result is PCA.
    groupby : str, optional
        Column of ``adata.obs`` with the labels of target and background cells.
    target : label or list of labels, optional
        With ``groupby``: the label(s) of the target cells; by default all labelled cells that are not background.
    layer : str, optional
        Layer to use instead of ``X``.
    use_raw : bool, default=False
        Whether to use the values of ``adata.raw`` instead of ``X``, for the genes of ``adata``.
    n_comps : int, None or "auto", default=2
        Number of components, as ``n_components`` of :class:`standout.DPCA`.
    mask_var : str, array of bool of shape (n_vars,) or None, optional
        Genes to use: a boolean column of ``adata.var``, a boolean array, or a boolean series with gene names as its
        index. The other genes get weight zero. As in scanpy, the default is the column ``"highly_variable"`` if it
        exists, and None is all genes.
    min_cells : int, optional
        Drop genes that are expressed in some, but fewer than this many, background cells: a variance estimated from
        one or two cells is unreliable, and such genes can dominate the components. Genes that no background cell
        expresses are kept.
    subjects : str, optional
        Column of ``obs`` with the independent unit (donor, sample) of each cell. Significance is then based on the
        number of subjects instead of cells.
    key_added : str, optional
        Key of the results, as in scanpy: ``obsm[key_added]``, ``varm[key_added]`` and ``uns[key_added]``.
    copy : bool, default=False
        Return a copy with the results instead of writing them to ``adata``.
    **params
        Other parameters of :class:`standout.DPCA`, such as ``shrinkage`` or ``features="common"``.

    Returns
    -------
    AnnData or None
        The copy if ``copy=True``. These results are written, with k components:

        ``obsm["X_dpca"]`` : scores of all cells, in the target or not, (n_obs, k); a dask array if the data are.
        ``varm["dPCs"]`` : filters, (n_vars, k). Scores are ``(X - mean) @ dPCs``. Interpret the patterns instead.
        ``varm["dPCs_patterns"]`` : patterns, (n_vars, k): the change of the genes along each component.
        ``uns["dpca"]`` : as from scanpy's PCA, ``params``, ``variance`` and ``variance_ratio`` (of the target); in
        addition ``ratios``, ``target_variance``, ``background_variance``, ``debiased_ratios``, ``noise_edge``,
        ``p_value``, ``shrinkage``, ``n_factors``, ``regime``, ``solver``, ``mix``, ``method``, ``mean``, ``scale``
        (background sd of each gene), and the text of all warnings as ``notes``.

    See Also
    --------
    standout.anndata.test : Test whether the components are real.
    standout.anndata.plot : Plot scores and top genes.
    standout.anndata.cpca : Contrastive PCA.
    standout.DPCA : The estimator, for arrays and data frames.

    Examples
    --------
    >>> import anndata, numpy as np, pandas as pd
    >>> import standout.anndata
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(900, 4))
    >>> X[:300, 2] *= 3                                            # varies more in stimulated cells
    >>> obs = pd.DataFrame({"condition": ["stim"] * 300 + ["ctrl"] * 600}, index=[f"cell{i}" for i in range(900)])
    >>> adata = anndata.AnnData(X, obs=obs, var=pd.DataFrame(index=["CD4", "IL2", "IFNG", "ACTB"]))
    >>> standout.anndata.dpca(adata, groupby="condition", target="stim", background="ctrl", n_comps=1)
    >>> adata.obsm["X_dpca"].shape, adata.varm["dPCs_patterns"].shape
    ((900, 1), (4, 1))
    >>> adata.var_names[np.abs(adata.varm["dPCs_patterns"][:, 0]).argmax()]
    'IFNG'
    >>> bool(adata.uns["dpca"]["ratios"][0] > adata.uns["dpca"]["noise_edge"])
    True
    """
    check_writable(adata, copy, key_added)
    model = checked_estimator(DPCA, n_comps, params)
    contrast = contrast_of(
        adata, background, groupby=groupby, target=target, layer=layer, use_raw=use_raw, mask_var=mask_var,
        min_cells=min_cells, subjects=subjects,
    )  # fmt: skip
    model.fit(contrast.target, background=contrast.background)
    rare = _warn_of_rare_genes(model, contrast) if min_cells is None and model.regime_ == "shrunk" else []
    return _store(adata, model, contrast, key_added or "dpca", copy, {"n_comps": n_comps, **params}, notes=rare)


@in_scanpy_terms
def cpca(
    adata: Any, background: Any = None, *, alpha: str | float = "auto", groupby: str | None = None, target: Any = None,
    layer: str | None = None, use_raw: bool = False, n_comps: int | None = 2, mask_var: Any = HIGHLY_VARIABLE,
    min_cells: int | None = None, subjects: str | None = None, key_added: str | None = None, copy: bool = False,
    **params: Any,
) -> Any:  # fmt: skip
    """Find directions with a large variance in some cells minus alpha times the variance in others.

    Contrastive PCA with orthonormal components, so that distances between scores are distances between cells.

    Parameters
    ----------
    adata, background, groupby, target, layer, use_raw, n_comps, mask_var, min_cells, subjects, key_added, copy
        As in :func:`standout.anndata.dpca`.
    alpha : "auto", "trace_ratio" or float, default="auto"
        Weight of the background, as in :class:`standout.CPCA`: 0 is PCA, and "auto" searches.
    **params
        Other parameters of :class:`standout.CPCA`, such as ``grid`` or ``affinity``.

    Returns
    -------
    AnnData or None
        The copy if ``copy=True``. Results are written as by :func:`standout.anndata.dpca`, to ``obsm["X_cpca"]``,
        ``varm["cPCs"]``, ``varm["cPCs_patterns"]`` and ``uns["cpca"]``, which also has ``alpha`` and, after a search,
        ``representative_alphas``: one for each cluster of similar subspaces.

    See Also
    --------
    standout.anndata.dpca : The ratio of the variances instead of a difference; needs no alpha.
    standout.CPCA : The estimator, for arrays and data frames.

    Examples
    --------
    >>> import anndata, numpy as np, standout.anndata
    >>> adata = anndata.AnnData(np.random.default_rng(0).normal(size=(900, 4)) * [9, 1, 1, 1])
    >>> adata.X[:300, 2] *= 3
    >>> adata.var_names, adata.obs["condition"] = ["CD4", "IL2", "IFNG", "ACTB"], ["stim"] * 300 + ["ctrl"] * 600
    >>> standout.anndata.cpca(adata, groupby="condition", background="ctrl", n_comps=1)
    >>> adata.var_names[np.abs(adata.varm["cPCs"][:, 0]).argmax()], bool(adata.uns["cpca"]["alpha"] > 0)
    ('IFNG', True)
    """
    check_writable(adata, copy, key_added)
    model = checked_estimator(CPCA, n_comps, {"alpha": alpha, **params})
    contrast = contrast_of(
        adata, background, groupby=groupby, target=target, layer=layer, use_raw=use_raw, mask_var=mask_var,
        min_cells=min_cells, subjects=subjects,
    )  # fmt: skip
    model.fit(contrast.target, background=contrast.background)
    found = {"alpha": model.alpha_}
    if model.path_ is not None:
        found["representative_alphas"] = model.path_.representative_values
    arguments = {"n_comps": n_comps, "alpha": alpha, **params}
    return _store(adata, model, contrast, key_added or "cpca", copy, arguments, found)


@in_scanpy_terms
def denoise(
    adata: Any, background: Any = None, *, groupby: str | None = None, target: Any = None, layer: str | None = None,
    use_raw: bool = False, n_comps: int | str | None = 2, mask_var: Any = HIGHLY_VARIABLE,
    min_cells: int | None = None, subjects: str | None = None, key_added: str | None = None, copy: bool = False,
    **params: Any,
) -> Any:  # fmt: skip
    """Write the part of the expression of each cell that is specific to the target to a layer.

    As :meth:`standout.DPCA.denoise`, in the units of the data and centred at the mean of the target. Cells are read
    in blocks, so the layer is the only large array.

    Parameters
    ----------
    adata, background, groupby, target, layer, use_raw, mask_var, min_cells, subjects, copy, **params
        As in :func:`standout.anndata.dpca`.
    n_comps : int, None or "auto", default=2
        Number of components. All above the noise edge are used, unless there is no noise edge or there are more genes
        than cells: then it is these.
    key_added : str, optional
        The layer; ``"denoised"`` by default.

    Returns
    -------
    AnnData or None
        The copy if ``copy=True``. The layer, (n_obs, n_vars), is written for all cells. Genes that are not used are
        zero, and if these are at least half of all, the layer is a CSR matrix. It is float32 if the data are, and a
        lazy dask array for a Dask-backed AnnData.

    See Also
    --------
    standout.anndata.dpca : Write components instead.
    standout.DPCA.denoise : The same for arrays and data frames.

    Examples
    --------
    >>> import anndata, numpy as np, standout.anndata
    >>> adata = anndata.AnnData(np.random.default_rng(0).normal(size=(900, 4)))
    >>> adata.X[:300, 2] *= 3
    >>> adata.var_names, adata.obs["condition"] = ["CD4", "IL2", "IFNG", "ACTB"], ["stim"] * 300 + ["ctrl"] * 600
    >>> standout.anndata.denoise(adata, groupby="condition", background="ctrl")
    >>> adata[:300].layers["denoised"].std(axis=0).round(1)
    array([0.1, 0. , 2.6, 0. ])
    """
    check_writable(adata, copy, key_added)
    model = checked_estimator(DPCA, n_comps, params)
    contrast = contrast_of(
        adata, background, groupby=groupby, target=target, layer=layer, use_raw=use_raw, mask_var=mask_var,
        min_cells=min_cells, subjects=subjects,
    )  # fmt: skip
    size, memory = 4 * adata.n_obs * int(contrast.used.sum()), physical_memory()
    if contrast.cells.is_local and size > memory > 0:
        problem = f"the layer would take {size / 1e9:,.1f} GB, more than the memory of this machine"
        raise InputError(f"adata: {problem}. Choose fewer genes with mask_var=, or give fewer cells.")
    model.fit(contrast.target, background=contrast.background)
    found = _denoised_layer(model._denoiser(), contrast)
    out = adata.copy() if copy else adata
    out.layers[key_added or "denoised"] = found
    return out if copy else None


def checked_estimator(kind: type[Any], n_comps: Any, params: dict[str, Any]) -> Any:
    """Return the estimator; unknown parameters and impossible values raise before anything is read."""
    names = [name for name in inspect.signature(kind).parameters if name not in ("n_components", "background_label")]
    for name in params:
        check_name("parameter", name, names, f"a parameter of {kind.__name__}")
    estimator = kind(n_components=n_comps, **params)
    estimator._check_parameters()
    return estimator


def keys_of(key: str) -> tuple[str, str]:
    """Return the keys of obsm and varm for the results under a key of uns."""
    return _KEYS.get(key, (key, key))


def storable(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments in types that an h5ad file can store, without those that are None."""

    def stored(value: Any) -> Any:
        if isinstance(value, str | bool | int | float | np.ndarray):
            return value
        return np.array([str(item) for item in value]) if isinstance(value, list | tuple | set) else str(value)

    mask = {"mask_var": None} if arguments["mask_var"] is None else {}  # as scanpy

    return {name: stored(value) for name, value in arguments.items() if value is not None} | mask


def _store(
    adata: Any, model: Any, contrast: Contrast, key: str, copy: bool, arguments: dict[str, Any],
    more: dict[str, Any] | None = None, notes: list[str] | None = None,
) -> Any:  # fmt: skip
    """Compute everything that is written, then write it."""
    solved, used = model._solved(), contrast.used
    scores = model._scores(contrast.cells)
    results = {
        "params": storable({**contrast.params, **arguments}),
        "variance": model.explained_variance_,
        "variance_ratio": model.explained_variance_ratio_,
        **{name: np.asarray(getattr(model, f"{name}_")) for name in _ARRAYS},
        **{name: getattr(model, f"{name}_") for name in _SCALARS},
        **(more or {}),
        "method": solved.method,
        "mean": _for_all_genes(model.mean_, used),
        "scale": _for_all_genes(solved.scale, used, 1.0),
        "notes": "\n".join([*(spelled(note.text) for note in solved.notes), *(notes or [])]),
    }
    obsm, varm = keys_of(key)
    out = adata.copy() if copy else adata
    out.obsm[obsm] = scores
    out.varm[varm] = _for_all_genes(model.components_.T, used)
    out.varm[f"{varm}_patterns"] = _for_all_genes(model.patterns_.T, used)
    out.uns[key] = results
    return out if copy else None


def _for_all_genes(values: Array, used: Mask, fill: float = 0.0) -> Array:
    full = np.full((len(used), *values.shape[1:]), fill)
    full[used] = values
    return full


def _warn_of_rare_genes(model: BaseContrast, contrast: Contrast) -> list[str]:
    """Warn if components consist of genes whose background variance is estimated from one or two cells."""
    if not contrast.backgrounds or model.n_components_ == 0:
        return []
    rare = frozenset(contrast.genes[rare_genes(contrast.backgrounds, contrast.genes, _FEW_CELLS)])
    tops = [[top.feature for top in component if top.feature in rare] for component in model.top_features(_TOP)]
    worst = int(np.argmax([len(top) for top in tops]))
    if len(tops[worst]) < _RARE:
        return []
    text = (
        f"{len(tops[worst])} of the {_TOP} top genes of component {worst} are expressed in fewer than {_FEW_CELLS} "
        f"background cells ({listed(tops[worst], 3)}), so their background variance is unreliable. Use "
        f"min_cells={_FEW_CELLS} to drop such genes."
    )
    warn_user(text, FeatureWarning)
    return [text]


def _denoised_layer(denoiser: Model, contrast: Contrast) -> Any:
    """Return the denoised values of all cells and genes: an array, a CSR matrix, or a lazy dask array."""
    cells, used = contrast.cells, contrast.used
    if not cells.is_local:
        return cells.map_rows(partial(_denoised_rows, denoiser, used), contrast.genes)
    n_cells, n_used, start = cells.n_rows or 0, int(used.sum()), 0
    wide = n_used > _SPARSE_SHARE * len(used)
    values: Any = None
    for block in cells.blocks(block_rows(cells.n_features)):
        if values is None:
            kind = np.float32 if block.dtype == np.float32 else np.float64
            values = np.zeros((n_cells, len(used) if wide else n_used), kind)
        stop = start + len(block)
        values[start:stop, used if wide else slice(None)] = denoiser.denoise(ArraySource(block, cells.names), "adata")
        start = stop
    if wide:
        return values
    pointers, columns = n_used * np.arange(n_cells + 1), np.tile(np.flatnonzero(used).astype(np.int32), n_cells)
    return sparse.csr_matrix((values.ravel(), columns, pointers), (n_cells, len(used)))


def _denoised_rows(denoiser: Model, used: Mask, rows: Source) -> Array:
    return _for_all_genes(denoiser.denoise(rows).T, used).T
