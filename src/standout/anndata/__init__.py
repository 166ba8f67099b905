"""Scanpy-style interface for AnnData: contrast cells with other cells, and write the results to the object."""

from standout.anndata._fit import cpca, denoise, dpca
from standout.anndata._results import plot, test

__all__ = ["cpca", "denoise", "dpca", "plot", "test"]
