"""Run one experiment or all of them, and write their files into one directory."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from experiments import ALL, EXPERIMENTS
from experiments.record import Plan, Record
from experiments.write import Entry, index, templates, write
from standout._blas import threads_for
from standout.errors import InputError, StandoutError, StandoutWarning, did_you_mean, listed
from standout.io.output import check_writable, replacing
from standout.plot._style import pyplot


@dataclass(frozen=True)
class Outcome:
    """The outcome of one experiment: its record and files, or the error that stopped it."""

    name: str
    record: Record | None = None
    files: dict[str, Path] = field(default_factory=dict)
    error: Exception | None = None


def chosen(name: str) -> tuple[str, ...]:
    """Return the experiments that a name refers to.

    Examples
    --------
    >>> chosen("mice"), len(chosen("all"))
    (('mice',), 4)
    """
    if name == ALL:
        return tuple(EXPERIMENTS)
    if name not in EXPERIMENTS:
        names = [*EXPERIMENTS, ALL]
        raise InputError(
            f"there is no experiment {name!r}.{did_you_mean(name, names)} Choose one of {listed(names, len(names))}."
        )
    return (name,)


def reproduce(name: str, plan: Plan, folder: Path) -> list[Outcome]:
    """Run an experiment, or all of them, and write the results.

    Parameters
    ----------
    name : str
        One of :data:`experiments.EXPERIMENTS`, or "all", which also writes ``index.html``.
    plan : Plan
        Seeds, size and data.
    folder : Path
        An existing directory.

    Returns
    -------
    list of Outcome
        One for each experiment. An error stops only its own experiment and is stored in ``error``.

    Examples
    --------
    >>> [outcome] = reproduce("digits", Plan(embedded=True), Path("."))  # doctest: +SKIP
    >>> outcome.record.findings[0]  # doctest: +SKIP
    "dPCA by the exact ratio, the paper's method, gives two clusters on this stand-in: ARI 0.83 at weight 0.25, ..."
    """
    outcomes = [attempt(one, plan, folder) for one in chosen(name)]
    if name == ALL:
        write_index(outcomes, folder)
    return outcomes


def attempt(name: str, plan: Plan, folder: Path) -> Outcome:
    """Run one experiment and write its files; return an error instead of raising it."""
    try:
        pyplot(), templates()  # fail before the work, not after it, if a package is missing
        run = getattr(import_module(f"experiments.{name}"), name)
        with warnings.catch_warnings():
            # The findings report what the models warn about.
            warnings.simplefilter("ignore", StandoutWarning)
            # One thread, so that the order of summation does not depend on the number of cores.
            with threads_for(0):
                record = run(plan)
        return Outcome(name, record, write(record, folder))
    except Exception as error:
        return Outcome(name, error=error)


def check_outputs(names: Sequence[str], folder: Path) -> None:
    """Raise an error if the files cannot be written to a directory."""
    for name in names:
        for kind in ("json", "html"):
            check_writable(folder / f"{name}.{kind}", "--out")
    with replacing(folder / ".standout", "--out"):
        pass
    (folder / ".standout").unlink()


def write_index(outcomes: Sequence[Outcome], folder: Path) -> Path:
    """Write the page that links to those of the experiments and lists failures."""
    path = folder / "index.html"
    with replacing(path) as draft:
        draft.write_text(index(list(_entries(outcomes))), encoding="utf-8", newline="\n")
    return path


def trouble(error: Exception) -> str:
    """Return an error as a sentence."""
    if isinstance(error, StandoutError):
        return str(error)
    return f"internal error in standout ({type(error).__name__}: {error}); please report it."


def _entries(outcomes: Sequence[Outcome]) -> Iterator[Entry]:
    for outcome in outcomes:
        if outcome.record is not None:
            yield Entry(outcome.record.title, outcome.record.findings, outcome.files["page"].name)
        else:
            assert outcome.error is not None
            yield Entry(EXPERIMENTS[outcome.name], (), None, trouble(outcome.error))
