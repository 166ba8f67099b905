"""Plots show the numbers of the model: points are scores, bars are weights, the line is the noise edge."""

import subprocess
import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

import standout
from standout._cpca import CPCA
from standout._display import number
from standout._dpca import DPCA
from standout._kernel_dpca import KernelDPCA
from standout.errors import MissingExtraError, OverfitWarning, ShrinkageWarning, StructuralWarning
from standout.plot import _style
from standout.plot._components import patterns, ratios
from standout.plot._scores import gallery, scores

RNG = np.random.default_rng(0)
POINTS = RNG.normal(size=(120, 3))


@pytest.fixture(autouse=True)
def figures():
    yield
    plt.close("all")


@pytest.fixture
def axes():
    return plt.subplots(layout="constrained")[1]


@pytest.fixture
def fitted(data):
    return DPCA(None, shrinkage=None).fit(data.target, background=data.background)


def drawn(axes):
    """Render the figure: some errors occur only then."""
    axes.figure.canvas.draw()
    return axes


def offsets(axes):
    return [np.asarray(artist.get_offsets()) for artist in axes.collections]


def legend_of(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def styles(axes):
    return [(to_hex(one.get_facecolor()[0]), one.get_paths()[0].vertices.tobytes()) for one in axes.collections]


def test_points_lie_at_the_first_two_scores_on_the_axes_given(axes):
    assert scores(POINTS, axes=axes, title="a title", names=("one", "two")) is axes
    np.testing.assert_array_equal(offsets(drawn(axes))[0], POINTS[:, :2])
    assert (axes.get_title(), axes.get_xlabel(), axes.get_ylabel()) == ("a title", "one", "two")
    assert axes.get_legend() is None


def test_each_label_colours_its_rows(axes):
    labels = np.array(["b", "a", "c"])[np.arange(120) % 3]
    scores(POINTS, labels, axes=axes)
    assert legend_of(drawn(axes)) == ["a", "b", "c"]
    for name, found in zip("abc", offsets(axes), strict=True):
        np.testing.assert_array_equal(found, POINTS[labels == name, :2])


@pytest.mark.parametrize("count", [8, 12, 30, 64])
def test_classes_differ_in_colour_or_marker(axes, count):
    scores(POINTS, [f"kind {i % count}" for i in range(120)], axes=axes)
    assert len(styles(axes)) == len(set(styles(axes))) == count


def test_labels_are_sorted_by_the_numbers_in_them(axes):
    scores(POINTS, [f"day {i % 12}" for i in range(120)], axes=axes)
    assert legend_of(axes) == [f"day {i}" for i in range(12)]


def test_the_background_is_drawn_behind_the_target_in_grey(axes):
    scores(POINTS, background=POINTS + 1, axes=axes)
    behind, front = offsets(drawn(axes))
    np.testing.assert_array_equal(behind, POINTS[:, :2] + 1)
    np.testing.assert_array_equal(front, POINTS[:, :2])
    red, green, blue, _ = axes.collections[0].get_facecolor()[0]
    assert max(red, green, blue) - min(red, green, blue) < 0.06
    assert legend_of(axes) == ["background", "target"]


def test_several_backgrounds_have_different_styles(axes):
    scores(POINTS, background={"rest": POINTS + 1, "task": POINTS + 2}, axes=axes)
    assert legend_of(axes) == ["rest", "task", "target"]
    assert len(set(styles(axes))) == 3
    _, other = plt.subplots()
    scores(POINTS, background=[POINTS + 1, POINTS + 2], axes=other)
    assert legend_of(other)[:2] == ["background 0", "background 1"]


def test_a_long_legend_is_outside_the_axes_and_counts_the_omitted_labels(axes):
    scores(POINTS, [f"kind {i % 30}" for i in range(120)], axes=axes)
    assert legend_of(axes)[-2:] == ["kind 19", "and 10 more"] and len(legend_of(axes)) == 21
    legend = drawn(axes).get_legend().get_window_extent()
    assert legend.x0 >= axes.get_window_extent().x1 - 1


def test_a_thousand_labels_are_drawn_and_counted(axes):
    points = RNG.normal(size=(1000, 2))
    scores(points, [f"row {i}" for i in range(1000)], axes=axes)
    assert sum(map(len, offsets(axes))) == 1000 and len(axes.collections) == _style.DISTINCT + 1
    assert legend_of(drawn(axes))[-1] == "and 980 more"


def test_many_numeric_labels_use_a_colour_map(axes):
    labels = POINTS[:, 2].copy()
    labels[::10] = np.nan
    scores(POINTS, labels, axes=axes)
    missing, scale = drawn(axes).collections
    np.testing.assert_array_equal(missing.get_offsets(), POINTS[::10, :2])
    np.testing.assert_array_equal(scale.get_array(), labels[~np.isnan(labels)])
    assert scale.get_cmap().name == "viridis" and len(axes.figure.axes) == 2
    assert legend_of(axes) == ["missing"]


def test_few_numbers_are_classes(axes):
    scores(POINTS, [float("nan") if i % 7 == 0 else 6.0 + 3 * (i % 2) for i in range(120)], axes=axes)
    assert legend_of(axes) == ["missing", "6", "9"]


@pytest.mark.parametrize("gone", [None, float("nan"), np.float32("nan"), pd.NA, pd.NaT])
def test_rows_without_a_label_are_shown_as_missing(axes, gone):
    scores(POINTS, [gone, "a", "b"] * 40, axes=axes)
    assert legend_of(axes) == ["missing", "a", "b"]
    np.testing.assert_array_equal(offsets(axes)[0], POINTS[::3, :2])


@pytest.mark.parametrize(
    "labels",
    [
        pd.Series(["x", "y"] * 60),
        pd.Categorical(["x", "y"] * 60),
        np.array(["x", "y"] * 60),
        [b"x", b"y"] * 60,
        [True, False] * 60,
        [1, "y"] * 60,
        np.array(["2020-01-01", "2021-01-01"] * 60, dtype="datetime64[D]"),
    ],
    ids=lambda labels: type(labels).__name__,
)
def test_labels_of_any_kind_make_two_classes(axes, labels):
    scores(POINTS, labels, axes=axes)
    assert len(legend_of(drawn(axes))) == 2


def test_text_from_the_data_is_rendered_literally(axes):
    names = ["$\\frac$", "_hidden", "a $5 $6", "\\$"]
    scores(POINTS, np.array(names)[np.arange(120) % 4], axes=axes)
    shown = [text.replace("\\$", "$") for text in legend_of(drawn(axes))]
    assert sorted(text.strip() for text in shown) == sorted(["$\\frac$", "_hidden", "a $5 $6", "\\$"])
    assert not any(text._preprocess_math(text.get_text())[1] for text in axes.get_legend().get_texts())


def test_a_single_score_is_drawn_as_one_strip_per_label(axes):
    labels = np.array(["a", "b"])[np.arange(120) % 2]
    scores(POINTS[:, :1], labels, background=POINTS[:, :1] + 1, axes=axes)
    assert [tick.get_text() for tick in drawn(axes).get_yticklabels()] == ["background", "a", "b"]
    expected = [POINTS[:, 0] + 1, POINTS[labels == "a", 0], POINTS[labels == "b", 0]]
    for row, (found, values) in enumerate(zip(offsets(axes), expected, strict=True)):
        np.testing.assert_array_equal(found[:, 0], values)
        assert np.abs(found[:, 1] - row).max() <= 0.3


def test_values_that_are_not_scores_are_refused(refused):
    refused(lambda: scores(POINTS[:, :0]), "no columns", "no components")
    refused(lambda: scores(POINTS[:, 0]), "numeric 2-D array", "shape (120,)")
    refused(lambda: scores([["a", "b"]]), "numeric 2-D array")
    refused(lambda: scores(POINTS, ["a"]), "labels", "shape (1,) for 120 rows")
    refused(lambda: scores(POINTS, background=POINTS[:, :1]), "background", "1 score")
    assert plt.get_fignums() == []


def test_ratios_are_drawn_at_their_components_and_the_line_at_the_noise_edge(fitted, axes):
    assert ratios(fitted, axes=axes) is axes
    np.testing.assert_array_equal(offsets(drawn(axes))[0], np.column_stack([np.arange(1, 6), fitted.ratios_]))
    assert axes.get_yscale() == "log"
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), [fitted.noise_edge_] * 2)
    assert f"noise edge {number(fitted.noise_edge_)}" in legend_of(axes)
    low, high = axes.get_ylim()
    assert low < fitted.ratios_.min() and fitted.ratios_.max() < high


