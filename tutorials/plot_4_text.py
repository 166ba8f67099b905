"""
Two corpora of text
===================

You have embeddings of two collections of documents, and want to know how the documents of one differ from each other in
ways that those of the other do not. The features of an embedding have no names. This tutorial reads components through
the documents at their ends, and shows what happens to a significant result once texts that share an author are counted
as one.
"""

# %%
# The documents
# -------------
#
# The target are the docstrings of ``scipy.stats``, the background those of ``numpy`` and other parts of ``scipy``. All
# are technical prose in the same format. We cut examples and references, and note the source file of each function.

import inspect
import re
import textwrap
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import scipy
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

import standout
from standout import DPCA, plot


def source_file(thing):
    """The file of a function; for compiled functions and for distributions, which are objects, the module."""
    code = getattr(inspect.unwrap(thing), "__code__", None)
    return (
        "/".join(Path(code.co_filename).parts[-2:])
        if code
        else getattr(thing, "__module__", "compiled")
    )


def documents(*modules):
    rows = {}
    for module in modules:
        for name in sorted(module.__all__):
            thing = getattr(module, name)
            text = re.split(r"\n(?:Examples|References)\n", inspect.getdoc(thing) or "")[0]
            if callable(thing) and len(text) > 400:
                rows.setdefault(
                    text, (f"{module.__name__}.{name}", source_file(thing))
                )  # aliases count once
    return pd.DataFrame(
        [(*row, text) for text, row in rows.items()], columns=["name", "file", "text"]
    )


stats = documents(scipy.stats)
signals = [scipy.fft, scipy.ndimage, scipy.signal]
numerics = [scipy.integrate, scipy.interpolate, scipy.linalg, scipy.optimize, scipy.sparse]
rest = documents(*signals, *numerics, np)
print(
    f"{len(stats)} documents from {stats.file.nunique()} files against {len(rest)} from {rest.file.nunique()}"
)
print(stats.file.value_counts()[:5].to_string())

# %%
# The embedding
# -------------
#
# TF-IDF, then ten dimensions by a truncated SVD. Any embedding works, for instance of a language model, as long as
# **one** embedding serves both corpora: fitted on both together, or fitted elsewhere.

words = TfidfVectorizer(
    min_df=5, max_df=0.5, sublinear_tf=True, token_pattern="[a-z][a-z]+", stop_words="english"
)
counts = words.fit_transform([*stats.text, *rest.text])
svd = TruncatedSVD(n_components=10, random_state=0)
embedding = svd.fit_transform(counts)
X, Y = embedding[: len(stats)], embedding[len(stats) :]
print(counts.shape, "->", embedding.shape)

# %%
# A first look
# ------------

naive = DPCA(n_components=2).fit(X, background=Y)
print(naive.summary())

# %%
# The ratio is huge, but the verdict is that it cannot be judged: *consecutive rows are correlated*. Why should the order
# of documents matter? They are sorted by name within each module, and functions with similar names (``fftn``,
# ``fftshift``, ...) are in one file and often have one author. That is the real problem. Shuffling the rows would silence
# the warning without removing the cause.
#
# Who wrote these texts?
# ----------------------
#
# A file is a better unit than a docstring: its docstrings share authors, and whole paragraphs. In the most frequent
# file of the target, more than a hundred distributions fill in one template. We give the files as groups.

units = {"groups": stats.file, "background_groups": rest.file}
model = DPCA(n_components=2).fit(X, background=Y, **units)
print(model.summary())

# %%
# The summary now shows the effective number of documents, which is far smaller than the number of files. The warning
# follows from it: a few dozen independent texts are not enough to estimate all correlations between ten
# dimensions, so they are shrunk. More files would help, or fewer dimensions; more docstrings from the same files
# would not.
#
# Reading the components
# ----------------------
#
# The dimensions of the embedding have no names, but documents do. ``extremes`` lists those at both ends; look at a few
# from the middle too if the ends surprise you. This SVD is linear, so a pattern can also be translated back into words;
# most other embeddings can only be read through their documents.

