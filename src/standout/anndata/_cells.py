"""The arguments that all functions share: which cells of an AnnData are contrasted, on which genes and values."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from os import PathLike
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from standout._inputs import background_name, check_count, label_list
from standout.errors import InputError, StandoutError, StandoutWarning, did_you_mean, listed, spell_arguments, warn_user
from standout.io.memory import SparseSource, is_missing
from standout.io.read import kind_of, read
from standout.io.source import RowSource, RowView, Source, block_rows, select_columns

Mask = NDArray[np.bool_]
P = ParamSpec("P")
T = TypeVar("T")
_SINGLE = None  # name of a single background
_HIGHLY_VARIABLE = "highly_variable"
# Arguments that have another name here than in the estimators.
_SCANPY_NAMES = {"groups": "subjects", "n_components": "n_comps", "key": "layer"}
# Default of ``mask_var``, as in scanpy: None is another choice, all genes.
HIGHLY_VARIABLE: Any = type("Default", (), {"__repr__": lambda _: "<highly variable>"})()


@dataclass(frozen=True)
class Contrast:
    """The target and the backgrounds of an AnnData, on the genes in use."""

    cells: Source  # all cells of the AnnData
    target: Source
    backgrounds: dict[Any, Source]  # by name
    genes: Any  # all var_names
    used: Mask  # of all genes
    params: dict[str, Any]  # the arguments, as stored in uns

    @property
    def background(self) -> Any:
        """The backgrounds as an estimator accepts them: one, several by name, or None."""
        return self.backgrounds.get(_SINGLE, self.backgrounds) or None


def contrast_of(
    adata: Any, background: Any, *, groupby: str | None, target: Any, layer: str | None, use_raw: bool, mask_var: Any,
    min_cells: int | None, subjects: str | None,
) -> Contrast:  # fmt: skip
    """Return the contrast that the arguments describe; wrong arguments raise before any cell is read."""
    if groupby is None and target is not None:
        raise InputError(f"target={target!r} is a label, but there is no groupby. Give groupby=, the column of labels.")
    if groupby is not None and background is None:
        raise InputError(f"groupby={groupby!r} needs a background label. Give background=.")
    if groupby is not None and any(kind_of(data) == "anndata" for data in _by_name(background).values()):
        raise InputError("background: an AnnData was given together with groupby. Give a label, or drop groupby.")
    for name, column in (("subjects", subjects), ("groupby", groupby)):
        if column is not None:
            check_name(name, column, adata.obs.columns, "a column of adata.obs")
    if min_cells is not None:
        min_cells = check_count("min_cells", min_cells)
    key = _matrix_key(adata, layer, use_raw)
    mask_name, used = _gene_mask(adata, mask_var)
    genes = adata.var_names
    masks = None if groupby is None else label_masks(adata, groupby, target, background)
    read_cells = partial(_read, key=key, subjects=subjects, genes=genes, dropped=frozenset(genes[~used]))
    cells = read_cells(adata, "adata")
    if masks is None:
        rows, backgrounds = cells, _read_backgrounds(background, read_cells)
    else:
        rows, *parts = (_some_cells(adata, cells, mask, read_cells) for mask in (masks[0], *masks[1].values()))
        backgrounds = {_SINGLE: parts[0]} if len(parts) == 1 else dict(zip(masks[1], parts, strict=True))
    if min_cells is not None:
        rare = rare_genes(backgrounds, genes, min_cells)
        used, dropped = used & ~rare, frozenset(genes[rare])
        cells, rows = _without(cells, dropped), _without(rows, dropped)
        backgrounds = {name: _without(part, dropped) for name, part in backgrounds.items()}
    params = {
        "zero_center": True, "use_highly_variable": mask_name == _HIGHLY_VARIABLE, "mask_var": mask_name,
        "layer": layer, "use_raw": use_raw, "groupby": groupby, "target": target,
        "background": None if groupby is None else background, "min_cells": min_cells, "subjects": subjects,
    }  # fmt: skip
    return Contrast(cells, rows, backgrounds, genes, used, params)


def check_writable(adata: Any, copy: bool, key_added: Any) -> None:
    """Raise an error if results cannot be written to the AnnData, before anything is computed."""
    if kind_of(adata) != "anndata":
        raise InputError(f"adata: {type(adata).__name__} is not an AnnData. Use standout.DPCA for other data.")
    if adata.isbacked and adata.is_view:
        remedy = "Call adata.to_memory() or adata.copy(filename=...) first, and give that"
        raise InputError(f"adata: a view of a backed AnnData cannot take results. {remedy}.")
    if adata.isbacked and copy:
        raise InputError("copy=True: a backed AnnData cannot be copied in memory. Use copy=False, or load it first.")
    if key_added is not None and not isinstance(key_added, str):
        raise InputError(f"key_added={key_added!r} is not a name. Give a text, or leave key_added= out.")


def check_name(argument: str, given: Any, choices: Collection[Any], what: str, otherwise: str = "") -> None:
    """Raise an error if a name is not one of the choices."""
    if not isinstance(given, str | int) or given not in choices:
        names = [str(choice) for choice in choices]
        given = given if isinstance(given, str | int) else type(given).__name__
        remedy = f"Use one of {listed(names, 20) or 'those that exist'}{otherwise and f', or {otherwise}'}."
        raise InputError(f"{argument}={given!r} is not {what}.{did_you_mean(given, names)} {remedy}")


def in_scanpy_terms(function: Callable[P, T]) -> Callable[P, T]:
    """Give errors and warnings of the library the argument names of this interface."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", StandoutWarning)  # the filters of the user apply below
            try:
                found = function(*args, **kwargs)
            except StandoutError as error:
                error.args = (spelled(str(error)), *error.args[1:])
                raise
        for warning in caught:
            if issubclass(warning.category, StandoutWarning):
                warn_user(spelled(str(warning.message)), warning.category)
            else:
                warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        return found

    return call


