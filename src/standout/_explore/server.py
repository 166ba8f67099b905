"""The server of the page: what it answers, and whom it refuses.

Every address starts with a random token, without which every request is refused. Host and Origin must be this server's,
so that no other page can reach it through a name that resolves to this machine. The server reads nothing but the data
it was given, and writes nothing; files are made in a temporary directory and sent as downloads.
"""

from __future__ import annotations

import json
import secrets
import tempfile
import threading
from collections.abc import Awaitable, Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route

from standout._explore import export
from standout._explore.background_test import BackgroundTest
from standout._explore.session import TITLES, Exploration, View, shown, shown_text
from standout._report.report import plotly_script
from standout._summary import plain
from standout._version import __version__
from standout.errors import StandoutError
from standout.plot._style import COLORS, GREYS, MISSING, SYMBOLS

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
# 'unsafe-eval': regl, the part of plotly.js that draws scattergl traces, makes JavaScript functions from text with the
# constructor of functions. Its arguments are its own templates, not names or values of the data.
# 'unsafe-inline' for styles: plotly sets the style attributes of its elements.
_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors {ancestors}"
)
# Requests are small: a lasso has a few hundred corners.
_LARGEST_REQUEST = 1_000_000
_MOST_CLASSES = 40
_EXPORTS = {
    "scores.csv": "text/csv", "scores.parquet": "application/vnd.apache.parquet", "selection.csv": "text/csv",
    "effects.csv": "text/csv", "report.html": "text/html", "model.standout": "application/octet-stream",
}  # fmt: skip

Handler = Callable[["Server", dict[str, Any]], Any]


