"""
A shift of the mean is invisible by default
===========================================

The target is the background moved by one and a half standard deviations in one feature. Its variance is unchanged. By
default each dataset is centred by its own mean, so no ratio of dPCA is above the noise edge. With
``centering="background"`` the distance between the means counts as variance of the target, and the shift is the first
component.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from standout import DPCA
from standout.errors import OverfitWarning

rng = np.random.default_rng(0)
scale = np.linspace(4, 1, 8)
background = rng.normal(size=(3000, 8)) * scale
target = rng.normal(size=(1000, 8)) * scale
target[:, 6] += 1.5 * scale[6]

figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
for ax, centering in zip(axes, ("own", "background"), strict=True):
    with warnings.catch_warnings():
        # With centering="own" no ratio is above the noise edge.
        warnings.simplefilter("ignore", OverfitWarning)
        model = DPCA(1, centering=centering, normalize="background").fit(
            target, background=background
        )
    centre = model.transform(background).mean()
    bins = np.linspace(-5, 5, 51)
    for rows, color, name in (
        (background, "#9aa0a6", "background"),
        (target, "#0072B2", "target"),
    ):
        scores = model.transform(rows)[:, 0] - centre
        ax.hist(scores, bins, density=True, color=color, alpha=0.6, label=name)
    found = f"ratio {model.ratios_[0]:.2f}, noise edge {model.noise_edge_:.2f}"
    ax.set(title=f'centering="{centering}"\n{found}', xlabel="score in background sd")
    ax.set_yticks([])
axes[0].set_ylabel("share of rows")
axes[0].legend(frameon=False)
plt.show()

# %%
# What not to conclude
# --------------------
# "dPCA finds nothing" does not mean that the datasets are equal: it compares variances, not means. With
# ``centering="background"``, the ratio mixes shift and variance, so a large one does not show that the target *varies*
# more. If only means matter, compare means. See :doc:`/howto/backgrounds`.
