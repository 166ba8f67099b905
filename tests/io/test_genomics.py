"""Files of Cell Ranger, loom, GCT and PLINK: other readers agree, samples are rows, damaged files are errors."""

import gzip
import io
import os
import subprocess
import sys

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
from scipy import io as scipy_io
from scipy import sparse

import standout
from standout._dpca import DPCA
from standout.errors import InputError
from standout.io.matrix import OnDisk
from standout.io.stream import SparseInMemory

N_CELLS, N_GENES = 40, 30
IDS = [f"ENSG{i:05}" for i in range(N_GENES)]
SYMBOLS = [f"GENE{i}" for i in range(N_GENES - 2)] + ["TBCE", "TBCE"]
NAMES = (*SYMBOLS[:-2], *IDS[-2:])  # a symbol that two genes share is replaced by their ids
noise = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")
other_readers = pytest.mark.filterwarnings(
    "ignore:Variable names are not unique", "ignore:errors='ignore' is deprecated"
)
BARCODES = [f"AAC{i:03}-{1 + i % 2}" for i in range(N_CELLS)]


@pytest.fixture(scope="module")
def counts():
    """Cells × genes."""
    return sparse.csr_matrix(np.random.default_rng(0).poisson(0.7, size=(N_CELLS, N_GENES)))


def packed(text):
    return gzip.compress(text.encode())


def cell_ranger_folder(folder, counts, types=None, version=3):
    """Write the directory of Cell Ranger 2 or 3."""
    folder.mkdir(parents=True)
    plain = io.BytesIO()
    scipy_io.mmwrite(plain, sparse.coo_matrix(counts.T), field="integer")
    types = types or ["Gene Expression"] * N_GENES
    fields = [IDS, SYMBOLS, types][:version]
    genes = "".join("\t".join(line) + "\n" for line in zip(*fields, strict=True))
    cells = "".join(f"{barcode}\n" for barcode in BARCODES)
    if version == 2:
        (folder / "matrix.mtx").write_bytes(plain.getvalue())
        (folder / "genes.tsv").write_text(genes)
        (folder / "barcodes.tsv").write_text(cells)
    else:
        (folder / "matrix.mtx.gz").write_bytes(gzip.compress(plain.getvalue()))
        (folder / "features.tsv.gz").write_bytes(packed(genes))
        (folder / "barcodes.tsv.gz").write_bytes(packed(cells))
    return folder


def write_parts(group, counts):
    """Write a matrix of genes × cells by columns, which are cells."""
    group["data"], group["shape"] = counts.data.astype("i4"), np.array(counts.shape[::-1], dtype="i4")
    group["indices"], group["indptr"] = counts.indices.astype("i8"), counts.indptr.astype("i8")
    group["barcodes"] = np.array(BARCODES, dtype="S")


def cell_ranger_h5(path, counts, types=None, genomes=None, version=3):
    with h5py.File(path, "w") as file:
        if version == 2:
            for genome in genomes or ["GRCh38"]:
                group = file.create_group(genome)
                write_parts(group, counts)
                group["genes"], group["gene_names"] = np.array(IDS, "S"), np.array(SYMBOLS, "S")
            return path
        group = file.create_group("matrix")
        write_parts(group, counts)
        features = group.create_group("features")
        features["id"], features["name"] = np.array(IDS, "S"), np.array(SYMBOLS, "S")
        features["feature_type"] = np.array(types or ["Gene Expression"] * N_GENES, "S")
        features["genome"] = np.array(genomes or ["GRCh38"] * N_GENES, "S")
        features["_all_tag_keys"] = np.array(["genome"], "S")
    return path


