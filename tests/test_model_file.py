"""Saved models: a loaded model is bitwise equal to the saved one, and files of earlier versions load."""

import json
import re
import warnings
from zipfile import ZipFile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import standout
from helpers import OptionalPackage, quiet
from model_files import CASES, CHAIN, GOLDEN, X, Y, answers, differences, fitted, frames, rows_for
from standout._cpca import CPCA
from standout._dpca import DPCA
from standout._kernel_dpca import KernelDPCA
from standout._model_file import header, load, save
from standout.errors import ModelFileError

pd = OptionalPackage("pandas")


@pytest.mark.parametrize("case", CASES)
def test_a_loaded_model_is_bitwise_equal_to_the_saved_one(case, tmp_path):
    estimator = fitted(case)
    with warnings.catch_warnings(record=True):  # batches are solved now, and may warn
        again = load(save(estimator, tmp_path / "model"))
    assert type(again) is type(estimator)
    assert differences(answers(estimator, rows_for(estimator)), answers(again, rows_for(estimator))) == []


def test_the_comparison_of_models_detects_a_change_in_the_last_bit():
    one, other = fitted("plain"), fitted("plain")
    assert differences(answers(one, X), answers(other, X)) == []
    other._model.components[0, 0] = np.nextafter(other.components_[0, 0], 9)
    assert set(differences(answers(one, X), answers(other, X))) == {"components_", "scores", "rows", "score"}
    assert isinstance(answers(one, X)["score"], float) and isinstance(answers(fitted("labels"), X)["score"], float)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dia", "bsr", "dok", "lil"])
