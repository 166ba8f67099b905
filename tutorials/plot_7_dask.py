"""
Dask: many workers, the same numbers
====================================

You have arrays that are spread over a cluster. This tutorial fits a model to Dask arrays, keeps the scores lazy,
compares the numbers with a fit in memory, and shows which part of an analysis does not run on the cluster.
"""

# %%
# The data
# --------
#
# Hyperspectral images of fields: 64 × 64 pixels in 30 bands. Sixteen fields have a leaf disease in patches,
# twenty-four are healthy. A pixel is a row and a band is a feature. Illumination and the share of bare soil dominate
# in every field; the disease changes three bands near the red edge a little. Each field is one file. We generate
# them.

import tempfile
import textwrap
from pathlib import Path

import dask
import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
from dask.distributed import Client

import standout
from standout import DPCA

rng = np.random.default_rng(1)
size, n_bands = 64, 30
wavelength = np.linspace(450, 900, n_bands)
light = 1 + 0.3 * np.sin(wavelength / 100)
soil = (wavelength - 650) / 200
disease = np.exp(-(((wavelength - 705) / 18) ** 2) / 2)
rows, columns = np.mgrid[:size, :size] / size


def blobs(number, width):
    """A smooth image: a sum of bumps at random places."""
    image = np.zeros((size, size))
    for y, x, height in rng.random((number, 3)):
        image += (0.5 + height) * np.exp(
            -((rows - y) ** 2 + (columns - x) ** 2) / (2 * width**2)
        )
    return image


def field(ill):
    """One image, as rows of pixels × bands, and the map of the disease."""
    patches = blobs(rng.integers(2, 6), 0.06) if ill else np.zeros((size, size))
    bright = (
        3 * rng.normal() * (rows - 0.5) + 3 * rng.normal() * (columns - 0.5) + blobs(6, 0.2)
    )
    bare = np.sin(2 * np.pi * rng.integers(6, 10) * columns + 6 * rng.random()) + rng.normal()
    image = (
        np.multiply.outer(bright, light)
        + np.multiply.outer(bare, soil)
        + 1.5 * np.multiply.outer(patches, disease)
    )
    return (image + 0.25 * rng.normal(size=image.shape)).reshape(-1, n_bands), patches


folder = Path(tempfile.mkdtemp())
patches = []
for i in range(40):
    pixels, truth = field(ill=i < 16)
    np.save(folder / f"field-{i:02}.npy", pixels)
    patches.append(truth)

# %%
# Arrays on a cluster
# -------------------
#
# This cluster has two threads of one machine; ``Client("tcp://...")`` connects to a larger one, and nothing else
# changes. Let workers read their own part of the data (``da.from_zarr``, ``dd.read_parquet``, ``da.from_delayed``),
# so that no row passes through the client.

client = Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None)
load = dask.delayed(np.load)


def stack(numbers):
    parts = [load(folder / f"field-{i:02}.npy") for i in numbers]
    return da.concatenate([da.from_delayed(part, (size**2, n_bands), float) for part in parts])


ill, healthy = range(16), range(16, 40)
X, Y = stack(ill), stack(healthy)
print(X)
print(Y)

# %%
# The fit
# -------
#
# Neighbouring pixels are alike, so the field is the unit. Groups may be arrays in memory, or Dask arrays with the same
# chunks. Workers add up the moments of their chunks; the client receives one matrix of bands × bands for each dataset.

units = {"groups": np.repeat(ill, size**2), "background_groups": np.repeat(healthy, size**2)}
model = DPCA(n_components=2).fit(X, background=Y, **units)
print(model.summary())

# %%
# The warning is expected. In memory, a second pass over the rows estimates to how many independent rows the pixels of a
# field correspond. Rows on a cluster are read once, and each field counts as one unit, which is the strictest count.
# 24 healthy fields are fewer than 30 bands, so there is no noise edge and no p-value. The ratios and components are
# not affected here; the test below decides whether they mean anything.
#
# Lazy scores
# -----------
#
# ``transform`` returns a Dask array and computes nothing. Reduce it on the workers before you fetch a result: here, the
# standard deviation of the score in each field, and the maps of two fields.

scores = model.transform(X)
print(scores)
maps = scores[:, 0].reshape((len(ill), size, size))
spread = maps.std(axis=(1, 2)).compute()
healthy_maps = model.transform(Y)[:, 0].reshape((len(healthy), size, size))
healthy_spread = healthy_maps.std(axis=(1, 2)).compute()
print(
    f"sd of dpca0 in a field: diseased {np.median(spread):.2f}, healthy {np.median(healthy_spread):.2f} (medians)"
)

