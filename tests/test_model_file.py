"""Saved models: what is loaded is what was saved, and a bad file is told plainly and does no harm."""

import dataclasses
import json
import warnings
from pathlib import Path
from types import SimpleNamespace
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone

import standout
from conftest import NAMES, whole_numbers
from standout._cpca import CPCA
from standout._dpca import DPCA
from standout._kernel_dpca import KernelDPCA
from standout._model_file import header, load, save
from standout._moments import Moments
from standout.errors import ModelFileError, StandoutError

GOLDEN = Path(__file__).parent / "data" / "format1"
DATA = whole_numbers(60, 90)
X, Y = DATA
FRAMES = pd.DataFrame(X, columns=NAMES), pd.DataFrame(Y[:, ::-1], columns=NAMES[::-1])
CHAIN = sparse.diags_array([np.ones(4), np.ones(4)], offsets=[-1, 1])
LABELS = np.repeat(["case", "control", "sham"], [60, 45, 45])
WIDE = SimpleNamespace(
    target=np.random.default_rng(1).normal(size=(12, 40)) * np.where(np.arange(40) == 7, 5.0, 1.0),
    background=np.random.default_rng(2).normal(size=(15, 40)),
)


def batches(estimator):
    for start in range(0, 60, 25):
        estimator.partial_fit(X[start : start + 25], background=Y[start : start + 40])
    return estimator


def labelled(label, labels=LABELS):
    return DPCA(background_label=label).fit(np.vstack(DATA), labels)


TWO = {"a": Y[:50], "b": Y[50:]}
ONE = {"background": Y}
CONSTANT = Y * [1, 1, 1, 0, 1]
CASES = {
    "plain": lambda: DPCA().fit(X, **ONE),
    "all components": lambda: DPCA(None, shrinkage="oas", solver="dense").fit(X, **ONE),
    "signal axes": lambda: DPCA(axes="signal", centering="background").fit(X, **ONE),
    "unit background": lambda: DPCA(3, normalize="background", shrinkage=0.25).fit(X, **ONE),
    "common features": lambda: DPCA(features="common").fit(FRAMES[0], background=FRAMES[1].drop(columns="b")),
    "frames": lambda: DPCA().fit(FRAMES[0], background=FRAMES[1]),
    "names of the background alone": lambda: DPCA().partial_fit(background=FRAMES[1]).partial_fit(Moments.of(X)),
    "several": lambda: DPCA(mix="equal").fit(X, background=TWO),
    "shares": lambda: DPCA(mix=np.array([1, 3], dtype=">i2")).fit(X, background=[Y[:50], Y[50:]]),
    "shares in a tuple": lambda: DPCA(mix=(0.5, 0.5)).fit(X, background=[Y[:50], Y[50:]]),
    "shares by name": lambda: DPCA(mix={"b": 0.9, "a": np.float32(0.1)}).fit(X, background=TWO),
    "minimax": lambda: DPCA(mix="minimax").fit(X, background=TWO),
    "minimax, wide": lambda: DPCA(mix="minimax").fit(
        WIDE.target, background={"a": WIDE.background[:7], "b": WIDE.background[7:]}
    ),
    "label": lambda: labelled("control", np.repeat(["case", "control"], [60, 90])),
    "labels": lambda: labelled(["control", "sham"]),
    "labels of objects": lambda: labelled(np.array(["sham", "control"], dtype=object)),
    "labels of text": lambda: labelled(np.array(["sham", "control"])),
    "numbers as labels": lambda: labelled((np.int64(1), 2.0), np.repeat([0, 1, 2], [60, 45, 45])),
    "PCA": lambda: DPCA(np.int64(3)).fit(X),
    "nothing found": lambda: DPCA("auto").fit(Y[:40], background=Y[40:]),
    "infinite ratios": lambda: DPCA(None).fit(X, background=CONSTANT),
    "no edge": lambda: DPCA().fit(WIDE.target, background=WIDE.background),
    "wide and exact": lambda: DPCA(solver="gsvd", shrinkage=0.0).fit(X, **ONE),
    "lanczos": lambda: DPCA(1, solver="lanczos", random_state=3).fit(X, **ONE),
    "weights and groups": lambda: DPCA().fit(X, sample_weight=np.arange(60) / 7, groups=np.arange(60) % 9, **ONE),
    "batches": lambda: batches(DPCA()),
    "graph, sparse": lambda: DPCA(graph=CHAIN.tocsr(), smoothness=2).fit(X, **ONE),
    "graph, dense": lambda: DPCA(graph=CHAIN.toarray().tolist()).fit(X, **ONE),
    "cPCA": lambda: CPCA().fit(X, **ONE),
    "cPCA on its own grid": lambda: CPCA(1, grid=[0.5, 2, 8.0], affinity="scores").fit(X, **ONE),
    "cPCA at one alpha": lambda: CPCA(alpha=2).fit(X, **ONE),
    "cPCA without alpha": lambda: CPCA(alpha="trace_ratio").fit(WIDE.target, background=WIDE.background),
    "cPCA without background": lambda: CPCA(3).fit(X),
    "cPCA, common features": lambda: CPCA(features="common").fit(FRAMES[0], background=FRAMES[1][["a", "c", "e"]]),
    "cPCA, batches": lambda: batches(CPCA()),
    "kernel": lambda: KernelDPCA(n_landmarks=20, random_state=1).fit(X, **ONE),
    "kernel of frames": lambda: KernelDPCA(kernel="poly", degree=3).fit(FRAMES[0], background=FRAMES[1]),
    "kernel, several": lambda: KernelDPCA(kernel="cosine", mix=[0.2, 0.8]).fit(X, background=TWO),
    "kernel PCA": lambda: KernelDPCA(None, kernel="linear").fit(X),
}


