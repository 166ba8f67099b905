"""``standout.report``: write one HTML page about fitted models."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from standout._report.contents import collect_contents
from standout._report.figures import scores_data
from standout._report.page import page, plotly_script
from standout._report.sections import SECTIONS
from standout._report.text import capitalized, method_name, verdict
from standout.errors import InputError
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
    results = ("test", "held_out", "stability", "replicates")
    if trust is not None and not all(hasattr(trust, result) for result in results):
        raise InputError(
            f"trust: unsupported type {type(trust).__name__}. Give the result of standout.inference.assess."
        )
    contents = collect_contents(
        models, target, background, labels=labels, background_labels=background_labels, ids=ids,
        accounts=accounts, notes=notes, command=command, code=code, assessment=trust,
    )  # fmt: skip
    model = contents.main.model
    against = " and ".join(f"{count(counts.rows, 'row')} of {name}" for name, counts in model.background_counts)
    rows = f"{count(model.target_counts.rows, 'target row')}{' against ' if against else ''}{against}"
    text = page(
        title=title or ("Variation specific to the target" if against else "Variation of the target"),
        subtitle=f"{method_name(model)} of {rows}, {count(contents.main.estimator.n_features_in_, 'feature')}",
        verdict=verdict(model, trust),
        sections=[section for make in SECTIONS if (section := make(contents)) is not None],
        scores=scores_data(contents),
        warnings=[] if trust is None else [capitalized(finding.text) for finding in trust.replicates],
    )
    with replacing(output, "report") as draft:
        # File names may contain bytes that are not valid text; replace them instead of failing.
        draft.write_text(text, encoding="utf-8", errors="replace", newline="\n")
    return output
