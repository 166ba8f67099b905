"""Tests that need an optional package that is not installed are skipped, with the name of the package."""

from collections.abc import Iterator
from doctest import UnexpectedException
from importlib.util import find_spec

import pytest

# What pip does not install with standout alone, by the name that is imported.
_OPTIONAL = (
    "PIL", "anndata", "array_api_compat", "click", "contrastive", "dask", "distributed",
    "generalized_contrastive_PCA", "h5py", "jinja2", "jsonschema", "matplotlib", "mne", "mpmath", "openpyxl", "pandas",
    "playwright", "plotly", "polars", "pyarrow", "pyspark", "rich", "scanpy", "starlette", "uvicorn", "zarr",
)  # fmt: skip
_ABSENT = {package for package in _OPTIONAL if find_spec(package) is None}


def _absent(error: BaseException | None) -> str | None:
    """Return the absent package that an error, or one of its causes, reports."""
    if isinstance(error, UnexpectedException):
        error = error.exc_info[1]
    elif isinstance(error, (pytest.Collector.CollectError, pytest.fail.Exception)):  # as when no warning was raised
        error = error.__cause__ or error.__context__
    while isinstance(error, ImportError):
        if (error.name or "").partition(".")[0] in _ABSENT:
            return error.name
        error = error.__cause__ or error.__context__
    return None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Report a module as skipped if it imports an absent package."""
    report = yield
    excinfo = report.call.excinfo if report.failed else None
    if excinfo is not None and (package := _absent(excinfo.value)):
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"Skipped: {package} is not installed")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    """Skip a test whose fixtures import an absent package."""
    return (yield from _skip_if_absent())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Skip a test that imports an absent package."""
    return (yield from _skip_if_absent())


def _skip_if_absent() -> Iterator[None]:
    try:
        return (yield)
    except (Exception, pytest.fail.Exception) as error:
        if package := _absent(error):
            pytest.skip(f"{package} is not installed")
        raise
