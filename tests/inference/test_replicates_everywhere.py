"""Replicates are found wherever ids may be, before anything is claimed; the suggestion can be followed literally."""

import re
import shlex
import warnings

import anndata
import numpy as np
import pandas as pd
import pytest

import standout
from standout import CPCA, DPCA, KernelDPCA, Moments
from standout.errors import ReplicateWarning

NAMES = [f"p{i}" for i in range(6)]


def mice(units, seed, each=10, within=0.4):
    """Rows of mice that were measured several times, and their ids such as 309_1."""
    rng = np.random.default_rng(seed)
    rows = np.repeat(rng.normal(size=(units, len(NAMES))), each, axis=0)
    rows += within * rng.normal(size=rows.shape)
    return rows, [f"{300 + 7 * unit + 1000 * seed}_{run + 1}" for unit in range(units) for run in range(each)]


@pytest.fixture
def table():
    """All mice in one table, with their class."""
    parts = []
    for kind, units, seed in (("trisomic", 12, 1), ("control", 9, 2)):
        rows, ids = mice(units, seed)
        frame = pd.DataFrame(rows, columns=NAMES)
        frame.insert(0, "MouseID", ids)
        parts.append(frame.assign(Genotype=kind, Treatment=np.where(np.arange(len(rows)) // 30 % 2, "m", "s")))
    return pd.concat(parts, ignore_index=True)


@pytest.fixture
def mice_file(table, tmp_path):
    table.to_csv(tmp_path / "mice.csv", index=False)
    return tmp_path / "mice.csv"


def found(call):
    """The ReplicateWarnings of a call."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(one.message) for one in caught if issubclass(one.category, ReplicateWarning)]


def suggested(text):
    """The code in backticks that a message suggests."""
    return re.search(r"`([^`]*groups=.*?)`", text)[1]


LITTLE = {
    "fit": [],
    "report": ["-o", "page.html"],
    "compare": [],
    "test": ["--permutations", "19", "--folds", "2", "--bootstrap", "5"],
}


@pytest.mark.parametrize("flags", [[], ["--quiet"], ["--json"], ["--quiet", "--json"]], ids=" ".join)
@pytest.mark.parametrize("command", LITTLE)
@pytest.mark.filterwarnings("ignore")
def test_every_command_names_the_replicates_and_the_options_to_use(
    mice_file, done, command, flags, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    asked = [command, mice_file, "--by", "Genotype", "-b", "control", *LITTLE[command]]
    shown = done(*asked, *flags)
    printed = shown.err if flags else shown.out + shown.err
    assert "120 rows look like replicates of 12 units" in printed and "90 rows look like replicates of 9" in printed
    options = re.search(r"Use (--groups .*) to count", printed)[1]
    assert options == "--groups MouseID --groups-match '^[^_]+'"
    followed = done(*asked, *flags, *shlex.split(options))
    assert "replicates" not in followed.err.lower() and "look like" not in followed.out


@pytest.mark.filterwarnings("ignore")
def test_groups_of_one_row_each_are_called_out(mice_file, done):
    asked = ["fit", mice_file, "--by", "Genotype", "-b", "control", "--groups", "MouseID"]
    shown = done(*asked).out
    assert "target: the groups are one row each, and the 120 rows look like replicates of 12 units" in shown
    assert "Use --groups MouseID --groups-match '^[^_]+' to count" in shown
    rng = np.random.default_rng(0)
    single = np.arange(60)
    rows, others = rng.normal(size=(60, 5)), rng.normal(size=(60, 5))
    assert found(lambda: DPCA(1).fit(rows, background=others, groups=single, background_groups=single)) == []


def test_the_suggestion_for_a_file_works_in_python(mice_file):
    def read(kind, **more):
        return standout.read(mice_file, where={"Genotype": kind}, drop="Treatment", **more)

    texts = found(lambda: DPCA(1).fit(read("trisomic"), background=read("control")))
    assert len(texts) == 2
    code = suggested(texts[0])
    assert code == "standout.read(..., groups='MouseID', groups_match='^[^_]+')"
    more = eval(code.replace("standout.read(..., ", "dict("))
    model = DPCA(1)
    assert found(lambda: model.fit(read("trisomic", **more), background=read("control", **more))) == []
    assert [part.rows for _, part in model._solved().background_counts] == [90]


def test_the_suggestion_for_an_index_works(table):
    frame = table.set_index("MouseID")
    X, Y = (frame.loc[frame["Genotype"] == kind, NAMES] for kind in ("trisomic", "control"))
    texts = found(lambda: DPCA(1).fit(X, background=Y))
    assert [text.split(":")[0] for text in texts] == ["target", "background"]
    (argument,) = [suggested(text) for text in texts[:1]]
    groups = eval(argument.removeprefix("groups="), {"X": X})
    others = eval(argument.removeprefix("groups="), {"X": Y})
    assert len(set(groups)) == 12 and len(set(others)) == 9
    assert found(lambda: DPCA(1).fit(X, background=Y, groups=groups, background_groups=others)) == []


def test_a_level_of_an_index_is_an_id(table):
    frame = table.assign(run=np.arange(len(table)) % 10, subject=table["MouseID"].str.extract("^([^_]+)")[0])
    X, Y = (frame[frame["Genotype"] == kind].set_index(["subject", "run"])[NAMES] for kind in ("trisomic", "control"))
    texts = found(lambda: DPCA(1).fit(X, background=Y))
    assert suggested(texts[0]) == "groups=X.index.get_level_values('subject')"


@pytest.mark.parametrize("estimator", [DPCA(1), CPCA(1), KernelDPCA(1)], ids=lambda one: type(one).__name__)
def test_every_estimator_warns_and_keeps_the_note(table, estimator):
    X, Y = (standout.read(part, columns=NAMES) for _, part in table.groupby("Genotype", sort=False))
    assert len(found(lambda: estimator.fit(X, background=Y))) == 2
    assert sum(note.category is ReplicateWarning for note in estimator._solved().notes) == 2


@pytest.mark.parametrize(
    "ask",
    [
        lambda *sides: standout.permutation_test(*sides, n_permutations=9),
        lambda *sides: standout.held_out_ratio(*sides, folds=2),
        lambda *sides: standout.stability(*sides, n_bootstrap=4, n_components=1),
        lambda *sides: standout.assess(*sides, n_permutations=9, n_bootstrap=0, folds=0),
        lambda *sides: standout.compare(*sides, n_components=1, n_representatives=2),
    ],
    ids=["permutation_test", "held_out_ratio", "stability", "assess", "compare"],
)
def test_every_analysis_warns(table, ask):
    X, Y = (part.set_index("MouseID")[NAMES] for _, part in table.groupby("Genotype", sort=False))
    assert len(set(found(lambda: ask(X, Y)))) == 2


def test_a_column_of_obs_is_tried(table):
    donors = table["MouseID"].str.extract("^([^_]+)")[0].to_numpy()
    obs = pd.DataFrame({"donor": donors, "Genotype": table["Genotype"].to_numpy()})
    obs.index = [f"cell{i}" for i in range(len(obs))]
    adata = anndata.AnnData(table[NAMES].to_numpy(), obs=obs, var=pd.DataFrame(index=NAMES))
    asked = {"groupby": "Genotype", "background": "control", "n_comps": 1}
    texts = found(lambda: standout.anndata.dpca(adata, **asked))
    assert len(texts) == 2 and "given by the column 'donor'" in texts[0]
    assert suggested(texts[0].replace("subjects=", "groups=")) == "groups='donor'" and "subjects='donor'" in texts[0]
    assert found(lambda: standout.anndata.dpca(adata, subjects="donor", **asked)) == []


def test_classes_ages_and_measurements_are_not_ids():
    rng = np.random.default_rng(0)
    age = rng.integers(20, 80, size=400)
    kind = rng.integers(0, 5, size=400)
    rows = rng.normal(size=(400, 6)) + 0.1 * age[:, None] + 3 * rng.normal(size=(5, 6))[kind]
    frame = pd.DataFrame(rows, columns=NAMES).assign(
        age=age, kind=np.array(list("abcde"))[kind], height=[f"{value:.1f}" for value in rows[:, 0]]
    )
    source = standout.read(frame, columns=NAMES)
    assert found(lambda: DPCA(1).fit(source, background=rng.normal(size=(300, 6)))) == []
    assert standout.find_replicates(rows, age) is None  # rows of the next age are as close


def one_sided():
    rows, ids = mice(8, 3)
    other, _ = mice(7, 4)
    return rows, other, [name.split("_")[0] for name in ids]


@pytest.mark.parametrize(
    "ask",
    [
        lambda X, Y, **given: DPCA(1).fit(X, background=Y, **given),
        lambda X, Y, **given: standout.permutation_test(X, Y, n_permutations=9, **given),
        lambda X, Y, **given: standout.held_out_ratio(X, Y, **given),
        lambda X, Y, **given: standout.stability(X, Y, n_bootstrap=3, n_components=1, **given),
        lambda X, Y, **given: standout.assess(X, Y, n_permutations=9, n_bootstrap=0, folds=0, **given),
        lambda X, Y, **given: standout.compare(X, Y, **given),
    ],
    ids=["fit", "permutation_test", "held_out_ratio", "stability", "assess", "compare"],
)
def test_groups_on_one_side_only_are_refused(ask, refused):
    rows, other, groups = one_sided()
    refused(lambda: ask(rows, other, groups=groups), "background: it has no groups", "`background_groups=`")
    refused(lambda: ask(other, rows, background_groups=groups), "target: it has no groups", "`groups=`")


def test_moments_without_groups_are_a_warning():
    rows, other, groups = one_sided()
    texts = found(lambda: DPCA(1).fit(rows, background=Moments.of(other), groups=groups))
    assert len(texts) == 1 and "its moments have no groups" in texts[0]
    grouped = Moments.of(other, groups=np.arange(len(other)))
    assert found(lambda: DPCA(1).fit(rows, background=grouped, groups=groups)) == []


# Rows that are almost equal


def copies(seed=0, noise=0.0, n=60):
    rng = np.random.default_rng(seed)
    rows = np.repeat(rng.normal(size=(n, 8)) * 10.0 ** np.arange(-3, 5), 3, axis=0)
    return rng.permutation(rows * (1 + noise * rng.normal(size=rows.shape)))


@pytest.mark.parametrize("noise", [0.0, 1e-7, 1e-5])
def test_copies_are_found_without_ids(noise, remedy):
    rows = copies(noise=noise)
    finding = standout.find_replicates(rows)
    assert (finding.n_rows, finding.n_units, finding.match) == (180, 60, None)
    for unit in set(finding.groups):
        inside = rows[finding.groups == unit]
        np.testing.assert_allclose(inside, inside[[0, 0, 0]], rtol=20 * noise + 1e-15)
    remedy(finding.text)
    other = np.random.default_rng(1).normal(size=(99, 8)) * 10.0 ** np.arange(-3, 5)
    (text,) = found(lambda: DPCA(1).fit(rows, background=other))
    assert text.startswith("target: 120 of 180 rows are equal or almost equal")
    given = {"groups": finding.groups, "background_groups": np.arange(99)}
    assert found(lambda: DPCA(1).fit(rows, background=other, **given)) == []


def test_copies_beyond_the_sample_are_grouped_too():
    rows = np.repeat(np.random.default_rng(0).normal(size=(1500, 5)), 2, axis=0)
    finding = standout.find_replicates(rows)
    assert finding.n_rows == 3000 and finding.n_units == 1500 and "of the first 2000 rows" in finding.text


CLEAN = {
    "Gaussian": lambda rng: rng.normal(size=(500, 6)),
    "heavy tails": lambda rng: rng.standard_t(1.5, size=(500, 6)),
    "two features": lambda rng: rng.normal(size=(2000, 2)),
    "three features": lambda rng: rng.normal(size=(2000, 3)),
    "binary": lambda rng: rng.integers(0, 2, size=(400, 5)),
    "genotypes": lambda rng: rng.binomial(2, [0.1, 0.3, 0.5, 0.2, 0.05, 0.4], size=(500, 6)),
    "one-hot": lambda rng: np.eye(4)[rng.integers(0, 4, size=300)],
    "one-hot of two": lambda rng: np.hstack([np.eye(5)[rng.integers(0, 5, 300)], np.eye(7)[rng.integers(0, 7, 300)]]),
    "small counts": lambda rng: rng.poisson(1.0, size=(500, 4)),
    "larger counts": lambda rng: rng.poisson(4.0, size=(2000, 3)),
    "rounded sensors": lambda rng: rng.normal(size=(2000, 3)).round(1),
    "correlated sensors": lambda rng: (rng.normal(size=(2000, 1)) + 0.02 * rng.normal(size=(2000, 4))).round(2),
    "many empty rows": lambda rng: rng.normal(size=(300, 5)) * (np.arange(300) % 3 > 0)[:, None],
    "smooth series": lambda rng: np.sin(np.linspace(0, 9, 2000)[:, None] + np.arange(4) + 0 * rng.normal()),
    "random walk": lambda rng: rng.normal(size=(2000, 5)).cumsum(axis=0),
    "one duplicate": lambda rng: np.vstack([rows := rng.normal(size=(99, 5)), rows[:1]]),
    "scales": lambda rng: rng.normal(size=(1500, 5)) * [1, 1e-6, 1e6, 1e3, 1e-3],
}


@pytest.mark.parametrize("kind", CLEAN)
def test_independent_rows_of_any_kind_are_not_copies(kind):
    for seed in range(20):
        assert standout.find_replicates(CLEAN[kind](np.random.default_rng(seed))) is None


@pytest.mark.data
@pytest.mark.filterwarnings("ignore")
def test_the_commands_of_the_readme_name_the_mice(real_data, done):
    path = real_data("Data_Cortex_Nuclear.csv")
    asked = ["fit", path, "--by", "class", "--target", "t-SC-m,t-SC-s", "-b", "c-CS-s", "--missing", "auto"]
    shown = done(*asked, "--quiet").err
    assert "270 rows look like replicates of 18 units" in shown and "135 rows look like replicates of 9 units" in shown
    options = re.search(r"Use (--groups .*) to count", shown)[1]
    assert options == "--groups MouseID --groups-match '^[^_]+'"
    assert "replicates" not in done(*asked, *shlex.split(options)).err


@pytest.mark.data
def test_the_mice_are_found_by_the_index_of_a_frame(real_data):
    table = pd.read_csv(real_data("Data_Cortex_Nuclear.csv"), encoding="utf-8-sig", index_col="MouseID")
    proteins = table.iloc[:, :77].fillna(table.iloc[:, :77].mean())
    X, Y = proteins[table["class"].isin(["t-SC-m", "t-SC-s"])], proteins[table["class"] == "c-CS-s"]
    texts = found(lambda: DPCA(1).fit(X, background=Y))
    assert suggested(texts[0]) == "groups=X.index.str.extract('(^[^_]+)', expand=False)"
    groups, others = (eval(suggested(texts[0])[7:], {"X": frame}) for frame in (X, Y))
    assert (len(set(groups)), len(set(others))) == (18, 9)
    assert found(lambda: DPCA(1).fit(X, background=Y, groups=groups, background_groups=others)) == []


@pytest.mark.parametrize("name", ["subject", "mouse", "patient_id"])
def test_whole_numbers_that_identify_units_are_tried_as_ids_although_they_are_features(tmp_path, name):
    rng = np.random.default_rng(0)
    for side, n_units in (("target", 9), ("background", 10)):
        units = np.repeat(np.arange(n_units) + 100, 12)
        rows = (rng.normal(size=(n_units, 6)) + 0.3 * rng.normal(size=(12, n_units, 6))).swapaxes(0, 1).reshape(-1, 6)
        order = rng.permutation(len(rows))
        frame = pd.DataFrame(rows[order], columns=[f"protein{k}" for k in range(6)])
        frame.assign(**{name: units[order]}).to_csv(tmp_path / f"{side}.csv", index=False)
    sides = [tmp_path / "target.csv", tmp_path / "background.csv"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = standout.DPCA(2).fit(sides[0], background=sides[1])
    found = [str(warning.message) for warning in caught if warning.category is ReplicateWarning]
    assert len(found) == 2 and f"9 units, given by the column '{name}'" in found[0] and f"groups='{name}'" in found[0]
    assert "Cannot be judged: rows look like replicates" in model.summary()


def replicated(rng, n_units, n_rows=12, n_features=6):
    """Shuffled replicates of some units, and the unit of each row."""
    units = rng.permutation(np.repeat(np.arange(n_units), n_rows))
    return rng.normal(size=(n_units, n_features))[units] + 0.3 * rng.normal(size=(len(units), n_features)), units


@pytest.mark.parametrize("reading", [{}, {"memory": 0}], ids=["in memory", "in blocks"])
def test_colouring_by_subject_does_not_hide_replicates(tmp_path, reading):
    rows, units = replicated(np.random.default_rng(1), 9)
    frame = pd.DataFrame(rows).add_prefix("protein").assign(subject=[f"P{unit:02}" for unit in units])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    source = standout.read(tmp_path / "rows.csv", label="subject", **reading)
    finding = standout.find_replicates(source)
    assert finding.n_units == 9 and "groups='subject'" in finding.text
    assert len(found(lambda: DPCA(1).fit(source, background=np.random.default_rng(2).normal(size=rows.shape)))) == 1


def test_a_whole_number_index_that_repeats_is_tried_as_ids():
    rows, units = replicated(np.random.default_rng(2), 9)
    frame = pd.DataFrame(rows, index=units + 300).add_prefix("protein")
    assert standout.find_replicates(frame).n_units == 9
    noise = pd.DataFrame(np.random.default_rng(3).normal(size=rows.shape), index=units + 300).add_prefix("protein")
    assert standout.find_replicates(noise) is None
