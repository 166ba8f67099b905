"""standout: find what is specific to one dataset.

Given a target and one or more backgrounds measured on the same features, standout finds the few
directions in which the target varies and the backgrounds do not, and tests whether they are
distinguishable from noise. Public names are imported lazily, on first use, to keep the import fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from standout._version import __version__

if TYPE_CHECKING:
    from standout._compare import compare
    from standout._cpca import CPCA, SubspacePath, path
    from standout._dpca import DPCA
    from standout._explore.launch import explore
    from standout._kernel_dpca import KernelDPCA
    from standout._model_file import load, save
    from standout._moments import Moments
    from standout._replicates import find_replicates
    from standout._report.report import report
    from standout._robust import robust_moments
    from standout.inference.assess import assess
    from standout.inference.held_out import held_out_ratio
    from standout.inference.permutation import permutation_test
    from standout.inference.stability import stability
    from standout.io.read import read
    from standout.io.source import Source

__all__ = [
    "CPCA",
    "DPCA",
    "KernelDPCA",
    "Moments",
    "Source",
    "SubspacePath",
    "__version__",
    "assess",
    "compare",
    "explore",
    "find_replicates",
    "held_out_ratio",
    "load",
    "path",
    "permutation_test",
    "read",
    "report",
    "robust_moments",
    "save",
    "stability",
]

_HOME = {
    "CPCA": "standout._cpca",
    "DPCA": "standout._dpca",
    "KernelDPCA": "standout._kernel_dpca",
    "Moments": "standout._moments",
    "SubspacePath": "standout._cpca",
    "Source": "standout.io.source",
    "compare": "standout._compare",
    "explore": "standout._explore",
    "assess": "standout.inference",
    "find_replicates": "standout.inference",
    "held_out_ratio": "standout.inference",
    "permutation_test": "standout.inference",
    "stability": "standout.inference",
    "load": "standout._model_file",
    "path": "standout._cpca",
    "read": "standout.io.read",
    "report": "standout._report",
    "robust_moments": "standout._robust",
    "save": "standout._model_file",
}


def __getattr__(name: str) -> Any:
    if name in ("anndata", "datasets", "mne", "plot"):
        return import_module(f"standout.{name}")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'standout' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
