"""
Patients against controls, from a csv file
==========================================

You have one csv file with patients and controls, and want to know how the patients differ *from each other* in a way
that controls do not. This tutorial goes from the file to a tested result and a report, at the command line and in
Python. It also shows how a choice of units can inflate a ratio.
"""

# %%
# The table
# ---------
#
# The Wisconsin breast-cancer table ships with scikit-learn. Each row is one breast mass. The 30 features describe cell
# nuclei in an image of a fine-needle aspirate: ten properties (radius, texture, area, ...), each as the *mean* over the
# nuclei, as the standard *error* of that mean, and as the *worst* value, which is the mean of the three largest values.
# We write it as a csv file, as it might arrive from a colleague.

import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

import standout
from standout import DPCA, plot

data = load_breast_cancer(as_frame=True)
table = data.data.assign(diagnosis=data.target_names[data.target])
folder = Path(tempfile.mkdtemp())
table.to_csv(folder / "masses.csv", index=False)
print(table.diagnosis.value_counts().to_string())

# %%
# The target is malignant, the background benign. Malignant masses have larger nuclei *on average*; that is well
# known, and not the question here. By default each dataset is centred at its own mean, so that
# difference does not affect dPCA. It finds directions in which malignant masses vary and benign masses do not.
#
# At the command line
# -------------------
#
# Target and background are in one file, so ``--by`` names the column that distinguishes them. In a terminal::
#
#     standout fit masses.csv --by diagnosis --target malignant -b benign -o masses.standout


