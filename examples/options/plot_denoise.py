"""
Denoise before clustering
=========================

The rows are tiles of a photograph with handwritten sixes and nines. k-means groups them by the brightness of the
photograph, and its clusters are unrelated to the digits. ``denoise`` estimates the target-specific part of each row
from all components above the noise edge. The estimates resemble the digits (minus the mean digit, as every row is
centred), and k-means on the denoised rows finds sixes and nines.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score

from standout import DPCA
from standout.datasets import digits_over_tiles

example = digits_over_tiles(weight=0.35)
model = DPCA().fit(example.target, background=example.background)
digits = load_digits()
added = digits.data[np.isin(digits.target, (6, 9))]  # what was added to the tiles
images = {
    "rows": example.target,
    "denoised": model.denoise(example.target),
    "truth": added - added.mean(axis=0),
}

figure, axes = plt.subplots(3, 8, figsize=(10, 4), layout="constrained")
for line, (name, rows) in zip(axes, images.items(), strict=True):
    clusters = KMeans(2, n_init=3, random_state=0).fit_predict(rows)
    agreement = adjusted_rand_score(example.digit, clusters)
    line[0].set_ylabel(
        f"{name}\nk-means: {agreement:.2f}", rotation=0, ha="right", va="center", fontsize=12
    )
    for ax, image in zip(line, rows[40:48].reshape(-1, 8, 8), strict=True):
        ax.imshow(image, cmap="gray")
        ax.set(xticks=[], yticks=[])
figure.suptitle(
    "k-means: agreement of two clusters with the digits (adjusted Rand index, 1 is perfect)",
    fontsize=11,
)
plt.show()

# %%
# What not to conclude
# --------------------
# Denoised rows are estimates, shrunk toward the mean: do not compute variances, ratios or p-values from them. k-means
# returns two clusters for any data, so agreement with known labels on this example does not show that clusters in other
# denoised data are real. Clusters found in denoised rows must not be tested on the same rows. See
# :doc:`/explanation/is-it-real`.
