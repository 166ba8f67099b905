"""standout test: significance, held-out ratio and stability."""

import numpy as np
import pandas as pd
import pytest

from commands import both, frame, quiet
from standout.inference.assess import assess

LITTLE = ["--permutations", "99", "--bootstrap", "20"]


@quiet
def test_it_prints_the_results_of_assess(data, files, done):
    sides = [files / "target.csv", "-b", files / "background.csv"]
    printed = done("test", *sides, *LITTLE, "--seed", "3", "--json").json
    found = assess(frame(data.target), frame(data.background), n_permutations=99, n_bootstrap=20, random_state=3)
    np.testing.assert_allclose(printed["permutation_test"]["p_values"], found.test.p_values)
    np.testing.assert_allclose(printed["permutation_test"]["ratios"], found.test.ratios, rtol=1e-9)
    np.testing.assert_allclose(printed["held_out"]["ratios"], found.held_out.ratios, rtol=1e-9)
    np.testing.assert_allclose(printed["stability"]["median"], found.stability.median, rtol=1e-9)
    assert printed["replicates"] == []
    shown = done("test", *sides, *LITTLE, "--seed", "3").out
    assert str(found.test.summary()) in shown and str(found.held_out.summary()) in shown


@quiet
def test_each_part_can_be_skipped(files, done):
    sides = [files / "target.csv", "-b", files / "background.csv"]
    printed = done("test", *sides, "--permutations", "19", "--folds", "0", "--bootstrap", "0", "--json").json
    assert "permutation_test" in printed and not {"held_out", "stability"} & set(printed)


def replicated(folder, n_target=8, n_background=6, times=10):
    """Subjects measured ten times each, without a difference between target and background."""
    rng = np.random.default_rng(0)
    for name, count in (("target", n_target), ("background", n_background)):
        rows = np.repeat(rng.normal(size=(count, 4)), times, axis=0) + 0.1 * rng.normal(size=(count * times, 4))
        ids = [f"{name}{subject}_{run}" for subject in range(count) for run in range(times)]
        pd.DataFrame(rows, columns=list("abcd")).assign(id=ids).to_csv(folder / f"{name}.csv", index=False)
    return [folder / "target.csv", "-b", folder / "background.csv"]


@quiet
def test_replicates_are_detected_and_groups_correct_the_p_value(tmp_path, done):
    sides = replicated(tmp_path)
    printed = done("test", *sides, "--ids", "id", *LITTLE, "--json").json
    assert [part["units"] for part in printed["replicates"]] == [8, 6]
    assert printed["permutation_test"]["p_values"][0] <= 0.05
    grouped = done("test", *sides, "--groups", "id", "--groups-match", "^[^_]+", *LITTLE, "--json").json
    assert grouped["replicates"] == [] and grouped["permutation_test"]["permuted"] == "groups"
    assert grouped["permutation_test"]["p_values"][0] > 0.05
    assert "look like replicates" in done("fit", *sides, "--ids", "id").out


@quiet
def test_replicates_withhold_the_verdict_and_cannot_be_hidden(tmp_path, done):
    sides = ["test", *replicated(tmp_path), "--ids", "id", *LITTLE]
    shown = done(*sides)
    headline = shown.out.index("Cannot be judged: rows look like replicates of fewer independent units")
    assert headline < shown.out.index("look like replicates of 8 units") and "--groups COLUMN" in shown.out
    for options in (["--quiet"], ["--json"], ["--quiet", "--json"]):
        assert "look like replicates of 8 units" in done(*sides, *options).err
    printed = done(*sides, "--json").json["verdict"]
    assert printed["kind"] == "not_judged" and "look like replicates of 8 units" in printed["reasons"][0]


@quiet
def test_it_ends_with_the_verdict(data, files, done):
    sides = ["test", files / "target.csv", "-b", files / "background.csv", *LITTLE]
    last = done(*sides).out.rpartition("\n\n")[2]
    assert last.startswith("Stands out: dpca0")
    printed = done(*sides, "--json").json["verdict"]
    assert printed["kind"] == "stands_out" and last.startswith(printed["headline"])


@quiet
def test_pairs_are_swapped_within_subjects(data, files, done, stopped):
    ids = np.array([f"s{i // 4}" for i in range(300)])
    sides = both(data._replace(background=data.background[:200]), files, who=ids)
    printed = done("test", *sides, "--pairs", "who", *LITTLE, "--json").json["permutation_test"]
    assert printed["permuted"] == "pairs" and printed["units"] == [50, 50]
    stopped("test", *sides, "--pairs", "who", "--groups", "who", match="--pairs and --groups")


@quiet
def test_the_report_shows_the_test(files, done):
    done("test", files / "target.csv", "-b", files / "background.csv", *LITTLE, "-o", files / "t.html")
    page = (files / "t.html").read_text(encoding="utf-8")
    assert "Significance and stability" in page


@pytest.mark.parametrize(
    ("options", "printed"), [(["-k", "auto"], "Give -k a whole number"), (["--permutations", "-1"], "permutations")]
)
def test_invalid_options_are_refused(files, stopped, options, printed):
    stopped("test", files / "target.csv", "-b", files / "background.csv", *options, match=printed)
