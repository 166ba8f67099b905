"""Where an optional package is absent, the modules that import it are left out of the doctests."""

from importlib.util import find_spec

_NEEDED = {
    "dask": "src/standout/distributed/dask.py",
    "mne": "src/standout/mne.py",
    "starlette": "src/standout/_explore/server.py",
}
collect_ignore_glob = [path for package, path in _NEEDED.items() if find_spec(package) is None]
