"""Which solver, written down in one place, and the steps they share.

====================================================  =================================================
what is given                                          solver
====================================================  =================================================
rows at hand, more features than rows, shrunk          ``span`` (Gram matrix of the rows)
rows at hand, more features than rows, exact           ``gsvd``
well-conditioned background, few of many components    ``lanczos`` (from 600 features on)
well-conditioned background otherwise                  ``dense``
singular only through features that are constant       ``dense`` (null space split off)
ill-conditioned or singular, rows at hand              ``gsvd``
ill-conditioned or singular, moments alone             ``dense`` (null space split off), with a warning
====================================================  =================================================

"Well-conditioned" means a condition number of at most 1e12 after equilibration. A shrunk background
always is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from standout.blas import Array, cholesky, rank_tolerance, regular_factor, times
from standout.dataset import Dataset
from standout.errors import NotEnoughRowsError, RowsNeededError
from standout.mixture import Mixture
from standout.shrinkage import Evidence, intensity
from standout.solve import dense, gsvd, lanczos, span, split
from standout.solve.notes import condition_note, shrinkage_notes, structural_notes
from standout.solve.pair import Pair, check_varies, measure
from standout.solve.result import Components, Eigen, Frame, Note, Solution, components
from standout.solve.task import Task, Wanted, how_many, too_many


def solve(target: Dataset, backgrounds: Sequence[Dataset], wanted: Wanted) -> tuple[Solution, Mixture | None]:
    """Find the components of target against backgrounds; also say how the backgrounds were mixed."""
    for data in (target, *backgrounds):
        check_rows(data.role, data.counts.rows)
    mixture = Mixture.of([data.counts for data in backgrounds], wanted.mix) if backgrounds else None
    task = Task(target, backgrounds, mixture, wanted)
    if wanted.solver in ("gsvd", "span") and not task.rows_at_hand:
        raise RowsNeededError(
            f"solver={wanted.solver!r} works on the rows, and moments (or rows that can be read only once) "
            "were given. Give the rows, or use solver='auto'."
        )
    if wanted.solver == "span" or (wanted.solver == "auto" and task.rows_at_hand and target.n_features > task.n_rows):
        return _by_rows(task), mixture
    return _by_moments(task), mixture


def check_rows(role: str, rows: int) -> None:
    """Refuse a dataset that cannot have a variance."""
    if rows < 2:
        raise NotEnoughRowsError(
            f"{role}: n_samples={rows} row{'s' if rows != 1 else ''} with a positive weight, and a variance "
            "needs at least 2. Give more rows."
        )


def _by_rows(task: Task) -> Solution:
    """More features than rows: never form anything features × features."""
    rows = span.RowSpan(task.target, task.backgrounds, task.mixture, task.wanted.own_centre)
    columns = rows.columns
    if task.mixture is None:
        check_varies(columns.target_variance, "target")
        count = how_many(task, min(rows.rank, task.target.counts.rows - 1), None)
        eigen = span.solve(rows, 0.0, count)
        return _solution(task, components(eigen, rows.frame, count), rows.frame, rows.rank, "span", columns.means)
    frame, constant = measure(columns.target_variance, columns.background_variance)
    evidence = Evidence(
        rows=task.mixture.rows,
        rank=rows.rank,
        effective=task.mixture.effective,
        n_varying=int((columns.background_variance > 0).sum()),
        trace_squared=rows.correlation_trace_squared(),
    )
    rho = intensity(task.wanted.shrinkage, evidence)
    if rho == 0 or task.has_edge(rows.rank):
        return _by_factors(task, frame, constant, columns.means, rho)
    count = how_many(task, min(rows.rank, task.target.counts.rows - 1), None)
    eigen = span.solve(rows, rho, count)
    if eigen.ratios[-1] <= rank_tolerance(rows.n_rows) * eigen.ratios[0]:
        # Directions in which the target does not vary are no combinations of its rows.
        return _by_factors(task, frame, constant, columns.means, rho)
    found = components(eigen, rows.frame, count)
    notes = shrinkage_notes(task, evidence, rho)
    return _solution(task, found, frame, rows.rank, "span", columns.means, rho=rho, notes=notes)


def _by_moments(task: Task) -> Solution:
    """Take the main road: covariances, then a dense or Lanczos eigenproblem."""
    parts = [data.moments for data in task.backgrounds]
    pair = Pair.of(task.target.moments, parts, task.mixture, task.wanted.own_centre)
    if pair.background is None:
        return _principal(task, pair)
    evidence = pair.evidence()
    rho = intensity(task.wanted.shrinkage, evidence)
    if task.wanted.solver == "gsvd" or (rho == 0 and _wants_rows(task, pair)):
        means = [task.target.moments.mean, *(part.mean for part in parts)]
        return _by_factors(task, pair.frame, pair.constant, means, rho)
    if rho > 0:
        return _shrunk(task, pair, evidence, rho)
    if pair.factor is not None:
        return _exact(task, pair)
    return _singular(task, pair)


def _wants_rows(task: Task, pair: Pair) -> bool:
    """Tell whether the rows know more than the covariances, and are there to be asked."""
    if pair.well_conditioned or not task.rows_at_hand or task.wanted.solver not in ("auto", "gsvd"):
        return False
    return not (pair.constant and _only_constant(pair))


def _only_constant(pair: Pair) -> bool:
    """Tell whether constant features alone make the background singular: then nothing is in doubt."""
    assert pair.background is not None
    varying = np.setdiff1d(pair.frame.alive, pair.constant)
    inner = np.searchsorted(pair.frame.alive, varying)
    factor = cholesky(pair.background[np.ix_(inner, inner)])
    return factor is not None and factor[1] >= 1 / split.WORST_CONDITION


def _top(task: Task, target: Array, factor: Array | None, count: int, vectors: bool = True) -> tuple[Array, Array, str]:
    """Return the top pairs by Lanczos or densely, and which it was."""
    wanted = task.wanted.solver
    if wanted == "lanczos" or (wanted == "auto" and lanczos.pays_off(len(target), count)):
        found = lanczos.top_pairs(target, factor, count, task.wanted.seed, vectors) if count < len(target) else None
        if found is not None:
            return *found, "lanczos"
    if not vectors:
        return dense.top_ratios(target, factor, count), np.empty((len(target), 0)), "dense"
    return *dense.top_pairs(target, factor, count), "dense"


def _principal(task: Task, pair: Pair) -> Solution:
    """Without a background: PCA, the identity in the background's place."""
    size = len(pair.target)
    limit = min(size, task.target.counts.rows - 1)
    asked = how_many(task, limit, None)
    ratios, vectors, solver = _top(task, pair.target, None, asked)
    rank = int((ratios > rank_tolerance(size) * ratios[0]).sum())
    count = asked if task.wanted.n_components is not None else rank
    if rank < count:
        raise too_many(count, rank, task)
    eigen = Eigen(ratios, vectors, vectors * ratios, vectors)
    return _solution(task, components(eigen, pair.frame, count), pair.frame, rank, solver)


