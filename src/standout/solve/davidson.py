"""The top pairs of ``A v = λ ((1 − ρ) S + ρ I) v`` from products with A and S alone.

Block Davidson: the residuals of the pairs found so far make the space larger in which the small problem
is solved, and the space is kept as long as it may grow, because its vectors cost less than the products.
When it is full it starts again from the best pairs, with room for more than before. That always
converges (Crouzeix, Philippe and Sadkane 1994), if slowly where ratios crowd.

The space holds the images ``A V`` and ``S V``, which do not depend on ρ: the same space serves the
shrunk and the exact problem.

A residual r in the 2-norm bounds the error of a ratio by ‖r‖² / λ_min(S) only: where S is ill-conditioned, pairs may
seem to have converged while others with larger ratios were missed. λ_min(S) is therefore estimated on the way, from
the space and by Lanczos (:class:`Smallest`), and the residuals are held to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigvalsh, eigvalsh_tridiagonal, lapack, solve_triangular

from standout.blas import Array, threads_for, top_eigen
from standout.errors import InputError

# ‖A v − λ B v‖ / (λ ‖B v‖) of every pair, in the solver's units and in the data's.
TOLERANCE = 1e-6
# Ratios below this part of the largest are known to this part of it, and no better.
_FLOOR = 1e-6
# The space starts with room for this many vectors, and grows by this much with every new start.
FIRST_ROOM = 300
_GROWTH = 1.5
# New starts without progress before the answer is taken as it is: rounding allows no better.
_PATIENCE = 4
# New directions below this are rounding of those that are there.
_NOTHING_NEW = 1e-10
# A background with less variance than this, in some direction of the space, has none there.
_SINGULAR = 1e-12
# With a larger residual than this, a pair is no answer at all.
_WORST = 1e-2
# Steps of Lanczos after which the smallest eigenvalue of S is known well enough.
MOST_STEPS = 100
# So many steps at a time, until they no longer change it.
_STEPS = 10

Products = Callable[[Array], tuple[Array, Array]]
Units = Callable[[Array], Array]


@dataclass(frozen=True)
class Pairs:
    """What was found in a space, and how well."""

    ratios: Array  # (k,)
    vectors: Array  # (d, k), background variance one
    target_image: Array  # (d, k)
    background_image: Array  # (d, k): of S, not shrunk
    residuals: Array  # (k,)
    starts: int  # how often the space was full

    def shrunk_image(self, rho: float) -> Array:
        """Return the image of the shrunk background."""
        return (1 - rho) * self.background_image + rho * self.vectors

    def with_images(self, target: Array, background: Array, rho: float, unit: Units) -> Pairs:
        """Return the pairs with other images of the same vectors, and the residuals these have."""
        fresh = replace(self, target_image=target, background_image=background)
        return replace(fresh, residuals=_residuals(fresh, rho, unit))

    def trusted(self, rho: float, tolerance: float = TOLERANCE) -> Pairs:
        """Return the pairs, or refuse them where the background has no variance along one, or none was found."""
        variance = np.einsum("ij,ij->j", self.vectors, self.shrunk_image(rho))
        lengths = np.einsum("ij,ij->j", self.vectors, self.vectors)
        # Not the other way round: what is not a number is no answer either.
        if (variance >= _SINGULAR * lengths).all() and (self.residuals <= max(_WORST, tolerance)).all():
            return self
        raise SingularError


class Smallest:
    """The smallest eigenvalue of S by Lanczos: one more column in the products that are made for the space.

    From a random vector, which has some of every direction; the space starts inside the range of A and S, and may
    never meet a direction in which both are tiny (a feature that nearly repeats another). An upper bound: a spectrum
    that falls off smoothly takes many steps, but there the space itself reaches small values.
    """

    def __init__(self, products: Products, start: Array):
        self._products = products
        self._vector, self._last = start / np.linalg.norm(start), np.zeros_like(start)
        self.complete = False  # whether every direction that can be met has been
        self._diagonal: list[float] = []
        self._beside: list[float] = []

    @property
    def n_steps(self) -> int:
        """How many steps were made."""
        return len(self._diagonal)

    def products(self, vectors: Array) -> tuple[Array, Array]:
        """Return the products with vectors, and make one step."""
        if self.complete or self.n_steps >= MOST_STEPS:
            return self._products(vectors)
        target, background = self._products(np.column_stack([vectors, self._vector]))
        self.step(background[:, -1])
        return target[:, :-1], background[:, :-1]

    def step(self, image: Array) -> None:
        """Make a step with the image of the current vector."""
        apart = image - (self._beside[-1] if self._beside else 0.0) * self._last
        self._diagonal.append(float(apart @ self._vector))
        apart -= self._diagonal[-1] * self._vector
        length = float(np.linalg.norm(apart))
        self._beside.append(length)
        self.complete = length <= _NOTHING_NEW * max(map(abs, self._diagonal))
        self._last, self._vector = self._vector, apart / (1.0 if self.complete else length)

    def finish(self, times: Callable[[Array], Array], most: int) -> float:
        """Return the eigenvalue after at most ``most`` more steps, with products of S alone; fewer where it settles."""
        most, before = min(MOST_STEPS, self.n_steps + most), np.inf
        while not self.complete and self.n_steps < most and self.value < 0.9 * before:
            before, stop = self.value, min(self.n_steps + _STEPS, most)
            while not self.complete and self.n_steps < stop:
                self.step(times(self._vector[:, None])[:, 0])
        return self.value

    @property
    def value(self) -> float:
        """The smallest eigenvalue so far."""
        diagonal, beside = np.array(self._diagonal), np.array(self._beside[:-1])
        return float(eigvalsh_tridiagonal(diagonal, beside, select="i", select_range=(0, 0))[0])


class Space:
    """An orthonormal basis V that grows, with A V, S V and the two small matrices."""

    def __init__(self, products: Products, start: Array, most: int, watch: Smallest | None = None):
        """Start from some vectors; ``most`` is how many the memory allows."""
        self.products = products if watch is None else watch.products
        self.watch = watch
        self.n_columns = 0
        self.most = max(min(most, len(start)), 1)
        self.room = min(self.most, max(FIRST_ROOM, 4 * start.shape[1]))
        self.n_features = len(start)
        self.size, self.n_starts = 0, 0
        self._reserve(self.room)
        self.add(_independent(start))

    def _reserve(self, room: int) -> None:
        self._basis, self._target, self._background = (np.empty((self.n_features, room), order="F") for _ in range(3))
        self._inner = np.empty((2, room, room))

    @property
    def basis(self) -> Array:
        """V."""
        return self._basis[:, : self.size]

    @property
    def images(self) -> tuple[Array, Array]:
        """A V and S V."""
        return self._target[:, : self.size], self._background[:, : self.size]

    def add(self, vectors: Array) -> None:
        """Add orthonormal vectors that are orthogonal to the basis, with their products."""
        self.n_columns += vectors.shape[1]
        self._put(vectors, *self.products(vectors))

    def _put(self, vectors: Array, target: Array, background: Array) -> None:
        old, new = self.size, self.size + vectors.shape[1]
        for store, columns in ((self._basis, vectors), (self._target, target), (self._background, background)):
            store[:, old:new] = columns
        self.size = new
        for inner, columns in zip(self._inner, (target, background), strict=True):
            cross = self.basis.T @ columns
            inner[:new, old:new] = cross
            inner[old:new, :old] = cross[:old].T

    def grow(self, residuals: Array, best: Array) -> bool:
        """Add what is new in the residuals; False where nothing is. ``best`` (coefficients) survive a full space."""
        fresh = self._outside(residuals)
        if fresh.shape[1] == 0:
            return False
        if self.size + fresh.shape[1] > self.room:
            self._start_again(best)
        self.add(fresh)
        return True

    def _outside(self, vectors: Array) -> Array:
        length = np.linalg.norm(vectors, axis=0)
        found = vectors[:, length > 0] / length[length > 0]
        for _ in range(2):  # once is not enough for orthogonality to rounding
            found = _independent(found - self.basis @ (self.basis.T @ found))
        return np.asarray(found[:, : self.n_features - self.size])

    def _start_again(self, best: Array) -> None:
        kept, _ = np.linalg.qr(best)
        parts = [part @ kept for part in (self.basis, *self.images)]
        self.n_starts += 1
        self.room = max(min(self.most, int(_GROWTH * self.room)), 3 * best.shape[1])
        self.size = 0
        self._reserve(self.room)
        self._put(*parts)

    def smallest(self) -> float:
        """Return the smallest variance of the background, not shrunk, along a unit vector of the space."""
        inner = self._inner[1, : self.size, : self.size]
        return float(eigvalsh((inner + inner.T) / 2, subset_by_index=[0, 0])[0])

    def small_problem(self, rho: float) -> tuple[Array, Array]:
        """Return all pairs inside the space, largest first: ratios, and coefficients in the basis."""
        target, background = ((inner + inner.T) / 2 for inner in self._inner[:, : self.size, : self.size])
        background = (1 - rho) * background
        np.einsum("ii->i", background)[...] += rho
        with threads_for(self.size**3):  # scipy's pool must not wait beside that of the products
            factor, info = lapack.dpotrf(background, lower=1)
            if info != 0 or np.diagonal(factor).min() ** 2 < _SINGULAR:
                raise SingularError
            half = solve_triangular(factor, target, lower=True)
            inner = solve_triangular(factor, half.T, lower=True)
            values, turn = top_eigen((inner + inner.T) / 2, self.size)
            return values, np.asarray(solve_triangular(factor, turn, lower=True, trans=1))


def top_pairs(space: Space, rho: float, count: int, unit: Units, tolerance: float = TOLERANCE) -> Pairs:
    """Return the ``count`` largest pairs; ``unit`` brings images to the data's units."""
    lowest, waited, starts = np.inf, 0, space.n_starts
    while True:
        found, coefficients = _inside(space, rho, count, unit)
        wrong = found.residuals > tolerance
        if not wrong.any() and len(found.ratios) == count:
            return found.trusted(rho, tolerance)
        if space.n_starts > starts:
            starts = space.n_starts
            waited = 0 if found.residuals.max() < 0.9 * lowest else waited + 1
            lowest = min(lowest, found.residuals.max())
        apart = found.target_image - found.shrunk_image(rho) * found.ratios
        if waited > _PATIENCE or not space.grow(apart[:, wrong], coefficients):
            return found.trusted(rho, tolerance)


