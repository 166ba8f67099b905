"""Every public name has an entry in the API reference."""

from importlib import import_module

import pytest
from built_site import needs_site, pages

import standout

pytestmark = needs_site

MODULES = ("standout", *(f"standout.{name}" for name in ("inference", "plot", "datasets", "anndata", "mne", "errors")))
NAMES = [(module, name) for module in MODULES for name in import_module(module).__all__ if name != "__version__"]


def entries():
    return {
        anchor: page
        for page, content in pages().items()
        if page.startswith("reference/")
        for anchor in content.anchors
        if anchor.startswith("standout.")
    }


@pytest.mark.parametrize(("module", "name"), NAMES, ids=lambda part: part)
def test_every_public_name_has_an_entry(module, name):
    names = {f"{module}.{name}"}
    # standout.inference.assess is standout.assess, which has the entry.
    if getattr(standout, name, None) is getattr(import_module(module), name):
        names.add(f"standout.{name}")
    assert names & set(entries())


@pytest.mark.parametrize("name", ["DPCA.fit", "DPCA.transform", "DPCA.score", "DPCA.denoise", "CPCA.fit", "Moments.of"])
def test_methods_have_entries_too(name):
    assert f"standout.{name}" in entries()


def test_the_api_page_links_to_every_class_and_function():
    linked = " ".join(pages()["reference/api.html"].links)
    modules = [pair for pair in NAMES if pair[0] not in ("standout.errors", "standout.inference")]
    assert [name for module, name in modules if f"{module}.{name}" not in linked] == []