def _exact(task: Task, pair: Pair) -> Solution:
    """Solve the paper's problem as it is, with enough rows and a regular background."""
    assert pair.factor is not None and pair.background is not None
    factor, reciprocal = pair.factor
    plain = _plain(task, pair) if task.wanted.n_components == "auto" else None
    count = how_many(task, min(pair.rank, task.target.counts.rows - 1), plain, pair.rank)
    ratios, vectors, solver = _top(task, pair.target, factor, max(count, 1))
    eigen = Eigen(ratios, vectors, times(pair.target, vectors), times(pair.background, vectors))
    notes = () if pair.well_conditioned else (condition_note(reciprocal),)
    plain = ratios if plain is None else plain
    found = components(eigen, pair.frame, count)
    return _solution(task, found, pair.frame, pair.rank, solver, plain=plain, notes=notes)


def _singular(task: Task, pair: Pair) -> Solution:
    """Solve the exact problem with a singular background, from the covariances."""
    assert pair.background is not None
    parts = split.solve(pair.target, pair.background)
    eigen = parts.eigen
    notes = [] if parts.clear else [condition_note(0.0)]
    notes += structural_notes(task, eigen, pair.frame, pair.constant)
    plain = eigen.ratios
    count = how_many(task, min(parts.rank, task.target.counts.rows - 1), plain, parts.rank)
    found = components(eigen, pair.frame, count)
    return _solution(
        task, found, pair.frame, parts.rank, "dense",
        plain=plain, notes=notes, n_infinite=eigen.n_infinite,
    )  # fmt: skip


