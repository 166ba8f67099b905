"""
Scalp maps of what a task adds
==============================

Epochs of MNE go directly into ``fit``, with channels as features and epochs as independent units. Two sources are active
at rest and in the task: a strong occipital rhythm, and a blink-like frontal one. The task adds a weaker source in the
left motor cortex. PCA shows the strong sources; dPCA shows the one that the task adds, as a spatial filter of MNE.
"""

import matplotlib.pyplot as plt
import mne
import numpy as np

import standout
from standout import DPCA

mne.set_log_level("error")
rng = np.random.default_rng(0)
montage = mne.channels.make_standard_montage("biosemi32")
info = mne.create_info(montage.ch_names, sfreq=128, ch_types="eeg").set_montage(montage)

# Current dipoles in a spherical head, in metres and ampere-metres, and their fields at the electrodes.
head = mne.make_sphere_model("auto", "auto", info)
place = head["r0"] + 0.065 * np.array([[0.1, -0.9, 0.3], [0.1, 0.9, 0.1], [-0.6, 0.1, 0.75]])
axis = np.array([[0.0, -0.6, 0.8], [0.0, 1.0, 0.0], [-0.6, 0.0, 0.8]])
dipoles = mne.Dipole(np.arange(3.0), place, np.full(3, 1e-8), axis, np.full(3, 100.0))
forward, _ = mne.make_forward_dipole(dipoles, head, info)
fields = mne.convert_forward_solution(forward, force_fixed=True)["sol"]["data"]
occipital, frontal, motor = (fields / np.abs(fields).max(axis=0)).T


def record(strength):
    """Sixty epochs of one second, in volts."""
    time = np.arange(128) / 128 + rng.random((60, 1))
    courses = [
        (30 * np.sin(2 * np.pi * 10 * time), occipital),
        (20 * np.sin(2 * np.pi * 2 * time), frontal),
        (strength * np.sin(2 * np.pi * 20 * time), motor),
    ]
    noise = 4 * rng.normal(size=(60, 32, 128))
    data = noise + sum(course[:, None] * field[:, None] for course, field in courses)
    return mne.EpochsArray(1e-6 * data, info)


task, rest = record(strength=8), record(strength=2)
pca = DPCA(n_components=2).fit(task)
model = DPCA(n_components=1).fit(task, background=rest)

figure, axes = plt.subplots(1, 4, figsize=(11, 3.2), layout="constrained")
options = {"colorbar": False, "show": False, "sensors": False}
standout.mne.spatial_filter(pca, info).plot_patterns(axes=axes[:2], **options)
standout.mne.spatial_filter(model, info).plot_patterns(axes=axes[2], **options)
mne.viz.plot_topomap(motor, info, axes=axes[3], show=False, sensors=False, cmap="RdBu_r")
titles = (
    "PCA, component 0",
    "PCA, component 1",
    f"dPCA, component 0\nratio {model.ratios_[0]:.1f}, noise edge {model.noise_edge_:.1f}",
    "source added by the task",
)
for ax, title in zip(axes, titles, strict=True):
    ax.set_title(title, fontsize=12)
plt.show()

# %%
# What not to conclude
# --------------------
# A map is not a place: other sources may have the same field at the scalp, and locating one needs a model of the head.
# The sign of a map is arbitrary. Epochs are counted as independent, which they are not if the task was done in blocks,
# and epochs of one participant say nothing about other people. More about MNE objects, and the agreement with CSP:
# :doc:`/coming-from/mne`.
