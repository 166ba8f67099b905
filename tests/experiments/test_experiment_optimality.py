"""The optimality experiment at reduced size: its conclusions hold, and its numbers match closed forms."""

import numpy as np
import pytest
from scipy import linalg

from experiments.optimality import optimality
from experiments.optimality_sweeps import METRICS, growth, predicted
from experiments.record import Plan
from standout.datasets.factor import FactorModel


@pytest.fixture(scope="module")
def record():
    return optimality(Plan(reduced=True))


@pytest.fixture(scope="module")
def numbers(record):
    return record.numbers


@pytest.fixture(scope="module")
def errata(numbers):
    return numbers["errata"]


def at(numbers, method, rows=1600, metric="plain"):
    return numbers["recovery"][method][f"n_{rows}"][metric]


@pytest.mark.parametrize("metric", METRICS)
def test_the_error_of_dpca_falls_with_the_root_of_the_rows(numbers, metric):
    assert -0.6 < numbers["recovery"]["dpca"][f"slope_{metric}"] < -0.4


def test_the_predicted_constant_is_that_of_perturbation_theory():
    # Σ (λ₁λⱼ/m + λ₁²/n)/(λ₁ − λⱼ)² with m = n = N, ratios (5, 1, …, 1) of the population: 11 (5 + 25)/16.
    model = FactorModel()
    ratios = linalg.eigh(model.target_covariance, model.background_covariance, eigvals_only=True)[::-1]
    expected = np.sum((ratios[0] * ratios[1:] + ratios[0] ** 2) / (ratios[0] - ratios[1:]) ** 2)
    assert predicted(model, model.top_ratio, "background") ** 2 == pytest.approx(expected, rel=1e-9)
    # In the features an error of one background sd is 1/sd long: 7 directions of noise, 4 shared ones.
    shared = np.square(model.background_sd) + 1
    assert predicted(model, model.top_ratio) ** 2 == pytest.approx(30 / 16 * (7 + np.sum(1 / shared)), rel=1e-9)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("method", ["dpca", "cpca"])
@pytest.mark.parametrize("rows", [400, 1600])
def test_errors_are_those_that_theory_predicts(numbers, method, rows, metric):
    assert numbers["predicted"][method][f"measured_over_{metric}"][f"n_{rows}"] == pytest.approx(1, abs=0.12)


def test_pca_never_finds_the_target_specific_direction(numbers):
    for rows in (200, 1600):
        assert at(numbers, "pca", rows) > 0.95
    assert at(numbers, "dpca") < 0.12


def test_algorithm_1_taken_literally_is_worse_even_where_the_population_answer_is_the_same(numbers):
    assert at(numbers, "literal") > 1.25 * at(numbers, "dpca")
    assert at(numbers, "literal", metric="background") > 3 * at(numbers, "dpca", metric="background")


def test_dpca_is_closer_than_cpca_at_alpha_2_in_background_sd_but_not_in_plain_units(numbers):
    assert at(numbers, "dpca", metric="background") < 0.9 * at(numbers, "cpca", metric="background")
    assert at(numbers, "cpca") < 0.8 * at(numbers, "dpca")


def test_cpca_needs_its_alpha_and_at_the_top_ratio_it_is_dpca(numbers):
    assert numbers["alphas"]["alpha_0_5"]["plain"] > 0.95
    assert numbers["alphas"]["alpha_20"]["plain"] > 2 * at(numbers, "dpca")
    assert numbers["alphas"]["alpha_5"]["plain"] == pytest.approx(at(numbers, "dpca"), rel=0.1)


def test_units_do_not_affect_dpca_but_ruin_cpca(numbers):
    for metric in METRICS:
        assert numbers["units"]["dpca"][metric] == pytest.approx(at(numbers, "dpca", metric=metric), rel=1e-9)
    for method in ("cpca", "cpca_auto"):
        assert numbers["units"][method]["background"] > 3 * numbers["units"]["dpca"]["background"]


def test_growth_gives_the_shared_direction_the_requested_ratio():
    model = FactorModel(shared_growth=growth(FactorModel(), 6.0))
    shared = model.directions[:, 0]
    found = shared @ model.target_covariance @ shared / (shared @ model.background_covariance @ shared)
    assert found == pytest.approx(6, rel=1e-12)


