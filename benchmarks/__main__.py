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


def row(result: Result) -> str:
    verdict = "yes" if result.holds else "**no**"
    return f"| {result.what} | {result.value:.3g} {result.unit} | {result.limit} | {verdict} | {result.note} |"


HEADER = "| case | measured | limit | met | times |\n|---|---|---|---|---|"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="cases to run (default: all)")
    parser.add_argument("--write", type=Path, help="write the table to this Markdown file")
    chosen = parser.parse_args()
    lines = [HEADER]
    print(HEADER, flush=True)
    for name in chosen.cases or CASES:
        for result in CASES[name]():
            lines.append(row(result))
            print(lines[-1], flush=True)
    print(f"\n{machine()}")
    if chosen.write:
        intro = "Written by `make bench`. Ratios are measured within one run, as medians over interleaved pairs."
        chosen.write.write_text(
            f"# Benchmarks\n\n{intro}\n\n" + "\n".join(lines) + f"\n\n{machine()}\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
