"""The page of an experiment, and the page that leads to several: one file each, with nothing to fetch."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from standout.experiments.record import Picture, Record
from standout.experiments.table import as_rows
from standout.show.report.page import templates as report_templates


@dataclass(frozen=True)
class Figure:
    """A picture as it was drawn."""

    picture: Picture
    png: bytes

    @property
    def address(self) -> str:
        """The image itself in the place of an address."""
        return f"data:image/png;base64,{b64encode(self.png).decode()}"


@dataclass(frozen=True)
class Entry:
    """One line of the page that leads to the others."""

    title: str
    findings: Sequence[str]
    address: str | None  # the page; None where the experiment failed
    trouble: str = ""


def page(record: Record, figures: Sequence[Figure], facts: Mapping[str, Any]) -> str:
    """Return the page of an experiment: claim, findings, figures, tables, and how it was made."""
    tables = [(table, as_rows(table)) for table in record.tables]
    made = {name: _told(value) for name, value in facts["settings"].items()}
    return _render(
        "experiment.html.jinja", record=record, figures=figures, tables=tables, settings=made,
        versions=facts["versions"],
    )  # fmt: skip


def index(entries: Sequence[Entry]) -> str:
    """Return the page that leads to those of several experiments."""
    return _render("index.html.jinja", entries=entries)


def templates() -> Any:
    """Return the templates, or say how to get what fills them in."""
    return report_templates("standout.experiments", "pages")


def _render(template: str, **values: Any) -> str:
    style = files("standout.show.report").joinpath("templates/report.css").read_text(encoding="utf-8")
    return str(templates().get_template(template).render(style=style, **values))


def _told(value: Any) -> str:
    """Return a setting as a reader would write it."""
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_told(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_told, value))
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)
