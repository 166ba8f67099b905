"""``standout.report``: write one HTML page about fitted models, with its style sheet, scripts and data inside."""

from __future__ import annotations

import json
import math
import os
import platform
from base64 import b64encode
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache, partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import gmean

from standout._cpca import ContrastiveModel
from standout._display import capitalized, count, interval, number
from standout._kernel_model import KernelModel
from standout._model import Model
from standout._report import figures
from standout._report.figures import Contents, Panel
from standout._summary import ratio_columns
from standout._verdict import EDGE, critical_ratio, problem_text, stable_words, verdict
from standout._version import __version__
from standout.errors import InputError, listed
from standout.inference.assess import Assessment
from standout.io.output import check_writable, replacing
from standout.io.stream import ReadSummary
from standout.plot._components import STABLE_SIGN, has_patterns
from standout.plot._style import import_for, shortened

# Limits beyond which a table or a row of cards only gives the number of further entries.
_LIMITS = {"top_features": 10, "max_cards": 8, "max_rows": 30}


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
    test_command: str | None = None,
    spell: Callable[[str], str] = str,
    accounts: Sequence[ReadSummary] = (),
    notes: Sequence[str] = (),
    trust: Assessment | None = None,
) -> Path:
    """Write a report on a fitted model as one self-contained HTML file with interactive plots.

    The page starts with the verdict, its reasons and the next step. Then come the scores next to those of PCA, the
    ratios with the noise edge, the top features of each component, a description of the data, and the code to reproduce
    the analysis. The file opens offline.

    Parameters
    ----------
    models : DPCA, CPCA or KernelDPCA, dict of str to them, or list of Comparison
        A fitted estimator, several by name, or the result of :func:`standout.compare`: the report describes the first
        and shows the scores of the others for comparison. A single estimator with a background is compared with PCA
        of the target.
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
        Names or texts of the target rows, shown on hover and for the rows at the ends of each component; by default
        those of the source.
    title : str, optional
        The heading.
    command, code : str, optional
        Command line and Python code that reproduce the analysis. By default the code is derived from the first model.
    test_command : str, optional
        Command that tests the same data, shown as the next step; by default the next step is a call in Python.
    spell : callable, optional
        Spells messages that name arguments in backticks; the command line shows them as options.
    accounts : sequence of ReadSummary, optional
        What reading did to the data; by default as recorded by the sources.
    notes : sequence of str, optional
        Further notes to show.
    trust : Assessment, optional
        Result of :func:`standout.assess`: significance, held-out ratio and stability.

    Returns
    -------
    Path
        The file.

    See Also
    --------
    standout.assess : Tests to show in the report, as ``trust``.
    standout.compare : Models of several methods to show in the report.
    standout.save : Write a model to a file.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from standout import DPCA, datasets, report
    >>> target, background = datasets.FactorModel().sample(100, 300)
    >>> model = DPCA().fit(target, background=background)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = report(model, target, background, path=Path(folder) / "report.html", title="Factors")
    ...     "<h1>Factors</h1>" in page.read_text(encoding="utf-8")
    True
    """
    output = check_writable(path, "report")
    plotly_script()  # a missing package is reported before the rows are read
    if trust is not None and not isinstance(trust, Assessment):
        kind = type(trust).__name__
        raise InputError(f"trust: unsupported type {kind}. Give the result of standout.inference.assess.")
    contents = figures.collect_contents(
        models, target, background, labels=labels, background_labels=background_labels, ids=ids,
        accounts=accounts, notes=notes,
    )  # fmt: skip
    text = _page(contents, trust or Assessment(), title, command, code, test_command, spell)
    with replacing(output, "report") as draft:
        # File names may contain bytes that are not valid text; replace them instead of failing.
        draft.write_text(text, encoding="utf-8", errors="replace", newline="\n")
    return output


def _page(
    contents: Contents, trust: Assessment, title: str | None, command: str | None, code: str | None,
    test_command: str | None, spell: Callable[[str], str],
) -> str:  # fmt: skip
    """Return the page; its text, tables and sections are in the templates."""
    main = contents.panels[0]
    model, compared = main.model, bool(main.model.background_counts)
    results = [result for result in (trust.test, trust.held_out, trust.stability) if result is not None]
    sections, plots = {"scores": "Scores"}, {}
    if results:
        sections["inference"] = "Significance and stability"
    if trust.test is not None:
        plots["null"] = figures.null_figure(trust.test)
    if model.n_components:
        sections["ratios"] = "Ratios of target to background variance" if compared else "Variances of the target"
        sections["patterns"] = "Patterns: top features of each component"
        plots["ratios"] = figures.ratio_figure(model)
    if contents.extremes:
        sections["extremes"] = "Rows at the ends of each component"
    sections |= {"data": "Data and method", "glossary": "Glossary", "reproduce": "Reproduce this analysis"}
    columns, legend = ratio_columns(model), figures.point_sets(contents)
    estimator_code = " ".join(repr(main.estimator).split())
    scores = figures.scores_data(contents, legend)
    script, style = (templates().loader.get_source(templates(), f"report.{kind}")[0] for kind in ("js", "css"))
    scripts = [plotly_script(), script]
    found = verdict(model, trust, test_command)
    step = found.next_step
    notes = [*(note.text for note in model.notes), *contents.notes]
    packages = {name: version(name) for name in ("numpy", "scipy", "scikit-learn")}
    values = {
        "title": title or ("Variation specific to the target" if compared else "Variation of the target"),
        "verdict": found,
        "spell": spell,
        "next_step": step and ((test_command and step.command) or step.python),
        "sections": sections,
        "contents": contents,
        "main": main,
        "model": model,
        "trust": trust,
        "compared": compared,
        "shrunk": model.regime == "shrunk",
        "has_edge": not math.isnan(model.noise_edge),
        "critical": critical_ratio(model),
        "has_patterns": has_patterns(model),
        "legend": legend,
        "columns": columns,
        "undefined": any(np.isnan(values[: _LIMITS["max_rows"]]).any() for values in columns.values()),
        "result_notes": list(dict.fromkeys(spell(text) for result in results for text in result.notes)),
        "notes": [spell(text) for text in notes if text not in found.reasons],
        "estimator_code": estimator_code,
        "methods": main.estimator.methods_text(trust),
        "command": command,
        "code": code or _code(main, estimator_code),
        "versions": {"standout": __version__, "Python": platform.python_version(), **packages},
        "date": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
        "policy": _policy(scripts, webgl=any(panel["webgl"] for panel in scores["panels"])),
        "data": _script_json({"figures": plots, "scores": scores}),
        "scripts": scripts,
        "style": style,
    }
    return str(templates().get_template("report.html.jinja").render(values))


