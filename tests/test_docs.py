"""Code in the documentation runs, generated blocks are up to date, and links and paths exist."""

import importlib.util
import inspect
import re
from pathlib import Path

import pytest
from simulations.__main__ import INTRO, SIMULATIONS

from helpers import quiet

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def code_of(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@quiet
@pytest.mark.parametrize("page", [page for page in PAGES if code_of(page)], ids=lambda page: page.name)
def test_the_code_on_a_page_runs(page, capsys):
    names = {}
    for block in code_of(page):
        exec(compile(block, page.name, "exec"), names)
    capsys.readouterr()


@pytest.fixture(scope="module")
def writer():
    spec = importlib.util.spec_from_file_location("write_docs", ROOT / "scripts" / "write_docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def written(page, name):
    return re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", page.read_text(encoding="utf-8"), re.DOTALL)[1]


def test_the_table_in_the_readme_is_what_the_demo_prints(writer):
    assert written(ROOT / "README.md", "demo").strip() == writer.demo_block().strip(), "run: make docs"


def test_the_help_in_the_docs_is_what_the_commands_print(writer):
    assert written(ROOT / "docs" / "command-line.md", "help").strip() == writer.help_pages().strip(), "run: make docs"


def test_the_table_of_pure_noise_is_what_the_command_writes(writer):
    def numbers(text):
        return [float(cell) for cell in re.findall(r"(?<=\| )[-+.e\d]+(?= \|)", text)]

    expected = numbers(writer.pure_noise())
    found = numbers(written(ROOT / "docs" / "method.md", "pure-noise"))
    assert len(expected) == 40
    assert found == pytest.approx(expected, rel=0.01), "run: make docs"


def test_the_table_of_verdicts_is_that_of_the_cases(writer):
    assert written(ROOT / "docs" / "trust.md", "verdicts").strip() == writer.verdict_table(), "run: make docs"


@pytest.mark.data
def test_the_table_of_the_mice_is_what_the_command_writes(writer, real_data):
    table = writer.mice_table(real_data("Data_Cortex_Nuclear.csv"))
    assert written(ROOT / "docs" / "trust.md", "mice").strip() == table, "run: make docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_exist(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_page_on_simulations_has_the_text_of_every_simulation():
    page = (ROOT / "docs" / "simulations.md").read_text(encoding="utf-8")
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
