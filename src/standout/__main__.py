"""Run the command line as ``python -m standout``."""

from __future__ import annotations

import sys

from standout.cli import main

sys.exit(main())