@pytest.mark.shows("10x directory", "accepted", "names", "groups")
@pytest.mark.parametrize("version", [2, 3])
def test_a_directory_of_cell_ranger_is_read_as_by_scanpy(tmp_path, counts, version):
    scanpy = pytest.importorskip("scanpy", reason="scanpy is not installed: it is the other reader")
    folder = cell_ranger_folder(tmp_path / "filtered_feature_bc_matrix", counts, version=version)
    found = scanpy.read_10x_mtx(folder, var_names="gene_ids")
    source = standout.read(folder)
    assert isinstance(source, SparseInMemory)
    np.testing.assert_array_equal(source.sparse().toarray(), found.X.toarray())
    np.testing.assert_array_equal(source.sparse().toarray(), counts.toarray())
    assert source.row_ids.tolist() == found.obs_names.tolist() == BARCODES
    assert source.names == NAMES
    assert [dict(zip(SYMBOLS, IDS, strict=True)).get(name, name) for name in source.names] == found.var_names.tolist()
    wells = standout.read(folder, groups="barcodes", groups_match="-(.*)$")
    assert wells.groups.tolist() == [str(1 + i % 2) for i in range(N_CELLS)]


@pytest.mark.shows("10x .h5", "accepted", "names", "groups", "out of core")
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("memory", ["256MB", 0])
@other_readers
def test_an_h5_file_of_cell_ranger_is_read_as_by_scanpy(tmp_path, counts, version, memory):
    scanpy = pytest.importorskip("scanpy", reason="scanpy is not installed: it is the other reader")
    path = cell_ranger_h5(tmp_path / "a.h5", counts, version=version)
    found = scanpy.read_10x_h5(path)
    source = standout.read(path, memory=memory, groups="barcodes", groups_match="-(.*)$")
    assert isinstance(source, OnDisk if memory == 0 else SparseInMemory)
    np.testing.assert_array_equal(source.rows(0, N_CELLS), found.X.toarray())
    np.testing.assert_array_equal(source.rows(0, N_CELLS), counts.toarray())
    np.testing.assert_array_equal(source.columns(3, 9), counts.toarray()[:, 3:9])
    assert source.names == NAMES
    assert source.row_ids.tolist() == found.obs_names.tolist()
    assert sorted(set(source.groups)) == ["1", "2"]


TYPES = ["Gene Expression"] * 20 + ["Antibody Capture"] * 10


@pytest.mark.parametrize("kind", ["directory", "h5"])
@other_readers
def test_one_of_several_feature_types_is_chosen_with_key(tmp_path, counts, kind, refused):
    scanpy = pytest.importorskip("scanpy", reason="scanpy is not installed: it is the other reader")
    if kind == "h5":
        path = cell_ranger_h5(tmp_path / "a.h5", counts, TYPES)
        found = scanpy.read_10x_h5(path)
    else:
        path = cell_ranger_folder(tmp_path / "a", counts, TYPES)
        found = scanpy.read_10x_mtx(path)
    given = "'Gene Expression (20)', 'Antibody Capture (10)'"
    refused(lambda: standout.read(path), "2 feature types", "`key`", given)
    source = standout.read(path, key="Gene Expression")
    np.testing.assert_array_equal(source.rows(0, N_CELLS), found.X.toarray())
    assert source.names == tuple(found.var_names)
    for memory in ("256MB", 0) if kind == "h5" else ("256MB",):
        antibodies = standout.read(path, key="Antibody Capture", drop="GENE21", label="GENE20", memory=memory)
        np.testing.assert_array_equal(antibodies.rows(0, N_CELLS), counts.toarray()[:, 22:])
        assert antibodies.names == NAMES[22:]
        assert antibodies.labels.astype(int).tolist() == counts.toarray()[:, 20].tolist()
    refused(lambda: standout.read(path, key="Gene expression"), "'Gene expression'", "Did you mean 'Gene Expression'?")


def test_genomes_are_read_together_or_chosen_with_key(tmp_path, counts, refused):
    genomes = ["hg19"] * 12 + ["mm10"] * 18
    path = cell_ranger_h5(tmp_path / "a.h5", counts, genomes=genomes)
    assert standout.read(path).n_features == N_GENES
    assert standout.read(path, key="mm10").names == NAMES[12:]
    path = cell_ranger_h5(tmp_path / "b.h5", counts, genomes=["hg19", "mm10"], version=2)
    refused(lambda: standout.read(path), "2 genomes", "`key`", "hg19")
    refused(lambda: standout.read(path, key="mm9"), "'mm9'", "Use one of 'hg19', 'mm10'")
    assert standout.read(path, key="mm10").names == NAMES


