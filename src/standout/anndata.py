"""dPCA on an AnnData, with the results where scanpy's users look for them."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout._blas import Array
from standout._dpca import DPCA
from standout._inputs import background_name, check_count, label_list
from standout.errors import FeatureWarning, InputError, did_you_mean, listed, warn_user
from standout.io.memory import is_missing
from standout.io.read import read
from standout.io.source import RowView, Source, block_rows, select_columns

__all__ = ["dpca"]

# Among this many top genes of a component, so many that hardly any background cell has are worth a warning.
_TOP, _RARE, _FEW_CELLS = 10, 3, 3

_ARRAYS = ("ratios", "target_variance", "background_variance", "debiased_ratios", "mix")
_SINGLE = ("noise_edge", "p_value", "shrinkage", "regime", "solver")


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
    """Find what varies among some cells of an AnnData and not among others.

    Sparse data stays sparse, and a backed AnnData stays on disk.

    Parameters
    ----------
    adata : AnnData of shape (n_obs, n_vars)
        The cells. Log-normalised values suit best; raw counts are taken as they are.
    background : label, list of labels, AnnData, list or dict of AnnData, optional
        With ``groupby``: which cells are background (a list: several backgrounds, each with its own mean).
        Without: other cells, whose genes are matched by name. Without any background it is PCA.
    groupby : str, optional
        Column of ``adata.obs`` that says which cells are which.
    target : label or list of labels, optional
        With ``groupby``: which cells are the target; by default all that are not background and have a label.
    layer : str, optional
        Layer to use instead of ``X``.
    n_comps : int, None or "auto", default=2
        How many components, as ``n_components`` of :class:`standout.DPCA`.
    mask_var : str or array of bool of shape (n_vars,), optional
        Genes to use: a column of ``adata.var`` such as ``"highly_variable"``, or the truth values themselves. The
        others get weight zero. By default every gene is used.
    min_cells : int, optional
        Leave out genes that fewer background cells have, though some do: a variance that rests on one or two cells
        is not known, and such genes can take over the components. Genes that no background cell has stay.
    subjects : str, optional
        Column of ``obs`` with the independent unit (donor, sample) of each cell: the honest count.
    key_added : str, optional
        Where results go, as in scanpy: ``obsm[key_added]``, ``varm[key_added]`` and ``uns[key_added]``.
    copy : bool, default=False
        Return a copy with the results instead of writing them into ``adata``.
    **params
        Other parameters of :class:`standout.DPCA`, such as ``shrinkage`` or ``features="common"``.

    Returns
    -------
    AnnData or None
        With ``copy=True`` the copy. These are written, with k components:

        ``obsm["X_dpca"]`` : scores of every cell of ``adata``, whether in the target or not, (n_obs, k).
        ``varm["dPCs"]`` : filters, (n_vars, k): ``(X - mean) @ dPCs`` are the scores. Not to be read as loadings.
        ``varm["dPCs_patterns"]`` : patterns, (n_vars, k): what each component looks like in the genes. Read these.
        ``uns["dpca"]`` : ``ratios``, ``target_variance``, ``background_variance``, ``debiased_ratios``,
        ``noise_edge``, ``p_value``, ``shrinkage``, ``regime``, ``solver``, ``mix``, ``mean``, ``params``, and the
        warnings as text in ``notes``.

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
    source = read(adata, role="adata", key=_layer(adata, layer), groups=_obs_column("subjects", subjects, adata))
    if groupby is not None:
        sides = _by_label(source, adata, groupby, target, background)
    else:
        sides = Sides(source, _given(background, layer, subjects))
    used = _masked(adata, mask_var)
    if min_cells is not None:
        used &= ~_seen_by_few(sides, adata.var_names, check_count("min_cells", min_cells))
    if not used.any():
        raise InputError("mask_var and min_cells leave no gene. Choose more of them.")
    left_out = frozenset(adata.var_names[~used])
    chosen = sides.without(left_out)
    model = DPCA(n_components=n_comps, **params).fit(chosen.target, background=chosen.background)
    notes = [note.text for note in model._solved().notes]
    if min_cells is None and model.regime_ == "shrunk":
        notes += _rare_on_top(model, sides, adata.var_names)
    asked = {
        "groupby": groupby, "target": target, "background": background if groupby is not None else None, "layer": layer,
        "n_comps": n_comps, "min_cells": min_cells, "subjects": subjects, **params,
    }  # fmt: skip
    out = adata.copy() if copy else adata
    _write(out, model, model.transform(_without(source, left_out)), used, notes, asked, key_added)
    return out if copy else None


