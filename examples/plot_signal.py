"""
Axes by ratio and axes by signal
================================

The first two components by ratio, the first two principal axes of the denoised target, and some rows before and after
``denoise``.

Run it with ``python examples/plot_signal.py [figure.png]``.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

from standout import DPCA, plot
from standout.datasets import digits_over_tiles

example = digits_over_tiles(weight=0.35)
figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
for ax, kind in zip(axes, ("ratio", "signal"), strict=False):
    model = DPCA(2, axes=kind).fit(example.target, background=example.background)
    plot.scores(model.transform(example.target), example.digit, axes=ax, title=f'axes="{kind}"')
denoised = model.denoise(example.target)
rows = [0, 1, 2, 3]
pairs = [(example.target[i].reshape(8, 8), denoised[i].reshape(8, 8)) for i in rows]
axes[2].set(title="rows (top) and their target-specific part", xticks=[], yticks=[])
for column, pair in enumerate(pairs):
    for line, image in enumerate(pair):
        axes[2].imshow(image, cmap="gray", extent=(column, column + 0.95, 1 - line, 1.95 - line))
axes[2].set(xlim=(0, len(rows)), ylim=(0, 2), aspect="equal")

out = Path(sys.argv[1] if len(sys.argv) > 1 else "out/signal.png")
out.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(out, dpi=100)
print(f"wrote {out}")
