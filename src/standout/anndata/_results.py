"""Test the components of an AnnData, and plot its scores with the top genes."""

from __future__ import annotations

from typing import Any

import numpy as np

from standout._dpca import DPCA
from standout._inputs import check_count
from standout._model import rank_features
from standout.anndata._cells import (
    HIGHLY_VARIABLE,
    check_name,
    check_writable,
    contrast_of,
    in_scanpy_terms,
    label_masks,
    spelled,
)
from standout.anndata._fit import checked_estimator, keys_of, storable
from standout.errors import InputError, listed
from standout.inference.assess import Assessment, assess
from standout.io.memory import is_missing
from standout.io.read import kind_of
from standout.plot._components import draw_top_features
from standout.plot._scores import scores as draw_scores
from standout.plot._style import pyplot


@in_scanpy_terms
def test(
    adata: Any, background: Any = None, *, groupby: str | None = None, target: Any = None, layer: str | None = None,
    use_raw: bool = False, n_comps: int = 1, mask_var: Any = HIGHLY_VARIABLE, min_cells: int | None = None,
    subjects: str | None = None, pairs: str | None = None, n_permutations: int = 999, n_bootstrap: int = 0,
    folds: int = 5, random_state: int | None = None, n_jobs: int | None = None, key_added: str | None = None,
    **params: Any,
) -> Assessment:  # fmt: skip
    """Test whether the components of some cells against others are real.

    A permutation test and the ratio on held-out cells, with the verdict of :func:`standout.assess`.

    Parameters
    ----------
    adata, background, groupby, target, layer, use_raw, mask_var, min_cells
        As in :func:`standout.anndata.dpca`. The cells are held in memory as an array of the genes in use.
    n_comps : int, default=1
        Number of components to test, one after the other.
    subjects : str, optional
        Column of ``obs`` with the donor of each cell. Donors are permuted and held out as a whole: cells of one donor
        are not independent, and a test that permutes cells does not apply to other donors.
    pairs : str, optional
        The same column, if every donor has target and background cells: labels are then permuted within donors.
    n_permutations, n_bootstrap, folds, random_state, n_jobs
        As in :func:`standout.assess`; 0 skips an analysis.
    key_added : str, optional
        Key of the results in ``uns``; ``"dpca_test"`` by default.
    **params
        Other parameters of :class:`standout.DPCA`, such as ``shrinkage``.

    Returns
    -------
    Assessment
        All results; ``summary()`` gives them in words. ``uns["dpca_test"]`` is written with ``verdict``, ``reasons``,
        ``summary``, ``params``, ``notes`` and, unless they were skipped, ``ratios``, ``p_values``,
        ``critical_values``, ``permuted``, ``held_out_ratios``, ``held_out_low``, ``held_out_high`` and ``stability``.

    See Also
    --------
    standout.assess : The same for arrays and data frames.
    standout.plot.null : Plot of the permutation distribution, ``plot.null(found.test)``.

    Examples
    --------
    >>> import anndata, numpy as np, standout.anndata
    >>> adata = anndata.AnnData(np.random.default_rng(0).normal(size=(300, 4)))
    >>> adata.X[:100, 2] *= 3
    >>> adata.var_names, adata.obs["condition"] = ["CD4", "IL2", "IFNG", "ACTB"], ["stim"] * 100 + ["ctrl"] * 200
    >>> found = standout.anndata.test(adata, groupby="condition", background="ctrl", n_permutations=99)
    >>> found.verdict().headline, found.test.p_values
    ('Stands out: dpca0', array([0.01]))
    >>> adata.uns["dpca_test"]["verdict"]
    'Stands out: dpca0'
    """
    check_writable(adata, False, key_added)
    if background is None:
        raise InputError("background: a test compares cells with others. Give background=.")
    if subjects is not None and pairs is not None:
        raise InputError("subjects and pairs are both given, and a pair is already a subject. Give one of them.")
    if pairs is not None:
        check_name("pairs", pairs, adata.obs.columns, "a column of adata.obs")
    estimator = checked_estimator(DPCA, check_count("n_comps", n_comps), params)
    contrast = contrast_of(
        adata, background, groupby=groupby, target=target, layer=layer, use_raw=use_raw, mask_var=mask_var,
        min_cells=min_cells, subjects=pairs or subjects,
    )  # fmt: skip
    own: Any = contrast.target.groups
    ids: dict[Any, Any] = {name: source.groups for name, source in contrast.backgrounds.items()}
    paired: dict[str, Any] = {} if pairs is None else {"pairs": own, "background_pairs": ids.get(None, ids)}
    others = set() if subjects is None else set().union(*ids.values())
    both = [name for name in dict.fromkeys(own if others else ()) if name in others and not is_missing(name)]
    if both:
        problem = f"{len(both)} subjects have target and background cells ({listed(both)})"
        raise InputError(f"subjects={subjects!r}: {problem}. Use pairs={subjects!r}, or give them distinct names.")
    found = assess(
        contrast.target, contrast.background, estimator=estimator, n_permutations=n_permutations,
        n_bootstrap=n_bootstrap, folds=folds, random_state=random_state, n_jobs=n_jobs, **paired,
    )  # fmt: skip
    arguments = {
        **contrast.params, "subjects": subjects, "pairs": pairs, "n_comps": n_comps, "n_permutations": n_permutations,
        "n_bootstrap": n_bootstrap, "folds": folds, "random_state": random_state, **params,
    }  # fmt: skip
    adata.uns[key_added or "dpca_test"] = {"params": storable(arguments), **_as_stored(found)}
    return found


