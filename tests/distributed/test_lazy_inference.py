"""What resamples, compares and draws rows gives on a cluster what it gives of the same rows in memory."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import standout
from conftest import NAMES, whole_numbers
from reports import Page
from spark_session import spark_session
from standout._dpca import DPCA
from standout._moments import Moments
from standout._report.report import report
from standout.errors import InputError, RowsNeededError
from standout.plot._scores import scores

dask = pytest.importorskip("dask", reason="dask is not installed: everything about Dask is left out")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # of Spark
SUBJECTS = 20  # rows of each


@pytest.fixture(autouse=True)
def here():
    with dask.config.set(scheduler="synchronous"):
        yield


def subjects(n_rows, first, seed):
    """Return rows that are near copies of few subjects, with the subject, a label and an id for each."""
    rng = np.random.default_rng(seed)
    middle = rng.normal(size=(n_rows // SUBJECTS, 3)).repeat(SUBJECTS, axis=0)
    frame = pd.DataFrame(middle + 0.3 * rng.normal(size=(n_rows, 3)), columns=["a", "b", "c"])
    number = first + np.arange(n_rows) // SUBJECTS
    return frame.assign(
        subject=number, kind=np.where(frame["a"] > 0, "high", "low"), name=[f"{s}_{i}" for i, s in enumerate(number)]
    )


TARGET, BACKGROUND = subjects(200, 0, seed=0), subjects(300, 100, seed=1)


def spread(frame):
    return dd.from_pandas(frame, npartitions=3)


def described(frame, **more):
    return standout.read(frame, columns=["a", "b", "c"], groups="subject", **more)


@pytest.fixture
def pairs():
    """Return target and background with their groups, in memory and on Dask."""
    return [[described(place(data)) for data in (TARGET, BACKGROUND)] for place in (pd.DataFrame, spread)]


def test_groups_of_a_dask_frame_are_reshuffled_as_in_memory(pairs):
    plain, found = (standout.permutation_test(*sides, n_permutations=99, random_state=0) for sides in pairs)
    assert found.permuted == "groups" and found.units == (10, 15)
    assert np.array_equal(found.p_values, plain.p_values) and np.array_equal(found.null, plain.null)


def test_groups_of_a_dask_frame_are_held_out_as_in_memory(pairs):
    plain, found = (standout.held_out_ratio(*sides, random_state=0) for sides in pairs)
    assert found.by == "groups" and found.units == (10, 15)
    np.testing.assert_allclose(found.fold_ratios, plain.fold_ratios, rtol=1e-12)


def test_groups_of_a_dask_frame_are_resampled_as_in_memory(pairs):
    plain, found = (standout.stability(*sides, n_bootstrap=20, n_components=1, random_state=0) for sides in pairs)
    assert found.by == "groups"
    np.testing.assert_allclose(found.correlations, plain.correlations, rtol=1e-10)


def test_groups_of_a_dask_frame_are_the_units_of_robust_moments(pairs):
    plain, found = (standout.robust_moments(sides[0]) for sides in pairs)
    assert found.units == plain.units == 10 and found.names == ("a", "b", "c")
    np.testing.assert_array_equal(found.scatter, plain.scatter)


@pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")
def test_an_assessment_is_that_of_the_rows_in_memory(pairs):
    asked = {"n_permutations": 49, "n_bootstrap": 10, "n_components": 1, "random_state": 0}
    plain, found = (standout.assess(*sides, **asked) for sides in pairs)
    assert np.array_equal(found.test.p_values, plain.test.p_values) and found.test.units == (10, 15)
    np.testing.assert_allclose(found.held_out.fold_ratios, plain.held_out.fold_ratios, rtol=1e-12)
    np.testing.assert_allclose(found.stability.correlations, plain.stability.correlations, rtol=1e-10)


@pytest.mark.filterwarnings("ignore::standout.errors.SerialWarning")
def test_replicates_among_the_rows_of_a_dask_frame_are_found_as_in_memory():
    frames = [standout.read(place(TARGET), columns=["a", "b", "c"], ids="name") for place in (pd.DataFrame, spread)]
    plain, found = map(standout.find_replicates, frames)
    assert found.n_units == 10 and found.text == plain.text
    with pytest.warns(standout.errors.ReplicateWarning):
        found = standout.assess(frames[1], BACKGROUND[["a", "b", "c"]], n_permutations=0, n_bootstrap=0, n_components=1)
    assert [one.text for one in found.replicates] == [f"target: {plain.text}"]


def test_groups_and_pairs_given_as_dask_arrays_are_used():
    rows, others = (spread(data[["a", "b", "c"]]) for data in (TARGET, BACKGROUND))
    given = {"n_permutations": 49, "random_state": 0}
    plain = standout.permutation_test(described(TARGET), described(BACKGROUND), **given)
    found = standout.permutation_test(
        rows, others, groups=spread(TARGET)["subject"], background_groups=spread(BACKGROUND)["subject"], **given
    )
    assert np.array_equal(found.p_values, plain.p_values) and found.units == plain.units
    first = BACKGROUND[:200]
    ids, same = (first["subject"].to_numpy() for _ in range(2))
    plain = standout.permutation_test(
        TARGET[["a", "b", "c"]], first[["a", "b", "c"]], pairs=ids, background_pairs=same, **given
    )
    paired = standout.permutation_test(
        rows, spread(first[["a", "b", "c"]]), pairs=da.from_array(ids, chunks=70),
        background_pairs=spread(first)["subject"], **given,
    )  # fmt: skip
    assert paired.permuted == "pairs" and np.array_equal(paired.p_values, plain.p_values)


def test_a_subject_in_target_and_background_is_refused_on_dask_as_in_memory(refused):
    shared = subjects(300, 5, seed=1)
    for place in (pd.DataFrame, spread):
        refused(
            lambda place=place: standout.permutation_test(described(place(TARGET)), described(place(shared))),
            "5 groups occur in the target and in the background",
            "pairs=",
        )


def test_groups_of_the_target_alone_are_refused_on_dask_as_in_memory(refused):
    without = spread(BACKGROUND[["a", "b", "c"]])
    refused(lambda: standout.permutation_test(described(spread(TARGET)), without), "background: it has no groups")


@pytest.fixture
def counted():
    """Return rows in four chunks that are all cut from one step, and how often that step was taken."""
    taken = []

    def make(rows):
        @dask.delayed(pure=True)
        def upstream(values):
            taken.append(1)
            return values

        whole = upstream(rows)
        parts = [whole[start : start + 50] for start in range(0, len(rows), 50)]
        return da.concatenate([da.from_delayed(part, (50, rows.shape[1]), float) for part in parts])

    return make, taken


@pytest.mark.parametrize(
    "ask",
    [
        lambda x, y: standout.permutation_test(x, y, n_permutations=19),
        standout.held_out_ratio,
        lambda x, y: standout.stability(x, y, n_bootstrap=5),
        lambda x, y: standout.assess(x, y, n_permutations=19, n_bootstrap=5),
        lambda x, y: (standout.robust_moments(x), standout.robust_moments(y)),
        standout.compare,
    ],
    ids=["permutation_test", "held_out_ratio", "stability", "assess", "robust_moments", "compare"],
)
def test_what_chunks_share_is_computed_once_for_each_set(data, counted, ask):
    make, taken = counted
    ask(make(data.target), make(data.background))
    assert len(taken) == 2


def test_a_comparison_with_labels_goes_over_the_target_twice_and_the_background_once(data, counted):
    make, taken = counted
    labels = (data.target[:, 2] > 30).astype(int)
    found = standout.compare(make(data.target), make(data.background), labels=labels)
    assert len(taken) == 3
    for view, plain in zip(found, standout.compare(data.target, data.background, labels=labels), strict=True):
        assert view.silhouette == pytest.approx(plain.silhouette, rel=1e-9)


@pytest.mark.filterwarnings("ignore::standout.errors.DoubtWarning")
def test_labels_of_a_dask_frame_are_judged_by_a_comparison_as_in_memory():
    with_labels = [
        standout.read(place(TARGET), columns=["a", "b", "c"], label="kind") for place in (pd.DataFrame, spread)
    ]
    plain, found = (standout.compare(target, BACKGROUND[["a", "b", "c"]]) for target in with_labels)
    assert all(np.isfinite(view.silhouette) for view in found)
    np.testing.assert_allclose([v.silhouette for v in found], [v.silhouette for v in plain], rtol=1e-9)


def test_a_column_called_labels_is_a_feature_and_not_what_to_judge_by(data):
    frame = pd.DataFrame(data.target, columns=["a", "b", "c", "ordered", "labels"])
    assert np.isnan(standout.compare(frame, data.background)[0].silhouette)


def test_several_sets_on_dask_with_groups_compare_as_in_memory(pairs):
    rng = np.random.default_rng(0)
    other = pd.DataFrame(rng.normal(size=(120, 4)), columns=["c", "extra", "b", "a"])
    units = np.arange(120) // 2
    given = {"features": "common", "mix": {"one": 0.3, "two": 0.7}, "n_components": 1, "shrinkage": None}
    plain = standout.compare(pairs[0][0], {"one": pairs[0][1], "two": other}, background_groups={"two": units}, **given)
    found = standout.compare(
        pairs[1][0], {"one": pairs[1][1], "two": dd.from_pandas(other, npartitions=2)},
        background_groups={"two": da.from_array(units, chunks=60)}, **given,
    )  # fmt: skip
    for view, same in zip(found, plain, strict=True):
        assert view.name == same.name and view.share == pytest.approx(same.share, rel=1e-9)
        np.testing.assert_allclose(view.ratios, same.ratios, rtol=1e-9)
        # Rows on a cluster are not read again: groups are counted instead of effective rows, which is conservative.
        assert not view.estimator.noise_edge_ < same.estimator.noise_edge_


def test_frames_on_dask_whose_columns_are_numbered_differently_are_not_compared(data, refused):
    one, other = (pd.DataFrame(rows, columns=range(first, first + 5)) for rows, first in zip(data, (0, 1), strict=True))
    refused(lambda: standout.compare(spread(one), spread(other)), "labelled", kind=InputError)


def test_moments_are_compared_as_their_rows(data):
    plain = standout.compare(data.target, data.background)
    for view, same in zip(standout.compare(Moments.of(data.target), data.background), plain, strict=True):
        assert view.share == pytest.approx(same.share, rel=1e-9)
        np.testing.assert_allclose(view.ratios, same.ratios, rtol=1e-9)


def test_nothing_to_compare_with_is_refused(data, refused):
    refused(lambda: standout.compare(data.target, None), "background")


def test_labels_for_another_number_of_rows_are_refused(data, refused):
    refused(lambda: standout.compare(data.target, data.background, labels=["x", "y"]), "labels", "200 rows")


@pytest.mark.filterwarnings("ignore::standout.errors.DoubtWarning")
def test_a_report_of_dask_frames_draws_the_points_of_the_rows_in_memory(tmp_path):
    drawn = []
    for place in (pd.DataFrame, spread):
        target = standout.read(place(TARGET), columns=["a", "b", "c"], label="kind", ids="name")
        background = place(BACKGROUND[["a", "b", "c"]])
        model = DPCA(2).fit(target, background=background)
        report(model, target, background, path=tmp_path / "page.html")
        drawn.append(Page(tmp_path / "page.html"))
    plain, found = (page.points(0, 0) for page in drawn)
    assert set(found) == set(plain) == {"high", "low", "background"}
    for name in plain:
        np.testing.assert_allclose(found[name], plain[name], rtol=1e-5, atol=1e-6)


def test_scores_on_dask_are_drawn_and_a_model_in_their_place_is_named(data, refused):
    model = DPCA(2).fit(data.target, background=data.background)
    rows = da.from_array(data.target, chunks=(60, -1))
    axes = scores(model.transform(rows), background=[model.transform(rows), model.transform(data.background)])
    points = np.concatenate([found.get_offsets() for found in axes.collections])
    both = [model.transform(each) for each in (data.target, data.background, data.target)]
    np.testing.assert_allclose(points, np.concatenate(both), rtol=1e-9, atol=1e-12)
    refused(lambda: scores(model, rows), "DPCA", "model.transform(rows)")


every_question = pytest.mark.parametrize(
    "ask",
    [
        standout.permutation_test,
        standout.held_out_ratio,
        standout.stability,
        standout.assess,
        lambda x, _: standout.robust_moments(x),
    ],
    ids=["permutation_test", "held_out_ratio", "stability", "assess", "robust_moments"],
)

HUGE = da.zeros((4 * 10**9, 500), chunks=(10**6, 500))


@every_question
def test_rows_that_do_not_fit_this_machine_are_not_fetched(ask, refused):
    refused(lambda: ask(HUGE, np.ones((5, 500))), "16,000.0 GB", "a quarter of its memory")


def test_rows_come_in_their_own_type_and_order_whatever_the_chunks():
    rows = np.arange(35, dtype=np.float32).reshape(7, 5)
    found = standout.read(da.from_array(rows, chunks=(2, 3))).collect("data")
    assert found.dtype == np.float32 and np.array_equal(found, rows)


on_spark = pytest.mark.xdist_group("spark")  # one process holds the cluster, however many run the tests


@pytest.fixture(scope="module")
def spark():
    return spark_session()


@pytest.fixture(scope="module")
def rows():
    return whole_numbers()


@pytest.fixture(scope="module")
def frame(spark, rows):
    return spark.createDataFrame(pa.table(dict(zip(NAMES, rows.target.T, strict=True))))


@pytest.fixture(scope="module")
def described_frame(spark, rows):
    """The target with a label, a group and an id for each row."""
    columns = dict(zip(NAMES, rows.target.T, strict=True))
    columns |= {"kind": ["x", "y"] * 100, "subject": np.arange(200) // 10, "name": [f"{i}" for i in range(200)]}
    return spark.createDataFrame(pa.table(columns))


@on_spark
def test_rows_without_groups_are_tested_as_in_memory(rows, frame):
    given = {"n_permutations": 19, "random_state": 0}
    plain = standout.permutation_test(rows.target, rows.background, **given)
    assert np.array_equal(standout.permutation_test(frame, rows.background, **given).p_values, plain.p_values)
    np.testing.assert_array_equal(standout.robust_moments(frame).scatter, standout.robust_moments(rows.target).scatter)


@every_question
@on_spark
def test_groups_are_refused_where_rows_are_resampled(rows, described_frame, ask, refused):
    grouped = standout.read(described_frame, columns=list(NAMES), groups="subject")
    refused(lambda: ask(grouped, rows.background), "subject", "toPandas()", kind=RowsNeededError)


@on_spark
def test_arrays_in_addition_to_the_rows_are_refused(rows, frame, refused):
    ids = np.arange(200) // 10
    for given in ({"groups": ids}, {"groups": "subject"}, {"pairs": ids, "background_pairs": ids}):
        refused(
            lambda given=given: standout.permutation_test(frame, rows.background[:200], **given),
            "target", "no order", "toPandas()", kind=RowsNeededError,
        )  # fmt: skip
    for given in ({"groups": ids}, {"weights": np.ones(200)}):
        refused(
            lambda given=given: standout.robust_moments(frame, **given),
            "no order", "toPandas()", kind=RowsNeededError,
        )  # fmt: skip
    for given in ({"ids": ids}, {"ids": "name"}, {"labels": ids}):
        refused(
            lambda given=given: standout.find_replicates(frame, **given),
            "no order", "toPandas()", kind=RowsNeededError,
        )  # fmt: skip


@on_spark
def test_labels_and_ids_are_refused_where_each_row_is_judged_by_them(rows, frame, described_frame, refused):
    labels = ["x", "y"] * 100
    refused(
        lambda: standout.compare(frame, rows.background, labels=labels),
        "labels", "no order", "toPandas()", kind=RowsNeededError,
    )  # fmt: skip
    labelled = standout.read(described_frame, columns=list(NAMES), label="kind")
    refused(lambda: standout.compare(labelled, rows.background), "'kind'", "toPandas()", kind=RowsNeededError)
    named = standout.read(described_frame, columns=list(NAMES), ids="name")
    refused(lambda: standout.find_replicates(named), "'name'", "toPandas()", kind=RowsNeededError)


@on_spark
def test_a_report_says_that_rows_must_come_into_memory_first(rows, frame, tmp_path, refused):
    model = DPCA(2).fit(frame, background=rows.background)
    named = pd.DataFrame(rows.background, columns=NAMES)
    for target, background in ((frame, named), (named, frame)):
        refused(
            lambda t=target, b=background: report(model, t, b, path=tmp_path / "page.html"),
            "Spark", "toPandas()", kind=RowsNeededError,
        )  # fmt: skip


@on_spark
def test_scores_are_not_drawn_before_they_are_in_memory(rows, frame, refused):
    model = DPCA(2).fit(frame, background=rows.background)
    made = model.transform(frame)
    refused(lambda: scores(made), "values", "toPandas()", kind=RowsNeededError)
    plain = made.toPandas().to_numpy()
    refused(lambda: scores(plain, background=[made]), "background", "toPandas()", kind=RowsNeededError)