def test_a_directory_with_several_matrices_or_one_list_is_an_error(tmp_path, counts, refused):
    for name in ("filtered", "raw"):
        cell_ranger_folder(tmp_path / "outs" / name, counts)
    refused(lambda: standout.read(tmp_path / "outs"), "2 matrices", "filtered", "Give one of them")
    (tmp_path / "outs" / "raw" / "matrix.mtx.gz").unlink()
    assert standout.read(tmp_path / "outs").n_rows == N_CELLS  # the only matrix below a directory
    (tmp_path / "outs" / "filtered" / "barcodes.tsv.gz").unlink()
    refused(lambda: standout.read(tmp_path / "outs"), "only one of the lists", "Add the other")


@noise
def test_cells_of_two_directories_give_the_model_of_their_arrays(tmp_path):
    rng = np.random.default_rng(1)
    rows = [sparse.csr_matrix(rng.poisson(2, size=(N_CELLS, N_GENES))) for _ in range(2)]
    paths = [cell_ranger_folder(tmp_path / str(i), each) for i, each in enumerate(rows)]
    files = [cell_ranger_h5(tmp_path / f"{i}.h5", each) for i, each in enumerate(rows)]
    plain = DPCA(2, shrinkage=None).fit(rows[0].toarray(), background=rows[1].toarray())
    for target, background in (paths, files):
        model = DPCA(2, shrinkage=None).fit(target, background=background)
        np.testing.assert_allclose(model.ratios_, plain.ratios_, rtol=1e-10)
        assert tuple(model.feature_names_in_) == NAMES


def test_damaged_files_of_cell_ranger_are_errors(tmp_path, counts, refused):
    def spoilt(name, value, version=3):
        path = cell_ranger_h5(tmp_path / "a.h5", counts, version=version)
        with h5py.File(path, "a") as file:
            del file[name]
            if value is not None:
                file[name] = value
        return lambda: [standout.read(path, memory=0).rows(0, N_CELLS), standout.read(path).row_ids]

    refused(spoilt("matrix/shape", [10**15, N_CELLS]), "a.h5", "claims", "intact copy")
    refused(spoilt("matrix/shape", [N_GENES, 10**15]), "a.h5", "claims", "intact copy")
    refused(spoilt("matrix/shape", [1, 2, 3]), "a.h5", "(3,)", "intact copy")
    refused(spoilt("matrix/barcodes", np.array(["a"], "S")), "/matrix/barcodes has the shape (1,)", "intact copy")
    refused(spoilt("matrix/features/name", np.array(["a"], "S")), "/matrix/features/name", "(1,)", "intact copy")
    refused(spoilt("matrix/features/name", None), "a.h5", "intact copy")
    refused(spoilt("matrix/indices", counts.indices + 10**6), "a.h5", "intact copy")
    refused(spoilt("matrix/indptr", counts.indptr[::-1]), "a.h5", "row pointers", "intact copy")
    refused(spoilt("GRCh38/genes", np.array(["a"], "S"), 2), "/GRCh38/genes", "intact copy")
    refused(spoilt("matrix/data", np.array(["x"] * counts.nnz, "S")), "a.h5", "not numbers")


# loom


def loom(path, rows, layers=(), genes=None, cells=None, chunks=(16, 8)):
    """Write a loom file by its specification, version 3."""
    with h5py.File(path, "w") as file:
        file.create_dataset("matrix", data=rows.T, chunks=chunks, compression="gzip")
        for name, layer in dict(layers).items():
            file[f"layers/{name}"] = layer.T
        genes = {"Gene": SYMBOLS, "Accession": IDS} if genes is None else genes
        for name, values in genes.items():
            file[f"row_attrs/{name}"] = np.array(values, dtype=object)
        for name, values in ({"CellID": BARCODES} | (cells or {})).items():
            file[f"col_attrs/{name}"] = values
        for name in ("row_attrs", "col_attrs", "layers", "row_graphs", "col_graphs", "attrs"):
            file.require_group(name)
        file["attrs/LOOM_SPEC_VERSION"] = "3.0.0"
    return path


