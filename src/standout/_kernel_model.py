"""Kernel models: solution in the feature space of the kernel, and summary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from standout._blas import Array, cholesky, regular_factor, top_eigen
from standout._dataset import Dataset, Mixture
from standout._kernels import Features, KernelSource, Landmarks
from standout._model import Model, Summary, fit_model
from standout._moments import Counts, Moments
from standout._shrinkage import ROWS_PER_DIMENSION, Evidence, oas
from standout.errors import (
    ConditionWarning,
    InputError,
    NotEnoughRowsError,
    OverfitWarning,
    RankWarning,
    StructuralWarning,
)
from standout.io.source import Source
from standout.solvers.dense import top_pairs
from standout.solvers.minimax import minimax_shares
from standout.solvers.problem import SolveOptions
from standout.solvers.solution import Note, signs

# Kernels that may have fewer dimensions than there are rows, so that the exact problem is well-posed.
_BOUNDED = ("linear", "poly", "cosine")
# Only eigenvalues with some correct digits are counted as dimensions, so that the order of the rows
# cannot change their number and hence the shrinkage.
_DIMENSION = 1e-10
# Directions of the feature space, such as constants, in which the rows vary by less than this fraction are dropped.
_NEGLIGIBLE = 1e-12
# A ratio of variances above this is not usable numerically.
_LARGEST = 1e200
# Largest number of components considered by n_components="auto".
MOST_AUTO = 10


@dataclass(frozen=True, kw_only=True)
class KernelModel(Model):
    """A model whose components are coefficients over landmarks."""

    landmarks: Landmarks

    def project(self, source: Source, role: str = "X") -> Array:
        """Return the scores of rows: kernel columns minus their mean over the target, times the coefficients."""
        return super().project(KernelSource(source, self.landmarks, role), role)

    @property
    def landmark_rows(self) -> Array:
        """The landmark rows."""
        return self.landmarks.rows

    @property
    def gamma(self) -> float:
        """The kernel's gamma."""
        return self.landmarks.kernel.gamma

    @property
    def feature_scale(self) -> Array:
        """Divisor of each feature before the kernel is applied."""
        rows, scale = self.landmarks.rows, self.landmarks.scale
        return np.ones(rows.shape[1]) if scale is None else scale


def exact_refused(shrinkage: Any, why: str) -> InputError:
    """Return the error for an exact problem in which almost all ratios would be infinite."""
    return InputError(
        f"`shrinkage={shrinkage}` asks for the exact problem, and {why}: the target varies in many of them that the "
        "background rows do not reach, and each has an infinite ratio. Use `shrinkage='auto'` or a number above 0."
    )


def solve_kernel(
    target: Dataset,
    backgrounds: dict[str, Dataset],
    features: Features,
    wanted: SolveOptions,
    names: tuple[str, ...] | None,
) -> KernelModel:
    """Solve in the features φ, whose moments the datasets hold, and expand the result over the landmarks."""
    model = _among_features(target, backgrounds, features, wanted)
    vectors = model.components.T
    offset = model.mean @ vectors
    # The landmark with the largest absolute score gets a positive one, so that the sign does not depend on row order.
    sign = signs(features.at_landmarks @ vectors - offset)
    # Landmarks may be linearly dependent; this loses nothing.
    notes = [_in_kernel_words(note) for note in model.notes if note.category is not RankWarning]
    if backgrounds and features.isolated:
        notes.append(_isolated_note(features.landmarks))
    own = {field.name: getattr(model, field.name) for field in fields(Model)}
    own |= {
        "components": np.ascontiguousarray(features.coefficients(vectors * sign).T),
        "patterns": np.empty((model.n_components, 0)),
        "mean": features.at_landmarks @ model.mean,
        "scale": np.ones(features.landmarks.n_columns),
        "names": names,
        "notes": tuple(notes),
    }
    return KernelModel(landmarks=features.landmarks, **own)


