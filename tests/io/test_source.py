"""Anything that holds rows gives the same model, and is read without being copied as a whole."""

import contextlib
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import linalg, sparse

import standout
from conftest import KINDS, NAMES, OnCluster, OneShot, memory_map
from standout._dpca import DPCA
from standout._moments import Moments
from standout.errors import InputError, NonFiniteError, StandoutError
from standout.io.source import ArraySource, RowView, select_columns

noise = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")


def ratios_by_definition(data, count=2):
    covariance = [np.cov(rows.T, ddof=0) for rows in data]
    return linalg.eigh(*covariance, eigvals_only=True)[::-1][:count]


@pytest.fixture(params=KINDS)
def make(request, tmp_path):
    return lambda rows: KINDS[request.param](rows, tmp_path)


def test_every_kind_of_source_gives_the_same_model(data, make):
    model = DPCA(shrinkage=None).fit(make(data.target), background=make(data.background))
    plain = DPCA(shrinkage=None).fit(data.target, background=data.background)
    np.testing.assert_allclose(model.ratios_, ratios_by_definition(data), rtol=1e-11)
    np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(model.mean_, data.target.mean(axis=0), rtol=1e-14)


def test_every_kind_of_source_is_transformed_to_the_same_scores(data, make):
    model = DPCA().fit(data.target, background=data.background)
    rows = make(data.target)
    scores = model.transform(standout.read(rows))
    single = getattr(rows, "dtype", None) == np.float32  # float32 in, float32 out, rounded once
    assert scores.dtype == (np.float32 if single else np.float64) and type(scores) is np.ndarray
    expected = (data.target - data.target.mean(axis=0)) @ model.components_.T
    np.testing.assert_allclose(scores, expected, rtol=2**-24 if single else 1e-10, atol=1e-11)


@noise
def test_every_kind_of_source_gives_the_same_model_with_more_features_than_rows(data, make):
    few = data.target[:2], data.background[:2]
    model = DPCA(1).fit(make(few[0]), background=make(few[1]))
    plain = DPCA(1).fit(few[0], background=few[1])
    np.testing.assert_allclose(model.ratios_, plain.ratios_, rtol=1e-9)
    np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("solver", ["gsvd", "span"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "shot" not in kind and "one row" not in kind])
def test_solvers_that_read_the_rows_take_every_kind_of_source(data, kind, solver, tmp_path):
    chosen = {"solver": solver, "shrinkage": 0.2}
    few = [rows[:40] for rows in data]
    model = DPCA(**chosen).fit(KINDS[kind](few[0], tmp_path), background=KINDS[kind](few[1][:39], tmp_path))
    plain = DPCA(solver="dense", shrinkage=0.2).fit(few[0], background=few[1][:39])
    np.testing.assert_allclose(model.ratios_, plain.ratios_, rtol=1e-10)


@noise
def test_truth_values_count_as_zero_and_one(data):
    truth = [rows > np.median(rows, axis=0) for rows in data]
    model = DPCA(1, shrinkage=None).fit(truth[0], background=truth[1])
    np.testing.assert_allclose(model.ratios_, ratios_by_definition([rows * 1.0 for rows in truth], 1), rtol=1e-11)
    frame = pd.DataFrame({"a": truth[0][:, 0], "b": data.target[:, 1], "c": data.target[:, 2].astype(int)})
    assert standout.read(frame).rows(0, 2).tolist() == frame[:2].astype(float).to_numpy().tolist()


def test_kinds_may_be_mixed_between_target_and_background(data):
    model = DPCA(shrinkage=None).fit(
        pd.DataFrame(data.target, columns=NAMES), background=sparse.csr_array(data.background)
    )
    np.testing.assert_allclose(model.ratios_, ratios_by_definition(data), rtol=1e-11)
    assert list(model.feature_names_in_) == list(NAMES)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_keep_their_names(data, frame):
    rows = frame(dict(zip(NAMES, data.target.T, strict=True)))
    assert standout.read(rows).names == NAMES
    model = DPCA(1).fit(rows, background=data.background)
    assert list(model.feature_names_in_) == list(NAMES)
    assert model.top_features(1)[0][0].feature in NAMES


MISSING = {
    "Int64": pd.array([None, *range(199)], dtype="Int64"),
    "boolean": pd.array([None, *[True, False] * 99, True], dtype="boolean"),
    "Float64": pd.array([None, *range(199)], dtype="Float64"),
    "object": pd.Series([None, *range(199)], dtype=object),
}