def run(*arguments):
    command = [sys.executable, "-m", "standout", *arguments, "--quiet"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    print(done.stdout + done.stderr)


run(
    "fit",
    "masses.csv",
    "--by",
    "diagnosis",
    "--target",
    "malignant",
    "-b",
    "benign",
    "-o",
    "masses.standout",
)

# %%
# In Python
# ---------
#
# The same fit, with the same numbers. The file is read twice, with different rows.

malignant = standout.read(folder / "masses.csv", where={"diagnosis": "malignant"})
benign = standout.read(folder / "masses.csv", where={"diagnosis": "benign"})
raw = DPCA(n_components=2).fit(malignant, background=benign)
same = standout.load(folder / "masses.standout")
print(
    "ratios:",
    raw.ratios_.round(1),
    "  equal to the command line:",
    bool(np.allclose(raw.ratios_, same.ratios_)),
)
for feature, weight in raw.top_features(4)[0]:
    print(f"  {feature:18} {weight:+.1f}")

# %%
# The first component is dominated by *area error*, and its ratio is enormous. Before we believe that, we look at the
# units. Sizes are positive, and their spread usually grows with their mean: larger nuclei vary more, in square
# micrometres, for the same reason that elephants vary more than mice in kilograms.

features = table.columns.drop("diagnosis")
ill, well = (table.loc[table.diagnosis == name, features] for name in ("malignant", "benign"))
kinds = {"mean": "o", "error": "D", "worst": "^"}
means, sds = ill.mean() / well.mean(), ill.std() / well.std()
figure, axes = plt.subplots(figsize=(8, 4.8), layout="constrained")
for color, (kind, marker) in zip(("#0072B2", "#D55E00", "#009E73"), kinds.items(), strict=True):
    names = [name for name in features if kind in name.split()]
    axes.scatter(means[names], sds[names], s=45, c=color, marker=marker, label=kind)
axes.axline(
    (1, 1), slope=1, color="#6b7280", linestyle="--", label="sd in proportion to the mean"
)
at = (means["area error"], sds["area error"])
axes.annotate("area error", at, xytext=(-12, -4), textcoords="offset points", ha="right")
axes.set(
    xscale="log",
    yscale="log",
    xlabel="mean of malignant / mean of benign",
    ylabel="sd of malignant / sd of benign",
)
for axis in (axes.xaxis, axes.yaxis):
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")
axes.set_xticks([0.8, 1, 1.5, 2, 3])
axes.set_yticks([0.5, 1, 2, 3, 5, 7])
axes.legend(frameon=False)
_ = axes.set_title("Features with a larger mean also have a larger sd")

# %%
# Logarithms remove this effect: a doubling counts the same in a small and in a large nucleus. dPCA gives the same
# result for any *linear* change of units, but a logarithm is not linear, so this choice matters. For a few masses the
# concavity is zero; there we add half of the smallest positive value of the feature.
#
# The choice follows from the kind of measurement and not from the diagnosis, and it is applied to both datasets alike.
# Never standardise target and background separately: that removes what dPCA looks for.

offset = table[features].replace(0, np.nan).min() / 2 * (table[features] == 0).any()
logs = np.log(table[features] + offset)
target, background = (logs[table.diagnosis == "malignant"], logs[table.diagnosis == "benign"])
model = DPCA(n_components=2).fit(target, background=background)
print(model.summary())

# %%
# The largest ratio is now more than ten times smaller, and more credible. The line *problem* reports that the
# background covariance was shrunk slightly, because there are fewer than 50 background rows per feature.
#
# Is it real?
# -----------
#
# :func:`standout.assess` answers three questions. Could the ratio arise if the labels were random? Does it hold on
# other rows? Would another sample give the same component? The permutation test matters here, because the p-value of
# the fit assumes Gaussian data. 199 permutations are enough to see p = 0.005; use the default of 999 for a paper.

assessment = standout.assess(
    target, background, n_components=2, n_permutations=199, n_bootstrap=100, random_state=0
)
print(assessment.summary())

# %%
# The first component is significant, holds on held-out rows, and nearly the same direction is found in most bootstrap
# samples. The second is also significant, but its direction changes from one bootstrap sample to the next, so we do not
# interpret its features.
#
# What does it mean?
# ------------------
#
# The pattern has large weights on *worst* radius, perimeter and area, and hardly any on their *means*: along this
# component the largest nuclei grow while the average nucleus stays the same. That suggests a simple index, the log of
# worst over mean radius. It was found on the same rows, so it is an interpretation and not another test.

score = model.transform(target)[:, 0]
index = target["worst radius"] - target["mean radius"]
in_benign = background["worst radius"] - background["mean radius"]
agreement = np.corrcoef(score, index)[0, 1]
print(f"correlation of dpca0 with log(worst radius / mean radius): {agreement:.2f}")
print(
    f"correlation of dpca0 with log(mean radius):                {np.corrcoef(score, target['mean radius'])[0, 1]:.2f}"
)
print(
    f"variance of the index, malignant / benign:                 {index.var() / in_benign.var():.1f}"
)

# %%
# Left: both datasets along the two components; zero is the mean of the malignant masses. Right: the pattern of the
# first, with bootstrap intervals. Pale, hatched bars are features whose sign changes in more than 5 % of the
# bootstrap samples; do not rely on them.

figure, (left, right) = plt.subplots(
    1, 2, figsize=(8.6, 4.4), layout="constrained", width_ratios=[1, 1]
)
kind = np.repeat("malignant", len(target))
grey = {"benign": model.transform(background)}
plot.scores(
    model.transform(target),
    kind,
    background=grey,
    axes=left,
    title="Scores",
    names=["dpca0", "dpca1"],
)
plot.stability(assessment.stability, count=10, axes=right)
_ = right.set(
    xticks=[-0.5, 0, 0.5, 1],
    title="Pattern of dpca0",
    xlabel="background sd per target sd of the score\n(lines: 95 % intervals)",
)

# %%
# The report
# ----------
#
# One HTML file with the verdict, interactive scores, features, and the code to reproduce it. It works offline and as an
# attachment. At the command line, ``fit --report report.html`` and ``test -o report.html`` write it.

page = standout.report(
    model,
    target,
    background,
    path=folder / "report.html",
    title="Malignant masses",
    trust=assessment,
)
print(page.name, f"{page.stat().st_size / 1e6:.1f} MB")

# %%
# The sentence
# ------------

p, ratio = assessment.test.p_values[0], assessment.held_out.ratios[0]
low, high = assessment.held_out.low[0], assessment.held_out.high[0]
sentence = (
    f"On log-transformed features, discriminative PCA of {len(target)} malignant against {len(background)} benign "
    f"masses found one interpretable component (variance ratio {model.ratios_[0]:.1f}; permutation p = {p:.3f}, "
    f"{assessment.test.null.shape[1]} permutations; held-out ratio {ratio:.1f}, "
    f"95 % interval {low:.1f} to {high:.1f}). Along it, the largest nuclei of a mass grow relative to its average nucleus (correlation with log worst/mean "
    f"radius {agreement:.2f})."
)
print(textwrap.fill(sentence, 100))

# %%
# The methods section needs more: counts, the estimate of the background, the tests and the versions. ``methods_text``
# writes that paragraph from the model and the tests, with references; adapt it (:doc:`/howto/report-in-a-paper`).

paragraph, references = str(model.methods_text(assessment)).split("\n\n")
print(textwrap.fill(paragraph, 100))

# %%
# What not to conclude
# --------------------
#
# * **Not that this diagnoses cancer.** dPCA describes how malignant masses differ from each other. To separate the two
#   groups, train a classifier: it uses the difference of the means, which dPCA ignored here.
# * **Not that there are two subtypes.** The scores are a continuum. A large variance is not a cluster.
# * **Not the ratio in raw units.** Most of it disappears on the log scale. We looked at the data in two ways, and a
#   paper should say so.
# * **Not the features of dpca1.** It is significant, but its direction is not stable.
# * **Nothing about repeated measurements.** Every row was counted as an independent patient. If some patients
#   contributed several masses, pass their identifiers as ``groups=``.
#
# Next: :doc:`/tutorials/plot_2_single_cells`, with fewer background rows than features.
