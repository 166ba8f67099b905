"""
Which features can be trusted?
==============================

The target varies along one direction that involves four of 30 features. ``top_features`` lists the largest weights, but
with few rows some of them are noise. :func:`standout.stability` draws bootstrap samples of the rows and records how the
weights vary. Features whose sign changes from sample to sample are drawn pale and hatched.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import standout
from standout import plot
from standout.errors import StandoutWarning

rng = np.random.default_rng(3)
names = [f"gene {i + 1}" for i in range(30)]
specific = np.zeros(30)
specific[[2, 8, 15, 22]] = [2.0, -1.6, 1.2, 0.8]
background = pd.DataFrame(rng.normal(size=(120, 30)), columns=names)
target = pd.DataFrame(
    rng.normal(size=(80, 30)) + np.outer(rng.normal(size=80), specific), columns=names
)
with warnings.catch_warnings():
    # Four background rows per feature: the background is shrunk.
    warnings.simplefilter("ignore", StandoutWarning)
    found = standout.stability(
        target, background, n_components=1, n_bootstrap=100, random_state=0
    )

ax = plot.stability(found, count=10)
involved = {name for name, weight in zip(names, specific, strict=True) if weight}
for label in ax.get_yticklabels():
    label.set_fontweight("bold" if label.get_text() in involved else "normal")
ax.set_title(
    "bold: the four features of the true signal\nhatched: the sign varies between bootstrap samples"
)
plt.show()

# %%
# What not to conclude
# --------------------
# A stable feature is not a cause, and a stable component need not be real: a technical artefact is stable too.
# Intervals are for features chosen beforehand. Gene 20 is not part of the signal, yet its interval excludes zero: it is
# the largest of 26 such weights. And a feature that is missing from the list may still be involved. See
# :doc:`/explanation/is-it-real`.
