"""Damage to files: to any bytes, to the sizes that a file claims, and inside of archives with correct checksums."""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from hashlib import blake2b, sha256
from io import BytesIO
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np

Damage = Callable[[np.random.Generator, bytes], bytes]

# Text and bytes with a meaning in some format.
TOKENS = (
    b"\xff" * 4, b"\0", b'"', b"\n", b"\r\n", b",", b";", b"\xef\xbb\xbf", b"NaN", b"1e999", b"-", b"\x7f\xff\xff\xff",
    b"PK\x03\x04", b"PK\x05\x06", b"TREE", b"SNOD", b"ARROW1\0\0", b"PAR1", b"%%MatrixMarket", b"\x1f\x8b\x08",
)  # fmt: skip
# Sizes of the intact files (rows, columns, bytes of values), and what is claimed instead.
SIZES = (5, 12, 20, 60, 96, 480)
CLAIMS = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 10**12, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
NUMBERS = (b"0", b"-1", b"99999999", b"999999999999", b"18446744073709551616", b"1e308", b"9" * 400)
# Bytes that a few kilobytes expand to: more than `read` may keep in memory.
BOMB, _STEP = 2**29, 2**24


def damaged(rng: np.random.Generator, whole: bytes) -> bytes:
    """Return the bytes with one to four changes."""
    found = bytearray(whole)
    while found == whole:
        for _ in range(rng.integers(1, 5)):
            change(rng, found)
    return bytes(found)


def change(rng: np.random.Generator, found: bytearray) -> None:
    """Change bytes in place."""
    place, length = int(rng.integers(len(found) + 1)), int(rng.integers(1, 30))
    other = int(rng.integers(len(found) + 1))
    token = TOKENS[rng.integers(len(TOKENS))]
    match int(rng.integers(14)):
        case 0 | 1 if place < len(found):
            found[place] ^= 1 << int(rng.integers(8))
        case 2:
            found[place : place + 1] = rng.bytes(1)
        case 3:
            found[place : place + len(token)] = token
        case 4:
            found[place:place] = token if rng.random() < 0.5 else rng.bytes(length)
        case 5:
            del found[place : place + length]
        case 6:
            found[place:place] = found[other : other + length]
        case 7:
            found[place : place + length] = found[other : other + length]  # splice, of any alignment
        case 8:
            size = 1 << int(rng.integers(4))
            value = CLAIMS[rng.integers(len(CLAIMS))] % 256**size
            found[place - place % size : place - place % size + size] = value.to_bytes(size, "little")
        case 9 | 10:
            _claim(rng, found)
        case 11:
            numbers = list(re.finditer(rb"\d+", found))
            if numbers:
                chosen = numbers[rng.integers(len(numbers))]
                found[chosen.start() : chosen.end()] = NUMBERS[rng.integers(len(NUMBERS))]
        case 12 if rng.random() < 0.3:
            del found[place:]
        case 13 if rng.random() < 0.05:
            found[place:place] = b"[" * 50_000


def _claim(rng: np.random.Generator, found: bytearray) -> None:
    """Replace a binary number that may be a size or a shape."""
    size = int(rng.choice([4, 8, 8]))
    known = SIZES[rng.integers(len(SIZES))].to_bytes(size, "little")
    places = [match.start() for match in re.finditer(re.escape(known), found)]
    if places:
        place = places[rng.integers(len(places))]
        found[place : place + size] = (CLAIMS[rng.integers(len(CLAIMS))] % 256**size).to_bytes(size, "little")


# JSON, with values of any kind in any place