@pytest.mark.shows("loom", "accepted", "names", "groups", "out of core")
@pytest.mark.parametrize("memory", ["256MB", 0])
def test_a_loom_file_has_cells_as_rows_with_their_columns(tmp_path, counts, memory, refused):
    rows, spliced = counts.toarray(), counts.toarray() * 2.5
    about = {"donor": np.array([f"d{i % 4}" for i in range(N_CELLS)], dtype=object), "age": np.arange(N_CELLS)}
    embedding = {"_X": np.zeros((N_CELLS, 2))}  # more than one value for each cell: no column
    path = loom(tmp_path / "a.loom", rows, {"spliced": spliced}, cells=about | embedding)
    source = standout.read(path, groups="donor", label="age", where={"donor": ["d0", "d1", "d3"]}, memory=memory)
    kept = np.arange(N_CELLS) % 4 != 2
    np.testing.assert_array_equal(source.rows(0, kept.sum()), rows[kept])
    np.testing.assert_array_equal(source.columns(1, 4), rows[kept, 1:4])
    np.testing.assert_array_equal(source.take(np.array([5, 2, 2])), rows[kept][[5, 2, 2]])
    assert source.names == NAMES
    assert source.groups.tolist() == about["donor"][kept].tolist()
    assert source.labels.tolist() == np.arange(N_CELLS)[kept].tolist()
    assert source.row_ids.tolist() == np.array(BARCODES)[kept].tolist()
    for key in ("spliced", "layers/spliced"):
        np.testing.assert_array_equal(standout.read(path, key=key, memory=memory).rows(0, N_CELLS), spliced)
    refused(lambda: standout.read(path, key="splice"), "layers/splice", "Did you mean 'layers/spliced'?")


@other_readers
def test_a_loom_file_is_read_as_by_loompy(tmp_path, counts):
    pytest.importorskip("loompy", reason="loompy is not installed: it is the other reader")
    path = loom(tmp_path / "a.loom", counts.toarray())
    found = anndata.io.read_loom(path, sparse=False, validate=False)
    source = standout.read(path)
    np.testing.assert_array_equal(source.rows(0, N_CELLS), found.X)
    assert source.row_ids.tolist() == found.obs_names.tolist()
    assert found.var_names.tolist() == SYMBOLS


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_loom_file_written_by_anndata_is_read(tmp_path, counts):
    pytest.importorskip("loompy", reason="loompy is not installed: it writes the file")
    obs = pd.DataFrame({"donor": [f"d{i % 4}" for i in range(N_CELLS)]}, index=BARCODES)
    adata = anndata.AnnData(counts.astype(np.float32), obs=obs, var=pd.DataFrame(index=IDS))
    adata.write_loom(tmp_path / "a.loom")
    source = standout.read(tmp_path / "a.loom", groups="donor")
    np.testing.assert_array_equal(source.rows(0, N_CELLS), counts.toarray())
    assert source.names == tuple(IDS)
    assert source.row_ids.tolist() == BARCODES
    assert source.groups.tolist() == obs["donor"].tolist()


def test_a_loom_file_without_known_names_has_none(tmp_path, counts):
    assert standout.read(loom(tmp_path / "a.loom", counts.toarray(), genes={"Foo": IDS})).names is None
    assert standout.read(loom(tmp_path / "b.loom", counts.toarray(), genes={"Accession": IDS})).names == tuple(IDS)
    path = loom(tmp_path / "c.loom", counts.toarray(), genes={"Gene": SYMBOLS})
    with pytest.raises(InputError, match="duplicate column name: 'TBCE'"):
        standout.read(path)


def test_damaged_loom_files_are_errors(tmp_path, counts, refused):
    path = loom(tmp_path / "a.loom", counts.toarray())
    with h5py.File(path, "a") as file:
        del file["col_attrs"]
    refused(lambda: standout.read(path), "a.loom", "col_attrs", "intact copy")
    path = loom(tmp_path / "b.loom", counts.toarray(), genes={"Gene": SYMBOLS[:5]})
    refused(lambda: standout.read(path), "/row_attrs/Gene", "(5,)", "intact copy")
    with h5py.File(path, "a") as file:
        del file["matrix"]
        file.create_dataset("matrix", shape=(10**9, 10**9), chunks=(64, 64), dtype="f4")
    refused(lambda: standout.read(path), "b.loom", "claims", "intact copy")
    path.write_bytes(path.read_bytes()[:900])
    refused(lambda: standout.read(path), "b.loom", "intact copy")
    path.write_text("Gene\tA\n")
    refused(lambda: standout.read(path), "b.loom", "intact copy")


