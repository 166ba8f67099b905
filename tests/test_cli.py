"""The command line, used as people use it: files in, files out, one line when something is wrong."""

import json
import os
import pickle
import pty
import re
import select
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import standout
from conftest import NAMES
from standout import CPCA, DPCA, KernelDPCA
from standout.cli import main

quiet = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def cli(capsys):
    """Run a command in this process."""

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        shown = capsys.readouterr()
        return Result(code, shown.out, shown.err)

    return run


@pytest.fixture
def done(cli):
    """Run a command that must succeed."""

    def run(*arguments):
        result = cli(*arguments)
        assert result.code == 0, result.err
        return result

    return run


@pytest.fixture
def files(data, tmp_path):
    """A target with ids and labels, and a background, as csv."""
    target = pd.DataFrame(data.target, columns=NAMES)
    target.insert(0, "id", [f"r{i}" for i in range(len(target))])
    target["kind"] = np.where(np.arange(len(target)) % 3 == 0, "one", "two")
    target.to_csv(tmp_path / "target.csv", index=False)
    pd.DataFrame(data.background, columns=NAMES).to_csv(tmp_path / "background.csv", index=False)
    return tmp_path


@pytest.fixture
def one_file(data, tmp_path):
    """Target and two backgrounds in one file, told apart by a column."""
    parts = {"ill": data.target, "sham": data.background[:140], "rest": data.background[140:]}
    frames = [pd.DataFrame(rows, columns=NAMES).assign(state=name) for name, rows in parts.items()]
    whole = pd.concat(frames).sample(frac=1, random_state=0)
    whole.to_csv(tmp_path / "all.csv", index=False)
    return tmp_path / "all.csv"


def fitted(data, **parameters):
    return DPCA(**parameters).fit(pd.DataFrame(data.target, columns=NAMES), background=frame(data.background))


def frame(rows):
    return pd.DataFrame(rows, columns=NAMES)


def same(found, expected):
    np.testing.assert_allclose(found.ratios_, expected.ratios_, rtol=1e-12)
    np.testing.assert_allclose(found.components_, expected.components_, rtol=1e-10, atol=1e-12)


# fit


def test_fit_writes_the_model_that_the_library_fits(data, files, done):
    result = done("fit", files / "target.csv", "-b", files / "background.csv", "-o", files / "m.standout")
    expected = fitted(data)
    same(standout.load(files / "m.standout"), expected)
    assert str(expected.summary()) in result.out
    assert "m.standout" in result.out


def test_fit_tells_which_columns_were_set_aside(files, done):
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


