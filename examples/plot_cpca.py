"""Contrastive PCA: four groups under strong variation that target and background share.

The search over alpha gives a few subspaces that differ; PCA (alpha = 0) is the first of them.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from standout import plot
from standout._cpca import CPCA

rng = np.random.default_rng(0)
background = np.hstack([rng.normal(0, sd, (400, 10)) for sd in (10, 3, 1)])
group = np.repeat(np.arange(4), 100)
shared = rng.normal(0, 10, (400, 10))
first = rng.normal(6 * (group // 2)[:, None], 1, (400, 10))
second = rng.normal(3 * (group % 2)[:, None], 1, (400, 10))
target = np.hstack([shared, first, second])

model = CPCA(random_state=0).fit(target, background=background)
print(model.summary())

found = model.path_
figure, axes = plt.subplots(1, len(found.representatives), figsize=(15, 4), layout="constrained")
for ax, place in zip(axes, found.representatives, strict=True):
    alpha = found.values[place]
    told = "PCA" if alpha == 0 else "the search's pick" if alpha == model.alpha_ else "another cluster"
    scores = (target - model.mean_) @ found.components[place].T
    plot.scores(scores, group, axes=ax, title=f"alpha = {alpha:.3g} ({told})")

out = Path(sys.argv[1] if len(sys.argv) > 1 else "out/cpca.png")
out.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(out, dpi=120)
print(f"wrote {out}")
