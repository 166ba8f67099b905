"""The measures of the experiments against their definitions."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score

from experiments.judge import accuracy, accuracy_on, ari, right_on, silhouette
from experiments.literal import literal_components
from helpers import covariance, ratio, sample_pair
from standout._dpca import DPCA
from standout._moments import Moments


@pytest.fixture
def clouds():
    rng = np.random.default_rng(0)
    labels = np.repeat([6, 9], 60)
    return rng.normal(size=(120, 2)) + 2 * (labels == 9)[:, None], labels


def test_ari_is_that_of_the_two_clusters_with_the_least_squares(clouds):
    scores, labels = clouds
    # Two k-means clusters are always separated by a line: search for the best of very many.
    best = (np.inf, None)
    for angle in np.linspace(0, np.pi, 90, endpoint=False):
        order = np.argsort(scores @ [np.cos(angle), np.sin(angle)])
        for cut in range(1, len(order)):
            parts = order[:cut], order[cut:]
            spread = sum(((scores[part] - scores[part].mean(axis=0)) ** 2).sum() for part in parts)
            if spread < best[0]:
                best = spread, np.isin(np.arange(len(order)), parts[0])
    assert ari(scores, labels, seed=3) == pytest.approx(adjusted_rand_score(labels, best[1]), abs=0.05)


def test_silhouette_equals_its_definition_over_all_pairs(clouds):
    scores, labels = clouds
    apart = np.sqrt(((scores[:, None] - scores[None]) ** 2).sum(axis=2))
    own = labels[:, None] == labels[None]
    # Mean distance to the other rows of the same label, and to the rows of the other label.
    inside = (apart * own).sum(axis=1) / (own.sum(axis=1) - 1)
    outside = (apart * ~own).sum(axis=1) / (~own).sum(axis=1)
    expected = np.mean((outside - inside) / np.maximum(inside, outside))
    assert silhouette(scores, labels) == pytest.approx(expected, rel=1e-9)


def test_accuracy_does_not_depend_on_the_units_of_the_scores(clouds):
    scores, labels = clouds
    assert accuracy(scores, labels) == pytest.approx(accuracy(scores * [1e-4, 1e3], labels), abs=1e-12)
    assert 0.7 < accuracy(scores, labels) < 1


def test_with_groups_no_row_of_a_group_is_in_both_training_and_test_folds():
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(20), 10)
    labels = np.repeat(rng.permutation(np.repeat([0, 1], 10)), 10)  # rows have the label of their group
    scores = np.eye(20)[groups] + 0.01 * rng.normal(size=(200, 20))  # each group has its own location
    assert accuracy(scores, labels) == 1  # rows of the same group reveal the label
    assert accuracy(scores, labels, groups) < 0.8


def test_accuracy_on_new_rows_uses_the_classifier_of_the_old_rows(clouds):
    scores, labels = clouds
    line = LogisticRegression().fit((scores - scores.mean(axis=0)) / scores.std(axis=0), labels)
    new = np.random.default_rng(5).normal(size=(50, 2))
    predicted = line.predict((new - scores.mean(axis=0)) / scores.std(axis=0))
    assert accuracy_on(scores, labels, new, predicted) == 1
    assert accuracy_on(scores, labels, new, np.where(predicted == 6, 9, 6)) == 0
    some = np.where(np.arange(50) < 20, predicted, np.where(predicted == 6, 9, 6))
    np.testing.assert_array_equal(right_on(scores, labels, new, some), np.arange(50) < 20)
    assert accuracy_on(scores, labels, new, some) == 0.4


def test_without_components_accuracy_is_that_of_the_most_frequent_label():
    labels = np.array([6] * 30 + [9] * 10)
    nothing = np.empty((40, 0))
    assert ari(nothing, labels) == 0 and silhouette(nothing, labels) == 0
    assert accuracy(nothing, labels) == 0.75
    assert accuracy_on(nothing, labels, np.empty((4, 0)), [6, 9, 9, 9]) == 0.25


def test_the_literal_algorithm_follows_its_definition_and_is_not_optimal():
    target, background = sample_pair(np.random.default_rng(3), 200, 300, 6)
    C_xx, C_yy = covariance(target), covariance(background)
    found = literal_components(target, background, 2)
    # Right singular vectors of C_yy⁻¹ C_xx are the eigenvectors of C_xx C_yy⁻² C_xx.
    _, vectors = np.linalg.eigh(C_xx @ np.linalg.inv(C_yy @ C_yy) @ C_xx)
    np.testing.assert_allclose(np.abs(found @ vectors[:, [-1, -2]]), np.eye(2), atol=1e-6)
    best = DPCA(1, shrinkage=None).fit(target, background=background).ratios_[0]
    assert ratio(found[0], C_xx, C_yy) < 0.9 * best


def test_the_literal_algorithm_accepts_moments():
    target, background = sample_pair(np.random.default_rng(4), 100, 100, 4)
    by_moments = literal_components(Moments.of(target), Moments.of(background))
    np.testing.assert_array_equal(by_moments, literal_components(target, background))


def test_the_literal_algorithm_rejects_an_exactly_singular_background(refused):
    rng = np.random.default_rng(0)
    background = rng.normal(size=(50, 3)) * [1, 0, 1]
    refused(lambda: literal_components(rng.normal(size=(50, 3)), background), "background", "singular")
