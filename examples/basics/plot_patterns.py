"""
Filters are not patterns
========================

The signal of the target is a disc on the left of the image. Target and background share a strong stripe that crosses
the disc. The filter, which turns rows into scores, has large weights on the stripe *outside* the disc: it measures the
stripe there in order to subtract it. The pattern shows what the component looks like in the data, and it is the disc
alone.
"""

import matplotlib.pyplot as plt
import numpy as np

from standout import DPCA

rng = np.random.default_rng(0)
side = 16
y, x = np.mgrid[:side, :side]
disc = (np.hypot(x - 4, y - 8) < 3.5).astype(float).ravel()
stripe = (np.abs(y - 8) < 1.5).astype(float).ravel()


def sample(n: int, disc_sd: float) -> np.ndarray:
    """Return n images: a stripe of random strength, a disc of random strength, and noise in every pixel."""
    strengths = rng.normal(size=(n, 2)) * [3, disc_sd]
    return strengths @ [stripe, disc] + rng.normal(size=(n, side * side))


target, background = sample(4000, 2.0), sample(20_000, 0.0)
model = DPCA(1).fit(target, background=background)

images = {
    "shared by both": stripe,
    "specific to the target": disc,
    "filter: how it is measured": model.components_[0],
    "pattern: what it looks like": model.patterns_[0],
}
figure, axes = plt.subplots(1, 4, figsize=(11, 3.2), layout="constrained")
for ax, (title, image) in zip(axes, images.items(), strict=True):
    limit = np.abs(image).max()
    ax.imshow(image.reshape(side, side), cmap="RdBu_r", vmin=-limit, vmax=limit)
    ax.set(title=title, xticks=[], yticks=[])
plt.show()

# %%
# What not to conclude
# --------------------
# Do not read the meaning of a component from ``components_``. A large weight may only cancel what the background
# shares, and a weight near zero does not show that a feature carries no signal. Use ``patterns_``,
# :meth:`standout.DPCA.top_features` or :func:`standout.plot.patterns`. A pattern is no proof of location either: it
# contains every feature that varies *together* with the score. See :doc:`/explanation/method`.
