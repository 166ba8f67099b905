"""The documentation is true: its code runs, its generated parts are what the commands write."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def code_of(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")
@pytest.mark.parametrize("page", [page for page in PAGES if code_of(page)], ids=lambda page: page.name)
def test_the_code_on_a_page_runs(page, capsys):
    names = {}
    for block in code_of(page):
        exec(compile(block, page.name, "exec"), names)
    capsys.readouterr()


def test_the_table_in_the_readme_is_what_the_demo_prints():
    spec = importlib.util.spec_from_file_location("write_docs", ROOT / "scripts" / "write_docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = re.search(r"<!-- demo -->\n(.*?)<!-- /demo -->", (ROOT / "README.md").read_text(), re.DOTALL)[1]
    assert written.strip() == module.demo_block().strip(), "run: make docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_error_and_warning_stands_in_the_tree_at_the_top():
    import standout.errors as errors

    kinds = [name for name in errors.__all__ if name[0].isupper()]
    assert [name for name in kinds if name not in errors.__doc__] == []
