"""The Lanczos solver: a few top components of many features (the paper's Remark 3).

The whitened target L⁻¹ A L⁻ᵀ is applied to vectors and never formed, which saves most of the work
when only a few components are wanted.
"""

from __future__ import annotations

from inspect import signature

import numpy as np
from scipy.linalg import blas, lapack

from standout.blas import Array

# Lanczos pays off from this many features on, while few components are wanted.
FROM_FEATURES = 600
_TOLERANCE = 1e-12
# An eigenvalue's error is the square of its vector's: alone it needs half the digits.
_VALUES_TOLERANCE = 1e-7
_RESTARTS = 60


def pays_off(n_features: int, count: int) -> bool:
    """Tell whether Lanczos is the faster way to ``count`` of ``n_features`` components."""
    return n_features >= FROM_FEATURES and count <= n_features // 50


def top_pairs(
    target: Array, factor: Array | None, count: int, seed: int = 0, vectors: bool = True, restarts: int = _RESTARTS
) -> tuple[Array, Array] | None:
    """Return the largest ratios and vectors as the dense solver does; None when it did not converge."""
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    size = len(target)
    if not target.flags.f_contiguous:
        target = target.T if target.flags.c_contiguous else np.asfortranarray(target)  # BLAS would copy it each time

    def whitened(vector: Array) -> Array:
        if factor is None:
            return np.asarray(blas.dsymv(1.0, target, vector, lower=1))
        back = blas.dtrsv(factor, vector, lower=1, trans=1)
        return np.asarray(blas.dtrsv(factor, blas.dsymv(1.0, target, back, lower=1), lower=1))

    rng = np.random.default_rng(seed)
    start = rng.normal(size=size)
    # ARPACK starts anew from random vectors where it comes to a standstill; newer versions of scipy draw these from
    # a generator that is not seeded unless it is given.
    seeded = {"rng": rng} if "rng" in signature(eigsh).parameters else {}
    basis_size = min(size, max(2 * count + 20, 40))
    try:
        values, basis = eigsh(
            LinearOperator((size, size), matvec=whitened, dtype=np.float64),
            k=count, which="LA", v0=start, ncv=basis_size, maxiter=restarts,
            tol=_TOLERANCE if vectors else _VALUES_TOLERANCE, **seeded,
        )  # fmt: skip
    except ArpackNoConvergence:
        return None
    order = np.argsort(-values, kind="stable")
    values, basis = values[order].clip(min=0.0), np.asfortranarray(basis[:, order])
    if vectors and factor is not None:
        basis, _ = lapack.dtrtrs(factor, basis, lower=1, trans=1)
    return values, basis
