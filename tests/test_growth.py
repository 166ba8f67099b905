"""The page on scale has the numbers that the cost model gives for the measured constants."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from benchmarks.growth import GROWTH, Machine, growth_table, predict, prediction_table, slope

DOCS = Path(__file__).parents[1] / "docs" / "explanation"


@pytest.fixture(scope="module")
def kept():
    return json.loads((DOCS / "growth.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("name", "table"), [("growth", growth_table), ("prediction", prediction_table)])
def test_the_tables_on_the_page_follow_from_the_stored_measurements(kept, name, table):
    page = (DOCS / "scale.md").read_text(encoding="utf-8")
    written = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", page, re.DOTALL)[1]
    assert written.strip() == table(kept), "run: python -m benchmarks.growth --draw"


def test_the_stored_measurements_cover_the_sizes_of_the_benchmark(kept):
    assert {name: curve["size"] for name, curve in kept["growth"].items()} == {n: g[0] for n, g in GROWTH.items()}


def test_a_billion_rows_of_ten_thousand_features_on_a_hundred_workers():
    worker = Machine(flops=25e9, reading=1e9, wire=1.25e9, cores=2)
    cost = predict(1e9, 1e4, 100, worker)
    assert (cost.flops, cost.bytes_read, cost.bytes_sent) == (1e15, 8e11, 1.6e9)
    assert cost.products == 1e15 / 50e9 and cost.reading == 800
    assert cost.sending == pytest.approx(3 * 8 * 1.6e9 / 1.25e9)  # three steps of eight reach 512 workers
    assert cost.total == pytest.approx(cost.products + cost.sending + cost.solve)


def test_one_worker_sends_nothing():
    assert predict(1e6, 1e3, 1, Machine(1e10, 1e9)).bytes_sent == 0


def test_the_exponent_of_a_power_law_is_recovered():
    size = np.array([1.0, 2, 4, 8, 16])
    assert slope({"size": size, "seconds": 3 * size**1.7}) == pytest.approx(1.7)
