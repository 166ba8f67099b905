"""The commands on files: fit, embed, denoise, info and compare agree with the library."""

import html
import re
import shlex

import numpy as np
import pandas as pd
import pytest

import standout
from commands import both, fitted, frame, quiet, same, spoilt
from conftest import NAMES
from standout._cpca import CPCA
from standout._dpca import DPCA
from standout._kernel_dpca import KernelDPCA


def test_fit_writes_the_model_that_the_library_fits(data, files, done):
    result = done("fit", files / "target.csv", "-b", files / "background.csv", "-o", files / "m.standout")
    expected = fitted(data)
    same(standout.load(files / "m.standout"), expected)
    assert table_of(expected) in result.out
    assert "m.standout" in result.out


def table_of(model):
    """Return the summary up to the verdict, whose next step is a call in Python and a command here."""
    return str(model.summary()).partition("\nMay stand out")[0]


def test_fit_ends_with_the_test_of_the_same_data_by_the_same_options(data, files, done):
    sides = ["fit", files / "target.csv", "-b", files / "background.csv"]
    drawn = ["--label", "kind", "--ids", "id", "--drop", "a,b"]
    result = done(*sides, *drawn, "-k", "3", "--shrinkage", "none", "--axes", "ratio", "-o", files / "m.standout")
    command = shlex.join(map(str, ["standout", "test", *sides[1:], "--drop", "a,b", "--label", "kind", "--ids", "id"]))
    assert f"To confirm it: {command} -k 3 --shrinkage none" in result.out
    assert command in done("info", files / "m.standout").out
    printed = done(*sides, *drawn, "--json").json["verdict"]
    assert printed["kind"] == "may_stand_out" and printed["headline"].startswith("May stand out: ")
    assert printed["next_step"] == f"To confirm it: {command}" and len(printed["reasons"]) > 1
    done(*command.split()[1:], "--permutations", "19", "--bootstrap", "0")


def test_fit_notes_columns_that_are_not_features(files, done):
    result = done("fit", files / "target.csv", "-b", files / "background.csv")
    assert "note:" in result.err and "'id', 'kind'" in result.err
    named = done("fit", files / "target.csv", "-b", files / "background.csv", "--label", "kind", "--ids", "id")
    assert named.err == ""


def test_fit_writes_scores_with_ids_and_labels(data, files, done):
    done("fit", files / "target.csv", "-b", files / "background.csv", "--label", "kind", "--ids", "id",
         "--scores", files / "scores.csv")  # fmt: skip
    scores = pd.read_csv(files / "scores.csv")
    model = fitted(data)
    of_target = scores[scores["dataset"] == "target"]
    np.testing.assert_allclose(of_target[["dpca0", "dpca1"]], model.transform(frame(data.target)), rtol=1e-9, atol=1e-9)
    assert list(of_target["id"]) == [f"r{i}" for i in range(len(data.target))]
    assert list(of_target["kind"][:3]) == ["one", "two", "two"]
    rest = scores[scores["dataset"] == "background"]
    np.testing.assert_allclose(rest[["dpca0", "dpca1"]], model.transform(frame(data.background)), rtol=1e-9, atol=1e-9)


def test_one_file_is_split_by_a_column(data, one_file, done, tmp_path):
    done("fit", one_file, "--by", "state", "--target", "ill", "-b", "sham,rest", "-o", tmp_path / "m.standout")
    same(standout.load(tmp_path / "m.standout"), fitted(data))


def test_one_file_without_target_labels_takes_all_other_rows(data, one_file, done, tmp_path):
    done("fit", one_file, "--by", "state", "-b", "sham,rest", "-o", tmp_path / "m.standout")
    same(standout.load(tmp_path / "m.standout"), fitted(data))


def test_several_backgrounds_keep_their_own_means(data, one_file, done, tmp_path):
    done("fit", one_file, "--by", "state", "--target", "ill", "-b", "sham", "-b", "rest", "--mix", "equal",
         "-o", tmp_path / "m.standout")  # fmt: skip
    several = {"sham": frame(data.background[:140]), "rest": frame(data.background[140:])}
    same(standout.load(tmp_path / "m.standout"), DPCA(mix="equal").fit(frame(data.target), background=several))
    shares = done("info", tmp_path / "m.standout", "--json").json["model"]["backgrounds"]
    assert {name: part["share"] for name, part in shares.items()} == {
        "background 'sham'": 0.5,
        "background 'rest'": 0.5,
    }