# %%
# PCA of the same pixels shows illumination. dPCA shows the patches, which it was not given. A score has an arbitrary
# sign; we set it so that the band with the largest pattern rises.

sign = np.sign(model.patterns_[0][np.abs(model.patterns_[0]).argmax()])
shown = int(np.argsort([truth.std() for truth in patches[:16]])[-3])
pca = DPCA(n_components=1).fit(X, groups=units["groups"])
panels = {
    "PCA, diseased field": pca.transform(X)[:, 0]
    .reshape((len(ill), size, size))[shown]
    .compute(),
    "dPCA, diseased field": sign * maps[shown].compute(),
    "simulated patches": patches[shown],
    "dPCA, healthy field": sign * healthy_maps[0].compute(),
}
figure, axes = plt.subplots(1, 4, figsize=(8.6, 2.6), layout="constrained")
low, high = np.quantile(panels["dPCA, diseased field"], [0.01, 0.999])
for ax, (title, image) in zip(axes, panels.items(), strict=True):
    limits = {"vmin": low, "vmax": high} if title.startswith("dPCA") else {}
    ax.imshow(image, cmap="viridis", **limits)
    ax.set(title=title, xticks=[], yticks=[])

# %%
# The same numbers
# ----------------
#
# For comparison, we fetch all rows and fit in memory. The results agree to rounding, whatever the number of workers and
# the order in which they finish.

x, y = X.compute(), Y.compute()
in_memory = DPCA(n_components=2).fit(x, background=y, **units)
for name in ("ratios_", "components_", "patterns_", "mean_"):
    ours, theirs = getattr(model, name), getattr(in_memory, name)
    print(
        f"{name:12} equal up to 1e-9: {bool(np.abs(ours - theirs).max() < 1e-9 * np.abs(theirs).max())}"
    )
print(
    "scores       equal up to 1e-9:",
    bool(np.allclose(scores.compute(), in_memory.transform(x), rtol=0, atol=1e-9)),
)
print(
    f"noise edge   on the cluster {model.noise_edge_:.2f}, in memory {in_memory.noise_edge_:.2f}"
)

# %%
# Is it real?
# -----------
#
# Tests need the rows hundreds of times. :func:`standout.assess` would collect a Dask array into the client, and
# refuse if it does not fit. Sample on the cluster instead. The test permutes whole fields, so 256 random pixels of
# each field are plenty. (Every 16th pixel would be a poor sample: in an image 64 pixels wide it takes four columns
# only.)

pixel = np.sort(rng.choice(size**2, 256, replace=False))
in_ill, in_healthy = (
    np.add.outer(np.arange(len(fields)) * size**2, pixel).ravel() for fields in (ill, healthy)
)
assessment = standout.assess(
    X[in_ill].compute(), Y[in_healthy].compute(), groups=units["groups"][in_ill],
    background_groups=units["background_groups"][in_healthy],
    n_components=2, n_permutations=99, n_bootstrap=30, random_state=0,
)  # fmt: skip
print(assessment.summary())
client.close()

# %%
# The sentence
# ------------

p, ratio = assessment.test.p_values[0], assessment.held_out.ratios[0]
low, high = assessment.held_out.low[0], assessment.held_out.high[0]
sentence = (
    f"Pixels of {len(ill)} diseased fields vary along one spectral component that pixels of {len(healthy)} healthy "
    f"fields lack (variance ratio {model.ratios_[0]:.1f}), with its largest weight at "
    f"{wavelength[np.abs(model.patterns_[0]).argmax()]:.0f} nm. On {len(pixel)} random pixels of each field: "
    f"permutation of fields, p = {p:.2f}, {assessment.test.null.shape[1]} permutations; ratio on held-out fields "
    f"{ratio:.1f}, 95 % interval {low:.1f} to {high:.1f}."
)
print(textwrap.fill(sentence, 100))

# %%
# What not to conclude
# --------------------
#
# * **Not that 160,000 pixels are 160,000 observations.** They are 40 fields. A cluster makes it easy to add pixels, and
#   hard to notice that the number of fields stayed the same.
# * **Not that every high score is diseased.** Scores have noise, in healthy fields too. A map of the disease needs a
#   threshold, and an error rate from fields whose patches are known.
# * **Not that the component is the disease.** If diseased fields were photographed on other days, clouds would be
#   specific to them as well. Compare fields of the same flight.
# * **Not that p-values are as sharp as in memory.** On a cluster each field counts as one unit. That is safe, and may
#   miss what a fit or a test in memory finds.
#
# Data frames, Spark, costs and limits: :doc:`/explanation/scale`.
