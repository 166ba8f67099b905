"""The background estimate on populations it was not designed on: a few runs here, the whole table with ``-m slow``."""

from functools import partial

import numpy as np
import pytest
from simulations import background
from simulations.table import repeat

SOME = (
    "1 factor, strength 100",
    "3 factors, unequal unique variances",
    "correlated genes in modules",
    "raw counts with library depth",
    "no factor, neighbours correlated",
    "1 dominant factor, log-normal loadings × 10",
    "5 dominant factors, normal loadings × 1.2",
)


@pytest.mark.parametrize("per_feature", [0.15, 1, 10])
def test_keeping_shared_factors_reaches_more_of_the_best_ratio_than_oas(per_feature):
    changes = []
    for index, what in enumerate(SOME):
        work = partial(background.one_run, what, per_feature)
        oas, auto, _ = repeat(work, 12, 7000 + index).T
        changes.append(np.mean(auto - oas))
    assert np.mean(changes) > 0.02
    assert min(changes) > -0.02, dict(zip(SOME, changes, strict=True))


@pytest.mark.slow
def test_auto_beats_oas_for_every_number_of_rows_and_loses_nowhere():
    assert all(row.holds for row in background.estimates(20))
