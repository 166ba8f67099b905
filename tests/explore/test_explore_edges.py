"""Data and estimators at the edges: what is shown is what the library gives, and exported code repeats it."""

import contextlib
import io
import sys

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import standout
from standout import CPCA, DPCA, KernelDPCA
from standout._explore import export
from standout._explore.server import _CALLS, Server
from standout._explore.session import Exploration, Origin
from standout.errors import MissingExtraError, without_warnings

pytestmark = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


TARGET, ONE, TWO = normal(60, 5) + 0.5, normal(90, 5, seed=1), normal(40, 5, seed=2) * 1.5
SUBJECTS = np.repeat(np.arange(18), 5)
HOLES = np.where(np.random.default_rng(3).random(TARGET.shape) < 0.1, np.nan, TARGET)
with without_warnings():
    AT_MEANS = standout.read(HOLES, missing="mean")
CASES = {
    "missing values": (standout.read(HOLES, missing="auto"), {"u": ONE, "v": TWO}, {}),
    "missing values at the mean": (AT_MEANS, [ONE, TWO], {}),
    "missing values in few rows": (
        standout.read(np.where(normal(20, 50, seed=4) > 2, np.nan, normal(20, 50)), missing="auto"),
        [normal(25, 50, seed=1), normal(25, 50, seed=2)], {},
    ),
    "common features": (
        pd.DataFrame(TARGET, columns=list("abcde")), pd.DataFrame(ONE, columns=list("xcbay")),
        {"estimator": DPCA(features="common")},
    ),
    "plain": (TARGET, ONE, {}),
    "one component": (TARGET, ONE, {"estimator": DPCA(1)}),
    "one feature": (TARGET[:, :1], ONE[:, :1], {"estimator": DPCA(1)}),
    "more features than rows": (normal(20, 50), normal(25, 50, seed=1), {}),
    "sparse": (sparse.csr_matrix(TARGET * (TARGET > 0)), sparse.csr_matrix(ONE * (ONE > 0)), {}),
    "about the mean of the background": (TARGET, ONE, {"estimator": DPCA(centering="background")}),
    "sparse, about the mean of the background": (
        sparse.csr_matrix(TARGET), sparse.csr_matrix(ONE), {"estimator": DPCA(centering="background")},
    ),
    "background that does not vary in two features": (TARGET, ONE * [1, 1, 1, 0, 0], {}),
    "two target rows": (TARGET[:2], ONE, {"estimator": DPCA(1)}),
    "groups": (
        TARGET, {"u": ONE, "v": TWO},
        {"groups": SUBJECTS[:60], "background_groups": {"u": SUBJECTS, "v": SUBJECTS[:40]}},
    ),
    "groups in a list": (
        TARGET, [ONE, TWO], {"groups": SUBJECTS[:60], "background_groups": [SUBJECTS, SUBJECTS[:40]]},
    ),
    "mix as a list": (TARGET, [ONE, TWO], {"estimator": DPCA(mix=[0.3, 0.7])}),
    "mix as an array": (TARGET, [ONE, TWO], {"estimator": DPCA(mix=np.array([0.3, 0.7]))}),
    "mix as a dict": (TARGET, {"u": ONE, "v": TWO}, {"estimator": DPCA(mix={"u": 0.3, "v": 0.7})}),
    "kernel": (TARGET, ONE, {"estimator": KernelDPCA(2)}),
    "kernel with a mix": (TARGET, [ONE, TWO], {"estimator": KernelDPCA(2, mix=[0.3, 0.7])}),
    "alpha": (TARGET, ONE, {"estimator": CPCA(2, alpha=2.0)}),
    "automatic number of components": (TARGET, ONE, {"estimator": DPCA("auto")}),
    "unit background variance": (TARGET, ONE, {"estimator": DPCA(normalize="background")}),
}  # fmt: skip


def views(exploration):
    """All methods with all backgrounds and with each alone, at four stops, where there is something to draw."""
    ons = {exploration.every, *((n,) for n in exploration.every)}
    for method in exploration.methods:
        for on in sorted({exploration.every} if method == "pca" else ons):
            if exploration.fitted(method, 0, on).n_components_:
                count = len(exploration.stops(method, on).values)
                y = 1 if exploration.stops(method, on).n_components > 1 else -1
                for stop in sorted({0, 1, count // 2, count - 1} & set(range(count))):
                    yield exploration.view(method, stop, 0, y, list(on))


@pytest.mark.parametrize("name", CASES)
def test_the_ratios_and_the_noise_edge_are_those_of_the_library(name):
    target, background, given = CASES[name]
    exploration = Exploration(target, background, **given)
    for view in views(exploration):
        if view.method != "pca":  # has none of its own
            found, fitted = exploration.describe(view), exploration.fitted(*view.model)
            placed = np.empty(len(found["ratios"]))
            placed[exploration.best(view).order[view.stop]] = found["ratios"]
            count = min(len(placed), fitted.n_components_)
            np.testing.assert_allclose(placed[:count], fitted.ratios_[:count], rtol=1e-5, err_msg=str(view))
            np.testing.assert_allclose(found["noise_edge"], fitted.noise_edge_)


@pytest.mark.parametrize("name", CASES)
def test_exported_code_gives_the_scores_on_the_screen(name):
    target, background, given = CASES[name]
    exploration = Exploration(target, background, **given)
    for view in views(exploration):
        data = {"target": target, "background": background, **given}
        with contextlib.redirect_stdout(io.StringIO()):
            exec(export.code(exploration, view), data)
        shown = exploration.target_scores(view)[:, : data["scores"].shape[1]]
        np.testing.assert_allclose(data["scores"], shown, atol=1e-6 * np.abs(shown).max(), err_msg=str(view))


def test_a_model_without_components_has_the_verdict_of_the_library():
    target = 0.5 * normal(60, 5, seed=4)
    origin = Origin("target", ("background",), command=lambda *given: repr(export.shown_estimator(*given[:2])[0]))
    server = Server(Exploration(target, ONE, estimator=DPCA(axes="signal"), origin=origin))
    view = {"method": "signal", "stop": 0, "x": 0, "y": 1, "on": [0]}
    expected = DPCA(axes="signal").fit(target, background=ONE)
    assert expected.n_components_ == 0
    assert _CALLS["verdict"](server, view)["headline"] in str(expected.summary())
    assert "axes='signal'" in _CALLS["code"](server, view)["command"]
    assert server._file("model.standout", view).body and server._file("report.html", view).body


def test_a_background_given_as_an_empty_list_is_a_missing_one():
    with pytest.raises(ValueError, match="there is none to compare"):
        Exploration(TARGET, [])


@pytest.mark.parametrize("package", ["starlette", "uvicorn"])
def test_a_missing_package_is_named_before_the_data_are_read(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package}.*standout\[explore\]"):
        standout.explore("no such file.csv", background="nor this.csv")
