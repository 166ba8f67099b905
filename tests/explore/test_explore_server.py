"""The server: whom it refuses, what it sends, and that it writes nothing."""

import http.client
import json
import os
import socket
import threading
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
import pytest

import standout
from standout import DPCA, explore
from standout.errors import InputError

pytest.importorskip("starlette")
pytestmark = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")

HOSTILE = ("<script>alert(1)</script>", "\"'><img src=x onerror=alert(1)>", "a‮b⁦c", "x" * 1_000_000, "=cmd|'/c calc'!A1")


def make(rows=80, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, 5)) * [1, 1, 4, 1, 1], rng.normal(size=(2 * rows, 5))


@pytest.fixture(scope="module")
def explorer():
    target, background = make()
    names = [f"f{i}" for i in range(5)]
    frame = pd.DataFrame(target, columns=names)
    with explore(frame, pd.DataFrame(background, columns=names), labels=["u", "v"] * 40, open_browser=False) as opened:
        yield opened


def ask(explorer, path, given=None, *, token=True, method="POST", **headers):
    """Return status, headers and content of an answer."""
    parts = urlsplit(explorer.url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
    body = None if method == "GET" else json.dumps(given or {})
    prefix = parts.path if token is True else f"/{token}/" if token else "/"
    send = {"Host": parts.netloc, **headers}
    connection.request(method, prefix + path, body, send)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, {key.lower(): value for key, value in answer.getheaders()}, content


VIEW = {"method": "dpca", "stop": 0, "x": 0, "y": 1, "on": [0]}


def test_it_listens_on_the_loopback_interface_only(explorer):
    parts = urlsplit(explorer.url)
    assert parts.hostname == "127.0.0.1"
    others = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)} - {
        "127.0.0.1",
        "127.0.1.1",
    }
    for address in others:
        with pytest.raises(ConnectionError):
            socket.create_connection((address, parts.port), timeout=1).close()


@pytest.mark.parametrize("path", ["", "explore.js", "plotly.js", "api/session", "export/scores.csv"])
@pytest.mark.parametrize("token", [None, "wrong", "x" * 32])
def test_every_request_without_the_token_is_refused(explorer, path, token):
    for method in ("GET", "POST"):
        status, _, content = ask(explorer, path, token=token, method=method)
        assert status == 403
        assert b"token" in content and urlsplit(explorer.url).path.strip("/").encode() not in content


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1", "localhost:1", "", "127.0.0.1.nip.io:8765"]
)
def test_another_host_is_refused_so_that_dns_cannot_be_rebound(explorer, host):
    assert ask(explorer, "", method="GET", Host=host)[0] == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1:1"])
def test_requests_of_other_pages_are_refused(explorer, origin):
    assert ask(explorer, "api/session", Origin=origin)[0] == 403


def test_requests_of_the_page_itself_are_answered(explorer):
    parts = urlsplit(explorer.url)
    status, headers, _ = ask(explorer, "api/session", Origin=f"http://{parts.netloc}")
    assert status == 200
    assert not [name for name in headers if name.startswith("access-control-")]
    assert ask(explorer, "api/session", Host=f"localhost:{parts.port}")[0] == 200


def test_the_policy_allows_nothing_from_elsewhere_and_no_inline_script(explorer):
    _, headers, page = ask(explorer, "", method="GET")
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self' 'unsafe-eval'"
    assert policy["connect-src"] == "'self'" and policy["frame-ancestors"] == "'none'"
    assert "http" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
    assert b"http:" not in page and b"https:" not in page and b"onclick" not in page


def test_evaluation_is_allowed_only_because_plotly_needs_it(explorer):
    script = ask(explorer, "plotly.js", method="GET")[2]
    assert b"Function.apply(null," in script  # once this is gone, remove 'unsafe-eval' from the policy
    for name in ("explore.js", "views.js", "api.js", "state.js"):
        script = ask(explorer, name, method="GET")[2]
        assert b"eval(" not in script and b"Function(" not in script and b"innerHTML" not in script


@pytest.mark.parametrize(
    "path",
    [
        "../session.py",
        "%2e%2e/session.py",
        "..%2f..%2fetc/passwd",
        "api/../session.py",
        "session.py",
        "api/nothing",
        "export/passwd",
    ],
)
def test_only_the_page_and_the_given_data_can_be_read(explorer, path):
    assert ask(explorer, path, method="GET")[0] in (404, 405)
    assert ask(explorer, path)[0] in (404, 405)


def test_large_requests_are_refused_before_they_are_read(explorer):
    assert ask(explorer, "api/session", **{"Content-Length": "2000000"})[0] == 413
    assert ask(explorer, "api/session", **{"Transfer-Encoding": "chunked"})[0] in (400, 413)


