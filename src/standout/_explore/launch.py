"""``standout.explore``: start the explorer and open it in the browser or in a notebook."""

from __future__ import annotations

import atexit
import os
import socket
import sys
import threading
import time
import webbrowser
from typing import Any
from urllib.parse import urlsplit

from standout._explore.session import Exploration, Origin
from standout.errors import InputError, StandoutError
from standout.plot._style import import_for

_PORT = 8765
# Ports tried after the first; then the system chooses one.
_TRIES = 20
_HEIGHT = 900
# Variables of kernels whose notebooks cannot show a page of the kernel's machine in a cell, but only a link to it.
_NO_FRAMES = (
    "VSCODE_PID", "VSCODE_CWD", "JUPYTERHUB_SERVICE_PREFIX", "COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE",
    "DATABRICKS_RUNTIME_VERSION",
)  # fmt: skip


def web_server() -> Any:
    """Return uvicorn; a package that is missing is reported before any row is read."""
    import_for("explorer pages", "starlette", "explore")
    return import_for("explorer pages", "uvicorn", "explore")


class Explorer:
    """A running explorer; it ends with ``close()``, with its context, or with the process.

    ``url`` is the address of the page, with the token without which every request is refused.

    Examples
    --------
    >>> from standout import datasets, explore
    >>> target, background = datasets.FactorModel().sample(100, 200)
    >>> with explore(target, background=background, open_browser=False) as explorer:
    ...     explorer.url.startswith("http://127.0.0.1:")
    True
    """

    def __init__(self, exploration: Exploration, port: int | None = None, *, embedded: bool = False):
        uvicorn = web_server()
        from standout._explore.server import Server

        self._embedded = embedded
        self._server = Server(exploration, embedded=embedded)
        self._socket = _listen(port)
        self.url = self._server.serve_at(self._socket.getsockname()[1])
        config = uvicorn.Config(
            self._server.app, log_level="critical", access_log=False, lifespan="off", server_header=False,
            timeout_graceful_shutdown=0, ws="none",
        )  # fmt: skip
        self._uvicorn = uvicorn.Server(config)
        self._stopped = threading.Event()  # Ctrl-C during the join of a thread marks the thread as stopped
        threading.Thread(target=self._run, daemon=True, name="standout-explorer").start()
        while not self._uvicorn.started and not self._stopped.is_set():
            time.sleep(0.005)
        if not self._uvicorn.started:
            raise StandoutError("the explorer could not start its server.")
        atexit.register(self.close)

    def _run(self) -> None:
        try:
            self._uvicorn.run(sockets=[self._socket])
        finally:
            self._socket.close()
            self._stopped.set()

    def close(self) -> None:
        """Stop the server and its tests."""
        self._server.close()
        self._uvicorn.should_exit = self._uvicorn.force_exit = True
        # The server closes its socket, and then waits for answers that are still being computed: nobody reads them.
        deadline = time.monotonic() + 1.0
        while self._socket.fileno() >= 0 and time.monotonic() < deadline:
            self._stopped.wait(0.01)
        self._stopped.wait(0.1)
        atexit.unregister(self.close)

    def wait(self) -> None:
        """Wait until the server stops, for instance by Ctrl-C."""
        while not self._stopped.wait(0.2):
            pass

    def __enter__(self) -> Explorer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Explorer({self.url!r})"

    def _repr_html_(self) -> str:
        port = urlsplit(self.url).port
        text = (
            f'<p><a href="{self.url}" target="_blank" rel="noopener">Open the explorer in a window.</a> It is served '
            "to the machine of this kernel only. If your browser runs on another one, forward the port first: "
            f"<code>ssh -L {port}:127.0.0.1:{port} HOST</code></p>"
        )
        size = f'width="100%" height="{_HEIGHT}" style="border: 0"'
        return text + (f'<iframe src="{self.url}" {size} title="standout explorer"></iframe>' if self._embedded else "")


