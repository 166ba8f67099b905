"""
Several backgrounds: pooled and minimax
=======================================

Against the average of two backgrounds a direction may stand out although it is present in one of them.
``mix="minimax"`` finds the direction that stands out against each.

Run it with ``python examples/plot_minimax.py [figure.png]``.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from standout import DPCA

rng = np.random.default_rng(0)
names = ["in A only", "in B only", "in neither", "noise 1", "noise 2"]
target = rng.normal(size=(2000, 5)) * np.sqrt([8, 8, 3, 1, 1])
backgrounds = {
    "A": rng.normal(size=(4000, 5)) * np.sqrt([10, 1, 1, 1, 1]),
    "B": rng.normal(size=(500, 5)) * np.sqrt([1, 10, 1, 1, 1]),
}
figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained", sharey=True)
for ax, mix in zip(axes, ("pooled", "minimax"), strict=True):
    model = DPCA(1, mix=mix).fit(target, background=backgrounds)
    ax.bar(names, np.abs(model.components_[0]), color="#0072B2")
    shares = ", ".join(f"{name} {share:.2f}" for name, share in zip(backgrounds, model.mix_, strict=True))
    ax.set(title=f'mix="{mix}" ({shares}): ratio {model.ratios_[0]:.1f}', ylabel="weight of the feature")
    ax.tick_params(axis="x", rotation=20)

out = Path(sys.argv[1] if len(sys.argv) > 1 else "out/minimax.png")
out.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(out, dpi=100)
print(f"wrote {out}")
