"""Rows at the ends of each component: in Python, in the summary, on the command line and in the report."""

import numpy as np
import pytest

import standout
from helpers import OptionalPackage
from standout import CPCA, DPCA, KernelDPCA, report
from standout.errors import InputError

pd = OptionalPackage("pandas")


@pytest.fixture(scope="module")
def corpora():
    """Embeddings of two corpora: one topic of the target is in the direction of the first feature."""
    rng = np.random.default_rng(0)
    background = rng.normal(size=(400, 6))
    target = rng.normal(size=(300, 6))
    topic = rng.choice([-1.0, 1.0], size=300)
    target[:, 0] += 6 * topic
    texts = np.array([f"a text about {'cats' if side > 0 else 'dogs'}, number {i}" for i, side in enumerate(topic)])
    return target, background, texts


@pytest.mark.parametrize("kind", [DPCA(3), CPCA(3, alpha=1.0), KernelDPCA(3, kernel="linear")])
def test_the_ends_are_the_first_and_last_rows_of_sorted_scores(corpora, kind):
    target, background, texts = corpora
    model = kind.fit(target, background=background)
    scores = model.transform(target)
    for k, (low, high) in enumerate(model.extremes(target, texts, n=7)):
        order = np.argsort(scores[:, k], kind="stable")
        assert [each.row for each in low] == order[:7].tolist()
        assert [each.row for each in high] == order[::-1][:7].tolist()
        for each in (*low, *high):
            assert each.label == texts[each.row]
            assert each.score == pytest.approx(scores[each.row, k], rel=1e-12)


def test_the_ends_of_the_topic_are_its_two_sides(corpora):
    target, background, texts = corpora
    low, high = DPCA(1).fit(target, background=background).extremes(target, texts)[0]
    sides = [{each.label.split(",")[0].split()[-1] for each in end} for end in (low, high)]
    assert sorted(sides, key=str) == [{"cats"}, {"dogs"}]


def test_no_row_is_at_both_ends(corpora):
    target, background, _ = corpora
    model = DPCA(1).fit(target, background=background)
    for n_rows in (1, 2, 5):
        low, high = model.extremes(target[:n_rows], n=10)[0]
        assert len(low) == len(high) == n_rows // 2
        assert not {each.row for each in low} & {each.row for each in high}


def test_equal_scores_are_at_one_end_only(corpora):
    target, background, _ = corpora
    model = DPCA(1).fit(target, background=background)
    low, high = model.extremes(np.ones((20, 6)), n=10)[0]
    assert not {each.row for each in low} & {each.row for each in high}


@pytest.mark.parametrize("missing", [lambda: None, lambda: np.nan, lambda: pd.NA], ids=["None", "NaN", "NA"])
def test_a_missing_label_is_none(corpora, missing):
    missing = missing()
    target, background, _ = corpora
    model = DPCA(1).fit(target, background=background)
    found = model.extremes(target, [missing] * len(target), n=1)[0]
    assert found.low[0].label is None
    assert f"row {found.low[0].row}" in model.summary(target, [missing] * len(target))


def test_rows_without_labels_have_numbers(corpora):
    target, background, _ = corpora
    model = DPCA(1).fit(target, background=background)
    first = model.extremes(target)[0].low[0]
    assert first.label is None
    assert f"row {first.row}\n" in str(model.summary(target)) + "\n"


def test_ids_of_a_source_are_the_labels(corpora, tmp_path):
    target, background, texts = corpora
    pd.DataFrame(target).assign(text=texts).to_csv(tmp_path / "target.csv", index=False)
    pd.DataFrame(background).to_csv(tmp_path / "background.csv", index=False)
    named = standout.read(tmp_path / "target.csv", ids="text")
    model = DPCA(1).fit(named, background=tmp_path / "background.csv")
    for source in (named, standout.read(tmp_path / "target.csv", ids="text", memory=0)):
        found, expected = model.extremes(source)[0], model.extremes(pd.DataFrame(target).rename(columns=str), texts)[0]
        assert [each[:2] for each in found.low] == [each[:2] for each in expected.low]
        assert [each[:2] for each in found.high] == [each[:2] for each in expected.high]


def test_rows_of_a_dask_array_are_found_on_the_cluster(corpora):
    dask_array = pytest.importorskip("dask.array", reason="dask is not installed: everything about Dask is left out")
    target, background, texts = corpora
    model = DPCA(2).fit(target, background=background)
    found = model.extremes(dask_array.from_array(target, chunks=(70, 6)), texts)
    assert [[each.row for each in one.low] for one in found] == [
        [each.row for each in one.low] for one in model.extremes(target, texts)
    ]


def test_the_summary_lists_texts_on_one_line_each(corpora):
    target, background, texts = corpora
    long = np.array([f"{text}\nwith  a second line {'and more ' * 30}" for text in texts])
    text = DPCA(1).fit(target, background=background).summary(target, long)
    lines = text.splitlines()
    at = lines.index("  rows at the ends of each component, with their scores:")
    assert lines[at + 1] == "  dpca0"
    assert len(lines) == at + 2 + 6
    assert all(len(line) < 110 and line.endswith("…") for line in lines[at + 2 :])
    scores = [float(line.split()[0]) for line in lines[at + 2 :]]
    assert scores == sorted(scores)
    assert "a text about" in text.html


def test_labels_that_do_not_fit_are_an_error(corpora):
    target, background, texts = corpora
    model = DPCA(1).fit(target, background=background)
    with pytest.raises(InputError, match=r"labels: shape \(299,\) for 300 rows\. Give one text or id for each row"):
        model.extremes(target, texts[1:])
    with pytest.raises(InputError, match="`n=0` is not possible"):
        model.extremes(target, texts, n=0)


def test_fit_with_ids_prints_the_ends(corpora, tmp_path, done):
    target, background, texts = corpora
    names = list("abcdef")
    pd.DataFrame(target, columns=names).assign(text=texts).to_csv(tmp_path / "target.csv", index=False)
    pd.DataFrame(background, columns=names).assign(text="b").to_csv(tmp_path / "background.csv", index=False)
    words = ["fit", tmp_path / "target.csv", "-b", tmp_path / "background.csv", "-k", "1"]
    assert "rows at the ends" not in done(*words, "--drop", "text").out
    assert "rows at the ends of each component" in done(*words, "--ids", "text").out
    found = done(*words, "--ids", "text", "--json").json["extremes"]
    assert [one["component"] for one in found] == ["dpca0"]
    model = DPCA(1).fit(target, background=background)
    expected = model.extremes(target, texts)[0]
    assert [each["label"] for each in found[0]["low"]] == [each.label for each in expected.low]


def test_a_report_of_rows_with_ids_shows_the_ends(corpora, tmp_path):
    target, background, texts = corpora
    model = DPCA(2).fit(target, background=background)
    hostile = texts.copy().astype(object)
    first = model.extremes(target, texts)[0].low[0]
    hostile[first.row] = "<script>alert(1)</script>"
    hostile[model.extremes(target, texts)[0].high[0].row] = None
    page = report(model, target, background, path=tmp_path / "page.html", ids=hostile).read_text(encoding="utf-8")
    assert "Rows at the ends of each component" in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert(1)</script>" not in page
    plain = report(model, target, background, path=tmp_path / "plain.html").read_text(encoding="utf-8")
    assert "Rows at the ends of each component" not in plain
