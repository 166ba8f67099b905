"""Matrix Market files: 10x lists identify cells and genes, and damaged files do not crash the parser."""

import gzip
import tracemalloc

import numpy as np
import pytest
from scipy import io as scipy_io
from scipy import sparse

import standout


def test_10x_lists_transpose_the_matrix_and_name_its_features(tmp_path, data, refused):
    rows = data.target[:6]
    symbols = ("CD4", "TBCE", "TBCE", "IL2", "MT-CO1")
    folder = tmp_path / "filtered"
    folder.mkdir()
    for matrix, name in ((rows.T, "matrix.mtx"), (rows, "turned.mtx"), (rows.T, "GSM7_matrix.mtx")):
        scipy_io.mmwrite(folder / name, sparse.coo_array(matrix))
    for prefix in ("", "GSM7_"):
        features = "".join(f"ENSG{i}\t{symbol}\tGene Expression\n" for i, symbol in enumerate(symbols))
        (folder / f"{prefix}features.tsv.gz").write_bytes(gzip.compress(features.encode()))
        (folder / f"{prefix}barcodes.tsv").write_text("".join(f"AAC{i}-1\n" for i in range(6)))
    for name in ("matrix.mtx", "turned.mtx", "GSM7_matrix.mtx"):
        source = standout.read(folder / name)
        assert np.array_equal(source.rows(0, 6), rows)
        assert source.names == ("CD4", "ENSG1", "ENSG2", "IL2", "MT-CO1")
        assert source.row_ids.tolist() == [f"AAC{i}-1" for i in range(6)]
    (folder / "barcodes.tsv").write_text("AAC\n")
    refused(lambda: standout.read(folder / "matrix.mtx"), "matrix.mtx", "(5, 6)", "5 features and 1 barcodes", "Check")


def test_without_lists_the_matrix_is_not_transposed(tmp_path, data):
    scipy_io.mmwrite(tmp_path / "matrix.mtx", sparse.coo_array(data.target))
    assert standout.read(tmp_path / "matrix.mtx").n_features == 5


@pytest.mark.parametrize("body", ["1 1 1\n2 2 1.8E", "1 1 1\n2 2 0x", "1 1 1\n2 2 2\0\n", "1 1 1"])
def test_a_file_that_would_crash_the_parser_is_an_error(tmp_path, refused, body):
    path = tmp_path / "a.mtx"
    path.write_text(f"%%MatrixMarket matrix coordinate real general\n3 3 {2 if chr(0) in body else 4}\n{body}")
    refused(lambda: standout.read(path), "a.mtx", "Matrix Market", "give an intact copy")


def test_a_last_line_without_a_newline_is_read(tmp_path):
    text = "%%MatrixMarket matrix coordinate real general\n2 3 2\n1 1 1\n2 3 5"
    (tmp_path / "a.mtx").write_text(text)
    assert standout.read(tmp_path / "a.mtx").rows(0, 2).tolist() == [[1, 0, 0], [0, 0, 5]]


def test_a_line_that_does_not_end_is_an_error_before_it_fills_the_memory(tmp_path, refused):
    text = b"%%MatrixMarket matrix coordinate real general\n3 3 4\n1 1 1\n"
    (tmp_path / "a.mtx.gz").write_bytes(gzip.compress(text) + gzip.compress(b"1" * 300_000_000, 1))
    tracemalloc.start()
    refused(lambda: standout.read(tmp_path / "a.mtx.gz"), "a.mtx.gz", "Matrix Market", "give an intact copy")
    assert tracemalloc.get_traced_memory()[1] < 64e6
    tracemalloc.stop()
