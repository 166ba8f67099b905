"""
Standardising each dataset separately destroys the finding
==========================================================

Two subtypes of patients differ in one feature that varies little in the controls. dPCA finds them in the raw data, and
also after patients and controls are scaled with the same factors. If each dataset is standardised by its own standard
deviations, every feature has a variance of one in both. All ratios of single features are then one, and the subtypes
are lost.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.preprocessing import StandardScaler

from standout import DPCA, plot
from standout.errors import OverfitWarning

rng = np.random.default_rng(0)
scale = np.linspace(5, 1, 20)
control = rng.normal(size=(3000, 20)) * scale
patients = rng.normal(size=(500, 20)) * scale
subtype = rng.choice(["subtype A", "subtype B"], size=500)
patients[:, 15] += np.where(subtype == "subtype A", 5, -5)

scaler = StandardScaler().fit(np.vstack([patients, control]))
pairs = {
    "raw": (patients, control),
    "scaled together": (scaler.transform(patients), scaler.transform(control)),
    "standardised separately (wrong)": tuple(
        StandardScaler().fit_transform(rows) for rows in (patients, control)
    ),
}
figure, axes = plt.subplots(1, 3, figsize=(11, 4), layout="constrained")
for ax, (name, (target, background)) in zip(axes, pairs.items(), strict=True):
    with warnings.catch_warnings():
        # After separate standardising, nothing is above the noise edge.
        warnings.simplefilter("ignore", OverfitWarning)
        model = DPCA(2).fit(target, background=background)
    title = f"{name}\nratio {model.ratios_[0]:.1f} (noise edge {model.noise_edge_:.1f})"
    plot.scores(model.transform(target), subtype, axes=ax, title=title)
    if ax is not axes[2]:
        ax.get_legend().remove()
axes[2].set_ylim(top=6)  # room for the legend
plt.show()

# %%
# What not to conclude
# --------------------
# Scaling as such is harmless: with this many rows the ratios do not depend on the units, as long as both datasets are
# converted with the same factors. Nor does separate standardising always leave nothing: differences in correlations
# remain, and may be mistaken for the whole result. See :doc:`/howto/backgrounds` and :doc:`/howto/scikit-learn`.
