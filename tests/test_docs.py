"""The documentation is true: its code runs, its generated parts are what the commands write."""

import importlib.util
import re
from pathlib import Path

import pytest

from helpers import quiet

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


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


@pytest.mark.data
def test_the_table_of_the_mice_is_what_the_command_writes(writer, real_data):
    table = writer.mice_table(real_data("Data_Cortex_Nuclear.csv"))
    assert written(ROOT / "docs" / "trust.md", "mice").strip() == table, "run: make docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_error_and_warning_is_listed_in_the_module_docstring():
    import standout.errors as errors

    kinds = [name for name in errors.__all__ if name[0].isupper()]
    assert [name for name in kinds if name not in errors.__doc__] == []