@cache
def templates(package: str = "standout._report", what: str = "reports") -> Any:
    """Return the jinja2 environment of a package's templates."""
    jinja2 = import_for(what, "jinja2", "report")
    # Autoescaping keeps text from the data from becoming markup; templates mark none of it as safe.
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {
        "number": number, "cell": partial(number, trimmed=False), "counted": count,
        "interval": partial(interval, trimmed=False),
        "sentence": capitalized, "shortened": shortened, "median": np.median, "mean_ratio": gmean,
    }  # fmt: skip
    environment.globals |= {
        "account_text": account_text, "caption": _caption, "held_out_text": _held_out_text, "edge_text": EDGE,
        "problem": _problem, "stable_sign": STABLE_SIGN, "stable_words": stable_words, **_LIMITS,
    }  # fmt: skip
    return environment


def _caption(panel: Panel) -> str:
    """Return what the components of a method are."""
    model = panel.model
    largest_variance = "directions of largest target variance, whether or not the background varies there too."
    if not model.background_counts:
        return capitalized(largest_variance)
    if isinstance(model, ContrastiveModel):
        if model.alpha == 0:
            return f"alpha = 0: {largest_variance}"
        search = "" if model.path is None else f"; alpha was chosen from {count(len(model.path.values), 'value')}"
        return f"Directions of largest target variance minus {number(model.alpha)} times background variance{search}."
    if isinstance(model, KernelModel):
        kernel = f"kernel {model.landmarks.kernel.name}; {count(len(model.landmarks.rows), 'landmark')}"
        return f"Functions of the features with the largest ratios of target to background variance ({kernel})."
    if getattr(panel.estimator, "axes", "ratio") == "signal":
        return "Directions of largest variance in the part of the target that is specific to it."
    return "Directions with the largest ratios of target to background variance."


def _problem(model: Model) -> str:
    """Return which problem was solved, and where alpha comes from."""
    if not model.background_counts:
        return "no background"
    if not isinstance(model, ContrastiveModel) or model.regime == "shrunk":
        return problem_text(model)
    path = model.path
    search = "" if path is None else f", chosen from {len(path.representatives)} representatives of the search"
    return f"alpha = {number(model.alpha)}{search}"


def _held_out_text(low: float, high: float) -> str:
    """Return where the interval of a held-out ratio lies."""
    if math.isnan(low) or math.isnan(high):
        return "unknown"
    return "above one" if low > 1 else "below one" if high < 1 else "includes one"


def account_text(account: ReadSummary) -> str:
    """Return what reading did to a dataset."""
    dropped = account.features_left_out
    sentences = [f"{count(account.rows, 'row')} and {count(account.features, 'feature')} were used."]
    if account.missing:
        features = sorted(account.missing, key=lambda name: -account.missing[name])
        total = _amount(sum(account.missing.values()), "value")
        sentences.append(f"{total} missing, in {count(len(features), 'feature')}: {listed(features)}.")
    if account.values_filled:
        how = "the mean of the feature" if account.filled_by == "means" else "draws from a model of the observed values"
        sentences.append(f"{_amount(account.values_filled, 'value')} filled in with {how}.")
    if account.rows_left_out:
        sentences.append(f"{_amount(account.rows_left_out, 'row')} dropped because of missing values.")
    if dropped:
        sentences.append(f"{_amount(len(dropped), 'feature')} dropped because of missing values: {listed(dropped)}.")
    if account.aside:
        sentences.append(f"{_amount(len(account.aside), 'column')} not used as features: {listed(account.aside)}.")
    return " ".join(sentences)


def _amount(amount: int, noun: str) -> str:
    return f"{count(amount, noun)} {'was' if amount == 1 else 'were'}"


def _code(panel: Panel, estimator_code: str) -> str:
    """Return Python code that fits such a model."""
    arguments = "target, background=background" if panel.model.background_counts else "target"
    return (
        f"from standout import {type(panel.estimator).__name__}\n\nmodel = {estimator_code}.fit({arguments})\n"
        "scores = model.transform(target)\nprint(model.summary())"
    )


def plotly_script() -> str:
    """Return plotly.js."""
    # Browsers normalise line ends to \n before they compute the hash that the policy allows.
    script: str = import_for("reports", "plotly.offline", "report").get_plotlyjs()
    return script.replace("\r\n", "\n").replace("\r", "\n")


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
    """Serialise data to JSON that is safe inside a script element."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