# GCT

SAMPLES = [f"S{i}" for i in range(6)]


def gct(path, rows, names, about=None, missing="NaN"):
    """Write version 1.2, or 1.3 if columns describe samples."""
    values = [[missing if np.isnan(v) else repr(float(v)) for v in column] for column in rows.T]
    if about is None:
        lines = ["#1.2", f"{len(names)}\t{len(rows)}", "\t".join(["Name", "Description", *SAMPLES])]
        lines += ["\t".join([name, f'the "{name}" gene', *line]) for name, line in zip(names, values, strict=True)]
    else:
        lines = ["#1.3", f"{len(names)}\t{len(rows)}\t2\t{len(about)}", "\t".join(["id", "symbol", "chr", *SAMPLES])]
        lines += ["\t".join([key, "na", "na", *line]) for key, line in about.items()]
        lines += ["\t".join([name, f"s{name}", "7", *line]) for name, line in zip(names, values, strict=True)]
    text = "\n".join(lines) + "\n"
    path.write_bytes(packed(text)) if path.suffix == ".gz" else path.write_text(text)
    return path


ABOUT = {"cell_line": ["A375", "A375", "MCF7", "MCF7", "PC3", "na"], "dose": ["1", "2", "1", "2", "1", "2"]}


@pytest.fixture
def expression():
    rows = np.random.default_rng(2).normal(size=(6, 9))
    rows[2, 4] = np.nan
    return rows


@pytest.mark.shows("GCT", "accepted", "names", "groups")
@pytest.mark.parametrize("name", ["a.gct", "a.gct.gz"])
@pytest.mark.parametrize("about", [None, ABOUT])
def test_a_gct_file_has_samples_as_rows(tmp_path, expression, name, about):
    path = gct(tmp_path / name, expression, IDS[:9], about)
    source = standout.read(path)
    np.testing.assert_array_equal(source.rows(0, 6), expression)
    assert source.names == tuple(IDS[:9])
    assert source.row_ids.tolist() == SAMPLES
    if about is not None:
        chosen = standout.read(path, groups="cell_line", label="dose", where={"dose": 2}, missing="drop_features")
        assert chosen.groups.tolist() == ["A375", "MCF7", None]
        assert chosen.labels.tolist() == ["2"] * 3


@pytest.mark.parametrize("about", [None, ABOUT])
@other_readers
def test_a_gct_file_is_read_as_by_cmappy(tmp_path, expression, about):
    parse_gct = pytest.importorskip("cmapPy.pandasGEXpress.parse_gct", reason="cmapPy is not installed")
    path = gct(tmp_path / "a.gct", expression, IDS[:9], about)
    found = parse_gct.parse(str(path)).data_df
    source = standout.read(path)
    np.testing.assert_array_equal(source.rows(0, 6).astype(np.float32), found.T)  # cmapPy reads float32
    assert source.names == tuple(found.index)
    assert source.row_ids.tolist() == found.columns.tolist()


def test_damaged_gct_files_are_errors(tmp_path, expression, refused):
    path = gct(tmp_path / "a.gct", expression, IDS[:9], ABOUT)
    text = path.read_text()

    def spoilt(old, new):
        assert old in text
        path.write_text(text.replace(old, new, 1))
        return lambda: standout.read(path)

    refused(spoilt("#1.3", "#2.0"), "a.gct", "first line is '#2.0'", "#1.2 or #1.3")
    refused(spoilt("9\t6\t2\t2", "9\t6"), "a.gct", "second line", "intact copy")
    refused(spoilt("9\t6\t2\t2", "9\tx\t2\t2"), "a.gct", "intact copy")
    refused(spoilt("9\t6\t2\t2", "-9\t6\t2\t2"), "a.gct", "second line", "intact copy")
    refused(spoilt("9\t6\t2\t2", "999999999\t999999999\t2\t2"), "claims 999,999,999 features", "intact copy")
    refused(spoilt("9\t6\t2\t2", "9\t6\t99999999\t2"), "starts with 'id' has 9 fields", "intact copy")
    refused(spoilt("9\t6\t2\t2", "10\t6\t2\t2"), "claims 10 features, but 9 follow", "intact copy")
    refused(spoilt("9\t6\t2\t2", "8\t6\t2\t2"), "claims 8 features, but 9 follow", "intact copy")
    refused(spoilt("\tS5", ""), "fields instead of", "intact copy")
    refused(spoilt(repr(float(expression[0, 0])), "red"), "a.gct", "red", "intact copy")
    path.write_text(text[:-30])
    refused(lambda: standout.read(path), "a.gct", "intact copy")
    path.write_text(text)
    refused(lambda: standout.read(path, memory=10), "a.gct", "must fit in memory")
    path = gct(tmp_path / "b.gct.gz", expression, IDS[:9])
    path.write_bytes(path.read_bytes()[:-30])
    refused(lambda: standout.read(path), "b.gct.gz", "intact copy")