@quiet
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["-k", "1"], DPCA(1)),
        (["-k", "auto"], DPCA("auto")),
        (["-k", "all"], DPCA(None)),
        (["--shrinkage", "oas"], DPCA(shrinkage="oas")),
        (["--shrinkage", "none"], DPCA(shrinkage=None)),
        (["--shrinkage", "0.2", "--normalize", "background"], DPCA(shrinkage=0.2, normalize="background")),
        (["--axes", "signal"], DPCA(axes="signal")),
        (["--centering", "background"], DPCA(centering="background")),
        (["--method", "cpca", "--alpha", "1.5"], CPCA(alpha=1.5)),
        (["--method", "cpca", "--alpha", "trace_ratio"], CPCA(alpha="trace_ratio")),
        (["--method", "cpca", "--seed", "3"], CPCA(random_state=3)),
    ],
)
def test_options_are_the_parameters_of_the_estimators(data, files, done, options, expected):
    done("fit", files / "target.csv", "-b", files / "background.csv", "-o", files / "m.standout", *options)
    same(standout.load(files / "m.standout"), expected.fit(frame(data.target), background=frame(data.background)))


@quiet
def test_kernel_models_are_fitted_and_applied(data, files, done):
    done("fit", files / "target.csv", "-b", files / "background.csv", "--method", "kernel-dpca", "--kernel", "poly",
         "--landmarks", "50", "-o", files / "m.standout")  # fmt: skip
    expected = KernelDPCA(kernel="poly", n_landmarks=50).fit(frame(data.target), background=frame(data.background))
    done("embed", files / "m.standout", files / "target.csv", "-o", files / "scores.npy")
    np.testing.assert_allclose(
        np.load(files / "scores.npy"), expected.transform(frame(data.target)), rtol=1e-7, atol=1e-8
    )


def test_pca_needs_no_background(data, files, done):
    done("fit", files / "target.csv", "--method", "pca", "-o", files / "m.standout")
    same(standout.load(files / "m.standout"), DPCA().fit(frame(data.target)))


