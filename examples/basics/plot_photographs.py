"""
Patches of photographs: patterns as images
==========================================

Rows are patches of 10 × 10 pixels of a photograph of a temple; the background is a photograph of a flower. PCA shows
brightness and gradients, which all photographs have. The largest ratios of dPCA are in the finest detail, because most
of the other photograph is out of focus. The signal axes order what is specific to the temple by size. After brightness,
they contain diagonal stripes, and the map on the right shows where these are: on the tiled roofs.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter
from sklearn.datasets import load_sample_image

from standout import DPCA

side = 10
temple, flower = (
    load_sample_image(name).mean(axis=2) / 255 for name in ("china.jpg", "flower.jpg")
)
rng = np.random.default_rng(0)


def patches(photograph: np.ndarray, n: int = 6000) -> np.ndarray:
    """Return n patches at random places, as rows."""
    every = np.lib.stride_tricks.sliding_window_view(photograph, (side, side))
    top, left = (rng.integers(0, size, n) for size in every.shape[:2])
    return every[top, left].reshape(n, -1)


target, background = patches(temple), patches(flower)
fits = {
    "PCA\nof the temple": DPCA(7).fit(target),
    "dPCA,\nlargest ratio first": DPCA(7).fit(target, background=background),
    "dPCA,\nlargest signal first": DPCA(7, axes="signal").fit(target, background=background),
}

# Where are the stripes? The squared scores of two signal axes, averaged over neighbouring patches.
every = np.lib.stride_tricks.sliding_window_view(temple, (side, side))[::2, ::2]
scores = fits["dPCA,\nlargest signal first"].transform(every.reshape(-1, side * side))
stripes = gaussian_filter((scores[:, 1:3] ** 2).sum(axis=1).reshape(every.shape[:2]), 3)

figure = plt.figure(figsize=(10, 6.4), layout="constrained")
top, bottom = figure.subfigures(2, 1, height_ratios=(2, 4))
images = {
    "target: a temple": temple,
    "background: a flower": flower,
    "where the stripes are": stripes,
}
for ax, (title, image) in zip(top.subplots(1, 3), images.items(), strict=True):
    ax.imshow(image, cmap="magma" if image is stripes else "gray")
    ax.set(title=title, xticks=[], yticks=[])
for line, (name, model) in zip(bottom.subplots(3, 7), fits.items(), strict=True):
    line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=11)
    for ax, pattern in zip(line, model.patterns_, strict=True):
        limit = np.abs(pattern).max()
        ax.imshow(pattern.reshape(side, side), cmap="RdBu_r", vmin=-limit, vmax=limit)
        ax.set(xticks=[], yticks=[])
plt.show()

# %%
# What not to conclude
# --------------------
# This compares two photographs, not temples and flowers: sharpness, lighting and noise of the camera differ too.
# Patches of one photograph overlap and are not independent, so noise edge and p-value are meaningless here, and no
# number of patches changes that. See :doc:`/howto/choose-a-method` for axes by ratio and by signal.