def spelled(text: str) -> str:
    """Return a message of the library with the argument names of this interface."""
    return spell_arguments(text, _spelling)


def _spelling(name: str, value: object) -> str | None:
    if name not in _SCANPY_NAMES or (name == "groups" and value is ...):
        return None
    return f"`{_SCANPY_NAMES[name]}`" if value is ... else f"`{_SCANPY_NAMES[name]}={value!r}`"


def label_masks(adata: Any, groupby: str, target: Any, background: Any) -> tuple[Mask, dict[Any, Mask]]:
    """Return which cells are in the target, and which have each background label."""
    values = np.asarray(adata.obs[groupby], dtype=object)
    text = np.array([None if is_missing(value) else str(value) for value in values], dtype=object)
    labels = [label for label in dict.fromkeys(text) if label is not None]
    chosen = {"background": label_list(background), "target": labels if target is None else label_list(target)}
    for argument, given in chosen.items():
        if not given:
            raise InputError(f"{argument}: the list is empty. Give at least one label.")
        for label in given:
            check_name(argument, str(label), labels, f"a label in adata.obs[{groupby!r}]")
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
    return in_target, {label: text == str(label) for label in chosen["background"]}


def _matrix_key(adata: Any, layer: str | None, use_raw: bool) -> str | None:
    """Return what ``read`` calls the values: X, a layer or raw."""
    if use_raw and layer is not None:
        raise InputError(f"use_raw=True and layer={layer!r} are two sets of values. Give one of them.")
    if layer is not None:
        check_name("layer", layer, adata.layers, "a layer of adata", "leave layer= out")
        return f"layers/{layer}"
    if use_raw and adata.raw is not None:
        lost = [name for name in adata.var_names if name not in adata.raw.var_names]
        if lost:
            found = f"{len(lost)} genes of adata are not in adata.raw: {listed(lost)}"
            raise InputError(f"use_raw=True: {found}. Use adata.raw.to_adata(), or give a layer.")
    return "raw" if use_raw else None


def _read(
    data: Any, role: str, *, key: str | None, subjects: str | None, genes: Any, dropped: frozenset[str]
) -> Source:
    """Read an AnnData or a file without the dropped genes. Of raw, which has more genes, ``genes`` are used."""
    if key == "raw" and kind_of(data) == "anndata" and data.raw is None:
        raise InputError(f"use_raw=True: {role} has no raw. Leave use_raw= out, or set its raw.")
    source = read(data, role=role, key=key, groups=subjects)
    if key == "raw":
        position = {name: i for i, name in enumerate(source.names or ())}
        source = select_columns(source, np.array([position[n] for n in genes if n in position], dtype=np.intp))
    return _without(source, dropped)


