"""Code in the documentation runs, generated blocks are up to date, and links and paths exist."""

import importlib.util
import inspect
import re
from pathlib import Path

import pytest
from simulations.__main__ import INTRO, SIMULATIONS

from helpers import quiet

ROOT = Path(__file__).parents[1]
EXPLANATION, REFERENCE, EVIDENCE = (ROOT / "docs" / name for name in ("explanation", "reference", "evidence"))


def load_writer():
    spec = importlib.util.spec_from_file_location("write_docs", ROOT / "scripts" / "write_docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


WRITER = load_writer()
PAGES = WRITER.pages()


@pytest.fixture(scope="module")
def writer():
    return WRITER


def has_code(page):
    return WRITER._BLOCK.search(page.read_text(encoding="utf-8"))


@quiet
@pytest.mark.parametrize("page", list(filter(has_code, PAGES)), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_code_on_a_page_runs_and_prints_what_the_page_shows(page):
    text = page.read_text(encoding="utf-8")
    assert WRITER.run_page(text, page.name) == text, "run: make docs-write"


def written(page, name):
    return re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", page.read_text(encoding="utf-8"), re.DOTALL)[1]


def test_the_table_in_the_readme_is_what_the_command_writes(writer):
    assert written(ROOT / "README.md", "demo").strip() == writer.demo_block().strip(), "run: make docs-write"


def test_the_table_of_extras_is_that_of_the_project(writer):
    page = ROOT / "docs" / "start" / "install.md"
    assert written(page, "extras").strip() == writer.extras_table(), "run: make docs-write"


def test_the_help_in_the_docs_is_what_the_commands_print(writer):
    assert written(REFERENCE / "command-line.md", "help").strip() == writer.help_pages().strip(), "run: make docs-write"


def test_the_tables_of_json_keys_are_those_of_the_schema(writer):
    assert written(REFERENCE / "json.md", "json").strip() == writer.json_tables().strip(), "run: make docs-write"


def test_the_table_of_pure_noise_is_what_the_command_writes(writer):
    def numbers(text):
        return [float(cell) for cell in re.findall(r"(?<=\| )[-+.e\d]+(?= \|)", text)]

    expected = numbers(writer.pure_noise())
    found = numbers(written(EXPLANATION / "method.md", "pure-noise"))
    assert len(expected) == 40
    assert found == pytest.approx(expected, rel=0.01), "run: make docs-write"


def test_the_table_of_verdicts_is_that_of_the_cases(writer):
    assert written(EXPLANATION / "is-it-real.md", "verdicts").strip() == writer.verdict_table(), "run: make docs-write"


@pytest.mark.data
def test_the_table_of_the_mice_is_what_the_command_writes(writer, real_data):
    table = writer.mice_table(real_data("Data_Cortex_Nuclear.csv"))
    assert written(EXPLANATION / "is-it-real.md", "mice").strip() == table, "run: make docs-write"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_exist(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_page_on_simulations_has_the_text_of_every_simulation():
    page = (EVIDENCE / "simulations.md").read_text(encoding="utf-8")
    assert page.startswith(INTRO)
    for name, simulation in SIMULATIONS.items():
        assert f"## {name}\n\n{inspect.getdoc(simulation)}\n\n|" in page, f"{name}: run make simulations"


def test_every_path_in_the_contributing_guide_exists():
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    diagram = re.search(r"## The code in one diagram\n\n```\n(.*?)```", guide, re.DOTALL)[1]
    modules = re.findall(r"(?<![\w/])(_?[a-z]\w*(?:\.py|/))", diagram.replace("choose.py", ""))
    paths = re.findall(r"`((?:src|tests|docs|examples)/[\w./]+)`", guide)
    assert len(modules) > 15 and len(paths) > 15
    missing = [path for path in [*(f"src/standout/{name}" for name in modules), *paths] if not (ROOT / path).exists()]
    assert missing == []


def test_every_error_and_warning_is_in_the_tree_in_the_module_docstring():
    import standout.errors as errors

    kinds = [name for name in errors.__all__ if name[0].isupper()]
    assert [name for name in kinds if name not in errors.__doc__] == []


def options_of(app):
    return {option for command in app.commands.values() for each in command.params for option in each.opts} | {
        "--version"
    }


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.parent.name in ("start", "howto") or p.parent == ROOT], ids=lambda page: page.name
)
def test_names_and_options_in_prose_exist(page):
    import standout
    from standout.cli.app import app

    text = page.read_text(encoding="utf-8")
    names = set(re.findall(r"(?<![\w./-])standout\.(plot\.\w+|\w+)\(?", text)) - {"standout"}
    missing = [name for name in names if not exists(standout, name)]
    options = set(
        re.findall(r"(?<=[ `])--[a-z][a-z-]+", "\n".join(re.findall(r"standout \w+ [^`\n]*|`--[^`]*`", text)))
    )
    assert missing == []
    assert options - options_of(app) == set()


def exists(owner, path):
    for name in path.split("."):
        if not hasattr(owner, name):
            return False
        owner = getattr(owner, name)
    return True
