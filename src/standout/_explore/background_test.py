"""The permutation test of the page, in a process of its own, so that it can be cancelled and the page stays quick.

The process gets the arguments of :func:`standout.assess` on standard input, writes its progress and the result to
standard output, and ends when its standard input is closed: it does not outlive the server.
"""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from typing import IO, Any

from standout.errors import StandoutError, without_warnings
from standout.inference.assess import Assessment, assess
from standout.io.source import Progress, watching


class BackgroundTest:
    """A running test: its progress, and at the end its result or an error."""

    def __init__(self, job: dict[str, Any]):
        self.what, self.share = "starting", 0.0
        self.result: Assessment | None = None
        self.error: str | None = None
        self.cancelled = False
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment,
            start_new_session=True,  # Ctrl-C goes to the server, which stops the test
        )  # fmt: skip
        self._thread = threading.Thread(target=self._watch, args=(job,), daemon=True)
        self._thread.start()

    @property
    def state(self) -> str:
        """Return "running", "done", "cancelled" or "failed"."""
        if self.result is not None:
            return "done"
        if self.cancelled:
            return "cancelled"
        return "failed" if self.error is not None else "running"

    def cancel(self) -> None:
        """Stop the test; a test that has ended stays as it is."""
        if self.state == "running":
            self.cancelled = True
        self._process.kill()
        self._process.wait()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the test has ended."""
        self._thread.join(seconds)

    def _watch(self, job: dict[str, Any]) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            _send(self._process.stdin, job)
            while (message := _receive(self._process.stdout)) is not None:
                kind, value = message
                if kind == "progress":
                    self.what, self.share = value
                elif kind == "error":
                    self.error = value
                else:
                    self.result = value
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            self.error = self.error or f"{type(error).__name__}: {error}"
        except (TypeError, AttributeError, pickle.PicklingError) as error:  # data that cannot leave this process
            self.error = f"the data cannot be sent to another process ({error}). Use standout.assess."
        if self.result is None and self.error is None:
            self.error = "the test ended without a result; memory may have run out. Use fewer rows or features."
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                stream.close()


def _send(stream: IO[bytes], message: Any) -> None:
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(struct.pack("<Q", len(data)))
    stream.write(data)
    stream.flush()


def _receive(stream: IO[bytes]) -> Any:
    """Return the next message, or None at the end of the stream."""
    head = stream.read(8)
    return pickle.loads(stream.read(struct.unpack("<Q", head)[0])) if len(head) == 8 else None


def main() -> None:
    """Run the test that standard input describes."""
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    sys.stdout = sys.stderr  # only messages go to the pipe
    job = _receive(sys.stdin.buffer)

    def end_with_server() -> None:
        sys.stdin.buffer.read()
        os._exit(1)

    threading.Thread(target=end_with_server, daemon=True).start()

    def tell(progress: Progress) -> None:
        _send(output, ("progress", (progress.what, progress.share or 0.0)))

    try:
        with without_warnings(), watching(tell):
            result = assess(job.pop("target"), job.pop("background"), **job)
        _send(output, ("result", result))
    except (StandoutError, MemoryError) as error:
        _send(output, ("error", str(error) or type(error).__name__))


if __name__ == "__main__":
    main()
