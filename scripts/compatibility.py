"""Find what the tests marked ``shows`` show of each kind of data, for docs/reference/compatibility.md.

``python scripts/compatibility.py`` runs these tests and prints as JSON what those that passed show, by kind. With
``--collect-only`` it prints what the marks claim, without running a test, and the test files that cannot be imported
here because a package is missing. ``make docs-write`` writes the table.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
# Argument of the mark → heading.
CAPABILITIES = {
    "accepted": "accepted",
    "names": "names kept",
    "groups": "groups kept",
    "out of core": "out of core",
    "lazy": "lazy",
}
Shown = dict[str, list[str]]  # kind of data → capabilities


class Recorder:
    """A pytest plugin that keeps only marked tests and records which of them passed."""

    def __init__(self) -> None:
        self.marks: dict[str, set[tuple[str, str]]] = {}  # test → kinds and capabilities
        self.passed: set[str] = set()
        self.failed: set[str] = set()
        self.unread: list[str] = []

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Keep the marked tests."""
        for item in items:
            claims = [mark.args for mark in item.iter_markers("shows")]
            if claims:
                self.marks[item.nodeid] = {(kind, what) for kind, *shown in claims for what in shown}
        unknown = {what for pairs in self.marks.values() for _, what in pairs} - set(CAPABILITIES)
        if unknown:
            raise pytest.UsageError(f"unknown capabilities in a mark `shows`: {', '.join(sorted(unknown))}")
        items[:] = [item for item in items if item.nodeid in self.marks]

    def pytest_collectreport(self, report: Any) -> None:
        """Note test files that cannot be imported."""
        if not report.passed:
            self.unread.append(report.nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note what passed."""
        if report.failed:
            self.failed.add(report.nodeid)
        elif report.when == "call" and report.passed:
            self.passed.add(report.nodeid)

    def shown(self, tests: Iterable[str]) -> set[tuple[str, str]]:
        """Return what these tests show."""
        return {pair for test in tests for pair in self.marks.get(test, ())}


def main(collect_only: bool) -> None:
    recorder = Recorder()
    files = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if "shows(" in path.read_text("utf-8")]
    options = ["--rootdir", str(ROOT), "-p", "no:cacheprovider", *["--collect-only"] * collect_only]
    with contextlib.redirect_stdout(sys.stderr):
        pytest.main([*options, *map(str, files)], plugins=[recorder])
    found = recorder.shown(recorder.marks)
    if not collect_only:  # a test that is skipped, because a package is missing, shows nothing
        found = recorder.shown(recorder.passed) - recorder.shown(recorder.failed)
    print(json.dumps({"shown": sorted(found), "unread": recorder.unread}))


def shown(run: bool) -> tuple[Shown, list[str]]:
    """Return what the tests show, if they ``run``, or what their marks claim; and files that cannot be imported."""
    command = [sys.executable, str(Path(__file__).resolve()), *["--collect-only"] * (not run)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{done.stdout}\n{done.stderr}")
    found = json.loads(done.stdout.splitlines()[-1])
    pairs = {(kind, what) for kind, what in found["shown"]}
    kinds = sorted({kind for kind, _ in pairs})
    return {kind: [what for what in CAPABILITIES if (kind, what) in pairs] for kind in kinds}, found["unread"]


def table(kinds: Mapping[str, Iterable[str]]) -> str:
    """Return the table of kinds and capabilities."""
    lines = [f"| kind of data | {' | '.join(CAPABILITIES.values())} |", "|---" * (1 + len(CAPABILITIES)) + "|"]
    for kind in sorted(kinds, key=str.casefold):
        ticks = ("✓" if what in kinds[kind] else "" for what in CAPABILITIES)
        lines.append(f"| {kind} | {' | '.join(ticks)} |")
    return "\n".join(lines)


def read_table(text: str) -> Shown:
    """Return what a table shows: the inverse of :func:`table`."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.strip().splitlines()[2:]]
    return {kind: [what for what, tick in zip(CAPABILITIES, ticks, strict=True) if tick] for kind, *ticks in rows}


if __name__ == "__main__":
    main(collect_only="--collect-only" in sys.argv[1:])