@pytest.mark.parametrize("kind", ["array", "matrix"])
def test_a_sparse_graph_of_any_form_is_saved_as_csr(tmp_path, form, kind):
    graph = getattr(sparse, f"csr_{kind}")(CHAIN).asformat(form)
    path = save(DPCA(graph=graph).fit(X, background=Y), tmp_path / "m")
    assert header(path)["parameters"]["graph"]["sparse"][0] == f"csr_{kind}"
    again = load(path).graph
    assert type(again) is getattr(sparse, f"csr_{kind}") and (again != graph).nnz == 0


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_parameters_survive_saving(tmp_path_factory, data):
    draw = data.draw
    many = draw(st.sampled_from([1, 2, 3]), "backgrounds")
    shares = st.lists(st.floats(0.01, 9), min_size=many, max_size=many)
    mixes = ["pooled", "equal", draw(shares), np.array(draw(shares)), dict(zip(range(many), draw(shares), strict=True))]
    common = {
        "mix": draw(st.sampled_from(mixes if many > 1 else mixes[:4]), "mix"),
        "random_state": draw(st.none() | st.integers(0, 2**40) | st.just(np.uint8(3))),
    }
    count = draw(st.none() | st.integers(1, 4), "components")
    graph = draw(st.sampled_from([None, sparse.csr_array(CHAIN), sparse.csr_matrix(CHAIN)]))
    estimator = draw(st.sampled_from([
        DPCA(count, axes=draw(st.sampled_from(["ratio", "signal"])), shrinkage=draw(st.sampled_from(["auto", 0.3])),
             normalize=draw(st.sampled_from([None, "background"])), graph=graph, smoothness=draw(st.floats(0, 9)),
             centering=draw(st.sampled_from(["own", "background"])), **common),
        CPCA(count, alpha=draw(st.sampled_from(["trace_ratio", 0, 1.5, np.float32(0.1)])), grid=np.arange(3), **common),
        KernelDPCA(count, kernel=draw(st.sampled_from(["rbf", "poly", "linear"])), gamma=draw(st.floats(1e-3, 0.1)),
                   coef0=draw(st.floats(0, 9)), n_landmarks=15, **common),
    ]), "estimator")  # fmt: skip
    background = [Y[i::many] for i in range(many)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(
            *draw(st.sampled_from([(X,), (frames()[0],)])), background=background if many > 1 else background[0]
        )
    about = draw(st.none() | st.dictionaries(st.text(), st.lists(st.text() | st.integers() | st.booleans())))
    path = save(estimator, tmp_path_factory.mktemp("models") / "model", about=about)
    assert differences(answers(estimator, X), answers(load(path), X)) == []
    assert header(path)["about"] == about


def test_feature_names_of_any_text_survive_saving(tmp_path):
    names = ["", "größe 🦊", "\ud800", "a\0", 'quo"te\n']
    model = DPCA().fit(pd.DataFrame(X, columns=names), background=pd.DataFrame(Y, columns=names))
    assert load(save(model, tmp_path / "m")).feature_names_in_.tolist() == names


def test_the_output_container_survives_saving(tmp_path):
    frame = load(save(fitted("frames").set_output(transform="pandas"), tmp_path / "m")).transform(frames()[0])
    assert list(frame.columns) == ["dpca0", "dpca1"]
    np.testing.assert_array_equal(frame.to_numpy(), fitted("frames").transform(frames()[0]))


def test_a_loaded_model_can_be_refitted_but_not_updated(tmp_path, refused):
    again = load(save(fitted("plain"), tmp_path / "m"))
    before = answers(again, X)
    refused(lambda: again.partial_fit(X), "keeps no moments", "rows cannot be added")
    refused(lambda: again.fit(X[:, 0], background=Y))
    assert differences(before, answers(again, X)) == []
    other = X * [1, 1, 1, 1, 9]
    expected = DPCA().fit(other, background=Y)
    assert differences(answers(again.fit(other, background=Y), X), answers(expected, X)) == []


@pytest.mark.filterwarnings("ignore::standout.errors.OverfitWarning")
def test_denoising_needs_no_moments_and_the_file_is_small(tmp_path):
    rng = np.random.default_rng(0)
    background = rng.normal(size=(900, 600))
    target = rng.normal(size=(900, 600)) * np.where(np.arange(600) < 2, 60.0, 1.0)
    model = DPCA(2, shrinkage=None).fit(target, background=background)
    path = save(model, tmp_path / "m")
    # Two of each (component, pattern, filter and pattern of the signal), mean and scale: ten numbers a feature.
    assert 8 * 10 * 600 < path.stat().st_size < 8 * 10 * 600 + 10_000
    np.testing.assert_array_equal(load(path).denoise(target[:5]), model.denoise(target[:5]))


@quiet
def test_denoising_falls_back_to_the_components_when_moments_do_not_suffice(tmp_path):
    rng = np.random.default_rng(0)
    mix = np.geomspace(1, 1e-10, 6)[:, None] * np.linalg.qr(rng.normal(size=(6, 6)))[0]
    target = rng.normal(size=(50, 6)) @ mix
    model = DPCA(6, shrinkage=None).fit(target, background=rng.normal(size=(7, 6)) @ mix)
    again = load(save(model, tmp_path / "m"))
    gains = 1 - 1 / np.maximum(again.ratios_, 1)
    expected = (target - target.mean(axis=0)) @ again.components_.T * gains @ again.patterns_
    np.testing.assert_allclose(again.denoise(target), expected, atol=1e-6)


def test_the_same_model_gives_the_same_bytes_except_for_the_date(tmp_path):
    one, other = (save(fitted("cPCA"), tmp_path / name) for name in "ab")
    members = [{name: ZipFile(path).read(name) for name in ZipFile(path).namelist()} for path in (one, other)]
    dates = [json.loads(found.pop("header.json")) for found in members]
    assert members[0] == members[1]
    created = [found.pop("created") for found in dates]
    assert dates[0] == dates[1] and all(date.endswith("+00:00") for date in created)
    assert len({info.date_time for info in ZipFile(one).infolist()}) == 1


def test_numpy_can_read_the_arrays_of_a_model_file(tmp_path):
    model = fitted("several")
    with np.load(save(model, tmp_path / "m"), allow_pickle=False) as found:
        np.testing.assert_array_equal(found["model.components"], model.components_)
        np.testing.assert_array_equal(found["model.mix"], [0.5, 0.5])
        assert json.loads(found["header.json"])["estimator"] == "DPCA"


def test_the_header_describes_the_model_without_loading_its_arrays(tmp_path):
    path = save(fitted("shares"), tmp_path / "m", about={"command": ["fit", "x.csv"], "seed": 1})
    found = header(path)
    assert found["about"] == {"command": ["fit", "x.csv"], "seed": 1}
    assert (found["estimator"], found["n_features_in"], found["standout"]) == ("DPCA", 5, standout.__version__)
    assert found["parameters"]["centering"] == "own" and found["parameters"]["mix"] == {"array": "parameters.mix"}
    assert found["arrays"]["parameters.mix"] == {"dtype": ">i2", "shape": [2], "fortran_order": False}
    blob = bytearray(path.read_bytes())
    blob[blob.index(b"NUMPY") + 200] ^= 1  # an array is damaged: the header is none the worse
    path.write_bytes(blob)
    assert header(path) == found
    with pytest.raises(ModelFileError, match="damaged"):
        load(path)


def without_matrix(text):
    """Return a repr without the description of a sparse matrix, which differs between versions of scipy."""
    return re.sub(r"(?s)<.*?>(?=[,)])", "<matrix>", text)


def test_models_saved_by_earlier_versions_load():
    golden = json.loads((GOLDEN / "answers.json").read_text(encoding="utf-8"))
    assert sorted(golden) == sorted(path.stem for path in GOLDEN.glob("*.standout")) == ["cpca", "dpca", "kernel"]
    for name, expected in golden.items():
        model, rows = load(GOLDEN / f"{name}.standout"), np.array(expected["rows"])
        frame = pd.DataFrame(rows, columns=model.feature_names_in_)
        np.testing.assert_allclose(model.transform(frame), expected["scores"], rtol=1e-9)
        stored = [line.split() for line in expected["summary"].splitlines()]
        shown = [line.split() for line in model.summary().splitlines()]
        for label in model.get_feature_names_out():  # the words of the summary may change, its numbers not
            (numbers,), (own,) = ([line[1:] for line in text if line[:1] == [label]] for text in (stored, shown))
            assert [value for value in numbers if value not in "-–"] == [value for value in own if value not in "-–"]
        assert without_matrix(repr(model)) == without_matrix(expected["repr"])
        if name == "dpca":
            np.testing.assert_array_equal(model.graph.toarray(), np.eye(4, k=1) + np.eye(4, k=-1))
            np.testing.assert_allclose(model.denoise(frame), expected["denoised"], rtol=1e-9)
        if name == "cpca":
            assert model.path_.representative_values.tolist() == expected["representatives"]
