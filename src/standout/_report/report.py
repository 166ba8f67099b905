"""``standout.report``: write one HTML page about fitted models, with its templates, style sheet and scripts inside."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from standout._report.contents import Contents, collect_contents
from standout._report.figures import scores_data
from standout._report.sections import SECTIONS, common_values
from standout._verdict import capitalized, count, interval_text, method_name, number, verdict
from standout.errors import InputError, MissingExtraError
from standout.inference.assess import Assessment
from standout.io.output import check_writable, replacing
from standout.io.stream import ReadSummary
from standout.plot._style import shortened

_INSTALL = "Install it with: pip install 'standout[report]'"


def report(
    models: Any,
    target: Any,
    background: Any = None,
    *,
    path: str | os.PathLike[str],
    labels: Any = None,
    background_labels: Any = None,
    ids: Any = None,
    title: str | None = None,
    command: str | None = None,
    code: str | None = None,
    accounts: Sequence[ReadSummary] = (),
    notes: Sequence[str] = (),
    trust: Assessment | None = None,
) -> Path:
    """Write a report on a fitted model as one self-contained HTML file with interactive plots.

    The page starts with a verdict on significance. Then come the scores next to those of PCA, the ratios with the noise
    edge, the top features of each component, a description of the data, and the code to reproduce the analysis. The
    file opens offline.

    Parameters
    ----------
    models : DPCA, CPCA or KernelDPCA, or dict of str to them
        A fitted estimator, or several by name: the report describes the first and shows the scores of the others for
        comparison. A single estimator with a background is compared with PCA of the target.
    target : path of a file, array-like, data frame, sparse matrix or Source, of shape (n_rows, n_features)
        The target rows, as in ``fit``. They are read once for each model. At most 100,000 points are drawn.
    background : dataset, or list or dict of datasets, optional
        The background(s), as in ``fit``.
    path : path of a file
        The file to write.
    labels : sequence of shape (n_rows,), optional
        Labels that colour the target rows; by default those of the source.
    background_labels : sequence of shape (n_rows,), or list or dict of them, optional
        Labels of background rows; for several backgrounds one sequence for each.
    ids : sequence of shape (n_rows,), optional
        Names of the target rows, shown on hover; by default those of the source.
    title : str, optional
        The heading.
    command, code : str, optional
        Command line and Python code that reproduce the analysis. By default the code is derived from the first model.
    accounts : sequence of ReadSummary, optional
        What reading did to the data; by default as recorded by the sources.
    notes : sequence of str, optional
        Further notes to show.
    trust : Assessment, optional
        Result of :func:`standout.inference.assess`: significance, held-out ratio and stability.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from standout import DPCA, report
    >>> rng = np.random.default_rng(0)
    >>> control, patients = rng.normal(size=(300, 4)), rng.normal(size=(100, 4)) * [1, 1, 3, 1]
    >>> model = DPCA().fit(patients, background=control)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = report(model, patients, control, path=Path(folder) / "report.html", title="Patients")
    ...     "<h1>Patients</h1>" in page.read_text(encoding="utf-8")
    True
    """
    output = check_writable(path, "report")
    plotly_script()  # a missing package is reported before the rows are read
    if trust is not None and not isinstance(trust, Assessment):
        raise InputError(
            f"trust: unsupported type {type(trust).__name__}. Give the result of standout.inference.assess."
        )
    contents = collect_contents(
        models, target, background, labels=labels, background_labels=background_labels, ids=ids,
        accounts=accounts, notes=notes, command=command, code=code, assessment=trust,
    )  # fmt: skip
    text = _page(contents, title)
    with replacing(output, "report") as draft:
        # File names may contain bytes that are not valid text; replace them instead of failing.
        draft.write_text(text, encoding="utf-8", errors="replace", newline="\n")
    return output


def _page(contents: Contents, title: str | None) -> str:
    model, trust = contents.main.model, contents.assessment
    against = " and ".join(f"{count(counts.rows, 'row')} of {name}" for name, counts in model.background_counts)
    rows = f"{count(model.target_counts.rows, 'target row')}{' against ' if against else ''}{against}"
    sections = [section for make in SECTIONS if (section := make(contents)) is not None]
    environment, common, scores = templates(), common_values(model), scores_data(contents)
    script, style = (environment.loader.get_source(environment, f"report.{kind}")[0] for kind in ("js", "css"))
    scripts = [plotly_script(), script]
    figures = {name: figure for section in sections for name, figure in section.figures.items()}
    html = {
        section.key: environment.get_template(f"{section.key}.html.jinja").render({**common, **section.values})
        for section in sections
    }
    page = environment.get_template("report.html.jinja").render(
        title=title or ("Variation specific to the target" if against else "Variation of the target"),
        subtitle=f"{method_name(model)} of {rows}, {count(contents.main.estimator.n_features_in_, 'feature')}",
        warnings=[] if trust is None else [capitalized(finding.text) for finding in trust.replicates],
        verdict=verdict(model, trust),
        sections=sections,
        html=html,
        policy=_policy(scripts, webgl=any(panel["webgl"] for panel in scores["panels"])),
        data=_script_json({"figures": figures, "scores": scores}),
        scripts=scripts,
        style=style,
    )
    return str(page)


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


def plotly_script() -> str:
    """Return plotly.js; the error names the extra to install."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingExtraError(f"reports need plotly. {_INSTALL}") from error
    # Browsers normalise line ends to \n before they compute the hash that the policy allows.
    return str(get_plotlyjs()).replace("\r\n", "\n").replace("\r", "\n")


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


def _script_json(data: Any) -> str:
    r"""Serialise data to JSON that is safe inside a script element.

    Examples
    --------
    >>> _script_json({"name": "</script><!--"})
    '{"name":"\\u003c/script\\u003e\\u003c!--"}'
    """
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
