"""standout: find what is specific to one dataset.

Given a target and one or more backgrounds measured on the same features, standout finds the few
directions in which the target varies and the backgrounds do not, and says how sure one can be that
they are real. Public names are loaded when they are first used, so that the import is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from standout._version import __version__

if TYPE_CHECKING:
    from standout.comparison import compare
    from standout.estimators.cpca import CPCA
    from standout.estimators.dpca import DPCA
    from standout.estimators.kernel import KernelDPCA
    from standout.inference import assess, find_replicates, held_out_ratio, permutation_test, stability
    from standout.moments import Moments
    from standout.paths import Path, path
    from standout.robust import robust_moments
    from standout.show.report import report
    from standout.sources import Source, read
    from standout.store import load, save

__all__ = [
    "CPCA",
    "DPCA",
    "KernelDPCA",
    "Moments",
    "Path",
    "Source",
    "__version__",
    "assess",
    "compare",
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
    "CPCA": "standout.estimators.cpca",
    "DPCA": "standout.estimators.dpca",
    "KernelDPCA": "standout.estimators.kernel",
    "Moments": "standout.moments",
    "Path": "standout.paths",
    "Source": "standout.sources",
    "compare": "standout.comparison",
    "assess": "standout.inference",
    "find_replicates": "standout.inference",
    "held_out_ratio": "standout.inference",
    "permutation_test": "standout.inference",
    "stability": "standout.inference",
    "load": "standout.store",
    "path": "standout.paths",
    "read": "standout.sources",
    "report": "standout.show.report",
    "robust_moments": "standout.robust",
    "save": "standout.store",
}


def __getattr__(name: str) -> Any:
    if name == "anndata":  # a module, for standout.anndata.dpca
        return import_module("standout.anndata")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'standout' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
