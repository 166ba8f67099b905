"""What a fitted model shows: patterns, top features, the summary, and results that follow from its definition."""

import numpy as np
import pytest

from conftest import NAMES
from helpers import OptionalPackage
from standout._dpca import DPCA
from standout.errors import StandoutWarning

pd = OptionalPackage("pandas")


@pytest.fixture
def model(data):
    return DPCA().fit(data.target, background=data.background)


def test_patterns_are_the_dual_of_the_components(model, data):
    np.testing.assert_allclose(model.components_ @ model.patterns_.T, np.eye(2), atol=1e-12)
    scores = model.transform(data.target)
    restored = model.inverse_transform(scores)
    np.testing.assert_allclose(restored, model.mean_ + scores @ model.patterns_)
    np.testing.assert_allclose(model.transform(restored), scores, atol=1e-10)
    everything = DPCA(None).fit(data.target, background=data.background)
    np.testing.assert_allclose(everything.inverse_transform(everything.transform(data.target)), data.target, atol=1e-10)


def test_top_features_are_measured_in_background_sd(data):
    frame = pd.DataFrame(data.target, columns=NAMES)
    model = DPCA(1).fit(frame, background=data.background)
    scores = model.transform(frame)[:, 0]
    moves = [np.cov(scores, column, ddof=0)[0, 1] / scores.std() for column in data.target.T] / data.background.std(
        axis=0
    )
    order = np.argsort(-np.abs(moves))
    top = model.top_features(3)[0]
    assert [name for name, _ in top] == [NAMES[i] for i in order[:3]]
    np.testing.assert_allclose([weight for _, weight in top], moves[order[:3]], rtol=1e-10)
    assert top[0].weight > 0 and len(model.top_features(99)[0]) == 5


def test_normalize_background_gives_scores_of_unit_background_variance(data):
    model = DPCA(shrinkage=None).fit(data.target, background=data.background)
    unit = DPCA(normalize="background", shrinkage=None).fit(data.target, background=data.background)
    np.testing.assert_allclose(np.var(unit.transform(data.background), axis=0), 1, rtol=1e-10)
    np.testing.assert_allclose(np.var(unit.transform(data.target), axis=0), model.ratios_, rtol=1e-10)
    np.testing.assert_allclose(np.linalg.norm(model.components_, axis=1), 1, rtol=1e-12)


def test_the_summary_shows_ratios_and_the_noise_edge(model):
    text = model.summary()
    assert repr(text) == str(text)
    for k, ratio in enumerate(model.ratios_):
        (line,) = [line for line in text.splitlines() if line.strip().startswith(f"dpca{k}")]
        assert f"{ratio:.4g}" in line and f"{model.noise_edge_:.4g}" in line
    assert "200 rows" in text and "300 rows" in text and "noise edge" in text
    with pytest.warns(StandoutWarning):
        lost = DPCA().fit(np.random.default_rng(0).normal(size=(9, 5)), background=np.eye(5))
    assert "no noise edge" in lost.summary() and "nan" not in lost.summary()


def test_a_fit_without_background_says_pca_in_its_first_line_and_in_its_names():
    model = DPCA().fit(np.random.default_rng(0).normal(size=(9, 5)))
    assert model.summary().startswith("PCA: 2 components of 5 features")
    assert model.get_feature_names_out().tolist() == ["pca0", "pca1"]
