"""Data and text on their way into the page: arrays as plotly reads them, text that stays text.

The page itself: templates, style and script, put together so that nothing has to be fetched.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from standout._report.contents import Section
from standout._report.text import Verdict
from standout.errors import MissingExtraError

# Plotly's labels know some HTML tags, formulas between dollars and variables after %: none of that is meant.
_MEANT = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;", "%": "&#37;", "\n": " ", "\r": " "})
_EXTRA = "Install it with: pip install 'standout[report]'"


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


@cache
def templates(package: str = "standout._report", what: str = "reports") -> Any:
    """Return the templates of a package, or say how to get what fills them in."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise MissingExtraError(f"{what} need jinja2. {_EXTRA}") from error
    loader = PackageLoader(package)
    # Autoescaping is what keeps text from the data text; templates mark nothing of it as safe.
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def render(template: str, **values: Any) -> str:
    """Fill in a template; all values are escaped."""
    return str(templates().get_template(template).render(values))


def plotly_script() -> str:
    """Return plotly.js, from the package that brings it."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingExtraError(f"reports need plotly. {_EXTRA}") from error
    # Browsers read line ends as \n, and the policy below goes by what they read.
    return str(get_plotlyjs()).replace("\r\n", "\n").replace("\r", "\n")


def page(
    title: str,
    subtitle: str,
    verdict: Verdict,
    sections: Sequence[Section],
    scores: dict[str, Any],
    warnings: Sequence[str] = (),
) -> str:
    """Return the whole page; the warnings stand above all else."""
    figures = {name: figure for section in sections for name, figure in section.figures.items()}
    environment = templates()
    own = environment.loader.get_source(environment, "report.js")[0]
    style = environment.loader.get_source(environment, "report.css")[0]
    scripts = [plotly_script(), own]
    return render(
        "report.html.jinja",
        title=title,
        subtitle=subtitle,
        verdict=verdict,
        warnings=warnings,
        sections=sections,
        policy=_policy(scripts, compiling=any(view["webgl"] for view in scores["views"])),
        data=script_json({"figures": figures, "scores": scores}),
        scripts=scripts,
        style=style,
    )


def _policy(scripts: Sequence[str], *, compiling: bool) -> str:
    """Return a policy for the browser: fetch nothing, and run no other scripts than these.

    Plotly's WebGL drawing compiles functions, so where it is used these scripts may do that.
    """
    allowed = [f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts]
    allowed += ["'unsafe-eval'"] if compiling else []
    return (
        f"default-src 'none'; script-src {' '.join(allowed)}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
