"""The page itself: templates, style and script, put together so that nothing has to be fetched."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from typing import Any

from standout.errors import MissingExtraError
from standout.show.report.contents import Section
from standout.show.report.encode import script_json
from standout.show.report.words import Verdict

_EXTRA = "Install it with: pip install 'standout[report]'"


@cache
def templates(package: str = "standout.show.report", what: str = "reports") -> Any:
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
