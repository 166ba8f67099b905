"""Shared by the tests of model files: one fitted model of every kind, their answers, and archives made by hand."""

import dataclasses
import json
import warnings
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np
from scipy import sparse
from sklearn.base import clone

from conftest import NAMES, whole_numbers
from helpers import OptionalPackage
from standout._cpca import CPCA
from standout._dpca import DPCA
from standout._kernel_dpca import KernelDPCA
from standout._moments import Moments
from standout.errors import StandoutError

pd = OptionalPackage("pandas")

GOLDEN = Path(__file__).parent / "data" / "format1"
DATA = whole_numbers(60, 90)
X, Y = DATA
CHAIN = sparse.diags_array([np.ones(4), np.ones(4)], offsets=[-1, 1])
LABELS = np.repeat(["case", "control", "sham"], [60, 45, 45])
WIDE = SimpleNamespace(
    target=np.random.default_rng(1).normal(size=(12, 40)) * np.where(np.arange(40) == 7, 5.0, 1.0),
    background=np.random.default_rng(2).normal(size=(15, 40)),
)


def frames():
    return pd.DataFrame(X, columns=NAMES), pd.DataFrame(Y[:, ::-1], columns=NAMES[::-1])


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
    "common features": lambda: DPCA(features="common").fit(frames()[0], background=frames()[1].drop(columns="b")),
    "frames": lambda: DPCA().fit(frames()[0], background=frames()[1]),
    "names of the background alone": lambda: DPCA().partial_fit(background=frames()[1]).partial_fit(Moments.of(X)),
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
    "weights and groups": lambda: DPCA().fit(
        X, sample_weight=np.arange(60) / 7, groups=np.arange(60) % 9, background_groups=np.arange(len(Y)) % 11, **ONE
    ),
    "batches": lambda: batches(DPCA()),
    "graph, sparse": lambda: DPCA(graph=CHAIN.tocsr(), smoothness=2).fit(X, **ONE),
    "graph, dense": lambda: DPCA(graph=CHAIN.toarray().tolist()).fit(X, **ONE),
    "cPCA": lambda: CPCA().fit(X, **ONE),
    "cPCA on its own grid": lambda: CPCA(1, grid=[0.5, 2, 8.0], affinity="scores").fit(X, **ONE),
    "cPCA at one alpha": lambda: CPCA(alpha=2).fit(X, **ONE),
    "cPCA without alpha": lambda: CPCA(alpha="trace_ratio").fit(WIDE.target, background=WIDE.background),
    "cPCA without background": lambda: CPCA(3).fit(X),
    "cPCA, common features": lambda: CPCA(features="common").fit(frames()[0], background=frames()[1][["a", "c", "e"]]),
    "cPCA, batches": lambda: batches(CPCA()),
    "kernel": lambda: KernelDPCA(n_landmarks=20, random_state=1).fit(X, **ONE),
    "kernel of frames": lambda: KernelDPCA(kernel="poly", degree=3).fit(frames()[0], background=frames()[1]),
    "kernel, several": lambda: KernelDPCA(kernel="cosine", mix=[0.2, 0.8]).fit(X, background=TWO),
    "kernel PCA": lambda: KernelDPCA(None, kernel="linear").fit(X),
}


def fitted(case):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CASES[case]()


def same(one, other):
    """Return whether two values are the same in type and to the last bit."""
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
    """Return every result of a fitted estimator."""
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


def taken_apart(path):
    """Return the header and the other members of a model file."""
    with ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    return json.loads(members.pop("header.json")), members


def sealed(head, members, packed=ZIP_STORED):
    """Return a file with right checksums, written by hand."""
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    buffer = BytesIO()
    with ZipFile(buffer, "w", packed) as archive:
        archive.writestr(ZipInfo("header.json"), text)
        for name, content in members.items():
            archive.writestr(name, content)
        digest = sha256(text).hexdigest()
        archive.comment = f"standout model; header sha256 {digest}; file sha256 {'0' * 64}".encode()
    return resealed(buffer.getvalue())


def resealed(blob):
    return blob[:-64] + sha256(blob[:-64]).hexdigest().encode()


def npy(array):
    buffer = BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()