@pytest.mark.parametrize("kind", MISSING)
def test_a_missing_value_in_a_nullable_column_is_named(data, kind, remedy):
    frame = pd.DataFrame(data.target, columns=NAMES).assign(c=MISSING[kind])
    with pytest.raises(NonFiniteError, match=r"target: 1 NaN and 0 inf values in 1 of 5 features: c \(1\)") as error:
        DPCA().fit(frame, background=data.background)
    remedy(error)


def test_a_null_in_a_polars_column_is_named(data):
    frame = pl.DataFrame(data.target, schema=NAMES).with_columns(c=pl.Series([None, None, *range(198)]))
    with pytest.raises(NonFiniteError, match=r"features: c \(2\)"):
        DPCA().fit(frame, background=data.background)


@pytest.mark.parametrize("columns", [["blocks", "n_features", "names"], ["array", "rows", "moments"]])
def test_columns_may_have_any_name(data, columns):
    frames = [pd.DataFrame(rows[:, :3], columns=columns) for rows in data]
    model = DPCA().fit(frames[0], background=frames[1])
    assert list(model.feature_names_in_) == columns
    np.testing.assert_allclose(model.ratios_, DPCA().fit(data[0][:, :3], background=data[1][:, :3]).ratios_)


def test_masked_values_are_missing_values(data):
    masked = np.ma.masked_array(data.target, mask=np.zeros(data.target.shape, dtype=bool))
    whole = DPCA(shrinkage=None).fit(masked, background=data.background)
    np.testing.assert_allclose(whole.ratios_, ratios_by_definition(data), rtol=1e-11)
    masked[3, 2] = np.ma.masked
    with pytest.raises(InputError, match=r"mask|NaN"):
        DPCA(shrinkage=None).fit(masked, background=data.background)


@pytest.mark.filterwarnings("ignore:.*matrix subclass:PendingDeprecationWarning")
def test_a_numpy_matrix_is_an_array_or_refused(data):
    with contextlib.suppress(StandoutError, TypeError):  # to refuse it, as scikit-learn does, is right too
        model = DPCA(shrinkage=None).fit(np.matrix(data.target), background=data.background)
        np.testing.assert_allclose(model.ratios_, ratios_by_definition(data), rtol=1e-11)
    model = DPCA(shrinkage=None).fit(data.target, background=data.background)
    with contextlib.suppress(StandoutError, TypeError):
        assert type(model.transform(np.matrix(data.target))) is np.ndarray


@pytest.fixture
def densified(monkeypatch):
    """Record the largest number of entries a sparse matrix is made dense with."""
    seen = SimpleNamespace(largest=0)
    for kind in (sparse.csr_array, sparse.csc_array, sparse.csr_matrix, sparse.csc_matrix):

        def toarray(self, *given, _plain=kind.toarray, **named):
            seen.largest = max(seen.largest, self.shape[0] * self.shape[1])
            return _plain(self, *given, **named)

        monkeypatch.setattr(kind, "toarray", toarray)
    return seen


@noise
@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_matrix])
def test_a_large_sparse_matrix_is_never_made_dense(kind, densified):
    large = kind(sparse.random_array((200_000, 300), density=0.004, random_state=np.random.default_rng(0)))
    background = kind(sparse.random_array((30_000, 300), density=0.01, random_state=np.random.default_rng(1)))
    tracemalloc.start()
    model = DPCA().fit(large, background=background)
    model.transform(large)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0 < densified.largest <= 4096 * 300
    assert peak < 100e6 < 200_000 * 300 * 8 / 4  # the dense matrix takes 480 MB


@noise
def test_a_memory_map_is_read_in_blocks(tmp_path):
    rows = np.random.default_rng(0).normal(size=(40_000, 100))
    mapped = memory_map(rows, tmp_path)
    plain = DPCA().fit(rows, background=rows[::-2])
    tracemalloc.start()
    model = DPCA().fit(mapped, background=mapped[::-2])
    scores = model.transform(mapped)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < rows.nbytes / 3
    np.testing.assert_allclose(model.ratios_, plain.ratios_, rtol=1e-12)
    np.testing.assert_allclose(scores, plain.transform(rows), rtol=1e-9, atol=1e-12)


def test_blocks_are_the_rows_in_order_and_never_larger_than_asked(data, make):
    source = standout.read(make(data.target))
    blocks = list(source.blocks(32))
    np.testing.assert_array_equal(np.concatenate(blocks).astype(float), data.target)
    assert max(map(len, blocks)) <= 32


