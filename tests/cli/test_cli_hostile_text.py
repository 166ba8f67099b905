"""Text from files cannot control the terminal: the command line and summaries print control characters as escapes."""

import csv
import json
import os
import pty
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import standout
from standout.errors import visible

# Set the title of the window, clear the screen, move the cursor; the one-byte form of ESC [; right to left; new lines.
HOSTILE = (
    "\x1b]0;owned\x07",
    "\x1b[2J\x1b[H",
    "\x9b31mred",
    "gene\u202eeneg",
    "a\rb",
    "a\nStands out: b",
    "\x7f\x08\u2066x",
)
CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
SOURCE = Path(standout.__file__).parent


@pytest.fixture
def hostile(tmp_path):
    """Tables whose columns, labels, ids and file names are hostile."""
    rng = np.random.default_rng(0)
    target, background = rng.normal(size=(60, 7)), rng.normal(size=(80, 7))
    target[:, 0] *= 6
    frame = pd.DataFrame(target, columns=list(HOSTILE)).assign(**{"kind\x1b[1m": (HOSTILE * 9)[:60], "id": "\x1b[3m"})
    frame.to_csv(tmp_path / "target\x1b[5m.csv", index=False, quoting=csv.QUOTE_ALL)
    for name in ("one\x1b[5m.csv", "two\nStands out.csv"):
        pd.DataFrame(background, columns=list(HOSTILE)).to_csv(tmp_path / name, index=False, quoting=csv.QUOTE_ALL)
    return tmp_path


@pytest.fixture
def run(cli, monkeypatch):
    """Return a function that runs a command in a directory, and returns what it prints, without control characters."""

    def run_in(folder, *words, code=0):
        monkeypatch.chdir(folder)
        found = cli(*words)
        assert found.code == code, found.err
        assert CONTROLS.findall(found.out + found.err) == []
        return found.out + found.err

    return run_in


FILES = ("target\x1b[5m.csv", "-b", "one\x1b[5m.csv", "-b", "two\nStands out.csv", "--label", "kind\x1b[1m")


@pytest.mark.parametrize(
    "words",
    [
        ("fit", "-o", "model\x1b[7m.standout", "--report", "page\nStands out.html", "--scores", "scores.csv"),
        ("test", "--permutations", "19", "--bootstrap", "5", "--folds", "2"),
        ("compare",),
        ("fit", "--json"),
    ],
    ids=" ".join,
)
def test_results_are_printed_with_escapes(hostile, words, run):
    text = run(hostile, words[0], *FILES, *words[1:])
    assert "\\u001b]0;owned\\u0007" in text or words[0] == "compare"
    assert not [line for line in text.split("\n") if line.startswith("Stands out")]
    if "--json" in words:
        found = json.loads(text[: text.rindex("}") + 1])
        tops = [top["feature"] for top in found["model"]["components"][0]["top_features"]]
        assert set(tops) <= set(HOSTILE)  # a program that reads the JSON gets the names as they are
    if "-o" in words:
        assert "model\\u001b[7m.standout" in text
        assert "\\u001b]0;owned" in run(hostile, "info", "model\x1b[7m.standout")
        run(hostile, "info", "model\x1b[7m.standout", "--methods")
        run(hostile, "embed", "model\x1b[7m.standout", FILES[0], "-o", "again\x1b[7m.csv")
        run(hostile, "denoise", "model\x1b[7m.standout", FILES[0], "-o", "specific.csv")


@pytest.mark.parametrize(
    "words",
    [
        ("fit", "nothing\x1b[5m.csv", "-b", "one\x1b[5m.csv"),
        ("fit", FILES[0], "-b", "one\x1b[5m.csv", "--label", "no\x9b31m"),
        ("fit", FILES[0], "--by", "kind\x1b[1m", "-b", "\x1b]0;owned\x07,no such\x1b[2J"),
        ("fit", FILES[0], "-b", "one\x1b[5m.csv", "--key\x1b[2J", "x"),
        ("fit", FILES[0], "-b", "one\x1b[5m.csv", "--features", "\x1b[2J*", "--debug"),
        ("\x1b[2J",),
        ("explore", FILES[0], "-b", "one\x1b[5m.csv", "--groups", "\x1b[2J"),
    ],
    ids=ascii,
)
def test_errors_are_printed_with_escapes(hostile, words, run):
    assert "standout: " in run(hostile, *words, code=2)


