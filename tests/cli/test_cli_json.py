"""The JSON of every command: the schema in the docs describes it, and the page in the docs describes every key."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from commands import both, quiet

jsonschema = pytest.importorskip("jsonschema")
pytestmark = quiet

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
SCHEMA = json.loads((REFERENCE / "standout.schema.json").read_text(encoding="utf-8"))
LITTLE = ["--permutations", "19", "--bootstrap", "5", "--json"]


@pytest.fixture
def described(done):
    """Run a command with --json and return its result, which must match the schema."""

    def run(*arguments):
        found = done(*arguments).json
        # The schema of the command alone gives a message that names the key; oneOf would not.
        schema = {"$ref": f"#/$defs/{found['command']}", "$defs": SCHEMA["$defs"]}
        jsonschema.Draft202012Validator(schema).validate(found)
        jsonschema.Draft202012Validator(SCHEMA).validate(found)
        return found

    return run


@pytest.fixture
def sides(files):
    return [files / "target.csv", "-b", files / "background.csv"]


def test_the_schema_is_valid_and_closed():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for name, kind in SCHEMA["$defs"].items():
        if name != "number":
            assert kind["additionalProperties"] is False, name
            assert all(value.get("description") for value in kind["properties"].values()), name


@pytest.mark.parametrize(
    "options",
    [[], ["--method", "cpca"], ["--method", "kernel-dpca"], ["--components", "auto"], ["--axes", "signal"]],
    ids=lambda options: " ".join(options) or "default",
)
def test_fit_matches_the_schema(described, sides, options, tmp_path):
    given = ["-o", tmp_path / "m.standout", "--scores", tmp_path / "s.csv", "--json"]
    found = described("fit", *sides, *options, *given)
    assert set(found["files"]) == {"model", "scores"}


def test_fit_with_ids_matches_the_schema(described, data, tmp_path):
    both(data, tmp_path, name=np.array([f"row {i}" for i in range(1000)]))
    found = described("fit", tmp_path / "target.csv", "-b", tmp_path / "background.csv", "--ids", "name", "--json")
    assert len(found["extremes"][0]["low"]) == 10


def test_fit_without_a_background_matches_the_schema(described, files):
    assert described("fit", files / "target.csv", "--method", "pca", "--json")["verdict"]["kind"] == "no_background"


def test_fit_to_two_backgrounds_in_one_file_matches_the_schema(described, one_file):
    found = described("fit", one_file, "--by", "state", "--target", "ill", "-b", "sham", "-b", "rest", "--json")
    assert set(found["model"]["backgrounds"]) == {"background 'sham'", "background 'rest'"}


def test_undefined_and_infinite_numbers_match_the_schema(described, data, tmp_path):
    few = both(data._replace(background=data.background[:5]), tmp_path)
    assert described("fit", *few, "--json")["model"]["noise_edge"] is None
    constant = data.background.copy()
    constant[:, 2] = 30
    found = described("fit", *both(data._replace(background=constant), tmp_path), "--json")
    assert found["model"]["components"][0]["ratio"] == "inf"


def test_missing_values_match_the_schema(described, data, tmp_path):
    target = data.target.copy()
    target[:9, 1] = np.nan
    given = both(data._replace(target=target), tmp_path)
    for missing in ("auto", "mean", "drop_rows", "drop_features"):
        found = described("fit", *given, "--missing", missing, "--json")
        assert found["data"][0]["missing"] == {"b": 9}


def test_test_matches_the_schema(described, data, sides, tmp_path):
    assert set(described("test", *sides, *LITTLE)) >= {"permutation_test", "held_out", "stability"}
    skipped = described("test", *sides, "--permutations", "19", "--folds", "0", "--bootstrap", "0", "--json")
    assert "stability" not in skipped
    subjects = [f"s{i // 3}" for i in range(300)]
    paired = both(data._replace(background=data.background[:200]), tmp_path, subject=subjects)
    assert described("test", *paired, "--pairs", "subject", *LITTLE)["permutation_test"]["permuted"] == "pairs"


def test_the_test_without_rare_features_matches_the_schema(described, data, tmp_path):
    rng = np.random.default_rng(0)
    given = both(data, tmp_path, locus=np.where(rng.random(300) < 0.01, 5.0, 0.0))
    assert described("test", *given, *LITTLE)["permutation_test"]["without_rare"] is not None


def test_replicates_match_the_schema(described, tmp_path):
    rng = np.random.default_rng(0)
    for name in ("target", "background"):
        rows = np.repeat(rng.normal(size=(8, 4)), 10, axis=0) + 0.1 * rng.normal(size=(80, 4))
        ids = [f"{name}{subject}_{run}" for subject in range(8) for run in range(10)]
        pd.DataFrame(rows, columns=list("abcd")).assign(id=ids).to_csv(tmp_path / f"{name}.csv", index=False)
    found = described("test", tmp_path / "target.csv", "-b", tmp_path / "background.csv", *LITTLE)
    assert len(found["replicates"]) == 2


@pytest.mark.parametrize("method", ["dpca", "cpca", "kernel-dpca"])
def test_info_and_embed_match_the_schema(described, done, sides, method, tmp_path):
    model = tmp_path / "m.standout"
    done("fit", *sides, "--method", method, "-o", model)
    assert described("info", model, "--json")["file"]["about"]["command"].startswith("standout fit")
    described("embed", model, sides[0], "-o", tmp_path / "s.csv", "--json")
    if method == "dpca":
        described("denoise", model, sides[0], "-o", tmp_path / "d.csv", "--json")


def test_compare_report_and_demo_match_the_schema(described, sides, tmp_path):
    described("compare", *sides, "--json")
    described("compare", *sides, "--label", "kind", "-o", tmp_path / "c.html", "--json")
    described("report", *sides, "-o", tmp_path / "r.html", "--json")
    described("demo", "-o", tmp_path / "demo", "--json")


def test_the_page_describes_every_key_of_the_schema():
    page = (REFERENCE / "json.md").read_text(encoding="utf-8")
    for name, kind in SCHEMA["$defs"].items():
        if name != "number":
            section = page.split(f"\n### `{name}`\n", 1)[1].split("\n### ", 1)[0]
            missing = [key for key in kind["properties"] if f"| `{key}` |" not in section]
            assert missing == [], name
