"""Run the simulations and print their tables: ``python -m simulations [name ...] [--runs 1000] [--write page.md]``."""

from __future__ import annotations

import argparse
import inspect
from pathlib import Path

from simulations import background, components, effective, intervals, kernels, missing, size
from simulations.table import HEADER

SIMULATIONS = {
    "estimates": background.estimates,
    "rows": size.rows,
    "few": size.few,
    "heavy": size.heavy,
    "groups": size.groups,
    "effective": effective.effective,
    "pairs": size.pairs,
    "backgrounds": size.backgrounds,
    "replicates": size.replicates,
    "missing": missing.missing,
    "steps": components.steps,
    "counts": components.counts,
    "power": components.power,
    "null": intervals.null,
    "split": intervals.split,
    "folds": intervals.folds,
    "weights": intervals.weights,
    "bootstrap": intervals.bootstrap,
    "kernels": kernels.kernels,
    "kernel_counts": kernels.kernel_counts,
}


# Headings of the page, on which its anchors depend.
TITLES = {
    "estimates": "Estimates of the background covariance",
    "rows": "Independent rows",
    "few": "Fewer background rows than features",
    "heavy": "Heavy tails and counts",
    "groups": "Groups",
    "effective": "Effective degrees of freedom",
    "pairs": "Pairs",
    "backgrounds": "Several backgrounds",
    "replicates": "Detection of replicates",
    "missing": "Missing values",
    "steps": "Second and third component",
    "counts": "Number of components",
    "power": "Power",
    "null": "Held-out ratio and score of noise",
    "split": "Interval of one split",
    "folds": "Interval over folds",
    "weights": "Intervals of feature weights",
    "bootstrap": "Bootstrap of ratios",
    "kernels": "Kernels: units of the features",
    "kernel_counts": "Kernels: number of components",
}

INTRO = """# Simulations

Written by `make simulations`: rejection rates under the null (size) and with a signal (power), and coverage of
intervals. Tests are at the 5 % level. All runs are seeded; intervals of rates are Clopper–Pearson. "Analytic" is the
p-value of the fit, and "m + n × p" means m target rows, n background rows and p features. "Met" compares the rate
with the expected range. [Is it real?](../explanation/is-it-real.md) explains the tests.

"""


def table(name: str, runs: int) -> str:
    """Run one simulation and return its table."""
    simulation = SIMULATIONS[name]
    results = simulation(runs)
    header = getattr(results[0], "header", HEADER)
    text = inspect.getdoc(simulation) or ""
    return "\n".join([f"## {TITLES[name]}", "", text, "", header, *(one.row() for one in results), ""])


def main() -> None:
    """Run the simulations, print their tables and optionally write them to a page."""
    parser = argparse.ArgumentParser(prog="python -m simulations", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*SIMULATIONS, []], help="simulations to run (default: all)")
    parser.add_argument("--runs", type=int, default=1000, help="number of runs of each simulation")
    parser.add_argument("--write", type=Path, help="write the tables to this Markdown file")
    chosen = parser.parse_args()
    tables = []
    for name in chosen.names or SIMULATIONS:
        tables.append(table(name, chosen.runs))
        print(tables[-1], flush=True)
    if chosen.write:
        chosen.write.write_text(INTRO + "\n".join(tables), encoding="utf-8")


if __name__ == "__main__":
    main()
