"""
Robust moments
==============

Three percent of the rows of target and background are outliers. dPCA of the plain rows finds the outliers; dPCA of
robust moments finds the direction that is specific to the target.

Run it with ``python examples/plot_robust.py [figure.png]``.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from standout import DPCA, plot, robust_moments
from standout.datasets import FactorModel


def contaminate(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the rows with three percent of them moved far out along one direction."""
    count = int(0.03 * len(rows))
    direction = rng.normal(size=rows.shape[1])
    result = rows.copy()
    result[:count] += 60 * rng.normal(size=(count, 1)) * direction / np.linalg.norm(direction)
    return result


factors = FactorModel(signal_sd=3.0, two_clusters=True)
rng = np.random.default_rng(0)
clean = factors.sample(1000, 2000, seed=1)
target, background = (contaminate(rows, rng) for rows in clean)
labels = np.where((clean[0] - clean[0].mean(axis=0)) @ factors.signal > 0, "cluster 1", "cluster 2")
labels[:30] = "outlier"
models = {
    "plain moments": DPCA(2).fit(target, background=background),
    "robust moments": DPCA(2).fit(robust_moments(target), background=robust_moments(background)),
}
figure, axes = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
for (name, model), ax in zip(models.items(), axes, strict=True):
    cosine = abs(model.components_[0] @ factors.signal)
    result = f"ratio {model.ratios_[0]:.1f} (true {factors.top_ratio:.0f}), |cos| {cosine:.2f}"
    plot.scores(model.transform(target), labels, axes=ax, title=f"{name}: {result}")
    if name == "robust moments":
        ax.set(xlim=(-8, 8), ylim=(-12, 12))  # most outliers lie outside
    print(f"{name:15} {result}")

out = Path(sys.argv[1] if len(sys.argv) > 1 else "out/robust.png")
out.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(out, dpi=80)
print(f"wrote {out}")