def _inside(space: Space, rho: float, count: int, unit: Units) -> tuple[Pairs, Array]:
    """Return the best pairs inside the space, and coefficients that are worth keeping when it is full."""
    ratios, coefficients = space.small_problem(rho)
    ratios, chosen = ratios[:count].clip(min=0.0), coefficients[:, :count]
    target, background = (image @ chosen for image in space.images)
    found = Pairs(ratios, space.basis @ chosen, target, background, np.zeros(len(ratios)), space.n_starts)
    found = replace(found, residuals=_residuals(found, rho, unit))
    return found, coefficients[:, : 2 * count + 10]


def _residuals(found: Pairs, rho: float, unit: Units) -> Array:
    """Return the relative residuals in the solver's units or in the data's, whichever are larger."""
    image = found.shrunk_image(rho)
    apart = found.target_image - image * found.ratios
    image *= np.maximum(found.ratios, _FLOOR * found.ratios[0])
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = [
            np.linalg.norm(ours, axis=0) / np.linalg.norm(whole, axis=0)
            for ours, whole in ((apart, image), (unit(apart), unit(image)))
        ]
    return np.asarray(np.nan_to_num(np.maximum(*sizes), nan=0.0, posinf=np.inf))


def _independent(vectors: Array) -> Array:
    """Return an orthonormal basis of vectors of about unit length."""
    if vectors.shape[1] == 0:
        return vectors
    basis, sizes, _ = np.linalg.svd(vectors, full_matrices=False)
    return np.asarray(basis[:, sizes > _NOTHING_NEW])


class SingularError(InputError):
    """The exact problem has an infinite ratio that is not due to features constant in the background."""

    def __init__(self) -> None:
        super().__init__(
            "the background covariance is singular, and not only through features that are constant: in some "
            "direction the target varies and the background does not. Use shrinkage='oas', or solver='gsvd' where the "
            "memory allows."
        )
