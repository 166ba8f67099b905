"""
Missing values filled with zeros become a finding
=================================================

Target and background have the same distribution, but a third of the values of one feature is missing in the target. If
missing values are replaced by zeros, the feature varies more in the target, and dPCA finds it. With ``missing="auto"``
they are drawn from a model of the observed values of both datasets, and nothing stands out.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

import standout
from standout import DPCA, plot
from standout.errors import OverfitWarning

rng = np.random.default_rng(0)
mixing = rng.normal(size=(6, 6))
background = 8 + rng.normal(size=(1200, 6)) @ mixing
target = 8 + rng.normal(size=(400, 6)) @ mixing
is_missing = rng.random(400) < 1 / 3
target[is_missing, 2] = np.nan

fills = {
    "missing values = 0": np.nan_to_num(target, nan=0.0),
    'missing="auto"': standout.read(target, missing="auto"),
}
labels = np.where(is_missing, "feature 2 is missing", "complete row")
figure, axes = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
for ax, (name, rows) in zip(axes, fills.items(), strict=True):
    with warnings.catch_warnings():
        # Once values are drawn, nothing is above the noise edge.
        warnings.simplefilter("ignore", OverfitWarning)
        model = DPCA(2).fit(rows, background=background)
    title = f"{name}\nlargest ratio {model.ratios_[0]:.1f} (noise edge {model.noise_edge_:.1f})"
    plot.scores(model.transform(rows), labels, axes=ax, title=title)
    ax.margins(y=0.2)  # room for the legend
plt.show()

# %%
# What not to conclude
# --------------------
# ``missing="auto"`` is valid if values are missing at random, given the observed ones. If values are missing because they
# are small, the observed values do not show it, and no method can correct for it. Drawn values are not data: with many of them the
# result depends on the model that they were drawn from, so compare it with ``missing="drop_rows"``. See
# :doc:`/howto/missing-values`.
