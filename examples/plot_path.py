"""
Paths of subspaces along alpha and shrinkage
============================================

How the subspace for handwritten digits over photographs changes with alpha and with shrinkage. The first column shows
the similarity of the subspaces along each path; crosses mark the representatives.

Run it with ``python examples/plot_path.py [figure.png]``.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

import standout
from standout import plot
from standout.datasets import digits_over_tiles

example = digits_over_tiles()
centred = example.target - example.target.mean(axis=0)
figure, grid = plt.subplots(2, 4, figsize=(16, 8), layout="constrained")

for axes, over in zip(grid, ("alpha", "shrinkage"), strict=True):
    path = standout.path(example.target, example.background, over=over, n_representatives=3)
    image = axes[0].imshow(path.similarity, vmin=0, vmax=1, cmap="viridis", origin="lower")
    axes[0].plot(path.representatives, path.representatives, "x", color="#D55E00", markersize=10, markeredgewidth=3)
    axes[0].set(title=f"similarity along {over}", xlabel="step", ylabel="step")
    figure.colorbar(image, ax=axes[0], shrink=0.7)
    for ax in axes[1:]:
        ax.set_visible(False)
    for ax, step in zip(axes[1:], path.representatives, strict=False):
        ax.set_visible(True)
        scores = centred @ path.components[step].T
        plot.scores(scores, example.digit, axes=ax, title=f"{over} = {path.values[step]:.3g}")

out = Path(sys.argv[1] if len(sys.argv) > 1 else "out/path.png")
out.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(out, dpi=100)
print(f"wrote {out}")
