"""The report shows the numbers of the model, and its verdict fits the regime."""

import json
import re
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA

import standout
from reports import close, unpacked, written
from standout._cpca import CPCA
from standout._display import number
from standout._dpca import DPCA
from standout._kernel_dpca import KernelDPCA
from standout.io.stream import ReadSummary

pytestmark = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")


@pytest.fixture
def write(tmp_path):
    return partial(written, tmp_path / "report.html")


@pytest.fixture
def fitted(data):
    return DPCA(3, shrinkage=None).fit(data.target, background=data.background)


def test_points_are_the_scores_of_target_and_background(write, data, fitted):
    labels = np.array(["x", "y"])[np.arange(200) % 2]
    page = write(fitted, data.target, data.background, labels=labels)
    target, background = fitted.transform(data.target), fitted.transform(data.background)
    for component in range(3):
        found = page.points(0, component)
        close(found["x"], target[::2, component])
        close(found["y"], target[1::2, component])
        close(found["background"], background[:, component])
    rows = {found["label"]: unpacked(found["rows"]).tolist() for found in page.scores["sets"]}
    assert rows["y"] == list(range(2, 201, 2)) and rows["background"] == list(range(1, 301))


def test_a_single_model_is_compared_with_the_pca_of_the_target(write, data, fitted):
    page = write(fitted, data.target, data.background)
    expected = PCA(2).fit(data.target)
    for component in range(2):
        for name, rows in (("target", data.target), ("background", data.background)):
            found = page.points(1, component)[name]
            other = expected.transform(rows)[:, component]
            assert min(np.abs(found - other).max(), np.abs(found + other).max()) < 1e-4
    assert [text for text in page.words if text in ("dPCA", "PCA")] == ["dPCA", "PCA"]


def test_backgrounds_are_drawn_behind_the_target(write, data, fitted):
    page = write(fitted, data.target, data.background)
    names = [page.scores["sets"][index]["label"] for index in page.scores["order"]]
    assert names == ["background", "target"]


def test_the_ratios_and_the_edge_are_those_of_the_model(write, data, fitted):
    page = write(fitted, data.target, data.background)
    figure = page.figures["ratios"]
    assert figure["data"][0]["y"] == fitted.ratios_.tolist()
    assert [figure["layout"]["shapes"][0][end] for end in ("y0", "y1")] == [fitted.noise_edge_] * 2
    header, *rows = page.table("component")
    assert header == ["component", "ratio", "noise edge", "de-biased ratio", "target sd", "background sd"]
    expected = np.column_stack(
        [
            fitted.ratios_, np.full(3, fitted.noise_edge_), fitted.debiased_ratios_,
            fitted.target_variance_**0.5, fitted.background_variance_**0.5,
        ]
    )  # fmt: skip
    assert [row[1:] for row in rows] == [[number(value, trimmed=False) for value in row] for row in expected]


def test_the_figures_are_valid_plotly(write, data, fitted):
    import plotly.graph_objects as go

    for model in (fitted, DPCA(2).fit(data.target), DPCA(2).fit(data.target, background=data.background[:20])):
        figure = write(model, data.target, data.background).figures["ratios"]
        go.Figure(figure["data"], figure["layout"])


def test_the_features_are_the_top_features_of_each_component(write, data):
    frames = [pd.DataFrame(rows, columns=["alpha", "beta", "gamma", "delta", "epsilon"]) for rows in data]
    model = DPCA(2).fit(frames[0], background=frames[1])
    page = write(model, *frames)
    tables = [table for table in page.tables if table[0][:2] == ["feature", "sd"]]
    for table, top in zip(tables, model.top_features(10), strict=True):
        assert [row[:2] for row in table[1:]] == [[feature, number(weight, trimmed=False)] for feature, weight in top]
    bars = [attributes for attributes in page.all("span") if "width" in attributes.get("style", "")]
    weights = [weight for top in model.top_features(10) for _, weight in top]
    assert [bar["class"] == "positive" for bar in bars] == [weight > 0 for weight in weights]
    assert bars[0]["style"] == "width:50.0%"


