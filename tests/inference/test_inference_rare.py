"""Rare features, missing values of features that hardly vary, and bimodal null distributions."""

import numpy as np
import pandas as pd
import pytest

import standout
from standout._dataset import fill_by_training
from standout._dpca import DPCA
from standout.errors import RareFeatureWarning, StructuralWarning
from standout.inference.assess import assess
from standout.inference.held_out import held_out_ratio
from standout.inference.permutation import null_modes, permutation_test
from standout.io.source import RowView

NAMES = [f"rs{100 + i}" for i in range(8)]
pytestmark = pytest.mark.filterwarnings(
    "ignore::standout.errors.OverfitWarning", "ignore::standout.errors.ShrinkageWarning"
)


def genotypes(path, missing, seed=0, carriers=(10, 200)):
    """Write 522 people, the first half of them cases, without a difference but two carriers of one allele."""
    rng = np.random.default_rng(seed)
    alleles = rng.binomial(2, rng.uniform(0.1, 0.5, 8), size=(522, 8)).astype(float)
    alleles[:, 4] = np.isin(np.arange(522), carriers)
    gaps = rng.random(alleles.shape) < missing
    gaps[list(carriers), 4] = False
    table = pd.DataFrame(np.where(gaps, np.nan, alleles), columns=NAMES)
    table.assign(status=np.where(np.arange(522) < 261, "case", "control")).to_csv(path, index=False)
    return path


def sides(path, how):
    return [standout.read(path, where={"status": status}, missing=how) for status in ("case", "control")]


@pytest.mark.filterwarnings("ignore:.*`missing='mean'`:standout.errors.StandoutWarning")
@pytest.mark.parametrize("how", ["mean", "auto"])
def test_a_fill_does_not_make_two_carriers_significant(tmp_path, how):
    # Both carriers are cases in a quarter of all labellings, and the ratio is then infinite.
    for seed in range(5):
        target, background = sides(genotypes(tmp_path / "people.csv", 0.03, seed), how)
        found = permutation_test(target, background, n_permutations=199, random_state=seed)
        assert found.ratios[0] == np.inf and found.p_values[0] == pytest.approx(0.25, abs=0.1)


@pytest.mark.filterwarnings(
    "ignore:.*`missing='mean'`:standout.errors.StandoutWarning", "ignore::standout.errors.RareFeatureWarning"
)
def test_means_are_those_of_each_dataset_however_it_is_given(tmp_path):
    path = genotypes(tmp_path / "people.csv", 0.03)
    whole = standout.read(path, label="status", missing="mean")
    with pytest.warns(StructuralWarning):
        by_label = DPCA(2, background_label="control").fit(whole)
    target, background = sides(path, "mean")
    with pytest.warns(StructuralWarning):
        apart = DPCA(2).fit(target, background=background)
    np.testing.assert_allclose(by_label.ratios_, apart.ratios_)
    assert by_label.ratios_[0] == np.inf


@pytest.mark.filterwarnings("ignore:.*`missing='mean'`:standout.errors.StandoutWarning")
def test_held_out_rows_are_filled_with_the_means_of_the_training_rows():
    rng = np.random.default_rng(1)
    gaps = [np.where(rng.random((n, 3)) < 0.2, np.nan, rng.normal(size=(n, 3))) for n in (30, 40)]
    sources = [standout.read(rows, missing="mean") for rows in gaps]
    training = [RowView(source, np.arange(10, source.n_rows)) for source in sources]
    held_out = [RowView(source, np.arange(10)) for source in sources]
    for filled, part in zip(fill_by_training(training, held_out), (slice(10, None), slice(10)), strict=True):
        for source, rows in zip(filled, gaps, strict=True):
            expected = np.where(np.isnan(rows), np.nanmean(rows[10:], axis=0), rows)[part]
            np.testing.assert_allclose(source.array, expected, rtol=1e-12)
    assert np.isfinite(held_out_ratio(*sources).ratios).all()


def test_a_global_fill_of_a_user_is_named(tmp_path):
    table = pd.read_csv(genotypes(tmp_path / "people.csv", 0.03))
    filled = table[NAMES].fillna(table[NAMES].mean())
    with pytest.warns(RareFeatureWarning, match="1 feature varies in few rows: 'rs104'"):
        model = DPCA(1).fit(filled[:261], background=filled[261:])
    assert model.ratios_[0] > 1000


@pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")
def test_the_test_is_repeated_without_rare_features_and_a_disagreement_is_reported(tmp_path):
    rng = np.random.default_rng(3)
    target, background = rng.normal(size=(60, 5)), rng.normal(size=(80, 5))
    target[:, 1] *= 2.5
    background[:, 3], target[:, 3] = np.isin(np.arange(80), [7, 30, 31]), 0
    found = permutation_test(target, background, n_permutations=199, shrinkage=None)
    assert found.rare == (3,) and found.without_rare.p_values[0] <= 0.01 and found.p_values[0] > 0.05
    plain = permutation_test(np.delete(target, 3, 1), np.delete(background, 3, 1), n_permutations=199, shrinkage=None)
    np.testing.assert_allclose(found.without_rare.null, plain.null)
    assert plain.without_rare is None and plain.rare == ()
    assert any("such features hide the finding" in note for note in found.notes)
    assert "without 3, which varies in few rows: ratio" in str(found.summary())
    whole = assess(target, background, n_components=1, n_permutations=99, n_bootstrap=0, folds=2)
    assert whole.test.rare == (3,) and str(whole.summary()).count("1 feature varies in few rows: 3 (3 rows)") == 1


def test_a_null_of_two_modes_is_reported_as_bimodal():
    rng = np.random.default_rng(4)
    target, background = rng.normal(size=(150, 4)), rng.normal(size=(150, 4))
    target[:, 2], background[:, 2] = 0.01 * target[:, 2], 0.01 * background[:, 2]
    background[5, 2] = 30.0
    found = permutation_test(target, background, n_permutations=199, shrinkage=None)
    low, high = null_modes(found.null[0])
    assert high > 10 * low
    assert "the null distribution is bimodal" in str(found.summary())


@pytest.mark.parametrize("draw", ["gaussian", "counts", "genotypes"])
def test_ordinary_null_distributions_are_not_bimodal(draw):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        target, background = (
            {
                "gaussian": rng.normal(size=(n, 6)),
                "counts": rng.poisson(2, size=(n, 6)),
                "genotypes": rng.binomial(2, 0.3, size=(n, 6)),
            }[draw]
            for n in (50, 40)
        )
        assert null_modes(permutation_test(target, background, n_permutations=99, n_jobs=1).null[0]) is None