def test_groups_are_counted_and_a_pattern_extracts_the_subject(data, files, done):
    copies = [np.repeat(rows[: len(rows) // 4], 4, axis=0) for rows in data]
    for name, rows in zip(("target", "background"), copies, strict=True):
        table = frame(rows)
        table["id"] = [f"{i // 4}_{i % 4}" for i in range(len(rows))]
        table.to_csv(files / f"{name}.csv", index=False)
    sides = ["fit", files / "target.csv", "-b", files / "background.csv", "--groups", "id", "--json"]
    whole = done(*sides).json["model"]
    assert whole["target"]["units"] == len(data.target)
    by_subject = done(*sides, "--groups-match", "^[^_]+").json["model"]
    assert by_subject["target"]["rows"] == len(data.target)
    assert by_subject["target"]["units"] == pytest.approx(len(data.target) / 4, rel=0.2)
    assert by_subject["backgrounds"]["background"]["units"] == pytest.approx(len(data.background) / 4, rel=0.2)
    groups = np.arange(len(data.target)) // 4
    model = DPCA().fit(copies[0], background=copies[1], groups=groups,
                       background_groups=np.arange(len(data.background)) // 4)  # fmt: skip
    assert by_subject["noise_edge"] == pytest.approx(model.noise_edge_)
    assert by_subject["p_value"] == pytest.approx(model.p_value_)


@quiet
@pytest.mark.parametrize("memory", ["256MB", "0"])
def test_missing_values_are_handled_by_the_chosen_rule(data, files, done, memory):
    target, background = spoilt(files, data)
    kept = ["a", "c", "e"]
    expected = {
        "drop_rows": (target.dropna(), background.dropna()),
        "drop_features": (target[kept], background[kept]),
        "mean": (target.fillna(target.mean()), background.fillna(background.mean())),
    }
    for how, (x, y) in expected.items():
        result = done("fit", files / "target.csv", "-b", files / "background.csv", "--missing", how, "--json",
                      "--memory", memory, "-o", files / "m.standout")  # fmt: skip
        same(standout.load(files / "m.standout"), DPCA().fit(x, background=y))
        printed = {part["role"]: part for part in result.json["data"]}
        assert printed["target"]["rows"] == len(x)
        assert printed["target"]["rows_left_out"] == len(target) - len(x)
        assert printed["target"]["values_filled"] == (1 if how == "mean" else 0)


def test_backgrounds_with_the_same_name_are_all_used(data, files, done):
    (files / "one").mkdir(), (files / "two").mkdir()
    parts = {"one/target.csv": data.background[:100], "two/target.csv": data.background[100:180],
             "background.csv": data.background[180:]}  # fmt: skip
    for name, rows in parts.items():
        frame(rows).to_csv(files / name, index=False)
    backgrounds = [part for name in parts for part in ("-b", files / name)]
    printed = done("fit", files / "target.csv", *backgrounds, "-o", files / "m.standout", "--json").json
    assert sorted(part["rows"] for part in printed["model"]["backgrounds"].values()) == [80, 100, 120]
    expected = DPCA().fit(frame(data.target), background=[frame(rows) for rows in parts.values()])
    same(standout.load(files / "m.standout"), expected)


def test_the_code_of_the_report_gives_the_numbers_of_the_report(data, files, done):
    sides = both(data, files, who=np.array([f"{i // 4}_{i % 4}" for i in range(300)]))
    match = ["--groups", "who", "--groups-match", "^[^_]+"]
    printed = done("report", *sides, *match, "-o", files / "r.html", "--json").json["model"]
    page = html.unescape((files / "r.html").read_text(encoding="utf-8"))
    names = {}
    exec(re.search(r"import standout\n.*?print\(model.summary\(\)\)", page, re.DOTALL)[0], names)
    assert names["model"].noise_edge_ == printed["noise_edge"]
    assert printed["target"]["units"] == names["model"]._model.target_counts.units


def test_rows_without_a_group_are_refused_with_and_without_a_pattern(data, files, stopped):
    ids = np.array([f"{i // 4}_{i % 4}" for i in range(300)], dtype=object)
    ids[:10] = None
    sides = both(data, files, who=ids)
    for match in ([], ["--groups-match", "^[^_]+"]):
        stopped("fit", *sides, "--groups", "who", *match, match="10 of 200 rows have no group id")


def test_a_label_in_target_and_background_is_refused(one_file, stopped):
    stopped("fit", one_file, "--by", "state", "--target", "ill,rest", "-b", "rest", match="'rest' is given twice")
    stopped("fit", one_file, "--by", "state", "--target", "ill", "-b", "sham,rest", "-b", "rest", match="'rest'")


def test_pca_takes_no_background_by_label_either(one_file, stopped, done):
    stopped("fit", one_file, "--by", "state", "-b", "rest", "--method", "pca", match="--method pca")
    printed = done("fit", one_file, "--by", "state", "--target", "ill", "--method", "pca")
    assert printed.out.startswith("PCA: 2 components") and "pca0" in printed.out
    assert "variance" in printed.out and "noise edge" not in printed.out
    assert "background sd" not in printed.out


def test_rows_without_a_label_are_in_neither_dataset(data, one_file, done, tmp_path):
    odd = pd.concat([pd.read_csv(one_file), frame(data.target[:7] * 50)])
    odd.to_csv(one_file, index=False)
    done("fit", one_file, "--by", "state", "-b", "sham,rest", "-o", tmp_path / "m.standout")
    same(standout.load(tmp_path / "m.standout"), fitted(data))


def test_a_column_of_one_dataset_can_be_dropped(data, files, done, stopped):
    frame(data.target).assign(extra=1.5).to_csv(files / "target.csv", index=False)
    sides = ["fit", files / "target.csv", "-b", files / "background.csv"]
    done(*sides, "--drop", "extra", "-o", files / "m.standout")
    same(standout.load(files / "m.standout"), fitted(data))
    stopped(*sides, "--drop", "extra,extar", match="drop extar.*Did you mean 'extra'")


def test_features_left_out_for_missing_values_are_listed(data, files, done):
    spoilt(files, data)
    frame(data.target).assign(z=np.nan).to_csv(files / "target.csv", index=False)
    sides = ["fit", files / "target.csv", "-b", files / "background.csv", "--missing", "drop_features"]
    assert [part["features_left_out"] for part in done(*sides, "--json").json["data"]] == [["b", "z", "d"]] * 2
    assert "'b', 'z', 'd'" in done(*sides).out


def test_filled_values_are_counted(data, files, done):
    spoilt(files, data)
    printed = done("fit", files / "target.csv", "-b", files / "background.csv", "--missing", "mean").out
    assert "target: " in printed and "1 value was filled in with the mean" in printed
    drawn = done("fit", files / "target.csv", "-b", files / "background.csv", "--missing", "auto")
    assert "1 value was filled in with draws from a model of the observed values" in drawn.out
    assert "mean" not in drawn.err


@quiet
@pytest.mark.parametrize("memory", ["256MB", "0"])
def test_drawn_values_are_those_of_the_library(data, files, done, memory):
    spoilt(files, data)
    done("fit", files / "target.csv", "-b", files / "background.csv", "--missing", "auto", "--memory", memory,
         "-o", files / "m.standout")  # fmt: skip
    target, background = (standout.read(files / f"{name}.csv", missing="auto", memory=memory)
                          for name in ("target", "background"))  # fmt: skip
    expected = DPCA().fit(target, background=background)
    np.testing.assert_allclose(standout.load(files / "m.standout").ratios_, expected.ratios_, rtol=1e-6)


def test_names_with_a_comma_can_be_given(data, files, done):
    frame(data.target).assign(**{"e,f": 1.0}).to_csv(files / "target.csv", index=False)
    printed = done("fit", files / "target.csv", "-b", files / "background.csv", "--drop", r"e\,f,e", "--json").json
    assert printed["model"]["n_features"] == 4


@quiet
def test_compare_measures_all_methods_against_the_same_background(data, files, done):
    background = frame(data.background[:30])
    background.to_csv(files / "background.csv", index=False)
    views = done("compare", files / "target.csv", "-b", files / "background.csv", "--json").json["views"]
    first, second = (np.cov(rows.T, ddof=0) for rows in (data.target, data.background[:30]))
    models = {"PCA": CPCA(alpha=0.0), "dPCA by ratio": DPCA()}
    assert views[-2]["model"]["regime"] == "shrunk"
    for view in views:
        if view["name"] in models:
            filters = models[view["name"]].fit(frame(data.target), background=background).components_
            expected = [(u @ first @ u) / (u @ second @ u) for u in filters]
            np.testing.assert_allclose(view["sample_ratios"], expected, rtol=1e-9)
            own = [component["ratio"] for component in view["model"]["components"]]
            np.testing.assert_allclose(view["ratios"], own, rtol=1e-12)
    assert [len(view["held_out_ratios"]) for view in views[:-1]] == [2] * (len(views) - 1)


def test_missing_values_of_new_rows_are_the_means_of_the_model(data, files, done):
    done("fit", files / "target.csv", "-b", files / "background.csv", "-o", files / "m.standout")
    model = fitted(data)
    new = frame(data.target[:1] * 1.0)
    new.loc[0, "c"] = np.nan
    new.to_csv(files / "new.csv", index=False)
    filled = new.fillna(dict(zip(NAMES, model.mean_, strict=True)))
    for how in ("auto", "mean"):
        done("embed", files / "m.standout", files / "new.csv", "--missing", how, "-o", files / "s.npy")
        np.testing.assert_allclose(np.load(files / "s.npy"), model.transform(filled), rtol=1e-9, atol=1e-12)


def test_row_numbers_are_those_of_the_file_or_none(data, files, done):
    done("fit", files / "target.csv", "-b", files / "background.csv", "-o", files / "m.standout")
    done("embed", files / "m.standout", files / "background.csv", "-o", files / "s.csv")
    assert list(pd.read_csv(files / "s.csv")["row"][:2]) == [1, 2]
    spoilt(files, data)
    done("embed", files / "m.standout", files / "background.csv", "--missing", "drop_rows", "-o", files / "s.csv")
    assert list(pd.read_csv(files / "s.csv")) == ["dpca0", "dpca1"]


def test_columns_of_the_file_do_not_hide_ours(data, files, done):
    text = np.array(["x"] * 300)
    done("fit", *both(data, files, dataset=text, dpca0=text), "--scores", files / "s.csv")
    found = pd.read_csv(files / "s.csv")
    assert list(found) == ["dataset_", "dataset", "dpca0_", "dpca0", "dpca1"]
    assert set(found["dataset_"]) == {"target", "background"} and set(found["dataset"]) == {"x"}


def test_embed_carries_ids_and_labels_along_and_ignores_order(data, files, done):
    done("fit", files / "target.csv", "-b", files / "background.csv", "-o", files / "m.standout")
    pd.read_csv(files / "target.csv")[["e", "kind", "d", "c", "id", "b", "a"]].assign(more=1.0).to_csv(
        files / "new.csv", index=False
    )
    expected = fitted(data).transform(frame(data.target))
    for suffix, read in ((".csv", pd.read_csv), (".parquet", pd.read_parquet)):
        result = done("embed", files / "m.standout", files / "new.csv", "-o", files / f"scores{suffix}", "--json")
        found = read(files / f"scores{suffix}")
        np.testing.assert_allclose(found[["dpca0", "dpca1"]], expected, rtol=1e-9, atol=1e-9)
        assert list(found["id"][:2]) == ["r0", "r1"] and list(found["kind"][:2]) == ["one", "two"]
        assert result.json["rows"] == len(data.target)
    done("embed", files / "m.standout", files / "new.csv", "-o", files / "scores.npy")
    np.testing.assert_allclose(np.load(files / "scores.npy"), expected, rtol=1e-9, atol=1e-9)


def test_embed_of_several_files_names_them(data, files, done):
    done("fit", files / "target.csv", "-b", files / "background.csv", "-o", files / "m.standout")
    done("embed", files / "m.standout", files / "background.csv", files / "target.csv", "-o", files / "s.tsv")
    found = pd.read_csv(files / "s.tsv", sep="\t")
    assert dict(found["dataset"].value_counts()) == {
        str(files / "background.csv"): len(data.background),
        str(files / "target.csv"): len(data.target),
    }


def test_denoise_writes_the_target_specific_part(data, files, done):
    done("fit", files / "target.csv", "-b", files / "background.csv", "-o", files / "m.standout")
    done("denoise", files / "m.standout", files / "target.csv", "-o", files / "specific.csv")
    found = pd.read_csv(files / "specific.csv")
    np.testing.assert_allclose(found[list(NAMES)], fitted(data).denoise(frame(data.target)), rtol=1e-8, atol=1e-9)
    assert list(found["id"][:2]) == ["r0", "r1"]


def test_info_prints_the_summary_or_json(data, files, done):
    done("fit", files / "target.csv", "-b", files / "background.csv", "-o", files / "m.standout")
    expected = fitted(data)
    shown = done("info", files / "m.standout").out
    assert table_of(expected) in shown and "command: standout fit" in shown
    facts = done("info", files / "m.standout", "--json").json
    ratios = [component["ratio"] for component in facts["model"]["components"]]
    np.testing.assert_allclose(ratios, expected.ratios_)
    tops = [top["feature"] for top in facts["model"]["components"][0]["top_features"]]
    assert tops == [top.feature for top in expected.top_features(10)[0]]


@quiet
def test_the_mice_file_goes_through_all_commands(real_data, done, tmp_path):
    mice = real_data("Data_Cortex_Nuclear.csv")
    sides = [
        "--by",
        "class",
        "--target",
        "t-SC-m,t-SC-s",
        "-b",
        "c-CS-s,c-CS-m",
        "--missing",
        "mean",
        "--ids",
        "MouseID",
    ]
    model, scores = tmp_path / "mice.standout", tmp_path / "scores.csv"
    done("fit", mice, *sides, "-o", model, "--scores", scores, "--report", tmp_path / "mice.html")
    table = pd.read_csv(mice, encoding="utf-8-sig")
    proteins = [column for column in table if column.endswith("_N")]
    parts = [table[table["class"].isin(classes)][proteins] for classes in (["t-SC-m", "t-SC-s"], ["c-CS-s", "c-CS-m"])]
    x, y = (part.fillna(part.mean()) for part in parts)
    expected = DPCA().fit(x, background=y)
    same(standout.load(model), expected)
    written = pd.read_csv(scores)
    np.testing.assert_allclose(
        written[written["dataset"] == "target"][["dpca0", "dpca1"]], expected.transform(x), rtol=1e-7
    )
    assert list(written["MouseID"][:3]) == list(table["MouseID"][parts[0].index[:3]])
    done("embed", model, mice, "--missing", "mean", "-o", tmp_path / "all.parquet")
    assert len(pd.read_parquet(tmp_path / "all.parquet")) == len(table)
    done("compare", mice, *sides, "-o", tmp_path / "compare.html")
    done("info", model, "--json")