@pytest.mark.parametrize(
    "given",
    [
        {}, {**VIEW, "method": "nothing"}, {**VIEW, "stop": 10_000}, {**VIEW, "stop": -1}, {**VIEW, "x": 99},
        {**VIEW, "y": -2}, {**VIEW, "on": []}, {**VIEW, "on": [7]}, {**VIEW, "on": "all"}, {**VIEW, "x": 1.5},
        {**VIEW, "x": True}, {**VIEW, "stop": "0"},
    ],
)  # fmt: skip
def test_wrong_views_are_answered_with_a_message(explorer, given):
    for name in ("points", "describe", "verdict", "code"):
        status, _, content = ask(explorer, f"api/{name}", given)
        assert status == 200
        assert json.loads(content)["refused"]


def test_what_is_not_json_is_refused(explorer):
    parts = urlsplit(explorer.url)
    for body in (b"{", b"[1]", b"\xff\xfe", b'"text"'):
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
        connection.request("POST", parts.path + "api/session", body, {"Host": parts.netloc})
        assert connection.getresponse().status == 400
        connection.close()


def test_hostile_names_reach_the_page_cut_and_without_control_characters():
    target, background = make()
    names = list(HOSTILE)
    frame, other = pd.DataFrame(target, columns=names), pd.DataFrame(background, columns=names)
    with explore(
        frame,
        {HOSTILE[0]: other, HOSTILE[2]: other.iloc[:50]},
        labels=list(HOSTILE) * 16,
        title=HOSTILE[1],
        open_browser=False,
    ) as opened:
        texts = b""
        for name, given in (
            ("session", {}),
            ("describe", {**VIEW, "on": [0, 1]}),
            ("verdict", {**VIEW, "on": [0, 1]}),
            ("colour", {"column": "label"}),
        ):
            status, headers, content = ask(opened, f"api/{name}", given)
            assert status == 200 and headers["content-type"] == "application/json"
            texts += content if name != "colour" else json.dumps({**json.loads(content), "sets": None}).encode()
        assert len(texts) < 100_000
        assert "\u202e".encode() not in texts and b"\\u202e" not in texts
        long = sorted(HOSTILE).index("x" * 1_000_000)  # a request that named it would be too large
        found = ask(opened, "api/select", {"selection": {"kind": "label", "column": "label", "value": long}})[2]
        assert json.loads(found)["count"] == 16
        status, headers, content = ask(opened, "export/scores.csv", {**VIEW, "on": [0, 1]})
        assert headers["content-disposition"] == 'attachment; filename="scores.csv"'
        assert b"<script>" in content  # a file keeps the names as they are


def test_exports_are_what_the_library_writes(explorer, tmp_path):
    target, background = make()
    names = [f"f{i}" for i in range(5)]
    frame, other = pd.DataFrame(target, columns=names), pd.DataFrame(background, columns=names)
    model = DPCA().fit(frame, background=other)
    for suffix, read in (("csv", pd.read_csv), ("parquet", pd.read_parquet)):
        (tmp_path / f"scores.{suffix}").write_bytes(ask(explorer, f"export/scores.{suffix}", VIEW)[2])
        table = read(tmp_path / f"scores.{suffix}")
        assert table.dataset.tolist() == ["target"] * 80 + ["background"] * 160
        assert table.label[:2].tolist() == ["u", "v"]
        rows = table.dataset == "target"
        np.testing.assert_allclose(table.loc[rows, ["dpca0", "dpca1"]], model.transform(frame), rtol=1e-9, atol=1e-12)
    (tmp_path / "model.standout").write_bytes(ask(explorer, "export/model.standout", VIEW)[2])
    np.testing.assert_allclose(standout.load(tmp_path / "model.standout").ratios_, model.ratios_)
    assert b"<h1>" in ask(explorer, "export/report.html", VIEW)[2]


def test_the_selection_and_its_effects_are_exported(explorer, tmp_path):
    label = {"kind": "label", "column": "label", "value": 1}
    (tmp_path / "selection.csv").write_bytes(ask(explorer, "export/selection.csv", {"first": label})[2])
    assert pd.read_csv(tmp_path / "selection.csv").row.tolist() == list(range(2, 81, 2))
    (tmp_path / "effects.csv").write_bytes(ask(explorer, "export/effects.csv", {"first": label, "second": None})[2])
    assert sorted(pd.read_csv(tmp_path / "effects.csv").feature) == [f"f{i}" for i in range(5)]


