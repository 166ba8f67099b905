"""
A path of subspaces along alpha
===============================

The rows are tiles of a photograph with handwritten sixes and nines. Contrastive PCA leads from PCA (alpha = 0) to
directions in which the background hardly varies (large alpha). :func:`standout.path` follows the subspace along alpha
and selects a few representatives, which :func:`standout.plot.gallery` draws. The curve below them shows how similar
neighbouring subspaces are: the subspace changes where the curve dips, and hardly depends on alpha elsewhere.
"""

import matplotlib.pyplot as plt
import numpy as np

import standout
from standout import plot
from standout.datasets import digits_over_tiles

example = digits_over_tiles()
path = standout.path(example.target, example.background, over="alpha", n_representatives=3)
plot.gallery(path, example.target, np.where(example.digit == 6, "six", "nine"))
plt.show()

# %%
# What not to conclude
# --------------------
# A stretch on which the subspace hardly changes is not evidence for what it shows: PCA has one too. Choosing the panel
# that looks best is a selection, and a test on the same rows does not account for it. Compare values by
# :func:`standout.held_out_ratio`, or use dPCA, which has no alpha. See :doc:`/howto/choose-a-method`.
