"""The demo: faint digits on tiles of a photograph, analysed with PCA and with dPCA."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from standout._blas import Array
from standout._display import Table
from standout._dpca import DPCA
from standout._report.report import report as write_report
from standout._summary import summarize
from standout.datasets.tiles import DigitsOverTiles, digits_over_tiles
from standout.io.output import replacing, writing
from standout.io.read import read
from standout.plot._scores import scores as draw_scores
from standout.plot._style import pyplot


class MethodResult(NamedTuple):
    """The scores of the target by one method, and how well they separate the two digits."""

    name: str
    model: DPCA
    scores: Array  # (n_rows, 2)
    ari: float
    silhouette: float


def run_demo(folder: Path, seed: int = 0) -> tuple[dict[str, Any], str, dict[str, Path]]:
    """Write data, a figure and a report to a directory; return the result for JSON, as text, and the files."""
    example = digits_over_tiles(seed=seed)
    found = views(example)
    names = ("target.csv", "background.csv", "demo.png", "report.html")
    target, background, figure, page = (folder / name for name in names)
    pixels = [f"pixel_{row}_{column}" for row in range(8) for column in range(8)]
    with writing(target, pixels, ["digit"]) as rows:
        rows.add(example.target, {"digit": example.digit})
    with writing(background, pixels, []) as rows:
        rows.add(example.background, {})
    picture(found, example, figure)
    model = found[-1].model
    title = "Digits on tiles of a photograph"
    command = f"standout test {target} -b {background} --label digit"
    source = read(target, label="digit")
    write_report(model, source, example.background, path=page, title=title, test_command=command)
    text = (
        f"target: {len(example.target)} tiles of a photograph, each with a faint handwritten 6 or 9\n"
        f"background: {len(example.background)} other tiles of the same photograph\n\n{table(found)}\n\n"
        "ARI: agreement of two clusters of the scores on both axes with the digits (1 is perfect, 0 is chance).\n\n"
        f"{summarize(model._solved(), command)}"
    )
    result = {one.name: {"ari": one.ari, "silhouette": one.silhouette} for one in found}
    files = {"target": target, "background": background, "picture": figure, "report": page}
    return {"command": "demo", **result}, text, files


def views(example: DigitsOverTiles) -> list[MethodResult]:
    """Fit PCA and dPCA; the digits are used only to evaluate the scores."""
    found = []
    for name, background in (("PCA", None), ("dPCA", example.background)):
        model = DPCA(n_components=2).fit(example.target, background=background)
        scores = model._scores(example.target)
        quality = ari(scores, example.digit), silhouette(scores, example.digit)
        found.append(MethodResult(name, model, scores, *quality))
    return found


def ari(scores: Array, labels: ArrayLike, seed: int = 0) -> float:
    """Return the adjusted Rand index of k-means clusters of the scores, one per label: 1 is perfect, 0 is chance."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_rand_score
    from threadpoolctl import threadpool_limits

    if scores.shape[1] == 0:
        return 0.0
    # The summation order of threaded k-means varies; one thread is bit-for-bit reproducible.
    with threadpool_limits(1):
        clusters = KMeans(len(np.unique(labels)), n_init=10, random_state=seed).fit_predict(scores)
    return float(adjusted_rand_score(labels, clusters))


def silhouette(scores: Array, labels: ArrayLike) -> float:
    """Return the mean silhouette of the labels in the scores, from -1 to 1; 0 without components."""
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(scores, labels)) if scores.shape[1] else 0.0


def table(found: list[MethodResult]) -> str:
    """Return a table of both methods, with the ratios next to the noise edge."""
    rows = []
    for result in found:
        ratios, edge = "(no background)", "–"
        if result.name != "PCA":
            ratios = ", ".join(f"{value:.1f}" for value in result.model.ratios_)
            edge = f"{result.model.noise_edge_:.2f}"
        rows.append((result.name, f"{result.ari:.2f}", f"{result.silhouette:.2f}", ratios, edge))
    return "\n".join(Table(["method", "ARI", "silhouette", "first two ratios", "noise edge"], rows).lines())


def picture(found: list[MethodResult], example: DigitsOverTiles, path: Path) -> None:
    """Draw a mosaic of 36 target tiles and the scores of both methods."""
    plt = pyplot()
    figure = plt.figure(figsize=(12, 4), layout="constrained")
    left, *axes = figure.subplots(1, 3, width_ratios=[1, 1.15, 1.15])
    tiles = example.target[:36].reshape(6, 6, 8, 8)
    left.imshow(tiles.transpose(0, 2, 1, 3).reshape(48, 48), cmap="gray")
    left.set(title="target rows: each contains a 6 or a 9", xticks=[], yticks=[])
    for result, ax in zip(found, axes, strict=True):
        draw_scores(result.scores, example.digit, axes=ax, title=f"{result.name}: ARI {result.ari:.2f} on both axes")
    with replacing(path) as draft:
        figure.savefig(draft, dpi=110)
    plt.close(figure)
