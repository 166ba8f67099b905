"""
EEG: task against rest
======================

You have epochs of EEG during a task and at rest, and want the scalp topography of what the task adds. This tutorial
goes from arrays of epochs to a topomap of patterns with MNE, with epochs as the independent units, and compares the
result with CSP.
"""

# %%
# The recording
# -------------
#
# So that the answer is known, we simulate one participant: 60 epochs of one second in a memory task and 60 at rest,
# with 32 channels at 128 Hz, in microvolts. Both conditions have strong posterior alpha waves (10 Hz), eye blinks and
# slow background activity. The task adds frontal-midline theta (6 Hz), which is weaker than either. Replace ``task``
# and ``rest`` by ``epochs["task"].get_data()`` and ``epochs["rest"].get_data()`` for your own data; both have the
# shape (epochs, channels, times).

import textwrap

import matplotlib.pyplot as plt
import mne
import numpy as np
import pandas as pd
from mne.decoding import CSP

import standout
from standout import DPCA

mne.set_log_level("warning")
rng = np.random.default_rng(0)
montage = mne.channels.make_standard_montage("biosemi32")
info = mne.create_info(montage.ch_names, sfreq=128, ch_types="eeg").set_montage(montage)
position = np.array(list(montage.get_positions()["ch_pos"].values()))
n_epochs, n_channels, n_times = 60, 32, 128
time = np.arange(n_times) / info["sfreq"]


def topography(channel, width):
    """A bump around one electrode."""
    distance = np.linalg.norm(
        position - position[info.ch_names.index(channel)], axis=1
    ) / np.linalg.norm(position[0])
    return np.exp(-((distance / width) ** 2) / 2)


alpha_map = topography("Oz", 0.6) + 0.4 * topography("Pz", 0.6)
blink_map = topography("Fp1", 0.5) + topography("Fp2", 0.5)
theta_map = topography("Fz", 0.4)
slow_maps = 0.6 * rng.normal(size=(8, n_channels))


def wave(frequency, amplitude):
    """An oscillation with another frequency, phase and amplitude in each epoch."""
    frequency = frequency + 0.4 * rng.normal(size=(n_epochs, 1))
    amplitude = amplitude * rng.gamma(2, 0.5, size=(n_epochs, 1))
    return amplitude * np.sin(2 * np.pi * (frequency * time + rng.random((n_epochs, 1))))


def record(theta, alpha):
    """Epochs of shape (epochs, channels, times)."""
    blink = (
        60
        * (rng.random((n_epochs, 1)) < 0.3)
        * np.exp(-(((time - rng.random((n_epochs, 1))) / 0.08) ** 2) / 2)
    )
    slow = np.cumsum(0.4 * rng.normal(size=(n_epochs, 8, n_times)), axis=2)
    parts = [(wave(10, alpha), alpha_map), (blink, blink_map), (wave(6, theta), theta_map)]
    signal = sum(course[:, None] * scalp[:, None] for course, scalp in parts)
    return (
        signal
        + np.einsum("est,sc->ect", slow, slow_maps)
        + 2 * rng.normal(size=(n_epochs, n_channels, n_times))
    )


task, rest = record(theta=6, alpha=8), record(theta=1.5, alpha=10)
print(task.shape, rest.shape)

# %%
# Rows, features, groups
# ----------------------
#
# Features are channels and rows are points in time. Neighbouring points in time are correlated, so 7,680 rows are far
# from 7,680 independent observations. The epoch is the unit: pass it as ``groups``, for both conditions. Without it,
# standout warns that consecutive rows are correlated, and its verdict is "Cannot be judged".


def as_rows(epochs, first):
    rows = epochs.transpose(0, 2, 1).reshape(-1, epochs.shape[1])
    return pd.DataFrame(rows, columns=info.ch_names), np.repeat(
        np.arange(first, first + len(epochs)), epochs.shape[2]
    )


X, epoch = as_rows(task, first=0)
Y, rest_epoch = as_rows(rest, first=len(task))
units = {"groups": epoch, "background_groups": rest_epoch}
model = DPCA(n_components=2).fit(X, background=Y, **units)
print(model.summary())

# %%
# The summary shows to how many independent rows the 7,680 rows of each condition correspond, given the correlation
# within epochs.
#
# Topographies
# ------------
#
# Plot ``patterns_``, not ``components_``. A filter contains whatever is needed to cancel the other sources, and its map
# can be misleading. A pattern, times the standard deviation of the scores in the target, is in microvolts.

pca = DPCA(n_components=2).fit(X, groups=epoch)


def in_microvolts(fitted, component):
    pattern = fitted.patterns_[component] * np.sqrt(fitted.target_variance_[component])
    return pattern * np.sign(
        pattern[np.abs(pattern).argmax()]
    )  # the sign of a component is arbitrary