class Server:
    """The application, and the test that it runs."""

    def __init__(self, exploration: Exploration, *, embedded: bool = False):
        self.exploration = exploration
        self.token = secrets.token_urlsafe(24)
        self.hosts: frozenset[str] = frozenset()  # set when the port is known
        self.tests: dict[Any, BackgroundTest] = {}
        self.starting = threading.Lock()  # two windows may start a test at the same time
        self.policy = _POLICY.format(ancestors="http://127.0.0.1:* http://localhost:*" if embedded else "'none'")
        page = files("standout._explore") / "page"
        self.assets = {item.name: item.read_bytes() for item in page.iterdir() if Path(item.name).suffix in _TYPES}
        self.assets["plotly.js"] = plotly_script().encode()
        routes = [
            Route("/", self._asset, name="page"),
            Route("/api/{name}", self._call, methods=["POST"]),
            Route("/export/{name}", self._export, methods=["POST"]),
            Route("/{name}", self._asset),
        ]
        self.app = self._guarded(Starlette(routes=[Mount(f"/{self.token}", routes=routes)]))

    def serve_at(self, port: int) -> str:
        """Allow requests to this port, and return the address of the page."""
        self.hosts = frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost"))
        return f"http://127.0.0.1:{port}/{self.token}/"

    def close(self) -> None:
        """Stop the tests."""
        for test in self.tests.values():
            test.cancel()

    def _guarded(self, app: Any) -> Callable[[Any, Any, Any], Awaitable[None]]:
        """Refuse requests from elsewhere, and add the headers that forbid the page to load anything from elsewhere."""
        headers = {
            b"content-security-policy": self.policy.encode(),
            b"x-content-type-options": b"nosniff",
            b"referrer-policy": b"no-referrer",
            b"cross-origin-resource-policy": b"same-origin",
            b"cross-origin-opener-policy": b"same-origin",
            b"cache-control": b"no-store",
        }

        async def guarded(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "lifespan":
                await app(scope, receive, send)
                return
            if scope["type"] != "http":
                return

            async def send_guarded(message: Any) -> None:
                if message["type"] == "http.response.start":
                    message["headers"] = [*message.get("headers", []), *headers.items()]
                await send(message)

            given: dict[bytes, str] = {}
            for key, value in scope["headers"]:
                given.setdefault(key, value.decode("latin-1"))
            refused = self._refusal(scope["path"], given)
            await (app if refused is None else refused)(scope, receive, send_guarded)

        return guarded

    def _refusal(self, path: str, headers: dict[bytes, str]) -> Response | None:
        """Return the answer to a request that is refused, or None."""
        host, origin = headers.get(b"host", ""), headers.get(b"origin")
        if host not in self.hosts:
            return PlainTextResponse("Unknown host.", 421)
        if origin is not None and origin not in {f"http://{name}" for name in self.hosts}:
            return PlainTextResponse("Requests from other pages are refused.", 403)
        if not secrets.compare_digest(path.split("/")[1].encode(), self.token.encode()):
            return PlainTextResponse("The address lacks the token that standout printed.", 403)
        size = headers.get(b"content-length", "0")
        if not size.isdecimal() or int(size) > _LARGEST_REQUEST or b"transfer-encoding" in headers:
            return PlainTextResponse("The request is too large.", 413)
        return None

    async def _asset(self, request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in self.assets:
            return PlainTextResponse("Not found.", 404)
        return Response(self.assets[name], media_type=_TYPES[Path(name).suffix])

    async def _call(self, request: Request) -> Response:
        handler = _CALLS.get(request.path_params["name"])
        if handler is None:
            return PlainTextResponse("Not found.", 404)
        return await self._answer(request, lambda given: handler(self, given))

    async def _export(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _EXPORTS:
            return PlainTextResponse("Not found.", 404)
        return await self._answer(request, lambda given: self._file(name, given))

    async def _answer(self, request: Request, handle: Callable[[dict[str, Any]], Any]) -> Response:
        """Return the result of a handler as JSON or as it is; errors of the library become messages."""
        try:
            given = json.loads(await request.body() or b"{}")
            if not isinstance(given, dict):
                raise ValueError("not an object")
        except ValueError:
            return PlainTextResponse("The request is not a JSON object.", 400)
        try:
            result = await run_in_threadpool(handle, given)
        except StandoutError as error:  # a message for the person, not a fault of the page
            return JSONResponse({"refused": shown_text(str(error))})
        except MemoryError:
            return JSONResponse({"refused": "Not enough memory for this step. Use fewer rows or features."})
        return result if isinstance(result, Response) else JSONResponse(plain(result))

    def view(self, given: dict[str, Any]) -> View:
        """Return the view that a request names."""
        return self.exploration.view(*(given.get(name) for name in ("method", "stop", "x", "y", "on")))

    def _file(self, name: str, given: dict[str, Any]) -> Response:
        """Return a file to download."""
        data = self.exploration
        with tempfile.TemporaryDirectory(prefix="standout-") as folder:
            file = Path(folder) / name
            if name == "selection.csv":
                export.write_selection(data, given.get("first"), file)
            elif name == "effects.csv":
                export.write_effects(data, given.get("first"), given.get("second"), file)
            else:
                view = self.view(given)
                if name == "report.html":
                    export.write_report(data, view, file, self.assessment(view))
                elif name == "model.standout":
                    export.write_model(data, view, file)
                else:
                    export.write_scores(data, view, file)
            content = file.read_bytes()
        return Response(
            content, media_type=_EXPORTS[name], headers={"content-disposition": f'attachment; filename="{name}"'}
        )

    def assessment(self, view: View) -> Any:
        """Return the result of the test of a view, if it was run."""
        test = self.tests.get(view.model)
        return None if test is None else test.result


def _session(server: Server, _: dict[str, Any]) -> dict[str, Any]:
    """Return what does not change: datasets, columns, methods, colours."""
    data = server.exploration
    return {
        "title": shown(data.title),
        "version": __version__,
        "datasets": [
            {"name": shown(rows.name), "rows": rows.n_rows, "drawn": len(rows.drawn)} for rows in data.rows
        ],
        "columns": [{"key": name, "name": shown(name)} for name in data.columns],
        "features": len(data.feature_names),
        "feature_names": [shown(name) for name in data.feature_names[:2000]],
        "methods": {key: {"title": title, "has_dial": key in ("dpca", "cpca")} for key, title in data.methods.items()},
        "method": data.default_method,
        "colors": COLORS, "greys": GREYS, "missing": MISSING, "symbols": SYMBOLS,
    }  # fmt: skip


def _stops(server: Server, given: dict[str, Any]) -> dict[str, Any]:
    """Return the stops of a dial; the first call computes them."""
    view = server.view({**given, "stop": 0, "x": 0, "y": -1})
    found = server.exploration.stops(view.method, view.on)
    return {"parameter": found.parameter, "values": found.values, "representatives": found.representatives}


def _describe(server: Server, given: dict[str, Any]) -> dict[str, Any]:
    """Return the ratios and patterns of a view."""
    return {**server.exploration.describe(server.view(given)), "title": TITLES[str(given.get("method"))]}


def _colour(server: Server, given: dict[str, Any]) -> dict[str, Any]:
    """Return the classes or the numbers of a column, for the drawn rows of every dataset."""
    data = server.exploration
    found = data.colour(str(given.get("column")))
    names = list(dict.fromkeys(name for labels in found if labels is not None for name in labels.names))
    sizes = dict.fromkeys(names, 0)
    target = found[0]
    if target is not None and target.numbers is None:
        counts = np.bincount(target.codes[target.codes >= 0], minlength=len(target.names))
        sizes |= dict(zip(target.names, counts.tolist(), strict=True))
    kept = sorted(names, key=lambda name: (-sizes[name], names.index(name)))[:_MOST_CLASSES]
    kept = [name for name in names if name in set(kept)]
    number = {name: position for position, name in enumerate(kept)}
    sets: list[Any] = []
    for labels, rows in zip(found, data.rows, strict=True):
        if labels is None:
            sets.append(None)
        elif labels.numbers is not None:
            sets.append({"numbers": labels.numbers[rows.drawn]})
        else:
            codes = np.array([number.get(name, len(kept)) for name in labels.names] + [-1])
            sets.append({"codes": codes[labels.codes[rows.drawn]]})
    return {
        "classes": [shown(name) for name in kept],
        # Numbers of the target's classes: names may be long. None if the target has no such rows.
        "values": [target.names.index(name) if target is not None and sizes[name] else None for name in kept],
        "counts": [sizes[name] for name in kept],
        "others": len(names) - len(kept),
        "sets": sets,
    }


def _ids(server: Server, _: dict[str, Any]) -> list[list[str]]:
    """Return the names of the drawn rows, for the labels at the pointer."""
    data = server.exploration
    return [
        [f"row {row + 1}" for row in rows.drawn.tolist()] if ids is None else [shown(name) for name in ids[rows.drawn]]
        for ids, rows in zip(data.ids, data.rows, strict=True)
    ]


def _verdict(server: Server, given: dict[str, Any]) -> dict[str, Any]:
    """Return the verdict of the library on a view, with the result of its test if there is one."""
    view = server.view(given)
    assessment = server.assessment(view)
    found, spell = server.exploration.judge(view, assessment), server.exploration.origin.spell
    summary = (
        None if assessment is None else [shown_text(spell(line)) for line in str(assessment.summary()).splitlines()]
    )
    return {**found, "reasons": [shown_text(text) for text in found["reasons"]], "summary": summary}


def _select(server: Server, given: dict[str, Any]) -> dict[str, Any]:
    """Return the number of selected target rows, and which of them are drawn."""
    data = server.exploration
    mask = data.select(given.get("selection"))[0]
    rows = data.rows[0]
    found = {"count": int(mask.sum()), "total": rows.n_rows, "drawn": np.flatnonzero(mask[rows.drawn])}
    if rows.units.ids:
        found["units"] = len(np.unique(rows.units.rows[mask]))
    return found


def _start_test(server: Server, given: dict[str, Any]) -> dict[str, Any]:
    """Start the test of a view, unless it runs."""
    view = server.view(given)
    job = export.test_job(server.exploration, view, given.get("permutations", 999))
    with server.starting:
        running = server.tests.get(view.model)
        if running is None or running.state != "running":
            for other in server.tests.values():  # one at a time
                if other.state == "running":
                    other.cancel()
            server.tests[view.model] = BackgroundTest(job)
    return _test(server, given)


def _test(server: Server, given: dict[str, Any]) -> dict[str, Any]:
    """Return the state of the test of a view."""
    test = server.tests.get(server.view(given).model)
    if test is None:
        return {"state": "none"}
    return {"state": test.state, "what": test.what, "share": test.share, "error": test.error}


def _cancel(server: Server, given: dict[str, Any]) -> dict[str, Any]:
    """Cancel the test of a view."""
    test = server.tests.get(server.view(given).model)
    if test is not None:
        test.cancel()
    return _test(server, given)


def _code(server: Server, given: dict[str, Any]) -> dict[str, Any]:
    """Return the Python code and the command that repeat a view."""
    view, data = server.view(given), server.exploration
    command = data.origin.command
    return {"python": export.code(data, view), "command": command(data, view, "fit") if command else None}


_CALLS: dict[str, Handler] = {
    "session": _session, "stops": _stops, "describe": _describe, "colour": _colour, "ids": _ids,
    "verdict": _verdict, "select": _select, "start-test": _start_test,
    "test": _test, "cancel-test": _cancel, "code": _code,
    "points": lambda server, given: Response(
        server.exploration.points(server.view(given)), media_type="application/octet-stream"
    ),
    "compare": lambda server, given: server.exploration.compare(given.get("first"), given.get("second")),
    "check": lambda server, given: server.exploration.check(given.get("selection")),
    "alive": lambda _server, _given: {"alive": True},
}  # fmt: skip
