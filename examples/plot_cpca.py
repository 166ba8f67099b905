"""
Contrastive PCA with automatic alpha
====================================

Four groups are hidden under strong variation that target and background share. The search over alpha selects a few
representative subspaces; PCA (alpha = 0) is the first of them.

Run it with ``python examples/plot_cpca.py [figure.png]``.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from standout import CPCA, plot

rng = np.random.default_rng(0)
background = np.hstack([rng.normal(0, sd, (400, 10)) for sd in (10, 3, 1)])
group = np.repeat(np.arange(4), 100)
shared = rng.normal(0, 10, (400, 10))
first = rng.normal(6 * (group // 2)[:, None], 1, (400, 10))
second = rng.normal(3 * (group % 2)[:, None], 1, (400, 10))
target = np.hstack([shared, first, second])

model = CPCA(random_state=0).fit(target, background=background)
print(model.summary())

path = model.path_
figure, axes = plt.subplots(1, len(path.representatives), figsize=(15, 4), layout="constrained")
for ax, step in zip(axes, path.representatives, strict=True):
    alpha = path.values[step]
    kind = "PCA" if alpha == 0 else "selected" if alpha == model.alpha_ else "another cluster"
    scores = (target - model.mean_) @ path.components[step].T
    plot.scores(scores, group, axes=ax, title=f"alpha = {alpha:.3g} ({kind})")

out = Path(sys.argv[1] if len(sys.argv) > 1 else "out/cpca.png")
out.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(out, dpi=120)
print(f"wrote {out}")
