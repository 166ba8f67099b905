"""
Digits over a photograph: PCA and dPCA
======================================

Every row of the target is a tile of a photograph with a faint handwritten 6 or 9 added to it. The background consists
of other tiles of the same photograph, without digits. The first axis of PCA is the brightness of the photograph, which
both datasets share, and the second mixes digits and texture. dPCA divides out the variance of the background, and its
first axis separates sixes from nines. Neither method uses the labels.
"""

import matplotlib.pyplot as plt
import numpy as np

from standout import DPCA, plot
from standout.datasets import digits_over_tiles

example = digits_over_tiles()
pca = DPCA(2).fit(example.target)  # without a background, DPCA is PCA
dpca = DPCA(2).fit(example.target, background=example.background)
print(dpca.summary())


def mosaic(rows: np.ndarray) -> np.ndarray:
    """Return the first 25 tiles as one image, with white lines between them."""
    tiles = np.full((5, 9, 5, 9), 1.25)
    tiles[:, :8, :, :8] = rows[:25].reshape(5, 5, 8, 8).transpose(0, 2, 1, 3)
    return tiles.reshape(45, 45)[:-1, :-1]


figure, axes = plt.subplots(2, 2, figsize=(8, 8), layout="constrained")
for ax, rows, title in zip(
    axes[0],
    (example.background, example.target),
    ("background: tiles", "target: tiles with a faint 6 or 9"),
    strict=True,
):
    ax.imshow(mosaic(rows), cmap="gray", vmin=0, vmax=1.25)
    ax.set(title=title, xticks=[], yticks=[])
names = np.where(example.digit == 6, "six", "nine")
plot.scores(pca.transform(example.target), names, axes=axes[1, 0], title="PCA of the target")
plot.scores(
    dpca.transform(example.target),
    names,
    axes=axes[1, 1],
    title="dPCA, target against background",
)
plt.show()

# %%
# What not to conclude
# --------------------
# dPCA is not a classifier, and a large ratio is not a cluster. Here the largest ratio happens to lie along the
# difference between the two digits. In other data it lies where the background hardly varies, and the first two
# components show no clusters: see :doc:`/gallery/options/plot_signal` and :doc:`/gallery/basics/plot_photographs`. Background and
# target must also differ in the digits only. Tiles of another photograph would stand out as well.
# :doc:`/howto/choose-a-method` compares the methods.
