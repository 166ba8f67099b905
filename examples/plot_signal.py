"""The first two components by ratio, and the principal axes of the denoised target, side by side.

Run: python examples/plot_signal.py [picture.png]
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

from standout._dpca import DPCA
from standout.datasets.tiles import digits_over_tiles
from standout.plot._scores import scores

path = Path(sys.argv[1] if len(sys.argv) > 1 else "out/signal.png")
example = digits_over_tiles(weight=0.35)
figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
for ax, how in zip(axes, ("ratio", "signal"), strict=False):
    model = DPCA(2, axes=how).fit(example.target, background=example.background)
    scores(model.transform(example.target), example.digit, axes=ax, title=f'axes="{how}"')
denoised = model.denoise(example.target)
rows = [0, 1, 2, 3]
pairs = [(example.target[i].reshape(8, 8), denoised[i].reshape(8, 8)) for i in rows]
axes[2].set(title="rows (above) and their target-specific part", xticks=[], yticks=[])
for column, (row, part) in enumerate(pairs):
    for line, image in enumerate((row, part)):
        axes[2].imshow(image, cmap="gray", extent=(column, column + 0.95, 1 - line, 1.95 - line))
axes[2].set(xlim=(0, len(rows)), ylim=(0, 2), aspect="equal")
path.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(path, dpi=100)
