"""Where an optional package is absent, the modules that import it are left out of the doctests."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("dask") else ["src/standout/distributed/dask.py"]