@dataclass(frozen=True)
class Sides:
    """The target, and the backgrounds as ``fit`` takes them: none, one, or several under their names."""

    target: Source
    background: Source | dict[Any, Source] | None = None

    @property
    def backgrounds(self) -> list[Source]:
        """All backgrounds."""
        if self.background is None:
            return []
        return list(self.background.values()) if isinstance(self.background, dict) else [self.background]

    def without(self, genes: frozenset[str]) -> Sides:
        """Return target and backgrounds without these genes."""
        background = self.background
        if isinstance(background, dict):
            background = {name: _without(source, genes) for name, source in background.items()}
        elif background is not None:
            background = _without(background, genes)
        return Sides(_without(self.target, genes), background)


def _without(source: Source, genes: frozenset[str]) -> Source:
    """Return a source without these genes; all others stay, so that the estimator tells what does not fit."""
    if not genes:
        return source
    kept = [place for place, name in enumerate(source.names or ()) if name not in genes]
    return select_columns(source, np.array(kept, dtype=np.intp))


def _check_arguments(
    adata: Any, background: Any, groupby: str | None, target: Any, copy: bool, params: Mapping[str, Any]
) -> None:
    """Refuse arguments that do not go together, before anything is read."""
    if not _is_anndata(adata):
        raise InputError(f"adata: {type(adata).__name__} is not an AnnData. Use standout.DPCA for other data.")
    if copy and adata.isbacked:
        raise InputError("copy=True: a backed AnnData cannot be copied in memory. Use copy=False, or load it first.")
    known = [name for name in inspect.signature(DPCA).parameters if name not in ("n_components", "background_label")]
    unknown = [name for name in params if name not in known]
    if unknown:
        raise InputError(
            f"{unknown[0]!r} is no parameter.{did_you_mean(unknown[0], known)} Use one of {listed(known, 20)}."
        )
    if groupby is None and target is not None:
        raise InputError(f"target={target!r} is a label, and groupby does not say of which column. Give groupby=.")
    if groupby is not None and background is None:
        raise InputError(
            f"groupby={groupby!r}, and nothing says which cells are background. Give background=, a label."
        )
    if groupby is not None and any(map(_is_anndata, [background, *_several(background).values()])):
        raise InputError("background: with groupby it is a label. Give a label, or leave groupby out.")


def _is_anndata(data: Any) -> bool:
    return type(data).__name__ == "AnnData" and hasattr(data, "obs") and hasattr(data, "var")


def _obs_column(argument: str, column: str | None, adata: Any) -> str | None:
    """Return a column of obs that exists, or None."""
    if column is not None and column not in adata.obs.columns:
        columns = [str(name) for name in adata.obs.columns]
        raise InputError(
            f"{argument}={column!r} is not a column of adata.obs.{did_you_mean(str(column), columns)} Use one of "
            f"{listed(columns, 10)}."
        )
    return column


def _layer(adata: Any, layer: str | None) -> str | None:
    """Return the key of a layer that exists, or None."""
    if layer is None:
        return None
    if layer not in adata.layers:
        layers = list(adata.layers)
        use = f"Use one of {listed(layers, 10)}, or leave layer= out." if layers else "Leave layer= out."
        raise InputError(f"layer={layer!r} is not there.{did_you_mean(str(layer), layers)} {use}")
    return f"layers/{layer}"


def _by_label(source: Source, adata: Any, groupby: str, target: Any, background: Any) -> Sides:
    """Split the cells by their labels, without copying them."""
    values = np.asarray(adata.obs[_obs_column("groupby", groupby, adata)], dtype=object)
    text = np.array([None if is_missing(value) else str(value) for value in values], dtype=object)
    backgrounds = {label: _cells(text, label, "background", groupby) for label in label_list(background)}
    if not backgrounds:
        raise InputError("background: an empty list was given. Name at least one label.")
    taken = np.any(list(backgrounds.values()), axis=0)
    if target is None:
        chosen = ~taken & (text != None)  # noqa: E711 - element by element
    else:
        chosen = np.any([_cells(text, label, "target", groupby) for label in label_list(target)], axis=0)
    if (chosen & taken).any() or not chosen.any():
        raise InputError(
            f"target={target!r} and background={background!r}: of {len(text)} cells {int(chosen.sum())} are target and "
            f"{int((chosen & taken).sum())} both. Give labels that share no cell and leave some for the target."
        )
    parts: dict[Any, Source] = {label: _rows(source, mask) for label, mask in backgrounds.items()}
    return Sides(_rows(source, chosen), parts if len(parts) > 1 else next(iter(parts.values())))


def _rows(source: Any, mask: NDArray[np.bool_]) -> Source:
    return RowView(source, np.flatnonzero(mask))


def _cells(text: NDArray[Any], label: Any, argument: str, groupby: str) -> NDArray[np.bool_]:
    """Return which cells have a label, or say which labels there are."""
    found = np.asarray(text == str(label), dtype=bool)
    if not found.any():
        labels = list(dict.fromkeys(value for value in text if value is not None))
        raise InputError(
            f"{argument}={label!r} does not occur in adata.obs[{groupby!r}].{did_you_mean(str(label), labels)} Use one "
            f"of {listed(labels, 10)}."
        )
    return found