def noise(rows, columns=30, seed=1):
    return np.random.default_rng(seed).normal(size=(rows, columns))


CASES = {
    "exact": (DPCA(2, shrinkage=None), "given"),
    "noise": (DPCA(2, shrinkage=None), "alike"),
    "shrunk, with an edge": (DPCA(2, shrinkage=0.3), "given"),
    "shrunk, without an edge": (DPCA(2), "few"),
    "groups": (DPCA(2), "grouped"),
    "structural": (DPCA(3), "constant"),
    "nothing": (DPCA("auto"), "alike"),
    "PCA": (DPCA(2), "alone"),
    "cPCA": (CPCA(2), "given"),
    "signal": (DPCA(1, axes="signal"), "given"),
    "graph": (DPCA(1, shrinkage=None, graph=np.eye(5, k=1) + np.eye(5, k=-1)), "given"),
    "kernel": (KernelDPCA(2), "given"),
    "kernel, exact": (KernelDPCA(2, kernel="linear"), "given"),
    "kernel PCA": (KernelDPCA(2), "alone"),
    "one component": (DPCA(1), "given"),
}


def fitted_case(case, data):
    """Return a fitted model with its target and background."""
    model, kind = CASES[case]
    (target, background), groups = data, None
    if kind == "alike":
        target = background[:150]
    elif kind == "few":
        target, background = noise(9), noise(20, seed=2)
    elif kind == "grouped":
        groups = np.arange(300) % 4
    elif kind == "constant":
        background = np.where(np.arange(5) == 1, 7.0, background)
    elif kind == "alone":
        background = None
    given = {} if groups is None else {"groups": np.arange(len(target)), "background_groups": groups}
    return clone(model).fit(target, background=background, **given), target, background


