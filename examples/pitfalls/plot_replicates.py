"""
Replicates inflate significance
===============================

Nine control animals and eighteen treated animals were measured fifteen times each. All values are noise: the treatment
has no effect. If rows are permuted, 405 rows look like strong evidence, because the few control animals happen to vary
little in some direction. If animals are permuted, with ``groups``, such a ratio is ordinary.
"""

import matplotlib.pyplot as plt
import numpy as np

import standout
from standout import plot

rng = np.random.default_rng(0)
n_features, n_replicates = 6, 15


def measure(animals: np.ndarray) -> np.ndarray:
    """Return fifteen rows for each animal: a value of the animal plus an error of measurement."""
    mean = np.repeat(rng.normal(size=(len(animals), n_features)), n_replicates, axis=0)
    return mean + 0.5 * rng.normal(size=mean.shape)


treated_animals, control_animals = np.arange(18), np.arange(18, 27)
treated, control = measure(treated_animals), measure(control_animals)
by_rows = standout.permutation_test(treated, control, n_permutations=499, random_state=0)
by_animals = standout.permutation_test(
    treated,
    control,
    groups=np.repeat(treated_animals, n_replicates),
    background_groups=np.repeat(control_animals, n_replicates),
    n_permutations=499,
    random_state=0,
)

figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharex=True)
plot.null(by_rows, axes=axes[0])
axes[0].set_title(f"rows are permuted (wrong): p = {by_rows.p_values[0]:.2g}")
plot.null(by_animals, axes=axes[1])
axes[1].set_title(f"animals are permuted: p = {by_animals.p_values[0]:.2g}")
plt.show()

# %%
# What not to conclude
# --------------------
# More measurements of the same animals do not replace more animals. If rows are not independent, a p-value that
# counts rows is not weak evidence; it is no evidence. And ``groups`` cannot repair a design in which all treated animals share one cage
# or one batch: then the cage is the unit. See :doc:`/howto/subjects-and-pairs`.