def test_infinite_ratios_are_drawn_at_the_top_and_marked(data, axes):
    background = data.background.copy()
    background[:, 1] = 7
    with pytest.warns(StructuralWarning):
        model = DPCA(3).fit(data.target, background=background)
    assert np.isinf(model.ratios_).tolist() == [True, False, False]
    ratios(model, axes=axes)
    finite, infinite = offsets(drawn(axes))
    np.testing.assert_array_equal(finite[:, 1], model.ratios_[1:])
    assert infinite.tolist() == [[1.0, 0.95]]
    assert [text.get_text() for text in axes.texts] == ["∞"]
    assert axes.get_xlim()[0] < 1 < 3 < axes.get_xlim()[1]


def test_where_the_background_is_shrunk_the_unshrunk_ratios_are_drawn_too(axes):
    rng = np.random.default_rng(3)
    with pytest.warns(ShrinkageWarning), pytest.warns(OverfitWarning):
        model = DPCA(2).fit(rng.normal(size=(50, 6)), background=rng.normal(size=(12, 6)))
    ratios(model, axes=axes)
    shrunk, plain = offsets(drawn(axes))
    np.testing.assert_array_equal(shrunk[:, 1], model.ratios_)
    np.testing.assert_array_equal(plain[:, 1], model._solved().unshrunk_ratios)
    assert f"noise edge {number(model.noise_edge_)} (unshrunk)" in legend_of(axes)


@pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")
def test_a_missing_noise_edge_is_stated_in_the_legend(wide, axes):
    model = DPCA(2).fit(wide.target, background=wide.background)
    assert np.isnan(model.noise_edge_)
    ratios(model, axes=axes)
    assert "no noise edge" in drawn(axes).get_legend().get_title().get_text() and not axes.lines


def test_without_a_background_the_variances_are_drawn(data, axes):
    model = DPCA(3).fit(data.target)
    ratios(model, axes=axes)
    np.testing.assert_array_equal(drawn(axes).lines[0].get_ydata(), model.target_variance_)
    assert axes.get_ylabel() == "variance" and axes.get_yscale() == "linear"


def test_a_model_without_components_is_plotted_as_a_message(axes):
    rng = np.random.default_rng(1)
    with pytest.warns(OverfitWarning):
        model = DPCA("auto").fit(rng.normal(size=(90, 4)), background=rng.normal(size=(200, 4)))
    ratios(model, axes=axes)
    assert [text.get_text() for text in drawn(axes).texts] == ["no component above the noise edge"]


def test_bars_are_the_weights_of_the_top_features(data, axes):
    frames = [pd.DataFrame(rows, columns=[f"protein_{i}" for i in range(5)]) for rows in data]
    model = DPCA(2).fit(frames[0], background=frames[1])
    assert patterns(model, 1, count=4, axes=axes) is axes
    top = model.top_features(4)[1]
    assert [bar.get_width() for bar in axes.patches] == [weight for _, weight in top]
    assert [tick.get_text() for tick in drawn(axes).get_yticklabels()] == [feature for feature, _ in top]
    colors = [to_hex(bar.get_facecolor()) == _style.ABOVE.lower() for bar in axes.patches]
    assert colors == [weight > 0 for _, weight in top] and 0 < sum(colors) < 4
    assert axes.yaxis_inverted() and "background sd" in axes.get_xlabel()


def test_an_image_of_a_pattern_is_centred_at_zero(axes):
    rng = np.random.default_rng(2)
    model = DPCA(1).fit(rng.normal(size=(90, 12)) * np.arange(1, 13), background=rng.normal(size=(200, 12)))
    patterns(model, shape=(3, 4), axes=axes)
    image = drawn(axes).images[0]
    expected = (model.patterns_[0] * model.target_variance_[0] ** 0.5).reshape(3, 4)
    np.testing.assert_allclose(image.get_array(), expected)
    assert image.get_clim() == (-np.abs(expected).max(), np.abs(expected).max())


