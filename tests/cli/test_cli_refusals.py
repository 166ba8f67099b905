"""A command that fails prints one line, returns exit code 2 and leaves all files unchanged."""

import os
import pickle
import shutil
import stat
import subprocess

import pytest

import standout
from commands import bad_files


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("nowhere.csv", r"target: .*nowhere\.csv.*no such file"),
        ("targt.csv", r"no such file.*Did you mean '.*target\.csv'"),
        ("empty.csv", r"empty\.csv.*empty"),
        ("binary.csv", r"binary\.csv"),
        ("ragged.csv", r"ragged\.csv.*(row|line) 3.*3.*5|ragged\.csv.*5.*3"),
        ("latin.csv", r"latin\.csv.*UTF-8"),
        ("twice.csv", r"twice\.csv.*'b'"),
        ("other.csv", r"background: missing features of the target \(5\): 'v', 'w'"),
        ("nan.csv", r"target: .*nan\.csv: 1 NaN.*b \(1\).*--missing"),
    ],
)
def test_a_bad_target_is_refused_in_one_line(files, stopped, name, printed):
    bad_files(files)
    stopped("fit", files / name, "-b", files / "background.csv", "-o", files / "m.standout",
            "--scores", files / "s.csv", "--report", files / "r.html", match=printed)  # fmt: skip


def test_a_wrong_column_is_refused_with_the_right_one(files, one_file, stopped):
    sides = ["fit", files / "target.csv", "-b", files / "background.csv"]
    stopped(*sides, "--label", "kinds", match=r"label column 'kinds'.*Did you mean 'kind'")
    stopped(*sides, "--groups", "mouse", match=r"groups column 'mouse'")
    stopped(*sides, "--drop", "K*", match=r"--drop 'K\*'")
    stopped(*sides, "--features", "f", match=r"'f'")
    stopped("fit", one_file, "--by", "State", "-b", "sham", match=r"'State'.*Did you mean 'state'")


def test_a_groups_pattern_without_a_match_is_refused(one_file, stopped):
    sides = ["fit", one_file, "--by", "state", "-b", "sham", "--groups", "state"]
    stopped(*sides, "--groups-match", "^rest", match=r"--groups-match '\^rest' does not match the group 'ill'")


def test_a_label_without_rows_is_refused_with_a_list_of_labels(one_file, stopped):
    stopped("fit", one_file, "--by", "state", "--target", "il", "-b", "sham", match=r"'il'.*Did you mean 'ill'")
    stopped("fit", one_file, "--by", "state", "--target", "ill", "-b", "none", match=r"background.*'none'.*'sham'")


def test_one_file_without_background_labels_is_refused(one_file, stopped):
    stopped("fit", one_file, "--by", "state", "--target", "ill", match="Give its labels with -b")


def test_invalid_combinations_of_options_are_refused(files, stopped):
    target, background = files / "target.csv", files / "background.csv"
    stopped("fit", target, match="There is no background")
    stopped("fit", target, "-b", background, "--target", "x", match="--by")
    stopped("fit", target, "-b", background, "--method", "cpca", "--axes", "signal", match="--axes.*cpca.*dpca")
    stopped("fit", target, "-b", background, "--method", "pca", match="--method pca")
    stopped("fit", target, "-b", background, "-k", "some", match="some")
    stopped("fit", target, "-b", background, "-k", "99", match="-k 99")
    stopped("fit", target, "-b", background, "--shrinkage", "7", match="--shrinkage 7")
    stopped("fit", target, "-b", background, "--mix", "much", match="much")
    stopped("fit", target, "-b", background, "--memory", "lots", match="--memory lots")
    stopped("fit", target, "-b", background, "--groups-match", "x", match="--groups COLUMN")
    stopped("fit", target, "-b", background, "--groups", "id", "--groups-match", "(", match="regular expression")
    stopped("compare", target, "-b", background, "-k", "auto", match="whole number")
    stopped("compare", target, match="no background")
    stopped("fti", match="fti")
    stopped("fit", target, "-b", background, "--lable", "kind", match="--lable")


def test_an_output_that_would_overwrite_an_input_is_refused(files, done, stopped):
    target, background = files / "target.csv", files / "background.csv"
    stopped("fit", target, "-b", background, "-o", target, match="is also an input")
    stopped("fit", target, "-b", background, "--scores", files / "." / "background.csv", match="is also an input")
    twice = ["-o", files / "x.csv", "--scores", files / "x.csv"]
    stopped("fit", target, "-b", background, *twice, match="is also --output")
    stopped("compare", target, "-b", background, "-o", background, match="is also an input")
    done("fit", target, "-b", background, "-o", files / "m.standout")
    stopped("embed", files / "m.standout", target, "-o", target, match="is also an input")


