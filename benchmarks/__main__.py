"""Run the benchmarks and print the table: ``python -m benchmarks [case ...] [--write docs/evidence/benchmarks.md]``."""

from __future__ import annotations

import argparse
import os
import platform
from importlib.metadata import version
from pathlib import Path

from benchmarks import (
    cases,
    dask_cluster,
    estimate,
    explorer,
    family,
    files,
    growth,
    inference,
    kernels,
    spark_cluster,
    sparse,
)
from benchmarks.measure import Result

CASES = {
    **cases.CASES,
    **estimate.CASES,
    **family.CASES,
    **growth.CASES,
    **kernels.CASES,
    **inference.CASES,
    **files.CASES,
    **sparse.CASES,
    **dask_cluster.CASES,
    **spark_cluster.CASES,
    **explorer.CASES,
}


def machine() -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "scikit-learn", "standout"))
    system = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    return f"{os.cpu_count()} cores, {system}; {packages}"


def row(case: str, result: Result) -> str:
    verdict = "yes" if result.holds else "**no**"
    return f"| {case} | {result.what} | {result.value:.3g} {result.unit} | {result.limit} | {verdict} | {result.note} |"


INTRO = """Written by `make bench`. Ratios are measured within one run, as medians over interleaved pairs.
`python -m benchmarks CASE --write docs/evidence/benchmarks.md` repeats one case."""
HEADER = "| case | what | measured | limit | met | times |\n|---|---|---|---|---|---|"


def write(page: Path, rows: dict[str, list[str]]) -> None:
    """Write the table; rows of cases that were not run stay as they are."""
    before = page.read_text(encoding="utf-8").splitlines() if page.exists() else []
    kept = {name: [line for line in before if line.startswith(f"| {name} |")] for name in CASES}
    table = [line for lines in (kept | rows).values() for line in lines]
    text = "\n\n".join(["# Benchmarks", INTRO, "\n".join([HEADER, *table]), machine()])
    page.write_text(f"{text}\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="cases to run (default: all)")
    parser.add_argument("--write", type=Path, help="write the rows to the table in this Markdown file")
    chosen = parser.parse_args()
    rows: dict[str, list[str]] = {}
    print(HEADER, flush=True)
    for name in chosen.cases or CASES:
        rows[name] = []
        for result in CASES[name]():
            rows[name].append(row(name, result))
            print(rows[name][-1], flush=True)
        if chosen.write:
            write(chosen.write, rows)
    print(f"\n{machine()}")


if __name__ == "__main__":
    main()
