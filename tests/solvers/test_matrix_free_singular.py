"""Matrix-free solver with a singular or ill-conditioned background: the right result, a warning or an error."""

import warnings

import numpy as np
import pytest
from scipy import sparse

from helpers import mixing, quiet
from standout._dpca import DPCA
from standout.errors import ConditionWarning, StandoutWarning
from standout.solvers import davidson
from standout.solvers.davidson import SingularError

pytestmark = quiet


def normal(seed, rows=700, features=60):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, features)), rng.normal(size=(rows, features))


def twice(rows):
    rows[:, 0] = rows[:, 1]


def a_sum(rows):
    rows[:, 3] = rows[:, 4] - 2 * rows[:, 5]


def all_in_one(rows):
    rows[:, 7] = rows[:, 8:].sum(axis=1)


def twice_and_constant(rows):
    rows[:, 0] = rows[:, 1]
    rows[:, 2] = 1.0


@pytest.mark.parametrize("relation", [twice, a_sum, all_in_one, twice_and_constant])
@pytest.mark.parametrize("count", [1, 3])
def test_an_exact_background_relation_gives_an_infinite_ratio_or_an_error(relation, count):
    for seed in range(6):
        target, background = normal(seed)
        relation(background)
        dense = DPCA(count, solver="dense", shrinkage=None).fit(target, background=background)
        assert np.isinf(dense.ratios_[0])
        try:
            model = DPCA(count, solver="matrix_free", shrinkage=None).fit(target, background=background)
        except SingularError:
            continue
        assert model.ratios_ == pytest.approx(dense.ratios_, rel=1e-6), seed


def test_the_error_about_a_singular_background_gives_a_remedy(refused):
    target, background = normal(1, 2000, 100)
    twice(background)
    for rows in (background, sparse.csr_array(background)):
        refused(lambda given=rows: DPCA(3, solver="matrix_free", shrinkage=None).fit(target, background=given),
                "background covariance is singular", "shrinkage='oas'")  # fmt: skip


@pytest.mark.parametrize("exponent", [6, 7, 8, 10])
def test_ill_conditioned_rows_are_solved_or_the_condition_is_named(exponent):
    rng = np.random.default_rng(5)
    turn, _ = np.linalg.qr(rng.normal(size=(30, 30)))
    sd = np.logspace(0, -exponent, 30)
    background = rng.normal(size=(1800, 30)) * sd @ turn.T
    sd[-1] *= 4
    sd[10] *= 2
    target = rng.normal(size=(900, 30)) * sd @ turn.T
    text = str(SingularError())
    assert "ill-conditioned" in text and "solver='gsvd'" in text
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = DPCA(3, solver="matrix_free").fit(target, background=background)
    except SingularError:
        return
    exact = DPCA(3, solver="gsvd").fit(target, background=background).ratios_
    warned = any(issubclass(warning.category, ConditionWarning) for warning in caught)
    assert warned or model.ratios_ == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("noise", [1e-1, 1e-3, 1e-5, 1e-7, 1e-9])
def test_a_near_relation_gives_the_ratio_of_the_definition_or_an_error(noise):
    solved = 0
    for seed in range(4):
        target, background = normal(seed)
        background[:, 0] = background[:, 1] + noise * background[:, 0]
        try:
            model = DPCA(2, solver="matrix_free", shrinkage=None).fit(target, background=background)
        except SingularError:
            continue
        scores = [rows @ model.components_.T for rows in (target, background)]
        dense = DPCA(2, solver="gsvd", shrinkage=None).fit(target, background=background)
        assert model.ratios_ == pytest.approx(dense.ratios_, rel=1e-2), seed
        assert scores[0].var(axis=0) / scores[1].var(axis=0) == pytest.approx(dense.ratios_, rel=1e-2), seed
        solved += 1
    assert solved == 4 if noise > 1e-4 else solved == 0 if noise < 1e-7 else True


def test_moderate_residuals_give_a_warning_and_large_ones_an_error(monkeypatch):
    target, background = normal(0)
    residuals = davidson._residuals
    for size, outcome in ((1e-7, None), (1e-3, ConditionWarning), (2e-2, SingularError)):
        monkeypatch.setattr(davidson, "_residuals", lambda *given, s=size: np.full_like(residuals(*given), s))
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", StandoutWarning)
            try:
                DPCA(2, solver="matrix_free", shrinkage=None).fit(target, background=background)
            except SingularError:
                assert outcome is SingularError
                continue
        assert [w.category for w in warned if w.category is ConditionWarning] == [outcome] * (outcome is not None)


def spectrum_that_falls_off(rng, size, condition):
    return mixing(rng, size, condition)


def nearly_repeated_feature(rng, size, condition):
    mix = mixing(rng, size, 10)
    mix[:, -1] = mix[:, 0] + mix[:, -1] / condition
    return mix


def several_near_relations(rng, size, condition):
    mix = mixing(rng, size, 10)
    mix[:, -3:] = mix[:, :3] @ rng.normal(size=(3, 3)) + mix[:, -3:] / condition
    return mix


@pytest.mark.parametrize("make", [spectrum_that_falls_off, nearly_repeated_feature, several_near_relations])
@pytest.mark.parametrize("size", [6, 20, 60, 150])
def test_ratios_of_ill_conditioned_rows_agree_with_gsvd_or_give_a_warning(make, size):
    for exponent in range(2, 13, 1 if size < 100 else 3):  # large sizes repeat the proof
        rng = np.random.default_rng([size, exponent])
        mix = make(rng, size, 10.0**exponent)
        sd = np.geomspace(1, 4, size)
        target, background = (rng.normal(size=(rows, size)) for rows in (5 * size + 100, 12 * size))
        target, background = (target * sd) @ mix, background @ mix
        expected = DPCA(3, solver="gsvd", shrinkage=None).fit(target, background=background).ratios_
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", StandoutWarning)
            try:
                model = DPCA(3, solver="matrix_free", shrinkage=None).fit(target, background=background)
            except SingularError:
                assert exponent > 4
                continue
        warned = any(issubclass(w.category, ConditionWarning) for w in warned)
        if warned:
            assert exponent > 4
        else:
            assert model.ratios_ == pytest.approx(expected, rel=1e-5), exponent


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("extra", [20, 600])
def test_well_conditioned_rows_give_no_warning(make, extra):
    for seed, features in enumerate((60, 60, 60, 1, 2, 3, 4)):
        target, background = normal(seed, 60 + extra, features)
        background[:, 1:3] = background[:, 1:3] + 4  # the mean does not matter
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConditionWarning)
            DPCA(1, solver="matrix_free", shrinkage=None).fit(make(target), background=make(background))
