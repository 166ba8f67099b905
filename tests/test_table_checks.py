"""Findings about tables: columns that are not measurements, shared rows, transposed tables, rare features."""

import itertools
import re

import numpy as np
import pytest
from scipy import sparse
from sklearn import datasets

import standout
from helpers import OptionalPackage
from standout._dataset import Dataset
from standout._dpca import DPCA
from standout._kernel_dpca import KernelDPCA
from standout._table_checks import rare_features, table_notes
from standout.errors import DoubtWarning, FeatureError, FeatureWarning, RareFeatureWarning, TableWarning

pd = OptionalPackage("pandas")

pytestmark = pytest.mark.filterwarnings(
    "ignore::standout.errors.OverfitWarning", "ignore::standout.errors.ShrinkageWarning"
)
GENES = ["ACTB", "GAPDH", "TP53", "EGFR", "MYC", "KRAS", "PTEN", "CD4", "IL6", "TNF"]


def notes_of(target, background, kind=Warning):
    tables = [Dataset.of("target", target)]
    if background is not None:
        tables.append(Dataset.of("background", background))
    return [note for note in table_notes(tables) if issubclass(note.category, kind)]


def measured(rng, n_rows, n_features=4):
    return pd.DataFrame(rng.normal(size=(n_rows, n_features)), columns=[f"protein{i}" for i in range(n_features)])


@pytest.fixture
def pair():
    rng = np.random.default_rng(0)
    return measured(rng, 60), measured(rng, 50)


# Columns that are not measurements


