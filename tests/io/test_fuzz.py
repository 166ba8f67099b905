"""Damaged files of every type are refused clearly or read, in child processes with limits of time and memory.

``make fuzz`` is the long form; docs/evidence/fuzzing.md has its table.
"""

from collections import Counter
from pathlib import Path

import pytest
from fuzz.__main__ import HEADER, INTRO, write
from fuzz.kinds import FAULTS, KINDS
from fuzz.run import Tally, fuzz

PAGE = Path(__file__).parents[2] / "docs" / "evidence" / "fuzzing.md"
COUNT = 25

pytestmark = pytest.mark.xdist_group("fuzz")  # the files of all types are read by one process


@pytest.fixture(scope="module")
def tallies():
    found = fuzz({name: COUNT for name in KINDS if name != "model"} | {"model": 10 * COUNT})
    return {tally.kind: tally for tally in found}


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_refused_clearly_or_read(tallies, kind):
    tally = tallies[kind]
    assert tally.failures == []
    assert sum(tally.counts.values()) == (10 * COUNT if kind == "model" else COUNT)
    assert tally.counts["refused"] > 0.1 * COUNT


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_has_a_row_without_failures_for_every_kind_of_file(kind):
    page = PAGE.read_text(encoding="utf-8")
    assert page.startswith(INTRO + HEADER)
    row = next((line for line in page.splitlines() if line.startswith(f"| {kind} |")), "")
    assert row and "**" not in row, "run: make fuzz"


def test_the_page_keeps_the_rows_of_kinds_that_were_not_run(tmp_path):
    page = tmp_path / "page.md"
    write(page, [Tally("npz", False, Counter(refused=2)), Tally("npy", False, Counter(refused=1))], 0)
    write(page, [Tally("npz", False, Counter(equal=3))], 0)
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| np")]
    assert [line[:13] for line in rows] == ["| npy | 1 | 1", "| npz | 3 | 0"]


def test_the_fuzzer_notices_every_kind_of_failure():
    for tally in fuzz(dict.fromkeys(FAULTS, 1), seconds=2):
        assert [(index, found) for index, found, _ in tally.failures] == [(0, tally.kind)]
