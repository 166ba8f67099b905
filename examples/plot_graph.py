"""Features that are pixels: a price on rough components finds a smooth one with few rows.

Run: python examples/plot_graph.py [picture.png]
"""

import sys
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.image import grid_to_graph

from standout._dpca import DPCA
from standout.errors import StandoutWarning

path = Path(sys.argv[1] if len(sys.argv) > 1 else "out/graph.png")
rng = np.random.default_rng(0)
side = 14
y, x = np.mgrid[-1 : 1 : side * 1j, -1 : 1 : side * 1j]
blob = np.exp(-4 * ((x - 0.2) ** 2 + (y + 0.3) ** 2)).ravel()
blob /= np.linalg.norm(blob)
target = rng.normal(size=(150, side * side)) + np.outer(rng.normal(size=150) * 2.5, blob)
background = rng.normal(size=(220, side * side))

warnings.simplefilter("ignore", StandoutWarning)  # few rows: that is the point
figure, axes = plt.subplots(1, 4, figsize=(13, 3.5), layout="constrained")
axes[0].imshow(blob.reshape(side, side))
axes[0].set(title="what only the target has")
for ax, smoothness in zip(axes[1:], (0.0, 0.3, 3.0), strict=True):
    model = DPCA(1, graph=grid_to_graph(side, side), smoothness=smoothness).fit(target, background=background)
    filter_ = model.components_[0]
    ax.imshow(filter_.reshape(side, side))
    ax.set(title=f"smoothness {smoothness:g}: |cos| {abs(filter_ @ blob):.2f}")
for ax in axes:
    ax.set(xticks=[], yticks=[])
path.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(path, dpi=100)
