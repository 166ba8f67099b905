"""Plots of inference results: bins are permuted ratios, lines are intervals."""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex

from standout import inference
from standout._display import number
from standout.plot import _style
from standout.plot._components import null, stability

RNG = np.random.default_rng(0)
BACKGROUND = RNG.normal(size=(90, 6))
TARGET = RNG.normal(size=(70, 6)) * [1, 1, 6, 1, 1, 1]


@pytest.fixture(autouse=True)
def figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def tested():
    return inference.permutation_test(TARGET, BACKGROUND, n_permutations=49, n_components=2)


@pytest.fixture(scope="module")
def found():
    return inference.stability(TARGET, BACKGROUND, n_components=2, n_bootstrap=40)


@pytest.mark.parametrize("component", [0, 1])
def test_bins_count_the_permuted_ratios_and_the_line_is_the_observed_ratio(tested, component):
    axes = plt.subplots()[1]
    assert null(tested, component, axes=axes) is axes
    axes.figure.canvas.draw()
    counts, edges, _ = axes.patches[0].get_data()
    np.testing.assert_array_equal(counts, np.histogram(tested.null[component], edges)[0])
    assert counts.sum() == 49
    assert axes.lines[0].get_xdata()[0] == tested.ratios[component]
    assert axes.get_title() == f"dpca{component}: p = {number(tested.p_values[component])}"
    assert [text.get_text() for text in axes.get_legend().get_texts()][
        1
    ] == f"observed {number(tested.ratios[component])}"


def test_the_axis_is_logarithmic_only_if_ratios_span_a_factor_of_ten(tested):
    assert (
        tested.ratios[0] / tested.null[0].min()
        > 10
        > max(tested.ratios[1], tested.null[1].max()) / tested.null[1].min()
    )
    assert [null(tested, component).get_xscale() for component in (0, 1)] == ["log", "linear"]


def test_infinite_and_equal_ratios_can_be_drawn(tested):
    for ratio, values in ((np.inf, [1.0, 2.0, np.inf]), (3.0, [np.inf] * 3), (0.0, [0.0] * 3), (2.0, [2.0] * 3)):
        axes = null(replace(tested, ratios=np.array([ratio]), null=np.array([values]), p_values=np.array([0.5])))
        axes.figure.canvas.draw()
        assert axes.patches[0].get_data().values.sum() == 3
        assert np.isfinite(axes.lines[0].get_xdata()).all()


def test_bars_are_weights_lines_are_intervals_and_unstable_signs_are_hatched(found):
    axes = stability(found, 1, count=4)
    axes.figure.canvas.draw()
    order = np.argsort(-np.abs(found.weights[1]))[:4]
    assert [bar.get_width() for bar in axes.patches] == found.weights[1, order].tolist()
    lines = np.array(axes.collections[0].get_segments())[:, :, 0]
    np.testing.assert_array_equal(lines, np.stack([found.weight_low[1], found.weight_high[1]], axis=1)[order])
    unstable = found.same_sign[1, order] < 0.95
    assert unstable.any()
    assert [bar.get_hatch() is not None for bar in axes.patches] == unstable.tolist()
    assert [label.get_text() for label in axes.get_yticklabels()] == [str(feature) for feature in order]
    correlation = f"{found.median[1]:.2f} ({found.low[1]:.2f} to {found.high[1]:.2f})"
    assert axes.get_title() == f"dpca1: correlation {correlation}"


def test_a_bar_with_a_stable_sign_has_the_full_colour(found):
    bar = stability(found, count=1).patches[0]
    assert found.same_sign[0, 2] == 1 and bar.get_hatch() is None
    assert to_hex(bar.get_facecolor()) == (_style.ABOVE if bar.get_width() > 0 else _style.BELOW).lower()


def test_other_results_and_components_out_of_range_are_refused(tested, found, refused):
    refused(lambda: null(tested, 2), "component=2")
    refused(lambda: stability(found, True), "component=True")
    refused(lambda: null(found), "Stability", "permutation_test")
    refused(lambda: stability(tested), "PermutationTest")
