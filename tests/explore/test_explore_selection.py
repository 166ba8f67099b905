"""Selections: the region, effect sizes with intervals that count subjects, and the check on halves."""

import numpy as np
import pytest
from matplotlib.path import Path as Polygon
from scipy import stats

from standout._explore.selection import as_region, effects, inside
from standout._explore.session import Exploration
from standout._folds import Units
from standout.errors import InputError
from standout.io.source import ArraySource

pytestmark = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")


def rows_as_units(count):
    return Units(np.arange(count), ())


def test_points_inside_a_lasso_are_those_of_matplotlib():
    rng = np.random.default_rng(0)
    for _ in range(20):
        region = rng.normal(size=(rng.integers(3, 12), 2))  # may cross itself
        points = rng.normal(size=(500, 2))
        winding = Polygon(np.vstack([region, region[:1]]), closed=True)
        simple = len(region) == 3
        if simple:  # for crossing regions matplotlib counts windings
            np.testing.assert_array_equal(inside(points, region), winding.contains_points(points))
        assert inside(points, region[::-1]).tolist() == inside(points, region).tolist()


def test_a_box_selects_what_its_inequalities_select():
    points = np.random.default_rng(1).normal(size=(1000, 2))
    region = np.array([[-0.5, -1], [1, -1], [1, 0.3], [-0.5, 0.3]])
    expected = (points[:, 0] > -0.5) & (points[:, 0] < 1) & (points[:, 1] > -1) & (points[:, 1] < 0.3)
    np.testing.assert_array_equal(inside(points, region), expected)


@pytest.mark.parametrize(
    "points", [None, [], [[0, 0], [1, 1]], [[0, 0, 0]] * 3, [[0, float("nan")]] * 3, "abc", [[0, 0]] * 10_001]
)
def test_what_is_not_a_polygon_is_refused(points):
    with pytest.raises(InputError, match="polygon"):
        as_region(points)


def test_effect_sizes_are_cohens_d():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 4)) + np.array([0, 1, 2, 3])
    first = np.arange(300) < 80
    rows[first] += [0, 0.5, -1, 0]
    found = effects(ArraySource(rows), rows_as_units(300), first, ~first)
    one, two = rows[first], rows[~first]
    pooled = np.sqrt((one.var(axis=0) * len(one) + two.var(axis=0) * len(two)) / 298)
    np.testing.assert_allclose(found.size, (one.mean(axis=0) - two.mean(axis=0)) / pooled)
    assert found.counts == (80, 220)
    assert found.largest(1).tolist() == [2]


def test_intervals_cover_the_population_effect():
    # 400 runs: a coverage of 95 % has a standard error of 1.1 %.
    rng = np.random.default_rng(0)
    hits = 0
    first = np.arange(120) < 40
    for _ in range(400):
        rows = rng.normal(size=(120, 1)) + 0.8 * first[:, None]
        found = effects(ArraySource(rows), rows_as_units(120), first, ~first)
        hits += found.low[0] <= 0.8 <= found.high[0]
    assert 0.92 <= hits / 400 <= 0.985


@pytest.mark.parametrize(("count", "sd"), [(2, 1), (3, 1), (5, 1), (5, 2), (15, 1), (15, 2)])
def test_intervals_of_small_selections_cover_the_population_effect(count, sd):
    # 600 runs: a coverage of 95 % has a standard error of 0.9 %.
    rng = np.random.default_rng(1)
    first = np.arange(count + 100) < count
    scale = np.where(first, sd, 1)[:, None]
    effect, hits = 0.8 / np.sqrt((count * sd**2 + 100) / (count + 100)), 0
    for _ in range(600):
        rows = rng.normal(size=(count + 100, 1)) * scale + 0.8 * first[:, None]
        found = effects(ArraySource(rows), rows_as_units(count + 100), first, ~first)
        hits += found.low[0] <= effect <= found.high[0]
    assert hits / 600 >= 0.92


@pytest.mark.parametrize("count", [2, 3, 5])
def test_intervals_of_rows_of_few_subjects_cover_the_population_effect(count):
    rng = np.random.default_rng(0)
    subjects = np.repeat(np.arange(count + 15), 10)
    units, first, hits = Units(subjects, tuple(range(count + 15))), subjects < count, 0
    for _ in range(400):
        rows = rng.normal(size=(count + 15, 1))[subjects] + 0.3 * rng.normal(size=(len(subjects), 1))
        found = effects(ArraySource(rows), units, first, ~first)
        hits += found.low[0] <= 0 <= found.high[0]
    assert hits / 400 >= 0.92


def test_rows_of_one_subject_have_no_interval():
    rng = np.random.default_rng(0)
    subjects = np.repeat(np.arange(6), 10)
    found = effects(ArraySource(rng.normal(size=(60, 3))), Units(subjects, tuple(range(6))), subjects < 1, subjects > 0)
    assert np.isnan(found.low).all() and np.isnan(found.high).all() and np.isfinite(found.size).all()


