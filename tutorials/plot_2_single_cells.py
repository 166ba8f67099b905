"""
Single cells with scanpy
========================

You have single-cell expression data in an AnnData object, and want to know which variation among some cells is absent
from others. This tutorial finds a subtype of dendritic cells that monocytes do not have, with fewer background cells
than genes, and is strict about what counts as a replicate.
"""

# %%
# The cells
# ---------
#
# scanpy ships 700 blood cells of one donor (a subset of the 68,000 cells published by 10x Genomics) with 765 variable
# genes. ``X`` holds scaled values, ``raw`` the log-normalised values from which they were computed. We use the latter:
# they can be read, and a zero means that the gene was not detected.

import textwrap

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import scanpy as sc

import standout
import standout.anndata
import standout.plot

adata = sc.datasets.pbmc68k_reduced().raw.to_adata()
print(adata.obs.bulk_labels.value_counts().to_string())

# %%
# What the background means
# -------------------------
#
# The choice of the background *is* the question. Dendritic cells and monocytes are both myeloid, so they share much
# of their variation: sequencing depth, activation, antigen presentation. With monocytes as background, dPCA divides
# out what monocytes do too and finds what varies among dendritic cells **only**. T cells as background would be
# another question: many genes of dendritic cells are hardly detected in T cells, and any variation in these genes
# would count as specific.

myeloid = adata[adata.obs.bulk_labels.isin(["Dendritic", "CD14+ Monocyte"])].copy()
myeloid.obs["bulk_labels"] = myeloid.obs.bulk_labels.cat.remove_unused_categories()
print(myeloid.obs.bulk_labels.value_counts().to_string())

# %%
# The variance of a gene that is detected in a handful of cells rests on those cells, and such a gene can dominate a
# component. We use genes that are detected in at least half of these cells. The rule looks at all cells together and
# never at target and background separately, so it cannot create a difference between them. The other genes stay in
# ``raw``; we need them below.

