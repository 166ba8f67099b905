"""
Wines: when PCA is enough
=========================

Two kinds of wine are the target, a third kind is the background. dPCA separates the two kinds without labels. So does
PCA of the standardised target, because the difference between the kinds is the largest variation in the data, with or
without a background. The background adds a comparison, not a better picture: along the first component of dPCA the two
kinds vary many times as much as the third.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from standout import DPCA, plot
from standout.errors import ShrinkageWarning

wine = load_wine(as_frame=True)
is_target = wine.target != 0
target, background = wine.data[is_target], wine.data[~is_target]
kind = np.array([f"kind {k}" for k in wine.target[is_target]])

with warnings.catch_warnings():
    # 59 background rows for 13 features: the background is shrunk.
    warnings.simplefilter("ignore", ShrinkageWarning)
    model = DPCA(2).fit(target, background=background)
pca = PCA(2).fit_transform(StandardScaler().fit_transform(target))

figure, axes = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
plot.scores(pca, kind, axes=axes[0], title="PCA of the standardised target")
plot.scores(
    model.transform(target), kind, axes=axes[1], title=f"dPCA: ratio {model.ratios_[0]:.0f}"
)
plt.show()

# %%
# What not to conclude
# --------------------
# Clusters that dPCA shows are not found *because of* the background, unless PCA misses them: always look at both. The
# ratio compares a mixture of two kinds with a single kind, so it is large by design and not a discovery. With 59
# background rows it is also too uncertain to be reported without :func:`standout.held_out_ratio`. See
# :doc:`/howto/choose-a-method`.
