"""Rings that only a kernel sees.

Target rows lie on two rings in a plane; background rows lie on one ring with the same covariance. Both have a
large common variation in two other features. No direction tells them apart, so dPCA finds nothing; the distance
from the centre does, and kernel dPCA finds it, on rows it has not seen.

Run it with ``python examples/plot_kernel.py [picture.png]``.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np

from standout._dpca import DPCA
from standout._kernel_dpca import KernelDPCA
from standout.errors import OverfitWarning
from standout.plot._scores import scores
from standout.plot._style import pyplot


def rings(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return target rows, background rows, and which ring each target row is on."""

    def around(radius: np.ndarray) -> np.ndarray:
        angle = rng.uniform(0, 2 * np.pi, n)
        ring = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
        return np.hstack([ring, 3 * rng.normal(size=(n, 2))]) + 0.2 * rng.normal(size=(n, 4))

    outer = rng.integers(0, 2, n) == 1
    return around(np.where(outer, 3.0, 1.0)), around(np.full(n, np.sqrt(5.0))), outer


def main(path: Path) -> None:
    rng = np.random.default_rng(0)
    target, background, _ = rings(400, rng)
    new, new_background, outer = rings(400, rng)
    labels = np.where(outer, "outer ring", "inner ring")
    models = {
        "dPCA": DPCA(2),
        "kernel dPCA, rbf": KernelDPCA(2),
        "kernel dPCA, poly": KernelDPCA(2, kernel="poly"),
        "rbf, 100 landmarks": KernelDPCA(2, n_landmarks=100),
    }
    figure, axes = pyplot().subplots(1, 5, figsize=(20, 4), layout="constrained")
    scores(new[:, :2], labels, axes=axes[0], title="held-out target rows", names=("feature 1", "feature 2"))
    for (name, model), ax in zip(models.items(), axes[1:], strict=True):
        with warnings.catch_warnings():
            # That dPCA finds nothing above noise is the point of the picture.
            warnings.simplefilter("ignore", OverfitWarning)
            model.fit(target, background=background)
        held_out = model.score(new, background=new_background)
        scores(model.transform(new), labels, axes=ax, title=f"{name}\nheld-out log ratio {held_out:.2f}")
        print(f"{name:20} ratios {model.ratios_.round(2)}, mean log ratio on held-out rows {held_out:.2f}")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)
    print(f"picture: {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/kernel.png"))
