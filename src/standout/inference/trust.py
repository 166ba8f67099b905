"""All questions of trust at once: is it real, does it hold on other rows, how stable is it, are rows replicates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from standout.errors import InputError, NotEnoughRowsError, ReplicateWarning, StandoutWarning, warn_user
from standout.estimators.base import Contrast
from standout.estimators.dpca import DPCA
from standout.inference.held_out import HeldOut, held_out_ratio
from standout.inference.permutation import PermutationTest, permutation_test
from standout.inference.replicates import ReplicateFinding, find_replicates
from standout.inference.resample import held_sides
from standout.inference.stability import Stability, stability
from standout.parameters import check_count
from standout.summary import Summary

_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Trust:
    """What a target against backgrounds is worth; None for what was not asked.

    Attributes
    ----------
    test : PermutationTest or None
        Whether the ratios could come from labels that mean nothing.
    held_out : HeldOut or None
        The ratios on rows that the components were not found on.
    stability : Stability or None
        How much the components change when rows are drawn anew.
    replicates : tuple of ReplicateFinding
        Datasets whose rows look like replicates of fewer units, and no groups were given.
    """

    test: PermutationTest | None = None
    held_out: HeldOut | None = None
    stability: Stability | None = None
    replicates: tuple[ReplicateFinding, ...] = ()

    def summary(self) -> Summary:
        """Return the results in words, one after the other."""
        parts = [f"! {finding.text}" for finding in self.replicates]
        parts += [str(found.summary()) for found in (self.test, self.held_out, self.stability) if found is not None]
        return Summary("\n\n".join(parts))


def assess(
    target: Any,
    background: Any,
    *,
    estimator: Contrast | None = None,
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
) -> Trust:
    """Test, hold out and draw anew: everything one should know before believing a component.

    Parameters
    ----------
    target : path, array-like, frame, sparse matrix or Source, of shape (n_rows, n_features)
        The target. Rows are held in memory. Rows on a cluster are brought to this process.
    background : dataset, or list or dict of datasets
        The background(s), on the same features.
    estimator : DPCA, optional
        Whose parameters (shrinkage, mix, features, axes, ...) to use; ``DPCA(n_components)`` by default. The
        permutation test is one of dPCA about its own means and is left out, with a warning, for others.
    n_components : int, optional
        How many components to look at; by default those of the estimator, or 2.
    n_permutations, n_bootstrap, folds : int
        How much work; 0 leaves the part out.
    groups, background_groups : array-like of shape (n_rows,), optional
        The subject of each row; by default the groups of the source.
    pairs, background_pairs : array-like of shape (n_rows,), optional
        The subject of each row, where every subject is in the target and in the background.
    random_state : int, optional
        Seed; None is 0.
    n_jobs : int or None, default=None
        How many processes; None takes all cores.

    Returns
    -------
    Trust

    Examples
    --------
    >>> import numpy as np
    >>> from standout.inference import assess
    >>> rng = np.random.default_rng(0)
    >>> background = rng.normal(size=(200, 5)) * [9, 3, 1, 1, 1]
    >>> target = rng.normal(size=(150, 5)) * [9, 3, 1, 4, 1]      # the fourth varies more
    >>> found = assess(target, background, n_components=1, n_permutations=99, n_bootstrap=20)
    >>> float(found.test.p_values[0]), bool(found.held_out.low[0] > 1), bool(found.stability.low[0] > 0.9)
    (0.01, True, True)
    """
    if (pairs is None) != (background_pairs is None):
        raise InputError("pairs and background_pairs belong together, and only one was given. Give both.")
    if pairs is not None and (groups is not None or background_groups is not None):
        raise InputError("pairs and groups were both given, and a pair is a group already. Give one of them.")
    used = estimator if estimator is not None else DPCA(n_components or 2)
    if n_components is None:
        n_components = check_count("n_components", used.n_components)
    given = {name: value for name, value in used.get_params().items() if name not in ("n_components", "random_state")}
    # Whatever is held out or drawn anew, rows of a pair stay together.
    sides: dict[str, Any] = {"groups": groups, "background_groups": background_groups}
    if pairs is not None:
        sides = {"groups": pairs, "background_groups": background_pairs}
    same: dict[str, Any] = {"n_components": n_components, "random_state": random_state}
    target, background = held_sides(target, background)
    test = held = stable = None
    if n_permutations and _is_testable(used):
        statistic = {name: given[name] for name in ("shrinkage", "mix", "features") if name in given}
        paired = {"pairs": pairs, "background_pairs": background_pairs}
        chosen = paired if pairs is not None else sides
        given_too = {**chosen, **same, **statistic}
        test = _if_enough(
            "permutation test", permutation_test, target, background, n_permutations=n_permutations, n_jobs=n_jobs,
            **given_too,
        )  # fmt: skip
    if folds:
        finder = used.__class__(n_components=n_components, **given)
        held = _if_enough(
            "held-out ratio", held_out_ratio, target, background, estimator=finder, folds=folds,
            random_state=random_state, **sides,
        )  # fmt: skip
    if n_bootstrap and isinstance(used, DPCA):
        stable = _if_enough(
            "stability", stability, target, background, n_bootstrap=n_bootstrap, n_jobs=n_jobs, **sides, **same, **given
        )
    return Trust(test, held, stable, replicates_of(target, background) if groups is None and pairs is None else ())


def _is_testable(estimator: Any) -> bool:
    """Tell whether the permutation test speaks of this estimator's components; warn where it does not."""
    if isinstance(estimator, DPCA) and estimator.centering == "own":
        return True
    warn_user(
        "the permutation test is one of dPCA with each set about its own mean, and says nothing of these components, "
        "so it was left out. Use DPCA with centering='own' to have it.",
        StandoutWarning,
    )
    return False


def _if_enough(what: str, ask: Callable[..., _Found], *data: Any, **given: Any) -> _Found | None:
    """Return an answer; where the rows are too few for it, only a warning, so that the rest is not lost."""
    try:
        return ask(*data, **given)
    except NotEnoughRowsError as error:
        warn_user(f"the {what} was left out: {error}", StandoutWarning)
        return None


def replicates_of(target: Any, background: Any) -> tuple[ReplicateFinding, ...]:
    """Return the datasets among these whose rows look replicated, where their sources have no groups; warn of them."""
    several = background.values() if isinstance(background, dict) else background
    others = [] if background is None else list(several) if isinstance(background, dict | list) else [background]
    found = []
    for data in (target, *others):
        if getattr(data, "groups", None) is None and getattr(data, "row_ids", None) is not None:
            finding = find_replicates(data)
            if finding is not None:
                found.append(finding)
                warn_user(finding.text, ReplicateWarning)
    return tuple(found)
