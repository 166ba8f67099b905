"""Data and text on their way into the page: arrays as plotly reads them, text that stays text."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Floats of four bytes hold numbers of these sizes to seven digits, which is more than a screen shows.
_SMALL, _LARGE = 1e-30, 1e30


def packed(values: NDArray[Any]) -> dict[str, str]:
    """Return numbers as plotly's typed array: a few bytes for each, in base64.

    Examples
    --------
    >>> packed(np.array([1.0, 2.0]))
    {'dtype': 'f4', 'bdata': 'AACAPwAAAEA='}
    """
    if values.dtype.kind == "f":
        largest = float(np.abs(values).max(initial=0.0))
        kind = "f4" if largest == 0 or _SMALL < largest < _LARGE else "f8"
    else:
        kind = "i4"
    return {"dtype": kind, "bdata": b64encode(values.astype(f"<{kind}").tobytes()).decode("ascii")}


# Plotly's labels know some HTML tags, formulas between dollars and variables after %: none of that is meant.
_MEANT = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;", "%": "&#37;", "\n": " ", "\r": " "})


def label_text(text: str) -> str:
    """Return text that plotly writes as it stands.

    Examples
    --------
    >>> label_text("<b>5 % & $x$</b>")
    '&lt;b&gt;5 &#37; &amp; &#36;x&#36;&lt;/b&gt;'
    """
    return text.translate(_MEANT)


def script_json(data: Any) -> str:
    r"""Write data as JSON that can stand inside a script element, whatever text is in it.

    Examples
    --------
    >>> script_json({"name": "</script><!--"})
    '{"name":"\\u003c/script\\u003e\\u003c!--"}'
    """
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
