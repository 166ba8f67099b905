"""The report, from models and data to a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from standout._report.contents import Asked, Contents, collect_contents
from standout._report.figures import scores_data
from standout._report.page import page, plotly_script
from standout._report.sections import SECTIONS
from standout._report.text import method_name, trusted_verdict
from standout.io.output import check_writable, replacing
from standout.io.stream import ReadSummary
from standout.plot._style import count

if TYPE_CHECKING:
    from standout.inference.assess import Assessment


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
    """Write what a model has found as one HTML file, with plots to look around in, that needs nothing else.

    It tells first how sure one can be, then shows the scores beside those of a PCA, the ratios with the noise
    edge, the features of each component, what was done to the data, and how to repeat it. The file can be
    mailed and opened offline.

    Parameters
    ----------
    models : DPCA, CPCA or KernelDPCA, or dict of str to them
        A fitted estimator; or several by name, of which the report is about the first and shows the scores
        of the others beside it. Beside a single one with a background the PCA of the target is shown.
    target : path of a file, array-like, frame, sparse matrix or Source, of shape (n_rows, n_features)
        The rows to draw, as in ``fit``. They are read once for each model; of many, 100,000 points are drawn.
    background : dataset, or list or dict of datasets, optional
        The background(s), as in ``fit``.
    path : path of a file
        Where to write.
    labels : sequence of shape (n_rows,), optional
        What to colour the target's rows by; by default the source's own labels.
    background_labels : sequence of shape (n_rows,), or list or dict of them, optional
        Labels of background rows, for several backgrounds one sequence for each.
    ids : sequence of shape (n_rows,), optional
        Names of the target's rows, shown when one points at them; by default the source's own.
    title : str, optional
        The heading.
    command, code : str, optional
        The command line and the Python code that give the same again; the code has a default.
    accounts : sequence of Account, optional
        What reading did to the data; by default the sources' own.
    notes : sequence of str, optional
        What else the reader should know.
    trust : Trust, optional
        What :func:`standout.inference.assess` found: whether it is real, holds on other rows, and is stable.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from standout import DPCA
    >>> from standout.plot import report
    >>> rng = np.random.default_rng(0)
    >>> control, patients = rng.normal(size=(300, 4)), rng.normal(size=(100, 4)) * [1, 1, 3, 1]
    >>> model = DPCA().fit(patients, background=control)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = report(model, patients, control, path=Path(folder) / "report.html", title="Patients")
    ...     "<h1>Patients</h1>" in page.read_text(encoding="utf-8")
    True
    """
    wanted = check_writable(path, "report")
    plotly_script()  # what is missing is better told before the rows are read
    asked = Asked(
        models, target, background, labels, background_labels, ids, title, command, code, tuple(accounts), tuple(notes),
        trust,
    )  # fmt: skip
    contents = collect_contents(asked)
    sections = [section for make in SECTIONS if (section := make(contents)) is not None]
    said = trusted_verdict(contents.main.model, trust)
    warnings = [] if trust is None else [_sentence(finding.text) for finding in trust.replicates]
    text = page(contents.title, _subtitle(contents), said, sections, scores_data(contents), warnings)
    with replacing(wanted, "report") as draft:
        # Names of files may hold bytes that are no text; they must not cost the report.
        draft.write_text(text, encoding="utf-8", errors="replace", newline="\n")
    return wanted


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _subtitle(contents: Contents) -> str:
    model = contents.main.model
    against = " and ".join(f"{count(counts.rows, 'row')} of {name}" for name, counts in model.background_counts)
    rows = f"{count(model.target_counts.rows, 'target row')}{' against ' if against else ''}{against}"
    return f"{method_name(model)} of {rows}, {count(contents.main.estimator.n_features_in_, 'feature')}"
