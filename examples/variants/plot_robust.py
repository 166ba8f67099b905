"""
Outliers and robust moments
===========================

Three percent of the rows of target and background are gross outliers, such as failed measurements. The first component
of dPCA follows the outliers of the target, and the two clusters of the other rows appear only in the second one.
:func:`standout.robust_moments` gives outliers little weight, and dPCA of these moments finds the direction that
separates the clusters.
"""

import matplotlib.pyplot as plt
import numpy as np

from standout import DPCA, plot, robust_moments
from standout.datasets import FactorModel

population = FactorModel(signal_sd=3.0, two_clusters=True, outlier_share=0.03)
data = population.labelled_sample(1000, 2000, seed=1)
labels = np.where(
    data.outlier, "outlier", np.where(data.cluster == 1, "cluster 1", "cluster 2")
)
moments = robust_moments(data.target), robust_moments(data.background)
models = {
    "plain moments": DPCA(2).fit(data.target, background=data.background),
    "robust moments": DPCA(2).fit(moments[0], background=moments[1]),
}

figure, axes = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    title = f"{name}: ratio {model.ratios_[0]:.1f} (true {population.top_ratio:.0f})"
    plot.scores(model.transform(data.target), labels, axes=ax, title=title)
axes[1].set(
    xlim=(-8, 8), ylim=(-12, 12), xlabel="component 0 (most outliers are outside the frame)"
)
plt.show()

# %%
# What not to conclude
# --------------------
# Robust moments do not decide which rows are errors. If three percent of the patients form a rare subtype, the outliers
# are the discovery: look at them before they are given less weight. Robust moments cost accuracy on clean data, and the
# noise edge and p-value assume ordinary moments. See :doc:`/howto/choose-a-method`.
