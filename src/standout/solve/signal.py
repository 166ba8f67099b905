"""The target-specific part of each row: a Wiener estimate from the significant components.

With u the filters, p their patterns (uᵢᵀpⱼ = δᵢⱼ) and a the population ratios, the part of a centred
row that the background does not explain is Σ p (1 − 1/a) uᵀx. This is the posterior mean of the model
x ~ N(0, WWᵀ + C_yy), whose maximum likelihood solution discriminative PCA is (residual component
analysis). Its principal axes are the ``axes="signal"`` of the estimator.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from standout.blas import Array
from standout.solve.result import Components, signs


@dataclass(frozen=True)
class Signal:
    """What denoising needs: filters, patterns and gains of the significant components."""

    filters: Array  # (n_features, k)
    patterns: Array  # (n_features, k)
    gains: Array  # (k,): 1 − 1/a, one for an infinite ratio

    def of_rows(self, centred: Array) -> Array:
        """Return the target-specific part of centred rows, of the same shape."""
        return np.asarray((centred @ (self.filters * self.gains)) @ self.patterns.T)


def gains(ratios: Array) -> Array:
    """Return 1 − 1/a for population ratios a; nothing below one is specific to the target."""
    return np.asarray(1 - 1 / np.maximum(ratios, 1.0))


def signal_axes(found: Components, signal: Signal, scale: Array, count: int) -> Components:
    """Return the principal axes of the denoised target as components.

    The denoised target has covariance P·diag(g² v)·Pᵀ with v the target variance along each filter, so
    its axes E come from a thin SVD, and the filters U·diag(g)·PᵀE give the scores of its PCA.
    """
    spread = signal.patterns * (signal.gains * np.sqrt(found.target_variance))
    axes, _, _ = np.linalg.svd(spread, full_matrices=False)
    mix = signal.gains[:, None] * (signal.patterns.T @ axes[:, :count])  # (k, count): axes in filters
    target = np.einsum("kc,k->c", mix**2, found.target_variance)
    background = np.einsum("kc,k->c", mix**2, found.background_variance)
    patterns = (found.patterns @ (mix * found.target_variance[:, None])) / target
    sign = signs(patterns / scale[:, None])
    with np.errstate(divide="ignore"):
        ratios = np.where(background > 0, target / np.where(background > 0, background, 1.0), np.inf)
    return Components(
        ratios=ratios,
        filters=(found.filters @ mix) * sign,
        patterns=patterns * sign,
        target_variance=target,
        background_variance=background,
    )
