"""
Smooth components over pixels
=============================

The features are pixels and there are few rows. A penalty on components that are rough on the pixel graph recovers a
smooth signal.

Run it with ``python examples/plot_graph.py [figure.png]``.
"""

import sys
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.image import grid_to_graph

from standout import DPCA
from standout.errors import StandoutWarning

rng = np.random.default_rng(0)
side = 14
y, x = np.mgrid[-1 : 1 : side * 1j, -1 : 1 : side * 1j]
blob = np.exp(-4 * ((x - 0.2) ** 2 + (y + 0.3) ** 2)).ravel()
blob /= np.linalg.norm(blob)
target = rng.normal(size=(150, side * side)) + np.outer(rng.normal(size=150) * 2.5, blob)
background = rng.normal(size=(220, side * side))

warnings.simplefilter("ignore", StandoutWarning)  # few rows are the point of this example
figure, axes = plt.subplots(1, 4, figsize=(13, 3.5), layout="constrained")
axes[0].imshow(blob.reshape(side, side))
axes[0].set(title="signal of the target")
for ax, smoothness in zip(axes[1:], (0.0, 0.3, 3.0), strict=True):
    model = DPCA(1, graph=grid_to_graph(side, side), smoothness=smoothness).fit(target, background=background)
    component = model.components_[0]
    ax.imshow(component.reshape(side, side))
    ax.set(title=f"smoothness {smoothness:g}: |cos| {abs(component @ blob):.2f}")
for ax in axes:
    ax.set(xticks=[], yticks=[])

out = Path(sys.argv[1] if len(sys.argv) > 1 else "out/graph.png")
out.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(out, dpi=100)
print(f"wrote {out}")
