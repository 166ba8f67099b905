"""Links, anchors and files of the built site exist, and nothing is loaded from another host."""

import pytest
from built_site import SITE, is_elsewhere, needs_site, pages, resolve

pytestmark = needs_site


def exists(path, anchor):
    if path in pages():
        return not anchor or anchor in pages()[path].anchors
    return (SITE / path).is_file()


def test_every_internal_link_leads_to_a_page_and_an_anchor_that_exist():
    broken = {
        f"{name}: {link}"
        for name, page in pages().items()
        for link in page.links
        if not is_elsewhere(link) and not exists(*resolve(name, link))
    }
    assert sorted(broken) == []


def test_every_script_style_and_image_exists():
    missing = [
        f"{name}: {address}"
        for name, page in pages().items()
        for address in page.loaded
        if not is_elsewhere(address) and not (SITE / resolve(name, address)[0]).is_file()
    ]
    assert missing == []


def test_no_page_loads_anything_from_another_host():
    foreign = [
        f"{name}: {address}"
        for name, page in pages().items()
        for address in page.loaded
        if is_elsewhere(address) and not address.startswith("data:")
    ]
    assert foreign == []


def test_the_site_is_not_a_fragment():
    assert len(pages()) > 50
    assert {"index.html", "search.html", "genindex.html"} <= set(pages())


@pytest.mark.parametrize("name", ["reference/json.html", "reference/glossary.html", "coming-from/index.html"])
def test_the_checker_sees_anchors_and_links(name):
    assert len(pages()[name].anchors) > 5
    assert len(pages()[name].links) > 20
