"""Stops of the dial: the scores of the library, in an order and with signs that do not jump."""

import numpy as np
import pytest
from scipy import sparse

from standout import CPCA, DPCA
from standout._explore.session import Exploration
from standout._explore.stops import follow
from standout.solvers.gram import RowSpan

pytestmark = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")


def data(seed=0, size=12):
    rng = np.random.default_rng(seed)
    mix = np.linalg.qr(rng.normal(size=(size, size)))[0] * np.geomspace(3, 0.5, size)
    target = rng.normal(size=(150, size)) * np.r_[4, 3, 2, np.ones(size - 3)] @ mix + 5
    return target, rng.normal(size=(200, size)) @ mix - 2, rng.normal(size=(90, size)) * 1.5 @ mix


def of_library(exploration, view, names=("target",)):
    """Scores of an estimator at the stop, in the order and with the signs of the screen."""
    found = exploration.stops(view.method, view.on)
    estimator = exploration.make(view.method, view.stop, view.on, found.n_components)
    if view.method == "cpca" and view.stop == 0:
        estimator.set_params(alpha=found.values[0])
    background = exploration.background(view.on)
    fitted = (
        estimator.fit(exploration.target)
        if view.method == "pca"
        else estimator.fit(exploration.target, background=background)
    )
    sources = [exploration.target, *exploration.backgrounds]
    order, signs = found.order[view.stop], found.signs[view.stop]
    return fitted, [fitted.transform(source)[:, order] * signs for source in sources]


@pytest.mark.parametrize("method", ["pca", "dpca", "cpca", "signal"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_every_stop_shows_the_scores_and_patterns_of_the_library(method, kind):
    target, *parts = data()
    form = sparse.csr_matrix if kind == "sparse" else np.asarray
    exploration = Exploration(form(target), {"one": form(parts[0]), "two": form(parts[1])})
    count = len(exploration.stops(method, (0, 1)).values)
    assert count == {"dpca": 42, "cpca": 42}.get(method, 1)
    for stop in sorted({0, 1, 2, 20, 41} & set(range(count))):
        view = exploration.view(method, stop, 0, 1, [0, 1])
        found = exploration.stops(method, (0, 1))
        fitted, scores = of_library(exploration, view)
        tolerance = 1e-5 * np.abs(scores[0]).max()
        for drawn, expected in zip(found.drawn, scores, strict=True):
            np.testing.assert_allclose(drawn[:, stop], expected, atol=tolerance)
        np.testing.assert_allclose(
            exploration.target_scores(view), scores[0][:, :2], atol=1e-8 * np.abs(scores[0]).max()
        )
        if method != "pca":  # without a background its patterns are in other units
            order, signs = found.order[stop], found.signs[stop]
            moves = fitted.patterns_ * np.sqrt(fitted.target_variance_)[:, None] / fitted._solved().scale
            np.testing.assert_allclose(found.moves[stop], moves[order] * signs[:, None], atol=1e-4)


def test_the_ratios_shown_are_those_of_the_scores():
    target, *parts = data()
    exploration = Exploration(target, list(parts))
    view = exploration.view("cpca", 30, 0, 1, [0, 1])
    _, (one, two, three) = of_library(exploration, view)
    shares = np.array([len(parts[0]), len(parts[1])]) / (len(parts[0]) + len(parts[1]))
    expected = one.var(axis=0) / (shares[0] * two.var(axis=0) + shares[1] * three.var(axis=0))
    np.testing.assert_allclose(exploration.describe(view)["ratios"], expected, rtol=1e-8)


def test_all_fits_of_wide_data_share_the_gram_matrices_of_their_rows(monkeypatch):
    computed, measure = [], RowSpan._measure
    monkeypatch.setattr(RowSpan, "_measure", lambda rows, units: computed.append(rows.n_rows) or measure(rows, units))
    rng = np.random.default_rng(0)
    exploration = Exploration(rng.normal(size=(30, 100)), rng.normal(size=(40, 100)))
    for method in ("pca", "dpca", "cpca"):
        for stop in range(min(3, len(exploration.stops(method, (0,)).values))):
            exploration.judge(exploration.view(method, stop, 0, 1, [0]))
    assert sorted(computed) == [30, 70, 70]  # PCA; in background sd for dPCA; in the units of the data for cPCA


def test_unit_background_variance_holds_along_the_dial():
    target, background, _ = data()
    exploration = Exploration(target, background, estimator=DPCA(normalize="background"))
    view = exploration.view("dpca", 25, 0, 1, [0])
    _, (expected, _) = of_library(exploration, view)
    np.testing.assert_allclose(exploration.target_scores(view), expected[:, :2], rtol=1e-6, atol=1e-8)


def test_axes_neither_flip_nor_jump_along_the_dial():
    target, background, _ = data(3)
    exploration = Exploration(target, background)
    drawn = exploration.stops("dpca", (0,)).drawn[0][:, 1:]
    drawn = drawn - drawn.mean(axis=0)
    drawn /= np.linalg.norm(drawn, axis=0)
    steps = np.einsum("nsk,nsk->sk", drawn[:, :-1], drawn[:, 1:])
    assert steps.min() > 0.5


def test_components_that_exchange_their_order_and_sign_keep_their_place():
    # Three stops of two components: swapped at the second, one of them flipped at the third.
    rng = np.random.default_rng(0)
    one, two = np.linalg.qr(rng.normal(size=(50, 2)))[0].T
    scores = np.stack([np.c_[one, two], np.c_[two, one], np.c_[-one, two]], axis=1)
    covariance = np.einsum("nak,nbl->abkl", scores, scores)
    order, signs = follow(covariance)
    placed = np.take_along_axis(scores, order[None], axis=2) * signs
    for stop in range(3):
        np.testing.assert_allclose(placed[:, stop], np.c_[one, two], atol=1e-12)


def test_backgrounds_that_are_switched_off_do_not_enter_the_fit():
    target, *parts = data()
    exploration = Exploration(target, {"one": parts[0], "two": parts[1]}, estimator=DPCA(3, mix="equal"))
    view = exploration.view("dpca", 0, 0, 1, [1])
    expected = DPCA(3, mix="equal").fit(target, background={"two": parts[1]})
    np.testing.assert_allclose(exploration.fitted(*view.model).ratios_, expected.ratios_)
    assert exploration.describe(view)["noise_edge"] == pytest.approx(expected.noise_edge_)


def test_a_search_for_alpha_is_that_of_the_given_number_of_components():
    target, background, _ = data()
    exploration = Exploration(target, background, estimator=CPCA(2))
    assert exploration.stops("cpca", (0,)).values[0] == CPCA(2).fit(target, background=background).alpha_


def test_rows_that_are_not_drawn_are_counted(monkeypatch):
    monkeypatch.setattr("standout._explore.session.MOST_DRAWN", 100)
    target, background, _ = data()
    exploration = Exploration(target, background)
    whole = Exploration(target, background)
    assert [len(rows.drawn) for rows in exploration.rows] == [50, 50]
    view = exploration.view("dpca", 5, 0, 1, [0])
    np.testing.assert_allclose(exploration.describe(view)["ratios"], whole.describe(view)["ratios"], rtol=1e-10)
    assert len(exploration.points(view)) == 4 * 2 * 100
