"""Stability: bootstrap samples against refits by hand, wide data, groups, and noise."""

import sys

import numpy as np
import pytest
from scipy import stats

from standout._dpca import DPCA
from standout._moments import Moments
from standout.errors import InputError, NotEnoughRowsError, RowsNeededError
from standout.inference import resampling
from standout.inference.stability import stability
from standout.io.source import watching

pytestmark = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")


def pair(seed=0, m=80, n=100, size=6):
    rng = np.random.default_rng(seed)
    target, background = rng.normal(size=(m, size)) * 2, rng.normal(size=(n, size)) * 2 + 1
    target[:, 1] *= 4
    target[:, 3] *= 2.5
    return target, background


def test_a_bootstrap_sample_is_a_refit_of_drawn_rows():
    target, background = pair()
    found = stability(target, background, n_components=2, n_bootstrap=3, random_state=7)
    model = DPCA(2).fit(target, background=background)
    rng = np.random.default_rng(np.random.SeedSequence(7).spawn(1)[0])
    for number in range(3):
        drawn = rng.integers(80, size=80), rng.integers(100, size=100)
        again = DPCA(2, shrinkage=model.shrinkage_ or None).fit(target[drawn[0]], background=background[drawn[1]])
        scores = model.transform(target), again.transform(target)
        relation = np.abs(np.corrcoef(scores[0].T, scores[1].T)[:2, 2:])
        expected = relation.diagonal() if relation.trace() > 1 else relation[:, ::-1].diagonal()
        np.testing.assert_allclose(found.correlations[number], expected, rtol=1e-9)
        spans = [np.linalg.qr(part - part.mean(axis=0))[0] for part in scores]
        angle = np.degrees(np.arccos(np.linalg.svd(spans[0].T @ spans[1])[1].min()))
        assert found.angles[number] == pytest.approx(angle, abs=1e-5)


def test_weights_are_those_of_the_models_top_features():
    target, background = pair(1)
    found = stability(target, background, n_bootstrap=40)
    tops = DPCA(2).fit(target, background=background).top_features(6)
    for ours, theirs in zip(found.top_features(6), tops, strict=True):
        assert [top.feature for top in ours] == [top.feature for top in theirs]
        np.testing.assert_allclose([top.weight for top in ours], [top.weight for top in theirs], rtol=1e-9)
    top = found.top_features(1)[0][0]
    assert top.feature == 1 and top.same_sign == 1.0 and top.low < top.weight < top.high


def test_weight_intervals_are_in_background_sd_of_the_bootstrap_sample():
    target, background = pair(1, m=30, n=25)
    found = stability(target, background, n_components=1, n_bootstrap=8, random_state=7, level=0.9, shrinkage=None)
    model = DPCA(1, shrinkage=None).fit(target, background=background)
    rng = np.random.default_rng(np.random.SeedSequence(7).spawn(1)[0])
    weights = []
    for _ in range(8):
        rows = target[rng.integers(30, size=30)], background[rng.integers(25, size=25)]
        again = DPCA(1, shrinkage=None).fit(rows[0], background=rows[1])
        scores = rows[0] @ again.components_[0]
        # By how many background sd features move with one sd of the score: a regression of each on the score.
        moves = [np.cov(scores, feature, ddof=0)[0, 1] / scores.std() for feature in rows[0].T] / rows[1].std(axis=0)
        weights.append(np.sign(again.transform(target)[:, 0] @ (model.transform(target)[:, 0])) * moves)
    error = np.sqrt(np.mean((weights - found.weights) ** 2, axis=0))
    reach = stats.t.ppf(0.95, 24) * error
    np.testing.assert_allclose(found.weight_low[0], found.weights[0] - reach, rtol=1e-5)
    np.testing.assert_allclose(found.weight_high[0], found.weights[0] + reach, rtol=1e-5)


def test_the_summary_explains_the_width_of_weight_intervals():
    rng = np.random.default_rng(0)
    found = stability(rng.normal(size=(30, 3)) * [4, 1, 1], rng.normal(size=(20, 3)), n_components=1, n_bootstrap=20)
    assert "include the error of the background sd" in found.summary()


def test_components_that_change_order_are_matched():
    rng = np.random.default_rng(2)
    target, background = rng.normal(size=(100, 5)), rng.normal(size=(400, 5))
    target[:, 0] *= 4.0
    target[:, 1] *= 4.05
    found = stability(target, background, n_bootstrap=60)
    # Two similar ratios mix in every sample; the plane of their components is stable.
    assert found.median.min() > 0.7
    assert np.median(found.angles) < 15


def test_a_real_component_is_stable_and_noise_is_not():
    rng = np.random.default_rng(3)
    target, background = rng.normal(size=(150, 8)), rng.normal(size=(200, 8))
    target[:, 5] *= 5
    found = stability(target, background, n_components=2, n_bootstrap=100)
    assert found.low[0] > 0.95 and found.low[1] < 0.7
    shares = found.same_sign[0]
    assert shares[5] == 1.0 and np.delete(shares, 5).min() < 0.9
    assert "stable" in found.summary() and "100 bootstrap samples of rows" in found.summary()