@pytest.mark.parametrize("kind", ["f8", "i4", "pandas", "polars", "csr_array", "csc_matrix", "memory map"])
def test_views_are_the_rows_and_columns_numpy_gives(data, kind, tmp_path):
    source = standout.read(KINDS[kind](data.target, tmp_path))
    index, columns = np.array([5, 0, 199, 5, 17]), np.array([4, 1, 2])
    view = select_columns(RowView(source, index), columns)
    expected = data.target[np.ix_(index, columns)]
    np.testing.assert_array_equal(np.concatenate(list(view.blocks(2))), expected)
    np.testing.assert_array_equal(view.rows(1, 4), expected[1:4])
    np.testing.assert_array_equal(view.take(np.array([2, 0])), expected[[2, 0]])
    np.testing.assert_array_equal(view.columns(1, 3), expected[:, 1:3])
    assert (view.n_rows, view.n_features) == (5, 3)
    assert view.names == (None if source.names is None else ("e", "b", "c"))


def test_columns_of_a_one_shot_source_are_taken_block_by_block(data):
    view = select_columns(OneShot(data.target, NAMES), np.array([3, 0]))
    assert view.names == ("d", "a")
    np.testing.assert_array_equal(np.concatenate(list(view.blocks(9))), data.target[:, [3, 0]])


def test_all_columns_in_their_order_are_the_source_itself(data):
    source = standout.read(data.target)
    assert select_columns(source, np.arange(5)) is source


def test_a_source_that_adds_up_its_own_moments_is_not_asked_for_rows(data):
    model = DPCA(shrinkage=None).fit(OnCluster(data.target), background=OnCluster(data.background))
    np.testing.assert_allclose(model.ratios_, ratios_by_definition(data), rtol=1e-11)


def test_moments_from_a_cluster_are_used_when_columns_have_another_order(data):
    cluster = OnCluster(data.background[:, ::-1], NAMES[::-1])
    model = DPCA(shrinkage=None).fit(pd.DataFrame(data.target, columns=NAMES), background=cluster)
    np.testing.assert_allclose(model.ratios_, ratios_by_definition(data), rtol=1e-11)


def test_moments_from_a_cluster_are_enough_for_score(data):
    model = DPCA().fit(data.target, background=data.background)
    expected = model.score(data.target, background=data.background)
    assert model.score(OnCluster(data.target), background=OnCluster(data.background)) == pytest.approx(expected)


def test_names_given_to_moments_win_over_those_of_the_source(data):
    assert Moments.of(OnCluster(data.target, NAMES), names="vwxyz").names == tuple("vwxyz")


@pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")  # three units are few
@pytest.mark.parametrize("label", [None, 0])
def test_groups_that_a_source_brings_are_counted(data, label):
    rows = np.repeat(data.target[:5], 100, axis=0) + 1e-3 * np.random.default_rng(0).normal(size=(500, 5))
    source = ArraySource(rows)
    source.groups = np.arange(500) // 100
    if label is None:
        target, background = ArraySource(rows[:200]), ArraySource(rows[200:])
        target.groups, background.groups = source.groups[:200], source.groups[200:]
        model = DPCA().fit(target, background=background)
    else:
        model = DPCA(background_label=0).fit(source, np.arange(500) < 200)
    assert model._model.target_counts.rows == 200 and model._model.target_counts.units == pytest.approx(2)


def test_a_source_is_read_by_its_blocks_whatever_else_it_has(data):
    source = OneShot(data.target)
    source.array = np.full((9, 5), 1e6)
    model = DPCA().fit(data.target, background=data.background)
    np.testing.assert_allclose(model.transform(source), model.transform(data.target), rtol=1e-10, atol=1e-11)


def test_a_source_needs_no_more_than_blocks_and_their_width(data):
    class Minimal(standout.Source):
        n_features, n_rows = 5, None

        def blocks(self, rows):
            return np.split(data.target, range(rows, 200, rows))

    model = DPCA(shrinkage=None).fit(Minimal(), background=data.background)
    np.testing.assert_allclose(model.ratios_, ratios_by_definition(data), rtol=1e-11)


@pytest.mark.parametrize("block", [np.ones((9, 4)), np.ones((9, 6)), np.ones(5), np.full((3, 5), "x")])
def test_blocks_of_the_wrong_shape_are_an_error(data, block, remedy):
    source = OneShot(data.target)
    source.blocks = lambda _: iter([data.target, block])
    with pytest.raises(InputError, match=r"target.*block") as error:
        DPCA().fit(source, background=data.background)
    remedy(error)


def test_too_few_weights_for_a_source_are_an_error(data, remedy):
    with pytest.raises(InputError, match=r"target weights: .*5") as error:
        DPCA().fit(OneShot(data.target), background=data.background, sample_weight=np.ones(5))
    remedy(error)
