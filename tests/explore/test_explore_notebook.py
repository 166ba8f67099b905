"""The explorer in a Jupyter kernel: an iframe below the cell, which the page of the notebook may show."""

import http.client
import re
import time
from urllib.parse import urlsplit

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
pytest.importorskip("starlette")

CODE = """
import numpy as np, standout
rng = np.random.default_rng(0)
standout.explore(rng.normal(size=(60, 4)), rng.normal(size=(80, 4)))
"""


def get(url):
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
    connection.request("GET", parts.path)
    answer = connection.getresponse()
    return answer.status, answer.headers["content-security-policy"]


@pytest.mark.filterwarnings("ignore")
def test_a_cell_shows_the_page_until_the_kernel_ends():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CODE)])
    client = nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3")
    with client.setup_kernel():
        client.execute_cell(notebook.cells[0], 0)
        (output,) = (each for each in notebook.cells[0].outputs if each.output_type == "execute_result")
        html = output["data"]["text/html"]
        assert html.startswith("<iframe ") and 'title="standout explorer"' in html
        url = re.search(r'src="(http://127\.0\.0\.1:\d+/[^"]+)"', html).group(1)
        status, policy = get(url)
        assert status == 200
        assert "frame-ancestors http://127.0.0.1:* http://localhost:*" in policy
    for _ in range(100):
        try:
            get(url)
        except ConnectionError:
            break
        time.sleep(0.1)
    else:
        pytest.fail("the server outlived the kernel")
