"""scikit-learn's own tests of PCA, run on DPCA without a background.

The file of the installed scikit-learn is executed with an adapter in place of ``sklearn.decomposition.PCA``. Tests that
fail for a reason are listed in ``DIFFERENCES``; each of them must fail, so that the list stays true.
"""

import importlib.util
import re
from collections.abc import Collection
from unittest import mock

import numpy as np
import pytest
import sklearn

from standout import DPCA

VERSION = "1.9"  # of scikit-learn, for which the list was written
pytestmark = [
    pytest.mark.skipif(not sklearn.__version__.startswith(f"{VERSION}."), reason=f"needs scikit-learn {VERSION}"),
    # Warnings are tested elsewhere; scikit-learn's tests expect none of standout's.
    pytest.mark.filterwarnings("ignore"),
]

_SOLVERS = {"full": "dense", "covariance_eigh": "dense", "arpack": "lanczos"}


class PCA(DPCA):
    """DPCA with the parameters of scikit-learn's PCA; whitening divides the scores by the explained sd."""

    shrinkage, axes, mix, normalize, centering = "auto", "ratio", "pooled", None, "own"
    graph, smoothness, features, background_label = None, 1.0, "all", None

    def __init__(
        self,
        n_components=None,
        *,
        copy=True,
        whiten=False,
        svd_solver="auto",
        tol=0.0,
        iterated_power="auto",
        n_oversamples=10,
        power_iteration_normalizer="auto",
        random_state=None,
    ):
        self.n_components = n_components
        self.copy = copy
        self.whiten = whiten
        self.svd_solver = svd_solver
        self.tol = tol
        self.iterated_power = iterated_power
        self.n_oversamples = n_oversamples
        self.power_iteration_normalizer = power_iteration_normalizer
        self.random_state = random_state

    @property
    def solver(self):
        if self.svd_solver == "randomized" and isinstance(self.n_components, int):
            return "matrix_free"
        return _SOLVERS.get(self.svd_solver, "auto")

    @property
    def n_samples_(self):
        return self._solved().target_counts.rows

    def transform(self, X):
        scores = super().transform(X)
        return scores / np.sqrt(self.explained_variance_).astype(scores.dtype) if self.whiten else scores

    def inverse_transform(self, X):
        return super().inverse_transform(X * np.sqrt(self.explained_variance_).astype(X.dtype) if self.whiten else X)


def _load():
    """Execute scikit-learn's file of tests with the adapter."""
    spec = importlib.util.find_spec("sklearn.decomposition.tests.test_pca")
    module = importlib.util.module_from_spec(spec)
    with mock.patch("sklearn.decomposition.PCA", PCA):
        spec.loader.exec_module(module)
    return module


# Tests that must fail, by the start of their names, and why.
_NO_MLE = "n_components='mle' is not supported; 'auto' needs a background"
_RANK = "there are no components beyond the rank of the centred rows, at most n_samples - 1; more are an error"
_SCORE = "score is the gain over the background, or over unit variance without one, not the likelihood of the rows"
DIFFERENCES = {
    r"test_sparse_pca_solver_error\[": "every solver takes sparse rows",
    r"test_no_empty_slice_warning$": _RANK,
    r"test_pca_solver_equivalence\[\w+-\w+-True-\w+-arpack": _RANK,  # one component less than features, of low rank
    r"test_n_components_none\[data0-arpack": "all components exist for every solver, also for Lanczos",
    r"test_n_components_none\[data1-(full|randomized)": _RANK,
    r"test_pca_zero_noise_variance_edge_cases\[": _RANK,
    r"test_pca_validation\[(arpack|randomized)-0": "the message about n_components=0 has other words",
    r"test_pca_validation\[arpack-2": "Lanczos is replaced by a dense solver where it cannot find all components",
    r"test_pca_validation\[auto-3": "the message about too many components has other words",
    r"test_n_components_mle": _NO_MLE,
    r"test_pca_dim$": _NO_MLE,
    r"test_mle_": _NO_MLE,
    r"test_fit_mle_": _NO_MLE,
    r"test_pca_score\[": _SCORE,
    r"test_pca_score3$": "n_components=0 is not supported",
    r"test_pca_svd_solver_auto\[": "tests a private attribute; solver_ is the solver used",
    r"test_pca_dtype_preservation\[": "fitted attributes are float64, as the sums are; scores are float32",
    r"test_pca_randomized_svd_n_oversamples$": "the matrix-free solver stops at an error of 1e-7 of the variances",
}


def _listed(mark):
    """Return a mark whose values are a list: pytest deprecates the generators that scikit-learn gives it."""
    if mark.name != "parametrize" or isinstance(mark.args[1], Collection):
        return mark
    return pytest.mark.parametrize(mark.args[0], list(mark.args[1]), **mark.kwargs).mark


TESTS = {name: test for name, test in vars(_load()).items() if name.startswith("test_")}
for _test in TESTS.values():
    _test.pytestmark = [_listed(mark) for mark in getattr(_test, "pytestmark", [])]
globals().update(TESTS)


@pytest.fixture
def global_random_seed():
    return 42


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def global_dtype(request):
    return request.param


@pytest.fixture(autouse=True)
def _expected_difference(request):
    """Expect the tests in the list to fail; one that passes is an error."""
    for start, reason in DIFFERENCES.items():
        if re.match(start, request.node.name):
            request.node.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def test_every_expected_difference_is_a_test_of_scikit_learn():
    for start in DIFFERENCES:
        assert any(re.match(start.split(r"\[")[0].rstrip("$"), name) for name in TESTS), start
