"""However rows are split into batches, the moments and the model are those of one pass."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import covariance
from laws import Problem, problems, quickly, rounding, same_directions, same_ratios
from standout._dpca import DPCA
from standout._moments import Moments

pytestmark = pytest.mark.filterwarnings("ignore::standout.errors.OverfitWarning")


def cut(rows, rng, most):
    """Return the rows in consecutive batches of one to ``most`` rows."""
    edges = np.cumsum(rng.integers(1, most + 1, size=len(rows)))
    return np.split(rows, edges[edges < len(rows)])


def same_moments(one, other):
    # Sums of n rows are known to n·ε of their largest term; some hundred rows and means of a few sd.
    size = np.abs(other.scatter).max() + other.weight * np.abs(other.mean).max() ** 2
    return (
        np.allclose(one.mean, other.mean, rtol=0, atol=1e-13 * (1 + np.abs(other.mean).max()))
        and np.allclose(one.scatter, other.scatter, rtol=0, atol=1e-13 * size)
        and one.weight == pytest.approx(other.weight, rel=1e-14)
        and one.weight_squared == pytest.approx(other.weight_squared, rel=1e-14)
        and one.rows == other.rows
        and one.groups == other.groups
    )


@quickly
@given(problems(), st.sampled_from([1, 2, 7, 60]), st.booleans())
def test_any_batches_in_any_order_give_the_model_of_one_pass(problem: Problem, most, paired):
    rng, whole = problem.rng, problem.fit()
    batches = [{"X": part} for part in cut(problem.target, rng, most)]
    batches += [{"background": part} for part in cut(problem.background, rng, most)]
    rng.shuffle(batches)
    if paired:  # one call may bring rows of both
        batches = [{"X": problem.target[:1], "background": problem.background[:1]}, *batches]
    model = DPCA(None, shrinkage=None)
    for batch in batches:
        model.partial_fit(**batch)
    if paired:
        whole = DPCA(None, shrinkage=None).fit(
            np.vstack([problem.target[:1], problem.target]),
            background=np.vstack([problem.background[:1], problem.background]),
        )
    tolerance = rounding(problem.matrices[1])
    assert same_ratios(model.ratios_, whole.ratios_, tolerance)
    assert same_directions(model.components_, whole.components_, problem.matrices[1], whole.ratios_, tolerance)
    assert np.all(np.einsum("ij,ij->i", model.components_, whole.components_) > 0)
    assert model.mean_ == pytest.approx(whole.mean_, abs=1e-13 * (1 + np.abs(whole.mean_).max()))
    assert model.noise_edge_ == whole.noise_edge_
    assert model.p_value_ == pytest.approx(whole.p_value_, rel=1e-6)


@quickly
@given(problems(max_features=4), st.sampled_from([1, 5]))
def test_batches_support_weights_groups_and_several_backgrounds(problem: Problem, most):
    rng, n = problem.rng, len(problem.background)
    weights, groups = rng.uniform(0.5, 2, size=n), rng.integers(0, 20, size=n)
    half = n // 2
    halves = {"a": np.arange(half), "b": np.arange(half, n)}
    model = DPCA(None, shrinkage=None, mix="equal").partial_fit(problem.target, groups=np.arange(len(problem.target)))
    for name, index in halves.items():
        for part in cut(index, rng, most):
            model.partial_fit(
                background={name: problem.background[part]},
                background_sample_weight={name: weights[part]},
                background_groups={name: groups[part]},
            )
    whole = DPCA(None, shrinkage=None, mix="equal").fit(
        problem.target,
        groups=np.arange(len(problem.target)),
        background={name: problem.background[index] for name, index in halves.items()},
        background_sample_weight={name: weights[index] for name, index in halves.items()},
        background_groups={name: groups[index] for name, index in halves.items()},
    )
    mixed = sum(np.cov(problem.background[i].T, aweights=weights[i], ddof=0) for i in halves.values()) / 2
    assert same_ratios(model.ratios_, whole.ratios_, rounding(np.atleast_2d(mixed)))
    assert model.mix_ == pytest.approx([0.5, 0.5])
    # Batches and moments count groups; rows that can be read again count by their effective number.
    parts = {
        name: Moments.of(problem.background[i], weights=weights[i], groups=groups[i]) for name, i in halves.items()
    }
    target = Moments.of(problem.target, groups=np.arange(len(problem.target)))
    summed = DPCA(None, shrinkage=None, mix="equal").fit(target, background=parts)
    assert model.noise_edge_ == pytest.approx(summed.noise_edge_, rel=1e-12, nan_ok=True)


@quickly
@given(problems(), st.integers(0, 2**31))
def test_moments_add_in_any_order_and_grouping(problem: Problem, seed):
    rng = np.random.default_rng(seed)
    rows = problem.target
    weights, groups = rng.uniform(0, 3, size=len(rows)), rng.integers(0, 9, size=len(rows))
    a, b, c = (
        Moments.of(rows[i], weights=weights[i], groups=groups[i]) for i in np.array_split(np.arange(len(rows)), 3)
    )
    whole = Moments.of(rows, weights=weights, groups=groups)
    assert same_moments((a + b) + c, whole)
    assert same_moments(a + (b + c), whole)
    assert same_moments((c + a) + b, whole)
    assert same_moments(a + b, b + a)


@quickly
@given(problems())
def test_single_rows_add_up_to_the_covariance(problem: Problem):
    first, *others = (Moments.of(row[None]) for row in problem.target)
    total = sum(others, start=first)
    assert total.covariance() == pytest.approx(covariance(problem.target), abs=1e-13 * np.square(problem.target).max())
    assert total.mean == pytest.approx(problem.target.mean(axis=0), abs=1e-13 * np.abs(problem.target).max())


@quickly
@given(problems(min_features=2))
def test_signs_do_not_depend_on_the_order_of_summation_when_entries_tie(problem: Problem):
    # Rows mirrored in (first ↔ −second) make the first two entries of a pattern equal and opposite,
    # up to rounding that depends on the order of the rows.
    def mirrored(rows):
        other = rows - rows.mean(axis=0)
        other[:, [0, 1]] = -other[:, [1, 0]]
        return np.vstack([rows - rows.mean(axis=0), other])

    rng, target, background = problem.rng, mirrored(problem.target), mirrored(problem.background)
    whole = DPCA(None, shrinkage=None).fit(target, background=background)
    for _ in range(3):
        again = DPCA(None, shrinkage=None)
        for part in cut(rng.permutation(target), rng, 9):
            again.partial_fit(part)
        again.partial_fit(background=rng.permutation(background))
        assert np.all(np.einsum("ij,ij->i", again.components_, whole.components_) > 0)