def test_intervals_count_subjects_and_not_rows():
    rng = np.random.default_rng(0)
    subjects = np.repeat(np.arange(30), 10)
    units = Units(subjects, tuple(range(30)))
    first = subjects < 15
    hits, hits_by_row = 0, 0
    for _ in range(400):
        rows = rng.normal(size=(30, 1))[subjects] + 0.3 * rng.normal(size=(300, 1))
        found = effects(ArraySource(rows), units, first, ~first)
        by_row = effects(ArraySource(rows), rows_as_units(300), first, ~first)
        hits += found.low[0] <= 0 <= found.high[0]
        hits_by_row += by_row.low[0] <= 0 <= by_row.high[0]
    assert hits / 400 >= 0.9
    assert hits_by_row / 400 < 0.7  # what the intervals would be without groups


def test_one_row_per_subject_gives_the_welch_like_standard_error():
    rng = np.random.default_rng(2)
    rows, first = rng.normal(size=(200, 1)), np.arange(200) < 100
    found = effects(ArraySource(rows), rows_as_units(200), first, ~first)
    welch = stats.ttest_ind(rows[first, 0], rows[~first, 0], equal_var=False).confidence_interval()
    width = (found.high - found.low)[0] * np.sqrt((rows[first].var() + rows[~first].var()) / 2)
    assert width == pytest.approx(welch.high - welch.low, rel=0.02)


def selection_of(exploration, share=0.15, on=(0,)):
    """A region at the right end of the first component, as a person would draw it."""
    view = exploration.view("dpca", 0, 0, 1, list(on))
    scores = exploration.target_scores(view)[:, 0]
    edge = np.quantile(scores, 1 - share)
    points = [[edge, -1e9], [1e9, -1e9], [1e9, 1e9], [edge, 1e9]]
    return {"kind": "region", "method": "dpca", "stop": 0, "x": 0, "y": 1, "on": list(on), "points": points}


def test_a_planted_group_holds_on_rows_that_did_not_choose_the_axis():
    rng = np.random.default_rng(0)
    target, background = rng.normal(size=(200, 30)), rng.normal(size=(400, 30))
    target[:30, :3] += 4
    found = Exploration(target, background).check(selection_of(Exploration(target, background)))
    assert found["kind"] == "holds"
    assert found["again"] > 0.9
    assert (np.array(found["low"])[:3] > 0).all()


def test_the_ends_of_a_noise_axis_rarely_hold():
    kinds = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        exploration = Exploration(rng.normal(size=(120, 40)), rng.normal(size=(120, 40)))
        kinds.append(exploration.check(selection_of(exploration))["kind"])
    assert kinds == ["fails"] * 40


def test_subjects_are_not_split_between_the_halves():
    # Twelve subjects with their own offsets: by rows the axis finds each subject again, by subjects it does not.
    rng = np.random.default_rng(1)
    subjects = np.repeat(np.arange(12), 20)
    target = rng.normal(size=(12, 30))[subjects] * 2 + rng.normal(size=(240, 30))
    background = rng.normal(size=(240, 30))
    by_row = Exploration(target, background)
    by_subject = Exploration(target, background, groups=subjects, background_groups=np.arange(240))
    assert by_row.check(selection_of(by_row))["kind"] == "holds"
    assert by_subject.check(selection_of(by_subject))["again"] < by_row.check(selection_of(by_row))["again"]


def test_rows_chosen_by_label_are_not_checked_on_halves():
    rng = np.random.default_rng(0)
    exploration = Exploration(rng.normal(size=(60, 4)), rng.normal(size=(90, 4)), labels=["x"] * 20 + ["y"] * 40)
    found = exploration.check({"kind": "label", "column": "label", "value": 0})
    assert found["kind"] == "labels"
    assert exploration.compare({"kind": "label", "column": "label", "value": 0})["counts"] == (20, 40)


def test_selections_that_share_rows_or_are_too_small_are_refused():
    rng = np.random.default_rng(0)
    exploration = Exploration(rng.normal(size=(60, 4)), rng.normal(size=(90, 4)))
    whole = {**selection_of(exploration), "points": [[-1e9, -1e9], [1e9, -1e9], [1e9, 1e9], [-1e9, 1e9]]}
    none = {**whole, "points": [[1e8, 1e8], [1e9, 1e8], [1e9, 1e9]]}
    with pytest.raises(InputError, match="other rows: 0 rows"):
        exploration.compare(whole)
    with pytest.raises(InputError, match="selection: 0 rows"):
        exploration.compare(none)
    with pytest.raises(InputError, match="share"):
        exploration.compare(selection_of(exploration), selection_of(exploration, share=0.3))


@pytest.mark.parametrize(("size", "words"), [((40, 40, 4), "fewer than 10 features"), ((3, 40, 12), "not possible")])
def test_data_that_cannot_be_checked_on_halves_say_so(size, words):
    rng = np.random.default_rng(0)
    exploration = Exploration(rng.normal(size=(size[0], size[2])), rng.normal(size=(size[1], size[2])))
    found = exploration.check(selection_of(exploration, share=0.5))
    assert found["kind"] == "impossible" and words in found["sentence"]
