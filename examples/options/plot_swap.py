"""
Two conditions, both ways
=========================

Task and rest were recorded with 24 sensors. During the task the left sensors vary more; at rest a rhythm on the right
is stronger. One fit with all components contains both results: large ratios are specific to the task, ratios far below
one are specific to rest. Swapping target and background gives the same components in reverse order, with inverse
ratios.
"""

import matplotlib.pyplot as plt
import numpy as np

from standout import DPCA

rng = np.random.default_rng(0)
sensor = np.arange(24)
left, right = (np.exp(-0.5 * ((sensor - 5) / 2) ** 2), np.exp(-0.5 * ((sensor - 17) / 2) ** 2))
shared = np.cos(np.pi * sensor / 23)


def record(n: int, sd_left: float, sd_right: float) -> np.ndarray:
    """Return n rows: three sources of these standard deviations, and noise."""
    sources = rng.normal(size=(n, 3)) * [sd_left, sd_right, 5]
    return sources @ [left, right, shared] + rng.normal(size=(n, 24))


task, rest = record(3000, 2.0, 0.5), record(3000, 0.5, 1.5)
model = DPCA(n_components=None).fit(task, background=rest)
swapped = DPCA(n_components=None).fit(rest, background=task)
print("swapped ratios are the inverse:", np.allclose(swapped.ratios_, 1 / model.ratios_[::-1]))

figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
colors = ["#0072B2", *["#9aa0a6"] * 22, "#D55E00"]
axes[0].bar(range(1, 25), model.ratios_ - 1, bottom=1, color=colors)
axes[0].axhline(1, color="black", linewidth=0.8)
axes[0].set(
    yscale="log",
    xlabel="component",
    ylabel="variance during task / at rest",
    title="ratios of one fit",
)
axes[0].set_yticks([0.25, 0.5, 1, 2, 4, 8], ["1/4", "1/2", "1", "2", "4", "8"])
axes[0].set_xticks([1, 6, 12, 18, 24])
axes[0].minorticks_off()
for index, name, color in (
    (0, "first component: task", colors[0]),
    (-1, "last component: rest", colors[-1]),
):
    pattern = model.patterns_[index] * np.sqrt(model.target_variance_[index])
    axes[1].plot(
        sensor + 1,
        pattern * np.sign(pattern.sum()),
        "o-",
        markersize=4,
        color=color,
        label=name,
    )
axes[1].axhline(0, color="black", linewidth=0.8)
axes[1].set(xlabel="sensor, from left to right", ylabel="pattern", title="where they are")
axes[1].legend(frameon=False)
plt.show()

# %%
# What not to conclude
# --------------------
# The components between the two ends are not "shared": their ratios scatter around one, and their directions are
# arbitrary. The symmetry is exact for the exact problem only. With few rows the background is shrunk, and the two
# directions must be fitted, and tested, separately. The noise edge of one fit does not apply to its smallest ratios.
# See :doc:`/howto/choose-a-method` (CSP).