EDGE = (
    "the noise edge, the largest ratio expected from noise (exceeded by pure noise in about 6–15 % of fits), is {edge}"
)
VERDICTS = {
    "exact": ("may_stand_out", "The ratio of dpca0 is {top} (p", EDGE),
    "noise": ("noise", "Cannot be told from noise", "The ratio of dpca0 is {top} (p", EDGE),
    "shrunk, with an edge": ("may_stand_out", "The ratio of dpca0 is {top}, the unshrunk ratio", "shrunk by 0.3"),
    "shrunk, without an edge": ("not_judged", "20 independent background units leave 19 degrees", "dpca0 is {top}"),
    "groups": ("not_judged", "4 independent background units leave 3 degrees", "background_groups=background_groups"),
    "structural": ("may_stand_out", "Along dpca0 the target varies", "constant"),
    "nothing": ("noise", "Cannot be told from noise", EDGE, "no scores to draw"),
    "PCA": ("no_background", "PCA of the target, no background", "Give a background"),
    "cPCA": (
        "may_stand_out",
        "largest ratio among all directions",
        "alpha = {alpha}",
        "{alpha} times background variance",
    ),
    "signal": ("may_stand_out", "among all directions", "part of the target that is specific to it"),
    "graph": ("may_stand_out", "The ratio of dpca0 is {top}, without the graph penalty"),
    "kernel": ("not_judged", "The ratio of kerneldpca0 is {top}", "held_out_ratio(", "have no patterns"),
    "kernel, exact": ("may_stand_out", EDGE, "Gaussian kernel features"),
    "kernel PCA": ("no_background", "kernel PCA of the target, no background"),
    "one component": ("may_stand_out", "The ratio of dpca0 is {top}"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_verdict_fits_every_regime(write, data, case):
    model, target, background = fitted_case(case, data)
    page = write(model, target, background)
    kind, *sentences = VERDICTS[case]
    assert f"verdict {kind}" in [attributes.get("class") for attributes in page.all("section")]
    values = {
        "edge": number(model.noise_edge_),
        "top": number(max(model.ratios_, default=0)),
        "alpha": number(getattr(model, "alpha_", 0)),
    }
    for sentence in sentences:
        assert sentence.format(**values) in page.text
    assert ("noise edge" in json.dumps(page.figures)) == (np.isfinite(model.noise_edge_) and case != "nothing")
    assert "nan" not in re.sub(r"[A-Za-z0-9+/=]{20,}", "", page.scripts[0]).lower()


def test_infinite_ratios_are_drawn_at_the_top_and_marked(write, data):
    model, target, background = fitted_case("structural", data)
    page = write(model, target, background)
    trace = page.figures["ratios"]["data"][0]
    assert trace["text"] == ["∞", "", ""] and trace["y"][1:] == model.ratios_[1:].tolist()
    assert max(model.ratios_[1:]) < trace["y"][0] < 10 ** page.figures["ratios"]["layout"]["yaxis"]["range"][1]
    assert page.table("component")[1][1] == "∞"


def test_unshrunk_ratios_are_shown_too_if_the_background_was_shrunk(write, data):
    model, target, background = fitted_case("shrunk, with an edge", data)
    page = write(model, target, background)
    assert [trace["y"] for trace in page.figures["ratios"]["data"]] == [
        model.ratios_.tolist(),
        model._solved().unshrunk_ratios.tolist(),
    ]
    assert page.table("component")[0][2] == "unshrunk ratio"


def test_one_component_is_drawn_as_one_strip_per_label(write, data):
    model = DPCA(1).fit(data.target, background=data.background)
    page = write(model, data.target, data.background, labels=np.arange(200) % 2)
    panel = page.scores["panels"][0]
    assert panel["strips"] and not page.scores["panels"][1]["strips"]
    close(page.points(0, 0)["1"], model.transform(data.target)[1::2, 0])
    for lane, heights in zip((2, 1, 0), page.points(0, 1).values(), strict=True):
        assert np.abs(heights - lane).max() <= 0.3


@pytest.mark.parametrize(("count", "choices"), [(1, 0), (2, 0), (3, 4), (5, 4)])
def test_axes_can_be_chosen_if_there_are_more_than_two_components(write, data, count, choices):
    page = write(DPCA(count).fit(data.target, background=data.background), data.target, data.background)
    assert len(page.all("select")) == choices and len(page.all("option")) == choices * count


def test_numeric_labels_use_a_colour_scale_and_rows_without_one_are_missing(write, data, fitted):
    labels = np.linspace(0, 1, 200)
    labels[:20] = np.nan
    page = write(fitted, data.target, data.background, labels=labels)
    scale, missing, _ = page.scores["sets"]
    close(unpacked(scale["values"]), labels[20:])
    assert missing["label"] == "missing" and len(unpacked(missing["rows"])) == 20


def test_thirty_labels_have_different_styles_and_rare_labels_share_one(write, data, fitted):
    page = write(fitted, data.target, labels=[f"kind {i % 30}" for i in range(200)])
    styles = {(found["color"], found["symbol"]) for found in page.scores["sets"]}
    assert len(page.scores["sets"]) == len(styles) == 30
    page = write(fitted, data.target, labels=[f"kind {max(i - 100, 0)}" for i in range(200)])
    names = [found["label"] for found in page.scores["sets"]]
    assert len(names) == 40 and names[0] == "kind 0" and names[-1] == "61 other labels"
    assert page.scores["sets"][-1]["texts"][-1] == "kind 99"


def test_each_background_and_each_of_its_labels_has_an_entry(write, data):
    parts = {"rest": data.background[:100], "task": data.background[100:]}
    model = DPCA(2).fit(data.target, background=parts)
    page = write(model, data.target, parts, background_labels={"task": np.array(["u", "v"])[np.arange(200) % 2]})
    names = ["target", "background 'rest'", "background 'task': u", "background 'task': v"]
    assert [found["label"] for found in page.scores["sets"]] == names
    assert len({(found["color"], found["symbol"]) for found in page.scores["sets"]}) == 4
    close(page.points(0, 0)[names[3]], model.transform(parts["task"])[1::2, 0])
    assert [row[0] for row in page.table("dataset")[1:]] == ["target", "background 'rest'", "background 'task'"]
    assert [row[3] for row in page.table("dataset")[1:]] == ["", "33.3%", "66.7%"]


def test_labels_and_ids_default_to_those_of_the_source(write, data, fitted):
    source = standout.read(data.target)
    source.labels, source.row_ids = np.array(["s"] * 200), np.array([f"id {i}" for i in range(200)])
    page = write(fitted, source, data.background)
    assert page.scores["sets"][0]["label"] == "s" and page.scores["sets"][0]["ids"][7] == "id 7"
    page = write(fitted, source, data.background, labels=["t"] * 200, ids=range(200))
    assert page.scores["sets"][0]["label"] == "t" and page.scores["sets"][0]["ids"][7] == "7"


def test_several_models_are_compared_in_panels_and_a_table(write, data, fitted):
    models = {"main": fitted, "contrastive": CPCA(2, alpha=1.5).fit(data.target, background=data.background)}
    page = write(models, data.target, data.background)
    assert len(page.scores["panels"]) == 2
    close(page.points(1, 0)["target"], models["contrastive"].transform(data.target)[:, 0])
    rows = page.table("model")[1:]
    assert [row[:3] for row in rows] == [
        ["main", "dPCA", "exact"],
        ["contrastive", "cPCA", "alpha = 1.5"],
    ]


class Counted(standout.Source):
    """A source that counts how often it is read and has no other access to its rows."""

    def __init__(self, rows):
        self.array, self.read = rows, 0
        self.n_rows, self.n_features = rows.shape

    def blocks(self, _rows):
        self.read += 1
        for start in range(0, self.n_rows, 64):
            yield self.array[start : start + 64]


def test_every_row_is_read_once_for_each_model(write, data, fitted):
    target, background = Counted(data.target), Counted(data.background)
    whole = write(fitted, data.target, data.background)
    page = write(fitted, target, background)
    assert background.read == 2  # dPCA and PCA
    assert target.read == 3  # and once more to fit the PCA
    assert page.scores == whole.scores


def test_estimators_that_return_frames_are_reported_too(write, data, fitted):
    plain = write(fitted, data.target, data.background)
    framed = DPCA(3, shrinkage=None).set_output(transform="pandas").fit(data.target, background=data.background)
    assert write(framed, data.target, data.background).scores == plain.scores


def test_datasets_with_only_some_features_in_common_are_reported(write, data):
    target = pd.DataFrame(data.target, columns=list("abcde"))
    background = pd.DataFrame(data.background, columns=list("abcde")).drop(columns="b").assign(z=1.0)
    model = DPCA(2, features="common").fit(target, background=background)
    page = write(model, target, background)
    close(page.points(0, 0)["target"], model.transform(target)[:, 0])
    expected = model.components_[:, [0, 2, 3, 4]] @ (background[list("acde")].to_numpy() - model.mean_[[0, 2, 3, 4]]).T
    close(page.points(0, 0)["background"], expected[0])
    assert len(page.scores["panels"]) == 2 and "take no part" in page.text


def test_twenty_thousand_features_need_no_square_matrix_and_long_names_are_cut(write):
    rng = np.random.default_rng(0)
    names = [f"gene_{i:06d}_with_a_name_that_is_far_too_long_for_any_table_{i}" for i in range(20_000)]
    target = pd.DataFrame(rng.normal(size=(20, 20_000)), columns=names)
    background = pd.DataFrame(rng.normal(size=(25, 20_000)), columns=names)
    model = DPCA(2).fit(target, background=background)
    page = write(model, target, background)
    top = model.top_features(1)[0][0].feature
    row = next(table for table in page.tables if table[0][0] == "feature")[1]
    assert "…" in row[0] and len(row[0]) == 28 and row[0][:10] == top[:10] and row[0][-3:] == top[-3:]
    assert top in [attributes.get("title") for attributes in page.all("th")]
    assert len(page.source) < 6e6


def test_many_rows_are_sampled_and_the_report_states_it(write, tmp_path):
    rng = np.random.default_rng(0)
    target, background = rng.normal(size=(15_000, 3)) * [1, 2, 1], rng.normal(size=(120_000, 3))
    model = DPCA(2).fit(target, background=background)
    page = write(model, target, background)
    first, second = page.scores["sets"]
    rows = unpacked(second["rows"]) - 1
    assert len(unpacked(first["rows"])) == 15_000 and len(rows) == 35_000
    assert len(np.unique(rows)) == 35_000 and rows.max() > 119_000
    drawn = sum(len(values) for panel in (0, 1) for values in page.points(panel, 0).values())
    assert drawn == 100_000 and all(panel["webgl"] for panel in page.scores["panels"])
    close(page.points(0, 1)["background"], model.transform(background)[rows, 1])
    assert "50,000 of 135,000 rows are drawn" in page.text and "35,000 of 120,000 background rows" in page.text
    assert page.scores == write(model, target, background).scores
    assert len(page.source) < 6.6e6


def test_six_panels_of_many_rows_stay_within_the_limits_of_a_browser(write, data, fitted):
    rows = np.vstack([data.target] * 40)
    page = write({f"model {i}": fitted for i in range(6)}, rows)
    assert [len(page.points(panel, 0)["target"]) for panel in range(6)] == [5000] * 6
    assert not any(panel["webgl"] for panel in page.scores["panels"])


def test_the_report_describes_how_the_data_were_read(write, data, fitted):
    account = ReadSummary(
        "mice.csv", rows=200, features=5, rows_left_out=3, features_left_out=("odd",), values_filled=12,
        aside=("class", "id"), missing={"b": 2, "a": 10},
    )  # fmt: skip
    page = write(
        fitted, data.target, data.background, accounts=[account], notes=["Batch 3 was noisy."],
        command="standout report mice.csv", code="print('again')", title="Mice",
    )  # fmt: skip
    for text in (
        "mice.csv", "200 rows and 5 features were used", "12 values were missing, in 2 features: 'a', 'b'",
        "12 values were filled in", "3 rows were dropped", "1 feature was dropped because of missing values: 'odd'",
        "2 columns were not used as features: 'class', 'id'", "Batch 3 was noisy.", "standout report mice.csv",
        "print('again')", f"standout {standout.__version__}", f"numpy {np.__version__}",
    ):  # fmt: skip
        assert text in page.text
    assert page.table("dataset")[1:] == [["target", "200", "200"], ["background", "300", "300"]]


def test_the_report_includes_the_read_summary_of_a_source(write, data, fitted):
    holes = data.target.copy()
    holes[3, 2] = np.nan
    target = standout.read(holes, missing="drop_rows")
    assert "1 row was dropped because of missing values" in write(fitted, target, data.background).text


def test_the_code_in_the_report_reproduces_the_model(write, data):
    model = DPCA(1, shrinkage=0.25).fit(data.target, background=data.background)
    page = write(model, data.target, data.background)
    code = next(text for text in page.words if text.startswith("from standout import"))
    names = {"target": data.target, "background": data.background, "print": lambda _: None}
    exec(code, names)
    np.testing.assert_array_equal(names["model"].components_, model.components_)


def test_the_notes_of_the_model_are_shown(write, data):
    model, target, background = fitted_case("shrunk, without an edge", data)
    text = write(model, target, background).text.lower()
    assert model._solved().notes and all(note.text.lower() in text for note in model._solved().notes)