def test_patterns_that_do_not_exist_are_refused(data, fitted, refused):
    kernel = KernelDPCA(1, kernel="poly").fit(data.target, background=data.background)
    refused(lambda: patterns(kernel), "KernelDPCA has no patterns")
    for component in (5, -1, 0.5, True, None):
        refused(lambda component=component: patterns(fitted, component), f"component={component!r}", "5 components")
    refused(lambda: patterns(fitted, count=0), "count=0")
    for shape in ((2, 3), (5,), "5x1", (-1, -5), (2.5, 2)):
        refused(lambda shape=shape: patterns(fitted, shape=shape), "shape=", "5 features")
    refused(lambda: patterns(data.target), "ndarray", "not a standout estimator")
    refused(lambda: ratios("model"), "str", "not a standout estimator")


@pytest.mark.parametrize("over", ["alpha", "shrinkage"])
def test_the_gallery_shows_the_scores_at_each_representative(over):
    rng = np.random.default_rng(0)
    background = rng.normal(size=(300, 4)) * [9, 3, 1, 1] + 5
    target = rng.normal(size=(200, 4)) * [9, 3, 1, 4] - 2
    found = standout.path(target, background, over=over, n_representatives=3)
    figure = gallery(found, target, np.arange(200) % 2)
    figure.canvas.draw()
    *panels, affinity = figure.axes
    assert len(panels) == len(found.representatives)
    for axes, step in zip(panels, found.representatives, strict=True):
        expected = (target - target.mean(axis=0)) @ found.components[step].T
        np.testing.assert_allclose(np.vstack(offsets(axes)), np.vstack([expected[::2], expected[1::2]]), atol=1e-10)
        assert axes.get_title().startswith(f"{over} = {number(found.values[step])}")
    np.testing.assert_array_equal(affinity.lines[0].get_ydata(), np.diagonal(found.similarity, 1))
    assert [line.get_xdata()[0] for line in affinity.lines[1:]] == found.representatives.tolist()


def test_the_gallery_accepts_a_figure_and_the_path_of_a_search(data):
    model = CPCA(1, n_representatives=2).fit(data.target, background=data.background)
    figure = plt.figure(layout="constrained")
    assert gallery(model.path_, standout.read(data.target), figure=figure) is figure
    figure.canvas.draw()
    assert len(plt.get_fignums()) == 1


def test_rows_that_do_not_fit_the_path_are_refused(data, refused):
    found = standout.path(data.target, data.background)
    refused(lambda: gallery(found, data.target[:, :3]), "3 features", "computed on 5")
    refused(lambda: gallery("path", data.target), "path", "str")
    refused(lambda: gallery(found, np.where(data.target > 35, np.nan, data.target)), "NaN")


def test_classes_differ_in_colour_and_marker_until_both_repeat():
    assert _style.style(0) == ("#0072B2", "o", "circle") and _style.style(8) == ("#0072B2", "D", "diamond")
    assert len({_style.style(index) for index in range(_style.DISTINCT)}) == _style.DISTINCT
    assert _style.grey(1) == ("#5f6368", "D", "diamond")


def test_long_names_are_cut_in_the_middle_and_dollar_signs_are_literal():
    assert _style.shortened("phosphorylated_glycogen_synthase_kinase_3_beta", 21) == "phosphoryl…ase_3_beta"
    assert _style.plain("$5 to $10") == r"\$5 to \$10" and _style.plain("_x") == " _x"


def test_drawing_on_given_axes_changes_no_global_state(fitted):
    figure = mpl.figure.Figure()
    before = (plt.get_fignums(), dict(mpl.rcParams))
    scores(POINTS, axes=figure.add_subplot())
    ratios(fitted, axes=figure.add_subplot())
    patterns(fitted, axes=figure.add_subplot())
    assert (plt.get_fignums(), dict(mpl.rcParams)) == before


@pytest.mark.parametrize("draw", [scores, ratios, patterns])
def test_without_axes_a_new_figure_is_created(fitted, draw):
    axes = draw(POINTS if draw is scores else fitted)
    assert plt.get_fignums() == [axes.figure.number]


def test_without_matplotlib_the_error_names_the_extra(monkeypatch, refused):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    monkeypatch.delattr("matplotlib.pyplot", raising=False)
    refused(lambda: scores(POINTS), "matplotlib", "pip install 'standout[plot]'", kind=MissingExtraError)


def test_importing_the_plots_imports_no_optional_package():
    code = "import sys, standout.plot; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert not {"matplotlib", "plotly", "jinja2"} & set(done.stdout.split())