def explore(
    target: Any,
    background: Any = None,
    *,
    estimator: Any = None,
    groups: Any = None,
    background_groups: Any = None,
    labels: Any = None,
    ids: Any = None,
    title: str | None = None,
    port: int | None = None,
    open_browser: bool | None = None,
) -> Explorer:
    """Open a local page that shows target and backgrounds in two linked plots, and answers questions about them.

    The page compares any two of PCA, dPCA and cPCA, moves along shrinkage or alpha, shows which features make selected
    rows different and whether the selection holds on other rows, runs the permutation test, and exports scores, model,
    report and code. It is served on this machine only, and loads nothing from the network.

    Parameters
    ----------
    target : path, array-like, frame, sparse matrix or Source, of shape (n_rows, n_features)
        The target.
    background : dataset, or list or dict of datasets
        The background(s), on the same features. The page can switch them off one by one.
    estimator : DPCA, CPCA or KernelDPCA, optional
        The method and parameters to begin with; ``DPCA()`` by default.
    groups, background_groups : array-like of shape (n_rows,), optional
        The subject of each row, as in :meth:`standout.DPCA.fit`.
    labels : array-like of shape (n_rows,) or dict of str to array-like, optional
        Columns that colour the target rows, besides those of the data that are not features.
    ids : array-like of shape (n_rows,), optional
        Names of the target rows.
    title : str, optional
        The heading of the page.
    port : int, optional
        Port of the server; by default 8765, or the next one that is free.
    open_browser : bool, optional
        Whether to open the page in the browser. By default yes, except in a notebook, which shows the page below the
        cell, or a link to it where that is not possible.

    Returns
    -------
    Explorer
        The running server: ``url`` is its address, and ``close()`` stops it. It also ends with the process.

    See Also
    --------
    standout.report : A page to keep, without a server.
    standout.assess : The tests behind the verdict.

    Examples
    --------
    >>> from standout import datasets, explore
    >>> target, background = datasets.FactorModel().sample(100, 200)
    >>> explorer = explore(target, background=background, open_browser=False)
    >>> explorer.close()
    """
    web_server()
    exploration = Exploration(
        target, background, estimator=estimator, groups=groups, background_groups=background_groups, labels=labels,
        ids=ids, title=title, origin=_origin(target, background),
    )  # fmt: skip
    notebook = _in_notebook()
    explorer = Explorer(exploration, port, embedded=notebook and not any(name in os.environ for name in _NO_FRAMES))
    if open_browser or (open_browser is None and not notebook):
        open_page(explorer.url)
    return explorer


def open_page(url: str) -> bool:
    """Open the page in the browser, and return whether one was found."""
    try:
        return webbrowser.open(url)
    except webbrowser.Error:
        return False


def _origin(target: Any, background: Any) -> Origin | None:
    """Return the code that reads the data again, where they were given as paths."""

    def code(data: Any, name: str) -> str:
        return repr(str(data)) if isinstance(data, str) or hasattr(data, "__fspath__") else name

    if isinstance(background, dict):
        parts = tuple(code(data, f"background[{key!r}]") for key, data in background.items())
    elif isinstance(background, list | tuple):
        parts = tuple(code(data, f"background[{number}]") for number, data in enumerate(background))
    else:
        parts = (code(background, "background"),)
    given = code(target, "target"), *parts
    return Origin(given[0], parts, from_python=not all(part[0] in "'\"" for part in given))


def _in_notebook() -> bool:
    """Return whether the code runs in a Jupyter kernel."""
    shell = sys.modules.get("IPython")
    current = shell.get_ipython() if shell is not None else None
    return type(current).__name__ == "ZMQInteractiveShell"


def _listen(port: int | None) -> socket.socket:
    """Return a socket on the loopback interface: at the port, or at the next one that is free."""
    first = _PORT if port is None else port
    if not (isinstance(first, int) and 0 <= first <= 65535):
        raise InputError(f"`port={port!r}` is not possible. Use a whole number from 0 to 65535.")
    for number in [*range(first, min(first + _TRIES, 65536)), 0]:
        opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            opened.bind(("127.0.0.1", number))
            opened.listen(128)
            return opened
        except OSError:
            opened.close()
    raise StandoutError("no port is free on this machine. Close some programs and try again.")
