"""
What shrinkage does to ratios
=============================

With 60 background rows for 40 features, the exact problem gives a large ratio along a poor component. Shrinkage of the
background covariance lowers the reported ratio and improves the component: its true ratio, computed from the known
population, rises. Too much shrinkage ignores the background and approaches PCA of scaled features. The default
``shrinkage="auto"`` also keeps the factors that target and background share, and comes close to the best possible
ratio.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from standout import DPCA
from standout.datasets import FactorModel
from standout.errors import StandoutWarning

population = FactorModel(n_features=40, background_sd=(6, 5, 4, 3), signal_sd=2.5)
shrinkages = np.linspace(0, 1, 21)
repeats = 10


def fit(shrinkage: float | str, seed: int) -> tuple[float, float]:
    """Return the in-sample ratio of the first component and its true ratio."""
    target, background = population.sample(200, 60, seed=seed)
    with warnings.catch_warnings():
        # Few background rows are the point of this example.
        warnings.simplefilter("ignore", StandoutWarning)
        model = DPCA(1, shrinkage=shrinkage).fit(target, background=background)
    u = model.components_[0]
    return model.ratios_[0], (u @ population.target_covariance @ u) / (
        u @ population.background_covariance @ u
    )


grid = np.array([[fit(shrinkage, seed) for seed in range(repeats)] for shrinkage in shrinkages])
reported, true = np.median(grid, axis=1).T
auto_reported, auto_true = np.median([fit("auto", seed) for seed in range(repeats)], axis=0)

figure, ax = plt.subplots(figsize=(8, 4.8), layout="constrained")
ax.plot(
    shrinkages,
    reported,
    "o-",
    color="#D55E00",
    markersize=4,
    label="ratio that the fit reports",
)
ax.plot(
    shrinkages, true, "o-", color="#0072B2", markersize=4, label="true ratio of its component"
)
ax.axhline(population.top_ratio, color="#6b7280", linestyle="--", label="best possible ratio")
style = {"marker": "*", "s": 220, "edgecolor": "black", "zorder": 3, "clip_on": False}
ax.scatter(1.1, auto_reported, color="#D55E00", **style)
ax.scatter(1.1, auto_true, color="#0072B2", **style)
ax.axvline(1.05, color="black", linewidth=0.8)
ax.set(
    yscale="log", xlabel="shrinkage", ylabel="ratio (median of ten samples)", xlim=(-0.03, 1.15)
)
ax.set_xticks(
    [0, 0.25, 0.5, 0.75, 1, 1.1],
    ["0\nexact", "0.25", "0.5", "0.75", "1\nPCA of\nscaled features", '"auto"'],
)
ax.set_yticks([1, 2, 5, 10, 20, 50, 100], ["1", "2", "5", "10", "20", "50", "100"])
ax.minorticks_off()
ax.legend(frameon=False)
plt.show()

# %%
# What not to conclude
# --------------------
# A smaller ratio is not a worse result: here the component with the largest reported ratio is the worst one. The shrunk
# ratio is not an unbiased estimate of the true ratio, so use :func:`standout.held_out_ratio` for that. And no single
# value of ``shrinkage`` is best for other data, as the best one depends on rows, features and shared factors.
# :doc:`/explanation/shrinkage` describes the default.
