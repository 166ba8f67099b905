"""Block Davidson iteration for the top pairs of ``A v = λ ((1 − ρ) S + ρ I) v``, using only products with A and S.

The residuals of the current pairs extend the space in which the projected problem is solved. The space is kept as
long as it may grow, because storing its vectors costs less than computing products. When it is full it is
restarted from the best pairs, with room for more vectors than before. The iteration always converges (Crouzeix,
Philippe and Sadkane 1994), although slowly if ratios are clustered. The space stores the images ``A V`` and
``S V``, which do not depend on ρ, so that the same space serves the shrunk and the exact problem.

A residual r in the 2-norm bounds the error of a ratio only by ‖r‖² / λ_min(S): if S is ill-conditioned, pairs may
seem to have converged while others with larger ratios were missed. λ_min(S) is therefore estimated during the
iteration, from the space and by Lanczos (:class:`SmallestEigenvalue`), and the tolerance on the residuals depends on
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigvalsh, eigvalsh_tridiagonal, lapack

from standout._blas import Array, threads_for
from standout.errors import InputError
from standout.solvers import dense
from standout.solvers.solution import Eigenpairs

# Tolerance on ‖A v − λ B v‖ / (λ ‖B v‖) for every pair, in the solver's units and in those of the data.
TOLERANCE = 1e-6
# Ratios below this fraction of the largest are accurate only to this fraction of it.
_FLOOR = 1e-6
# Initial capacity of the space in vectors, and its growth at every restart.
FIRST_ROOM = 300
_GROWTH = 1.5
# Restarts without progress before the result is accepted: rounding prevents further convergence.
_PATIENCE = 4
# New directions below this norm are rounding errors of those in the basis.
_NOTHING_NEW = 1e-10
# A background variance below this, in some direction of the space, counts as zero.
_SINGULAR = 1e-12
# A pair with a residual above this is rejected.
_WORST = 1e-2
# Lanczos steps after which the smallest eigenvalue of S is accurate enough, and steps between convergence checks.
_MOST_STEPS = 100
_STEPS = 10


@dataclass(frozen=True)
class Operator:
    """Target covariance A and background covariance S in the solver's coordinates, as products with vectors."""

    products: Callable[[Array], tuple[Array, Array]]  # A v and S v, for vectors of shape (d, k)
    background: Callable[[Array], Array]  # S v
    in_units: Callable[[Array], Array]  # converts images to the units of the data


class SmallestEigenvalue:
    """Smallest eigenvalue of S by Lanczos, as one additional column in the products computed for the space.

    The start vector is random and so has a part in every direction. The space, in contrast, starts inside the range
    of A and S, and may never reach a direction in which both are tiny (a feature that nearly duplicates another). The
    value is an upper bound: a smoothly decaying spectrum takes many steps, but then the space itself reaches small
    values.
    """

    def __init__(self, start: Array):
        self.vector, self._last = start / np.linalg.norm(start), np.zeros_like(start)
        self._diagonal: list[float] = []
        self._off_diagonal = [0.0]
        self._exhausted = False  # whether all reachable directions have been found

    @property
    def is_done(self) -> bool:
        """Whether further steps are of no use."""
        return self._exhausted or len(self._diagonal) >= _MOST_STEPS

    def step(self, image: Array) -> None:
        """Make a step with the image of the current vector."""
        apart = image - self._off_diagonal[-1] * self._last
        self._diagonal.append(float(apart @ self.vector))
        apart -= self._diagonal[-1] * self.vector
        length = float(np.linalg.norm(apart))
        self._off_diagonal.append(length)
        self._exhausted = length <= _NOTHING_NEW * max(map(abs, self._diagonal))
        self._last, self.vector = self.vector, apart / (1.0 if self._exhausted else length)

    def finish(self, background: Callable[[Array], Array], most: int) -> float:
        """Return the eigenvalue after at most ``most`` further steps, fewer if it converges."""
        value, before = self._value(), np.inf
        while most > 0 and not self.is_done and value < 0.9 * before:
            for _ in range(min(_STEPS, most)):
                if not self.is_done:
                    self.step(background(self.vector[:, None])[:, 0])
            most -= _STEPS
            value, before = self._value(), value
        return value

    def _value(self) -> float:
        off_diagonal = self._off_diagonal[1:-1]
        return float(eigvalsh_tridiagonal(self._diagonal, off_diagonal, select="i", select_range=(0, 0))[0])


