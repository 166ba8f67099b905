"""Damaged and hostile model files: they are refused, or load as valid models."""

import json
import random
import tracemalloc
import warnings
from contextlib import suppress
from zipfile import ZIP_DEFLATED

import numpy as np
import pytest
from fuzz.damage import ODD
from scipy import sparse

from model_files import X, answers, differences, fitted, npy, resealed, sealed, taken_apart
from standout._model_file import header, load, save
from standout.errors import ModelFileError, StandoutError


@pytest.fixture
def model_file(tmp_path):
    return save(fitted("plain"), tmp_path / "model.standout")


def test_a_handmade_file_with_correct_checksums_loads(model_file):
    before = load(model_file)
    model_file.write_bytes(sealed(*taken_apart(model_file)))
    assert differences(answers(before, X), answers(load(model_file), X)) == []


def test_errors_about_a_newer_format_or_unknown_estimator_say_what_to_install(model_file, refused):
    head, members = taken_apart(model_file)
    model_file.write_bytes(sealed({"format": 99, "standout": "99.1", "arrays": {}, "other": 1}, {}))
    for call in (load, header):
        refused(lambda call=call: call(model_file), "99.1", "format 99", "Install standout 99.1", kind=ModelFileError)
    model_file.write_bytes(sealed({**head, "estimator": "TSNE"}, members))
    refused(lambda: load(model_file), "TSNE", "KernelDPCA", "Install", kind=ModelFileError)


def test_every_changed_byte_and_every_truncation_is_detected(model_file, remedy):
    blob, known = model_file.read_bytes(), header(model_file)
    ends = {*range(120), *range(len(blob) - 300, len(blob))}
    for place in sorted({*ends, *range(0, len(blob), 11)}):
        model_file.write_bytes(blob[:place] + bytes([blob[place] ^ (1 << place % 8)]) + blob[place + 1 :])
        with pytest.raises(ModelFileError, match="damaged") as error:
            load(model_file)
        with suppress(ModelFileError):
            assert header(model_file) == known
    remedy(error)
    for length in range(0, len(blob), 23):
        for part in (blob[:length], blob[-length:] if length else b"", blob + blob[:length] if length else b""):
            model_file.write_bytes(part)
            with pytest.raises(ModelFileError):
                load(model_file)


def test_random_damage_is_detected(model_file):
    blob, rng = model_file.read_bytes(), random.Random(0)
    for _ in range(800):
        i, j, k = sorted(rng.randrange(len(blob)) for _ in range(3))
        swapped = blob[:i] + blob[j:k] + blob[i:j] + blob[k:]
        inserted = blob[:i] + rng.randbytes(rng.randint(1, 9)) + blob[i:]
        changed = rng.choice([swapped, inserted, blob[:i] + blob[j:], blob[:j] + blob[i:]])
        if changed == blob:
            continue
        model_file.write_bytes(changed)
        with pytest.raises(ModelFileError):
            load(model_file)


def used(path):
    """Load a file: it is refused, or a model that works."""
    try:
        model = load(path)
    except ModelFileError:
        return False
    rows = np.ones((70, model.n_features_in_)) * np.arange(70)[:, None] % 7
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        with suppress(StandoutError):
            answers(model, rows)
    return True


def test_changed_bytes_with_a_correct_checksum_do_no_harm(model_file):
    blob, rng = model_file.read_bytes(), random.Random(1)
    worked = 0
    for _ in range(600):
        changed = bytearray(blob)
        for _ in range(rng.choice([1, 1, 1, 5])):
            changed[rng.randrange(len(blob) - 64)] ^= 1 << rng.randrange(8)
        model_file.write_bytes(resealed(bytes(changed)))
        worked += used(model_file)
    assert 0 < worked < 600


def nodes(tree, path=()):
    yield path
    if isinstance(tree, dict | list):
        for key, branch in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from nodes(branch, (*path, key))


def changed(tree, path, rng):
    """Return a copy of some JSON with one node replaced, left out or twice there."""
    tree = json.loads(json.dumps(tree))
    if not path:
        return rng.choice(ODD)
    parent = tree
    for key in path[:-1]:
        parent = parent[key]
    action = rng.choice(["replace", "replace", "replace", "leave out", "twice"])
    if action == "leave out":
        del parent[path[-1]]
    elif action == "twice" and isinstance(parent, list):
        parent.append(parent[path[-1]])
    elif action == "twice":
        parent[f"{path[-1]} too"] = parent[path[-1]]
    else:
        parent[path[-1]] = rng.choice(ODD)
    return tree


@pytest.mark.parametrize(
    "case", ["common features", "labels of text", "graph, sparse", "shares", "cPCA", "kernel of frames"]
)
def test_a_changed_header_with_a_correct_checksum_does_no_harm(case, tmp_path):
    rng = random.Random(case)
    path = save(fitted(case), tmp_path / "m")
    head, members = taken_apart(path)
    everywhere = list(nodes(head))
    worked = 0
    for _ in range(300):
        wrong = changed(head, rng.choice(everywhere), rng)
        path.write_bytes(sealed(wrong, members))
        worked += used(path)
    assert 0 < worked < 200


@pytest.mark.parametrize("value", ["x", -1, 1.5, None, True, [1]])
def test_a_number_of_factors_that_is_not_a_count_is_an_error(model_file, refused, value):
    head, members = taken_apart(model_file)
    head["model"]["record"][1]["n_factors"] = value
    model_file.write_bytes(sealed(head, members))
    refused(lambda: load(model_file), "damaged", "a number of its model", kind=ModelFileError)


