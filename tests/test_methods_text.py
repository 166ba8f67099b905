"""The methods paragraph has the numbers of the model and of its tests, and cites what it uses."""

import re

import numpy as np
import pytest

import standout
from helpers import quiet
from standout import CPCA, DPCA, KernelDPCA


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    background = rng.normal(size=(300, 6)) * [9, 3, 1, 1, 1, 1]
    return rng.normal(size=(200, 6)) * [9, 3, 1, 4, 1, 1], background


@pytest.fixture(scope="module")
def assessment(rows):
    return standout.assess(*rows, n_permutations=99, n_bootstrap=20, random_state=0)


def parts(text):
    paragraph, references = text.split("\n\n")
    return paragraph, references.splitlines()


def test_the_paragraph_has_the_counts_ratios_and_results_of_every_test(rows, assessment):
    target, background = rows
    model = DPCA().fit(target, background=background)
    paragraph, references = parts(model.methods_text(assessment))
    assert "The target had 200 rows and the background 300 rows, with 6 features." in paragraph
    assert f"ratios of the components were {model.ratios_[0]:.3g} and {model.ratios_[1]:.3g}" in paragraph
    assert f"expected from noise without shrinkage is {model.noise_edge_:.3g}" in paragraph
    assert f"shrunk by {model.shrinkage_:.3g}" in paragraph
    test, held = assessment.test, assessment.held_out
    assert f"(p = {test.p_values[0]:.2g} and {test.p_values[1]:.2g}; Phipson" in paragraph
    assert "99 random labellings" in paragraph and "20 bootstrap samples of rows" in paragraph
    interval = f"{held.ratios[0]:.3g} (95 % interval {held.low[0]:.3g} to {held.high[0]:.3g})"
    assert f"In 5-fold cross-validation by rows, the held-out ratio was {interval}" in paragraph
    assert f"Overall assessment: {assessment.verdict().headline}." in paragraph
    assert f"standout {standout.__version__}" in paragraph and f"numpy {np.__version__}" in paragraph
    assert [line.split(",")[0].split(" dev")[0] for line in references] == [
        "Chen", "Chiani", "Phipson", "The standout", "Wang"
    ]  # fmt: skip


@quiet
@pytest.mark.parametrize(
    ("estimator", "cited", "words"),
    [
        (DPCA(axes="signal"), "Wang et al.", "denoised by all components above the noise edge"),
        (DPCA(centering="background"), "Wang et al.", "The target was centred by the mean of the background."),
        (DPCA(shrinkage=None), "Wang et al.", "Shrinkage was not used."),
        (DPCA(shrinkage=0.3), "Wang et al.", "correlations shrunk by 0.3."),
        (DPCA(graph=np.eye(6, k=1) + np.eye(6, k=-1), smoothness=0.5), "Wang et al.", "penalised (weight 0.5)"),
        (DPCA(None), "Wang et al.", "(the first 5 of 6)"),
        (CPCA(alpha=2.5), "Abid et al.", "with α = 2.5."),
        (CPCA(alpha="auto"), "Abid et al.", "chosen by a search over subspaces"),
        (CPCA(alpha="trace_ratio"), "Abid et al.", "the trace ratio"),
        (KernelDPCA(), "Wang et al.", "in the feature space of a kernel (rbf"),
    ],
    ids=str,
)
def test_every_method_is_described_and_cited(rows, estimator, cited, words):
    target, background = rows
    paragraph, references = parts(estimator.fit(target, background=background).methods_text())
    assert cited in paragraph and words in paragraph
    assert not re.search(r"\bnan\b|None|\.\.| ,", paragraph)
    named = {re.match(r"\w+", line)[0] for line in references} - {"The"}
    assert all(name in paragraph for name in named)
    assert len(set(re.findall(r"(\w+)(?: et al\.| and Smyth)?, 20\d\d\)", paragraph)) - {"Smyth"} - named) == 0


@quiet
def test_the_shrinkage_of_contrastive_pca_is_reported(rows):
    model = CPCA(1, alpha="trace_ratio").fit(rows[0], background=rows[1][:20])
    assert f"shrunk by {model._solved().shrinkage:.3g} toward its diagonal, by oracle" in model.methods_text()


def test_without_a_background_nothing_is_compared(rows):
    paragraph, references = parts(DPCA().fit(rows[0]).methods_text())
    assert "principal components of the target" in paragraph and "ratio" not in paragraph
    assert len(references) == 1


@quiet
def test_groups_several_backgrounds_and_doubts_are_reported(rows):
    target, background = rows
    sets = {"rest": background[:200], "sleep": background[200:]}
    mixed = DPCA(mix="equal").fit(target, background=sets).methods_text()
    assert "background 'rest' 200 rows and background 'sleep' 100 rows" in mixed
    assert "mixed with weights 0.50 and 0.50 (equal weights)" in mixed
    groups = np.repeat(np.arange(40), 5)
    same = np.repeat(target[:40], 5, axis=0)
    model = DPCA().fit(same, background=background, groups=groups, background_groups=np.arange(300))
    assert f"The target had 200 rows ({model._solved().target_counts.units:.4g} independent)" in model.methods_text()
    replicated = DPCA().fit(same, background=background)
    assert "Unresolved: " in replicated.methods_text()


def test_a_loaded_model_gives_the_same_paragraph(rows, tmp_path):
    target, background = rows
    model = DPCA().fit(target, background=background)
    standout.save(model, tmp_path / "model.standout")
    assert standout.load(tmp_path / "model.standout").methods_text() == model.methods_text()


def test_the_report_and_the_command_line_show_the_paragraph(rows, assessment, tmp_path, capsys):
    from standout.cli import main

    target, background = rows
    model = DPCA().fit(target, background=background)
    page = standout.report(model, target, background, path=tmp_path / "report.html", trust=assessment)
    paragraph, references = parts(model.methods_text(assessment))
    text = page.read_text(encoding="utf-8").replace("&#39;", "'").replace("&amp;", "&").replace("&lt;", "<")
    assert f"<p>{paragraph}</p>" in text
    assert all(f'<p class="reference">{reference}</p>' in text for reference in references)
    standout.save(model, tmp_path / "model.standout")
    assert main(["info", str(tmp_path / "model.standout"), "--methods"]) == 0
    assert capsys.readouterr().out.strip() == model.methods_text()