class Space:
    """A growing orthonormal basis V, with A V, S V and the two projected matrices."""

    def __init__(self, operator: Operator, start: Array, most: int, watch: SmallestEigenvalue | None = None):
        """Start from some vectors; ``most`` is the largest number that fits in memory."""
        self.operator, self.watch = operator, watch
        self.n_products = self.n_restarts = 0
        self.n_features = len(start)
        self.most = max(min(most, len(start)), 1)
        self._reserve(min(self.most, max(FIRST_ROOM, 4 * start.shape[1])))
        self._add(_independent(start))

    def _reserve(self, room: int) -> None:
        """Start an empty basis with room for so many vectors."""
        self.room, self.size = room, 0
        self._stored = [np.empty((self.n_features, room), order="F") for _ in range(3)]
        self._inner = np.empty((2, room, room))

    @property
    def parts(self) -> list[Array]:
        """V, A V and S V."""
        return [stored[:, : self.size] for stored in self._stored]

    def _add(self, vectors: Array) -> None:
        """Add orthonormal vectors that are orthogonal to the basis, with their products."""
        self.n_products += vectors.shape[1]
        if self.watch is None or self.watch.is_done:
            self._append([vectors, *self.operator.products(vectors)])
            return
        target, background = self.operator.products(np.column_stack([vectors, self.watch.vector]))
        self.watch.step(background[:, -1])
        self._append([vectors, target[:, :-1], background[:, :-1]])

    def _append(self, parts: Sequence[Array]) -> None:
        old, new = self.size, self.size + parts[0].shape[1]
        for stored, columns in zip(self._stored, parts, strict=True):
            stored[:, old:new] = columns
        self.size = new
        for inner, columns in zip(self._inner, parts[1:], strict=True):
            cross = self._stored[0][:, :new].T @ columns
            inner[:new, old:new] = cross
            inner[old:new, :old] = cross[:old].T

    def grow(self, residuals: Array, best: Array) -> bool:
        """Add new directions from the residuals; False if there are none. A restart keeps ``best`` (coefficients)."""
        length = np.linalg.norm(residuals, axis=0)
        fresh, basis = residuals[:, length > 0] / length[length > 0], self.parts[0]
        for _ in range(2):  # a single pass does not give orthogonality to rounding
            fresh = _independent(fresh - basis @ (basis.T @ fresh))
        fresh = fresh[:, : self.n_features - self.size]
        if fresh.shape[1] == 0:
            return False
        if self.size + fresh.shape[1] > self.room:
            self._restart(best)
        self._add(fresh)
        return True

    def _restart(self, best: Array) -> None:
        kept, _ = np.linalg.qr(best)
        parts = [part @ kept for part in self.parts]
        self.n_restarts += 1
        self._reserve(max(min(self.most, int(_GROWTH * self.room)), 3 * best.shape[1]))
        self._append(parts)

    def smallest(self) -> float:
        """Return the smallest unshrunk background variance along a unit vector of the space."""
        inner = self._inner[1, : self.size, : self.size]
        return float(eigvalsh((inner + inner.T) / 2, subset_by_index=[0, 0])[0])

    def projected_pairs(self, rho: float, count: int) -> tuple[Array, Array]:
        """Return at most ``count`` largest ratios inside the space, and the coefficients of vectors in the basis."""
        target, background = ((inner + inner.T) / 2 for inner in self._inner[:, : self.size, : self.size])
        background *= 1 - rho
        np.einsum("ii->i", background)[...] += rho
        with threads_for(self.size**3):  # avoid contention with the thread pool of the products
            factor, info = lapack.dpotrf(background, lower=1)
            if info != 0 or np.diagonal(factor).min() ** 2 < _SINGULAR:
                raise SingularError
            return dense.top_pairs(target, factor, min(count, self.size))


def top_pairs(space: Space, rho: float, count: int, tolerance: float = TOLERANCE) -> tuple[Eigenpairs, float]:
    """Return the ``count`` largest pairs against the shrunk background, and their largest residual."""
    lowest, waited, restarts = np.inf, 0, space.n_restarts
    while True:
        ratios, coefficients = space.projected_pairs(rho, 2 * count + 10)
        found = _shrunk(ratios[:count], [part @ coefficients[:, :count] for part in space.parts], rho)
        residuals = _residuals(found, space.operator)
        wrong = residuals > tolerance
        if not wrong.any() and len(found.ratios) == count:
            break
        if space.n_restarts > restarts:
            restarts = space.n_restarts
            waited = 0 if residuals.max() < 0.9 * lowest else waited + 1
            lowest = min(lowest, residuals.max())
        apart = found.target_image - found.background_image * found.ratios
        if waited > _PATIENCE or not space.grow(apart[:, wrong], coefficients):
            break
    if space.n_restarts:  # restarts accumulate rounding errors in the images
        found = _shrunk(found.ratios, [found.vectors, *space.operator.products(found.vectors)], rho)
        residuals = _residuals(found, space.operator)
    variance = np.einsum("ij,ij->j", found.vectors, found.background_image)
    lengths = np.einsum("ij,ij->j", found.vectors, found.vectors)
    # Written this way round so that NaN is rejected too.
    if (variance >= _SINGULAR * lengths).all() and (residuals <= max(_WORST, tolerance)).all():
        return found, float(residuals.max())
    raise SingularError


def _shrunk(ratios: Array, parts: Sequence[Array], rho: float) -> Eigenpairs:
    """Return pairs with the image of the shrunk background, from vectors v, A v and S v."""
    vectors, target, background = parts
    return Eigenpairs(ratios, vectors, target, (1 - rho) * background + rho * vectors)


def _residuals(found: Eigenpairs, operator: Operator) -> Array:
    """Return the relative residuals in the solver's units or in those of the data, whichever are larger."""
    apart = found.target_image - found.background_image * found.ratios
    image = found.background_image * np.maximum(found.ratios, _FLOOR * found.ratios[0])
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = [
            np.linalg.norm(ours, axis=0) / np.linalg.norm(whole, axis=0)
            for ours, whole in ((apart, image), (operator.in_units(apart), operator.in_units(image)))
        ]
    return np.asarray(np.nan_to_num(np.maximum(*sizes), nan=0.0, posinf=np.inf))


def _independent(vectors: Array) -> Array:
    """Return an orthonormal basis of vectors of about unit length."""
    if vectors.shape[1] == 0:
        return vectors
    basis, sizes, _ = np.linalg.svd(vectors, full_matrices=False)
    return np.asarray(basis[:, sizes > _NOTHING_NEW])


class SingularError(InputError):
    """The background is numerically singular for a reason other than constant features."""

    def __init__(self) -> None:
        super().__init__(
            "the background covariance is singular or too ill-conditioned for the matrix-free solver, and not only "
            "through features that are constant: in some direction the background varies so little that rounding "
            "hides it (a condition number of the rows from about 1e7 on is enough). Use `solver='gsvd'`, which keeps "
            "twice the digits, where the memory allows, or `shrinkage='oas'`."
        )