def _shrunk(task: Task, pair: Pair, evidence: Evidence, rho: float) -> Solution:
    """Solve against the shrunk background, which is always regular."""
    assert pair.background is not None
    plain = _plain(task, pair) if task.has_edge(pair.rank) else None
    count = how_many(task, min(pair.rank, task.target.counts.rows - 1), plain, pair.rank)
    background = (1 - rho) * pair.background
    np.einsum("ii->i", background)[...] += rho
    ratios, vectors, solver = _top(task, pair.target, regular_factor(background), max(count, 1))
    eigen = Eigen(ratios, vectors, times(pair.target, vectors), times(background, vectors))
    found = components(eigen, pair.frame, count)
    notes = shrinkage_notes(task, evidence, rho)
    return _solution(task, found, pair.frame, pair.rank, solver, rho=rho, plain=plain, notes=notes)


def _by_factors(task: Task, frame: Frame, constant: tuple[int, ...], means: Sequence[Array], rho: float) -> Solution:
    """Solve from the rows themselves, by the generalized SVD."""
    assert task.mixture is not None
    data = (task.target, *task.backgrounds)
    factors = [gsvd.row_factor(part, frame, mean) for part, mean in zip(data, means, strict=True)]
    target = [factors[0]]
    if not task.wanted.own_centre:
        shift = means[0] - task.mixture.mixed(means[1:])
        target.append((shift / frame.scale)[None, frame.alive])
    shares = np.sqrt(task.mixture.shares)
    backgrounds = [share * factor for share, factor in zip(shares, factors[1:], strict=True)]
    pair = gsvd.Factored.stack(target, backgrounds, task.n_rows)
    joint = gsvd.joint_range(pair)
    inner = pair.background @ pair.background.T if len(pair.background) < pair.background.shape[1] else (
        pair.background.T @ pair.background
    )  # fmt: skip
    evidence = Evidence(
        rows=task.mixture.rows,
        rank=joint.rank,
        effective=task.mixture.effective,
        n_varying=len(frame.alive) - len(constant),
        trace_squared=float(np.einsum("ij,ij->", inner, inner)),
    )
    # The rows may know another rank than the covariances did: ask the rule again.
    rho = intensity(task.wanted.shrinkage, evidence)
    eigen = plain_eigen = gsvd.solve(pair, joint) if rho == 0 or task.has_edge(joint.rank) else None
    if rho > 0:
        pair = gsvd.shrunk(pair, joint, rho)
        eigen = gsvd.solve(pair, gsvd.joint_range(pair))
        notes: Sequence[Note] = shrinkage_notes(task, evidence, rho)
    else:
        assert eigen is not None
        notes = structural_notes(task, eigen, frame, constant)
    assert eigen is not None
    plain = None if plain_eigen is None else plain_eigen.ratios
    count = how_many(task, min(joint.rank, task.target.counts.rows - 1), plain, joint.rank)
    return _solution(
        task, components(eigen, frame, count), frame, joint.rank, "gsvd", means,
        rho=rho, plain=plain, notes=notes, n_infinite=eigen.n_infinite,
    )  # fmt: skip


def _plain(task: Task, pair: Pair) -> Array:
    """Return ratios of the unshrunk problem: as many as are needed to judge them."""
    assert pair.background is not None
    wanted = task.wanted.n_components
    if pair.factor is None:
        return split.solve(pair.target, pair.background).eigen.ratios
    count = min(wanted, len(pair.target)) if isinstance(wanted, int) else len(pair.target)
    return _top(task, pair.target, pair.factor[0], count, vectors=False)[0]


def _solution(
    task: Task,
    found: Components,
    frame: Frame,
    rank: int,
    solver: str,
    means: Sequence[Array] | None = None,
    *,
    rho: float = 0.0,
    plain: Array | None = None,
    notes: Sequence[Note] = (),
    n_infinite: int = 0,
) -> Solution:
    empty = np.empty(0)
    if means is None:
        means = [data.moments.mean for data in (task.target, *task.backgrounds)]
    own = task.mixture is None or task.wanted.own_centre
    return Solution(
        ratios=found.ratios,
        filters=found.filters,
        patterns=found.patterns,
        target_variance=found.target_variance,
        background_variance=found.background_variance,
        plain_ratios=plain if plain is not None and task.has_edge(rank) else empty,
        mean=means[0] if own or task.mixture is None else task.mixture.mixed(means[1:]),
        scale=frame.scale,
        rank=rank,
        n_infinite=min(n_infinite, len(found.ratios)),
        shrinkage=rho,
        regime="shrunk" if rho > 0 else "structural" if n_infinite > 0 else "exact",
        solver=solver,
        notes=tuple(notes),
    )
