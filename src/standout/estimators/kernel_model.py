"""What a kernel fit returns, how it is found among the kernel's features, and how it reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from standout.blas import Array, cholesky, regular_factor, top_eigen
from standout.dataset import Dataset
from standout.errors import ConditionWarning, InputError, RankWarning, StructuralWarning
from standout.kernels import Features, KernelSource, Landmarks
from standout.mixture import Mixture
from standout.model import Model, fit_model
from standout.moments import Counts, Moments
from standout.shrinkage import ROWS_PER_DIMENSION, Evidence, oas
from standout.solve import Note, Wanted
from standout.solve.dense import top_pairs
from standout.solve.result import signs
from standout.sources import Source
from standout.summary import Summary

# Kernels that may have fewer dimensions than there are rows, so that the exact problem makes sense.
_BOUNDED = ("linear", "poly", "cosine")
# Dimensions are counted where eigenvalues still have some correct digits, so that the order of the rows
# cannot change their number, and with it the shrinkage.
_DIMENSION = 1e-10


@dataclass(frozen=True, kw_only=True)
class KernelModel(Model):
    """A model whose components are coefficients over landmarks."""

    landmarks: Landmarks

    def project(self, source: Source, role: str = "X") -> Array:
        """Return the scores of rows: their kernel columns minus the target's mean ones, times the coefficients."""
        return super().project(KernelSource(source, self.landmarks, role), role)

    @property
    def landmark_rows(self) -> Array:
        """The landmarks themselves."""
        return self.landmarks.rows

    @property
    def gamma(self) -> float:
        """The kernel's gamma."""
        return self.landmarks.kernel.gamma


def exact_refused(shrinkage: Any, why: str) -> InputError:
    """Return the error for an exact problem that would have infinite ratios almost everywhere."""
    return InputError(
        f"shrinkage={shrinkage} asks for the exact problem, and {why}: the target varies in many of them that the "
        "background rows do not reach, and each has an infinite ratio. Use shrinkage='auto' or a number above 0."
    )


def solve_kernel(
    target: Dataset, backgrounds: dict[str, Dataset], features: Features, wanted: Wanted, names: tuple[str, ...] | None
) -> KernelModel:
    """Solve among the features φ, whose moments the datasets hold, and put the result over the landmarks."""
    model = _among_features(target, backgrounds, features, wanted)
    vectors = model.components.T
    offset = model.mean @ vectors
    # The landmark with the largest score has a positive one: any other order of the rows gives the same sign.
    sign = signs(features.at_landmarks @ vectors - offset)
    own = {field.name: getattr(model, field.name) for field in fields(Model)}
    own |= {
        "components": np.ascontiguousarray(features.coefficients(vectors * sign).T),
        "patterns": np.empty((model.n_components, 0)),
        "mean": features.at_landmarks @ model.mean,
        "scale": np.ones(features.landmarks.n_columns),
        "names": names,
        # Landmarks may depend on each other: that is no loss.
        "notes": tuple(_in_kernel_words(note) for note in model.notes if note.category is not RankWarning),
    }
    return KernelModel(landmarks=features.landmarks, **own)


def _among_features(target: Dataset, backgrounds: dict[str, Dataset], features: Features, wanted: Wanted) -> Model:
    exact = replace(wanted, shrinkage=None, solver="dense")
    if not backgrounds:
        return fit_model(target, {}, exact)
    parts = [data.moments for data in backgrounds.values()]
    mixture = Mixture.of([part.counts for part in parts], wanted.mix, list(backgrounds))
    pair = _Pair.of(target.moments, parts, mixture)
    if wanted.shrinkage in (None, 0.0):
        if features.full_rank:
            raise exact_refused(wanted.shrinkage, f"this kernel has {features.n_columns} dimensions for as many rows")
        return fit_model(target, backgrounds, exact)
    bounded = features.landmarks.kernel.kind in _BOUNDED and not features.full_rank
    if wanted.shrinkage == "auto" and bounded and mixture.rows >= ROWS_PER_DIMENSION * pair.rank:
        return fit_model(target, backgrounds, exact)
    return _shrunk(target, backgrounds, pair, mixture, wanted)