def _as_stored(found: Assessment) -> dict[str, Any]:
    """Return the results in types that an h5ad file can store."""
    verdict = found.verdict()
    assert verdict is not None
    notes = [finding.text for finding in found.replicates]
    notes += [note for part in (found.test, found.held_out, found.stability) if part is not None for note in part.notes]
    stored: dict[str, Any] = {
        "verdict": verdict.headline,
        "reasons": spelled("\n".join(verdict.reasons)),
        "summary": str(found.summary()),
        "notes": spelled("\n".join(notes)),
    }
    if found.test is not None:
        stored |= {"ratios": found.test.ratios, "p_values": found.test.p_values, "permuted": found.test.permuted}
        stored["critical_values"] = found.test.edge()
    if found.held_out is not None:
        stored["held_out_ratios"] = found.held_out.ratios
        stored |= {"held_out_low": found.held_out.low, "held_out_high": found.held_out.high}
    if found.stability is not None:
        stored["stability"] = found.stability.median
    return stored


@in_scanpy_terms
def plot(adata: Any, color: str | None = None, *, key: str = "dpca", count: int = 10, figure: Any = None) -> Any:
    """Plot the first two scores of the target cells, the background cells in grey, and the top genes.

    Parameters
    ----------
    adata : AnnData
        With results of :func:`standout.anndata.dpca` or :func:`standout.anndata.cpca`.
    color : str, optional
        Column of ``adata.obs`` to colour the target cells by.
    key : str, default="dpca"
        Key of the results in ``uns``: "dpca", "cpca", or the ``key_added`` that was given.
    count : int, default=10
        Number of genes of each component.
    figure : matplotlib figure or subfigure, optional
        Figure to draw on; by default a new one.

    Returns
    -------
    matplotlib figure

    See Also
    --------
    standout.plot.scores, standout.plot.patterns

    Notes
    -----
    The plots of scanpy work too: ``sc.pl.embedding(adata, basis="dpca")`` for the scores,
    ``sc.pl.ranking(adata, "varm", "dPCs_patterns", indices=[0, 1])`` for genes, and
    ``sc.pl.ranking(adata, "uns", "variance_ratio", dictionary="dpca", labels="dPC")`` for variances.

    Examples
    --------
    >>> import anndata, numpy as np, standout.anndata
    >>> adata = anndata.AnnData(np.random.default_rng(0).normal(size=(300, 4)))
    >>> adata.X[:100, 2] *= 3
    >>> adata.var_names, adata.obs["condition"] = ["CD4", "IL2", "IFNG", "ACTB"], ["stim"] * 100 + ["ctrl"] * 200
    >>> standout.anndata.dpca(adata, groupby="condition", background="ctrl")
    >>> figure = standout.anndata.plot(adata)
    >>> figure.axes[1].get_yticklabels()[0].get_text()
    'IFNG'
    """
    if kind_of(adata) != "anndata":
        raise InputError(f"adata: {type(adata).__name__} is not an AnnData. Use standout.plot for other data.")
    known = [name for name, found in adata.uns.items() if isinstance(found, dict) and "scale" in found]
    check_name("key", key, known, "a result in adata.uns", "call standout.anndata.dpca first")
    if color is not None:
        check_name("color", color, adata.obs.columns, "a column of adata.obs")
    count, found, (obsm, varm) = check_count("count", count), adata.uns[key], keys_of(key)
    if len(found["scale"]) != adata.n_vars:
        counts = f"{len(found['scale'])} genes, and adata has {adata.n_vars}"
        raise InputError(f"`key={key!r}`: the result is of {counts}. Call standout.anndata.dpca again.")
    points, patterns = np.asarray(adata.obsm[obsm]), adata.varm[f"{varm}_patterns"].T
    params = found["params"]
    in_target, others = np.ones(adata.n_obs, dtype=bool), None
    if "groupby" in params:
        in_target, masks = label_masks(adata, params["groupby"], params.get("target"), params["background"])
        others = {str(label): points[mask] for label, mask in masks.items()}
    contrasted = len(found["mix"]) > 0
    names = [f"{found['method'].lower()}{k}" for k in range(len(patterns))]
    tops = rank_features(patterns, found["target_variance"], found["scale"], list(adata.var_names), count)[:2]
    if figure is None:
        figure = pyplot().figure(figsize=(4.8 * (1 + len(tops)), 4.2), layout="constrained")
    axes = figure.subplots(1, 1 + len(tops), squeeze=False)[0]
    labels = None if color is None else adata.obs[color][in_target]
    draw_scores(points[in_target], labels, background=others, axes=axes[0], title=color or "", names=names)
    for name, top, panel in zip(names, tops, axes[1:], strict=False):
        panel.set_title(name)
        draw_top_features(top, contrasted, panel)
    return figure
