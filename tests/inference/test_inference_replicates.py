"""Replicates are recognised by ids and distances; independent rows are not taken for replicates, whatever their ids."""

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import pdist, squareform

from standout.inference import find_replicates


def replicates(seed=0, units=8, each=5, size=6, within=0.4):
    rng = np.random.default_rng(seed)
    return np.repeat(rng.normal(size=(units, size)), each, axis=0) + within * rng.normal(size=(units * each, size))


def ids(pattern, units=8, each=5):
    return [pattern.format(unit=unit, run=run, letter="abcdefgh"[run]) for unit in range(units) for run in range(each)]


@pytest.mark.parametrize(
    ("pattern", "rule"),
    [
        ("mouse{unit}_{run}", "before the first '_'"),
        ("3{unit}-{run}", "before the first '-'"),
        ("p{unit}.{letter}", "before the first '.'"),
        ("s{unit} run {run}", "before the first ' '"),
        ("s_{unit}_{run}", "before the last '_'"),
        ("{run}_s{unit}", "after the last '_'"),
        ("{run}-a-{unit}", "after the last '-'"),
        ("{run}-s{unit}-b", "after the first '-'"),
        ("s{unit}_{letter}_{run}", "before the first '_'"),
        ("12{unit}{letter}", "before its last letter"),
        ("mouse{unit}{letter}", "before its last letter"),
        ("{unit}{unit}m{run}", "before its last digits"),
        ("patient {unit}", "the id itself"),
    ],
)
def test_a_shared_part_of_the_id_names_the_unit(pattern, rule, remedy):
    finding = find_replicates(replicates(), ids(pattern))
    assert finding is not None and rule in finding.rule
    assert (finding.n_rows, finding.n_units) == (40, 8)
    assert len(set(finding.groups)) == 8 and (np.repeat(finding.groups[::5], 5) == finding.groups).all()
    remedy(finding.text)


def test_the_ratio_is_that_of_mean_squared_distances():
    rows = replicates(1)
    finding = find_replicates(rows, ids("m{unit}_{run}"))
    distance = squareform(pdist((rows - rows.mean(axis=0)) / rows.std(axis=0), "sqeuclidean"))
    unit = np.repeat(np.arange(8), 5)
    same = (unit[:, None] == unit) & ~np.eye(40, dtype=bool)
    expected = distance[same].mean() / distance[unit[:, None] != unit].mean()
    assert finding.ratio == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("pattern", ["mouse{unit}_{run}", "{unit}{letter}", "patient {unit}"])
def test_independent_rows_are_not_replicates_whatever_their_ids(pattern):
    rows = np.random.default_rng(2).normal(size=(40, 6))
    assert find_replicates(rows, ids(pattern)) is None


def alarms(make, runs=60):
    """The share of runs in which rows with serial ids, five to a unit, are taken for replicates."""
    found = [find_replicates(make(np.random.default_rng(seed)), ids("m{unit}_{run}")) for seed in range(runs)]
    return np.mean([finding is not None for finding in found])


def test_a_drift_over_time_is_not_taken_for_units():
    time = np.linspace(-3, 3, 40)[:, None]
    assert alarms(lambda rng: rng.normal(size=(40, 6)) + time) < 0.12
    assert alarms(lambda rng: rng.normal(size=(40, 6)) + rng.normal(size=(40, 6)).cumsum(axis=0)) < 0.12


def test_replicates_are_found_in_spite_of_a_drift_and_of_an_outlier():
    time = np.linspace(-3, 3, 40)[:, None]
    assert alarms(lambda rng: replicates(rng) + time, runs=20) > 0.8

    def outlying(rng):
        rows = replicates(rng)
        rows[7] += 30
        return rows

    assert alarms(outlying, runs=20) > 0.6


def test_one_outlying_pair_is_not_evidence_of_replicates():
    def pair(rng):
        rows = rng.normal(size=(40, 6))
        rows[10:12] += 20 * rng.normal(size=6)
        return rows

    names = [f"m{row // 2}_{row % 2}" for row in range(40)]
    found = [find_replicates(pair(np.random.default_rng(seed)), names) is not None for seed in range(60)]
    assert np.mean(found) < 0.12


def test_replicates_that_differ_more_than_subjects_are_found():
    assert alarms(lambda rng: replicates(rng, size=10, within=1.5), runs=30) > 0.7


def test_replicates_are_found_in_any_row_order():
    order = np.random.default_rng(0).permutation(40)
    names = np.array(ids("m{unit}_{run}"))[order]
    assert find_replicates(replicates()[order], names).n_units == 8
    runs = np.arange(40).reshape(8, 5).T.ravel()  # the first run of every mouse, then the second
    assert find_replicates(replicates()[runs], np.array(ids("m{unit}_{run}"))[runs]).n_units == 8


@pytest.mark.parametrize("names", [[f"row_{i}" for i in range(40)], list(range(40)), None])
def test_serial_ids_name_no_unit(names):
    assert find_replicates(replicates(3), names) is None


def test_classes_are_not_taken_for_units():
    rng = np.random.default_rng(4)
    kind = np.repeat(["a", "b", "c", "d"], 10)
    rows = 10 * np.repeat(rng.normal(size=(4, 6)), 10, axis=0) + rng.normal(size=(40, 6))
    names = [f"{one}_{number}" for number, one in enumerate(kind)]
    assert find_replicates(rows, names) is not None
    assert find_replicates(rows, names, kind) is None


def test_missing_values_and_constant_features_do_not_matter():
    rows = replicates(5, size=8)
    rows[np.random.default_rng(0).uniform(size=rows.shape) < 0.1] = np.nan
    rows[:, 3] = 1e6
    finding = find_replicates(rows, ids("m{unit}_{run}"))
    assert finding is not None and finding.n_units == 8


def test_ids_and_labels_of_the_wrong_length_are_refused(refused):
    refused(lambda: find_replicates(replicates(), ["a_1", "a_2"]), "ids: shape (2,) for 40 rows")
    refused(lambda: find_replicates(replicates(), ids("m{unit}_{run}"), labels=[1]), "labels: shape (1,)")


@pytest.mark.data
def test_the_replicates_of_the_mice_are_found(real_data):
    table = pd.read_csv(real_data("Data_Cortex_Nuclear.csv"), encoding="utf-8-sig")
    proteins = table.iloc[:, 1:78].to_numpy(float)
    finding = find_replicates(proteins, table["MouseID"], table["class"])
    assert (finding.n_rows, finding.n_units) == (1080, 72) and "'309' of '309_1'" in finding.text
    for _, part in table.groupby("class"):  # also each class alone
        alone = find_replicates(proteins[part.index], part["MouseID"])
        assert alone.n_units == len(part) / 15