ODD: list[Any] = [
    *(None, True, -1, 0, 1, 3, 10**30, 2**40, 1e308, -0.5, "", "x", "auto", "inf", "array", [], [0], [[]], {}),
    *({"array": name} for name in ("nothing", "model.mean", "model.components", "model.ratios")),
    *({"scalar": pair} for pair in (["<i1", 300], ["<f2", 1e300], ["|O", 1], ["<U5", "a"], ["U", "a"])),
    *({"labels": triple} for triple in (["O", [2], [1, {}]], ["U", [1], [3]], ["O", [-1], []], ["O", [1], [[]]])),
    *({"dict": pairs} for pairs in ([[[], 1]], [["a", 0.5]], [[1]])),
    {"record": ["Counts", {}]},
    {"record": ["Popen", {"args": "ls"}]},
    {"record": ["Counts", {"rows": 1, "weight": 1, "effective": 1, "units": {"float": "inf"}}]},
    {"callable": "os.system"},
    {"float": "nan"},
    {"sparse": ["csr_array", [5, 5], {}]},
    {"tuple": []},
    {"warning": "Warning"},
    json.loads("[" * 500 + "]" * 500),
]


def damaged_json(rng: np.random.Generator, text: bytes) -> bytes:
    """Return JSON with one node replaced, left out or repeated."""
    tree = json.loads(text)
    nodes = list(_nodes(tree))
    path = nodes[rng.integers(len(nodes))]
    odd = ODD[rng.integers(len(ODD))]
    if not path:
        return json.dumps(odd).encode()
    parent = tree
    for key in path[:-1]:
        parent = parent[key]
    match int(rng.integers(5)):
        case 0:
            del parent[path[-1]]
        case 1 if isinstance(parent, list):
            parent.append(parent[path[-1]])
        case 1:
            parent[f"{path[-1]} too"] = parent[path[-1]]
        case _:
            parent[path[-1]] = odd
    return json.dumps(tree).encode()


def _nodes(tree: Any, path: tuple[Any, ...] = ()) -> Any:
    yield path
    if isinstance(tree, dict | list):
        for key, branch in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from _nodes(branch, (*path, key))


def damaged_text_or_json(rng: np.random.Generator, content: bytes) -> bytes:
    """Damage a part: its nodes if it is JSON, otherwise its bytes."""
    if content[:1] in (b"{", b"[") and rng.random() < 0.7:
        return damaged_json(rng, content)
    return damaged(rng, content)


# Archives


