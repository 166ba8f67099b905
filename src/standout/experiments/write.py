"""The files of an experiment: numbers as JSON, figures as PNG and SVG, and a page that holds it all."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

from standout._version import __version__
from standout.experiments.page import Figure, page
from standout.experiments.record import Picture, Record, Spread
from standout.experiments.table import table_facts
from standout.facts import plain
from standout.output import replacing
from standout.show.plot import pyplot

_DPI = 140


def write(record: Record, folder: Path) -> dict[str, Path]:
    """Write what an experiment left; each file takes its place when all of them are whole.

    Parameters
    ----------
    record : Record
        What was found.
    folder : Path
        A directory that is there.

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

    The same seeds give the same ``settings`` and ``numbers`` to the last bit; ``times`` differ, and with them the
    findings and tables of an experiment about run time.
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
    """Return facts as JSON that is the same whenever they are: sorted, numbers to their last digit, NaN as null."""
    return json.dumps(facts, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def versions() -> dict[str, Any]:
    """Return what was used to compute, as far as it can move the last digit of a number."""
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
    """Return a value with every spread as mean, range and values."""
    if isinstance(value, Spread):
        return value.facts()
    if isinstance(value, Mapping):
        return {name: _unfolded(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_unfolded(item) for item in value]
    return value


def _draw(picture: Picture, experiment: str, drafts: Mapping[str, Path]) -> None:
    """Draw a picture in both formats; the same picture gives the same bytes."""
    plt = pyplot()
    with plt.rc_context({"svg.hashsalt": f"{experiment}-{picture.name}"}):
        figure = picture.draw()
        try:
            figure.savefig(drafts[f"{picture.name}.png"], format="png", dpi=_DPI, metadata={"Software": None})
            figure.savefig(drafts[f"{picture.name}.svg"], format="svg", dpi=_DPI, metadata={"Date": None})
        finally:
            plt.close(figure)
