"""
A batch effect as a second background
=====================================

Patients were measured in two batches, controls in one. Against the controls alone, the difference between the batches
stands out most, because controls do not have it. Reference samples that were measured in both batches have the batch
effect too, but no subtypes. With them as a second background, and ``mix="minimax"``, the first component is the
difference between the subtypes of the patients.
"""

import matplotlib.pyplot as plt
import numpy as np

from standout import DPCA, plot

rng = np.random.default_rng(0)
scale = np.linspace(3, 1, 12)
batch_effect, subtype_effect = rng.normal(size=(2, 12))


def noise(n: int) -> np.ndarray:
    return rng.normal(size=(n, 12)) * scale


batch = rng.choice(["batch 1", "batch 2"], size=400)
subtype = rng.choice(["subtype A", "subtype B"], size=400)
patients = noise(400)
patients[batch == "batch 1"] += 2.5 * batch_effect
patients[subtype == "subtype A"] += 2 * subtype_effect
controls = noise(1500)
reference = noise(1500) + 2.5 * np.outer(rng.integers(0, 2, 1500), batch_effect)

fits = {
    "against controls": DPCA(2).fit(patients, background=controls),
    "against controls and reference samples": DPCA(2, mix="minimax").fit(
        patients, background=[controls, reference]
    ),
}
figure, axes = plt.subplots(2, 2, figsize=(9, 7.5), layout="constrained")
for row, (name, model) in zip(axes, fits.items(), strict=True):
    scores = model.transform(patients)
    plot.scores(scores, batch, axes=row[0], title=f"{name}\ncoloured by batch")
    plot.scores(scores, subtype, axes=row[1], title=f"{name}\ncoloured by subtype")
for ax in axes.flat:
    ax.margins(y=0.2)  # room for the legend
plt.show()

# %%
# What not to conclude
# --------------------
# This does not repair a confounded design. If all patients of one subtype were measured in one batch, no background can
# separate subtype from batch. The reference samples must vary with the batch as the patients do; if the batch affects
# patients differently, part of it remains. Signal along the batch effect is lost too. Here the reference samples are as
# noisy as the controls. If they are much less noisy, ``mix="minimax"`` brings part of the batch effect back into the
# first component, because it trades one ratio for the other. See :doc:`/howto/batch-effects`.