# PLINK


def plink(path, genotypes, fam=None, ids=None):
    """Write bed, bim and fam files by the specification: two bits for each genotype, lowest bits first."""
    n_rows, n_variants = genotypes.shape
    codes = {2.0: 0b00, 1.0: 0b10, 0.0: 0b11}
    data = bytearray(b"\x6c\x1b\x01")
    for column in genotypes.T:
        bits = [0b01 if np.isnan(value) else codes[value] for value in column]
        for start in range(0, n_rows, 4):
            data.append(sum(bit << (2 * i) for i, bit in enumerate(bits[start : start + 4])))
    path.write_bytes(bytes(data))
    ids = ids or [f"rs{i}" for i in range(n_variants)]
    lines = [f"{1 + i % 22}\t{name}\t0\t{1000 + i}\tA\tG\n" for i, name in enumerate(ids)]
    path.with_suffix(".bim").write_text("".join(lines))
    fam = fam or [f"F{i // 2} I{i} 0 0 {1 + i % 2} -9" for i in range(n_rows)]
    path.with_suffix(".fam").write_text("\n".join(fam) + "\n")
    return path


def random_genotypes(n_rows, n_variants, seed=3):
    rng = np.random.default_rng(seed)
    return rng.choice([0.0, 1.0, 2.0, np.nan], size=(n_rows, n_variants), p=[0.4, 0.3, 0.2, 0.1])