def test_devices_and_pipes_are_not_replaced_and_links_are_followed(files, cli, done):
    os.mkfifo(files / "pipe.standout")
    sides = ["fit", files / "target.csv", "-b", files / "background.csv", "-o"]
    for odd in (files / "pipe.standout", "/dev/null"):
        result = cli(*sides, odd)
        assert result.code == 2 and "is a device or a pipe" in result.err
    assert stat.S_ISFIFO((files / "pipe.standout").stat().st_mode)
    (files / "link.standout").symlink_to(files / "real.standout")
    done(*sides, files / "link.standout")
    assert (files / "link.standout").is_symlink() and standout.load(files / "real.standout")


def test_all_outputs_of_a_command_are_renamed_together(files, cli, monkeypatch):
    for name in ("m.standout", "s.csv", "r.html"):
        (files / name).write_text("old")
    monkeypatch.setattr("standout.cli.fit.write_page", lambda *_: 1 / 0)
    result = cli("fit", files / "target.csv", "-b", files / "background.csv", "-o", files / "m.standout",
                 "--scores", files / "s.csv", "--report", files / "r.html")  # fmt: skip
    assert result.code == 1
    assert [(files / name).read_text() for name in ("m.standout", "s.csv", "r.html")] == ["old"] * 3
    assert not [path for path in files.iterdir() if ".part" in path.name]


def test_long_names_are_written(files, done):
    done("fit", files / "target.csv", "-b", files / "background.csv", "-o", files / ("m" * 240 + ".standout"))


def test_without_a_command_the_help_is_shown(cli):
    result = cli()
    assert result.code == 2 and "Commands:\n" in result.err


def test_messages_name_options_instead_of_arguments(files, stopped):
    printed = stopped("fit", files / "target.csv", "-b", files / "background.csv", "-k", "99", match="-k 99")
    assert "n_components" not in printed


def test_an_output_that_cannot_be_written_is_refused_before_any_work(files, stopped):
    sides = ["fit", files / "nowhere.csv", "-b", files / "background.csv"]  # never opened
    stopped(*sides, "-o", files / "no" / "m.standout", match="there is no directory")
    stopped(*sides, "-o", files, match="is a directory")
    stopped(*sides, "--scores", files / "scores.xls", match=r"'\.xls'")
    stopped(*sides, "--report", files / "no" / "r.html", match="there is no directory")


@pytest.fixture
def full_disk(tmp_path):
    """A file system of 64 kB."""
    place = tmp_path / "full"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted")
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


@pytest.mark.skipif(os.geteuid() == 0, reason="root ignores permissions")
def test_a_read_only_directory_is_refused(files, stopped):
    place = files / "locked"
    place.mkdir()
    place.chmod(stat.S_IRUSR | stat.S_IXUSR)
    stopped("fit", files / "target.csv", "-b", files / "background.csv", "-o", place / "m.standout", match="permission")


def test_a_file_that_is_not_a_model_is_refused(files, done, stopped):
    done("fit", files / "target.csv", "-b", files / "background.csv", "-o", files / "m.standout")
    whole = (files / "m.standout").read_bytes()
    (files / "cut.standout").write_bytes(whole[: len(whole) // 2])
    (files / "flipped.standout").write_bytes(whole[:300] + bytes([whole[300] ^ 1]) + whole[301:])
    (files / "pickled.standout").write_bytes(pickle.dumps({"a": 1}))
    for command in (["info"], ["embed"], ["denoise"]):
        rest = [] if command == ["info"] else [files / "target.csv", "-o", files / "s.csv"]
        for name in ("cut", "flipped", "pickled", "nowhere"):
            stopped(*command, files / f"{name}.standout", *rest, match=name)
        stopped(*command, files / "target.csv", *rest, match=r"target\.csv")


def test_new_data_without_the_features_is_refused(files, done, stopped):
    done("fit", files / "target.csv", "-b", files / "background.csv", "-o", files / "m.standout")
    bad_files(files)
    output = ["-o", files / "s.csv"]
    stopped("embed", files / "m.standout", files / "other.csv", *output, match=r"other\.csv.*'a'")
    stopped("embed", files / "m.standout", files / "nan.csv", *output, match=r"nan\.csv.*1 NaN.*--missing")


def test_an_internal_error_is_one_line_and_a_traceback_with_debug(files, cli, monkeypatch):
    monkeypatch.setattr("standout.cli.fit.load", lambda *_: 1 / 0)
    arguments = ["fit", files / "target.csv", "-b", files / "background.csv"]
    result = cli(*arguments)
    assert result.code == 1 and result.err.count("\n") == 1 and "ZeroDivisionError" in result.err
    assert "Traceback" in cli(*arguments, "--debug").err
