"""Scanpy-style interface for AnnData."""

from __future__ import annotations

import inspect
import warnings
from collections import Counter
from collections.abc import Collection, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout._blas import Array
from standout._dpca import DPCA
from standout._inputs import background_name, check_count, label_list
from standout.errors import (
    FeatureWarning,
    InputError,
    ReplicateWarning,
    did_you_mean,
    listed,
    spell_arguments,
    warn_user,
)
from standout.io.memory import is_missing
from standout.io.read import read
from standout.io.source import RowView, Source, block_rows, select_columns

__all__ = ["dpca"]

# Warn if, of the top _TOP genes of a component, at least _RARE are expressed in fewer than _FEW_CELLS background cells.
_TOP, _RARE, _FEW_CELLS = 10, 3, 3
# Name of a single background.
_SINGLE = None
# Fitted attributes that are written to uns.
_ARRAYS = ("ratios", "target_variance", "background_variance", "debiased_ratios", "mix")
_SCALARS = ("noise_edge", "p_value", "shrinkage", "regime", "solver")


def dpca(
    adata: Any,
    background: Any = None,
    *,
    groupby: str | None = None,
    target: Any = None,
    layer: str | None = None,
    n_comps: int | str | None = 2,
    mask_var: str | Any | None = None,
    min_cells: int | None = None,
    subjects: str | None = None,
    key_added: str | None = None,
    copy: bool = False,
    **params: Any,
) -> Any:
    """Find variation among some cells of an AnnData that other cells do not have.

    Sparse data stay sparse, and a backed AnnData stays on disk.

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
    n_comps : int, None or "auto", default=2
        Number of components, as ``n_components`` of :class:`standout.DPCA`.
    mask_var : str or array of bool of shape (n_vars,), optional
        Genes to use: a boolean column of ``adata.var`` such as ``"highly_variable"``, or a boolean array. The other
        genes get weight zero. By default every gene is used.
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

        ``obsm["X_dpca"]`` : scores of all cells, in the target or not, (n_obs, k).
        ``varm["dPCs"]`` : filters, (n_vars, k). Scores are ``(X - mean) @ dPCs``. Interpret the patterns instead.
        ``varm["dPCs_patterns"]`` : patterns, (n_vars, k): the change of the genes along each component.
        ``uns["dpca"]`` : ``ratios``, ``target_variance``, ``background_variance``, ``debiased_ratios``,
        ``noise_edge``, ``p_value``, ``shrinkage``, ``regime``, ``solver``, ``mix``, ``mean``, ``params``, and the
        text of all warnings as ``notes``.

    See Also
    --------
    standout.DPCA : The estimator, for arrays and data frames.
    standout.assess : Tests of significance, held-out ratio and stability.
    standout.read : Reads h5ad files.

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
    _check_arguments(adata, background, groupby, target, copy, params)
    if layer is not None:
        _check_choice("layer", layer, adata.layers, "a layer of adata", "leave layer= out")
    for name, column in (("subjects", subjects), ("groupby", groupby)):
        if column is not None:
            _check_choice(name, column, adata.obs.columns, "a column of adata.obs")
    key = None if layer is None else f"layers/{layer}"
    source = read(adata, role="adata", key=key, groups=subjects)
    if groupby is not None:
        cells, backgrounds = _split_by_label(source, adata, groupby, target, background)
    else:
        cells, backgrounds = source, _read_backgrounds(background, key, subjects)
    used = _gene_mask(adata, mask_var)
    if min_cells is not None:
        used &= ~_rare_genes(backgrounds, adata.var_names, check_count("min_cells", min_cells))
    if not used.any():
        raise InputError("mask_var and min_cells leave no gene. Choose more genes.")
    dropped = frozenset(adata.var_names[~used])
    fitted = {name: _without(part, dropped) for name, part in backgrounds.items()}
    model = DPCA(n_components=n_comps, **params)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ReplicateWarning)  # worded for this function below
        model.fit(_without(cells, dropped), background=None if background is None else fitted.get(_SINGLE, fitted))
    notes = []
    for note in model._solved().notes:
        notes.append(spell_arguments(note.text, _spelling))
        if note.category is ReplicateWarning:
            warn_user(notes[-1], note.category)
    if min_cells is None and model.regime_ == "shrunk":
        notes += _warn_of_rare_genes(model, backgrounds, adata.var_names)
    arguments = {
        "groupby": groupby, "target": target, "background": background if groupby is not None else None, "layer": layer,
        "n_comps": n_comps, "min_cells": min_cells, "subjects": subjects, **params,
    }  # fmt: skip
    scores = model._scores(_without(source, dropped))
    out = adata.copy() if copy else adata
    obsm, varm, uns = ("X_dpca", "dPCs", "dpca") if key_added is None else (key_added,) * 3
    out.obsm[obsm] = scores
    out.varm[varm] = _for_all_genes(model.components_.T, used)
    out.varm[f"{varm}_patterns"] = _for_all_genes(model.patterns_.T, used)
    out.uns[uns] = {
        "params": {name: _storable(value) for name, value in arguments.items() if value is not None},
        **{name: np.asarray(getattr(model, f"{name}_")) for name in _ARRAYS},
        **{name: getattr(model, f"{name}_") for name in _SCALARS},
        "mean": _for_all_genes(model.mean_, used),
        "notes": "\n".join(notes),
    }
    return out if copy else None


def _spelling(name: str, value: object) -> str | None:
    return f"`subjects={value!r}`" if name == "groups" and value is not ... else None


def _check_arguments(
    adata: Any, background: Any, groupby: str | None, target: Any, copy: bool, params: Mapping[str, Any]
) -> None:
    """Refuse inconsistent arguments before anything is read."""
    if not _is_anndata(adata):
        raise InputError(f"adata: {type(adata).__name__} is not an AnnData. Use standout.DPCA for other data.")
    if copy and adata.isbacked:
        raise InputError("copy=True: a backed AnnData cannot be copied in memory. Use copy=False, or load it first.")
    names = [name for name in inspect.signature(DPCA).parameters if name not in ("n_components", "background_label")]
    for name in params:
        _check_choice("parameter", name, names, "a parameter of DPCA")
    if groupby is None and target is not None:
        raise InputError(f"target={target!r} is a label, but there is no groupby. Give groupby=, the column of labels.")
    if groupby is not None and background is None:
        raise InputError(f"groupby={groupby!r} needs a background label. Give background=.")
    if groupby is not None and any(map(_is_anndata, _by_name(background).values())):
        raise InputError("background: an AnnData was given together with groupby. Give a label, or drop groupby.")


def _is_anndata(data: Any) -> bool:
    return type(data).__name__ == "AnnData" and hasattr(data, "obs") and hasattr(data, "var")


def _check_choice(argument: str, given: Any, choices: Collection[Any], what: str, otherwise: str = "") -> None:
    """Raise an error if a name is not one of the choices."""
    if given not in choices:
        names = [str(choice) for choice in choices]
        remedy = f"Use one of {listed(names, 20) or 'those that exist'}{otherwise and f', or {otherwise}'}."
        raise InputError(f"{argument}={given!r} is not {what}.{did_you_mean(given, names)} {remedy}")


def _split_by_label(
    source: Any, adata: Any, groupby: str, target: Any, background: Any
) -> tuple[Source, dict[Any, Source]]:
    """Return views of the target cells and of the cells of each background label."""
    values = np.asarray(adata.obs[groupby], dtype=object)
    text = np.array([None if is_missing(value) else str(value) for value in values], dtype=object)
    labels = [label for label in dict.fromkeys(text) if label is not None]
    chosen = {"background": label_list(background), "target": labels if target is None else label_list(target)}
    for argument, given in chosen.items():
        if not given:
            raise InputError(f"{argument}: the list is empty. Give at least one label.")
        for label in given:
            _check_choice(argument, str(label), labels, f"a label in adata.obs[{groupby!r}]")
    in_background = np.isin(text, [str(label) for label in chosen["background"]])
    if target is None:
        in_target = ~in_background & (text != None)  # noqa: E711 - elementwise
    else:
        in_target = np.isin(text, [str(label) for label in chosen["target"]])
    both = int((in_target & in_background).sum())
    if both or not in_target.any():
        found = f"of {len(text)} cells, {int(in_target.sum())} are target and {both} are both"
        remedy = "Give distinct labels that leave cells for the target."
        raise InputError(f"target={target!r} and background={background!r}: {found}. {remedy}")
    views: dict[Any, Source] = {
        label: RowView(source, np.flatnonzero(text == str(label))) for label in chosen["background"]
    }
    backgrounds = {_SINGLE: next(iter(views.values()))} if len(views) == 1 else views
    return RowView(source, np.flatnonzero(in_target)), backgrounds


def _by_name(background: Any) -> dict[Any, Any]:
    """Return one or several backgrounds by name."""
    if isinstance(background, Mapping):
        return dict(background)
    return dict(enumerate(background)) if isinstance(background, list | tuple) else {_SINGLE: background}


def _read_backgrounds(background: Any, key: str | None, subjects: str | None) -> dict[Any, Source]:
    """Read one or several other AnnData, in memory or in files; none if there is no background."""
    sources: dict[Any, Source] = {}
    if background is None:
        return sources
    for name, data in _by_name(background).items():
        role = "background" if name is _SINGLE else background_name(name)
        if not (_is_anndata(data) or (isinstance(data, str | PathLike) and Path(data).exists())):
            shown = repr(data) if isinstance(data, str | int) else type(data).__name__
            remedy = "Give one of these, or a label together with groupby=."
            raise InputError(f"{role}: {shown} is neither an AnnData nor a file. {remedy}")
        sources[name] = read(data, role=role, key=key, groups=subjects)
    return sources


def _gene_mask(adata: Any, mask: Any) -> NDArray[np.bool_]:
    if mask is None:
        return np.ones(adata.n_vars, dtype=bool)
    if isinstance(mask, str):
        _check_choice("mask_var", mask, adata.var.columns, "a column of adata.var", "give a boolean array")
        mask = adata.var[mask]
    values = np.array(mask)
    if values.dtype != bool or values.shape != (adata.n_vars,):
        found = f"type {values.dtype} and shape {values.shape} for {adata.n_vars} genes"
        raise InputError(f"mask_var: {found}. Give a boolean array, one value per gene.")
    return values


def _without(source: Source, genes: frozenset[str]) -> Source:
    """Return a source without these genes. Genes that only some datasets have are left to the estimator to report."""
    if not genes:
        return source
    kept = [index for index, name in enumerate(source.names or ()) if name not in genes]
    return select_columns(source, np.array(kept, dtype=np.intp))


def _rare_genes(backgrounds: Mapping[Any, Source], genes: Any, few: int) -> NDArray[np.bool_]:
    """Return which genes are expressed in at least one, but fewer than ``few``, background cells."""
    n_cells: Counter[str] = Counter()
    for source in backgrounds.values():
        total = np.zeros(source.n_features, dtype=np.int64)
        for block in source.blocks(block_rows(source.n_features)):
            total += np.count_nonzero(block, axis=0)
        n_cells.update(dict(zip(source.names or (), total.tolist(), strict=True)))
    counts = np.array([n_cells[gene] for gene in genes])
    return (counts > 0) & (counts < few)


def _warn_of_rare_genes(model: DPCA, backgrounds: Mapping[Any, Source], genes: Any) -> list[str]:
    """Warn if components consist of genes whose background variance is estimated from one or two cells."""
    if not backgrounds or model.n_components_ == 0:
        return []
    rare = frozenset(genes[_rare_genes(backgrounds, genes, _FEW_CELLS)])
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


def _for_all_genes(values: Array, used: NDArray[np.bool_]) -> Array:
    full = np.zeros((len(used), *values.shape[1:]))
    full[used] = values
    return full


def _storable(value: Any) -> Any:
    """Return a parameter in a type that an h5ad file can store."""
    if isinstance(value, str | bool | int | float | np.ndarray):
        return value
    return np.array([str(item) for item in value]) if isinstance(value, list | tuple | set) else str(value)
