"""Smooth components over a graph of features: neighbours should have like weights.

The background covariance gets γ·L added, L the graph's Laplacian, in background-sd units: along u the
denominator becomes uᵀC_yyu + γ Σ wᵢⱼ(sᵢuᵢ − sⱼuⱼ)², so rough components pay and the answer does not
depend on the features' units.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from standout.errors import InputError


def laplacian(graph: Any, n_features: int) -> Any:
    """Return the Laplacian (CSR) of a graph given by its adjacency or by its Laplacian.

    Parameters
    ----------
    graph : array-like or sparse matrix of shape (n_features, n_features)
        Symmetric; non-negative weights between features (adjacency), or a Laplacian.
    n_features : int
        Number of features of the data.

    Returns
    -------
    sparse matrix of shape (n_features, n_features)

    Examples
    --------
    >>> laplacian([[0, 1, 0], [1, 0, 1], [0, 1, 0]], 3).toarray().tolist()
    [[1.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.0]]
    """
    try:
        given = sparse.csr_array(graph)
        kind = given.dtype.kind
    except (TypeError, ValueError):
        kind = "O"
    if kind not in "fiub":
        raise InputError("graph: not a matrix of real numbers. Give an adjacency or a Laplacian, dense or sparse.")
    matrix = sparse.csr_array(given, dtype=np.float64)
    if matrix.shape != (n_features, n_features):
        raise InputError(
            f"graph: shape {matrix.shape} for {n_features} features. Give one row and one column for each feature."
        )
    if not np.isfinite(matrix.data).all():
        raise InputError("graph: some weights are NaN or inf. Give finite weights.")
    if abs(matrix - matrix.T).max() > 1e-10 * abs(matrix).max():
        raise InputError("graph: the matrix is not symmetric. Give (graph + graph.T) / 2, or check the edges.")
    edges = matrix - sparse.diags_array(matrix.diagonal())
    if edges.nnz == 0 or edges.min() >= 0:
        degree = np.asarray(edges.sum(axis=0)).ravel()
        return sparse.csr_array(sparse.diags_array(degree) - edges)
    if edges.max() <= 0 and np.abs(matrix.sum(axis=0)).max() <= 1e-8 * abs(matrix).max():
        return matrix
    raise InputError(
        "graph: neither an adjacency (weights from 0 on) nor a Laplacian (rows that sum to 0). Give one of these, "
        "for instance sklearn.feature_extraction.image.grid_to_graph for pixels."
    )