def hostile(path):
    """Yield files that ask for more than they hold."""
    head, members = taken_apart(path)
    arrays = head["arrays"]

    def described(**named):
        return {**head, "arrays": {**arrays, "model.mean": {**arrays["model.mean"], **named}}}

    for shape in ([2**39], [5, 2**39], [2**39] * 8, [0, 2**39], [-5], [5.0], [True], [[5]], "5", [5] * 40, [6], []):
        yield described(shape=shape), members
    for code in ("O", "|O8", "<f16", "<c16", "<M8[ns]", "V8", "f8,f8", "<f8 ", "float64", "<U9", 8, None):
        yield described(dtype=code), members
    yield described(fortran_order=1), members
    yield described(more=1), members
    yield head, {**members, "model.mean.npy": npy(np.array([{}, 1, 2, 3, 4], dtype=object))}
    yield head, {**members, "model.mean.npy": members["model.mean.npy"] + b" "}
    yield head, {**members, "model.mean.npy": members["model.mean.npy"].replace(b"(5,)", b"(6,)")}
    yield head, {**members, "more.npy": npy(np.ones(3))}
    yield head, {name: content for name, content in members.items() if name != "model.mean.npy"}
    yield (
        {**head, "arrays": {**arrays, "more": arrays["model.mean"]}},
        {**members, "more.npy": members["model.mean.npy"]},
    )
    yield b'{"format":1' + b"[" * 100_000, members
    yield b'{"format":' + b"9" * 5000 + b"}", members
    yield json.dumps({**head, "about": None}).replace('"about": null', '"about": NaN').encode(), members
    yield {**head, "parameters": {**head["parameters"], "mix": json.loads("[" * 500 + "]" * 500)}}, members
    text = {"labels": ["U", [10**5], ["x" * 10**5] + [""] * (10**5 - 1)]}  # forty gigabytes, of the longest for each
    yield {**head, "parameters": {**head["parameters"], "background_label": text}}, members
    for kind, shape, parts in OUTSIDE:
        yield with_graph(head, members, kind, shape, parts)


# Places outside of a matrix would be read and written in C.
OUTSIDE = [
    ("csr_array", [5, 5], {"data": [1.0, 1], "indices": [0, 10**6], "indptr": [0, 1, 2, 2, 2, 2]}),
    ("csc_matrix", [5, 5], {"data": [1.0, 1], "indices": [0, -9], "indptr": [0, 1, 2, 2, 2, 2]}),
    ("lil_array", [5, 5], {"data": [1.0, 1], "indices": [0, 1], "indptr": [0, 1, 2, 2, 2, 10**6]}),
    ("bsr_array", [5, 5], {"data": [1.0, 1], "indices": [0, 1], "indptr": [0, 2, 1, 2, 2, 2]}),
    ("dok_array", [5, 2**39], {"data": [1.0, 1], "indices": [0, 1], "indptr": [0, 1, 2, 2, 2, 2]}),
    ("coo_array", [5, 5], {"data": [1.0, 1], "row": [0, 10**6], "col": [0, 1]}),
    ("coo_array", [2**39, 2**39], {"data": [1.0, 1], "row": [0, 1], "col": [0, 1]}),
    ("dia_array", [5, 5], {"data": [[1.0] * 5], "offsets": [-(2**63)]}),
    ("dia_matrix", [5, 5], {"data": [[1.0] * 5], "offsets": [10**6]}),
]


def with_graph(head, members, kind, shape, parts):
    """Return the parts of a file with a sparse matrix as its graph."""
    head = json.loads(json.dumps(head))
    arrays = {f"parameters.graph.{name}": np.array(values) for name, values in parts.items()}
    code = {name: {"array": f"parameters.graph.{name}"} for name in parts}
    head["parameters"]["graph"] = {"sparse": [kind, shape, code]}
    for name, array in arrays.items():
        head["arrays"][name] = {"dtype": array.dtype.str, "shape": list(array.shape), "fortran_order": False}
    return head, {**members, **{f"{name}.npy": npy(array) for name, array in arrays.items()}}


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dia", "bsr", "dok", "lil"])
@pytest.mark.parametrize("kind", ["array", "matrix"])
def test_a_sparse_matrix_in_a_form_of_earlier_versions_loads(model_file, form, kind):
    graph = getattr(sparse, f"coo_{kind}")(([1.0, 2.0], ([0, 1], [1, 0])), shape=(5, 5)).asformat(form)
    stored = graph.tocsr() if form in ("bsr", "dok", "lil") else graph
    names = {"coo": ("data", "row", "col"), "dia": ("data", "offsets")}.get(form, ("data", "indices", "indptr"))
    parts = {name: getattr(stored, name) for name in names}
    model_file.write_bytes(sealed(*with_graph(*taken_apart(model_file), f"{form}_{kind}", [5, 5], parts)))
    again = load(model_file).graph
    assert type(again) is type(graph) and again.toarray()[:2, :2].tolist() == [[0, 1], [2, 0]]


def test_a_file_cannot_make_the_loader_allocate_more_than_it_holds(model_file, refused):
    files = [sealed(*parts) for parts in hostile(model_file)]
    files.append(sealed(*taken_apart(model_file), packed=ZIP_DEFLATED))
    for blob in files:
        model_file.write_bytes(blob)
        tracemalloc.start()
        refused(lambda: load(model_file), "model.standout", "damaged", kind=ModelFileError)
        assert tracemalloc.get_traced_memory()[1] < 40 * len(blob) + 10**6
        tracemalloc.stop()


def test_an_incomplete_header_is_an_error(model_file, refused):
    head, members = taken_apart(model_file)
    for key in head:
        wrong = {name: value for name, value in head.items() if name != key}
        for content in (wrong, {**head, key: 1.5}):
            model_file.write_bytes(sealed(content, members))
            refused(lambda: load(model_file), "model.standout", kind=ModelFileError)
            refused(lambda: header(model_file), "model.standout", kind=ModelFileError)
