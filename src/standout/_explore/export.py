"""What can be taken away from the page: code, scores, the selection, the model file and the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from standout._base import BaseContrast
from standout._cpca import CPCA
from standout._explore.session import Exploration, View
from standout._inputs import check_count
from standout._model_file import save
from standout._version import __version__
from standout.errors import InputError, without_warnings
from standout.inference.assess import Assessment
from standout.io.output import writing


def shown_estimator(exploration: Exploration, view: View) -> tuple[BaseContrast, list[int], list[int]]:
    """Return the estimator behind a view, not fitted, and the components and signs of its axes."""
    given = exploration.fitted(*view.model)
    if given.n_components_ == 0 and view.method == "signal":
        return exploration.make(*view.model), [], []
    found = exploration.best(view)
    axes = [view.x, *([] if view.y < 0 else [view.y])]
    components = [int(found.order[view.stop, place]) for place in axes]
    if view.method in ("kernel", "signal"):
        return exploration.make(*view.model), components, [1] * len(axes)
    estimator, fitted = exploration.make(*view.model), given
    if given.n_components_ <= max(components):
        estimator = exploration.make(view.method, view.stop, view.on, 1 + max(components))
        if view.method == "cpca":  # the search for alpha depends on the number of components
            estimator.set_params(alpha=found.values[view.stop])
        fitted = exploration.results.once(
            ("export", view.model, max(components)), lambda: exploration.fit(clone(estimator), view.method, view.on)
        )
    # The signs of components can depend on their number, so they are those of this very model.
    filters, shown = fitted._solved().narrowed().components, found.directions[view.stop]
    return (
        estimator,
        components,
        [-1 if filters[component] @ shown[place] < 0 else 1 for component, place in zip(components, axes, strict=True)],
    )


def code(exploration: Exploration, view: View) -> str:
    """Return Python code that repeats a view: the model, and the scores on the screen."""
    estimator, components, signs = shown_estimator(exploration, view)
    origin, arguments = exploration.origin, ["target"]
    lines = ["import standout", ""]  # of the data, then of the model
    if origin.from_python:
        lines = ["# Uses target and background, the data that were given to standout.explore.", *lines]
    if origin.target != "target":
        lines.append(f"target = {origin.target}")
    if view.method != "pca" or isinstance(estimator, CPCA):
        parts = [origin.backgrounds[number] for number in view.on]
        if exploration.keys and not (origin.from_python and view.on == exploration.every):
            named = (f"{exploration.keys[n]!r}: {part}" for n, part in zip(view.on, parts, strict=True))
            lines.append(f"background = {{{', '.join(named)}}}")
        elif parts[0] != "background" and not exploration.keys:
            lines.append(f"background = {parts[0]}")
        arguments.append("background=background")
        if any(exploration.background_groups[number] is not None for number in view.on):
            arguments.append("background_groups=background_groups")
            if len(view.on) < len(exploration.names):
                listed = isinstance(exploration.given_groups, list | tuple)
                part = (
                    f"{exploration.keys[n]!r}: background_groups[{n if listed else exploration.keys[n]!r}]"
                    for n in view.on
                )
                lines.append(f"background_groups = {{{', '.join(part)}}}")
    if exploration.groups is not None:
        arguments.append("groups=groups")
    lines += [
        *([""] if lines[-1] else []),
        f"model = standout.{' '.join(repr(estimator).split())}",
        f"model.fit({', '.join(arguments)})",
    ]
    if components:
        lines.append(f"scores = model.transform(target)[:, {components}] * {signs}")
    return "\n".join([*lines, "print(model.summary())"]) + "\n"


def test_job(exploration: Exploration, view: View, n_permutations: Any) -> dict[str, Any]:
    """Return the arguments of :func:`standout.assess` for the model of a view."""
    if view.method not in ("dpca", "signal"):
        raise InputError("the permutation test applies to dPCA. Show dPCA on the right.")
    estimator = exploration.make(view.method, view.stop, view.on)
    count = estimator.n_components
    return {
        "target": exploration.target,
        "background": exploration.background(view.on),
        "estimator": estimator,
        "n_components": count if isinstance(count, int) else max(1, exploration.fitted(*view.model).n_components_),
        "n_permutations": check_count("n_permutations", n_permutations),
        "groups": exploration.groups,
        "background_groups": exploration.grouped(view.on),
        "n_bootstrap": 0,  # the verdict does not need it
        "n_jobs": 1,  # the other cores serve the page
    }


def write_report(exploration: Exploration, view: View, file: Path, assessment: Assessment | None) -> None:
    """Write the report on the model of a view."""
    from standout._report.report import report

    fitted = exploration.fitted(*view.model)
    background = exploration.background(view.on) if fitted._solved().background_counts else None
    command = exploration.origin.command
    with without_warnings():  # the report shows them
        report(
            fitted, exploration.target, background, path=file, title=exploration.title, trust=assessment,
            command=command and command(exploration, view, "fit"),
            test_command=command and command(exploration, view, "test"),
            code=code(exploration, view), ids=exploration.ids[0],
        )  # fmt: skip


def write_model(exploration: Exploration, view: View, file: Path) -> None:
    """Write the model file of a view."""
    command = exploration.origin.command
    about = {"command": command(exploration, view, "fit") if command else None, "standout": __version__}
    save(exploration.fitted(*view.model), file, about=about)


def write_scores(exploration: Exploration, view: View, file: Path) -> None:
    """Write the scores of all rows on the axes of a view, with their dataset, number, id and labels."""
    names = [exploration.component_names(view)[place] for place in (view.x, *([] if view.y < 0 else [view.y]))]
    labels = [column for column in exploration.columns if column not in names]
    with writing(file, names, ["dataset", "row", *_id_column(exploration), *labels], "scores") as table:
        for number in range(len(exploration.rows)):
            values = exploration.all_scores(view, number)[:, [view.x, *([] if view.y < 0 else [view.y])]]
            table.add(values, _about(exploration, number, np.arange(len(values)), labels))


def write_selection(exploration: Exploration, selection: Any, file: Path) -> None:
    """Write the number, id and labels of the selected target rows."""
    chosen = np.flatnonzero(exploration.select(selection)[0])
    labels = list(exploration.columns)
    with writing(file, [], ["row", *_id_column(exploration), *labels], "selection") as table:
        table.add(np.empty((len(chosen), 0)), _about(exploration, 0, chosen, labels))


def write_effects(exploration: Exploration, first: Any, second: Any, file: Path) -> None:
    """Write the effect sizes of all features, with their intervals."""
    found = exploration.effects(first, second)
    order = found.largest(len(found.size))
    columns = ["difference", "effect_size", "low", "high"]
    values = np.column_stack([found.difference, found.size, found.low, found.high])[order]
    with writing(file, columns, ["feature"], "effects") as table:
        table.add(values, {"feature": np.array(exploration.feature_names, dtype=object)[order]})


def _id_column(exploration: Exploration) -> list[str]:
    return ["id"] if any(ids is not None for ids in exploration.ids) and "id" not in exploration.columns else []


def _about(exploration: Exploration, number: int, rows: Any, labels: list[str]) -> dict[str, Any]:
    """Return the dataset, number, id and labels of some rows of a dataset; numbers start at 1, as in files."""
    ids = exploration.ids[number]
    nothing = np.full(len(rows), "", dtype=object)
    about = {
        "dataset": np.full(len(rows), exploration.rows[number].name, dtype=object),
        "row": rows + 1,
        "id": nothing if ids is None else ids[rows].astype(object),
    }
    for name in labels:
        found = exploration.columns[name][number]
        if found is None:
            about[name] = nothing
        elif found.numbers is not None:
            about[name] = np.array([f"{value:.12g}" for value in found.numbers[rows]], dtype=object)
        else:
            about[name] = np.array([*found.names, ""], dtype=object)[found.codes[rows]]
    return about
