"""Tables with damaged bytes give a source or an error of one line."""

import gzip
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pytest

import standout
from standout.errors import FeatureWarning, StandoutError

FRAME = pd.DataFrame({
    "id": [f"r{i}" for i in range(60)],
    "x": np.linspace(-1, 1, 60).round(3),
    "n": pd.array([*range(59), None]),
    "kind": pd.Categorical(["a", 'b,\n"c"'] * 30),
    "flag": [True, False] * 30,
    "day": pd.date_range("2020", periods=60),
})  # fmt: skip
TEXT = FRAME.to_csv(index=False).encode()


def ipc(path, new, **how):
    table = pa.Table.from_pandas(FRAME)
    with new(path, table.schema, **how) as writer:
        writer.write_table(table, max_chunksize=20)


SEEDS = {
    "a.csv": lambda path: path.write_bytes(TEXT),
    "a.tsv": lambda path: FRAME.to_csv(path, index=False, sep="\t"),
    "a.txt": lambda path: FRAME.to_csv(path, index=False, sep=";", decimal=","),
    "a.csv.gz": lambda path: path.write_bytes(gzip.compress(TEXT, mtime=0)),
    "a.parquet": lambda path: FRAME.to_parquet(path, row_group_size=20),
    "a.feather": lambda path: pa.feather.write_feather(pa.Table.from_pandas(FRAME), path, chunksize=20),
    "plain.arrow": lambda path: ipc(path, pa.ipc.new_file),
    "stream.arrow": lambda path: ipc(path, pa.ipc.new_stream),
}
BITS = [b"\xff" * 4, b"\0", b'"', b"\n", b"\r\n", b",", b";", b"\xef\xbb\xbf", b"NaN", b"1e999", b"\x7f\xff\xff\xff"]


def mutated(rng, whole):
    """Return bytes with some parts overwritten, deleted, copied or replaced by special values."""
    found = bytearray(whole)
    for _ in range(rng.integers(1, 5)):
        place, length = int(rng.integers(len(found) + 1)), int(rng.integers(1, 30))
        match rng.integers(6):
            case 0:
                found[place : place + 1] = rng.bytes(1)
            case 1:
                bit = BITS[rng.integers(len(BITS))]
                found[place : place + len(bit)] = bit
            case 2:
                bit = BITS[rng.integers(len(BITS))]
                found[place:place] = bit
            case 3:
                del found[place : place + length]
            case 4:
                other = int(rng.integers(len(found) + 1))
                found[place:place] = found[other : other + length]
            case _ if rng.random() < 0.3:
                del found[place:]
    return bytes(found)


def rows_or_error(path, how):
    """Return the number of rows, or the error message."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FeatureWarning)
            source = standout.read(path, **how)
            blocks = list(source.blocks(7))
    except StandoutError as error:
        return str(error)
    assert all(block.shape[1] == source.n_features and 0 < len(block) <= 7 for block in blocks)
    assert sum(map(len, blocks)) == source.n_rows
    assert source.labels is None or len(source.labels) == source.n_rows
    return source.n_rows


@pytest.mark.parametrize("name", SEEDS)
def test_a_damaged_table_gives_a_source_or_an_error_of_one_line(name, tmp_path):
    SEEDS[name](path := tmp_path / name)
    whole, results = path.read_bytes(), []
    options = [{}, {"memory": 0}, {"memory": 0, "label": "kind", "ids": "id"}, {"missing": "auto"}]
    for seed in range(100):
        path.write_bytes(mutated(np.random.default_rng([seed, *name.encode()]), whole))
        results.append(rows_or_error(path, options[seed % 4]))
    refused = [result for result in results if isinstance(result, str)]
    assert 0 < len(refused) < len(results)
    assert all((name in text or text.startswith("data: ")) and "\n" not in text for text in refused)
