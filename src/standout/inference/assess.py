"""All assessments of components in one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sklearn.base import clone

from standout._base import BaseContrast
from standout._display import Summary, stacked
from standout._dpca import DPCA
from standout._inputs import FitArguments, check_count, parse_inputs
from standout._replicates import ReplicateFinding, replicate_findings
from standout._verdict import Verdict, verdict
from standout.errors import NotEnoughRowsError, StandoutWarning, warn_user
from standout.inference.held_out import HeldOut, held_out_ratio
from standout.inference.permutation import PermutationTest, permutation_test
from standout.inference.resampling import check_pairs, collect_sides
from standout.inference.stability import Stability, stability


@dataclass(frozen=True)
class Assessment:
    """Significance, held-out ratios and stability of components; None for what was not computed.

    Attributes
    ----------
    test : PermutationTest or None
        Whether the ratios could arise if labels were random.
    held_out : HeldOut or None
        The ratios on rows that the components were not fitted on.
    stability : Stability or None
        How much the components vary between bootstrap samples.
    replicates : tuple of ReplicateFinding
        Datasets without groups whose rows look like replicates of fewer units.
    estimator : DPCA, CPCA or KernelDPCA, or None
        The estimator, fitted to all rows.

    See Also
    --------
    standout.assess, standout.report

    Examples
    --------
    >>> from standout import assess, datasets
    >>> target, background = datasets.FactorModel().sample(100, 200)
    >>> found = assess(target, background, n_components=1, n_permutations=99, n_bootstrap=20)
    >>> found.test.p_values, found.held_out.ratios.round(1), found.stability.median.round(1)
    (array([0.01]), array([4.7]), array([1.]))
    """

    test: PermutationTest | None = None
    held_out: HeldOut | None = None
    stability: Stability | None = None
    replicates: tuple[ReplicateFinding, ...] = ()
    estimator: BaseContrast | None = None

    def verdict(self) -> Verdict | None:
        """Return what can be concluded from all results together, with reasons; None without an estimator."""
        return None if self.estimator is None else verdict(self.estimator._solved(), self)

    def summary(self) -> Summary:
        """Return the results as text, one after the other, and the verdict at the end."""
        parts = [found.summary() for found in (self.test, self.held_out, self.stability) if found is not None]
        judged = self.verdict()
        return stacked(parts if judged is None else [*parts, judged.summary()])

    def _repr_html_(self) -> str | None:
        return self.summary().html


def assess(
    target: Any,
    background: Any,
    *,
    estimator: BaseContrast | None = None,
    n_components: int | None = None,
    n_permutations: int = 999,
    n_bootstrap: int = 200,
    folds: int = 5,
    groups: Any = None,
    background_groups: Any = None,
    pairs: Any = None,
    background_pairs: Any = None,
    random_state: int | None = None,
    n_jobs: int | None = None,
) -> Assessment:
    """Test significance, held-out ratio and stability of components, and look for replicates.

    Parameters
    ----------
    target, background, pairs, background_pairs, random_state, n_jobs
        As in :func:`standout.permutation_test`.
    estimator : DPCA, optional
        Estimator whose parameters (shrinkage, mix, features, axes, ...) are used; ``DPCA(n_components)`` by default.
        The permutation test applies to DPCA with ``centering="own"`` and is skipped, with a warning, otherwise.
    n_components : int, optional
        Number of components; by default that of the estimator, or 2.
    n_permutations, n_bootstrap, folds : int
        Number of permutations, bootstrap samples and folds; 0 skips the analysis.
    groups, background_groups : array-like of shape (n_rows,), optional
        The subject of each row; by default the groups of the source.

    Returns
    -------
    Assessment

    See Also
    --------
    standout.permutation_test, standout.held_out_ratio, standout.stability, standout.find_replicates

    Examples
    --------
    >>> from standout import assess, datasets
    >>> target, background = datasets.FactorModel().sample(100, 200)
    >>> found = assess(target, background, n_components=1, n_permutations=99, n_bootstrap=20)
    >>> found.verdict().headline
    'Stands out: dpca0'
    """
    check_pairs(pairs, background_pairs, groups is not None or background_groups is not None)
    estimator = DPCA(n_components or 2) if estimator is None else estimator
    if n_components is None:
        n_components = check_count("n_components", estimator.n_components)
    estimator = clone(estimator).set_params(n_components=n_components)
    parameters = {**estimator.get_params(), "random_state": random_state}
    exchanged = units = {"groups": groups, "background_groups": background_groups}
    if pairs is not None:  # rows of a pair are held out and drawn together
        exchanged = {"pairs": pairs, "background_pairs": background_pairs}
        units = {"groups": pairs, "background_groups": background_pairs}
    target, background = collect_sides(target, background)
    inputs = parse_inputs(FitArguments(target, background=background, **units))
    replicates = replicate_findings(inputs.datasets)
    fitted = clone(estimator).fit(target, background=background, **units)
    run = partial(_unless_too_few_rows, target, background)
    test = held_out = stable = None
    if n_permutations and not (isinstance(estimator, DPCA) and estimator.centering == "own"):
        text = "the permutation test was skipped, because it applies only to DPCA with `centering='own'`. "
        warn_user(f"{text}Use that for a test.", StandoutWarning)
    elif n_permutations:
        names = ("n_components", "shrinkage", "mix", "features", "random_state")
        options = {name: parameters[name] for name in names} | exchanged
        test = run(permutation_test, n_permutations=n_permutations, n_jobs=n_jobs, **options)
    if folds:
        unseeded = estimator.set_params(random_state=None)
        options = {"features": estimator.features, "random_state": random_state, **units}
        held_out = run(held_out_ratio, estimator=unseeded, folds=folds, **options)
    if n_bootstrap and isinstance(estimator, DPCA):
        stable = run(stability, n_bootstrap=n_bootstrap, n_jobs=n_jobs, **units, **parameters)
    known = [finding.text for finding in replicates]  # the summary gives each finding about the data once, first
    results: list[Any] = []
    for found in (test, held_out, stable):
        results.append(found and replace(found, notes=tuple(note for note in found.notes if note not in known)))
        known += () if found is None else found.notes
    test, held_out, stable = results
    return Assessment(test, held_out, stable, replicates, fitted)


def _unless_too_few_rows(target: Any, background: Any, analysis: Callable[..., Any], **options: Any) -> Any:
    """Run an analysis; if the rows are too few for it, warn and return None, so that the other results are not lost."""
    try:
        return analysis(target, background, **options)
    except NotEnoughRowsError as error:
        warn_user(f"{analysis.__name__} was skipped: {error}", StandoutWarning)
        return None