@pytest.mark.parametrize(
    ("name", "target", "background"),
    {
        "row number": ("nr", np.arange(60), np.arange(50)),
        "row number from the last": ("nr", np.arange(60)[::-1], np.arange(50)),
        "row number in one file only": ("x", np.arange(60) + 0.5, np.random.default_rng(0).normal(size=50)),
        "batch": ("batch", np.repeat(1, 60), np.repeat(2, 50)),
        "plates": ("well_plate", np.arange(60) % 3, 7 + np.arange(50) % 2),
        "years": ("year", 1990 + np.arange(60) // 6, 2005 + np.arange(50) // 5),
        "shuffled ids": ("nr", np.random.default_rng(1).permutation(60), 60 + np.random.default_rng(2).permutation(50)),
        "time in hours": ("time", np.sort(np.random.default_rng(3).normal(size=60)), np.ones(50)),
        "days with ties": ("day", np.arange(60) // 20, np.arange(50) // 20),
    }.values(),
)
def test_a_column_that_is_not_a_measurement_withholds_the_verdict_until_it_is_dropped(pair, name, target, background):
    tables = pair[0].assign(**{name: target}), pair[1].assign(**{name: background})
    with pytest.warns(TableWarning, match=re.escape(f"1 feature does not look like a measurement: {name!r} (")):
        model = DPCA(1).fit(tables[0], background=tables[1])
    assert f"drop={name!r}" in " ".join(note.text for note in model._solved().notes)
    target, background = (standout.read(table, drop=name) for table in tables)
    plain = DPCA(1).fit(pair[0], background=pair[1])
    assert DPCA(1).fit(target, background=background)._solved().notes == plain._solved().notes


def test_columns_of_arrays_are_named_by_position(pair):
    rows = [np.column_stack([table, np.arange(len(table))]) for table in pair]
    assert "1 feature does not look like a measurement: 4 (sorted in row order)" in notes_of(*rows)[0].text


def test_columns_that_may_describe_rows_are_listed_once():
    rng = np.random.default_rng(4)
    pair = measured(rng, 60, 12), measured(rng, 50, 12)
    extra = [
        {
            "age": rng.integers(20, 80, n),
            "PatientID": rng.permutation(n) * 3 + 1000,
            "smoker": rng.integers(0, 2, n),
            "measured": rng.integers(2010, 2020, n),
            "visit_date": 20200100 + rng.integers(1, 28, n),
            "order": rng.permutation(n),
        }
        for n in (60, 50)
    ]
    (note,) = notes_of(*(table.assign(**columns) for table, columns in zip(pair, extra, strict=True)))
    assert note.category is FeatureWarning
    for name in ("'age' (by its name)", "'PatientID' (by its name)", "'smoker' (0 or 1)", "'measured' (like years)"):
        assert name in note.text
    assert "drop=['age', 'PatientID', 'smoker', 'measured', 'visit_date', 'order']" in note.text


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("load", ["iris", "breast_cancer", "wine", "digits", "diabetes"])
def test_real_measurements_raise_no_doubt(load, named):
    table = getattr(datasets, f"load_{load}")(as_frame=True)
    labels = table.target if load != "diabetes" else table.target > 140
    rows = table.data if named else table.data.to_numpy()
    scaled = (rows - rows.mean(axis=0)) / (rows.std(axis=0) + 1e-12)
    for one, other in itertools.permutations(sorted(set(labels))[:4], 2):
        for both in (rows, scaled):
            assert not notes_of(both[(labels == one).to_numpy()], both[(labels == other).to_numpy()], DoubtWarning)
    if load != "diabetes":
        assert not [note for note in notes_of(rows, None) if note.category is FeatureWarning]
    elif named:
        (note,) = notes_of(rows, None)
        assert note.text.startswith("used as features, and perhaps not measurements: 'age' (by its name), 'sex'")


@pytest.mark.data
def test_the_mice_raise_no_doubt_and_the_identical_features_are_one_finding(real_data):
    path = real_data("Data_Cortex_Nuclear.csv")
    target, background = (
        standout.read(path, where={"class": kinds}, missing="auto", label="class", ids="MouseID", columns="*_N")
        for kinds in (["t-SC-m", "t-SC-s"], ["c-CS-m", "c-SC-m"])
    )
    notes = table_notes([Dataset("target", target), Dataset("background", background)])
    assert [note.text.split(".")[0] for note in notes] == ["identical features: 'ARC_N' = 'pS6_N'"]


@pytest.mark.parametrize(
    ("m", "n", "p"), [(5, 5, 3), (5, 5, 300), (8, 8, 1000), (12, 6, 2000), (20, 30, 5), (300, 200, 50)]
)
def test_noise_of_any_shape_raises_no_doubt(m, n, p):
    rng = np.random.default_rng(m + p)
    for _ in range(40):
        assert not notes_of(rng.normal(size=(m, p)), rng.normal(size=(n, p)))


@pytest.mark.parametrize("kind", ["counts", "genotypes", "sparse"])
def test_counts_and_genotypes_raise_no_doubt(kind):
    rng = np.random.default_rng(5)
    rates = rng.gamma(2, 3, size=30)
    for _ in range(40):
        target, background = (
            {
                "counts": rng.poisson(rates, size=(n, 30)),
                "genotypes": rng.binomial(2, rng.uniform(0.1, 0.5, size=30), size=(n, 30)),
                "sparse": rng.poisson(0.5, size=(n, 30)),
            }[kind]
            for n in (90, 70)
        )
        frames = [pd.DataFrame(rows, columns=[f"rs{i}" for i in range(30)]) for rows in (target, background)]
        assert not notes_of(*frames, DoubtWarning) and not notes_of(target, background, DoubtWarning)


def test_a_marker_that_separates_the_classes_is_a_measurement(pair):
    shifted = pair[0] + [100, 0, 0, 0]
    assert not notes_of(shifted, pair[1])
    alleles = np.random.default_rng(0).binomial(2, 0.3, size=(60, 20))  # fixed differently in two populations
    fixed = alleles.copy()
    alleles[:, 3], fixed[:, 3] = 0, 2
    assert not notes_of(alleles, fixed[::-1], TableWarning)


def test_a_series_of_features_named_by_time_is_a_measurement():
    rng = np.random.default_rng(0)
    frames = [pd.DataFrame(rng.normal(size=(n, 6)), columns=[f"time {i}" for i in range(6)]) for n in (40, 30)]
    assert not notes_of(*frames)


# Shared rows


def test_a_fit_of_data_against_itself_warns_with_the_count(pair):
    for rows in (pair[0], pair[0].to_numpy()):
        with pytest.warns(TableWarning, match="background: all 60 rows are also in the target"):
            assert DPCA(1, shrinkage=None).fit(rows, background=rows).ratios_[0] == pytest.approx(1)
    with pytest.warns(TableWarning, match="all 60 rows"):
        KernelDPCA(1, n_landmarks=20).fit(pair[0].to_numpy(), background=pair[0].to_numpy())


@pytest.mark.parametrize("order", ["C", "F"])
def test_shared_rows_are_counted(pair, order):
    target, background = (np.asarray(table, order=order) for table in pair)
    mixed = np.asarray(np.concatenate([background[:20], target[[3, 3, 50, 7]], background[20:]]), order=order)
    assert "background: 4 of the 54 rows are also in the target" in notes_of(target, mixed)[0].text
    assert not notes_of(target, background)
    assert not notes_of(target, np.nextafter(target, np.inf))


def test_rows_of_weight_zero_are_not_shared(pair):
    rows = np.concatenate(pair)
    own = np.arange(len(rows)) < 60
    weights = {"sample_weight": own, "background_sample_weight": ~own}
    assert not [
        note for note in DPCA(1).fit(rows, background=rows, **weights)._solved().notes if note.category is TableWarning
    ]


def test_equal_rows_of_discrete_data_are_chance_unless_they_are_all_shared():
    rng = np.random.default_rng(6)
    for _ in range(40):
        target, background = rng.binomial(2, 0.2, size=(200, 6)), rng.binomial(2, 0.2, size=(150, 6))
        assert not notes_of(target, background, TableWarning)
    genotypes = rng.binomial(2, 0.4, size=(100, 40))
    assert "all 60 rows" in notes_of(genotypes, genotypes[:60])[0].text


def test_the_same_large_file_is_noticed(pair, tmp_path):
    pair[0].to_csv(tmp_path / "rows.csv", index=False)
    pair[1].to_csv(tmp_path / "other.csv", index=False)
    source, other = (standout.read(tmp_path / name, memory=0) for name in ("rows.csv", "other.csv"))
    with pytest.warns(TableWarning, match="its first rows are also in the target"):
        DPCA(1).fit(source, background=standout.read(tmp_path / "rows.csv", memory=0))
    assert not notes_of(source, other)


# Transposed tables


@pytest.fixture
def genes(tmp_path):
    """Two tables with genes in rows, and the same with genes in columns."""
    rng = np.random.default_rng(7)
    tables = {}
    for name, count in (("patients", 30), ("controls", 25)):
        table = pd.DataFrame(rng.normal(size=(count, 10)), columns=GENES, index=[f"{name}_{i}" for i in range(count)])
        table.to_csv(tmp_path / f"{name}.csv")
        table.T.to_csv(tmp_path / f"{name}_t.csv", index_label="gene")
        tables[name] = table
    return tables


def test_transposed_tables_are_refused_with_the_remedy_and_read_with_it(genes, tmp_path):
    target, background = (standout.read(tmp_path / f"{name}_t.csv", ids="gene") for name in genes)
    with pytest.raises(
        FeatureError, match=r"Both have rows of the same names.*Use `standout.read\(X, transpose=True\)`"
    ):
        DPCA(1).fit(target, background=background)
    target, background = (standout.read(tmp_path / f"{name}_t.csv", transpose=True) for name in genes)
    assert target.names == tuple(GENES) and target.row_ids.tolist() == list(genes["patients"].index)
    np.testing.assert_array_equal(target.array, genes["patients"])
    expected = DPCA(1).fit(genes["patients"], background=genes["controls"])
    np.testing.assert_allclose(DPCA(1).fit(target, background=background).ratios_, expected.ratios_)


def test_one_transposed_table_is_reported_from_the_other(genes):
    frames = list(genes.values())
    with pytest.raises(FeatureError, match=r"background: .*Its rows have names of the features of the target"):
        DPCA(1).fit(frames[0], background=frames[1].T)
    with pytest.raises(FeatureError, match="so that the target looks transposed"):
        DPCA(1).fit(frames[0].T, background=frames[1])
    with pytest.raises(FeatureError, match="as many rows as the target has features: is it transposed"):
        DPCA(1).fit(frames[0].to_numpy(), background=frames[1].to_numpy().T)


def test_gene_names_in_rows_and_sample_names_in_columns_raise_doubt(genes):
    rng = np.random.default_rng(8)
    ensembl = pd.DataFrame(rng.normal(size=(40, 5)), index=[f"ENSG{i:011d}" for i in range(40)], columns=list("abcde"))
    assert "its rows have names of features ('ENSG00000000000'" in notes_of(ensembl, None)[0].text
    samples = measured(rng, 40, 6).set_axis([f"GSM{10000 + i}" for i in range(6)], axis=1)
    assert "its columns have names of samples ('GSM10000'" in notes_of(samples, None)[0].text
    assert (
        notes_of(genes["patients"].T.set_axis([f"c{i}" for i in range(30)], axis=1), None)[0].category is TableWarning
    )
    assert not notes_of(genes["patients"], genes["controls"])


def test_frames_arrays_and_sparse_matrices_can_be_transposed(genes, tmp_path):
    table = genes["patients"]
    for turned in (table.T, table.T.reset_index(names="gene")):
        source = standout.read(turned, transpose=True)
        assert source.names == tuple(GENES) and source.row_ids.tolist() == list(table.index)
        np.testing.assert_array_equal(source.array, table)
    np.testing.assert_array_equal(standout.read(table.to_numpy().T, transpose=True).array, table)
    np.testing.assert_array_equal(standout.read(standout.read(table.T), transpose=True).rows(0, 30), table)
    counts = sparse.random_array((8, 30), density=0.3, random_state=np.random.default_rng(0), format="csr")
    np.testing.assert_array_equal(standout.read(counts, transpose=True).rows(0, 30), counts.toarray().T)
    assert standout.read(table.T, transpose=True, columns=["MYC", "I*"]).names == ("MYC", "IL6")
    np.save(tmp_path / "genes.npy", table.to_numpy().T)
    np.testing.assert_array_equal(standout.read(tmp_path / "genes.npy", transpose=True).rows(0, 30), table)


def test_missing_values_and_dropped_features_of_transposed_tables(genes, tmp_path):
    table = genes["patients"].copy()
    table.iloc[3, 2] = np.nan
    table.T.to_csv(tmp_path / "gaps.csv", index_label="gene")
    source = standout.read(tmp_path / "gaps.csv", transpose=True, missing="drop_rows", drop=["MYC", "patients_1"])
    expected = table.drop(index=["patients_1", "patients_3"], columns="MYC")
    assert source.names == tuple(expected.columns) and list(source.row_ids) == list(expected.index)
    np.testing.assert_array_equal(source.rows(0, len(expected)), expected)


def test_what_cannot_be_transposed_is_refused(genes, tmp_path, refused):
    path = tmp_path / "patients_t.csv"
    refused(lambda: standout.read(path, transpose=True, memory=0), "needs the whole table in memory", "`memory`")
    refused(lambda: standout.read(path, transpose=True, label="gene"), "columns become rows", "`label`")
    refused(lambda: standout.read(path, transpose=True, drop="BRCA9"), "BRCA9", "ACTB")
    text = genes["patients"].T.assign(kind="x", chromosome="y").reset_index(names="gene")
    refused(lambda: standout.read(text, transpose=True), "2 of them hold text", "'kind', 'chromosome'", "`drop`")
    assert standout.read(text, transpose=True, drop=["kind", "chromosome"]).n_rows == 30
    twice = pd.concat([genes["patients"].T, genes["patients"].T[:2]])
    refused(lambda: standout.read(twice, transpose=True), "2 of them are missing or not distinct", "'ACTB', 'GAPDH'")


# Rare features


def test_features_that_vary_in_a_handful_of_background_rows_are_named():
    rng = np.random.default_rng(9)
    target, background = rng.binomial(2, 0.3, size=(522, 12)), rng.binomial(2, 0.3, size=(522, 12))
    background[:, 4] = np.isin(np.arange(522), [17, 401])
    names = [f"rs{100 + i}" for i in range(12)]
    frames = [pd.DataFrame(rows, columns=names) for rows in (target, background)]
    with pytest.warns(RareFeatureWarning, match=r"1 feature varies in few rows: 'rs104' \(2 rows\)"):
        DPCA(1).fit(frames[0], background=frames[1])
    assert rare_features([background[:261], background[261:]], background) == {4: 2}


def test_a_variance_that_rests_on_few_rows_is_rare_and_heavy_tails_are_not():
    rng = np.random.default_rng(10)
    rows = rng.normal(size=(135, 20))
    rows[[5, 80], 3] = 200.0
    assert rare_features([rows], rows) == {3: 2}
    assert not any(rare_features([tails], tails) for tails in rng.standard_t(4, size=(50, 100, 20)))
    six = np.where(np.arange(60)[:, None] < 6, 1.0, 0.0)
    assert rare_features([six], six) == {}  # six rows are not a handful
    assert rare_features([np.ones((60, 2))], np.ones((60, 2))) == {}  # constant features are structural
