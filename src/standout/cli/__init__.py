"""Command line of standout: options in, library calls, files out.

Exit codes: 0 success, 1 internal error, 2 bad input or usage, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
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
    if arguments is None and code in (130, 143):
        # Reader threads may still be running, and joining them at a normal exit can abort the interpreter.
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(code)
    return code
