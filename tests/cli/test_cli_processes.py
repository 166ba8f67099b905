"""The command line as a process: signals, terminals, pipes."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import standout

pytest.importorskip("click")


def command(*arguments, **more):
    return subprocess.Popen(
        [sys.executable, "-m", "standout", *map(str, arguments)], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more,
    )  # fmt: skip


@pytest.fixture
def slow_file(tmp_path):
    """A file that takes some seconds to read."""
    rng = np.random.default_rng(0)
    path = tmp_path / "big.csv"
    block = "\n".join(",".join(f"{value:.6f}" for value in row) for row in rng.normal(size=(2000, 50)))
    with path.open("w") as file:
        file.write(",".join(f"f{i}" for i in range(50)) + "\n")
        for _ in range(100):
            file.write(block + "\n")
    return path


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_command_leaves_the_old_output(slow_file, tmp_path, number, code):
    old = tmp_path / "scores.csv"
    old.write_text("old")
    process = command(
        "fit", slow_file, "-b", slow_file, "--scores", old, "--memory", "0", "-o", tmp_path / "m.standout"
    )
    drafts = lambda: [p for p in tmp_path.iterdir() if ".part" in p.name]  # noqa: E731
    deadline = time.monotonic() + 120
    while not drafts() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert drafts(), process.communicate()
    process.send_signal(number)
    _, printed = process.communicate(timeout=60)
    assert process.returncode == code, printed
    assert old.read_text() == "old" and not drafts()
    assert "Traceback" not in printed


def test_progress_is_shown_on_a_terminal_only(slow_file):
    # Without the delay of a second, because the time to read depends on the machine.
    code = "import sys, standout.cli.session as s; s._DELAY = 0.0; from standout.cli import main; sys.exit(main())"
    arguments = [sys.executable, "-c", code, "fit", str(slow_file), "-b", str(slow_file), "--memory", "0"]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    shown = b""
    while True:
        ready, _, _ = select.select([ours], [], [], 120)
        try:
            part = os.read(ours, 65536) if ready else b""
        except OSError:
            break
        if not part:
            break
        shown += part
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"big.csv" in shown and b"rows/s" in shown
    plain = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    assert plain.returncode == 0 and "rows/s" not in plain.stderr + plain.stdout


@pytest.mark.parametrize("redirect", [">&-", "2>&-"])
def test_closed_streams_are_not_an_error(files, done, redirect):
    done("fit", files / "target.csv", "-b", files / "background.csv", "-o", files / "m.standout")
    shown = f"{sys.executable} -m standout info {files / 'm.standout'} {redirect}"
    assert subprocess.run(shown, shell=True, timeout=60, stdout=subprocess.DEVNULL).returncode == 0


def test_an_interruption_during_imports_is_one_line(tmp_path):
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")
    printed = subprocess.run([sys.executable, "-m", "standout", "--help"], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": str(tmp_path)})  # fmt: skip
    assert printed.returncode == 130 and printed.stderr.count("\n") == 1


def test_a_closed_pipe_is_not_an_error(files, done):
    done("fit", files / "target.csv", "-b", files / "background.csv", "-o", files / "m.standout")
    printed = subprocess.run(f"{sys.executable} -m standout info {files / 'm.standout'} | head -c 1", shell=True,
                          capture_output=True, text=True, timeout=60)  # fmt: skip
    assert printed.stderr == ""


def test_the_script_and_the_module_are_the_same_command():
    script = Path(sys.executable).with_name("standout")
    version = f"standout, version {standout.__version__}\n"
    for arguments in ([str(script)], [sys.executable, "-m", "standout"]):
        printed = subprocess.run([*arguments, "--version"], capture_output=True, text=True, timeout=60)
        assert printed.stdout == version and printed.returncode == 0


def test_without_click_the_command_names_the_extra_to_install(tmp_path):
    (tmp_path / "click.py").write_text("raise ImportError('none', name='click')\n")
    printed = subprocess.run([sys.executable, "-m", "standout", "--help"], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": str(tmp_path)})  # fmt: skip
    assert printed.returncode == 2 and "pip install 'standout[cli]'" in printed.stderr


def test_a_command_ends_its_worker_processes(tmp_path):
    # A reader's thread that is still alive makes the process end at once; its workers must not keep stdout open.
    code = """
import sys
from concurrent.futures import ThreadPoolExecutor
from joblib import Parallel, delayed
from standout.cli import main
if __name__ == "__main__":
    Parallel(2)(delayed(abs)(i) for i in range(4))
    ThreadPoolExecutor().submit(abs, 1)
    sys.argv = ["standout", "--version"]
    sys.exit(main())
"""
    script = tmp_path / "script.py"
    script.write_text(code, encoding="utf-8")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=True)
    assert "standout" in done.stdout and done.stderr == ""
