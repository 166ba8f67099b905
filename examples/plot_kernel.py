"""
Kernel dPCA on rings
====================

Target rows lie on two rings in a plane, background rows on one ring with the same covariance. Both have a large common
variation in two other features. No direction separates the rings, so dPCA finds nothing. Kernel dPCA finds the distance
from the centre, also on held-out rows.

Run it with ``python examples/plot_kernel.py [figure.png]``.
"""

import sys
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from standout import DPCA, KernelDPCA, plot
from standout.errors import OverfitWarning


def sample_rings(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return target rows, background rows, and whether each target row is on the outer ring."""

    def around(radius: np.ndarray) -> np.ndarray:
        angle = rng.uniform(0, 2 * np.pi, n)
        ring = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
        return np.hstack([ring, 3 * rng.normal(size=(n, 2))]) + 0.2 * rng.normal(size=(n, 4))

    outer = rng.integers(0, 2, n) == 1
    return around(np.where(outer, 3.0, 1.0)), around(np.full(n, np.sqrt(5.0))), outer


rng = np.random.default_rng(0)
target, background, _ = sample_rings(400, rng)
new_target, new_background, outer = sample_rings(400, rng)
labels = np.where(outer, "outer ring", "inner ring")
models = {
    "dPCA": DPCA(2),
    "kernel dPCA, rbf": KernelDPCA(2),
    "kernel dPCA, poly": KernelDPCA(2, kernel="poly"),
    "rbf, 100 landmarks": KernelDPCA(2, n_landmarks=100),
}
figure, axes = plt.subplots(1, 5, figsize=(20, 4), layout="constrained")
plot.scores(new_target[:, :2], labels, axes=axes[0], title="held-out target rows", names=("feature 1", "feature 2"))
for (name, model), ax in zip(models.items(), axes[1:], strict=True):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OverfitWarning)  # dPCA is expected to find nothing above the noise edge
        model.fit(target, background=background)
    held_out = model.score(new_target, background=new_background)
    plot.scores(model.transform(new_target), labels, axes=ax, title=f"{name}\nheld-out gain {held_out:.2f}")
    print(f"{name:20} ratios {model.ratios_.round(2)}, log-likelihood gain on held-out rows {held_out:.2f}")

out = Path(sys.argv[1] if len(sys.argv) > 1 else "out/kernel.png")
out.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(out, dpi=80)
print(f"wrote {out}")