myeloid.raw = myeloid
sc.pp.filter_genes(myeloid, min_cells=myeloid.n_obs // 2)
print(f"{myeloid.n_vars} of {adata.n_vars} genes are used")

# %%
# The fit
# -------
#
# :func:`standout.anndata.dpca` is used like a function of ``scanpy.tl``. It writes scores to ``obsm["X_dpca"]``,
# patterns to ``varm["dPCs_patterns"]`` and the numbers to ``uns["dpca"]``.

standout.anndata.dpca(
    myeloid, groupby="bulk_labels", target="Dendritic", background="CD14+ Monocyte", n_comps=2
)
found = myeloid.uns["dpca"]
print(
    f"ratios {found['ratios'].round(1)}, noise edge {found['noise_edge']}, background {found['regime']}"
)

# %%
# Both warnings have the same cause, which these data do not allow us to remove: there are fewer monocytes than genes.
# standout keeps the factors that both datasets share and shrinks all other correlations. A noise edge cannot be
# computed (``nan``), and the ratios cannot be taken at face value. The tests below decide.
#
# What the components are
# -----------------------
#
# Read the patterns, not the filters. The sign of a component is arbitrary; we turn the first one so that *CPVL* is
# positive.

if myeloid.varm["dPCs_patterns"][myeloid.var_names.get_loc("CPVL"), 0] < 0:
    myeloid.varm["dPCs_patterns"][:, 0] *= -1
    myeloid.obsm["X_dpca"][:, 0] *= -1
for k in range(2):
    pattern = pd.Series(
        myeloid.varm["dPCs_patterns"][:, k], index=myeloid.var_names
    ).sort_values()
    print(
        f"dpca{k}  high: {', '.join(pattern.index[::-1][:7])}\n       low:  {', '.join(pattern.index[:7])}"
    )

# %%
# scanpy's plots work with the result: ``X_dpca`` is a basis like ``X_umap``. The clusters came with the data. dPCA used
# neither them nor *IRF8*, which too few cells express for the rule above.

dendritic = myeloid[myeloid.obs.bulk_labels == "Dendritic"].copy()
dendritic.obs["cluster"] = dendritic.obs.louvain.cat.remove_unused_categories()
figure, axes = plt.subplots(1, 3, figsize=(9, 3.3), layout="constrained")
style = {"show": False, "size": 45, "legend_loc": "best", "legend_fontsize": 8}
sc.pl.embedding(myeloid, "X_dpca", color="bulk_labels", ax=axes[0], title="target and background",
                palette={"Dendritic": "#0072B2", "CD14+ Monocyte": "#bdc1c6"}, **style)  # fmt: skip
sc.pl.embedding(dendritic, "X_dpca", color="cluster", ax=axes[1], title="dendritic cells by cluster",
                palette=["#000000", "#E69F00", "#56B4E9", "#CC79A7", "#009E73", "#D55E00"], **style)  # fmt: skip
sc.pl.embedding(
    dendritic, "X_dpca", color="IRF8", ax=axes[2], title="dendritic cells by IRF8", **style
)
for ax in axes:
    ax.set(xlabel="dpca0", ylabel="dpca1")

# %%
# One cluster lies apart at the high end of the first component. The genes that were left out of the fit describe it
# independently of the pattern:

apart = dendritic.obsm["X_dpca"][:, 0] > 2.5
print(
    pd.crosstab(
        np.where(apart, "apart", "other"), dendritic.obs.cluster, rownames=[""]
    ).to_string(),
    "\n",
)
unused = dendritic.raw.to_adata().to_df().drop(columns=myeloid.var_names)
detected = pd.DataFrame(
    {"apart": (unused[apart] > 0).mean(), "other": (unused[~apart] > 0).mean()}
)
detected = detected.loc[(detected.apart - detected.other).sort_values().index].round(2)
print("share of dendritic cells in which a gene was detected")
print(pd.concat([detected[::-1][:5], detected[:5][::-1]]).to_string())

# %%
# *IRF8* and *CPVL* with strong MHC class II genes, without *FCER1A* and *CLEC10A*: this is the profile of type 1
# conventional dendritic cells (cDC1). That step is biology, not statistics: dPCA separates the cells, and does not name
# them.
#
# Is it real?
# -----------
#
# **Cells are not replicates.** All cells come from one donor, so no test on these data applies to other
# people; with several donors, pass ``subjects="donor"`` to :func:`standout.anndata.dpca` and to
# :func:`standout.anndata.test`. What can be tested here is narrower: would other cells *of this donor* show the same?
#
# The barcodes end in the number of the lane in which a cell was captured. Cells of one lane share technical effects, so
# the lane is the unit. Every lane has both kinds of cells, which makes the lanes pairs: the permutation test swaps
# labels within lanes, the held-out ratio leaves out whole lanes, and the bootstrap draws lanes.

myeloid.obs["lane"] = myeloid.obs_names.str.rsplit("-", n=1).str[-1]
assessment = standout.anndata.test(
    myeloid, groupby="bulk_labels", target="Dendritic", background="CD14+ Monocyte", pairs="lane",
    n_comps=2, n_permutations=255, n_bootstrap=50, random_state=0,
)  # fmt: skip
print(assessment.summary())

# %%
# Eight lanes allow 256 ways of swapping labels, and all of them were evaluated. The two warnings are those of the fit;
# within lanes the monocytes correspond to somewhat fewer independent cells. The note about rows explains that lanes of
# different size were cut to a common size for the test.
#
# Both components pass. The next figure shows the test of the first.

axes = standout.plot.null(assessment.test)
axes.figure.set_size_inches(8, 3.6)

# %%
# The sentence
# ------------

is_target = (myeloid.obs.bulk_labels == "Dendritic").to_numpy()
p, ratio = assessment.test.p_values[0], assessment.held_out.ratios[0]
low, high = assessment.held_out.low[0], assessment.held_out.high[0]
sentence = (
    f"Among {is_target.sum()} cells labelled dendritic, discriminative PCA against {(~is_target).sum()} monocytes of "
    f"the same donor ({myeloid.n_vars} genes detected in at least half of the cells; shrunk background covariance) "
    f"found a component that sets apart {apart.sum()} IRF8+ FCER1A- cells (permutation of labels within 8 capture "
    f"lanes, p = {p:.3f}; ratio on held-out lanes {ratio:.1f}, 95 % interval {low:.1f} to {high:.1f}). Their profile "
    f"is that of cDC1 cells."
)
print(textwrap.fill(sentence, 100))

# %%
# What not to conclude
# --------------------
#
# * **Nothing about people.** One donor is one sample, however many cells were sequenced.
# * **Not a share of cells.** These 700 cells were selected; that the subtype makes up a certain share of dendritic
#   cells here does not carry over to blood.
# * **Not that monocytes lack these genes.** They *vary* less in them. A gene that all monocytes express at the same
#   level has a small background variance too, and can be part of a component.
# * **Labels are not truth.** *bulk_labels* were assigned by similarity to sorted cells, from the same expression
#   values. Nearly all cells labelled CD14+ here express *FCGR3A* (CD16), so the background is not the classical
#   monocytes that its name suggests. A test that takes labels as given cannot detect wrong labels.
# * **Not that the second component is a second subtype.** It is a gradient, and the clusters at its high end contain
#   cells of both labels. Part of it may be monocytes that were labelled dendritic.
#
# Next: :doc:`/tutorials/plot_3_eeg`, where rows are points in time.