def _several(background: Any) -> dict[Any, Any]:
    """Return several backgrounds under their names; one alone is not several."""
    if isinstance(background, Mapping):
        return dict(background)
    return dict(enumerate(background)) if isinstance(background, list | tuple) else {}


def _given(background: Any, layer: str | None, subjects: str | None) -> Source | dict[Any, Source] | None:
    """Read other AnnData, in memory or in files."""

    def opened(data: Any, role: str) -> Source:
        if not (_is_anndata(data) or (isinstance(data, str | PathLike) and Path(data).exists())):
            shown = repr(data) if isinstance(data, str | int) else type(data).__name__
            raise InputError(
                f"{role}: {shown} is neither an AnnData nor a file. Give one of these, or a label together with "
                "groupby=."
            )
        return read(data, role=role, key=None if layer is None else f"layers/{layer}", groups=subjects)

    if background is None:
        return None
    if isinstance(background, Mapping | list | tuple):
        return {name: opened(data, background_name(name)) for name, data in _several(background).items()}
    return opened(background, "background")


def _masked(adata: Any, mask: Any) -> NDArray[np.bool_]:
    """Return which genes to use."""
    if mask is None:
        return np.ones(adata.n_vars, dtype=bool)
    if isinstance(mask, str):
        if mask not in adata.var.columns:
            columns = [str(name) for name in adata.var.columns]
            use = f"Use one of {listed(columns, 10)}." if columns else "Give truth values, one for each gene."
            raise InputError(f"mask_var={mask!r} is not a column of adata.var.{did_you_mean(mask, columns)} {use}")
        mask = adata.var[mask]
    values = np.asarray(mask)
    if values.dtype != bool or values.shape != (adata.n_vars,):
        raise InputError(
            f"mask_var: values of type {values.dtype} and shape {values.shape} for {adata.n_vars} genes. Give one "
            "truth value for each gene."
        )
    return values.copy()


def _seen_by_few(sides: Sides, genes: Any, few: int) -> NDArray[np.bool_]:
    """Return which genes are seen in some background cells, but in fewer than ``few``."""
    seen: Counter[str] = Counter()
    for source in sides.backgrounds:
        total = np.zeros(source.n_features, dtype=np.int64)
        for block in source.blocks(block_rows(source.n_features)):
            total += np.count_nonzero(block, axis=0)
        seen.update(dict(zip(source.names or (), total.tolist(), strict=True)))
    count = np.array([seen[gene] for gene in genes])
    return (count > 0) & (count < few)


def _rare_on_top(model: DPCA, sides: Sides, genes: Any) -> list[str]:
    """Warn where components are made of genes whose background variance rests on one or two cells."""
    if not sides.backgrounds or model.n_components_ == 0:
        return []
    rare = frozenset(genes[_seen_by_few(sides, genes, _FEW_CELLS)])
    tops = [[top.feature for top in component if top.feature in rare] for component in model.top_features(_TOP)]
    worst = int(np.argmax([len(top) for top in tops]))
    if len(tops[worst]) < _RARE:
        return []
    text = (
        f"{len(tops[worst])} of the {_TOP} top genes of component {worst} are seen in fewer than {_FEW_CELLS} "
        f"background cells ({listed(tops[worst], 3)}), so their background variance is hardly known. Use "
        f"min_cells={_FEW_CELLS} to leave out such genes."
    )
    warn_user(text, FeatureWarning)
    return [text]


def _write(
    adata: Any, model: DPCA, scores: Array, used: NDArray[np.bool_], notes: list[str], asked: dict[str, Any],
    key: str | None,
) -> None:  # fmt: skip
    """Write the results where scanpy would; all of it can be saved in an h5ad file."""
    obsm, varm, uns = ("X_dpca", "dPCs", "dpca") if key is None else (key, key, key)

    def wide(values: Array) -> Array:
        found = np.zeros((len(used), *values.shape[1:]))
        found[used] = values
        return found

    adata.obsm[obsm] = scores
    adata.varm[varm] = wide(model.components_.T)
    adata.varm[f"{varm}_patterns"] = wide(model.patterns_.T)
    adata.uns[uns] = {
        "params": {name: _plain(value) for name, value in asked.items() if value is not None},
        **{name: np.asarray(getattr(model, f"{name}_")) for name in _ARRAYS},
        **{name: getattr(model, f"{name}_") for name in _SINGLE},
        "mean": wide(model.mean_),
        "notes": "\n".join(notes),
    }


def _plain(value: Any) -> Any:
    """Return a parameter as an h5ad file can hold it."""
    if isinstance(value, str | bool | int | float | np.ndarray):
        return value
    return np.array([str(item) for item in value]) if isinstance(value, list | tuple | set) else str(value)