def _among_features(
    target: Dataset, backgrounds: dict[str, Dataset], features: Features, wanted: SolveOptions
) -> Model:
    if not backgrounds:
        _check_varies("target", target.moments.covariance(), target.moments.mean)
        return _exact(target, {}, target.moments.covariance(), wanted)
    parts = [data.moments for data in backgrounds.values()]
    counts = [part.counts for part in parts]
    # The weights of "minimax" depend on the shrinkage, which is that of the pooled backgrounds.
    minimax = isinstance(wanted.mix, str) and wanted.mix == "minimax"
    mixture = Mixture.of(counts, "pooled" if minimax else wanted.mix, list(backgrounds))
    pair = _Pair.of(target.moments, parts, mixture)
    if wanted.shrinkage in (None, 0.0):
        if features.full_rank:
            raise exact_refused(wanted.shrinkage, f"this kernel has {features.n_columns} dimensions for as many rows")
        if mixture.rows < pair.rank:
            raise NotEnoughRowsError(
                f"`shrinkage={wanted.shrinkage}` asks for the exact problem, and the background's "
                f"{sum(count.rows for count in counts)} rows are too few for the {pair.rank} dimensions of this "
                "kernel. Use `shrinkage='auto'`, more background rows or a kernel with fewer dimensions."
            )
        return _exact(target, backgrounds, pair.joint, wanted)
    bounded = features.landmarks.kernel.kind in _BOUNDED and not features.full_rank
    if wanted.shrinkage == "auto" and bounded and mixture.rows >= ROWS_PER_DIMENSION * pair.rank:
        return _exact(target, backgrounds, pair.joint, wanted)
    # OAS explicitly, not the "auto" of the linear methods: kernel features have no preferred axes.
    rho = oas(pair.evidence(mixture)) if isinstance(wanted.shrinkage, str) else float(wanted.shrinkage or 0.0)
    if minimax and len(parts) > 1:
        shrunk = [_ridged(part.covariance(), rho, pair.rank) for part in parts]
        mixture = Mixture.of(counts, minimax_shares(pair.target, shrunk).shares)
        pair = replace(pair, background=mixture.covariance(parts))
    return _shrunk(target, backgrounds, pair, mixture, rho, wanted)


def _exact(target: Dataset, backgrounds: dict[str, Dataset], joint: Array, wanted: SolveOptions) -> Model:
    """Solve the exact problem within the directions in which the rows vary.

    Functions that are constant on all rows are left out. With them, each component would have an
    arbitrary constant part, and scaling it to unit norm would scale its scores arbitrarily.
    """
    values, vectors = top_eigen(joint, len(joint))
    basis = vectors[:, values > _NEGLIGIBLE * values[0]]

    def inside(data: Dataset) -> Dataset:
        return Dataset(data.role, given=data.moments.project(basis))

    count = _how_many(wanted, min(basis.shape[1], target.moments.rows - 1), target)
    exact = replace(wanted, n_components=count, shrinkage=None, solver="dense")
    model = fit_model(inside(target), {name: inside(data) for name, data in backgrounds.items()}, exact)
    return replace(model, components=model.components @ basis.T, mean=target.moments.mean)


@dataclass(frozen=True)
class _Pair:
    """Target and background covariance of the features, and the number of dimensions in which they vary."""

    target: Array
    background: Array
    rank: int

    @classmethod
    def of(cls, target: Moments, parts: Sequence[Moments], mixture: Mixture) -> _Pair:
        first, second = target.covariance(), mixture.covariance(parts)
        _check_varies("target", first, target.mean)
        _check_varies("background", second, parts[0].mean)
        if not np.trace(first) < _LARGEST * np.trace(second):
            raise InputError(
                "the target's kernel values vary so much more than the background's that the ratio of their variances "
                "would overflow. Bring target and background to the same units."
            )
        pair = cls(first, second, 0)
        return replace(pair, rank=_count_dimensions(pair.joint))

    @property
    def joint(self) -> Array:
        """Sum of both covariances, each scaled to unit trace."""
        return np.asarray(self.target / np.trace(self.target) + self.background / np.trace(self.background))

    def evidence(self, mixture: Mixture) -> Evidence:
        """Return the input of the OAS formula, for the background scaled to unit mean variance."""
        trace, square = np.trace(self.background), np.einsum("ij,ij->", self.background, self.background)
        return Evidence(
            rows=mixture.rows,
            rank=self.rank,
            effective=mixture.effective,
            n_varying=self.rank,
            trace_squared=float(square * (self.rank / trace) ** 2),
        )