names = stats.name.str.split(".").str[-1]
vocabulary = words.get_feature_names_out()
for k, (low, high) in enumerate(model.extremes(X, names, n=7)):
    weights = model.patterns_[k] @ svd.components_
    for end, rows, best in (
        ("high", high, np.argsort(-weights)),
        ("low", low, np.argsort(weights)),
    ):
        print(f"dpca{k} {end:4}  documents: {', '.join(row.label for row in rows)}")
        print(f"            words:     {', '.join(vocabulary[best[:9]])}")

# %%
# The first component runs from hypothesis tests and descriptive statistics to probability distributions: the two
# kinds of things in ``scipy.stats``. The second has words such as *nan*, *masked*, *propagate* and *omit* at its high
# end. They come from a paragraph that scipy inserts into the docstrings of many tests.
#
# A figure
# --------

kinds = {
    "scipy.stats._continuous_distns": "continuous distributions",
    "scipy.stats._discrete_distns": "discrete distributions",
    "scipy.stats._multivariate": "multivariate distributions",
}
labels = stats.file.map(kinds).fillna("tests and other functions")
grey = {"numpy and other scipy": model.transform(Y)}
figure, axes = plt.subplots(figsize=(8, 4.8), layout="constrained")
_ = plot.scores(
    model.transform(X),
    labels,
    background=grey,
    axes=axes,
    names=["dpca0", "dpca1"],
    title="Each point is a docstring",
)

# %%
# Is it real?
# -----------
#
# We test twice, by document and by file, to see what the unit does.

options = {"n_components": 2, "n_permutations": 199, "n_bootstrap": 0, "random_state": 0}
by_document = standout.assess(X, Y, **options)
by_file = standout.assess(X, Y, **options, **units)
for unit, found in (("document", by_document), ("file", by_file)):
    print(f"by {unit}:")
    for k in range(2):
        held_out = f"{found.held_out.ratios[k]:.1f} ({found.held_out.low[k]:.2g} to {found.held_out.high[k]:.2g})"
        print(f"  dpca{k}: p = {found.test.p_values[k]:.3f}, held-out ratio {held_out}")
    print(f"  {found.verdict().headline}")

# %%
# The warnings are those explained above. Counted by document, both components are significant and their intervals are
# narrow. Counted by file, the first component is still significant, but its ratio on held-out files is much smaller and
# its interval wide: one file holds a third of the target, and when it is held out, little is left of the component. The
# second component is no longer significant.
#
# The sentence
# ------------

p, ratio = by_file.test.p_values[0], by_file.held_out.ratios[0]
low, high = by_file.held_out.low[0], by_file.held_out.high[0]
sentence = (
    f"Docstrings of scipy.stats ({len(stats)} documents, {stats.file.nunique()} files) vary between hypothesis tests "
    f"and probability distributions in a way that docstrings of other packages ({len(rest)} documents, "
    f"{rest.file.nunique()} files) do not (permutation of files, p = {p:.3f}). The component rests mainly on one file "
    f"of templated texts; its ratio on held-out files is {ratio:.1f} (95 % interval {low:.1f} to {high:.1f})."
)
print(textwrap.fill(sentence, 100))

# %%
# What not to conclude
# --------------------
#
# * **Not the p-value by document.** Texts from one template are replicates, like 15 measurements of one mouse.
# * **Not that the component is about content.** Texts from one template are alike whatever they describe. If the
#   content is the question, remove boilerplate before embedding.
# * **Not a difference in topic between the corpora.** Each corpus is centred at its own mean. What all of
#   ``scipy.stats`` has in common, such as the word *statistics*, does not appear. Use ``centering="background"`` if
#   it should.
# * **Not that one dimension of the embedding has a meaning.** Components are directions in it, and another embedding
#   would give other weights. Compare the documents, not the weights.
# * **Not the second component.** Its ratio on held-out files is above one, but the permutation test by file is not
#   significant. The verdict requires both.
#
# Next: :doc:`/tutorials/plot_5_sensors`.
