"""Read damaged files in child processes and count what happens: ``python -m fuzz [--kinds h5 npz] [--count 3000]``."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

from fuzz.kinds import KINDS
from fuzz.run import CLASSES, SECONDS, Tally, fuzz

INTRO = f"""# Damaged files

Written by `make fuzz`. Each row counts files of one kind that were damaged at random, and what happened when they were
read (`standout.read`), loaded (`standout.load`) or resumed from (`checkpoint=`). Damage is: flipped bits, truncation,
bytes that are overwritten, removed, inserted or copied from elsewhere, sizes and shapes that claim up to 2⁶⁴, archives
with duplicate names, names outside of the archive and members that expand to 512 MB, JSON with wrong or deeply nested
values, and pointers and sizes in the structures of HDF5 files. In these structures, and in about half of the damage
inside of archives, checksums are corrected, so that the damage reaches the reader. Every file is
read in a child process with limits of processor time ({SECONDS} s) and memory.

- **refused**: an error of one line that names the file.
- **equal**: the file was read, with the same result as the intact one.
- **changed**: the file was read, with another result. Where a format has no checksum, changed values look like any
  others. Model files and checkpoints have one, so there the count must be 0. In rows with corrected checksums it can
  be larger.
- **unclear** message, another **exception**, **crash** of the process, **hang**, and more **memory** than 64 MB and
  150 bytes for each byte of the file: must be 0. Memory is counted when it is used: a size that the system refuses to
  allocate is an error like others.

"""
HEADER = "| kind | files | " + " | ".join(CLASSES) + " |\n|---|" + "---:|" * (len(CLASSES) + 1)


def row(tally: Tally) -> str:
    """Return a row of the table, with failures in bold."""
    failed = {found for _, found, _ in tally.failures}
    cells = [f"**{tally.counts[name]:,}**" if name in failed else f"{tally.counts[name]:,}" for name in CLASSES]
    return f"| {tally.kind} | {sum(tally.counts.values()):,} | " + " | ".join(cells) + " |"


def machine() -> str:
    """Return the versions that the result depends on."""
    packages = ("numpy", "scipy", "pyarrow", "h5py", "anndata", "zarr", "standout")
    return f"Python {platform.python_version()}; " + ", ".join(f"{name} {version(name)}" for name in packages)


def write(page: Path, tallies: list[Tally], seed: int) -> None:
    """Write the table; rows of kinds that were not run stay as they are."""
    before = page.read_text(encoding="utf-8").splitlines() if page.exists() else []
    rows = {name: line for name in KINDS for line in before if line.startswith(f"| {name} |")}
    rows |= {tally.kind: row(tally) for tally in tallies}
    table = "\n".join(rows[name] for name in KINDS if name in rows)
    page.write_text(f"{INTRO}{HEADER}\n{table}\n\nSeed {seed}. {machine()}\n", encoding="utf-8")


def main() -> None:
    """Run, print the table, and list every failure with the command that repeats it."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS), metavar="KIND",
                        help=f"kinds of files (default: all): {', '.join(map(repr, KINDS))}")  # fmt: skip
    parser.add_argument("--count", type=int, help="files of each kind (default: 3000, and 20000 model files)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="number of the first file, to repeat a failure")
    parser.add_argument("--keep", type=Path, help="keep the file that was damaged last in this folder")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: one for each core)")
    parser.add_argument("--write", type=Path, help="write the rows to the table in this Markdown file")
    chosen = parser.parse_args()

    def one(name: str) -> Tally:
        begin, keep = time.monotonic(), None if chosen.keep is None else str(chosen.keep.absolute())
        [tally] = fuzz({name: chosen.count or KINDS[name].count}, chosen.seed, chosen.start, keep)
        print(row(tally), f"{time.monotonic() - begin:.0f} s", flush=True)
        for index, found, details in tally.failures:
            again = f"python -m fuzz --kinds {name!r} --seed {chosen.seed} --start {index} --count 1"
            print(f"    {found}: {details}\n        {again}", flush=True)
        return tally

    print(HEADER, flush=True)
    with ThreadPoolExecutor(1 if chosen.keep else chosen.jobs) as pool:
        tallies = list(pool.map(one, chosen.kinds))
    if chosen.write:
        write(chosen.write, tallies, chosen.seed)
    sys.exit(any(tally.failures for tally in tallies))


if __name__ == "__main__":
    main()
