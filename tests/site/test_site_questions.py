"""A reader finds the answer to a common question within two clicks from the start page."""

import pytest
from built_site import clicks_from_start, needs_site

pytestmark = needs_site

ANSWERS = {
    "How do I choose between ratio axes, signal axes and cPCA?": "howto/choose-a-method.html",
    "How many background rows do I need?": "howto/how-many-rows.html",
    "What do I write in a paper?": "howto/report-in-a-paper.html",
    "How does it work with scanpy?": "coming-from/scanpy.html",
    "How does it relate to MNE's CSP?": "coming-from/mne.html",
    "What does shrinkage do to my ratios?": "explanation/shrinkage.html",
    "How do I add a file type?": "howto/add-a-file-type.html",
    "What about batch effects?": "howto/batch-effects.html",
    "What is in the JSON?": "reference/json.html",
}


@pytest.mark.parametrize("question", ANSWERS)
def test_the_answer_is_within_two_clicks_from_the_start_page(question):
    clicks = clicks_from_start()
    assert clicks.get(ANSWERS[question], 99) <= 2


def test_every_page_can_be_reached_from_the_start_page():
    from built_site import pages

    # Pages that only the search, the index and the theme use.
    special = {"search.html", "genindex.html", "py-modindex.html", "sg_execution_times.html"}
    unreached = set(pages()) - set(clicks_from_start()) - special
    assert sorted(page for page in unreached if not page.endswith("sg_execution_times.html")) == []