maps = {
    "PCA, component 0": in_microvolts(pca, 0),
    "PCA, component 1": in_microvolts(pca, 1),
    "dPCA, component 0": in_microvolts(model, 0),
    "simulated theta": theta_map * wave(6, 6).std(),
}
figure, axes = plt.subplots(
    1,
    4,
    figsize=(8.6, 3.1),
    gridspec_kw={"left": 0.02, "right": 0.98, "bottom": 0.1, "top": 0.92},
)
for ax, (title, scalp) in zip(axes, maps.items(), strict=True):
    limit = np.abs(scalp).max()
    image, _ = mne.viz.plot_topomap(
        scalp, info, axes=ax, show=False, cmap="RdBu_r", vlim=(-limit, limit), contours=4
    )
    ax.set_title(title, fontsize=12)
    figure.colorbar(
        image,
        ax=ax,
        orientation="horizontal",
        shrink=0.8,
        label="µV",
        ticks=[-limit, 0, limit],
        format="%.1f",
    )

# %%
# The largest variance in the task is that of blinks and alpha waves, and PCA shows these. They are as strong at rest,
# so dPCA divides them out. Its first component is the frontal-midline source:

for name, scalp in (("theta", theta_map), ("alpha", alpha_map), ("blink", blink_map)):
    print(
        f"correlation of the dPCA pattern with {name}: {np.corrcoef(maps['dPCA, component 0'], scalp)[0, 1]:+.2f}"
    )

# %%
# Agreement with CSP
# ------------------
#
# Common spatial patterns solve the same eigenproblem, for one condition against both together: a CSP value *c* and a
# ratio λ are related by λ = c / (1 − c). CSP keeps both ends of the spectrum, because it serves to classify; dPCA
# keeps the end that is specific to the target, and adds the question whether it is more than noise. The two first
# patterns agree:

labels = np.repeat([1, 0], [len(task), len(rest)])
csp = CSP(n_components=2).fit(np.concatenate([task, rest]), labels)
agreement = [
    abs(np.corrcoef(pattern, model.patterns_[0])[0, 1]) for pattern in csp.patterns_[:2]
]
print(
    f"correlation of the dPCA pattern with the closer of two CSP patterns: {max(agreement):.3f}"
)

# %%
# Is it real?
# -----------
#
# The permutation test exchanges whole epochs between task and rest, the held-out ratio leaves out whole epochs, and the
# bootstrap draws epochs.

assessment = standout.assess(
    X, Y, n_components=2, n_permutations=99, n_bootstrap=30, random_state=0, **units
)
print(assessment.summary())

# %%
# By the formula of the fit, both components are significant; by the permutation test, only the first is. Blinks are rare
# and large, so the data are far from Gaussian, and epochs with many blinks give large ratios by chance. Where the two
# disagree, rely on the permutation test.
#
# The theta of single epochs can now be seen in the scores:

scores = {"task": model.transform(X), "rest": model.transform(Y)}
figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
for color, (condition, values) in zip(("#D55E00", "#0072B2"), scores.items(), strict=True):
    power = np.abs(np.fft.rfft(values[:, 0].reshape(n_epochs, n_times))) ** 2 / n_times
    axes.semilogy(
        np.fft.rfftfreq(n_times, 1 / 128),
        power.mean(axis=0),
        color=color,
        label=condition,
        linewidth=2,
    )
axes.set(
    xlim=(1, 25),
    xlabel="frequency (Hz)",
    ylabel="power of dpca0",
    title="The component is a theta wave",
)
_ = axes.legend(frameon=False)

# %%
# The sentence
# ------------

p, ratio = assessment.test.p_values[0], assessment.held_out.ratios[0]
low, high = assessment.held_out.low[0], assessment.held_out.high[0]
sentence = (
    f"In this participant, discriminative PCA of {len(task)} task epochs against {len(rest)} rest epochs "
    f"({n_channels} channels) found one component with a frontal-midline pattern and a spectral peak near 6 Hz "
    f"(variance ratio {model.ratios_[0]:.1f}; permutation of epochs, p = {p:.2f}, "
    f"{assessment.test.null.shape[1]} permutations; ratio on held-out epochs {ratio:.1f}, 95 % interval {low:.1f} to {high:.1f})."
)
print(textwrap.fill(sentence, 100))

# %%
# What not to conclude
# --------------------
#
# * **Nothing about other people.** Epochs of one participant are replicates of this participant. For a group study,
#   give the participant as ``pairs`` and ``background_pairs`` (everybody has task and rest), with as many
#   participants as the claim needs.
# * **Not that epochs are independent.** Fatigue and electrode drift make neighbouring epochs alike. If task and rest
#   were recorded in blocks, use the block as the unit.
# * **Not a place in the brain.** A pattern is a map on the scalp. Locating its source needs a head model.
# * **Not that the task causes it.** If participants blink or move more in the task, *that* is specific to the task and
#   dPCA will find it. Look at the pattern and the time course for signs of muscles and eyes.
# * **Not that alpha is unchanged.** Here alpha is weaker in the task. A decrease has a ratio below one: swap target and
#   background to find it.
#
# Next: :doc:`/tutorials/plot_4_text`, where the features have no names.
