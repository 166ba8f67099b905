"""
Contrastive PCA with automatic alpha
====================================

Four groups are hidden under strong variation that target and background share. Contrastive PCA subtracts alpha times
the background covariance. With alpha = 0 it is PCA and shows the shared variation. ``alpha="auto"`` searches a grid and
returns a few representative subspaces; one of them separates all four groups, another one only two pairs of them.
"""

import matplotlib.pyplot as plt
import numpy as np

from standout import CPCA, plot

rng = np.random.default_rng(0)
background = np.hstack([rng.normal(0, sd, (400, 10)) for sd in (10, 3, 1)])
group = np.repeat(np.arange(4), 100)
shared = rng.normal(0, 10, (400, 10))
first = rng.normal(6 * (group // 2)[:, None], 1, (400, 10))
second = rng.normal(3 * (group % 2)[:, None], 1, (400, 10))
order = rng.permutation(400)
target, group = np.hstack([shared, first, second])[order], group[order]

model = CPCA(random_state=0).fit(target, background=background)
path = model.path_
count = len(path.representatives)
figure, axes = plt.subplots(2, (count + 1) // 2, figsize=(9, 8), layout="constrained")
for ax in axes.flat[count:]:
    ax.set_visible(False)
for ax, step in zip(axes.flat, path.representatives, strict=False):
    alpha = path.values[step]
    kind = (
        "PCA"
        if alpha == 0
        else "selected"
        if alpha == model.alpha_
        else "another representative"
    )
    scores = (target - model.mean_) @ path.components[step].T
    plot.scores(
        scores, [f"group {g}" for g in group], axes=ax, title=f"alpha = {alpha:.3g} ({kind})"
    )
    if ax is not axes.flat[0]:
        ax.get_legend().remove()
plt.show()

# %%
# What not to conclude
# --------------------
# The selection of alpha is exploration, not a test. Looking at several panels and reporting the best one overstates the
# evidence. Groups that merge in one panel may be distinct in another, so a single projection does not show that groups
# are equal. Alpha has no natural value, as it depends on the units of the features; dPCA needs none. See
# :doc:`/howto/choose-a-method`.
