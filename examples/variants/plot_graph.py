"""
Smooth components over pixels
=============================

The features are the pixels of an image, and there are few rows. The target contains a smooth blob of random strength.
Without further information the component is noisy. A penalty on components that are rough on the graph of neighbouring
pixels brings it closer to the blob.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.image import grid_to_graph

from standout import DPCA
from standout.errors import StandoutWarning

rng = np.random.default_rng(0)
side = 14
y, x = np.mgrid[-1 : 1 : side * 1j, -1 : 1 : side * 1j]
blob = np.exp(-4 * ((x - 0.2) ** 2 + (y + 0.3) ** 2)).ravel()
blob /= np.linalg.norm(blob)
target = rng.normal(size=(80, side * side)) + np.outer(rng.normal(size=80) * 2, blob)
background = rng.normal(size=(120, side * side))

images = {"truth": blob}
for smoothness in (0.0, 0.3, 3.0):
    with warnings.catch_warnings():
        # Few rows are the point of this example.
        warnings.simplefilter("ignore", StandoutWarning)
        model = DPCA(1, graph=grid_to_graph(side, side), smoothness=smoothness).fit(
            target, background=background
        )
    component = model.components_[0]
    images[f"smoothness {smoothness:g}\ncosine with truth {abs(component @ blob):.2f}"] = (
        component
    )

figure, axes = plt.subplots(1, 4, figsize=(11, 3.4), layout="constrained")
for ax, (title, image) in zip(axes, images.items(), strict=True):
    limit = np.abs(image).max()
    ax.imshow(
        image.reshape(side, side) * np.sign(image.sum()), cmap="RdBu_r", vmin=-limit, vmax=limit
    )
    ax.set(title=title, xticks=[], yticks=[])
plt.show()

# %%
# What not to conclude
# --------------------
# A smooth component is not evidence of a smooth signal: with a strong penalty, noise looks smooth too. The penalty
# helps only if the true pattern is smooth on the graph. Its strength cannot be chosen by the largest in-sample ratio,
# which falls with every penalty; use :func:`standout.held_out_ratio`. See :doc:`/howto/choose-a-method`.
