"""Fig. 2 of the paper: subgroups of mice by their proteins, in the sample and on held-out mice."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from threadpoolctl import threadpool_limits

from experiments import mice_measures as measures
from experiments.data.mice import (
    CONTROLS,
    TWIN,
    Reading,
    all_proteins,
    other_readings,
    paper_readings,
    stand_in,
)
from experiments.mice_measures import Found, Singular, Worth
from experiments.mice_results import draw_accuracies, draw_ratios, draw_scores, findings, tables
from experiments.record import Picture, Plan, Record
from standout.datasets.mice import load_mice
from standout.errors import StandoutWarning

_CLAIM = (
    "The separation between mice with and without treatment is not seen with PCA, becomes clear when dPCA is applied, "
    "and with cPCA at alpha = 3.5938 and 27.8256, which a search of 15 alphas found."
)
_DATA = (
    "proteins in the cortex of mice: t-SC-m and t-SC-s against each of two controls, rows of the same mouse together"
)
_SIMULATED = "simulated subjects with replicates, drawn from a seed"


def mice(plan: Plan) -> Record:
    """Run the mice experiment.

    Parameters
    ----------
    plan : Plan
        Seeds determine splits and permutations. ``reduced`` uses the two main readings and fewer permutations.
        ``embedded`` replaces the mice by simulated subjects with replicates.

    Returns
    -------
    Record
    """
    # One thread, for reproducible numbers.
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", StandoutWarning)  # the numbers show the same
        rows = _rows(plan)
        found = _measured(rows, plan)
    mark = " (simulated subjects)" if plan.embedded else ""
    return Record(
        name="mice",
        title="Mice: treated and untreated" if not plan.embedded else "Mice: simulated substitute",
        claim=_CLAIM,
        findings=tuple(findings(found)),
        settings=_settings(plan, rows),
        numbers=_numbers(found),
        tables=tuple(replace(table, title=table.title + mark) for table in tables(found)),
        pictures=tuple(replace(picture, title=picture.title + mark) for picture in _pictures(found)),
    )


@dataclass(frozen=True)
class _Rows:
    """The readings: those of the paper, others, and those that include the duplicate column."""

    main: list[Reading]
    others: list[Reading]
    with_twin: list[Reading]
    source: str


def _rows(plan: Plan) -> _Rows:
    if plan.embedded:
        made_up = stand_in(plan.seeds[0])
        return _Rows([made_up.without([TWIN])], [], [made_up], f"simulated with seed {plan.seeds[0]}")
    loaded = load_mice(plan.data_dir)
    others = [] if plan.reduced else other_readings(loaded)
    return _Rows(paper_readings(loaded), others, [all_proteins(loaded, name) for name in CONTROLS], loaded.source)


def _n_permutations(plan: Plan) -> int:
    return 199 if plan.reduced else 999


def _n_chance(plan: Plan) -> int:
    """Return the number of permutations of the classes; each repeats all folds."""
    return 19 if plan.reduced else 99


def _settings(plan: Plan, rows: _Rows) -> dict[str, Any]:
    return {
        "data": _SIMULATED if plan.embedded else _DATA,
        "source": rows.source,
        "seeds": list(plan.seeds),
        "reshufflings": _n_permutations(plan),
        "reshufflings of classes": _n_chance(plan),
        "readings": [reading.name for reading in (*rows.main, *rows.others)],
        "reduced": plan.reduced,
        "embedded": plan.embedded,
    }


def _measured(rows: _Rows, plan: Plan) -> Found:
    readings = [*rows.main, *rows.others]
    count = _n_permutations(plan)
    return Found(
        main=[(reading, measures.separations(reading, plan.seeds)) for reading in rows.main],
        others=[(reading, measures.separations(reading, plan.seeds)) for reading in rows.others],
        chance={reading.name: measures.chance(reading, plan.seeds[0], _n_chance(plan)) for reading in rows.main},
        worth=[
            measures.worth(reading, shrinkage, plan.seeds, count)
            for reading in readings
            for shrinkage in (None, "auto")
        ],
        singular=[measures.singular(reading) for reading in rows.with_twin],
        alphas={
            reading.name: measures.search(reading.target, reading.background).representative_values.tolist()
            for reading in readings
        },
        grid=measures.grid_check(),
    )


def _numbers(found: Found) -> dict[str, Any]:
    readings: dict[str, dict[str, Any]] = {}
    for reading, methods in (*found.main, *found.others):
        readings[reading.name] = {
            "target_rows": len(reading.target),
            "background_rows": len(reading.background),
            "target_mice": len(set(reading.mice)),
            "background_mice": len(set(reading.background_mice)),
            "features": len(reading.features),
            "methods": {
                one.method: {
                    "silhouette": one.silhouette,
                    "accuracy_seen": one.seen,
                    "accuracy_unseen": one.unseen,
                    "gain_to_pca": one.gain,
                    "p_to_pca": one.p_to_pca,
                }
                for one in methods
            },
            "largest_ratio": {
                one.problem: _facts(one, "reading", "problem") for one in found.worth if one.reading == reading.name
            },
            "alphas_of_the_search": found.alphas[reading.name],
        }
    for name, values in found.chance.items():
        readings[name]["accuracy_by_chance"] = values
    return {
        "readings": readings,
        "singular": {one.reading: _facts(one, "reading") for one in found.singular},
        "alphas": asdict(found.grid),
    }


def _facts(one: Worth | Singular, *without: str) -> dict[str, Any]:
    return {name: value for name, value in vars(one).items() if name not in without}


def _pictures(found: Found) -> list[Picture]:
    bars = " Bars: range over splits." if len(found.worth[0].held_out_by_mouse.values) > 1 else ""
    scores = [
        Picture(
            f"scores_{number}",
            f"Scores against {reading.name}" if reading.name in CONTROLS else "Scores",
            "Target rows on the first two axes of each method, fitted to all rows. Lines connect the rows of a mouse "
            "to their mean. Replicates of a mouse lie together: there are as many independent points as mice.",
            partial(draw_scores, reading, methods),
        )
        for number, (reading, methods) in enumerate(found.main, 1)
    ]
    ratios = Picture(
        "ratios",
        "The largest ratio, in the sample and held out",
        "If rows are held out at random, rows of the same mouse are on both sides of a split, and the ratio stays "
        f"large. If mice are held out, it falls.{bars}",
        partial(draw_ratios, found.worth),
    )
    accuracies = Picture(
        "accuracies",
        "Accuracy on held-out mice",
        "A logistic regression on two scores, with axes fitted to all mice and with axes fitted without the held-out "
        f"target mice.{bars}",
        partial(draw_accuracies, [reading.name for reading, _ in found.main], [methods for _, methods in found.main]),
    )
    return [*scores, ratios, accuracies]
