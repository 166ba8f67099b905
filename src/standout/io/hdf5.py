"""HDF5 files as stores, inspected in another process before they are read in this one.

In some damaged files the HDF5 library crashes or never returns, and nothing can interrupt it. So another process
(:mod:`standout.io.inspect_hdf5`) reads the structure of a file first. It is started once, takes some milliseconds for
a file, and is replaced if a file ends it. The numbers themselves are read here.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from standout.errors import InputError
from standout.io.arrays import Store

_SCRIPT = Path(__file__).with_name("inspect_hdf5.py")


class HDF5Store(Store):
    """An HDF5 file. Virtual arrays may refer to files in its directory; links to other files are not followed."""

    def open(self) -> Any:
        self.external  # noqa: B018
        return import_module("h5py").File(self.path, "r")

    @cached_property
    def external(self) -> tuple[str, ...]:
        """Links to other files, which are never followed; the file is inspected to find them."""
        found = _inspector.inspect(self.path)
        if "refused" in found:
            raise InputError(f"{self.location}: {found['refused']}.")
        if "error" in found:
            with import_module("h5py").File(self.path, "r"):  # for its own error, if there is one
                raise ValueError(found["error"])
        return tuple(found["external"])

    def check_links(self) -> None:
        """Raise an error for a file with links to others."""
        if self.external:
            problem = f"{self.external[0]!r} is a link to another file, which is not followed"
            remedy = "Copy its data into this file, for instance with h5py: file.copy(..., expand_external=True)"
            raise InputError(f"{self.location}: {problem}. {remedy}.")

    def check(self, item: Any) -> None:
        parts = [item]
        if hasattr(item, "visititems"):
            item.visititems(lambda _, part: parts.append(part))
        for array in parts:
            if getattr(array, "shape", None) is not None:
                self.check_size(array)


class _Inspector:
    """The process that inspects files, started with the module, so that it imports h5py while this process does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begin()
        atexit.register(self.stop)

    def _begin(self) -> None:
        self._child: subprocess.Popen[str] | None = None
        self._is_ready, self._owner = False, os.getpid()
        if sys.executable and not getattr(sys, "frozen", False):
            # Without the packages of the site, which take longer to load than h5py; they are found by the path.
            code = f"import sys; sys.path[:] = {sys.path!r}; exec(open({str(_SCRIPT)!r}).read())"
            command, pipe = [sys.executable, "-ES", "-c", code], subprocess.PIPE
            # glibc would reserve memory for the thread of the time limit, as much as a file may take.
            variables = {**os.environ, "MALLOC_ARENA_MAX": "1"}
            with suppress(OSError):
                self._child = subprocess.Popen(
                    command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=variables
                )

    def inspect(self, path: Path) -> dict[str, Any]:
        """Return what the process found in a file; no links if it cannot be started."""
        if self._owner != os.getpid():  # a fork must not use the process of its parent
            self._lock = threading.Lock()
            self._begin()
        with self._lock:
            line = ""
            try:
                self._is_ready = self._is_ready or self._ask("") != ""
                line = self._ask(json.dumps(str(path.absolute())) + "\n") if self._is_ready else '{"external": []}'
            finally:
                if not line:  # it has ended, or may answer later
                    self.stop()
                    self._begin()
        if not line:
            raise ValueError("the HDF5 library crashes or does not return when it reads its structure")
        found: dict[str, Any] = json.loads(line)
        return found

    def _ask(self, question: str) -> str:
        """Return the next line of the process; "" if it has ended."""
        if self._child is None or self._child.stdin is None or self._child.stdout is None:
            return ""
        with suppress(OSError):
            self._child.stdin.write(question)
            self._child.stdin.flush()
        return self._child.stdout.readline()

    def stop(self) -> None:
        """End the process."""
        if self._child is not None and self._owner == os.getpid():
            self._child.kill()
            self._child.communicate()


_inspector = _Inspector()
