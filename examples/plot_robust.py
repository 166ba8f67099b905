"""Three percent of outliers, and moments that they do not move.

A target with one direction of its own is spoiled by a few rows far out, as is the background. dPCA of the plain
rows finds the outliers; the same dPCA of robust moments finds the direction.

Run it with ``python examples/plot_robust.py [picture.png]``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from standout._dpca import DPCA
from standout._robust import robust_moments
from standout.datasets.factor import FactorModel
from standout.plot._scores import scores
from standout.plot._style import pyplot


def spoiled(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the rows with three percent of them thrown far out along one direction."""
    count = int(0.03 * len(rows))
    direction = rng.normal(size=rows.shape[1])
    dirty = rows.copy()
    dirty[:count] += 60 * rng.normal(size=(count, 1)) * direction / np.linalg.norm(direction)
    return dirty


def main(path: Path) -> None:
    world = FactorModel(signal_sd=3.0, two_clusters=True)
    rng = np.random.default_rng(0)
    clean = world.sample(1000, 2000, seed=1)
    target, background = (spoiled(rows, rng) for rows in clean)
    sides = np.where((clean[0] - clean[0].mean(axis=0)) @ world.signal > 0, "one cluster", "the other")
    sides[:30] = "outlier"
    models = {
        "plain moments": DPCA(2).fit(target, background=background),
        "robust moments": DPCA(2).fit(robust_moments(target), background=robust_moments(background)),
    }
    figure, axes = pyplot().subplots(1, 2, figsize=(10, 4.5), layout="constrained")
    for (name, model), ax in zip(models.items(), axes, strict=True):
        found = abs(model.components_[0] @ world.signal)
        told = f"ratio {model.ratios_[0]:.1f} (true {world.top_ratio:.0f}), |cos| {found:.2f}"
        scores(model.transform(target), sides, axes=ax, title=f"{name}: {told}")
        if name == "robust moments":
            ax.set(xlim=(-8, 8), ylim=(-12, 12))  # the outliers are where they were, far outside
        print(f"{name:15} {told}")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)
    print(f"picture: {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/robust.png"))