def _some_cells(adata: Any, cells: Source, mask: Mask, read_cells: Callable[[Any, str], Source]) -> Source:
    """Return some cells as a view; of a Dask-backed AnnData, anndata's own, which is lazy."""
    index = np.flatnonzero(mask)
    return RowView(cells, index) if isinstance(cells, RowSource) else read_cells(adata[index], "adata")


def _by_name(background: Any) -> dict[Any, Any]:
    """Return one or several backgrounds by name."""
    if isinstance(background, Mapping):
        return dict(background)
    return dict(enumerate(background)) if isinstance(background, list | tuple) else {_SINGLE: background}


def _read_backgrounds(background: Any, read_cells: Callable[[Any, str], Source]) -> dict[Any, Source]:
    """Read one or several other AnnData, in memory or in files; none if there is no background."""
    named = {} if background is None else _by_name(background)
    if background is not None and not named:
        raise InputError("background: an empty list or dict was given. Give at least one AnnData, or None for PCA.")
    roles = {name: "background" if name is _SINGLE else background_name(name) for name in named}
    for name, data in named.items():
        if not (kind_of(data) == "anndata" or (isinstance(data, str | PathLike) and Path(data).exists())):
            shown = repr(data) if isinstance(data, str | int) else type(data).__name__
            remedy = "Give one of these, or a label together with groupby=."
            raise InputError(f"{roles[name]}: {shown} is neither an AnnData nor a file. {remedy}")
    return {name: read_cells(data, roles[name]) for name, data in named.items()}


def _gene_mask(adata: Any, mask: Any) -> tuple[Any, Mask]:
    """Return the mask as stored in uns, and which genes it keeps; a series is matched by gene name."""
    if mask is HIGHLY_VARIABLE:
        mask = _HIGHLY_VARIABLE if _HIGHLY_VARIABLE in adata.var.columns else None
    if mask is None:
        return None, np.ones(adata.n_vars, dtype=bool)
    given, what = mask, "mask_var"
    if isinstance(mask, str):
        check_name("mask_var", mask, adata.var.columns, "a column of adata.var", "give a boolean array")
        mask, what = adata.var[mask], f"mask_var={mask!r}"
    elif hasattr(mask, "reindex") and set(mask.index) == set(adata.var_names):
        mask = mask.reindex(adata.var_names)
    values = np.array(mask)
    if values.dtype == object and all(isinstance(value, bool | np.bool_) for value in values.ravel()):
        values = values.astype(bool)  # pandas' own type of booleans
    if values.dtype != bool or values.shape != (adata.n_vars,):
        found = f"type {values.dtype} and shape {values.shape} for {adata.n_vars} genes"
        raise InputError(f"{what}: {found}. Give a boolean array or column, one value per gene, or None for all genes.")
    return (given if isinstance(given, str) else values.copy()), values


def _without(source: Source, genes: frozenset[str]) -> Source:
    """Return a source without these genes. Genes that only some datasets have are left to the estimator to report."""
    kept = np.array([i for i, name in enumerate(source.names or ()) if name not in genes], dtype=np.intp)
    if not len(kept):
        raise InputError("mask_var and min_cells leave no gene. Choose more genes.")
    matrix = None if len(kept) == source.n_features else source.sparse()
    if matrix is None:
        return select_columns(source, kept)
    # A view would make all columns of a block dense before it selects some.
    chosen: Any = SparseSource(matrix[:, kept])
    chosen.names = tuple(name for name in source.names or () if name not in genes)
    chosen.groups, chosen.row_ids, chosen.id_columns = source.groups, source.row_ids, source.id_columns
    return cast(Source, chosen)


def rare_genes(backgrounds: Mapping[Any, Source], genes: Any, few: int) -> Mask:
    """Return which genes are expressed in at least one, but fewer than ``few``, background cells."""
    n_cells: Counter[str] = Counter()
    for source in backgrounds.values():
        # A cluster counts on its workers.
        count: Any = _expressed if source.is_local else lambda rows: rows.reduce(lambda part: _expressed(part.rows))
        total = count(source)
        n_cells.update(dict(zip(source.names or (), total.tolist(), strict=True)))
    counts = np.array([n_cells[gene] for gene in genes])
    return (counts > 0) & (counts < few)


def _expressed(source: Source) -> NDArray[np.int64]:
    """Return in how many cells each gene is expressed."""
    total = np.zeros(source.n_features, dtype=np.int64)
    for block in source.blocks(block_rows(source.n_features)):
        total += np.count_nonzero(block, axis=0)
    return total
