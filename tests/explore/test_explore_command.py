"""`standout explore`: the command it exports gives the model on the screen, and what it refuses before a page opens."""

import json
import shlex

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from standout.cli import fit as commands
from standout.cli import main
from standout.cli.explore import explore

pytest.importorskip("starlette")
pytestmark = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Run the command on three files without a server, and return what the page would show."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name, rows in (("t", 80), ("b", 100), ("other/b", 60)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        frame = pd.DataFrame(rng.normal(size=(rows, 5)), columns=list("vwxyz"))
        frame.assign(subject=np.repeat(np.arange(rows // 5), 5)).to_csv(tmp_path / f"{name}.csv", index=False)
    found = []

    class Page:
        url = "address"

        def __init__(self, exploration, _port):
            found.append(exploration)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def wait(self):
            pass

    monkeypatch.setattr("standout._explore.launch.Explorer", Page)

    def run(*words):
        words = [*words, "--no-browser", "--quiet"]
        explore.main(words, standalone_mode=False, prog_name="standout explore")
        return found[-1]

    return run


@pytest.mark.parametrize(
    "words",
    [
        "", "--mix equal", "--mix 0.3,0.7", "--method cpca --alpha 2", "--axes signal", "--method kernel-dpca --seed 3",
        "-k auto", "-k all", "--common", "--missing auto", "--normalize background", "--shrinkage 0.2",
        "--shrinkage none", "--centering background",
    ],
)  # fmt: skip
def test_the_exported_command_gives_the_model_on_the_screen(opened, words):
    exploration = opened("t.csv", "-b", "b.csv", "-b", "other/b.csv", "--groups", "subject", *words.split())
    assert len(set(exploration.names)) == 2  # two files of one name
    for method in exploration.methods:
        for on in ([0, 1], [1]):
            for stop in (0, 10) if method in ("dpca", "cpca") else (0,):
                view = exploration.view(method, stop, 0, -1, on)
                fitted = exploration.fitted(*view.model)
                line = exploration.origin.command(exploration, view, "fit")
                done = CliRunner().invoke(commands.fit, [*shlex.split(line)[2:], "--json"])
                assert done.exit_code == 0, (line, done.output)
                ratios = [float(part["ratio"]) for part in json.loads(done.stdout)["model"]["components"]]
                count = min(len(ratios), fitted.n_components_)
                np.testing.assert_allclose(ratios[:count], fitted.ratios_[:count], err_msg=line)


def test_the_exported_test_is_accepted(opened):
    exploration = opened(
        "t.csv", "-b", "b.csv", "-b", "other/b.csv", "--drop", "subject", "--mix", "0.3,0.7", "-k", "auto"
    )
    line = exploration.origin.command(exploration, exploration.view("dpca", 10, 0, 1, [1]), "test")
    done = CliRunner().invoke(
        commands.test, [*shlex.split(line)[2:], "--json", "--permutations", "19", "--bootstrap", "0"]
    )
    assert done.exit_code == 0, (line, done.output)


def test_the_reasons_of_the_verdict_name_options(opened):
    pd.read_csv("t.csv").assign(v=lambda table: 6 * table.v).to_csv("strong.csv", index=False)
    exploration = opened("strong.csv", "-b", "b.csv", "--drop", "subject")
    reasons = exploration.judge(exploration.view("dpca", 0, 0, 1, [0]))["reasons"]
    assert any("--groups" in reason for reason in reasons)
    assert not any("`" in reason for reason in reasons)


def test_a_model_file_is_explored_on_the_data_of_its_fit(opened):
    words = ["t.csv", "-b", "b.csv", "--groups", "subject", "--shrinkage", "0.4", "--output", "m.standout"]
    assert main(["fit", *words]) == 0
    assert opened("m.standout").estimator.shrinkage == 0.4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["t.csv", "-b", "b.csv", "--method", "pca"], "target alone"), (["t.csv"], "no background"),
        (["m.standout", "--mix", "equal"], "as it was fitted"),
    ],
)  # fmt: skip
def test_what_cannot_be_explored_is_a_usage_error(opened, words, message):
    with pytest.raises(Exception, match=message) as caught:
        opened(*words)
    assert "--method pca" not in caught.value.message or "--method" in words
