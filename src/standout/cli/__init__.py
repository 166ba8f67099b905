"""The command line: a thin skin over the library. No maths here.

Exit codes: 0 done, 1 a fault of standout's own, 2 bad input or usage, 130 interrupted (143 when ended from
outside).
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
    except KeyboardInterrupt:  # while the library was still being loaded
        sys.stderr.write("standout: interrupted before anything was done.\n")
        return 130
    code = run(list(sys.argv[1:] if arguments is None else arguments))
    if arguments is None and code in (130, 143):
        # Readers' threads may still be at work, and taking them down in order can end in an abort of its own.
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(code)
    return code
