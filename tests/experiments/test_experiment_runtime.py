"""The run-time experiment at reduced size. No test asserts seconds; ratios only where they are far from one."""

import numpy as np
import pytest
from scipy import linalg
from threadpoolctl import threadpool_limits

from experiments import runtime as module
from experiments.record import Plan
from experiments.runtime import ALPHAS, Size, Timed, runtime

PLAN = Plan(seeds=(0, 1), reduced=True)


@pytest.fixture(scope="module")
def record():
    return runtime(PLAN)


def test_fifteen_eigenproblems_take_longer_than_one(record):
    for found in record.times.values():
        assert 3 < found["ratios"]["eigenproblems alone"] < 45
        assert found["ratios"]["with covariances"] > 1.5
        assert found["ratios"]["standout, eigenproblems"] > 2 and found["ratios"]["standout, from rows"] > 2


def test_ratios_follow_from_the_stored_seconds(record):
    for found in record.times.values():
        seconds, ratios = found["seconds"], found["ratios"]
        shared, one, many = (seconds[part] for part in ("covariances", "one eigenproblem", "15 eigenproblems"))
        assert ratios["eigenproblems alone"] == pytest.approx(many / one)
        assert ratios["with covariances"] == pytest.approx((shared + many) / (shared + one))
        assert ratios["with selection"] == pytest.approx((shared + many + seconds["selection"]) / (shared + one))


def test_at_alpha_equal_to_the_largest_ratio_the_first_axis_is_dpcas_and_the_second_is_not(record):
    for found in record.numbers["agreement"].values():
        assert found["first axis"].low > 1 - 1e-9
        assert found["second axis"].low < 0.99
        assert found["two ways, least alike"].low > 1 - 1e-9


def test_the_cosines_are_those_of_bare_algebra(record):
    name, found = next(iter(record.numbers["agreement"].items()))
    size = Size(**record.numbers["sizes"][name])
    for seed, cosine in zip(PLAN.seeds, found["second axis"].values, strict=True):
        C_xx, C_yy = (np.cov(rows.T, ddof=0) for rows in size.rows(seed))
        ratios, axes = linalg.eigh(C_xx, C_yy)
        second = axes[:, -2] / np.linalg.norm(axes[:, -2])
        other = linalg.eigh(C_xx - ratios[-1] * C_yy)[1][:, -2]
        assert abs(second @ other) == pytest.approx(cosine, abs=1e-6)


def test_the_numbers_are_reproducible_and_contain_no_times(record):
    assert record.numbers["n_alphas"] == len(ALPHAS) == 15
    sizes = [Size(**size) for size in record.numbers["sizes"].values()]
    assert [size.name for size in sizes] == list(record.times)
    name = sizes[0].name
    again = module._agreement(sizes[0], PLAN.seeds)
    assert again == record.numbers["agreement"][name]
    assert set(record.numbers) == {"n_alphas", "sizes", "agreement"}


def test_the_numbers_do_not_depend_on_how_many_threads_a_machine_has(monkeypatch):
    size = Size(300, 1500, 1500)  # large enough that two threads would sum in another order
    monkeypatch.setattr(module, "_sizes", lambda _: ([size], [size]))
    monkeypatch.setattr(module, "_peer", lambda: None)
    with threadpool_limits(2):
        found = runtime(Plan(seeds=(0,), reduced=True)).numbers["agreement"][size.name]
    with threadpool_limits(1):
        assert found == module._agreement(size, (0,))


def test_the_settings_describe_the_run(record):
    settings = record.settings
    assert (settings["reduced"], settings["embedded"], settings["source"]) == (True, False, "drawn from the seeds")
    assert settings["sizes"] == list(record.times) and settings["seeds"] == [0, 1]


@pytest.mark.parametrize(
    ("covariances", "expected"), [(8.0, "is 2.4: with many rows, the choice of the method matters less"),
                              (99.0, "is 1.1: with many rows, the choice of the method hardly matters")],
)  # fmt: skip
def test_the_findings_say_that_covariances_dominate_only_where_they_do(covariances, expected):
    seconds = {"covariances": covariances, "one eigenproblem": 1.0, "15 eigenproblems": 13.6}
    assert expected in module._shared([Timed(Size(10, 20, 30), seconds)])


def test_without_the_other_package_its_column_is_omitted(monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(module, "import_module", absent)
    monkeypatch.setattr(module, "_sizes", lambda _: ([Size(20, 60, 80)], [Size(20, 60, 80)]))
    found = runtime(Plan(seeds=(0,), reduced=True))
    (table,) = [table for table in found.tables if table.name == "times_parts"]
    assert not any("contrastive" in column for column in table.columns)
    assert not any("contrastive" in text for text in found.findings)


def test_a_size_without_the_other_package_still_has_a_row(record):
    seconds = dict.fromkeys(
        ("covariances", "one eigenproblem", "15 eigenproblems", "selection", "standout, dPCA", "standout, 15 alphas",
         "standout, dPCA of rows", "standout, path of rows"), 0.5,
    )  # fmt: skip
    with_peer = Timed(Size(10, 20, 30), {**seconds, "contrastive, search": 4.0})
    found = [with_peer, Timed(Size(900, 20, 30), seconds)]
    ratios, parts = module._tables(found)
    assert with_peer.ratios()["contrastive to standout"] == 8
    assert ratios.rows[1][-1] is None and parts.rows[1][-1] is None
    (finding,) = [text for text in module._findings(found, record.numbers["agreement"]) if "authors" in text]
    assert "takes 8.0 times" in finding


def test_every_figure_can_be_drawn_and_labels_its_axes(record):
    from matplotlib import pyplot

    for picture in record.pictures:
        figure = picture.draw()
        figure.canvas.draw()
        assert any(axes.get_xlabel() for axes in figure.axes) and any(axes.get_ylabel() for axes in figure.axes)
        pyplot.close(figure)
