"""Regenerate the marked blocks of the documentation: demo, help, pure-noise table, mice table, table of verdicts.

Run by ``make docs``. Each block lies between ``<!-- name -->`` and ``<!-- /name -->`` in its file.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from functools import partial
from pathlib import Path

import click
import numpy as np

import standout
from standout._demo import picture, table, views
from standout._dpca import DPCA
from standout._verdict import verdict
from standout.cli.app import app
from standout.datasets.tiles import digits_over_tiles

ROOT = Path(__file__).parent.parent


def put(path: Path, name: str, text: str) -> None:
    """Replace the text between the marks of ``name`` in a file."""
    old = path.read_text(encoding="utf-8")
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    assert pattern.search(old), f"{path}: no marks for {name}"
    path.write_text(pattern.sub(lambda found: found[1] + text.rstrip() + "\n" + found[2], old), encoding="utf-8")


def demo_block() -> str:
    """Return the table that the demo prints."""
    return f"```\n{table(views(digits_over_tiles()))}\n```"


def help_pages() -> str:
    """Return the help of every command as shown in a terminal."""
    parts = ["", f"```\n{_help(app, ['standout'])}\n```"]
    for name, command in app.commands.items():
        parts += ["", f"### standout {name}", "", f"```\n{_help(command, ['standout', name])}\n```"]
    return "\n".join([*parts, ""])


def _help(command: click.Command, path: list[str]) -> str:
    context = None
    for name in path:
        context = click.Context(
            app if context is None else command, info_name=name, parent=context, **app.context_settings
        )
    assert context is not None
    context.terminal_width = 100
    return command.get_help(context)


def mice_table(path: Path) -> str:
    """Return the assessment of the mouse data, counted by rows and by mouse."""
    sides = {"target": ["t-SC-m", "t-SC-s"], "background": ["c-CS-s"]}
    lines = [
        "| counted by | largest ratio | p | second ratio | p | held-out ratio | stability |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, given in (("rows", {}), ("mice", {"groups": "MouseID", "groups_match": "^[^_]+"})):
        read = partial(
            standout.read, path, missing="auto", ids="MouseID", drop=["Genotype", "Treatment", "Behavior"], **given
        )
        target, background = (read(where={"class": labels}) for labels in sides.values())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = standout.assess(target, background)
        tests = " | ".join(f"{r:.1f} | {p:.3f}" for r, p in zip(found.test.ratios, found.test.p_values, strict=True))
        held = f"{found.held_out.ratios[0]:.1f} ({found.held_out.low[0]:.2g} to {found.held_out.high[0]:.2g})"
        stable = f"{found.stability.median[0]:.2f} ({found.stability.low[0]:.2f} to {found.stability.high[0]:.2f})"
        lines.append(f"| {name}: {' + '.join(map(str, found.test.units))} | {tests} | {held} | {stable} |")
    return "\n".join(lines)


def verdict_table() -> str:
    """Return the cases that specify the verdict, with the headline of each."""
    from verdict_cases import CASES

    rows = [(case.evidence, verdict(case.model, case.assessment).headline, f"`{case.kind}`") for case in CASES]
    header = [("evidence", "verdict", "`kind` in JSON"), ("---",) * 3]
    return "\n".join(f"| {' | '.join(row)} |" for row in [*header, *rows])


def real_data(name: str) -> Path | None:
    """Return the path of a file in STANDOUT_DATA, or None."""
    folder = os.environ.get("STANDOUT_DATA")
    return Path(folder) / name if folder and (Path(folder) / name).is_file() else None


def pure_noise(repeats: int = 20, p: int = 50, m: int = 200) -> str:
    """Return the table of ratios on pure noise: in-sample, noise edge, shrunk, and on new rows."""
    rng = np.random.default_rng(0)
    lines = [
        f"| background rows, for {p} features | in-sample top ratio | noise edge | shrunk, in-sample | on new rows |",
        "|---|---|---|---|---|",
    ]
    for n in (52, 55, 60, 75, 100, 200, 500, 1000):
        found = np.array([_one(n, p, m, rng) for _ in range(repeats)])
        top, edge, shrunk, new = np.median(found, axis=0)
        lines.append(f"| {n} | {top:.3g} | {edge:.3g} | {shrunk:.3g} | {new:.2f} |")
    return "\n".join(lines)


def _one(n: int, p: int, m: int, rng: np.random.Generator) -> tuple[float, float, float, float]:
    target, background = rng.normal(size=(m, p)), rng.normal(size=(n, p))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exact = DPCA(1, shrinkage=None).fit(target, background=background)
        auto = DPCA(1).fit(target, background=background)
        new = [exact.transform(rng.normal(size=(5000, p))).var() for _ in range(2)]
    return exact.ratios_[0], exact.noise_edge_, auto.ratios_[0], float(new[0] / new[1])


def main() -> None:
    example = digits_over_tiles()
    picture(views(example), example, ROOT / "docs" / "demo.png")
    put(ROOT / "README.md", "demo", demo_block())
    put(ROOT / "docs" / "command-line.md", "help", help_pages())
    put(ROOT / "docs" / "method.md", "pure-noise", pure_noise())
    sys.path.insert(0, str(ROOT / "tests"))
    put(ROOT / "docs" / "trust.md", "verdicts", verdict_table())
    mice = real_data("Data_Cortex_Nuclear.csv")
    if mice is None:
        print("Data_Cortex_Nuclear.csv not found, table of the mice not updated. Set STANDOUT_DATA to its directory.")
    else:
        put(ROOT / "docs" / "trust.md", "mice", mice_table(mice))


if __name__ == "__main__":
    main()
