"""Run the command line as ``python -m standout``."""

import sys

from standout.cli import main

sys.exit(main())
