"""MNIST, CIFAR-10 and OpenML's answers as their makers publish them, written byte by byte for the tests."""

import gzip
import hashlib
import json
import struct

import numpy as np

MNIST_TRAIN = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)
MNIST_TEST = (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009)


def numbered(n, side):
    """Return n black images of which four pixels in the middle count, so that no two are alike."""
    images = np.zeros((n, side, side), np.uint8)
    images[:, side // 2, side // 2 : side // 2 + 4] = np.arange(n, dtype=">u4").view(np.uint8).reshape(n, 4)
    return images


def mnist(seed=0):
    """Return 70000 images and labels, as many of each digit as there are, and in no order."""
    rng = np.random.default_rng(seed)
    labels = [rng.permutation(np.repeat(np.arange(10), counts)) for counts in (MNIST_TRAIN, MNIST_TEST)]
    return numbered(70000, 28), np.concatenate(labels).astype(np.uint8)


def idx(array):
    """Return an array of bytes as the idx file of it."""
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def python2_batch(planes, labels):
    """Return a batch as Python 2 and its numpy pickled it: text is bytes, and numpy's modules have their old names."""
    shape = b"".join(b"J" + struct.pack("<i", size) for size in planes.shape)
    dtype = b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    data = planes.tobytes()
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR"
    array += b"(K\x01" + shape + b"\x86" + dtype + b"\x89T" + struct.pack("<i", len(data)) + data + b"tb"
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(U\x06labels" + numbers + b"U\x04data" + array + b"u."


def on_openml(home, name, version, attributes, rows):
    """Put a dataset where scikit-learn keeps what it has downloaded: its answers about it, and the ARFF file."""
    lines = [f"@RELATION {name}", *(f"@ATTRIBUTE {a['name']} {a['kind']}" for a in attributes), "@DATA"]
    arff = "\n".join([*lines, *(",".join(map(str, row)) for row in rows), ""]).encode()
    about = {"id": "1", "name": name, "version": str(version), "description": "", "format": "ARFF", "status": "active"}
    about |= {"url": "https://www.openml.org/data/v1/download/1/it.arff", "md5_checksum": hashlib.md5(arff).hexdigest()}
    about["file_id"] = "1"  # before scikit-learn 1.7 in the place of the address
    flags = ("is_target", "is_ignore", "is_row_identifier")
    features = [
        {"index": str(i), "name": a["name"], "data_type": "numeric" if a["kind"] == "numeric" else "nominal"}
        | {"number_of_missing_values": "0"}
        | {flag: str(a.get("flag") == flag).lower() for flag in flags}
        for i, a in enumerate(attributes)
    ]
    answers = {
        f"list/data_name/{name}/limit/2/data_version/{version}": {"data": {"dataset": [{"did": 1}]}},
        "1": {"data_set_description": about},
        "features/1": {"data_features": {"feature": features}},
        "qualities/1": {"data_qualities": {"quality": [{"name": "NumberOfInstances", "value": str(len(rows))}]}},
    }
    files = {f"api/v1/json/data/{path}": json.dumps(answer).encode() for path, answer in answers.items()}
    files |= dict.fromkeys(("data/v1/download/1/it.arff", "data/v1/download/1"), arff)
    for path, content in files.items():
        file = home / "openml" / "openml.org" / f"{path}.gz"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(gzip.compress(content, 1))
