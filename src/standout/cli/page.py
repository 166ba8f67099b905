"""A model in words and as a page, for the commands that show one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from standout.cli.data import Data
from standout.cli.session import command_line
from standout.sources.files.source import Account


def write_page(models: Any, data: Data, page: Path, title: str | None, trust: Any = None) -> None:
    """Write the report."""
    from standout.show.report import report as write_report

    write_report(
        models,
        data.target.source,
        data.background,
        path=page,
        title=title or f"What is specific to {Path(data.target.path).name}",
        command=command_line(),
        code=_code(models, data),
        accounts=tuple(side.account for side in data.sides),
        trust=trust,
    )


def _code(models: Any, data: Data) -> str:
    estimator = next(iter(models.values())) if isinstance(models, dict) else models
    lines = ["import standout", "", f"target = {data.target.code()}"]
    if data.backgrounds:
        parts = {name: side.code() for name, side in data.backgrounds.items()}
        whole = (
            next(iter(parts.values()))
            if len(parts) == 1
            else "{" + ", ".join(f"{n!r}: {c}" for n, c in parts.items()) + "}"
        )
        lines.append(f"background = {whole}")
    given = ", background=background" if data.backgrounds else ""
    lines += [
        f"model = standout.{' '.join(repr(estimator).split())}",
        f"model.fit(target{given})",
        "print(model.summary())",
    ]
    return "\n".join(lines)


def text_of(estimator: Any, count: int = 5) -> str:
    """Return a model in words: its summary, and the features that make up each component."""
    lines = [str(estimator.summary())]
    if hasattr(estimator, "top_features") and estimator.n_components_:
        unit = "background sd" if estimator.mix_.size else "the units of the data"
        lines += ["", f"  features that move most with each component, in {unit}:"]
        for name, tops in zip(estimator.get_feature_names_out(), estimator.top_features(count), strict=True):
            lines.append(f"  {name:<10} " + ", ".join(f"{top.feature} {top.weight:+.2g}" for top in tops))
    return "\n".join(lines)


def reading_in_words(data: Data) -> list[str]:
    """Return what reading did to each dataset, where it did more than to read it."""
    from standout.show.report.words import account_sentences

    told = [(side, account_sentences(side.account)) for side in data.sides if _changed(side.account)]
    return [line for side, said in told for line in ("", f"  {side.role}: {' '.join(said)}")]


def _changed(account: Account) -> bool:
    return bool(account.missing or account.rows_left_out or account.features_left_out)
