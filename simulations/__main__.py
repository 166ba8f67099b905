"""Run the simulations and print their tables: ``python -m simulations [name ...] [--runs 1000] [--write page.md]``."""

from __future__ import annotations

import argparse
from pathlib import Path

from simulations import components, intervals, missing, size
from simulations.table import HEADER

SIMULATIONS = {
    "rows": size.rows,
    "few": size.few,
    "groups": size.groups,
    "pairs": size.pairs,
    "backgrounds": size.backgrounds,
    "replicates": size.replicates,
    "missing": missing.missing,
    "steps": components.steps,
    "counts": components.counts,
    "power": components.power,
    "split": intervals.split,
    "folds": intervals.folds,
    "bootstrap": intervals.bootstrap,
}


INTRO = """# Simulations

Written by `make simulations`: how often noise is taken for a finding (size), how often a finding is found (power), and
how often intervals hold the truth (coverage). Seeded; the interval of a rate is Clopper and Pearson's. What it means:
[is it real?](trust.md)

"""


def table(name: str, runs: int) -> str:
    """Run one simulation and return its table."""
    simulation = SIMULATIONS[name]
    return "\n".join([f"## {name}", "", simulation.__doc__, "", HEADER, *(one.row() for one in simulation(runs)), ""])


def main() -> None:
    """Run simulations, print their tables, and write them into one page."""
    parser = argparse.ArgumentParser(prog="python -m simulations", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*SIMULATIONS, []], help="which simulations; all by default")
    parser.add_argument("--runs", type=int, default=1000, help="how often each is run")
    parser.add_argument("--write", type=Path, help="a Markdown file to write the tables to")
    chosen = parser.parse_args()
    tables = []
    for name in chosen.names or SIMULATIONS:
        tables.append(table(name, chosen.runs))
        print(tables[-1], flush=True)
    if chosen.write:
        chosen.write.write_text(INTRO + "\n".join(tables), encoding="utf-8")


if __name__ == "__main__":
    main()