def test_below_the_threshold_the_specific_direction_is_first_and_above_it_second(numbers):
    found = numbers["threshold"]
    assert found["own_ratio"] == 5
    for below in ("ratio_1", "ratio_4_5"):
        assert found[below]["population"] == pytest.approx(1, abs=1e-9)
        assert found[below]["first_own"].low > 0.9
    for above in ("ratio_6", "ratio_8"):
        assert found[above]["population"] == pytest.approx(0, abs=1e-9)
        assert found[above]["first_own"].high < 0.3
        assert found[above]["first_shared"].low > 0.9
        assert found[above]["second_own"].low > 0.9


def test_an_oblique_signal_shows_in_the_pattern_and_the_ratio_is_exact(numbers):
    found = numbers["oblique"]
    for one in found.values():
        assert one["ratio"] == pytest.approx(one["ratio_formula"], rel=1e-12)
        assert one["pattern"] == pytest.approx(1, abs=1e-12)
        assert one["pattern_sample"].low > 0.95
    # C_yy⁻¹u_s for u_s = (e₁ + e₂)/√2 and variances 101 and 1.
    assert found["angle_45"]["filter"] == pytest.approx((1 + 1 / 101) / np.sqrt(2 * (1 + 1 / 101**2)), rel=1e-11)
    assert found["angle_45"]["filter_sample"].high < 0.75
    assert found["angle_20"]["filter_sample"].high < 0.45
    assert found["angle_90"]["filter"] == pytest.approx(1, abs=1e-12)
    assert found["angle_90"]["filter_sample"].mean > found["angle_90"]["pattern_sample"].mean


def test_singular_vectors_miss_the_largest_ratio(errata):
    found = errata["singular_vectors"]
    assert found["ratio"] == pytest.approx((9 + np.sqrt(65)) / 8, rel=1e-12)
    assert found["ratio_second"] == pytest.approx((9 - np.sqrt(65)) / 8, rel=1e-12)
    # (C_yy⁻¹C_xx)ᵀ C_yy⁻¹C_xx has trace 4 + 1 + 1/16 + 1/16 and determinant 1/16.
    trace, determinant = 41 / 8, 1 / 16
    top = (trace + np.sqrt(trace**2 - 4 * determinant)) / 2
    assert found["singular_value"] == pytest.approx(np.sqrt(top), rel=1e-12)
    assert found["ratio_literal"] == pytest.approx(1.6089, abs=5e-5)
    for size in (2, 20, 77):
        assert 0 < found[f"share_{size}_worst"] < found[f"share_{size}"] < 0.3


def test_columns_of_the_eigenvector_matrix_are_not_its_rows_and_neither_are_the_roots(errata):
    assert errata["columns"]["cos"] < 0.4
    assert errata["columns"]["share"] < 0.3
    assert errata["columns"]["stale_root_error"] > 0.5


def test_whitening_by_the_plus_root_finds_the_background(errata):
    found = errata["plus_root"]
    assert found["cos_literal"] < 0.01 and found["shared_literal"] > 0.999
    assert found["cos_right"] > 0.99 and found["shared_right"] < 0.1


def test_whitened_background_vectors_have_unit_variance_and_are_not_removed(errata):
    found, variances = errata["removed"], np.array([37, 26, 17, 10])
    assert found["size_right"] == pytest.approx(np.sqrt(np.mean(1 / variances)), rel=1e-9)
    assert found["size_literal"] == pytest.approx(np.sqrt(np.mean(variances)), rel=1e-9)
    assert found["variance_shared"] == pytest.approx(1, rel=1e-9)
    assert found["variance_own"] == pytest.approx(5, rel=1e-9)


def test_cpca_at_the_top_ratio_shares_the_first_component_only(errata):
    found = errata["equivalent"]
    assert found["cos_first_worst"] > 1 - 1e-9
    assert found["cos_second_worst"] < 0.5 and found["cos_second"] < 0.97
    assert found["miscounted"] == 0 < found["counted"]


def test_ratios_and_differences_rank_axes_differently(errata):
    found = errata["diagonal"]
    assert [found[f"ratio_{i}"] for i in (1, 2, 3)] == pytest.approx([10, 7.5, 3], rel=1e-12)
    assert [found[f"difference_{i}"] for i in (1, 2, 3)] == pytest.approx([0, -0.7, -12.5], abs=1e-9)
    assert found["cos_second"] == pytest.approx(0, abs=1e-9)