@dataclass(frozen=True)
class _Pair:
    """Target and background covariance of the features, and in how many dimensions they vary."""

    target: Array
    background: Array
    rank: int

    @classmethod
    def of(cls, target: Moments, parts: Sequence[Moments], mixture: Mixture) -> _Pair:
        first, second = target.covariance(), mixture.covariance(parts)
        for role, covariance, mean in (("target", first, target.mean), ("background", second, parts[0].mean)):
            if np.trace(covariance) <= 1e-20 * (mean @ mean):
                raise InputError(
                    f"{role}: every feature is constant, or the kernel does not tell its rows apart, so there is no "
                    "variance to compare. Check that the right rows were given, or use a larger gamma."
                )
        joint = first / np.trace(first) + second / np.trace(second)
        return cls(first, second, _count_dimensions(joint))

    def evidence(self, mixture: Mixture) -> Evidence:
        """Return what the OAS formula looks at, for the background with a mean variance of one."""
        trace, square = np.trace(self.background), np.einsum("ij,ij->", self.background, self.background)
        return Evidence(
            rows=mixture.rows,
            rank=self.rank,
            effective=mixture.effective,
            n_varying=self.rank,
            trace_squared=float(square * (self.rank / trace) ** 2),
        )


def _count_dimensions(joint: Array) -> int:
    """Count the eigenvalues that are not negligible; a Cholesky factor often tells that none is, much sooner."""
    found = cholesky(joint)
    if found is not None and found[1] > _DIMENSION:
        return len(joint)
    values, _ = top_eigen(joint, len(joint), vectors=False)
    return int((values > _DIMENSION * values[0]).sum())


def _shrunk(target: Dataset, backgrounds: dict[str, Dataset], pair: _Pair, mixture: Mixture, wanted: Wanted) -> Model:
    """Solve against (1 − ρ)·C + ρ·μ·I: features of a kernel have no axes, so no diagonal to shrink to."""
    count = _how_many(wanted, min(pair.rank, target.moments.rows - 1), target)
    rho = oas(pair.evidence(mixture)) if isinstance(wanted.shrinkage, str) else float(wanted.shrinkage or 0.0)
    background = (1 - rho) * pair.background
    np.einsum("ii->i", background)[...] += rho * np.trace(pair.background) / pair.rank
    ratios, vectors = top_pairs(pair.target, regular_factor(background), count)
    length = np.sqrt(np.einsum("ij,ij->j", vectors, vectors))
    unknown = np.full(count, np.nan)
    return Model(
        components=(vectors / length).T,
        patterns=np.empty((count, 0)),
        ratios=ratios,
        plain_ratios=unknown,
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


def _how_many(wanted: Wanted, limit: int, target: Dataset) -> int:
    if wanted.n_components is None:
        return limit
    assert isinstance(wanted.n_components, int)
    if wanted.n_components > limit:
        raise InputError(
            f"n_components={wanted.n_components}, and the kernel has only {limit} dimension{'s' if limit != 1 else ''} "
            f"to offer on this data (target n_samples={target.counts.rows}). Ask for at most {limit}, or use another "
            "kernel or more landmarks."
        )
    return wanted.n_components


def _in_kernel_words(note: Note) -> Note:
    """Say what a note on features means for a kernel, whose features nobody knows by name."""
    if note.category is StructuralWarning:
        text = (
            "some ratios are infinite: the background does not vary at all in some dimensions of the kernel in which "
            "the target does. If that is an artefact of how the background was recorded, use shrinkage='oas'."
        )
        return Note(StructuralWarning, text)
    if note.category is ConditionWarning:
        text = (
            "the background hardly varies in some dimensions of the kernel, so the exact ratios have few correct "
            "digits. Use shrinkage='oas', or a kernel with fewer dimensions."
        )
        return Note(ConditionWarning, text)
    return note


def summarize_kernel(model: KernelModel, title: str, labels: list[str]) -> Summary:
    """Write the summary of a kernel model."""
    many = "s" if model.n_components != 1 else ""
    lines = [
        f"{title}: {model.n_components} component{many} over {model.landmarks.n_columns} landmarks "
        f"(kernel {model.landmarks.kernel.name}; joint rank {model.rank})",
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
        f"  Noise alone reaches {model.noise_edge:.4g}; p = {model.p_value:.2g} for the largest ratio "
        "(Gaussian features; too small for others)."
    )