def test_the_code_repeats_what_is_on_the_screen(explorer):
    target, background = make()
    names = [f"f{i}" for i in range(5)]
    data = {"target": pd.DataFrame(target, columns=names), "background": pd.DataFrame(background, columns=names)}
    for view in (
        VIEW,
        {**VIEW, "stop": 12, "x": 2, "y": 0},
        {**VIEW, "method": "pca"},
        {**VIEW, "method": "cpca", "stop": 30},
        {**VIEW, "method": "signal", "y": -1},
    ):
        code = json.loads(ask(explorer, "api/code", view)[2])["python"]
        found = dict(data)
        exec(code, found)
        points = np.frombuffer(ask(explorer, "api/points", view)[2], "<f4")[:160].reshape(2, 80).T
        expected = found["scores"]
        np.testing.assert_allclose(points[:, : expected.shape[1]], expected, atol=2e-5)


def test_nothing_is_written_to_the_directory_of_the_server(explorer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("scores.csv", "report.html", "model.standout"):
        assert ask(explorer, f"export/{name}", VIEW)[0] == 200
    assert os.listdir(tmp_path) == []


def test_a_test_runs_while_the_page_responds_and_changes_the_verdict(explorer):
    before = json.loads(ask(explorer, "api/verdict", VIEW)[2])
    assert json.loads(ask(explorer, "api/start-test", {**VIEW, "permutations": 99})[2])["state"] == "running"
    assert ask(explorer, "api/points", VIEW)[0] == 200
    next(iter(explorer._server.tests.values())).wait(60)
    assert json.loads(ask(explorer, "api/test", VIEW)[2])["state"] == "done"
    after = json.loads(ask(explorer, "api/verdict", VIEW)[2])
    target, background = make()
    names = [f"f{i}" for i in range(5)]
    frame, other = pd.DataFrame(target, columns=names), pd.DataFrame(background, columns=names)
    expected = standout.assess(frame, other, n_permutations=99, n_bootstrap=0)
    assert before["headline"] != after["headline"] == expected.verdict().headline
    assert after["kind"] == "stands_out"


def test_a_test_can_be_cancelled_and_started_again():
    rng = np.random.default_rng(0)
    with explore(rng.normal(size=(300, 60)), rng.normal(size=(300, 60)), open_browser=False) as opened:
        ask(opened, "api/start-test", {**VIEW, "permutations": 99_999})
        (test,) = opened._server.tests.values()
        assert json.loads(ask(opened, "api/cancel-test", VIEW)[2])["state"] == "cancelled"
        assert test._process.poll() is not None
        assert json.loads(ask(opened, "api/start-test", {**VIEW, "permutations": 19})[2])["state"] == "running"
        (again,) = opened._server.tests.values()
        again.wait(60)
        assert again.state == "done"
        ask(opened, "api/start-test", {**VIEW, "permutations": 39})  # more permutations than before
        (more,) = opened._server.tests.values()
        more.wait(60)
        assert more.result.test.null.shape[1] == 39


def test_closing_stops_the_server_and_its_test():
    rng = np.random.default_rng(0)
    opened = explore(rng.normal(size=(300, 60)), rng.normal(size=(300, 60)), open_browser=False)
    ask(opened, "api/start-test", {**VIEW, "permutations": 99_999})
    (test,) = opened._server.tests.values()
    opened.close()
    test.wait(5)
    assert test._process.poll() is not None
    with pytest.raises(ConnectionError):
        ask(opened, "api/session")


def test_the_permutation_test_of_other_methods_is_refused(explorer):
    status, _, content = ask(explorer, "api/start-test", {**VIEW, "method": "cpca"})
    assert status == 200 and "dPCA" in json.loads(content)["refused"]


def test_a_busy_port_takes_the_next():
    target, background = make()
    with explore(target, background, open_browser=False, port=0) as one:
        port = urlsplit(one.url).port
        with explore(target, background, open_browser=False, port=port) as two:
            assert urlsplit(two.url).port != port
            assert ask(one, "api/session")[0] == ask(two, "api/session")[0] == 200


def test_many_tabs_ask_at_the_same_time(explorer):
    statuses = []

    def tab(number):
        statuses.extend(ask(explorer, "api/points", {**VIEW, "stop": (number + stop) % 40})[0] for stop in range(5))

    tabs = [threading.Thread(target=tab, args=(number,)) for number in range(10)]
    for each in tabs:
        each.start()
    for each in tabs:
        each.join()
    assert statuses == [200] * 50


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"background": None}, "background="), ({"estimator": object()}, "estimator"), ({"port": "x"}, "port"),
        ({"estimator": DPCA(background_label="b")}, "background_label"), ({"ids": [1, 2]}, "ids"),
        ({"labels": [1, 2]}, "label"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_before_a_page_opens(arguments, words):
    target, background = make()
    with pytest.raises(InputError, match=words):
        explore(target, **{"background": background, "open_browser": False, **arguments})
