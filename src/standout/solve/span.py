"""Far more features than rows: work in the span of the rows, through their Gram matrix.

Every component with a positive ratio is a combination of rows, so a problem of the size of the rows
gives the answer and nothing of size features × features is ever formed. One pass over panels of
columns (centre, scale by the background sd, multiply) builds the Gram matrix; a second one turns
row coefficients into components. The background is always shrunk here (ρ > 0), which makes the
Gram matrix accurate enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from standout.blas import Array, add_gram, mirror, rank_tolerance, threads_for, top_eigen
from standout.dataset import Dataset
from standout.mixture import Mixture
from standout.solve.result import Eigen, Frame
from standout.sources.locate import explain_non_finite

# One panel of columns takes about this many bytes.
_PANEL_BYTES = 24 * 2**20
_EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Panel:
    """Some columns of all rows, centred and scaled, target rows first."""

    start: int
    stop: int
    rows: Array  # (n_rows, stop - start)


@dataclass(frozen=True)
class Columns:
    """Means and sd of every feature."""

    means: tuple[Array, ...]  # one for each dataset
    target_variance: Array
    background_variance: Array
    scale: Array  # background sd, target sd where the background is constant, 1 where both are


class RowSpan:
    """The rows of target and backgrounds, and their Gram matrix in background-sd units."""

    def __init__(self, target: Dataset, backgrounds: Sequence[Dataset], mixture: Mixture | None, own: bool):
        self.datasets = (target, *backgrounds)
        self.mixture = mixture
        self.own_centre = own
        self.n_features = target.n_features
        self.sizes = [len(data.row_weights) for data in self.datasets]
        self.n_target = self.sizes[0]
        self.n_rows = sum(self.sizes)
        shares = [1.0, *(mixture.shares if mixture is not None else ())]
        self.roots = np.concatenate([
            np.sqrt(share * data.row_weights / data.row_weights.sum())
            for share, data in zip(shares, self.datasets, strict=True)
        ])  # fmt: skip
        self.gram = np.zeros((self.n_rows, self.n_rows), order="F")
        self.columns = self._measure()

    @property
    def frame(self) -> Frame:
        """The solver's coordinates: every feature, in background-sd units."""
        return Frame(np.arange(self.n_features), self.columns.scale, self.n_features)

    @cached_property
    def rank(self) -> int:
        """The joint rank, from the Gram matrix with target and background of like size."""
        split = self.n_target
        sizes = np.sqrt([np.trace(self.gram[:split, :split]), np.trace(self.gram[split:, split:])])
        norm = np.repeat(np.where(sizes > 0, sizes, 1.0), [split, self.n_rows - split])
        values, _ = top_eigen(self.gram / np.outer(norm, norm), self.n_rows, vectors=False)
        return int((values > rank_tolerance(self.n_rows) * values[0]).sum())

    def _measure(self) -> Columns:
        """One pass over the columns: means, variances, and the Gram matrix of the scaled rows."""
        means = tuple(np.empty(self.n_features) for _ in self.datasets)
        variances = np.zeros((2, self.n_features))
        scale = np.empty(self.n_features)
        with threads_for(self.n_rows**2 * self.n_features):
            for start, stop in self._cuts():
                panel, centres = self._centred(start, stop, None)
                if not np.isfinite(centres).all():
                    raise self._explained(start, stop)
                for mean, centre in zip(means, centres, strict=True):
                    mean[start:stop] = centre
                variances[:, start:stop] = self._variances(panel, centres)
                scale[start:stop] = self._scale(variances[:, start:stop])
                panel /= scale[start:stop]
                add_gram(self.gram, panel)
                if not np.isfinite(np.diagonal(self.gram)).all():
                    raise self._explained(start, stop)
        mirror(self.gram)
        return Columns(means, variances[0], variances[1], scale)

    def _cuts(self) -> Iterator[tuple[int, int]]:
        width = max(16, _PANEL_BYTES // (8 * self.n_rows))
        for start in range(0, self.n_features, width):
            yield start, min(start + width, self.n_features)

    def _centred(self, start: int, stop: int, means: Sequence[Array] | None) -> tuple[Array, list[Array]]:
        """Return columns of all rows, centred and times the root of their weights; and the centres."""
        panel = np.empty((self.n_rows, stop - start))
        at, centres = 0, []
        with np.errstate(all="ignore"):
            for number, (data, size) in enumerate(zip(self.datasets, self.sizes, strict=True)):
                assert data.rows is not None
                part = panel[at : at + size]
                part[...] = data.rows.columns(start, stop)
                weights = self.roots[at : at + size] ** 2
                if means is None:
                    centre = weights @ part / weights.sum()
                    centre[(part == part[0]).all(axis=0)] = part[0, (part == part[0]).all(axis=0)]
                else:
                    centre = means[number]
                centres.append(centre)
                part -= centre
                at += size
            if not self.own_centre and self.mixture is not None:
                panel[: self.n_target] += centres[0] - self.mixture.mixed(centres[1:])
            panel *= self.roots[:, None]
        return panel, centres

    def _variances(self, panel: Array, centres: Sequence[Array]) -> Array:
        """Return target and background variances; what is only rounding around the mean is zero."""
        split = self.n_target
        squares = np.einsum("ij,ij->j", panel[:split], panel[:split])
        others = np.einsum("ij,ij->j", panel[split:], panel[split:])
        size = np.max(np.abs(centres), axis=0)
        both = np.stack([squares, others])
        both[both <= (10 * _EPS * size) ** 2] = 0.0
        return both

    def _scale(self, variances: Array) -> Array:
        if self.mixture is None:
            return np.ones(variances.shape[1])
        sd = np.sqrt(np.where(variances[1] > 0, variances[1], variances[0]))
        return np.where(sd > 0, sd, 1.0)

    def _explained(self, start: int, stop: int) -> Exception:
        """Return the error of the dataset whose values in these columns are not usable."""

        def badness(data: Dataset) -> float:
            assert data.rows is not None
            largest = np.abs(np.asarray(data.rows.columns(start, stop), dtype=np.float64)).max()
            return np.inf if np.isnan(largest) else float(largest)

        worst = max(self.datasets, key=badness)
        assert worst.rows is not None
        return explain_non_finite(worst.rows, np.empty((0, self.n_features)), worst.role)

    def combine(self, coefficients: Sequence[Array]) -> list[Array]:
        """Return ``Zᵀ c`` for each block of row coefficients, Z the centred and scaled rows."""
        together = np.hstack(coefficients)
        result = np.empty((self.n_features, together.shape[1]))
        for start, stop in self._cuts():
            means = [mean[start:stop] for mean in self.columns.means]
            panel, _ = self._centred(start, stop, means)
            result[start:stop] = (panel.T @ together) / self.columns.scale[start:stop, None]
        return np.split(result, np.cumsum([block.shape[1] for block in coefficients])[:-1], axis=1)

    def correlation_trace_squared(self) -> float:
        """Return tr S² of the background correlation matrix, from its Gram matrix."""
        inner = self.gram[self.n_target :, self.n_target :]
        return float(np.einsum("ij,ij->", inner, inner))


def solve(span: RowSpan, rho: float, count: int) -> Eigen:
    """Return the top pairs of ``A v = λ ((1 − ρ) B + ρ I) v``; without a background, of A alone.

    With K the Gram matrix of the scaled rows and c = 1 − ρ the ratios are the eigenvalues of
    (K_xx − c·K_xy (ρ I + c K_yy)⁻¹ K_yx)/ρ, a problem of the size of the target rows.
    """
    split = span.n_target
    inner, cross, outer = span.gram[:split, :split], span.gram[split:, :split], span.gram[split:, split:]
    if span.mixture is None:
        ratios, alpha = top_eigen(inner, count)
        weights = np.vstack([alpha])
    else:
        factor = cho_factor((1 - rho) * outer + rho * np.eye(len(outer)), lower=True)
        explained = (1 - rho) * cho_solve(factor, cross)
        ratios, alpha = top_eigen((inner - cross.T @ explained) / rho, count)
        weights = np.vstack([alpha, -explained @ alpha]) / rho
    ratios = ratios.clip(min=0.0)
    # v = Zᵀ w has background variance λ when α = Z_x v has length λ: bring it to one.
    with np.errstate(divide="ignore", invalid="ignore"):
        length = np.where(ratios > 0, 1 / np.sqrt(ratios), 0.0)
    seen_target = (span.gram @ weights)[:split] * length
    image = np.zeros_like(weights)
    image[:split] = seen_target
    vectors, target_image = span.combine([weights * length, image])
    safe = np.where(ratios > 0, ratios, 1.0)
    return Eigen(ratios, vectors, target_image, target_image / safe)