def test_groups_count_subjects_and_a_pattern_may_name_them(data, files, done):
    for name, rows in (("target", data.target), ("background", data.background)):
        table = frame(rows)
        table["id"] = [f"{i // 4}_{i % 4}" for i in range(len(rows))]
        table.to_csv(files / f"{name}.csv", index=False)
    sides = ["fit", files / "target.csv", "-b", files / "background.csv", "--groups", "id", "--json"]
    whole = done(*sides).json["model"]
    assert whole["target"]["units"] == len(data.target)
    by_subject = done(*sides, "--groups-match", "^[^_]+").json["model"]
    assert by_subject["target"] == {"rows": len(data.target), "units": len(data.target) // 4}
    assert by_subject["backgrounds"]["background"]["units"] == len(data.background) // 4
    groups = np.arange(len(data.target)) // 4
    model = DPCA().fit(data.target, background=data.background, groups=groups,
                       background_groups=np.arange(len(data.background)) // 4)  # fmt: skip
    assert by_subject["noise_edge"] == pytest.approx(model.noise_edge_)
    assert by_subject["p_value"] == pytest.approx(model.p_value_)


def spoilt(files, data):
    """Target and background with missing values in different features."""
    target, background = frame(data.target), frame(data.background)
    target.loc[3, "b"] = np.nan
    background.loc[5, "d"] = np.nan
    target.to_csv(files / "target.csv", index=False)
    background.to_csv(files / "background.csv", index=False)
    return target, background


@quiet
@pytest.mark.parametrize("memory", ["256MB", "0"])
def test_missing_values_are_handled_as_asked(data, files, done, memory):
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
        told = {part["role"]: part for part in result.json["data"]}
        assert told["target"]["rows"] == len(x)
        assert told["target"]["rows_left_out"] == len(target) - len(x)
        assert told["target"]["values_filled"] == (1 if how == "mean" else 0)


# embed, denoise, info


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


def test_info_tells_a_person_and_a_script(data, files, done):
    done("fit", files / "target.csv", "-b", files / "background.csv", "-o", files / "m.standout")
    expected = fitted(data)
    shown = done("info", files / "m.standout").out
    assert str(expected.summary()) in shown and "command: standout fit" in shown
    facts = done("info", files / "m.standout", "--json").json
    ratios = [component["ratio"] for component in facts["model"]["components"]]
    np.testing.assert_allclose(ratios, expected.ratios_)
    tops = [top["feature"] for top in facts["model"]["components"][0]["top_features"]]
    assert tops == [top.feature for top in expected.top_features(10)[0]]


# compare, report, demo, completion


@quiet
def test_compare_shows_the_methods_side_by_side(data, files, done):
    result = done("compare", files / "target.csv", "-b", files / "background.csv", "--label", "kind", "--ids", "id",
                  "-o", files / "compare.html", "--json")  # fmt: skip
    views = {view["name"]: view for view in result.json["views"]}
    assert next(iter(views)) == "PCA" and list(views)[-2:] == ["dPCA by ratio", "dPCA by signal"]
    assert any(name.startswith("cPCA, alpha") for name in views)
    ratios = [component["ratio"] for component in views["dPCA by ratio"]["model"]["components"]]
    np.testing.assert_allclose(ratios, fitted(data).ratios_)
    values, _ = np.linalg.eigh(np.cov(data.target.T, ddof=0))
    assert views["PCA"]["share"] == pytest.approx(values[-2:].sum() / values.sum())
    assert all(view["share"] <= views["PCA"]["share"] + 1e-12 for view in views.values())
    page = (files / "compare.html").read_text(encoding="utf-8")
    assert all(name.split(",")[0] in page for name in views)
    assert "dPCA by signal" in done("compare", files / "target.csv", "-b", files / "background.csv").out


def test_report_writes_one_page(files, done):
    done("report", files / "target.csv", "-b", files / "background.csv", "--label", "kind", "-o", files / "r.html")
    page = (files / "r.html").read_text(encoding="utf-8")
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert "standout report" in page and "standout.read(" in page and "noise" in page.lower()


def test_demo_writes_files_that_the_commands_it_prints_take(tmp_path, done):
    shown = done("demo", "-o", tmp_path / "demo").out
    assert {p.name for p in (tmp_path / "demo").iterdir()} == {
        "target.csv",
        "background.csv",
        "demo.png",
        "report.html",
    }
    commands = [line.split()[1:] for line in shown.splitlines() if line.startswith("  standout ")]
    assert len(commands) == 2
    for command in commands:
        done(*[str(tmp_path / part) if part.endswith(".standout") else part for part in command])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_every_shell(done, shell):
    assert "_STANDOUT_COMPLETE" in done("completion", shell).out


def test_completion_completes():
    variables = {**os.environ, "_STANDOUT_COMPLETE": "bash_complete", "COMP_WORDS": "standout fi", "COMP_CWORD": "1"}
    told = subprocess.run([sys.executable, "-m", "standout"], env=variables, capture_output=True, text=True, timeout=60)
    assert "plain,fit" in told.stdout


COMMANDS = ["fit", "embed", "denoise", "info", "compare", "report", "demo", "completion"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(done, command):
    for flag in ("-h", "--help"):
        shown = done(command, flag).out
        assert shown.startswith(f"Usage: standout {command}") and f"Examples:\n  standout {command}" in shown
    assert command in done("--help").out


def test_help_of_every_option_says_something(done):
    for command in COMMANDS:
        lines = done(command, "--help").out.split("Examples:")[0].splitlines()
        bare = [line for line in lines if re.fullmatch(r"\s+-{1,2}[\w-]+( [A-Z|]+)?\s*", line)]
        after = {line: lines[lines.index(line) + 1] for line in bare}
        assert all(text.startswith(" " * 10) for text in after.values()), after


# what goes wrong


@pytest.fixture
def refused(cli, remedy, tmp_path):
    """Check that a command ends with one line on stderr, exit code 2, and no file more than before."""

    def check(*arguments, told):
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        result = cli(*arguments)
        assert result.code == 2, (result.code, result.err)
        assert result.out == ""
        line = result.err.strip()
        assert line.startswith("standout: ") and "\n" not in line, line
        assert re.search(told, line), line
        if "--help'" not in line:
            remedy(line)
        after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        assert after == before
        return line

    return check


def bad_files(folder):
    (folder / "empty.csv").write_bytes(b"")
    (folder / "binary.csv").write_bytes(bytes(range(256)) * 40)
    (folder / "ragged.csv").write_text("a,b,c,d,e\n1,2,3,4,5\n1,2,3\n")
    (folder / "latin.csv").write_bytes("a,b,c,d,größe\n1,2,3,4,5\n1,2,3,4,6\n".encode("latin-1"))
    (folder / "twice.csv").write_text("a,b,b,d,e\n1,2,3,4,5\n2,2,3,4,5\n")
    (folder / "other.csv").write_text("v,w,x,y,z\n1,2,3,4,5\n2,2,3,4,5\n5,3,1,4,5\n")
    (folder / "nan.csv").write_text("a,b,c,d,e\n1,2,3,4,5\n2,,3,4,5\n5,3,1,4,5\n")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nowhere.csv", r"target: .*nowhere\.csv.*no such file"),
        ("targt.csv", r"no such file.*Did you mean '.*target\.csv'"),
        ("empty.csv", r"empty\.csv.*empty"),
        ("binary.csv", r"binary\.csv"),
        ("ragged.csv", r"ragged\.csv.*(row|line) 3.*3.*5|ragged\.csv.*5.*3"),
        ("latin.csv", r"latin\.csv.*UTF-8"),
        ("twice.csv", r"twice\.csv.*'b'"),
        ("other.csv", r"background: 5 features of the target are missing: 'v', 'w'"),
        ("nan.csv", r"target: .*nan\.csv: 1 NaN.*b \(1\).*--missing"),
    ],
)
def test_a_bad_target_is_refused_in_one_line(files, refused, name, told):
    bad_files(files)
    refused("fit", files / name, "-b", files / "background.csv", "-o", files / "m.standout",
            "--scores", files / "s.csv", "--report", files / "r.html", told=told)  # fmt: skip


def test_a_wrong_column_is_refused_with_the_right_one(files, one_file, refused):
    sides = ["fit", files / "target.csv", "-b", files / "background.csv"]
    refused(*sides, "--label", "kinds", told=r"label column 'kinds'.*Did you mean 'kind'")
    refused(*sides, "--groups", "mouse", told=r"groups column 'mouse'")
    refused(*sides, "--drop", "K*", told=r"drop='K\*'")
    refused(*sides, "--features", "f", told=r"'f'")
    refused("fit", one_file, "--by", "State", "-b", "sham", told=r"'State'.*Did you mean 'state'")


def test_a_pattern_that_names_no_subject_is_refused(one_file, refused):
    sides = ["fit", one_file, "--by", "state", "-b", "sham", "--groups", "state"]
    refused(*sides, "--groups-match", "^rest", told=r"target: --groups-match '\^rest' does not match 200 of \d+ groups")


def test_a_label_without_rows_is_refused_with_those_there_are(one_file, refused):
    refused("fit", one_file, "--by", "state", "--target", "il", "-b", "sham", told=r"'il'.*Did you mean 'ill'")
    refused("fit", one_file, "--by", "state", "--target", "ill", "-b", "none", told=r"background.*'none'.*'sham'")


def test_arguments_that_do_not_fit_are_refused(files, refused):
    target, background = files / "target.csv", files / "background.csv"
    refused("fit", target, told="There is no background")
    refused("fit", target, "-b", background, "--target", "x", told="--by")
    refused("fit", target, "-b", background, "--method", "cpca", "--axes", "signal", told="--axes.*cpca.*dpca")
    refused("fit", target, "-b", background, "--method", "pca", told="--method pca")
    refused("fit", target, "-b", background, "-k", "some", told="some")
    refused("fit", target, "-b", background, "-k", "99", told="n_components=99")
    refused("fit", target, "-b", background, "--shrinkage", "7", told="shrinkage=7")
    refused("fit", target, "-b", background, "--mix", "much", told="much")
    refused("fit", target, "-b", background, "--memory", "lots", told="memory='lots'")
    refused("fit", target, "-b", background, "--groups-match", "x", told="--groups COLUMN")
    refused("fit", target, "-b", background, "--groups", "id", "--groups-match", "(", told="regular expression")
    refused("compare", target, "-b", background, "-k", "auto", told="whole number")
    refused("compare", target, told="no background")
    refused("fti", told="fti")
    refused("fit", target, "-b", background, "--lable", "kind", told="--lable")


def test_an_output_that_cannot_be_written_is_refused_before_any_work(files, refused):
    sides = ["fit", files / "nowhere.csv", "-b", files / "background.csv"]  # not even looked at
    refused(*sides, "-o", files / "no" / "m.standout", told="there is no directory")
    refused(*sides, "-o", files, told="is a directory")
    refused(*sides, "--scores", files / "scores.xls", told=r"'\.xls'")
    refused(*sides, "--report", files / "no" / "r.html", told="there is no directory")


@pytest.fixture
def full_disk(tmp_path):
    """A file system with room for almost nothing."""
    place = tmp_path / "full"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no small file system can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_leaves_the_old_file(files, full_disk, cli):
    old = full_disk / "scores.csv"
    old.write_text("old")
    result = cli("fit", files / "target.csv", "-b", files / "background.csv", "--scores", old, "--quiet")
    assert result.code == 0
    old.write_text("old")
    (full_disk / "ballast").write_bytes(bytes(40_000))
    result = cli("fit", files / "target.csv", "-b", files / "background.csv", "--scores", old, "--quiet")
    assert result.code == 2 and "the disk is full" in result.err
    assert old.read_text() == "old" and {p.name for p in full_disk.iterdir()} == {"scores.csv", "ballast"}


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root")
def test_a_read_only_directory_is_refused(files, refused):
    place = files / "locked"
    place.mkdir()
    place.chmod(stat.S_IRUSR | stat.S_IXUSR)
    refused("fit", files / "target.csv", "-b", files / "background.csv", "-o", place / "m.standout", told="permission")


def test_a_file_that_is_no_model_is_refused(files, done, refused):
    done("fit", files / "target.csv", "-b", files / "background.csv", "-o", files / "m.standout")
    whole = (files / "m.standout").read_bytes()
    (files / "cut.standout").write_bytes(whole[: len(whole) // 2])
    (files / "flipped.standout").write_bytes(whole[:300] + bytes([whole[300] ^ 1]) + whole[301:])
    (files / "pickled.standout").write_bytes(pickle.dumps({"a": 1}))
    for command in (["info"], ["embed"], ["denoise"]):
        rest = [] if command == ["info"] else [files / "target.csv", "-o", files / "s.csv"]
        for name in ("cut", "flipped", "pickled", "nowhere"):
            refused(*command, files / f"{name}.standout", *rest, told=name)
        refused(*command, files / "target.csv", *rest, told=r"target\.csv")


def test_new_data_without_the_features_is_refused(files, done, refused):
    done("fit", files / "target.csv", "-b", files / "background.csv", "-o", files / "m.standout")
    bad_files(files)
    refused("embed", files / "m.standout", files / "other.csv", "-o", files / "s.csv", told=r"other\.csv.*'a'")
    refused("embed", files / "m.standout", files / "nan.csv", "-o", files / "s.csv", told=r"nan\.csv.*1 NaN.*--missing")


def test_an_error_of_ours_is_one_line_and_a_traceback_with_debug(files, cli, monkeypatch):
    monkeypatch.setattr("standout.cli.fit.load", lambda *_: 1 / 0)
    arguments = ["fit", files / "target.csv", "-b", files / "background.csv"]
    result = cli(*arguments)
    assert result.code == 1 and result.err.count("\n") == 1 and "ZeroDivisionError" in result.err
    assert "Traceback" in cli(*arguments, "--debug").err


# processes: signals, terminals, pipes


def command(*arguments, **more):
    return subprocess.Popen(
        [sys.executable, "-m", "standout", *map(str, arguments)], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more,
    )  # fmt: skip


@pytest.fixture
def slow_file(tmp_path):
    """A file that takes some seconds to read, whatever the machine: a pipe that nobody finishes writing."""
    rng = np.random.default_rng(0)
    path = tmp_path / "big.csv"
    block = "\n".join(",".join(f"{value:.6f}" for value in row) for row in rng.normal(size=(2000, 50)))
    with path.open("w") as file:
        file.write(",".join(f"f{i}" for i in range(50)) + "\n")
        for _ in range(100):
            file.write(block + "\n")
    return path


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_command_leaves_the_old_output(slow_file, tmp_path, number, code):
    old = tmp_path / "scores.csv"
    old.write_text("old")
    process = command(
        "fit", slow_file, "-b", slow_file, "--scores", old, "--memory", "0", "-o", tmp_path / "m.standout"
    )
    drafts = lambda: [p for p in tmp_path.iterdir() if ".part" in p.name]  # noqa: E731
    deadline = time.monotonic() + 120
    while not drafts() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert drafts(), process.communicate()
    process.send_signal(number)
    _, told = process.communicate(timeout=60)
    assert process.returncode == code, told
    assert old.read_text() == "old" and not drafts()
    assert "Traceback" not in told


def test_progress_is_shown_on_a_terminal_only(slow_file):
    arguments = [sys.executable, "-m", "standout", "fit", str(slow_file), "-b", str(slow_file), "--memory", "0"]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    shown = b""
    while True:
        ready, _, _ = select.select([ours], [], [], 120)
        try:
            part = os.read(ours, 65536) if ready else b""
        except OSError:
            break
        if not part:
            break
        shown += part
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"big.csv" in shown and b"rows/s" in shown
    plain = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    assert plain.returncode == 0 and "rows/s" not in plain.stderr + plain.stdout


def test_a_reader_that_leaves_is_no_error(files, done):
    done("fit", files / "target.csv", "-b", files / "background.csv", "-o", files / "m.standout")
    told = subprocess.run(f"{sys.executable} -m standout info {files / 'm.standout'} | head -c 1", shell=True,
                          capture_output=True, text=True, timeout=60)  # fmt: skip
    assert told.stderr == ""


def test_the_script_and_the_module_are_the_same_command():
    script = Path(sys.executable).with_name("standout")
    version = f"standout, version {standout.__version__}\n"
    for arguments in ([str(script)], [sys.executable, "-m", "standout"]):
        told = subprocess.run([*arguments, "--version"], capture_output=True, text=True, timeout=60)
        assert told.stdout == version and told.returncode == 0


def test_without_click_the_command_says_what_to_install(tmp_path):
    (tmp_path / "click.py").write_text("raise ImportError('none', name='click')\n")
    told = subprocess.run([sys.executable, "-m", "standout", "--help"], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": str(tmp_path)})  # fmt: skip
    assert told.returncode == 2 and "pip install 'standout[cli]'" in told.stderr


# the real file, as in the README


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
    parts = [table[table["class"].isin(wanted)][proteins] for wanted in (["t-SC-m", "t-SC-s"], ["c-CS-s", "c-CS-m"])]
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
