"""The solver that is chosen: by shape, by conditioning and by memory."""

import numpy as np
import pytest

from helpers import TOP, agree, ill_conditioned, sample_pair
from standout._dpca import DPCA
from standout._moments import Moments
from standout.errors import ConditionWarning

pytestmark = pytest.mark.filterwarnings("ignore::standout.errors.OverfitWarning")


@pytest.mark.parametrize(("k", "solver"), [(2, "dense"), (5, "dense"), (6, "gsvd"), (9, "gsvd"), (12, "gsvd")])
def test_auto_chooses_gsvd_when_covariances_are_ill_conditioned(k, solver):
    # The sample makes the condition of the covariances about ten times worse: 1e11 at k = 5, 1e13 at k = 6.
    target, background, exact = ill_conditioned(k)
    model = DPCA(TOP, shrinkage=None).fit(target, background=background)
    assert model.solver_ == solver
    assert model.ratios_ == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("k", [6, 9, 12])
def test_ill_conditioned_moments_give_a_warning(k):
    target, background, _ = ill_conditioned(k)
    with pytest.warns(ConditionWarning, match="condition number"):
        model = DPCA(TOP, shrinkage=None).fit(Moments.of(target), background=Moments.of(background))
    assert model.solver_ == "dense"


def test_lanczos_is_chosen_for_a_few_of_many_features_and_agrees_with_dense():
    target, background = sample_pair(np.random.default_rng(22), 900, 1500, 620)
    models = [DPCA(3, solver=solver, shrinkage=0.1).fit(target, background=background) for solver in ("auto", "dense")]
    assert [model.solver_ for model in models] == ["lanczos", "dense"]
    agree(models, 1e-10)
