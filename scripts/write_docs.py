"""Regenerate what commands write into README.md and docs/. Run by ``make docs-write``.

- Marked blocks between ``<!-- name -->`` and ``<!-- /name -->``: demo, extras, help, pure-noise, mice, verdicts, json,
  compatibility.
- The figures of ``doc_figures.py``.
- The output of code. A ``python`` block may be followed by an ``output`` block, which holds what it prints. A
  ``console`` block holds commands after ``$`` and what they print. A ``sh run`` block is a script whose output is not
  shown. All blocks of a page run in order, in one namespace and in one empty directory. A ``sh data`` block needs real
  data and is run by a test that has them. Other ``sh`` blocks install software, or use files that the page does not
  have; a test checks that their commands and options exist.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

import standout
from standout._demo import ari, picture, views
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


_BLOCK = re.compile(
    r"^```(?P<kind>python|console|sh run)\n(?P<code>.*?)^```\n(?:\n*^```output\n(?P<output>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)


def pages() -> list[Path]:
    """Return the pages that are written by hand, and so may hold code."""
    built = ("_build", "gallery", "tutorials", "generated")
    found = [page for page in sorted((ROOT / "docs").rglob("*.md")) if not set(built) & set(page.parts)]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *found]


def run_page(text: str, name: str) -> str:
    """Run the code of a page and return the page with the output that it gave."""
    namespace: dict[str, object] = {"__name__": "__page__"}
    start = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return _BLOCK.sub(lambda block: _run(block, namespace, name), text)
        finally:
            os.chdir(start)


def _run(block: re.Match[str], namespace: dict[str, object], name: str) -> str:
    if block["kind"] == "console":
        return f"```console\n{_run_commands(block['code'])}```\n"
    if block["kind"] == "sh run":
        run_script(block["code"])
        return block[0]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block["code"], name, "exec"), namespace)
    if block["output"] is None:
        return block[0]
    return f"```python\n{block['code']}```\n\n```output\n{_tidy(printed.getvalue())}```\n"


def _run_commands(text: str) -> str:
    """Run the commands after ``$`` and return them with their output, standard error included."""
    shown = []
    for command in re.findall(r"^\$ ((?:.*\\\n)*.*)", text, re.MULTILINE):
        called = re.sub(r"^standout\b", f'"{sys.executable}" -m standout', command)
        done = subprocess.run(
            called,
            shell=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1"},
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{command}\n{done.stdout}")
        shown.append(f"$ {command}\n{_tidy(done.stdout)}")
    return "".join(shown)


def run_script(code: str, **variables: str) -> None:
    """Run a shell script in which ``standout`` is the command of this Python; stop at the first error."""
    command = f'set -e\nstandout() {{ "{sys.executable}" -m standout "$@"; }}\n{code}'
    done = subprocess.run(
        ["sh", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **variables},
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{code}\n{done.stdout}")


def _tidy(text: str) -> str:
    """Return text without spaces at the ends of lines, ending in one newline unless it is empty."""
    lines = "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")
    return lines + "\n" if lines else ""


def demo_block() -> str:
    """Return how well two clusters of the demo's scores agree with the digits, on both axes and on each alone."""
    example = digits_over_tiles()
    lines = ["| | both axes | first axis alone | second axis alone |", "|---|---|---|---|"]
    for found in views(example):
        axes = (found.scores, found.scores[:, :1], found.scores[:, 1:])
        cells = [f"{round(ari(scores, example.digit), 2) + 0.0:.2f}" for scores in axes]
        lines.append(f"| {found.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


# What each extra adds, for users. The extras of developers are described in CONTRIBUTING.md.
EXTRAS = {
    "cli": "the command line, with plots, reports and all files below except h5ad and xlsx",
    "explore": "the [explorer](../howto/explore.md), `standout explore`",
    "io": "csv, parquet, feather, HDF5, Zarr, loom, GCT, 10x Genomics (h5) and MATLAB 7.3 files",
    "plot": "`standout.plot`, and the photograph of the demo",
    "report": "`standout.report`",
    "anndata": "AnnData objects and h5ad files",
    "mne": "MNE recordings and covariances, `standout.mne`",
    "array-api": "[tensors](../howto/tensors.md) of PyTorch, CuPy and JAX, which are installed separately",
    "excel": "Excel workbooks (xlsx)",
    "dask": "Dask arrays and data frames",
    "spark": "Spark DataFrames; needs Java 17 or newer, which pip does not install",
    "all": "everything above except Spark",
}
DEVELOPER_EXTRAS = ("dev", "docs", "peers")


def extras_table() -> str:
    """Return what each extra adds and installs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert set(extras) == {*EXTRAS, *DEVELOPER_EXTRAS}, "describe every extra in EXTRAS"
    lines = ["| extra | adds | installs |", "|---|---|---|"]
    names = {"": project["dependencies"], **{name: extras[name] for name in EXTRAS}}
    for name, packages in names.items():
        what = EXTRAS.get(
            name, "the library: arrays, data frames, sparse matrices, npy, npz, mtx, MATLAB 5 and PLINK files"
        )
        lines.append(
            f"| {f'`{name}`' if name else '(none)'} | {what} | {', '.join(f'`{each}`' for each in packages)} |"
        )
    return "\n".join(lines)


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


def json_tables() -> str:
    """Return a table of the keys of every object in the schema of the JSON output."""
    schema = json.loads((ROOT / "docs" / "reference" / "standout.schema.json").read_text(encoding="utf-8"))
    lines = []
    for name, kind in schema["$defs"].items():
        if name == "number":
            continue
        lines += ["", f"### `{name}`", "", kind["description"], "", "| key | type | meaning |", "|---|---|---|"]
        for key, value in kind["properties"].items():
            absent = "" if key in kind["required"] else "optional: "
            lines.append(f"| `{key}` | {absent}{_type(value)} | {value['description']} |")
    return "\n".join([*lines, ""])


def _type(value: dict[str, Any]) -> str:
    """Return the type of a value of a schema in words, with a link to the table of an object."""
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return "number" if name == "number" else f"[{name}](#{name})"
    if "const" in value:
        return f'`"{value["const"]}"`'
    if "enum" in value:
        return ", ".join(f'`"{item}"`' for item in value["enum"])
    if "anyOf" in value:
        return " or ".join(map(_type, value["anyOf"]))
    kinds = value["type"] if isinstance(value["type"], list) else [value["type"]]
    names = []
    for kind in kinds:
        if kind == "array":
            names.append(
                f"list of {_type(value['items'])}" if value["items"].get("type") != "array" else "list of lists"
            )
        elif kind == "object" and isinstance(value.get("additionalProperties"), dict):
            names.append(f"object of {_type(value['additionalProperties'])}")
        else:
            names.append({"boolean": "true or false"}.get(kind, kind))
    return " or ".join(names)


def mice_table(path: Path) -> str:
    """Return the assessment of the mouse data against two control groups, counted by rows and by mouse."""
    lines = [
        "| background | counted by | largest ratio | p | second ratio | p | held-out ratio | stability |",
        "|---|---|---|---|---|---|---|---|",
    ]
    counted = {"rows": {}, "mice": {"groups": "MouseID", "groups_match": "^[^_]+"}}
    for control, (name, given) in itertools.product(("c-CS-s", "c-SC-s"), counted.items()):
        read = partial(
            standout.read, path, missing="auto", ids="MouseID", drop=["Genotype", "Treatment", "Behavior"], **given
        )
        target, background = (read(where={"class": labels}) for labels in (["t-SC-m", "t-SC-s"], [control]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = standout.assess(target, background)
        tests = " | ".join(f"{r:.1f} | {p:.3f}" for r, p in zip(found.test.ratios, found.test.p_values, strict=True))
        held = f"{found.held_out.ratios[0]:.1f} ({found.held_out.low[0]:.2g} to {found.held_out.high[0]:.2g})"
        stable = f"{found.stability.median[0]:.2f} ({found.stability.low[0]:.2f} to {found.stability.high[0]:.2f})"
        units = " + ".join(map(str, found.test.units))
        lines.append(f"| {control} | {name}: {units} | {tests} | {held} | {stable} |")
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
    import compatibility  # in the same directory
    import doc_figures

    example = digits_over_tiles()
    picture(views(example), example, ROOT / "docs" / "_static" / "demo.png")
    put(ROOT / "docs" / "start" / "ten-minutes.md", "demo", demo_block())
    put(ROOT / "docs" / "start" / "install.md", "extras", extras_table())
    put(ROOT / "docs" / "reference" / "command-line.md", "help", help_pages())
    put(ROOT / "docs" / "explanation" / "method.md", "pure-noise", pure_noise())
    put(ROOT / "docs" / "reference" / "json.md", "json", json_tables())
    put(
        ROOT / "docs" / "reference" / "compatibility.md",
        "compatibility",
        compatibility.table(compatibility.shown(True)[0]),
    )
    doc_figures.main()
    sys.path.insert(0, str(ROOT / "tests"))
    put(ROOT / "docs" / "explanation" / "is-it-real.md", "verdicts", verdict_table())
    mice = real_data("Data_Cortex_Nuclear.csv")
    if mice is None:
        print("Data_Cortex_Nuclear.csv not found, table of the mice not updated. Set STANDOUT_DATA to its directory.")
    else:
        put(ROOT / "docs" / "explanation" / "is-it-real.md", "mice", mice_table(mice))
    for page in pages():
        page.write_text(run_page(page.read_text(encoding="utf-8"), page.name), encoding="utf-8")


if __name__ == "__main__":
    main()
