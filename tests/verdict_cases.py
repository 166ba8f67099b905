"""The specification of the verdict: evidence, and the conclusion that it supports.

``tests/test_verdict.py`` checks every case, and ``scripts/write_docs.py`` writes them into
docs/explanation/is-it-real.md.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from standout._cpca import CPCA
from standout._dpca import DPCA
from standout._kernel_dpca import KernelDPCA
from standout.errors import ReplicateWarning, SerialWarning, TableWarning
from standout.inference.assess import Assessment
from standout.inference.held_out import HeldOut
from standout.inference.permutation import PermutationTest
from standout.inference.stability import Stability
from standout.solvers.solution import Note

REPLICATES = Note(ReplicateWarning, "the 45 rows look like replicates of 9 units. Give the units as `groups=`.")
SERIAL = Note(SerialWarning, "target: consecutive rows are correlated. Give blocks of rows as `groups=`.")
TABLE = Note(TableWarning, "target: the column 'batch' is monotone in row order. Leave it out with `drop=['batch']`.")


class Case(NamedTuple):
    """Evidence in words and as objects, and the kind and the start of the headline that it must give."""

    evidence: str
    model: Any
    assessment: Any
    kind: str
    start: str
    n_established: int | None = None


@cache
def fitted(estimator: str, background: bool = True) -> Any:
    """Return a model with three components, of which the formula supports two."""
    rng = np.random.default_rng(0)
    rows, others = rng.normal(size=(200, 5)) * [1, 1, 4, 2, 1], rng.normal(size=(300, 5))
    kinds = {"dpca": DPCA(3, shrinkage=None), "cpca": CPCA(3, alpha=2.0), "kernel": KernelDPCA(3)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kinds[estimator].fit(rows, background=others if background else None)._solved()


def dpca(p: float = 1e-6, infinite: bool = False, notes: tuple[Note, ...] = ()) -> Any:
    """Return a model of dPCA with this p-value of the formula; NaN is without a noise edge."""
    model = replace(fitted("dpca"), known_p_value=p, notes=notes)
    if infinite:
        ratios = np.array([np.inf, 4.0, 1.2])
        return replace(model, ratios=ratios, unshrunk_ratios=ratios, regime="structural")
    if math.isnan(p):
        undefined = np.full(3, np.nan)
        return replace(model, noise_edge=p, unshrunk_ratios=undefined, debiased_ratios=undefined, background_units=4.0)
    if p >= 0.05:
        return replace(model, ratios=np.array([1.3, 1.1, 1.0]), unshrunk_ratios=np.array([1.3, 1.1, 1.0]))
    return model


def permutation(
    *p_values: float, permutations: int = 999, complete: bool = False, permuted: str = "rows"
) -> PermutationTest:
    """Return a permutation test with these p-values."""
    return PermutationTest(
        ratios=np.array([16.0, 4.0, 1.3])[: len(p_values)], p_values=np.array(p_values),
        null=np.ones((len(p_values), permutations)), permuted=permuted, units=(200, 300), rank=5,
        n_possible=permutations + 1 if complete else 1e60, complete=complete, shrinkage=0.0, notes=(),
    )  # fmt: skip


def held_out(*low: float) -> HeldOut:
    """Return held-out ratios with these lower ends of their intervals."""
    ends = np.array(low)
    return HeldOut(
        ratios=2 * ends, fold_ratios=2 * ends[None], training_ratios=2 * ends[None], low=ends, high=4 * ends,
        level=0.95, interval="", units=(200, 300), by="rows", estimators=(), notes=(),
    )  # fmt: skip


def stability(*low: float) -> Stability:
    """Return bootstrap correlations with these lower ends of their intervals."""
    ends, none = np.array(low), np.empty((len(low), 0))
    return Stability(
        correlations=none, median=ends, low=ends, high=np.ones(len(low)), angles=ends, weights=none, weight_low=none,
        weight_high=none, same_sign=none, level=0.95, names=None, by="rows", notes=(),
    )  # fmt: skip


SIGNIFICANT, NOISE = permutation(0.001, 0.001, 0.4), permutation(0.4, 0.6, 0.6)
ABOVE, INCLUDES_ONE = held_out(9.0, 2.0, 0.7), held_out(0.8, 0.6, 0.5)
BOTH = Assessment(SIGNIFICANT, ABOVE)
FORMULA = "May stand out: significant by the formula"
INFINITE = "May stand out: infinite ratios"
REPLICATED = "Cannot be judged: rows look like replicates"
CASES = [
    Case("no background", fitted("dpca", False), None, "no_background", "PCA of the target, no background"),
    Case("formula p < .05", dpca(), None, "may_stand_out", f"{FORMULA} (p = 1e-06), not yet tested", 2),
    Case("formula p ≥ .05", dpca(0.3), None, "noise", "Cannot be told from noise", 0),
    Case("no noise edge", dpca(math.nan), None, "not_judged", "Cannot be judged: too few independent background rows"),
    Case("infinite ratio", dpca(0.0, infinite=True), None, "may_stand_out", INFINITE, 2),
    Case("formula p < .05; held-out interval above one", dpca(), Assessment(held_out=ABOVE), "may_stand_out",
         f"{FORMULA} (p = 1e-06) and above one on held-out rows", 2),
    Case("formula p < .05; held-out interval includes one", dpca(), Assessment(held_out=INCLUDES_ONE), "may_stand_out",
         f"{FORMULA}, but not confirmed on held-out rows", 0),
    Case("no noise edge; held-out interval above one", dpca(math.nan), Assessment(held_out=ABOVE), "may_stand_out",
         "May stand out: above one on held-out rows, but without a permutation test"),
    Case("test p ≤ .05; held-out interval above one", dpca(), BOTH, "stands_out", "Stands out: dpca0 and dpca1", 2),
    Case("the same, only the first held-out interval above one", dpca(), Assessment(SIGNIFICANT, held_out(9, 0.9, 0.7)),
         "stands_out", "Stands out: dpca0", 1),
    Case("the same, and formula p ≥ .05", dpca(0.3), BOTH, "stands_out", "Stands out: dpca0 and dpca1", 2),
    Case("the same, and no noise edge", dpca(math.nan), BOTH, "stands_out", "Stands out: dpca0 and dpca1", 2),
    Case("the same, and an unstable direction", dpca(), Assessment(SIGNIFICANT, ABOVE, stability(0.3, 0.95, 0.2)),
         "stands_out", "Stands out: dpca0 and dpca1", 2),
    Case("test p ≤ .05; held-out interval includes one", dpca(), Assessment(SIGNIFICANT, INCLUDES_ONE),
         "may_stand_out", "May stand out: significant, but not confirmed on held-out rows", 0),
    Case("test p ≤ .05; held-out ratio not computed", dpca(), Assessment(SIGNIFICANT), "may_stand_out",
         "May stand out: significant, but the held-out ratio was not computed", 2),
    Case("test p > .05", dpca(0.3), Assessment(NOISE), "noise", "Cannot be told from noise", 0),
    Case("test p > .05; formula p < .05; held-out interval above one", dpca(), Assessment(NOISE, ABOVE), "noise",
         "Cannot be told from noise", 0),
    Case("test with 9 permutations", dpca(), Assessment(permutation(0.1, permutations=9), ABOVE), "not_judged",
         "Cannot be judged: too few permutations"),
    Case("test of all 10 labellings of groups", dpca(),
         Assessment(permutation(0.1, permutations=9, complete=True, permuted="groups"), ABOVE), "not_judged",
         "Cannot be judged: too few groups"),
    Case("infinite ratio; test p ≤ .05; held-out interval above one", dpca(0.0, infinite=True), BOTH, "may_stand_out",
         INFINITE, 2),
    Case("infinite ratio; test p > .05", dpca(0.0, infinite=True), Assessment(NOISE), "noise",
         "Cannot be told from noise", 0),
    Case("replicates; formula p < .05", dpca(notes=(REPLICATES,)), None, "not_judged", REPLICATED),
    Case("replicates; formula p ≥ .05", dpca(0.3, notes=(REPLICATES,)), None, "noise",
         "Cannot be told from noise", 0),
    Case("replicates; no noise edge", dpca(math.nan, notes=(REPLICATES,)), None, "not_judged", REPLICATED),
    Case("replicates; test p ≤ .05; held-out interval above one", dpca(notes=(REPLICATES,)), BOTH, "not_judged",
         REPLICATED),
    Case("replicates; test p > .05", dpca(notes=(REPLICATES,)), Assessment(NOISE), "noise",
         "Cannot be told from noise", 0),
    Case("serial correlation; test p ≤ .05; held-out interval above one", dpca(notes=(SERIAL,)), BOTH, "not_judged",
         "Cannot be judged: consecutive rows are correlated"),
    Case("suspicious table; formula p < .05", dpca(notes=(TABLE,)), None, "may_stand_out",
         "May stand out: the tables need a check first", 2),
    Case("suspicious table; test p ≤ .05; held-out interval above one", dpca(notes=(TABLE,)), BOTH, "may_stand_out",
         "May stand out: the tables need a check first", 2),
    Case("suspicious table and replicates; formula p < .05", dpca(notes=(TABLE, REPLICATES)), None, "not_judged",
         REPLICATED),
    Case("test p = .04 by 999 permutations; held-out interval above one", dpca(),
         Assessment(permutation(0.04, 0.04, 0.4), ABOVE), "may_stand_out", "May stand out: the p-value is too", 2),
    Case("test p ≤ .05, but not without rare features", dpca(),
         Assessment(replace(SIGNIFICANT, rare=("locus",), without_rare=NOISE), ABOVE), "may_stand_out",
         "May stand out: significant only with 'locus'", 2),
    Case("test p > .05, but ≤ .05 without rare features", dpca(),
         Assessment(replace(NOISE, rare=("locus",), without_rare=SIGNIFICANT), ABOVE), "may_stand_out",
         "May stand out: significant only without 'locus'", 0),
    Case("cPCA; formula p < .05", fitted("cpca"), None, "may_stand_out", "May stand out: the formula refers to"),
    Case("cPCA; test of dPCA p ≤ .05; held-out interval above one", fitted("cpca"), BOTH, "may_stand_out",
         "May stand out: the permutation test is of the components of dPCA"),
    Case("kernel without a noise edge", fitted("kernel"), None, "not_judged",
         "Cannot be judged: no formula and no test applies to this kernel"),
    Case("the same; test of linear dPCA p ≤ .05", fitted("kernel"), Assessment(SIGNIFICANT), "not_judged",
         "Cannot be judged: no formula and no test applies to this kernel"),
    Case("the same; held-out interval above one", fitted("kernel"), Assessment(held_out=ABOVE), "may_stand_out",
         "May stand out: above one on held-out rows"),
]  # fmt: skip
