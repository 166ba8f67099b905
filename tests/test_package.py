"""The package as installed: a light import, complete public names, documentation, and a demo that shows its point."""

import importlib.metadata
import inspect
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import standout
from standout import _demo
from standout.datasets.tiles import digits_over_tiles

ROOT = Path(standout.__file__).parents[2]
HEAVY = {
    "sklearn", "pandas", "polars", "matplotlib", "narwhals", "joblib", "threadpoolctl", "PIL", "pyarrow", "dask",
    "pyspark", "anndata", "h5py", "zarr", "click", "rich", "plotly", "jinja2", "mne", "contrastive", "openpyxl",
    "array_api_compat", "starlette", "uvicorn", "distributed", "scanpy",
}  # fmt: skip


def run(*arguments, **named):
    found = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120, **named)
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_the_import_is_light():
    loaded = run("-c", "import sys, standout; print(*{name.partition('.')[0] for name in sys.modules})").split()
    assert "standout" in loaded
    assert not HEAVY & set(loaded)


def test_the_import_and_every_public_name_raise_no_warning():
    run("-W", "error", "-c", "import standout")
    run("-W", "error", "-c", "import standout; [getattr(standout, name) for name in standout.__all__]")


def test_a_fit_of_arrays_needs_no_optional_package():
    code = (
        "import sys, numpy as np, sklearn.base, standout\n"
        "before = set(sys.modules)\n"  # what scikit-learn itself looks for is not ours
        "x = np.random.default_rng(0).normal(size=(60, 3))\n"
        "standout.DPCA(1, shrinkage=0.5).fit(3 * x[:20], background=x[20:]).transform(x)\n"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    optional = HEAVY - {"sklearn", "joblib", "threadpoolctl", "narwhals"}
    assert not optional & set(run("-W", "ignore", "-c", code).split())


def test_public_names_are_sorted_complete_and_load():
    assert standout.__all__ == sorted(standout.__all__)
    assert set(standout.__all__) == {*standout._HOME, "__version__"}
    for name in standout.__all__:
        assert getattr(standout, name) is not None
        assert name in dir(standout)
    everything = {}
    exec("from standout import *", everything)
    assert set(standout.__all__) <= set(everything)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'standout' has no attribute 'DCPA'"):
        _ = standout.DCPA
    assert not hasattr(standout, "nothing")


def test_the_version_is_that_of_the_distribution():
    assert standout.__version__ == importlib.metadata.version("standout")


def test_every_documented_extra_exists():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    named = {part.split("]")[0] for part in source.split("standout[")[1:]} - {"{extra}"}
    assert named and named <= set(project["optional-dependencies"])


@pytest.mark.parametrize("name", [name for name in standout.__all__ if not name.startswith("_")])
def test_every_public_name_is_documented_with_an_example(name):
    doc = inspect.getdoc(getattr(standout, name))
    assert doc and "Examples\n--------" in doc and ">>>" in doc


def ours(kind):
    """What a class and its bases in this package define."""
    return {
        name: member
        for base in reversed(kind.__mro__)
        if base.__module__.startswith("standout")
        for name, member in vars(base).items()
    }


@pytest.mark.parametrize("name", [name for name in standout.__all__ if inspect.isclass(getattr(standout, name))])
def test_every_public_method_is_documented(name):
    kind = getattr(standout, name)
    own = {name: member for name, member in ours(kind).items() if not name.startswith("_")}
    methods = [name for name, member in own.items() if callable(member) or isinstance(member, property | classmethod)]
    assert methods and [name for name in methods if not inspect.getdoc(own[name])] == []


def test_every_parameter_and_attribute_of_the_estimator_is_documented():
    doc = inspect.getdoc(standout.DPCA)
    fitted = [name for name in ours(standout.DPCA) if name.endswith("_") and not name.startswith("_")]
    missing = [name for name in [*standout.DPCA().get_params(), *fitted] if name not in doc]
    assert missing == []


@pytest.mark.parametrize("seed", range(5))
def test_the_demo_separates_groups_that_pca_does_not(seed):
    pca, dpca = _demo.views(digits_over_tiles(seed=seed))
    assert pca.ari < 0.2 and dpca.ari > 0.7
    assert (dpca.model.ratios_ > dpca.model.noise_edge_).all()