@pytest.mark.shows("PLINK .bed", "accepted", "names", "groups", "out of core")
@pytest.mark.parametrize("memory", ["256MB", 2000, 0])
@pytest.mark.parametrize("n_rows", [41, 40, 3])
def test_a_plink_file_has_individuals_as_rows(tmp_path, n_rows, memory):
    genotypes = random_genotypes(n_rows, 70)
    source = standout.read(plink(tmp_path / "a.bed", genotypes), groups="FID", memory=memory)
    np.testing.assert_array_equal(source.rows(0, n_rows), genotypes)
    np.testing.assert_array_equal(source.rows(2, n_rows - 0), genotypes[2:])
    np.testing.assert_array_equal(source.columns(5, 31), genotypes[:, 5:31])
    np.testing.assert_array_equal(source.take(np.array([2, 0, 0])), genotypes[[2, 0, 0]])
    assert isinstance(source, OnDisk) == (memory == 0 or (memory == 2000 and n_rows > 3))
    assert source.names == tuple(f"rs{i}" for i in range(70))
    assert source.row_ids.tolist() == [f"I{i}" for i in range(n_rows)]
    assert source.groups.tolist() == [f"F{i // 2}" for i in range(n_rows)]
    women = standout.read(tmp_path / "a.bed", where={"SEX": 2}, columns=["rs7", "rs3"], memory=memory)
    np.testing.assert_array_equal(women.rows(0, n_rows // 2), genotypes[1::2][:, [7, 3]])


def test_a_plink_file_is_read_as_by_bed_reader(tmp_path):
    bed_reader = pytest.importorskip("bed_reader", reason="bed-reader is not installed: it is the other reader")
    genotypes = random_genotypes(103, 50)
    path = plink(tmp_path / "a.bed", genotypes)
    with bed_reader.open_bed(path) as other:
        np.testing.assert_array_equal(standout.read(path).rows(0, 103), other.read(dtype="float32"))
        assert standout.read(path).row_ids.tolist() == other.iid.tolist()
    bed_reader.to_bed(tmp_path / "b.bed", genotypes, properties={"sid": [f"v{i}" for i in range(50)]})
    source = standout.read(tmp_path / "b.bed", memory=0)
    np.testing.assert_array_equal(source.rows(0, 103), genotypes)
    assert source.names == tuple(f"v{i}" for i in range(50))


@noise
def test_genotypes_give_the_model_of_their_array(tmp_path):
    genotypes = [np.nan_to_num(random_genotypes(300, 12, seed)) for seed in (4, 5)]
    paths = [plink(tmp_path / f"{i}.bed", rows) for i, rows in enumerate(genotypes)]
    plain = DPCA(2).fit(genotypes[0], background=genotypes[1])
    for memory in ("256MB", 0):
        model = DPCA(2).fit(*(standout.read(path, memory=memory) for path in paths[:1]),
                            background=standout.read(paths[1], memory=memory))  # fmt: skip
        np.testing.assert_allclose(model.ratios_, plain.ratios_, rtol=1e-10)
    holes = plink(tmp_path / "c.bed", random_genotypes(300, 12))
    with pytest.raises(InputError, match=r"NaN.*missing='auto'"):
        DPCA(2).fit(holes, background=paths[1])
    assert DPCA(2).fit(standout.read(holes, missing="auto"), background=paths[1]).ratios_.shape == (2,)


def test_names_that_are_shared_are_made_distinct(tmp_path):
    fam = [f"F{i} 1 0 0 1 -9" for i in range(4)]  # numbered within families
    source = standout.read(plink(tmp_path / "a.bed", random_genotypes(4, 3), fam, [".", "rs1", "."]))
    assert source.names == ("1:1000:G:A", "rs1", "3:1002:G:A")
    assert source.row_ids.tolist() == [f"F{i}_1" for i in range(4)]


def test_damaged_plink_files_are_errors(tmp_path, refused):
    path = plink(tmp_path / "a.bed", random_genotypes(9, 5))
    whole, bim = path.read_bytes(), path.with_suffix(".bim").read_text()
    for magic, words in (
        (b"chr1\t1\t2\n", "not a bed file of PLINK 1.9"),
        (b"\x6c\x1b\x00", "not a bed file of PLINK 1.9"),
        (b"\x6c\x1b", "not a bed file of PLINK 1.9"),
    ):
        path.write_bytes(magic)
        refused(lambda: standout.read(path), "a.bed", words)
    path.write_bytes(whole[:-1])
    refused(lambda: standout.read(path), "9 individuals (.fam) and 5 variants (.bim) take 18 bytes", "it has 17")
    path.write_bytes(whole + b"\0")
    refused(lambda: standout.read(path), "it has 19", "Check")
    path.write_bytes(whole)
    path.with_suffix(".bim").write_text(bim + "1 rs9\n")
    refused(lambda: standout.read(path), "line 6 of a.bim has 2 fields", "intact copy")
    path.with_suffix(".bim").write_text("")
    refused(lambda: standout.read(path), "0 variants", "Check")
    path.with_suffix(".bim").unlink()
    refused(lambda: standout.read(path), "a.bim is not in its directory", "Add it")
    path.with_suffix(".bim").write_text(bim)
    source = standout.read(path, memory=0)
    os.truncate(path, 10)
    with pytest.raises(InputError, match=r"shorter|changed"):
        source.rows(0, 9)


@pytest.mark.parametrize(("name", "package"), [("a.loom", "h5py"), ("a.mat", "h5py"), ("a.gct", "pyarrow")])
def test_a_missing_package_is_named_with_its_extra(tmp_path, name, package):
    """In a new process, in which nothing has been imported."""
    (tmp_path / name).write_bytes(b"MATLAB 7.3 MAT-file")
    code = f"import sys; sys.modules[{package!r}] = None; import standout; standout.read({str(tmp_path / name)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"reading this needs {package}" in done.stderr.splitlines()[-1]
    assert "pip install 'standout[io]'" in done.stderr.splitlines()[-1]
