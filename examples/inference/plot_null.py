"""
A permutation test under heavy tails
====================================

In two studies the data have heavy tails. In the first one, target and background have the same distribution; in the
second one, a feature of the target varies more. The formula of the fit assumes Gaussian data and gives a tiny p-value
in both. The permutation test compares the largest ratio with those of shuffled labels, which have heavy tails too, and
rejects only in the second study.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

import standout
from standout import DPCA, plot
from standout.errors import StandoutWarning

rng = np.random.default_rng(10)
background = rng.standard_t(3, size=(300, 10))
noise = rng.standard_t(3, size=(200, 10))
signal = rng.standard_t(3, size=(200, 10)) * [1, 1, 1, 4, 1, 1, 1, 1, 1, 1]

studies = {"nothing specific": noise, "one feature varies more": signal}
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for ax, (name, target) in zip(axes, studies.items(), strict=True):
    test = standout.permutation_test(target, background, n_permutations=499, random_state=0)
    with warnings.catch_warnings():
        # Fewer than 50 background rows per feature.
        warnings.simplefilter("ignore", StandoutWarning)
        formula = DPCA().fit(target, background=background).p_value_
    plot.null(test, axes=ax)
    ax.set_title(f"{name}\nformula p = {formula:.1g}, permutation p = {test.p_values[0]:.2g}")
plt.show()

# %%
# What not to conclude
# --------------------
# A p-value above 0.05 does not show that target and background are alike, and a small one does not measure how large
# the effect is. The test assumes that rows can be exchanged: replicates need ``groups``
# (:doc:`/gallery/pitfalls/plot_replicates`). The first study was selected from a dozen random samples because it shows the
# difference clearly: the formula is not that far off in every sample, and the permutation test also rejects about one
# noise sample in twenty. With 499 permutations no p-value can be below 0.002. See :doc:`/explanation/is-it-real`.
