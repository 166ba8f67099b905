"""Pages render in a browser, at the width of a desk and of a phone, without errors or foreign requests."""

import io
import shutil
from urllib.parse import urlsplit

import pytest
from built_site import needs_site, pages, serve
from PIL import Image

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    needs_site,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium was not found: install it to test the site in a browser"),
    pytest.mark.xdist_group("browser"),
]

WIDTHS = {"desk": 1400, "phone": 420}
KINDS = ("start", "tutorial", "gallery", "API", "search")


def address_of(kind):
    """Return the page of a kind; of tutorials and of the gallery, the first."""
    if kind in ("tutorial", "gallery"):
        folder = {"tutorial": "tutorials/", "gallery": "gallery/"}[kind]
        return next(page for page in pages() if page.startswith(folder) and "/plot_" in page)
    return {
        "start": "index.html",
        "API": "reference/generated/standout.DPCA.html",
        "search": "search.html?q=shrinkage",
    }[kind]


@pytest.fixture(scope="module")
def site():
    with serve() as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as engine:
        opened = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(params=WIDTHS, ids=lambda name: f"{name}-{WIDTHS[name]}")
def page(request, browser):
    opened = browser.new_page(viewport={"width": WIDTHS[request.param], "height": 900})
    yield opened
    opened.close()


def is_blank(screenshot):
    """Return whether a picture has one colour almost everywhere."""
    image = Image.open(io.BytesIO(screenshot)).convert("RGB")
    colours = image.getcolors(maxcolors=image.width * image.height)
    return max(count for count, _ in colours) > 0.995 * image.width * image.height


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_renders_without_errors_and_loads_nothing_from_elsewhere(site, page, kind):
    errors, requested = [], []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requested.append(request.url))
    page.goto(f"{site}/{address_of(kind)}", wait_until="networkidle")
    assert page.locator("h1").first.is_visible()
    if kind == "search":
        page.locator("#search-results li").first.wait_for(timeout=20_000)
    assert not is_blank(page.screenshot())
    here = urlsplit(site).netloc
    assert [url for url in requested if url.startswith("http") and urlsplit(url).netloc != here] == []
    assert errors == []
    width, shown = page.evaluate("[document.body.scrollWidth, window.innerWidth]")
    assert width <= shown, f"the body is {width} px wide in a window of {shown} px"


def test_no_page_requests_anything_from_another_host(site, browser):
    page, here, elsewhere = browser.new_page(), urlsplit(site).netloc, []
    page.on("request", lambda request: elsewhere.append(request.url) if urlsplit(request.url).netloc != here else None)
    for name in pages():
        page.goto(f"{site}/{name}")
    page.close()
    assert [url for url in elsewhere if url.startswith("http")] == []


QUESTIONS = {
    "How do I choose between ratio, signal axes and cPCA?": "Which method when",
    "How many background rows do I need?": "How many background rows do I need?",
    "What do I write in my paper?": "Report results in a paper",
    "with scanpy": "Coming from scanpy",
    "with MNE": "Coming from MNE’s CSP",
    "What does shrinkage do to my ratios?": "What shrinkage does to my ratios",
    "How do I add my own file type?": "Read your own file type",
    "What do I do about batch effects?": "Batch effects and covariates",
    "What is in the JSON?": "JSON",
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_on_the_start_page_leads_to_its_answer(site, page, question):
    page.goto(f"{site}/index.html")
    page.locator("article").get_by_role("link", name=question, exact=True).click()
    assert page.locator("h1").inner_text().removesuffix("#").strip() == QUESTIONS[question]


def test_images_of_the_gallery_are_loaded(site, browser):
    page = browser.new_page(viewport={"width": WIDTHS["desk"], "height": 900})
    page.goto(f"{site}/{address_of('gallery')}", wait_until="networkidle")
    broken = page.evaluate("[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)")
    assert broken == []
    page.close()
