"""
In-sample and held-out ratios
=============================

One direction of the target has a true ratio of 10, and all others have a ratio of one. All six components look good on
the rows that they were fitted to. On rows that were held out, only the first one remains well above one. An in-sample
ratio measures how well a component fits its own rows; the held-out ratio shows whether it exists.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

import standout
from standout.datasets import FactorModel
from standout.errors import StandoutWarning

population = FactorModel(n_features=30, signal_sd=3)
target, background = population.sample(200, 150, seed=1)
with warnings.catch_warnings():
    # Five background rows per feature: the background is shrunk.
    warnings.simplefilter("ignore", StandoutWarning)
    found = standout.held_out_ratio(target, background, n_components=6, random_state=0)
print(found.summary())

components = np.arange(6)
figure, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
ax.scatter(
    components - 0.1,
    found.training_ratios.mean(axis=0),
    s=70,
    color="#D55E00",
    label="in-sample",
)
errors = np.abs([found.low, found.high] - found.ratios)
held_out = {
    "fmt": "D",
    "color": "#0072B2",
    "capsize": 4,
    "label": "held out, with 95 % interval",
}
ax.errorbar(components + 0.1, found.ratios, yerr=errors, **held_out)
ax.axhline(1, color="black", linewidth=0.8)
ax.axhline(
    population.top_ratio,
    xmax=0.16,
    color="#6b7280",
    linestyle="--",
    label="true ratio of the signal",
)
ax.set(yscale="log", ylabel="ratio of target to background variance")
ax.set_xticks(components, [f"dpca{k}" for k in components])
ax.set_yticks([0.5, 1, 2, 5, 10, 20], ["0.5", "1: nothing specific", "2", "5", "10", "20"])
ax.minorticks_off()
ax.legend(frameon=False)
plt.show()

# %%
# What not to conclude
# --------------------
# The held-out ratio is that of components fitted to four fifths of the rows, so it can be below the true ratio. Folds
# must not share subjects: with replicates, pass ``groups``, or the held-out ratio is inflated too. And a ratio that
# holds on other rows of the same study may still be an artefact of that study. See :doc:`/explanation/is-it-real`.
