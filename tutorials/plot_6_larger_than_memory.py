"""
Data larger than memory
=======================

You have files that do not fit into memory. This tutorial fits a model to a directory of parquet files against a csv
file, in blocks of a few megabytes, with checkpoints. It shows that the numbers are those of a fit in memory, and how
to test a result whose rows cannot be held at once.
"""

# %%
# The files
# ---------
#
# A turbine is monitored in runs; each run gives 2,500 spectra of vibration in 40 frequency bands. Twelve runs were
# recorded in the week before a fault, one parquet file each. Twenty-four runs of normal operation are in one csv
# file. We generate them: load, speed and temperature drive all bands, and before the fault a resonance around band 12
# appears, stronger in some runs than in others. The files are small so that this page builds in seconds; nothing
# below depends on their size.

import os
import tempfile
import textwrap
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import standout
from standout import DPCA, plot
from standout.errors import StandoutError

rng = np.random.default_rng(0)
bands = [f"band_{i:02}" for i in range(40)]
conditions = rng.normal(size=(5, 40)) * np.array([[6], [4], [3], [2], [2]])
resonance = np.exp(-((np.arange(40) - 12) ** 2) / 2) * 2


def record(name, strength, n_rows=2500):
    drivers = 0.5 * rng.normal(size=5) + rng.normal(size=(n_rows, 5))
    spectra = drivers @ conditions + rng.normal(size=(n_rows, 40))
    spectra += np.outer(strength * rng.gamma(4, 0.25) * rng.normal(size=n_rows), resonance)
    return pd.DataFrame(spectra, columns=bands).assign(run=name)


folder = Path(tempfile.mkdtemp())
(folder / "fault").mkdir()
for i in range(12):
    record(f"fault {i:02}", strength=1.2).to_parquet(
        folder / "fault" / f"{i:02}.parquet", index=False
    )
for i in range(24):
    record(f"normal {i:02}", strength=0.2).to_csv(
        folder / "normal.csv", mode="a", header=i == 0, index=False, float_format="%.5g"
    )
for path in ("fault/00.parquet", "normal.csv"):
    print(f"{path:17} {(folder / path).stat().st_size / 1e6:.1f} MB")

# %%
# Reading in blocks
# -----------------
#
# :func:`standout.read` describes the files and reads no data yet. ``memory=`` is the budget of one dataset: what fits
# is kept in memory, what does not is read in blocks, so that the blocks in use stay within the budget. As numbers,
# these datasets take 10 and 20 MB; with a budget of 4 MB both are read in blocks. The default is 256 MB. A directory
# or a glob pattern is one dataset, in the order of the file names. The column *run* gives the independent unit.

options = {"groups": "run", "memory": "4MB"}
fault = standout.read(folder / "fault", checkpoint=folder / "fault.checkpoint", **options)
normal = standout.read(
    folder / "normal.csv", checkpoint=folder / "normal.checkpoint", **options
)
model = DPCA(n_components=2).fit(fault, background=normal)
print(model.summary())

# %%
# Checkpoints
# -----------
#
# With ``checkpoint=``, the sums and the position in the file are saved every 30 seconds. A fit that was killed
# resumes there when the same script runs again, and gives the same result bit for bit. This fit was too short to be
# interrupted. The complete checkpoints remain, and another fit of the same data, for instance with more components,
# does not repeat that pass. (With ``groups``, a second and faster pass estimates the effective number of
# rows. It is not saved.)

again = DPCA(n_components=6).fit(fault, background=normal)
for name in ("fault", "normal"):
    print(f"{name}.checkpoint: {(folder / f'{name}.checkpoint').stat().st_size / 1e3:.0f} kB")
print("ratios:", again.ratios_.round(2))

# %%
# A checkpoint belongs to its data. If a file changes afterwards, there is an error, and old and new sums are not mixed:

os.utime(folder / "fault" / "03.parquet")
try:
    standout.read(folder / "fault", checkpoint=folder / "fault.checkpoint", **options)
except StandoutError as error:
    print(str(error).replace(str(folder), "..."))

