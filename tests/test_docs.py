"""Code in the documentation runs, generated blocks are up to date, and links and paths exist."""

import importlib.util
import inspect
import json
import re
import shlex
from pathlib import Path

import pytest
from simulations.__main__ import INTRO, SIMULATIONS, TITLES

from helpers import quiet

ROOT = Path(__file__).parents[1]
EXPLANATION, REFERENCE, EVIDENCE = (ROOT / "docs" / name for name in ("explanation", "reference", "evidence"))
runs_code = pytest.mark.docs  # minutes in total: run by make docs-check


def load_script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


WRITER = load_script("write_docs")
PAGES = WRITER.pages()


@pytest.fixture(scope="module")
def writer():
    return WRITER


def has_code(page):
    return WRITER._BLOCK.search(page.read_text(encoding="utf-8"))


@runs_code
@quiet
@pytest.mark.parametrize("page", list(filter(has_code, PAGES)), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_code_on_a_page_runs_and_prints_what_the_page_shows(page):
    text = page.read_text(encoding="utf-8")
    assert WRITER.run_page(text, page.name) == text, "run: make docs-write"


def fences(page):
    """Return kind and text of every fenced block of a page, without the help and the diagram, which are not code."""
    text = re.sub(r"<!-- help -->.*<!-- /help -->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"## The code in one diagram\n\n```\n.*?```\n", "", text, flags=re.DOTALL)
    return re.findall(r"^```([^`\n]*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_code_block_is_of_a_kind_that_is_run_or_checked_and_fits_on_the_page(page):
    for kind, text in fences(page):
        if kind.startswith("{"):
            continue
        # R is not installed, so the call of scPCA is the only code that nothing checks.
        assert kind in {"python", "console", "output", "sh run", "sh data", "sh"} or (kind, page.stem) == ("r", "scpca")
        lines = text.splitlines()
        if kind == "console":
            lines = [line for line in lines if line.startswith("$")]
        assert kind == "output" or max(map(len, lines), default=0) <= 96, max(lines, key=len)


def commands(page):
    """Return the arguments of the ``standout`` commands in blocks that are not run."""
    scripts = "\n".join(text for kind, text in fences(page) if kind in ("sh", "sh data"))
    lines = re.findall(r"^standout (.*)$", scripts.replace("\\\n", " "), re.MULTILINE)
    return [shlex.split(line.partition(" | ")[0], comments=True) for line in lines]


@pytest.mark.parametrize("page", list(filter(commands, PAGES)), ids=lambda page: page.name)
def test_commands_that_are_not_run_have_arguments_that_exist(page):
    from standout.cli.app import app

    for name, *arguments in commands(page):
        command = app.commands[name]
        command.make_context(name, arguments, resilient_parsing=False, parent=None, **app.context_settings)


def test_paths_given_to_jq_are_in_the_schema():
    schema = json.loads((REFERENCE / "standout.schema.json").read_text(encoding="utf-8"))
    found = re.findall(r"standout (\w+) [^|\n]* \| jq (?:-r )?'?(\.[\w.\[\]]+)", (REFERENCE / "json.md").read_text())
    assert len(found) == 2
    for command, path in found:
        place = schema["$defs"][command]
        for name in re.findall(r"\w+", path):
            place = place["items"] if name.isdigit() else place["properties"][name]
            while "$ref" in place:
                place = schema["$defs"][place["$ref"].rpartition("/")[2]]


@runs_code
@pytest.mark.data
@pytest.mark.parametrize(
    "page", [page for page in PAGES if "sh data" in dict(fences(page))], ids=lambda page: page.name
)
def test_commands_on_real_data_run(page, writer, real_data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = real_data("Data_Cortex_Nuclear.csv")
    (tmp_path / data.name).symlink_to(data)
    for kind, text in fences(page):
        if kind == "sh data":
            writer.run_script(text)
    assert list(tmp_path.glob("*.html"))


def written(page, name):
    return re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", page.read_text(encoding="utf-8"), re.DOTALL)[1]


@runs_code
def test_the_table_of_the_demo_is_what_the_command_writes(writer):
    page = ROOT / "docs" / "start" / "ten-minutes.md"
    assert written(page, "demo").strip() == writer.demo_block().strip(), "run: make docs-write"


def test_the_table_of_extras_is_that_of_the_project(writer):
    page = ROOT / "docs" / "start" / "install.md"
    assert written(page, "extras").strip() == writer.extras_table(), "run: make docs-write"


def test_the_help_in_the_docs_is_what_the_commands_print(writer):
    assert written(REFERENCE / "command-line.md", "help").strip() == writer.help_pages().strip(), "run: make docs-write"


def test_the_tables_of_json_keys_are_those_of_the_schema(writer):
    assert written(REFERENCE / "json.md", "json").strip() == writer.json_tables().strip(), "run: make docs-write"


@runs_code
def test_the_table_of_kinds_of_data_has_the_ticks_that_tests_claim():
    script = load_script("compatibility")
    page = script.read_table(written(REFERENCE / "compatibility.md", "compatibility"))
    claims, unread = script.shown(run=False)
    if unread:  # a package is missing here
        page = {kind: ticks for kind, ticks in page.items() if kind in claims}
    assert page == claims, "run: make docs-write"


@runs_code
def test_the_table_of_pure_noise_is_what_the_command_writes(writer):
    def numbers(text):
        return [float(cell) for cell in re.findall(r"(?<=\| )[-+.e\d]+(?= \|)", text)]

    expected = numbers(writer.pure_noise())
    found = numbers(written(EXPLANATION / "method.md", "pure-noise"))
    assert len(expected) == 40
    assert found == pytest.approx(expected, rel=0.01), "run: make docs-write"


def test_the_table_of_verdicts_is_that_of_the_cases(writer):
    assert written(EXPLANATION / "is-it-real.md", "verdicts").strip() == writer.verdict_table(), "run: make docs-write"


@runs_code
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
        assert f"## {TITLES[name]}\n\n{inspect.getdoc(simulation)}\n\n|" in page, f"{name}: run make simulations"


def test_the_formula_with_groups_never_rejects_noise_in_more_than_8_percent_of_fits():
    page = (EVIDENCE / "simulations.md").read_text(encoding="utf-8")
    table = page.partition(f"## {TITLES['effective']}\n")[2].partition("\n## ")[0]
    rates = [line.split(" | ")[4] for line in table.splitlines() if "rows × " in line or "uneven × " in line]
    noise = [float(rate.rstrip(" %")) for rate in rates[:-1] if rate != "–"]  # the last row is the power
    assert len(noise) > 30 and max(noise) <= 8


def test_the_citation_names_this_version_and_the_paper():
    import standout

    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.+)$", citation, re.MULTILINE)[1] == standout.__version__
    assert "arXiv:1710.09429" in citation


def test_the_readme_fits_on_a_screen_and_has_the_code_of_the_start_page():
    readme, start = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/index.md"))
    assert len(readme.splitlines()) <= 50
    code = re.search(r"```python\n(.*?)print", readme, re.DOTALL)[1]
    assert code in start


def test_every_test_that_a_page_names_exists():
    tests = {path.name: path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    for page in PAGES:
        for path in re.findall(r"(?:[\w/]*/)?test_\w+\.py", page.read_text(encoding="utf-8")):
            assert tests.get(Path(path).name, "").endswith(path.lstrip("./")), f"{page.name}: {path}"


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_names_and_options_in_prose_exist(page):
    import standout
    from standout.cli.app import app

    text = page.read_text(encoding="utf-8")
    names = set(re.findall(r"(?<![\w./-])standout\.(plot\.\w+|\w+)\(?", text)) - {"standout", "schema"}
    missing = [name for name in names if not exists(standout, name)]
    options = set(
        re.findall(r"(?<=[ `])--[a-z][a-z-]+", "\n".join(re.findall(r"standout \w+ [^`\n]*|`--[^`]*`", text)))
    )
    assert missing == []
    others = {"--py-files", "--data-dir", "--embedded", "--quick"}  # of Spark and of the experiments
    assert options - options_of(app) - others == set()


def exists(owner, path):
    for name in path.split("."):
        if not hasattr(owner, name):
            return False
        owner = getattr(owner, name)
    return True
