"""The demo: digits hidden in pieces of a photograph, by PCA and by dPCA, as numbers and as a picture.

Run it with ``python -m standout.demo``.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from standout.blas import Array
from standout.datasets import DigitsOverTiles, digits_over_tiles
from standout.estimators.dpca import DPCA
from standout.show.plot import pyplot
from standout.show.plot import scores as draw_scores


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
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_rand_score, silhouette_score

    scores = model.transform(example.target)
    found = KMeans(2, n_init=10, random_state=0).fit_predict(scores)
    ari = adjusted_rand_score(example.digit, found)
    return View(name, model, scores, float(ari), float(silhouette_score(scores, example.digit)))


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
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _mosaic(example: DigitsOverTiles, side: int = 6) -> Array:
    tiles = example.target[: side * side].reshape(side, side, 8, 8)
    return tiles.transpose(0, 2, 1, 3).reshape(side * 8, side * 8)


def main(arguments: list[str] | None = None) -> None:
    """Run the demo from the command line."""
    parser = argparse.ArgumentParser(prog="python -m standout.demo", description="PCA and dPCA side by side.")
    parser.add_argument("--picture", type=Path, default=Path("demo.png"), help="where to write the picture")
    parser.add_argument("--text", type=Path, help="where to write the table too")
    parser.add_argument("--seed", type=int, default=0, help="which tiles are target and background")
    chosen = parser.parse_args(arguments)
    example = digits_over_tiles(seed=chosen.seed)
    found = views(example)
    shown = table(found)
    print(
        f"target: {len(example.target)} tiles of a photograph, each with a faint handwritten 6 or 9 in it\n"
        f"background: {len(example.background)} other tiles of the same photograph\n\n{shown}\n\n"
        "ARI: how well two clusters of the scores match the digits (1 perfect, 0 chance).\n"
    )
    print(found[1].model.summary())
    picture(found, example, chosen.picture)
    if chosen.text:
        chosen.text.write_text(shown + "\n", encoding="utf-8")
    print(f"\npicture: {chosen.picture.resolve()}")


if __name__ == "__main__":
    main()
