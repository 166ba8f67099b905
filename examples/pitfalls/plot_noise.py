"""
Large ratios from pure noise
============================

Target and background are the same white noise in 50 features, so the true ratio is one in every direction. dPCA
nevertheless reports large ratios, because it searches for the direction in which this sample of the background varies
least. With barely more background rows than features the ratio reaches the thousands. The noise edge, which every
summary contains, is the ratio to be expected from noise. On new rows the same directions have a ratio of one.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from standout import DPCA
from standout.errors import OverfitWarning

rng = np.random.default_rng(0)
features, repeats = 50, 12
sizes = [52, 60, 75, 100, 150, 250, 500, 1000, 2500]
in_sample, new_rows, edges = [], [], []
new = rng.normal(size=(2, 2000, features))
for n in sizes:
    for _ in range(repeats):
        target, background = (rng.normal(size=(200, features)), rng.normal(size=(n, features)))
        with warnings.catch_warnings():
            # The fit warns of what this example shows.
            warnings.simplefilter("ignore", OverfitWarning)
            model = DPCA(1, shrinkage=None).fit(target, background=background)
        in_sample.append(model.ratios_[0])
        scores = new @ model.components_[0]
        new_rows.append(scores[0].var() / scores[1].var())
    edges.append(model.noise_edge_)

figure, ax = plt.subplots(figsize=(8, 4.8), layout="constrained")
rows = np.repeat(sizes, repeats)
ax.scatter(rows, in_sample, s=18, color="#D55E00", label="largest ratio of a fit, in-sample")
ax.plot(sizes, edges, color="#6b7280", linestyle="--", label="noise edge")
ax.scatter(
    rows, new_rows, s=18, color="#0072B2", marker="D", label="the same component on new rows"
)
ax.axhline(1, color="black", linewidth=0.8)
ax.set(
    xscale="log",
    yscale="log",
    xlabel="background rows (50 features)",
    ylabel="ratio",
    title="Nothing but noise",
)
ax.set_xticks(sizes, [str(n) for n in sizes])
ax.minorticks_off()
ticks = {1: "1 (true ratio)", 10: "10", 100: "100", 1000: "1,000", 10_000: "10,000"}
ax.set_yticks([*ticks, 100_000], [*ticks.values(), "100,000"])
ax.legend(frameon=False)
plt.show()

# %%
# What not to conclude
# --------------------
# A ratio of 100 is not strong evidence in itself, and ratios of studies with different numbers of rows cannot be
# compared. Nor is a ratio below the noise edge evidence that nothing is there: a weak signal may be hidden in the
# noise. The edge assumes Gaussian, independent rows, and pure noise exceeds it in about 6 to 15 % of fits. By default
# :class:`standout.DPCA` shrinks the background of such small samples (:doc:`/gallery/options/plot_shrinkage`).
# :doc:`/explanation/method` has the numbers as a table, :doc:`/explanation/is-it-real` the tests.