# %%
# The same numbers
# ----------------
#
# Here, and only here, we load everything, to compare with a fit in memory. The numbers agree to rounding.

frames = pd.concat(
    pd.read_parquet(path) for path in sorted((folder / "fault").glob("*.parquet"))
)
controls = pd.read_csv(folder / "normal.csv")
in_memory = DPCA(n_components=2).fit(
    frames[bands], background=controls[bands], groups=frames.run, background_groups=controls.run
)
for name in ("ratios_", "components_", "patterns_", "noise_edge_"):
    streamed, loaded = getattr(model, name), getattr(in_memory, name)
    print(
        f"{name:12} equal up to 1e-9: {np.abs(streamed - loaded).max() < 1e-9 * np.abs(loaded).max()}"
    )

# %%
# Scores
# ------
#
# ``transform`` reads a file in the same blocks and keeps only the scores. If even these are too many, the command
# ``standout embed model.standout fault -o scores.parquet`` writes them block by block and keeps none.

scores = {
    "before the fault": model.transform(standout.read(folder / "fault", **options)),
    "normal": model.transform(normal),
}
spread = {name: values[:, 0].reshape(-1, 2500).std(axis=1) for name, values in scores.items()}
figure, (left, right) = plt.subplots(
    1, 2, figsize=(8.6, 3.9), layout="constrained", width_ratios=[1, 1.1]
)
for height, (color, values) in enumerate(
    zip(("#D55E00", "#6b7280"), spread.values(), strict=True)
):
    left.scatter(values, height + rng.uniform(-0.15, 0.15, len(values)), c=color, s=36)
left.set_yticks([0, 1], spread)
left.set(xlabel="sd of dpca0 within a run", ylim=(1.6, -0.6), title="Each point is a run")
plot.patterns(model, count=8, axes=right)
_ = right.set_title("Bands of dpca0")

# %%
# Is it real?
# -----------
#
# A fit needs one pass. A permutation test needs the rows hundreds of times, so they must be in memory. But the unit is the
# run, and there are only 36 runs. Fifty spectra of each are enough to test whether runs before the fault differ: the
# number of runs limits the test, not the number of spectra.

few_faults = pd.concat(
    pd.read_parquet(path)[::50] for path in sorted((folder / "fault").glob("*.parquet"))
)
few_controls = pd.read_csv(
    folder / "normal.csv", skiprows=lambda line: line % 50 != 1 and line > 0
)
assessment = standout.assess(
    few_faults[bands], few_controls[bands], groups=few_faults.run, background_groups=few_controls.run,
    n_components=2, n_permutations=199, n_bootstrap=50, random_state=0,
)  # fmt: skip
print(assessment.summary())

# %%
# The sentence
# ------------

p, ratio = assessment.test.p_values[0], assessment.held_out.ratios[0]
low, high = assessment.held_out.low[0], assessment.held_out.high[0]
sentence = (
    f"Spectra of {frames.run.nunique()} runs before the fault ({len(frames):,}) vary around "
    f"{model.top_features(1)[0][0].feature} in a way that those of {controls.run.nunique()} normal runs "
    f"({len(controls):,}) do not (variance ratio {model.ratios_[0]:.1f}). On every 50th spectrum of each run: "
    f"permutation of runs, p = {p:.3f}; ratio on held-out runs {ratio:.1f}, 95 % interval {low:.1f} to {high:.1f}."
)
print(textwrap.fill(sentence, 100))

# %%
# What not to conclude
# --------------------
#
# * **Not that many rows are much evidence.** There are 90,000 spectra and 36 runs. More spectra of the same runs make
#   the component more precise; only more runs make the claim more general.
# * **Nothing about other turbines, or other faults.** All runs before the fault precede the *same* fault. For a claim
#   about faults, the unit is the fault.
# * **Not an early warning.** The runs were chosen because a fault followed. Whether the component rises before other
#   faults, and how often it rises without one, is a different study.
# * **Not that the sample is exact.** It gives its own p-value and its own ratio; report which rows it consists of.
#
# What fits in how much memory, and what else ``fit`` accepts: :doc:`/explanation/scale`. Next:
# :doc:`/tutorials/plot_7_dask`.