@cache
def _bomb() -> tuple[bytes, int]:
    """Return the deflated form of many zeros, and their checksum."""
    packer, step, check = zlib.compressobj(1, zlib.DEFLATED, -15), bytes(_STEP), 0
    parts = []
    for _ in range(BOMB // len(step)):
        parts.append(packer.compress(step))
        check = zlib.crc32(step, check)
    return b"".join(parts) + packer.flush(), check


def _zip(members: list[tuple[str, int, int, int, bytes]]) -> bytes:
    """Return an archive of (name, method, checksum, size, stored bytes), none of which need to be consistent."""
    body, directory = bytearray(), bytearray()
    for name, method, check, size, stored in members:
        label = name.encode()
        common = struct.pack("<HHHHHIII", 20, 0, method, 0, 0x21, check, len(stored), size)
        directory += b"PK\x01\x02" + struct.pack("<H", 20) + common
        directory += struct.pack("<HHHHHII", len(label), 0, 0, 0, 0, 0, len(body)) + label
        body += b"PK\x03\x04" + common + struct.pack("<HH", len(label), 0) + label + stored
    end = struct.pack("<HHHHIIH", 0, 0, len(members), len(members), len(directory), len(body), 0)
    return bytes(body + directory) + b"PK\x05\x06" + end


def zipped(rng: np.random.Generator, whole: bytes) -> bytes:
    """Damage the bytes of an archive, or a member of it with a correct checksum, or its list of members."""
    if rng.random() < 0.4:
        return damaged(rng, whole)
    try:
        with ZipFile(BytesIO(whole)) as archive:
            contents = [(info.filename, archive.read(info)) for info in archive.infolist()]
    except BadZipFile:
        return damaged(rng, whole)
    chosen = int(rng.integers(len(contents)))
    name, content = contents[chosen]
    members = [_member(label, data) for label, data in contents]
    match int(rng.integers(10)):
        case 0:  # the same name twice
            members.insert(int(rng.integers(len(members) + 1)), _member(name, damaged(rng, content)))
        case 1:
            outside = ["../../outside.npy", "/outside.npy", "C:\\outside", "a/../../b", "", "x" * 60_000, name + "/"]
            members[chosen] = (outside[rng.integers(len(outside))], *members[chosen][1:])
        case 2:
            stored, check = _bomb()
            members[chosen] = (name, 8, check, BOMB, stored)
        case 3:  # a bomb that claims the size of the member
            members[chosen] = (name, 8, _bomb()[1], len(content), _bomb()[0])
        case 4:
            members[chosen] = (name, int(rng.choice([0, 8, 9, 12, 14, 93, 99])), *members[chosen][2:])
        case 5:
            members[chosen] = (*members[chosen][:3], CLAIMS[rng.integers(4)], content)
        case _:
            members[chosen] = _member(name, damaged_text_or_json(rng, content))
    return _zip(members)


def _member(name: str, data: bytes) -> tuple[str, int, int, int, bytes]:
    return name, 0, zlib.crc32(data), len(data), data


def zip_of(contents: Mapping[str, bytes]) -> bytes:
    """Return an archive that is the same in every run."""
    return _zip([_member(name, data) for name, data in contents.items()])


def packed(pack: Callable[[bytes], bytes], unpack: Callable[[bytes], bytes]) -> Damage:
    """Damage the bytes of a compressed file, or its text with a correct checksum, or let it expand a lot."""

    def damage(rng: np.random.Generator, whole: bytes) -> bytes:
        draw = rng.random()
        if draw < 0.4:
            return damaged(rng, whole)
        if draw < 0.45:
            return whole + _zeros(pack) * (BOMB // _STEP)
        return pack(damaged(rng, unpack(whole)))

    return damage


@cache
def _zeros(pack: Callable[[bytes], bytes]) -> bytes:
    return pack(bytes(_STEP))


# Files with checksums, which are made correct again: only what the checksums protect from damage is left to check


def model_resealed(rng: np.random.Generator, whole: bytes) -> bytes:
    """Damage the header or an array of a model file, and correct its checksums."""
    if rng.random() < 0.3:
        body = damaged(rng, whole[:-64])
        return body + sha256(body).hexdigest().encode()
    with ZipFile(BytesIO(whole)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    if rng.random() < 0.7:
        members["header.json"] = damaged_json(rng, members["header.json"])
    else:
        name = str(rng.choice([name for name in members if name != "header.json"]))
        start = members[name].index(b"\n") + 1  # the values alone: damaged headers are refused at once
        values = damaged(rng, members[name][start:])
        members[name] = members[name][:start] + values[: len(members[name]) - start]
    digest = sha256(members["header.json"]).hexdigest()
    comment = f"standout model; header sha256 {digest}; file sha256 ".encode()
    body = zip_of(members)
    body = body[:-2] + struct.pack("<H", len(comment) + 64) + comment
    return body + sha256(body).hexdigest().encode()


def checkpoint_resealed(rng: np.random.Generator, whole: bytes) -> bytes:
    """Damage the header of a checkpoint, and correct its checksums."""
    magic, size = whole[: whole.index(b"\n") + 1], 8
    length = int.from_bytes(whole[len(magic) : len(magic) + size], "little")
    rest = whole[len(magic) + size + length + 32 : -32]
    text = damaged_json(rng, whole[len(magic) + size :][:length])
    start = magic + len(text).to_bytes(size, "little") + text
    start += blake2b(start, digest_size=32).digest()
    if rng.random() < 0.2:
        rest = damaged(rng, rest)
    return start + rest + blake2b(start + rest, digest_size=32).digest()


# HDF5: pointers between structures, and the checksums of newer ones

# Signatures of structures; those after GCOL, and the first in newer files, end in a checksum.
_STRUCTURES = re.compile(
    rb"\x89HDF\r\n\x1a\n|TREE|SNOD|HEAP|GCOL|OHDR|OCHK|FRHP|FHIB|FHDB|BTHD|BTIN|BTLF|FAHD|FADB|EAHD|EAIB|EASB|EADB|"
    rb"FSHD|FSSE|SMTB|SMLI"
)
_LONGEST = 600  # bytes of a structure
_FLAGS = (0, 1, 2, 3, 4, 8, 16, 127, 128, 255)
_MASK = 2**32 - 1


def linked(rng: np.random.Generator, whole: bytes) -> bytes:
    """Damage an HDF5 file: mostly pointers, sizes and flags in its structures, whose checksums are made correct."""
    if rng.random() < 0.3:
        return damaged(rng, whole)
    places, sums = _structures(whole)
    found = bytearray(whole)
    while found == whole:
        for _ in range(rng.integers(1, 4)):
            start = places[rng.integers(len(places))]
            place = start + int(rng.integers(4, 160))
            if rng.random() < 0.6:  # a pointer that is there becomes one to another structure, or to itself
                known = [i for i in range(start + 4, min(start + 400, len(whole) - 8)) if _points(whole, i, places)]
                place = known[rng.integers(len(known))] if known else place
                to = start if rng.random() < 0.3 else places[rng.integers(len(places))]
                _put(found, place, to + int(rng.choice([0, 0, 0, 0, 8, -8])), 8)
            elif rng.random() < 0.5:
                size = int(rng.choice([1, 2, 4, 8]))
                _put(found, place, CLAIMS[rng.integers(len(CLAIMS))], size)
            elif place < len(found):
                found[place] = _FLAGS[rng.integers(len(_FLAGS))]
    for start, length in sums:
        struct.pack_into("<I", found, start + length, _lookup3(bytes(found[start : start + length])))
    return bytes(found)


def _put(found: bytearray, place: int, value: int, size: int) -> None:
    found[place : place + size] = (value % 256**size).to_bytes(size, "little")[: max(0, len(found) - place)]


def _points(whole: bytes, place: int, places: Sequence[int]) -> bool:
    return int.from_bytes(whole[place : place + 8], "little") in places[1:]


@cache
def _structures(whole: bytes) -> tuple[list[int], list[tuple[int, int]]]:
    """Return where structures begin, and those that end in a checksum with the length up to it."""
    places = [match.start() for match in _STRUCTURES.finditer(whole)]
    sums = []
    for start in places:
        for length in range(8, min(_LONGEST, len(whole) - start - 4)):
            claimed = whole[start + length : start + length + 4]
            if claimed != b"\0\0\0\0" and struct.pack("<I", _lookup3(whole[start : start + length])) == claimed:
                sums.append((start, length))
                break
    return places, sums


def _lookup3(data: bytes) -> int:
    """Return the checksum of HDF5 structures: Jenkins' lookup3."""
    a = b = c = (0xDEADBEEF + len(data)) & _MASK
    for start in range(0, len(data), 12):
        x, y, z = struct.unpack("<III", data[start : start + 12].ljust(12, b"\0"))
        a, b, c = (a + x) & _MASK, (b + y) & _MASK, (c + z) & _MASK
        if start + 12 < len(data):
            for k in (4, 6, 8, 16, 19, 4):
                a, c = ((a - c) & _MASK) ^ _rotated(c, k), (c + b) & _MASK
                a, b, c = b, c, a
    for k in (14, 11, 25, 16, 4, 14, 24):
        c = ((c ^ b) - _rotated(b, k)) & _MASK
        a, b, c = b, c, a
    return b


def _rotated(x: int, k: int) -> int:
    return ((x << k) | (x >> (32 - k))) & _MASK
