"""Smooth components over a graph of features."""

import numpy as np
import pytest
from scipy import linalg, sparse
from sklearn.feature_extraction.image import grid_to_graph

from helpers import quiet
from standout._dpca import DPCA
from standout.errors import InputError
from standout.solvers.problem import laplacian


def chain(size):
    return sparse.diags_array([np.ones(size - 1), np.ones(size - 1)], offsets=[-1, 1]).tocsr()


@pytest.fixture(scope="module")
def smooth():
    """A smooth direction that only the target has, and hardly more background rows than features."""
    rng = np.random.default_rng(0)
    size = 60
    direction = np.sin(np.linspace(0, np.pi, size))
    direction /= np.linalg.norm(direction)
    target = rng.normal(size=(120, size)) + np.outer(rng.normal(size=120) * 2, direction)
    return target, rng.normal(size=(80, size)), direction


def cosine(model, direction):
    return abs(model.components_[0] @ direction) / np.linalg.norm(model.components_[0])


@quiet
def test_a_smooth_direction_is_found_with_few_rows(smooth):
    target, background, direction = smooth
    rough = DPCA(1, shrinkage=None).fit(target, background=background)
    model = DPCA(1, shrinkage=None, graph=chain(60), smoothness=10).fit(target, background=background)
    assert cosine(rough, direction) < 0.5
    assert cosine(model, direction) > 0.9


@quiet
@pytest.mark.parametrize("shrinkage", [None, 0.2])
def test_the_penalised_problem_is_the_one_defined(smooth, shrinkage):
    target, background, _ = smooth
    model = DPCA(3, shrinkage=shrinkage, graph=chain(60), smoothness=2.5).fit(target, background=background)
    cxx, cyy = np.cov(target.T, ddof=0), np.cov(background.T, ddof=0)
    sd, rho = np.sqrt(np.diag(cyy)), shrinkage or 0.0
    price = 2.5 * sd[:, None] * laplacian(chain(60), 60).toarray() * sd
    denominator = (1 - rho) * cyy + rho * np.diag(sd**2) + price
    np.testing.assert_allclose(model.ratios_, linalg.eigvalsh(cxx, denominator)[::-1][:3], rtol=1e-9)


@quiet
def test_smoothness_zero_ignores_the_graph_and_units_do_not_matter(smooth):
    target, background, _ = smooth
    plain = DPCA(2).fit(target, background=background)
    none = DPCA(2, graph=chain(60), smoothness=0).fit(target, background=background)
    np.testing.assert_allclose(none.ratios_, plain.ratios_, rtol=1e-12)
    unit = np.geomspace(0.01, 100, 60)
    one = DPCA(2, graph=chain(60)).fit(target, background=background)
    other = DPCA(2, graph=chain(60)).fit(target * unit, background=background * unit)
    np.testing.assert_allclose(other.ratios_, one.ratios_, rtol=1e-9)


def test_adjacency_and_laplacian_are_distinguished():
    expected = laplacian(chain(5), 5).toarray()
    np.testing.assert_allclose(laplacian(expected, 5).toarray(), expected)
    np.testing.assert_allclose(laplacian(chain(5).toarray() * 2, 5).toarray(), expected * 2)
    np.testing.assert_allclose(laplacian(grid_to_graph(3, 3), 9).sum(axis=0), 0, atol=1e-12)  # has a diagonal


@quiet
def test_a_graph_works_with_wide_data_and_common_features():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(1)
    target, background = rng.normal(size=(20, 50)), rng.normal(size=(25, 50))
    wide = DPCA(2, graph=chain(50)).fit(target, background=background)
    assert wide.solver_ == "dense"
    names = [f"f{i}" for i in range(50)]
    frames = pd.DataFrame(target, columns=names), pd.DataFrame(background, columns=names).drop(columns="f7")
    model = DPCA(2, graph=chain(50), features="common").fit(frames[0], background=frames[1])
    assert (model.components_[:, 7] == 0).all() and model.components_[:, 6].all()


def test_bad_graphs_are_an_error():
    for bad, words in [
        (np.eye(3), "shape"),
        (np.triu(np.ones((4, 4)), 1), "not symmetric"),
        (np.full((4, 4), np.nan), "NaN"),
        (np.array([[0, 1, -1, 0], [1, 0, 0, 0], [-1, 0, 0, 0], [0, 0, 0, 0.0]]), "neither an adjacency"),
    ]:
        with pytest.raises(InputError, match=words):
            laplacian(bad, 4)
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(50, 4))
    with pytest.raises(InputError, match="smoothness=-1"):
        DPCA(graph=chain(4), smoothness=-1).fit(rows, background=rows)


@pytest.mark.parametrize("solver", ["gsvd", "span", "matrix_free"])
def test_solvers_without_covariances_reject_a_graph(solver, refused):
    rows = np.random.default_rng(2).normal(size=(50, 4))
    refused(lambda: DPCA(graph=chain(4), solver=solver).fit(rows, background=rows), solver, "cannot use a graph")
