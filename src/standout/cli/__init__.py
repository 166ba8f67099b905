"""Command line of standout: options in, library calls, files out.

Exit codes: 0 success, 1 internal error, 2 bad input or usage, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    if sys.stderr is None:  # closed by the caller, but numpy 2.0 expects an open stream when it is imported
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    try:
        from standout.cli.app import run
    except ImportError as error:
        if error.name not in ("click", "rich"):
            raise
        sys.stderr.write(f"The command line needs {error.name}. Install it with: pip install 'standout[cli]'\n")
        return 2
    except KeyboardInterrupt:  # during the imports
        sys.stderr.write("standout: interrupted at startup.\n")
        return 130
    code = run(list(sys.argv[1:] if arguments is None else arguments))
    busy = any(thread is not threading.main_thread() and not thread.daemon for thread in threading.enumerate())
    explored = "standout._explore.launch" in sys.modules
    if arguments is None and (busy or explored or code in (130, 143)):
        # Readers, or a computation of the explorer, may still be running. Joining them at a normal exit can take long,
        # or abort the interpreter. Ctrl-C ends the explorer: taking down all modules would take most of the time.
        if (loky := sys.modules.get("joblib.externals.loky")) is not None:
            # Its processes would keep stdout open for minutes; exit handlers remove their files.
            loky.get_reusable_executor(reuse=True).shutdown(kill_workers=True)
            atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(code)
    return code