def _check_varies(role: str, covariance: Array, mean: Array) -> None:
    if np.trace(covariance) <= 1e-20 * (mean @ mean):
        raise InputError(
            f"{role}: every feature is constant, or the kernel does not distinguish its rows, so there is no variance "
            "to compare. Check that the right rows were given, or use a larger gamma."
        )


def _count_dimensions(joint: Array) -> int:
    """Count the non-negligible eigenvalues; a Cholesky factor often shows much faster that all are."""
    found = cholesky(joint)
    if found is not None and found[1] > _DIMENSION:
        return len(joint)
    values, _ = top_eigen(joint, len(joint), vectors=False)
    return int((values > _DIMENSION * values[0]).sum())


def _ridged(background: Array, rho: float, rank: int) -> Array:
    """Return (1 − ρ)·C + ρ·μ·I: kernel features have no preferred axes, so a diagonal target is meaningless."""
    shrunk = (1 - rho) * background
    np.einsum("ii->i", shrunk)[...] += rho * np.trace(background) / rank
    return shrunk


def _shrunk(
    target: Dataset, backgrounds: dict[str, Dataset], pair: _Pair, mixture: Mixture, rho: float, wanted: SolveOptions
) -> Model:
    """Solve against the shrunk background."""
    count = _how_many(wanted, min(pair.rank, target.moments.rows - 1), target)
    background = _ridged(pair.background, rho, pair.rank)
    ratios, vectors = top_pairs(pair.target, regular_factor(background), count)
    length = np.sqrt(np.einsum("ij,ij->j", vectors, vectors))
    unknown = np.full(count, np.nan)
    return Model(
        components=(vectors / length).T,
        patterns=np.empty((count, 0)),
        ratios=ratios,
        unshrunk_ratios=unknown,
        target_variance=ratios / length**2,
        background_variance=1 / length**2,
        mean=target.moments.mean,
        scale=np.ones(len(vectors)),
        noise_edge=math.nan,
        p_value=math.nan,
        debiased_ratios=unknown,
        shrinkage=rho,
        regime="shrunk",
        mix=mixture.shares,
        rank=pair.rank,
        solver="dense",
        target_counts=target.counts,
        background_counts=tuple((name, data.counts) for name, data in backgrounds.items()),
        background_units=mixture.units,
        names=None,
        notes=(),
    )


def _how_many(wanted: SolveOptions, limit: int, target: Dataset) -> int:
    if wanted.n_components is None:
        return limit
    if wanted.n_components == "auto":
        return min(MOST_AUTO, limit)
    assert isinstance(wanted.n_components, int)
    if wanted.n_components > limit:
        raise InputError(
            f"`n_components={wanted.n_components}`, and the kernel has only {limit} "
            f"dimension{'s' if limit != 1 else ''} to offer on this data (target n_samples={target.counts.rows}). "
            f"Ask for at most {limit}, or use another kernel or more landmarks."
        )
    return wanted.n_components


