"""The command that tells whether a finding is real."""

import numpy as np
import pandas as pd
import pytest

from commands import both, frame, quiet
from standout.inference.assess import assess

LITTLE = ["--permutations", "99", "--bootstrap", "20"]


@quiet
def test_it_tells_what_the_library_finds(data, files, done):
    sides = [files / "target.csv", "-b", files / "background.csv"]
    told = done("test", *sides, *LITTLE, "--seed", "3", "--json").json
    found = assess(frame(data.target), frame(data.background), n_permutations=99, n_bootstrap=20, random_state=3)
    np.testing.assert_allclose(told["permutation_test"]["p_values"], found.test.p_values)
    np.testing.assert_allclose(told["permutation_test"]["ratios"], found.test.ratios, rtol=1e-9)
    np.testing.assert_allclose(told["held_out"]["ratios"], found.held_out.ratios, rtol=1e-9)
    np.testing.assert_allclose(told["stability"]["median"], found.stability.median, rtol=1e-9)
    assert told["replicates"] == []
    shown = done("test", *sides, *LITTLE, "--seed", "3").out
    assert str(found.test.summary()) in shown and str(found.held_out.summary()) in shown


@quiet
def test_parts_can_be_left_out(files, done):
    sides = [files / "target.csv", "-b", files / "background.csv"]
    told = done("test", *sides, "--permutations", "19", "--folds", "0", "--bootstrap", "0", "--json").json
    assert "permutation_test" in told and not {"held_out", "stability"} & set(told)


def replicated(folder, n_target=8, n_background=6, times=10):
    """Subjects measured ten times each, and nothing to find."""
    rng = np.random.default_rng(0)
    for name, count in (("target", n_target), ("background", n_background)):
        rows = np.repeat(rng.normal(size=(count, 4)), times, axis=0) + 0.1 * rng.normal(size=(count * times, 4))
        ids = [f"{name}{subject}_{run}" for subject in range(count) for run in range(times)]
        pd.DataFrame(rows, columns=list("abcd")).assign(id=ids).to_csv(folder / f"{name}.csv", index=False)
    return [folder / "target.csv", "-b", folder / "background.csv"]


@quiet
def test_replicates_are_found_out_and_groups_put_it_right(tmp_path, done):
    sides = replicated(tmp_path)
    told = done("test", *sides, "--ids", "id", *LITTLE, "--json").json
    assert [part["units"] for part in told["replicates"]] == [8, 6]
    assert told["permutation_test"]["p_values"][0] <= 0.05
    grouped = done("test", *sides, "--groups", "id", "--groups-match", "^[^_]+", *LITTLE, "--json").json
    assert grouped["replicates"] == [] and grouped["permutation_test"]["permuted"] == "groups"
    assert grouped["permutation_test"]["p_values"][0] > 0.05
    assert "look like replicates" in done("fit", *sides, "--ids", "id").err


@quiet
def test_pairs_are_swapped_within_subjects(data, files, done, stopped):
    ids = np.array([f"s{i // 4}" for i in range(300)])
    sides = both(data._replace(background=data.background[:200]), files, who=ids)
    told = done("test", *sides, "--pairs", "who", *LITTLE, "--json").json["permutation_test"]
    assert told["permuted"] == "pairs" and told["units"] == [50, 50]
    stopped("test", *sides, "--pairs", "who", "--groups", "who", told="--pairs and --groups")


@quiet
def test_the_page_has_the_answers(files, done):
    done("test", files / "target.csv", "-b", files / "background.csv", *LITTLE, "-o", files / "t.html")
    page = (files / "t.html").read_text(encoding="utf-8")
    assert "Significance and stability" in page


@pytest.mark.parametrize(
    ("options", "told"), [(["-k", "auto"], "Give -k a number"), (["--permutations", "-1"], "permutations")]
)
def test_what_makes_no_sense_is_refused(files, stopped, options, told):
    stopped("test", files / "target.csv", "-b", files / "background.csv", *options, told=told)
