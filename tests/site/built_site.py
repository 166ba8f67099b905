"""The built documentation site: its pages, what they link to and load, and a server for it."""

from __future__ import annotations

import functools
import http.server
import threading
from contextlib import contextmanager
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urljoin, urlsplit

import pytest

SITE = Path(__file__).parents[2] / "docs" / "_build" / "html"
needs_site = pytest.mark.skipif(not (SITE / "index.html").is_file(), reason="the site is not built: run make docs")

# Elements that load what they refer to. A canonical address is not loaded.
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "link": "href"}
NOT_LOADED = {"canonical", "next", "prev", "search", "index"}


class Page(NamedTuple):
    """What a page contains: anchors, addresses it links to, and addresses it loads."""

    anchors: frozenset[str]
    links: tuple[str, ...]
    loaded: tuple[str, ...]


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.anchors, self.links, self.loaded = set(), [], []

    def handle_starttag(self, tag, attributes):
        found = {name: value or "" for name, value in attributes}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if LOADED.get(tag, "") in found and not NOT_LOADED & set(found.get("rel", "").split()):
            self.loaded.append(found[LOADED[tag]])


@cache
def pages() -> dict[str, Page]:
    """Return every page of the site by its path; fragments that the theme ships are not pages."""
    found = {}
    for path in sorted(SITE.rglob("*.html")):
        if "_static" in path.relative_to(SITE).parts:
            continue
        reader = _Reader()
        reader.feed(path.read_text(encoding="utf-8"))
        found[path.relative_to(SITE).as_posix()] = Page(
            frozenset(reader.anchors), tuple(reader.links), tuple(reader.loaded)
        )
    return found


def is_elsewhere(address: str) -> bool:
    """Return whether an address is not part of the site."""
    return bool(urlsplit(address).scheme or urlsplit(address).netloc)


def resolve(page: str, address: str) -> tuple[str, str]:
    """Return the path in the site, and the anchor, that an address on a page refers to."""
    parts = urlsplit(urljoin(f"/{page}", address))
    path = unquote(parts.path).lstrip("/")
    return (f"{path}index.html" if not path or path.endswith("/") else path), unquote(parts.fragment)


def neighbours(page: str) -> set[str]:
    """Return the pages that a page links to."""
    return {resolve(page, link)[0] for link in pages()[page].links if not is_elsewhere(link)} & set(pages())


def clicks_from_start() -> dict[str, int]:
    """Return the smallest number of clicks from the start page to each page."""
    reached, last = {"index.html": 0}, ["index.html"]
    while last:
        new = {}
        for page in last:
            new |= {other: reached[page] + 1 for other in neighbours(page) if other not in reached}
        reached |= new
        last = list(new)
    return reached


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextmanager
def serve(folder: Path = SITE):
    """Serve the site on a loopback port and yield its address."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
