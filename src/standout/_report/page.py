"""The HTML page: templates, style sheet and scripts in one file that loads nothing else."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from standout._report.text import Verdict, interval_text
from standout.errors import MissingExtraError
from standout.plot._style import count, number, shortened

# Plotly interprets some HTML tags, LaTeX between dollar signs and variables after a percent sign: escape them all.
_LITERAL = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;", "%": "&#37;", "\n": " ", "\r": " "})
_INSTALL = "Install it with: pip install 'standout[report]'"
# Magnitudes that float32 represents to seven digits, more than a screen shows.
_SMALL, _LARGE = 1e-30, 1e30


class Section(NamedTuple):
    """A section of the page.

    A figure called ``name`` is drawn in the element ``figure-name``. It is a plotly figure
    ``{"data": [...], "layout": {...}}``.
    """

    key: str
    title: str
    html: str  # rendered by a template, so text from the data is escaped
    figures: dict[str, Any] = {}  # noqa: RUF012 - never modified


def packed(values: NDArray[Any]) -> dict[str, str]:
    """Return an array as plotly's typed array, in base64.

    Examples
    --------
    >>> packed(np.array([1.0, 2.0]))
    {'dtype': 'f4', 'bdata': 'AACAPwAAAEA='}
    """
    dtype = "i4"
    if values.dtype.kind == "f":
        largest = float(np.abs(values).max(initial=0.0))
        dtype = "f4" if largest == 0 or _SMALL < largest < _LARGE else "f8"
    return {"dtype": dtype, "bdata": b64encode(values.astype(f"<{dtype}").tobytes()).decode("ascii")}


def label_text(text: str) -> str:
    """Escape text so that plotly renders it literally.

    Examples
    --------
    >>> label_text("<b>5 % & $x$</b>")
    '&lt;b&gt;5 &#37; &amp; &#36;x&#36;&lt;/b&gt;'
    """
    return text.translate(_LITERAL)


def script_json(data: Any) -> str:
    r"""Serialise data to JSON that is safe inside a script element.

    Examples
    --------
    >>> script_json({"name": "</script><!--"})
    '{"name":"\\u003c/script\\u003e\\u003c!--"}'
    """
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def templates(package: str = "standout._report", what: str = "reports") -> Any:
    """Return the jinja2 environment of a package's templates; the error names the extra to install."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise MissingExtraError(f"{what} need jinja2. {_INSTALL}") from error
    # Autoescaping keeps text from the data from becoming markup; templates mark none of it as safe.
    environment = Environment(
        loader=PackageLoader(package), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": number, "counted": count, "shortened": shortened, "interval": interval_text}
    return environment


def render(template: str, **values: Any) -> str:
    """Render a template; all values are escaped."""
    return str(templates().get_template(template).render(values))


def plotly_script() -> str:
    """Return plotly.js; the error names the extra to install."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingExtraError(f"reports need plotly. {_INSTALL}") from error
    # Browsers normalise line ends to \n before they compute the hash that the policy allows.
    return str(get_plotlyjs()).replace("\r\n", "\n").replace("\r", "\n")


def page(
    title: str,
    subtitle: str,
    verdict: Verdict,
    sections: Sequence[Section],
    scores: dict[str, Any],
    warnings: Sequence[str] = (),
) -> str:
    """Return the whole page; warnings come before the verdict."""
    environment = templates()
    script, style = (environment.loader.get_source(environment, f"report.{kind}")[0] for kind in ("js", "css"))
    scripts = [plotly_script(), script]
    figures = {name: figure for section in sections for name, figure in section.figures.items()}
    return render(
        "report.html.jinja",
        title=title,
        subtitle=subtitle,
        verdict=verdict,
        warnings=warnings,
        sections=sections,
        policy=_policy(scripts, webgl=any(panel["webgl"] for panel in scores["panels"])),
        data=script_json({"figures": figures, "scores": scores}),
        scripts=scripts,
        style=style,
    )


def _policy(scripts: Sequence[str], *, webgl: bool) -> str:
    """Return a content security policy: load nothing, run these scripts only.

    Plotly's WebGL traces compile functions at run time and need ``unsafe-eval``.
    """
    allowed = [f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts]
    allowed += ["'unsafe-eval'"] if webgl else []
    return (
        f"default-src 'none'; script-src {' '.join(allowed)}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
