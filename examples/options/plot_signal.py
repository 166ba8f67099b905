"""
Axes by ratio and axes by signal
================================

Two groups in the target differ strongly in a few features. In two other features, the background hardly varies at all,
and the target varies a little. Their ratios are the largest, so that ``axes="ratio"``, the default, shows the small
features and no groups. ``axes="signal"`` orders everything above the noise edge by its size in the units of the data,
and the groups are on the first axis.
"""

import matplotlib.pyplot as plt
import numpy as np

from standout import DPCA, plot

rng = np.random.default_rng(0)
scale = np.array([3, 3, 2, 2, 1, 1, 1, 1, 0.02, 0.02])
background = rng.normal(size=(3000, 10)) * scale
target = rng.normal(size=(500, 10)) * scale
group = rng.choice(["group 1", "group 2"], size=500)
target[:, 4:7] += 1.5 * np.where(group == "group 1", 1, -1)[:, None]
target[:, 8:] += rng.normal(size=(500, 2)) * [0.12, 0.1]

figure, axes = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
for ax, kind in zip(axes, ("ratio", "signal"), strict=True):
    model = DPCA(2, axes=kind).fit(target, background=background)
    ratios = " and ".join(f"{ratio:.0f}" for ratio in model.ratios_)
    plot.scores(
        model.transform(target), group, axes=ax, title=f'axes="{kind}": ratios {ratios}'
    )
    ax.set(xlabel="first axis, in units of the data", ylabel="second axis")
    ax.margins(y=0.25)  # room for the legend
plt.show()

# %%
# What not to conclude
# --------------------
# Neither choice of axes is the right one, and these data were made to show the difference. On the digits of
# :doc:`/gallery/basics/plot_digits` the axes by ratio separate the classes better. A small, clean difference may be the
# discovery, and the largest signal may be trivial. The size of a signal depends on units: measured in other units, the
# two small features could come first in both panels. Ratios do not depend on units. See :doc:`/howto/choose-a-method`.
