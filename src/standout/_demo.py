"""The demo: digits hidden in pieces of a photograph, by PCA and by dPCA, as numbers, a picture and a report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from standout._blas import Array
from standout._dpca import DPCA
from standout._report.report import report as write_report
from standout.datasets.tiles import DigitsOverTiles, digits_over_tiles
from standout.io.output import replacing, writing
from standout.io.read import read
from standout.plot._scores import scores as draw_scores
from standout.plot._style import pyplot


def ari(scores: Array, labels: ArrayLike, seed: int = 0) -> float:
    """Return the adjusted Rand index of k-means clusters of the scores, one cluster per label.

    Parameters
    ----------
    scores : ndarray of shape (n_rows, n_components)
        Scores; they are not scaled.
    labels : array-like of shape (n_rows,)
        Label of each row.
    seed : int
        Seed of the k-means initializations.

    Returns
    -------
    float
        1 is perfect agreement, 0 is chance.

    Examples
    --------
    >>> ari(np.array([[0.0], [0.1], [5.0], [5.1]]), [6, 6, 9, 9])
    1.0
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_rand_score
    from threadpoolctl import threadpool_limits

    if scores.shape[1] == 0:
        return 0.0
    # The summation order of threaded k-means varies; one thread is bit-for-bit reproducible.
    with threadpool_limits(1):
        found = KMeans(len(np.unique(labels)), n_init=10, random_state=seed).fit_predict(scores)
    return float(adjusted_rand_score(labels, found))


def silhouette(scores: Array, labels: ArrayLike) -> float:
    """Return the mean silhouette of the labels in the scores, from -1 to 1.

    Parameters
    ----------
    scores : ndarray of shape (n_rows, n_components)
        Scores; they are not scaled.
    labels : array-like of shape (n_rows,)
        Label of each row.

    Returns
    -------
    float
        0 if there are no components.

    Examples
    --------
    >>> round(silhouette(np.array([[0.0], [0.1], [5.0], [5.1]]), [6, 6, 9, 9]), 2)
    0.98
    """
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(scores, labels)) if scores.shape[1] else 0.0


@dataclass(frozen=True)
class View:
    """One method's view of the target: scores, and how well they show the two digits."""

    name: str
    model: DPCA
    scores: Array  # (n_rows, 2)
    ari: float
    silhouette: float


def views(example: DigitsOverTiles) -> list[View]:
    """Return the target by PCA and by dPCA; the digits are used only to judge the result."""
    pca = DPCA(n_components=2).fit(example.target)
    dpca = DPCA(n_components=2).fit(example.target, background=example.background)
    return [_view("PCA", pca, example), _view("dPCA", dpca, example)]


def _view(name: str, model: DPCA, example: DigitsOverTiles) -> View:
    scores = model.transform(example.target)
    return View(name, model, scores, ari(scores, example.digit), silhouette(scores, example.digit))


def table(found: list[View]) -> str:
    """Write the two views side by side; ratios stand beside the edge that noise reaches."""
    lines = [f"{'':8}{'ARI':>8}{'silhouette':>12}   {'first two ratios':>20}{'noise edge':>12}"]
    for view in found:
        background = view.name != "PCA"
        ratios = ", ".join(f"{value:.1f}" for value in view.model.ratios_) if background else "(no background)"
        edge = f"{view.model.noise_edge_:.2f}" if background else "-"
        lines.append(f"{view.name:8}{view.ari:8.2f}{view.silhouette:12.2f}   {ratios:>20}{edge:>12}")
    return "\n".join(lines)


def picture(found: list[View], example: DigitsOverTiles, path: Path) -> None:
    """Draw some target tiles, then the two views."""
    plt = pyplot()
    figure = plt.figure(figsize=(12, 4), layout="constrained")
    left, *axes = figure.subplots(1, 3, width_ratios=[1, 1.15, 1.15])
    left.imshow(_mosaic(example), cmap="gray")
    left.set(title="some target rows: a 6 or a 9 is in each", xticks=[], yticks=[])
    for view, ax in zip(found, axes, strict=True):
        draw_scores(view.scores, example.digit, axes=ax, title=f"{view.name}: ARI {view.ari:.2f}")
    with replacing(path) as draft:
        figure.savefig(draft, dpi=110)
    plt.close(figure)


def _mosaic(example: DigitsOverTiles, side: int = 6) -> Array:
    tiles = example.target[: side * side].reshape(side, side, 8, 8)
    return tiles.transpose(0, 2, 1, 3).reshape(side * 8, side * 8)


@dataclass(frozen=True)
class Demo:
    """What the demo shows: words, facts for scripts, and the files it wrote."""

    text: str
    facts: dict[str, Any]
    files: dict[str, Path]


def run_demo(folder: Path, seed: int = 0) -> Demo:
    """Run the demo; write the data as tables, the picture and the report into a directory."""
    example = digits_over_tiles(seed=seed)
    found = views(example)
    files = {name: folder / f"{name}.csv" for name in ("target", "background")}
    _write_table(files["target"], example.target, {"digit": example.digit})
    _write_table(files["background"], example.background, {})
    files |= {"picture": folder / "demo.png", "report": folder / "report.html"}
    picture(found, example, files["picture"])
    model = found[-1].model
    target = read(files["target"], label="digit")
    write_report(model, target, example.background, path=files["report"], title="Digits hidden in a photograph")
    text = (
        f"target: {len(example.target)} tiles of a photograph, each with a faint handwritten 6 or 9 in it\n"
        f"background: {len(example.background)} other tiles of the same photograph\n\n{table(found)}\n\n"
        "ARI: how well two clusters of the scores match the digits (1 perfect, 0 chance).\n\n"
        f"{model.summary()}"
    )
    facts = {view.name: {"ari": view.ari, "silhouette": view.silhouette} for view in found}
    return Demo(text, {"command": "demo", **facts}, files)


def _write_table(path: Path, tiles: Array, about: dict[str, NDArray[Any]]) -> None:
    names = [f"pixel_{row}_{column}" for row in range(8) for column in range(8)]
    with writing(path, names, list(about)) as rows:
        rows.add(tiles, about)
