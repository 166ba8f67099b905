"""Write the files of an experiment: numbers as JSON, figures as PNG and SVG, and a self-contained HTML page."""

from __future__ import annotations

import json
import os
import platform
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from experiments.record import Picture, Record, Spread, as_rows, table_facts
from standout._report.report import templates as report_templates
from standout._summary import plain
from standout._version import __version__
from standout.io.output import replacing
from standout.plot._style import pyplot

_DPI = 140


def write(record: Record, folder: Path) -> dict[str, Path]:
    """Write the results of an experiment; files are renamed into place when all are complete.

    Parameters
    ----------
    record : Record
        The results.
    folder : Path
        An existing directory.

    Returns
    -------
    dict of str to Path
        NAME.json as "numbers", NAME-PICTURE.png and .svg as "PICTURE.png" and "PICTURE.svg", NAME.html as "page".

    Examples
    --------
    >>> import tempfile
    >>> record = Record("coin", "A coin", "It is fair.", ("It is.",), {"seed": 0}, {"heads": Spread((0.5, 0.4))})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = write(record, Path(folder))
    ...     json.loads(files["numbers"].read_text())["numbers"]
    {'heads': {'high': 0.5, 'low': 0.4, 'mean': 0.45, 'values': [0.5, 0.4]}}
    """
    files = {"numbers": folder / f"{record.name}.json"}
    for picture in record.pictures:
        files |= {f"{picture.name}.{kind}": folder / f"{record.name}-{picture.name}.{kind}" for kind in ("png", "svg")}
    files["page"] = folder / f"{record.name}.html"
    facts = record_facts(record)
    with ExitStack() as stack:
        drafts = {name: stack.enter_context(replacing(path)) for name, path in files.items()}
        for picture in record.pictures:
            _draw(picture, record.name, drafts)
        figures = [Figure(picture, drafts[f"{picture.name}.png"].read_bytes()) for picture in record.pictures]
        drafts["numbers"].write_text(as_json(facts), encoding="utf-8", newline="\n")
        drafts["page"].write_text(page(record, figures, facts), encoding="utf-8", newline="\n")
    return files


def record_facts(record: Record) -> dict[str, Any]:
    """Return a record for JSON.

    The same seeds give the same ``settings`` and ``numbers`` bit for bit; ``times`` differ, and with them the findings
    and tables of the run-time experiment.
    """
    facts = {
        "experiment": record.name,
        "title": record.title,
        "claim": record.claim,
        "findings": list(record.findings),
        "settings": record.settings,
        "numbers": record.numbers,
        "times": record.times,
        "tables": {table.name: table_facts(table) for table in record.tables},
        "versions": versions(),
    }
    return {name: plain(_unfolded(value)) for name, value in facts.items()}


def as_json(facts: Mapping[str, Any]) -> str:
    """Return facts as canonical JSON: sorted keys, full precision, NaN as null."""
    return json.dumps(facts, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def versions() -> dict[str, Any]:
    """Return the versions of the packages that can affect the last digit of a number."""
    from threadpoolctl import threadpool_info

    blas = [
        f"{found['internal_api']} {found['version']} ({found.get('architecture', '?')}), {found['num_threads']} threads"
        for found in threadpool_info()
        if found["user_api"] == "blas"
    ]
    packages = {name: version(name) for name in ("numpy", "scipy", "scikit-learn")}
    return {
        "standout": __version__,
        "python": platform.python_version(),
        **packages,
        "BLAS": "; ".join(sorted(set(blas))),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }


def _unfolded(value: Any) -> Any:
    """Return a value with every Spread replaced by mean, range and values."""
    if isinstance(value, Spread):
        return value.facts()
    if isinstance(value, Mapping):
        return {name: _unfolded(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_unfolded(item) for item in value]
    return value


def _draw(picture: Picture, experiment: str, drafts: Mapping[str, Path]) -> None:
    """Draw a figure in both formats; the same figure gives the same bytes."""
    plt = pyplot()
    with plt.rc_context({"svg.hashsalt": f"{experiment}-{picture.name}"}):
        figure = picture.draw()
        try:
            figure.savefig(drafts[f"{picture.name}.png"], format="png", dpi=_DPI, metadata={"Software": None})
            figure.savefig(drafts[f"{picture.name}.svg"], format="svg", dpi=_DPI, metadata={"Date": None})
        finally:
            plt.close(figure)


@dataclass(frozen=True)
class Figure:
    """A drawn figure."""

    picture: Picture
    png: bytes

    @property
    def address(self) -> str:
        """The image as a data URI."""
        return f"data:image/png;base64,{b64encode(self.png).decode()}"


@dataclass(frozen=True)
class Entry:
    """One entry of the index page."""

    title: str
    findings: Sequence[str]
    address: str | None  # the page, or None if the experiment failed
    trouble: str = ""


def page(record: Record, figures: Sequence[Figure], facts: Mapping[str, Any]) -> str:
    """Return the page of an experiment: claim, findings, figures, tables, settings."""
    tables = [(table, as_rows(table)) for table in record.tables]
    made = {name: _as_text(value) for name, value in facts["settings"].items()}
    return _render(
        "experiment.html.jinja", record=record, figures=figures, tables=tables, settings=made,
        versions=facts["versions"],
    )  # fmt: skip


def index(entries: Sequence[Entry]) -> str:
    """Return the index page of several experiments."""
    return _render("index.html.jinja", entries=entries)


def templates() -> Any:
    """Return the template environment, or raise if jinja2 is missing."""
    return report_templates("experiments", "pages")


def _render(template: str, **values: Any) -> str:
    style = files("standout._report").joinpath("templates/report.css").read_text(encoding="utf-8")
    return str(templates().get_template(template).render(style=style, **values))


def _as_text(value: Any) -> str:
    """Return a setting as text."""
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_as_text(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_as_text, value))
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)
