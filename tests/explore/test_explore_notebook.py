"""The explorer in a Jupyter kernel: a page below the cell where the notebook can show it, and a link everywhere."""

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
        assert "<iframe " in html and 'title="standout explorer"' in html
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


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("variable", ["VSCODE_PID", "JUPYTERHUB_SERVICE_PREFIX"])
def test_a_notebook_that_cannot_show_the_page_has_a_link_and_what_to_do(monkeypatch, variable):
    monkeypatch.setenv(variable, "1")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CODE)])
    client = nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3")
    with client.setup_kernel():
        client.execute_cell(notebook.cells[0], 0)
        (output,) = (each for each in notebook.cells[0].outputs if each.output_type == "execute_result")
        html = output["data"]["text/html"]
        assert "<iframe" not in html
        url, port = re.search(r'<a href="(http://127\.0\.0\.1:(\d+)/[^"]+)"', html).groups()
        assert f"ssh -L {port}:127.0.0.1:{port} HOST" in html
        status, policy = get(url)
        assert status == 200 and "frame-ancestors 'none'" in policy