def fitted(case):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CASES[case]()


def same(one, other):
    """Tell whether two values are the same in type and to the last bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        if one.dtype == object:
            return one.shape == other.shape and same(one.tolist(), other.tolist())
        alike = (one.dtype, one.shape, one.flags.f_contiguous) == (other.dtype, other.shape, other.flags.f_contiguous)
        return alike and one.tobytes() == other.tobytes()
    if sparse.issparse(one):
        return one.dtype == other.dtype and one.shape == other.shape and (one != other).nnz == 0
    if dataclasses.is_dataclass(one) and not isinstance(one, type):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))
    if isinstance(one, dict):
        return list(one) == list(other) and same(list(one.values()), list(other.values()))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other or one != one


def outcome(call):
    try:
        return call()
    except StandoutError as error:
        return str(error)


def answers(estimator, rows):
    """Everything a fitted estimator can be asked."""
    frame = pd.DataFrame(rows, columns=estimator.feature_names_in_) if hasattr(estimator, "feature_names_in_") else rows
    found = {name: getattr(estimator, name) for name in dir(estimator) if name[-1] == "_" and hasattr(estimator, name)}
    found = {name: value for name, value in found.items() if not name.startswith("_")}
    found |= {"parameters": estimator.get_params(), "clone": clone(estimator).get_params(), "repr": repr(estimator)}
    found |= {"summary": estimator.summary(), "labels": estimator.get_feature_names_out()}
    found["scores"] = estimator.transform(frame)
    with np.errstate(all="ignore"):
        if estimator.background_label is None:
            found["score"] = outcome(lambda: estimator.score(frame, background=frame[::-1][:20]))
        else:
            labels = [*np.atleast_1d(np.array(estimator.background_label, dtype=object)), "another"]
            found["score"] = outcome(
                lambda: estimator.score(rows, np.resize(np.array(labels, dtype=object), len(rows)))
            )
    if not isinstance(estimator, KernelDPCA):
        found["rows"] = estimator.inverse_transform(found["scores"])
        found["features"] = estimator.top_features(3)
    if isinstance(estimator, DPCA):
        found["denoised"] = estimator.denoise(frame)
    return found


def differences(one, other):
    assert list(one) == list(other)
    return [name for name in one if not same(one[name], other[name])]


def rows_for(estimator):
    rng = np.random.default_rng(5)
    return np.round(rng.normal(size=(70, estimator.n_features_in_)) * 8)


@pytest.mark.parametrize("case", CASES)
def test_what_is_loaded_gives_the_same_bits_as_what_was_saved(case, tmp_path):
    estimator = fitted(case)
    with warnings.catch_warnings(record=True):  # batches are solved now, and may have something to say
        again = load(save(estimator, tmp_path / "model"))
    assert type(again) is type(estimator)
    assert differences(answers(estimator, rows_for(estimator)), answers(again, rows_for(estimator))) == []


def test_the_checks_above_see_the_last_bit():
    one, other = fitted("plain"), fitted("plain")
    assert differences(answers(one, X), answers(other, X)) == []
    other._model.components[0, 0] = np.nextafter(other.components_[0, 0], 9)
    assert set(differences(answers(one, X), answers(other, X))) == {"components_", "scores", "rows", "score"}
    assert isinstance(answers(one, X)["score"], float) and isinstance(answers(fitted("labels"), X)["score"], float)


FORMATS = ["csr", "csc", "coo", "dia", "bsr", "dok", "lil"]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_parameters_come_back(tmp_path_factory, data):
    draw = data.draw
    many = draw(st.sampled_from([1, 2, 3]), "backgrounds")
    shares = st.lists(st.floats(0.01, 9), min_size=many, max_size=many)
    mixes = ["pooled", "equal", draw(shares), np.array(draw(shares)), dict(zip(range(many), draw(shares), strict=True))]
    common = {
        "mix": draw(st.sampled_from(mixes if many > 1 else mixes[:4]), "mix"),
        "random_state": draw(st.none() | st.integers(0, 2**40) | st.just(np.uint8(3))),
    }
    count = draw(st.none() | st.integers(1, 4), "components")
    graph = CHAIN.asformat(draw(st.sampled_from(FORMATS))) if draw(st.booleans()) else None
    graph = sparse.csr_matrix(graph).asformat(graph.format) if graph is not None and draw(st.booleans()) else graph
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
            *draw(st.sampled_from([(X,), (FRAMES[0],)])), background=background if many > 1 else background[0]
        )
    about = draw(st.none() | st.dictionaries(st.text(), st.lists(st.text() | st.integers() | st.booleans())))
    path = save(estimator, tmp_path_factory.mktemp("models") / "model", about=about)
    assert differences(answers(estimator, X), answers(load(path), X)) == []
    assert header(path)["about"] == about


def test_names_of_any_text_come_back(tmp_path):
    names = ["", "größe 🦊", "\ud800", "a\0", 'quo"te\n']
    model = DPCA().fit(pd.DataFrame(X, columns=names), background=pd.DataFrame(Y, columns=names))
    assert load(save(model, tmp_path / "m")).feature_names_in_.tolist() == names


def test_the_kind_of_output_is_kept(tmp_path):
    frame = load(save(fitted("frames").set_output(transform="pandas"), tmp_path / "m")).transform(FRAMES[0])
    assert list(frame.columns) == ["dpca0", "dpca1"]
    np.testing.assert_array_equal(frame.to_numpy(), fitted("frames").transform(FRAMES[0]))


def test_a_loaded_model_fits_anew_and_takes_no_batches(tmp_path, refused):
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
    background = rng.normal(size=(2500, 2000))
    target = rng.normal(size=(2500, 2000)) * np.where(np.arange(2000) < 2, 60.0, 1.0)
    model = DPCA(2, shrinkage=None).fit(target, background=background)
    path = save(model, tmp_path / "m")
    # Two of each (component, pattern, filter and pattern of the signal), mean and scale: ten numbers a feature.
    assert 8 * 10 * 2000 < path.stat().st_size < 8 * 10 * 2000 + 10_000
    np.testing.assert_array_equal(load(path).denoise(target[:5]), model.denoise(target[:5]))


@pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")
def test_where_moments_cannot_give_the_signal_denoising_uses_the_components(tmp_path):
    rng = np.random.default_rng(0)
    mix = np.geomspace(1, 1e-10, 6)[:, None] * np.linalg.qr(rng.normal(size=(6, 6)))[0]
    target = rng.normal(size=(50, 6)) @ mix
    model = DPCA(6, shrinkage=None).fit(target, background=rng.normal(size=(7, 6)) @ mix)
    again = load(save(model, tmp_path / "m"))
    gains = 1 - 1 / np.maximum(again.ratios_, 1)
    expected = (target - target.mean(axis=0)) @ again.components_.T * gains @ again.patterns_
    np.testing.assert_allclose(again.denoise(target), expected, atol=1e-6)


def test_the_same_model_gives_the_same_bytes_but_for_the_date(tmp_path):
    one, other = (save(fitted("cPCA"), tmp_path / name) for name in "ab")
    members = [{name: ZipFile(path).read(name) for name in ZipFile(path).namelist()} for path in (one, other)]
    dates = [json.loads(found.pop("header.json")) for found in members]
    assert members[0] == members[1]
    created = [found.pop("created") for found in dates]
    assert dates[0] == dates[1] and all(date.endswith("+00:00") for date in created)
    assert len({info.date_time for info in ZipFile(one).infolist()}) == 1


def test_numpy_reads_the_arrays_without_us(tmp_path):
    model = fitted("several")
    with np.load(save(model, tmp_path / "m"), allow_pickle=False) as found:
        np.testing.assert_array_equal(found["model.components"], model.components_)
        np.testing.assert_array_equal(found["model.mix"], [0.5, 0.5])
        assert json.loads(found["header.json"])["estimator"] == "DPCA"


def test_the_header_tells_what_is_in_the_file_without_its_arrays(tmp_path):
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


def test_models_that_earlier_versions_kept_are_read():
    told = json.loads((GOLDEN / "answers.json").read_text(encoding="utf-8"))
    assert sorted(told) == sorted(path.stem for path in GOLDEN.glob("*.standout")) == ["cpca", "dpca", "kernel"]
    for name, expected in told.items():
        model, rows = load(GOLDEN / f"{name}.standout"), np.array(expected["rows"])
        frame = pd.DataFrame(rows, columns=model.feature_names_in_)
        np.testing.assert_allclose(model.transform(frame), expected["scores"], rtol=1e-9)
        assert model.summary() == expected["summary"] and repr(model) == expected["repr"]
        if name == "dpca":
            np.testing.assert_allclose(model.denoise(frame), expected["denoised"], rtol=1e-9)
        if name == "cpca":
            assert model.path_.representative_values.tolist() == expected["representatives"]