def test_an_svd_of_an_indefinite_matrix_finds_its_worst_direction(errata):
    # 37 − 10·37 along the largest shared direction, 5 − 10 along the own one.
    found = errata["indefinite"]
    assert (found["value_svd"], found["value_largest"]) == pytest.approx((-333, -5), rel=1e-9)
    assert (found["cos_svd"], found["cos_largest"]) == pytest.approx((0, 1), abs=1e-9)


def test_stacking_backgrounds_with_different_means_hides_the_target(errata):
    # 2.2² against 1; stacked, 1 + 2.5² along the same axis.
    found = errata["combined"]
    assert found["ratio_own_means"] == pytest.approx(2.2**2, rel=0.15) and found["cos_own_means"] > 0.98
    assert found["ratio_stacked"] < 1.4 and found["cos_stacked"] < 0.3


def test_the_ratio_trace_is_not_the_ratio_of_traces(errata):
    found = errata["several_components"]
    assert (found["ratio_trace_dpca"], found["ratio_trace_trace_ratio"]) == pytest.approx((19, 18), rel=1e-9)
    assert (found["trace_ratio_dpca"], found["trace_ratio_trace_ratio"]) == pytest.approx((9.5, 100.8 / 10.1), rel=1e-9)


def test_dpca_is_the_maximum_of_the_likelihood_and_of_least_squares_in_background_units(errata):
    assert errata["likelihood"]["best_change"] < 0
    assert errata["likelihood"]["gain"] == pytest.approx(errata["likelihood"]["gain_formula"], rel=1e-9)
    found = errata["least_squares"]
    assert found["explained_background_dpca"] == pytest.approx(5 / 16, rel=1e-9)
    assert found["explained_background_pca"] == pytest.approx(1 / 16, rel=1e-9)
    assert found["explained_plain_dpca"] == pytest.approx(5 / 102, rel=1e-9)
    assert found["explained_plain_pca"] == pytest.approx(37 / 102, rel=1e-9)


def test_pca_of_both_datasets_together_finds_what_they_share(errata):
    assert (errata["plain_pca"]["cos_target"], errata["plain_pca"]["cos_both"]) == pytest.approx((0, 0), abs=1e-9)


def test_the_one_svd_is_that_of_the_whitened_rows(errata):
    assert errata["one_svd"]["difference"] < 1e-11
    assert errata["one_svd"]["cos"] == pytest.approx(1, abs=1e-11)


def test_lanczos_gives_the_ratios_of_a_full_decomposition(errata):
    assert errata["lanczos"]["difference"] < 1e-10
    assert errata["lanczos"]["cos"] == pytest.approx(1, abs=1e-9)


def test_any_full_basis_has_zero_residual(errata):
    found = errata["full_basis"]
    assert found["left_arbitrary_12"] < 1e-20 and found["left_principal_12"] < 1e-20
    assert found["left_arbitrary_4"] > 3 * found["left_principal_4"]


def test_the_alphas_of_the_paper_are_ninths_of_a_decade_and_not_on_its_grid(errata):
    found = errata["grid"]
    for place, alpha in ((1, 3.5938), (2, 27.8256)):
        assert found[f"power_{place}"] == pytest.approx(alpha, rel=1e-5)
        assert abs(np.log(found[f"nearest_{place}"] / alpha)) > 0.25


def test_the_same_seed_gives_the_same_numbers_and_other_seeds_others(numbers):
    first, again = (optimality(Plan(seeds=(3,), reduced=True)).numbers for _ in range(2))
    assert first == again
    assert first["recovery"] != numbers["recovery"]
    assert first["errata"] == numbers["errata"]


def test_every_optimality_figure_can_be_drawn(record):
    import matplotlib.pyplot as plt

    for picture in record.pictures:
        figure = picture.draw()
        assert all(axes.get_xlabel() for axes in figure.axes), picture.name
        plt.close(figure)


def test_findings_contain_the_measured_numbers(record, numbers):
    text = " ".join(record.findings)
    assert f"{at(numbers, 'dpca'):.3f} with 1600" in text
    assert "cPCA is closer" in text and "dPCA is closer" in text
    assert "too few to show it" not in text
