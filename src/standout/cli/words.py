"""What the library says about its arguments, in the words of the command line."""

from __future__ import annotations

import re

_OPTIONS = {
    "columns": "--features", "n_components": "-k", "n_landmarks": "--landmarks", "groups_match": "--groups-match",
    "random_state": "--seed", "where": "--by",
    **{name: f"--{name}" for name in (
        "missing", "label", "groups", "ids", "drop", "key", "memory", "checkpoint", "shrinkage", "axes", "mix",
        "normalize", "centering", "solver", "alpha", "kernel", "gamma",
    )},
}  # fmt: skip
_ARGUMENT = re.compile(rf"(?<![\w.])({'|'.join(_OPTIONS)})=('[^']*'|[-+.\w]+)?")
_WHOLE = {
    "features='common'": "--common",
    "standout.read(X, missing='auto') for arrays, data frames and files": "--missing auto",
    " of standout.read (--missing on the command line)": "",
    " of standout.read": "",
    "None (all) or 'auto'": "all or auto",
    "None (all)": "all",
}


def in_options(text: str) -> str:
    """Return a message with options in the place of arguments.

    Examples
    --------
    >>> in_options("Use missing='auto', or drop= the column; shrinkage=None gives the exact problem.")
    'Use --missing auto, or --drop the column; --shrinkage none gives the exact problem.'
    """
    for said, told in _WHOLE.items():
        text = text.replace(said, told)
    return _ARGUMENT.sub(_option, text)


def _option(found: re.Match[str]) -> str:
    name, value = _OPTIONS[found[1]], found[2]
    if value is None:
        return name
    if value == "None":
        return f"{name} {'all' if name == '-k' else 'none'}"
    return f"{name} {value[1:-1] if value[0] == chr(39) and ' ' not in value else value}"