def _in_kernel_words(note: Note) -> Note:
    """Rephrase a note on linear features for a kernel, whose dimensions have no names."""
    if note.category is StructuralWarning:
        text = (
            "some ratios are infinite: the background does not vary at all in some dimensions of the kernel in which "
            "the target does. If that is an artefact of how the background was recorded, use `shrinkage='oas'`."
        )
        return Note(StructuralWarning, text)
    if note.category is ConditionWarning:
        text = (
            "the background hardly varies in some dimensions of the kernel, so the exact ratios have few correct "
            "digits. Use `shrinkage='oas'`, or a kernel with fewer dimensions."
        )
        return Note(ConditionWarning, text)
    text = note.text.replace("fewer features", "a kernel with fewer dimensions")
    return Note(note.category, text)


def _isolated_note(landmarks: Landmarks) -> Note:
    remedy = "Use `gamma='cv'` or a smaller gamma" if landmarks.kernel.kind == "rbf" else "Use a wider kernel"
    return Note(
        OverfitWarning,
        "the kernel matrix is nearly the identity: most rows resemble no other row, so components describe single rows "
        f"and the ratios say nothing about new ones. {remedy}.",
    )


def nothing_found(model: KernelModel) -> KernelModel:
    """Return a model without components, because none has a held-out ratio above one."""
    note = Note(
        OverfitWarning,
        "no component has a held-out ratio above one, so `n_components='auto'` gives none and scores have no columns. "
        "Use a number for n_components to see the components all the same.",
    )
    per_component = (
        "components", "patterns", "ratios", "unshrunk_ratios", "debiased_ratios",
        "target_variance", "background_variance",
    )  # fmt: skip
    empty = {name: getattr(model, name)[:0] for name in per_component}
    return replace(model, **empty, notes=(*model.notes, note))


def summarize_kernel(model: KernelModel, title: str, labels: list[str]) -> Summary:
    """Return the summary of a kernel model."""
    many = "s" if model.n_components != 1 else ""
    lines = [
        f"{title}: {model.n_components} component{many} over {model.landmarks.n_columns} landmarks "
        f"(kernel {model.landmarks.kernel.name}; joint rank {model.rank})",
        *(["  units       features divided by their background sd"] if model.landmarks.scale is not None else []),
        f"  target      {_rows(model.target_counts)}",
    ]
    for (name, counts), share in zip(model.background_counts, model.mix, strict=True):
        lines.append(f"  {name:<11} {_rows(counts)}{f', share {share:.2f}' if len(model.mix) > 1 else ''}")
    if not model.background_counts:
        lines.append("  background  none: this is kernel PCA, and a ratio is a variance")
    problem: str = model.regime
    if model.regime == "shrunk":
        problem = f"background covariance shrunk by {model.shrinkage:.3g} toward the identity, in the kernel's norm"
    lines += [f"  problem     {problem}", "", f"  {'component':<14}{'ratio':>10}{'target sd':>12}{'background sd':>16}"]
    for label, ratio, first, second in zip(
        labels, model.ratios, model.target_variance, model.background_variance, strict=True
    ):
        lines.append(f"  {label:<14}{ratio:>10.4g}{math.sqrt(first):>12.4g}{math.sqrt(second):>16.4g}")
    lines += ["", _verdict(model)]
    lines += [f"  ! {note.text}" for note in model.notes]
    return Summary("\n".join(lines))


def _rows(counts: Counts) -> str:
    worth = f" worth {counts.units:.4g} independent units" if round(counts.units) != counts.rows else ""
    return f"{counts.rows} rows{worth}"


def _verdict(model: KernelModel) -> str:
    if not model.background_counts:
        return "  No background: nothing is compared, and no noise edge applies."
    if math.isnan(model.noise_edge):
        return (
            "  No noise edge: a flexible kernel gives large ratios on pure noise. Judge the ratios on rows the fit has "
            "not seen, with score(new_target, background=new_background)."
        )
    return (
        f"  Noise edge {model.noise_edge:.4g}; p = {model.p_value:.2g} for the largest ratio "
        "(assumes Gaussian kernel features; anti-conservative otherwise)."
    )
