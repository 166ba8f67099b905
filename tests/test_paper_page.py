"""The page on the paper: its numbers are those kept, its links lead somewhere, its verdicts follow."""

import ast
import importlib.util
import json
import re
from functools import cache
from pathlib import Path

import pytest

from experiments import digits_results, optimality_results
from experiments.digits_methods import METHODS
from experiments.optimality_errata import errata
from experiments.record import Spread

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "evidence" / "paper.md"
KEPT = ROOT / "docs" / "evidence" / "paper"
VERDICTS = ("**holds with a condition**", "**does not hold**", "**holds**")


@pytest.fixture(scope="module")
def writer():
    spec = importlib.util.spec_from_file_location("write_paper", ROOT / "scripts" / "write_paper.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def facts(writer):
    return writer.read(KEPT)


@pytest.fixture(scope="module")
def text():
    return PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def rows(text):
    """Return the cells of every row of the tables of verdicts."""
    parts = re.findall(r"\| place \|.*?\n\|[-|]+\n(.*?)\n\n", text, flags=re.DOTALL)
    return [re.split(r"(?<!\\)\|", line)[1:-1] for part in parts for line in part.splitlines()]


@cache
def defined_in(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_page_is_generated_from_the_stored_numbers(writer, facts, text):
    template = writer.TEMPLATE.read_text(encoding="utf-8")
    assert text == writer.render(template, facts), "run: python scripts/write_paper.py"


def test_every_row_has_five_cells_and_one_verdict(rows):
    assert len(rows) > 50
    for cells in rows:
        assert len(cells) == 5, cells
        assert sum(cells[4].strip().startswith(verdict) for verdict in VERDICTS) == 1, cells


def test_every_equation_remark_algorithm_and_figure_has_its_row(rows):
    places = [cells[0].strip() for cells in rows]
    for number in range(1, 14):
        assert places.count(f"({number})") == 1, number
    for name in ("Remark 1", "Remark 2", "Remark 3", "Algorithm 1", "Fig. 1", "Fig. 2", "abstract", "conclusions"):
        assert any(place.startswith(name) for place in places), name


def test_every_row_names_code_and_a_test_or_an_experiment_that_exist(rows):
    for cells in rows:
        for name, target in re.findall(r"\[([^\]]+)\]\(([^)#]+)\)", "|".join(cells)):
            path = (PAGE.parent / target).resolve()
            assert path.is_file(), target
            if name.startswith("test_"):
                assert name in defined_in(path), f"{target}::{name}"
        shown_by = re.findall(r"\[([^\]]+)\]\((?:(?:\.\./)+tests/|#)", cells[3])
        assert shown_by, cells
        assert re.search(r"\((?:\.\./)+(src|experiments)/", cells[2]) or cells[2].strip().startswith("–"), cells


def test_links_within_the_page_lead_to_a_heading(text):
    headings = {title.lower().replace(" ", "-") for title in re.findall(r"^## (.*)$", text, flags=re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= headings


def test_every_picture_exists_is_small_and_is_used(text):
    shown = set(re.findall(r"\]\(paper/([^)]+)\)", text))
    assert shown == {path.name for path in KEPT.glob("*.png")}
    assert all((KEPT / name).stat().st_size < 150_000 for name in shown)


def test_stored_numbers_that_do_not_depend_on_size_are_those_of_a_new_run(facts):
    kept, fresh = facts["optimality"]["numbers"]["errata"], errata()
    assert kept.keys() == fresh.keys()
    for place, numbers in fresh.items():
        # Where a number is rounding around zero, only its smallness repeats.
        assert kept[place] == pytest.approx(numbers, rel=1e-9, abs=1e-12), f"{place}: run make paper"


def test_the_verdicts_on_the_factor_model_follow_from_the_numbers(facts):
    found = facts["optimality"]["numbers"]
    dpca, cpca, pca = (found["recovery"][name] for name in ("dpca", "cpca", "pca"))
    assert -0.6 < dpca["slope_plain"] < -0.4
    assert cpca["n_1600"]["plain"] < 0.9 * dpca["n_1600"]["plain"]
    assert cpca["n_1600"]["background"] > 1.1 * dpca["n_1600"]["background"]
    assert pca["n_1600"]["plain"] > 0.95
    assert found["threshold"]["ratio_4_5"]["first_own"]["mean"] > 0.9
    assert found["threshold"]["ratio_6"]["first_own"]["mean"] < 0.3
    assert found["oblique"]["angle_45"]["pattern_sample"]["mean"] > 0.95
    assert found["oblique"]["angle_45"]["filter_sample"]["mean"] < 0.75


def test_the_verdicts_on_the_figures_follow_from_the_numbers(facts):
    ari = facts["digits"]["numbers"]["ari"]
    assert all(spread["mean"] < 0.1 for spread in ari["pca"].values())
    assert all(spread["mean"] < 0.4 for spread in ari["ratio_exact"].values())
    assert min(ari["signal"][weight]["mean"] for weight in ("0.5", "1")) > 0.6
    for reading in facts["mice"]["numbers"]["readings"].values():
        exact = reading["largest_ratio"]["exact"]
        assert exact["ratio"] > 20 * exact["held_out_by_mouse"]["mean"]
    unseen = {
        name: {method: found["accuracy_unseen"]["mean"] for method, found in reading["methods"].items()}
        for name, reading in facts["mice"]["numbers"]["readings"].items()
    }
    assert unseen["c-CS-s"]["dPCA, exact"] < 0.6 < 0.85 < unseen["c-CS-s"]["cPCA, alpha 3.59"]
    assert unseen["c-SC-s"]["dPCA, exact"] < 0.85
    assert unseen["c-SC-s"]["dPCA, default"] > max(0.8, 0.1 + unseen["c-SC-s"]["PCA"])


def test_the_verdict_on_run_time_follows_from_the_numbers(facts):
    ratios = [one["ratios"] for one in facts["runtime"]["times"].values()]
    assert min(one["with covariances"] for one in ratios) < 12
    assert min(one["eigenproblems alone"] for one in ratios) > 6


@pytest.fixture
def little():
    sizes = {"small": {"ratios": {"a b": -2.0}}, "large": {"ratios": {"a b": 3.25}}}
    return {
        "runtime": {"numbers": {"cos": {"mean": 0.5, "low": 0.4, "high": 0.6}, "n": 3, "list": [7]}, "times": sizes}
    }


def test_a_placeholder_becomes_a_number_a_mean_or_a_range(writer, little):
    template = "{runtime/cos:.2f} {runtime/cos/low} {runtime/n} {runtime/list/0:d} {runtime/times/*/ratios/a b:.1f} {x}"
    assert writer.render(template, little) == "0.50 0.4 3 7 −2.0 to 3.2 {x}"


def test_an_unknown_placeholder_or_an_incomplete_run_is_an_error(writer, little, tmp_path):
    with pytest.raises(SystemExit, match=r"runtime/sin: there is no 'sin' in runtime\.json"):
        writer.render("{runtime/sin:.2f}", little)
    with pytest.raises(SystemExit, match=r"no digits\.json.*python -m experiments all"):
        writer.read(tmp_path)


def test_the_stored_numbers_are_of_the_papers_data_at_full_size(facts):
    for name, found in facts.items():
        assert found["settings"]["reduced"] is False and found["settings"]["embedded"] is False, name
        assert found["settings"]["seeds"] == [0, 1, 2, 3, 4, 5], name
    assert facts["digits"]["settings"]["weights"] == [0.25, 0.5, 1.0]


def test_the_stored_findings_are_those_of_the_code(facts):
    found = {name: spreads(facts[name]["numbers"]) for name in ("digits", "optimality")}
    spectrum = found["digits"].pop("spectrum")
    assert list(digits_results.findings(found["digits"], spectrum)) == facts["digits"]["findings"]
    assert list(optimality_results.findings(found["optimality"])) == facts["optimality"]["findings"]
    rows = [row[0] for row in facts["digits"]["tables"]["digits_ari"]["rows"]]
    assert rows == [method.name for method in METHODS]


def spreads(facts):
    """Return facts with their spreads as they were."""
    if not isinstance(facts, dict):
        return facts
    return Spread(tuple(facts["values"])) if "values" in facts else {name: spreads(one) for name, one in facts.items()}


@pytest.mark.parametrize("less", ["reduced", "embedded"])
def test_a_reduced_run_does_not_replace_the_stored_numbers(writer, tmp_path, less):
    for name in writer.EXPERIMENTS:
        (tmp_path / f"{name}.json").write_text(json.dumps({"settings": {less: name == "mice"}}), encoding="utf-8")
    with pytest.raises(SystemExit, match=f"mice.json is of a {less} run"):
        writer.read(tmp_path)
