"""
Tumours: a large ratio that is a matter of scale
================================================

Cells of malignant and benign tumours are described by measurements of their size, shape and texture. The largest ratio
of dPCA is in the hundreds, and it is about size: malignant cells are larger, and large things vary more in absolute
terms. Logarithms turn absolute into relative variation. After taking them, most of the excess variance is gone.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

from standout import DPCA

cells = load_breast_cancer(as_frame=True)
malignant = cells.target == 0
positive = cells.data.loc[:, (cells.data > 0).all()]  # logarithms need positive values

figure, (left, right) = plt.subplots(
    1, 2, figsize=(11, 5), layout="constrained", width_ratios=(2, 1)
)
colors = {"raw values": "#D55E00", "logarithms": "#0072B2"}
for position, (name, rows) in enumerate(
    {"raw values": positive, "logarithms": np.log(positive)}.items()
):
    model = DPCA(2).fit(rows[malignant], background=rows[~malignant])
    ratios = rows[malignant].var() / rows[~malignant].var()
    if position == 0:
        features = ratios.nlargest(14).index[::-1]
    left.plot(ratios[features], features, "o", color=colors[name], label=name)
    bar = right.bar(name, model.ratios_[0], color=colors[name], width=0.6)
    right.bar_label(bar, fmt="%.0f")
left.axvline(1, color="black", linewidth=0.8)
left.set(
    xscale="log",
    xlabel="variance of malignant / variance of benign",
    title="single measurements",
)
left.set_xticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
left.minorticks_off()
left.legend(frameon=False, loc="lower right")
right.axhline(model.noise_edge_, color="#6b7280", linestyle="--", label="noise edge")
right.set(yscale="log", ylim=(1, 1000), ylabel="largest ratio", title="first component of dPCA")
right.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
right.minorticks_off()
right.legend(frameon=False)
plt.show()

# %%
# What not to conclude
# --------------------
# The ratio of the raw values is not an error: malignant cells do vary more in size. But it repeats what their larger
# mean already implies, and it is not evidence of a separate mechanism. Nor do logarithms make the rest a finding: the
# noise edge assumes Gaussian data, so a permutation test is needed. Decide on the transformation before you look at
# ratios, and apply it to both datasets. See :doc:`/explanation/is-it-real`.