def test_a_file_name_that_is_not_valid_text_is_printed(hostile):
    name = os.fsencode(str(hostile)) + b"/caf\xe9.csv"
    Path(os.fsdecode(name)).write_bytes((hostile / "one\x1b[5m.csv").read_bytes())
    done = subprocess.run(
        [sys.executable, "-m", "standout", "fit", name, "-b", hostile / "one\x1b[5m.csv", "--label", "no"],
        capture_output=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2 and b"caf\\udce9.csv" in done.stderr and b"Traceback" not in done.stderr


def test_progress_is_shown_with_escapes(hostile):
    code = "import sys, standout.cli.session as s; s._DELAY = 0.0; from standout.cli import main; sys.exit(main())"
    ours, theirs = pty.openpty()
    words = ["fit", *FILES, "--memory", "0"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words], cwd=hostile, stdout=subprocess.DEVNULL, stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "200"},
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    while part := _read(ours):
        shown += part
    process.wait(60)
    assert process.returncode == 0
    assert b"\\u001b[5m.csv" in shown and b"\x1b[5m" not in shown


def _read(terminal):
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end was closed
        return b""


def test_tables_copy_text_of_the_input_as_it_is_and_add_only_numbers(tmp_path, run):
    # Spreadsheets run cells that begin with =, +, - or @. They are in columns that the input had, and nowhere else.
    formulas = ["=HYPERLINK(A1)", "+1+1", "-2+3", "@SUM(A1)", "=cmd|'/c calc'!A0", '"=1"', "\t=1"]
    rng = np.random.default_rng(0)
    for name, rows in (("target", 70), ("background", 90)):
        frame = pd.DataFrame(rng.normal(size=(rows, 4)), columns=["=a", "+b", "-c", "@d"])
        frame.assign(id=(formulas * 13)[:rows], kind=(formulas[::-1] * 13)[:rows]).to_csv(
            tmp_path / f"{name}.csv", index=False
        )
    files = ["target.csv", "-b", "background.csv", "--ids", "id", "--label", "kind"]
    run(tmp_path, "fit", *files, "-o", "m.standout", "--scores", "scores.csv")
    run(tmp_path, "embed", "m.standout", "target.csv", "-o", "embedded.csv")
    run(tmp_path, "denoise", "m.standout", "target.csv", "-o", "denoised.csv")
    given = pd.read_csv(tmp_path / "target.csv", dtype=str)
    for name, extra in (("scores", ["dataset"]), ("embedded", []), ("denoised", [])):
        table = pd.read_csv(tmp_path / f"{name}.csv")
        for column in ("id", "kind"):
            assert table[column][:70].tolist() == given[column].tolist()
        rest = table.drop(columns=["id", "kind", *extra])
        assert all(kind.kind in "if" for kind in rest.dtypes)


def test_summaries_and_warnings_in_python_hold_no_control_characters(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 7)), columns=list(HOSTILE))
    other = pd.DataFrame(rng.normal(size=(80, 7)), columns=list(HOSTILE))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = standout.DPCA().fit(frame, background={"u\x1b[2J": other, "v\nStands out": other.iloc[:50]})
        frame.assign(**{"\x1b[4m": "text"}).to_csv(tmp_path / "frame.csv", index=False, quoting=csv.QUOTE_ALL)
        standout.read(tmp_path / "frame.csv")
        stable = standout.stability(frame, other, n_bootstrap=3)
    texts = [str(model.summary()), repr(model.summary()), model.methods_text(), str(stable.summary())]
    texts += [str(each.message) for each in caught if issubclass(each.category, standout.errors.StandoutWarning)]
    assert any("\\u001b[4m" in text or "\\x1b[4m" in text for text in texts)
    assert "Stands out: b" not in texts[0].split("\n") and "\\u001b]0;owned" in texts[3]
    assert [CONTROLS.findall(text) for text in texts] == [[]] * len(texts)


def test_every_control_character_is_escaped_and_all_other_text_is_kept():
    kept = "\n äß∞ λ ‖·‖ 中文 עברית 🙂 👩‍🔬 `a` \\x1b"
    assert visible(kept) == kept
    for code in [*range(10), *range(11, 32), *range(127, 160), 0x202E, 0x2066, 0x200F, 0xD800]:
        assert visible(chr(code)) == f"\\u{code:04x}"


def test_the_command_line_prints_in_one_place_only():
    found = [
        path.name
        for path in sorted((SOURCE / "cli").glob("*.py"))
        for _ in re.findall(r"(?m)click\.s?echo\(|^ *print\(", path.read_text())
    ]
    assert found == ["session.py"]
