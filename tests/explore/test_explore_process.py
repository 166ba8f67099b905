"""`standout explore` as a process: Ctrl-C, a machine without a browser, and a port that is taken."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

import numpy as np
import pytest

pytest.importorskip("starlette")
psutil = pytest.importorskip("psutil", reason="psutil lists the child processes")
VIEW = {"method": "dpca", "stop": 0, "x": 0, "y": 1, "on": [0]}
BARE = """
import asyncio, socket, uvicorn

async def app(scope, receive, send):
    pass

listening = socket.socket()
listening.bind(("127.0.0.1", 0))
server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="critical"))

async def main():
    serving = asyncio.create_task(server.serve([listening]))
    while not server.started:
        await asyncio.sleep(0.01)
    print("http://started", flush=True)
    await serving

asyncio.run(main())
"""


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for name, rows in (("target", 1200), ("background", 1500)):
        np.save(tmp_path / f"{name}.npy", rng.normal(size=(rows, 2000)))  # all stops take 15 s or more
        np.save(tmp_path / f"small {name}.npy", rng.normal(size=(rows // 10, 6)))
    return tmp_path


@pytest.fixture
def start(folder):
    """Start a process that prints an address, and return both; the processes that are left at the end are killed."""
    started = []

    def begin(*words, size="small ", **environment):
        data = [f"{size}target.npy", "-b", f"{size}background.npy", "--quiet"]
        command = ["-m", "standout", "explore", *data, *words] if words else ["-c", BARE]
        process = subprocess.Popen(
            [sys.executable, *command], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, **environment},
        )  # fmt: skip
        started.append(process)
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, (line, process.communicate())
        return process, found.group()

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def cleanup():
    with contextlib.ExitStack() as stack:
        yield stack


def ask(url, path, given=None):
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
    with contextlib.closing(connection):
        connection.request("POST" if path else "GET", parts.path + path, json.dumps(given or {}) if path else None)
        answer = connection.getresponse()
        return answer.status, answer.read()


def interrupted(process):
    """Send Ctrl-C, and return the seconds until the process and all its children have ended."""
    children = psutil.Process(process.pid).children(recursive=True)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.wait(60)
    took = time.monotonic() - began
    assert psutil.wait_procs(children, timeout=5)[1] == []
    return took


def wait_until(true):
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("doing", ["nothing", "a permutation test", "long answers"])
def test_ctrl_c_stops_the_server_within_a_second(start, doing, cleanup):
    bare = interrupted(start()[0])  # what it takes here and now without any of our work
    process, url = start("--no-browser", "--port", "0", size="" if doing == "long answers" else "small ")
    parts = urlsplit(url)
    open_tab = cleanup.enter_context(socket.create_connection((parts.hostname, parts.port)))  # as browsers keep
    open_tab.sendall(f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
    threads, answers = [], []
    if doing == "a permutation test":
        ask(url, "api/start-test", {**VIEW, "permutations": 99_999})
        wait_until(lambda: json.loads(ask(url, "api/test", VIEW)[1])["share"] > 0)
        assert psutil.Process(process.pid).children()
    elif doing == "long answers":

        def move_the_dial(method):
            with contextlib.suppress(OSError, http.client.HTTPException):
                if ask(url, "api/stops", {**VIEW, "method": method})[0] == 200:
                    answers.append(method)

        busy = psutil.Process(process.pid)
        before = sum(busy.cpu_times()[:2])
        threads = [threading.Thread(target=move_the_dial, args=(method,)) for method in ("cpca", "dpca")]
        for each in threads:
            each.start()
        wait_until(lambda: sum(busy.cpu_times()[:2]) > before + 0.3)
    took = interrupted(process)
    for each in threads:
        each.join()
    assert answers == []  # they were still being computed
    printed, complaints = process.stdout.read(), process.stderr.read()
    assert process.returncode == 0 and printed.endswith("Stopped.\n") and complaints == ""
    assert took < 1 + 3 * bare, f"{took:.2f} s, a bare server {bare:.2f} s"


def test_without_a_browser_the_address_is_printed_and_the_page_is_served(start):
    process, url = start("--port", "0", PATH="", BROWSER="/no/such/browser")
    assert process.stdout.readline() == "Press Ctrl-C to stop.\n"
    assert process.stdout.readline() == "No browser was found. Open the address in one.\n"
    status, page = ask(url, "")
    assert status == 200 and b"standout explorer" in page
    interrupted(process)
    assert process.returncode == 0


def test_the_browser_gets_the_address(start, tmp_path):
    script, opened = tmp_path / "browser", tmp_path / "opened"
    script.write_text(f'#!/bin/sh\nprintf %s "$1" > "{opened}"\n')
    script.chmod(0o755)
    process, url = start("--port", "0", BROWSER=f"{script} %s")
    wait_until(lambda: opened.exists() and opened.read_text() == url)
    interrupted(process)
    assert process.stdout.read() == "Press Ctrl-C to stop.\nStopped.\n"


def test_a_busy_port_takes_the_next_free_one(start):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        free = port + 1
        while True:  # the next one may be taken by another program
            try:
                socket.create_server(("127.0.0.1", free), reuse_port=False).close()
                break
            except OSError:
                free += 1
        process, url = start("--no-browser", "--port", str(port))
        assert urlsplit(url).port == free
        assert ask(url, "api/alive")[0] == 200
        interrupted(process)