def test_groups_are_drawn_as_a_whole():
    target, background = pair(4, m=60, n=90)
    groups = np.arange(60) % 12, np.arange(90) % 9  # rows of a group are not adjacent
    found = stability(target, background, n_components=1, n_bootstrap=4, groups=groups[0], background_groups=groups[1])
    model = DPCA(1).fit(target, background=background, groups=groups[0], background_groups=groups[1])
    rng = np.random.default_rng(np.random.SeedSequence(0).spawn(1)[0])
    for number in range(4):
        drawn = [rng.integers(count, size=count) for count in (12, 9)]
        sets = [
            np.vstack([rows[ids == group] for group in chosen])
            for rows, ids, chosen in zip((target, background), groups, drawn, strict=True)
        ]
        again = DPCA(1, shrinkage=model.shrinkage_ or None).fit(sets[0], background=sets[1])
        relation = np.corrcoef(model.transform(target)[:, 0], again.transform(target)[:, 0])[0, 1]
        assert found.correlations[number, 0] == pytest.approx(abs(relation), rel=1e-9)
    assert found.by == "groups"


def test_wide_data_are_resampled():
    rng = np.random.default_rng(5)
    target, background = rng.normal(size=(30, 4000)), rng.normal(size=(25, 4000))
    target[:, 17] *= 80
    found = stability(target, background, n_components=1, n_bootstrap=20)
    assert found.low[0] > 0.9 and found.weights.shape == (1, 4000)
    (top,) = found.top_features(1)[0]
    assert top.feature == 17 and top.same_sign == 1.0


def test_several_backgrounds_names_and_parameters_are_used():
    import pandas as pd

    target, background = pair(6)
    names = [f"gene {i}" for i in range(6)]
    frames = [pd.DataFrame(rows, columns=names) for rows in (target, background[:40], background[40:])]
    found = stability(
        frames[0], {"a": frames[1], "b": frames[2]}, n_bootstrap=10, mix={"a": 0.5, "b": 0.5}, axes="signal"
    )
    assert found.names == tuple(names) and found.top_features(1)[0][0].feature == "gene 1"
    common = stability(frames[0], frames[1].drop(columns="gene 0"), n_bootstrap=5, features="common")
    assert common.names == tuple(names[1:]) and "gene 0" in common.summary()


def test_the_number_of_processes_does_not_matter(monkeypatch):
    data = pair(7)
    one = stability(*data, n_bootstrap=25, n_jobs=1)
    monkeypatch.setattr(resampling, "_WORTH_PROCESSES", 0.0)
    two = stability(*data, n_bootstrap=25, n_jobs=2)
    np.testing.assert_array_equal(one.correlations, two.correlations)
    np.testing.assert_array_equal(one.weight_low, two.weight_low)


def test_progress_is_reported():
    seen = []
    with watching(seen.append):
        stability(*pair(8), n_bootstrap=12)
    assert [(one.what, one.rows) for one in seen] == [("bootstrap samples", 10), ("bootstrap samples", 12)]


def test_a_note_reports_too_few_rows_for_the_exact_problem(remedy):
    rng = np.random.default_rng(9)
    found = stability(rng.normal(size=(60, 20)), rng.normal(size=(25, 20)), n_bootstrap=5, shrinkage=None)
    (note,) = found.notes
    assert "16 different background rows for 20 dimensions" in note
    remedy(note)


BAD = {
    "moments": (lambda x, y: stability(Moments.of(x), y), ["target", "moments"], RowsNeededError),
    "components": (lambda x, y: stability(x, y, n_components="auto"), ["n_components='auto'"], InputError),
    "samples": (lambda x, y: stability(x, y, n_bootstrap=0), ["n_bootstrap=0"], InputError),
    "level": (lambda x, y: stability(x, y, level=0), ["level=0"], InputError),
    "parameter": (lambda x, y: stability(x, y, shrinkage="lw"), ["shrinkage='lw'"], InputError),
    "label": (lambda x, y: stability(x, y, background_label=1), ["background_label"], InputError),
    "nothing": (
        lambda x, y: stability(x[:, [0, 2]], y[:, [0, 2]], axes="signal"),
        ["no component is above noise"],
        InputError,
    ),
    "no background": (lambda x, _: stability(x, None), ["the background is missing"], InputError),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_arguments_are_refused_with_a_remedy(kind, refused):
    call, words, error = BAD[kind]
    refused(lambda: call(*pair()), *words, kind=error)


def test_a_single_group_is_refused(refused):
    target, background = (np.random.default_rng(seed).normal(size=(20, 3)) for seed in (0, 1))
    groups = {"groups": [1] * 20, "background_groups": np.arange(20) // 2}
    refused(lambda: stability(target, background, n_components=1, **groups), "target: 1 group", kind=NotEnoughRowsError)


def test_few_groups_are_noted(remedy):
    target, background = (np.random.default_rng(seed).normal(size=(20, 3)) for seed in (0, 1))
    groups = {"groups": np.arange(20) // 5, "background_groups": np.arange(20) // 2}
    found = stability(target, background, n_components=1, n_bootstrap=5, **groups)
    (note,) = [text for text in found.notes if "only 4 groups" in text]
    remedy(note)


def test_a_group_that_is_drawn_twice_counts_as_two():
    # The noise edge, above which signal axes are kept, depends on the number of groups.
    rng = np.random.default_rng(5)
    groups = np.arange(120) // 10
    target, background = rng.normal(size=(120, 4)) * [1, 1, 1, 6], rng.normal(size=(600, 4))
    seen = []

    def fit(datasets, options):
        seen.append(datasets[0].counts.units)
        return original(datasets, options)

    original = sys.modules[stability.__module__].fit_model
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[stability.__module__], "fit_model", fit)
        stability(target, background, n_components=1, n_bootstrap=5, groups=groups, background_groups=np.arange(600))
    assert seen == [12] * 6
