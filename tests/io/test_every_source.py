"""One suite for every kind of source: the same components, the same scores, the same errors on the same bad input.

A new kind is one more entry of ``SOURCES``: a function of the rows, a separate directory and the names of the
features, which gives something that ``fit`` takes. ``SHOWS`` lists the capabilities that these tests prove in the table
of docs/reference/compatibility.md.
"""

import io
import zipfile
from uuid import uuid4

import anndata
import h5py
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xarray as xr
import zarr
from scipy import linalg, sparse

import standout
from conftest import NAMES, memory_map, whole_numbers
from spark_session import spark_session
from standout._dpca import DPCA
from standout._moments import Moments
from standout.errors import FeatureError, InputError, NonFiniteError
from standout.io.memory import as_numpy


def on_disk(write, suffix, **how):
    """Return a source that never holds the file in memory."""

    def make(rows, folder, names):
        path = folder / f"{uuid4()}{suffix}"
        write(rows, path, names)
        return standout.read(path, memory=0, **how)

    return make


def frame(rows, names):
    return pd.DataFrame(rows, columns=list(names))


def write_hdf5(rows, path, names):
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=rows, chunks=(500, rows.shape[1])).attrs["names"] = list(names)


def write_zarr(rows, path, names):
    array = zarr.create_array(path, shape=rows.shape, chunks=(700, rows.shape[1]), dtype=rows.dtype)
    array[...] = rows
    array.attrs["names"] = list(names)


def write_h5ad(rows, path, names):
    cells(sparse.csr_matrix(rows), names).write_h5ad(path)


def write_cell_ranger(rows, path, names):
    matrix = sparse.csr_array(rows)
    with h5py.File(path, "w") as file:
        parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": rows.shape[::-1]}
        texts = {"barcodes": [f"c{i}" for i in range(len(rows))], "features/id": names, "features/name": names}
        for name, values in (parts | texts).items():
            file[f"matrix/{name}"] = np.array(values, dtype="S") if name in texts else values


def write_loom(rows, path, names):
    with h5py.File(path, "w") as file:
        file.create_dataset("matrix", data=rows.T, chunks=(2, 700))
        file["row_attrs/Gene"], file["col_attrs/CellID"] = list(names), [f"c{i}" for i in range(len(rows))]


def write_matlab(rows, path, names):
    with h5py.File(path, "w", userblock_size=512) as file:
        item = file.create_dataset("X", data=rows.T, chunks=(rows.shape[1], 500))
        item.attrs["MATLAB_class"] = np.bytes_("double")
        text = file.create_dataset("names", data=np.array([[ord(name) for name in names]], dtype="u2"))
        text.attrs["MATLAB_class"] = np.bytes_("char")
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")


def write_folder(rows, path, names):
    path.mkdir()
    for number, part in enumerate(np.array_split(rows, 3)):
        frame(part, names).to_parquet(path / f"{number}.parquet", index=False)


def write_zst(rows, path, names):
    with pa.CompressedOutputStream(str(path), "zstd") as file:
        file.write(frame(rows, names).to_csv(index=False).encode())


def write_xlsx(rows, path, names):
    """Write every digit, as Excel does; the packages that write workbooks round to 16."""
    openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed: workbooks are left out")
    openpyxl.Workbook().save(empty := io.BytesIO())
    lines = [f"<row>{''.join(map(xlsx_cell, row))}</row>" for row in [list(names), *rows.tolist()]]
    space = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    sheet = f'<worksheet xmlns="{space}"><sheetData>{"".join(lines)}</sheetData></worksheet>'
    with zipfile.ZipFile(empty) as given, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as book:
        for part in given.namelist():
            book.writestr(part, sheet if part == "xl/worksheets/sheet1.xml" else given.read(part))


def xlsx_cell(value):
    """Return a cell, which holds finite numbers only: NaN is an empty cell, and infinity is text."""
    if value != value:
        return "<c/>"
    if isinstance(value, str) or np.isinf(value):
        return f'<c t="inlineStr"><is><t>{value}</t></is></c>'
    return f"<c><v>{value!r}</v></c>"


def dask_array(rows, _folder, _names):
    da = pytest.importorskip("dask.array", reason="dask is not installed: everything about Dask is left out")
    return da.from_array(rows, chunks=(2_000, 3))


def dask_frame(rows, _folder, names):
    dd = pytest.importorskip("dask.dataframe", reason="dask is not installed: everything about Dask is left out")
    return dd.from_pandas(frame(rows, names), npartitions=3)


def cells(matrix, names):
    obs = pd.DataFrame(index=[f"c{i}" for i in range(matrix.shape[0])])
    return anndata.AnnData(matrix, obs=obs, var=pd.DataFrame(index=list(names)))


def backed_cells(rows, folder, names):
    path = folder / f"{uuid4()}.h5ad"
    write_h5ad(rows, path, names)
    return anndata.read_h5ad(path, backed="r")


def dask_cells(rows, folder, names):
    return cells(dask_array(rows, folder, names), names)


def strict_tensor(rows, device):
    strict = pytest.importorskip("array_api_strict", reason="array-api-strict is not installed: no tests of tensors")
    return strict.asarray(rows, device=strict.Device(device))


def spark_frame(rows, _folder, names):
    # From an arrow table: from pandas NaN would arrive as null.
    return spark_session().createDataFrame(pa.table(dict(zip(names, rows.T, strict=True))))


def mne_raw(rows, _folder, names):
    mne = pytest.importorskip("mne", reason="mne is not installed: everything about MNE is left out")
    return mne.io.RawArray(rows.T, mne.create_info(list(names), 100.0, "eeg"), verbose="error")


def arrow(rows, names):
    return pa.table(dict(zip(names, np.ascontiguousarray(rows.T), strict=True)))


def streamed(make):
    """Return a table of another library that is read again for every pass."""
    return lambda rows, _folder, names: standout.read(make(arrow(rows, names)), memory=0)


def duckdb_relation(table):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    return duckdb.connect().from_arrow(table)


def ibis_table(table):
    ibis = pytest.importorskip("ibis", reason="ibis is not installed")
    return ibis.memtable(table)


def hugging_face_dataset(table):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    return datasets.Dataset(datasets.table.InMemoryTable(table))


def modin_frame(rows, _folder, names):
    config = pytest.importorskip("modin.config", reason="modin is not installed")
    config.Engine.put("Python")  # one process
    import modin.pandas

    return modin.pandas.DataFrame(rows, columns=list(names))


def data_array(rows, _folder, names):
    return xr.DataArray(rows, dims=("cell", "gene"), coords={"gene": list(names)})


SOURCES = {
    "array": lambda rows, _folder, _names: rows,
    "memory map": lambda rows, folder, _names: memory_map(rows, folder),
    "CSR": lambda rows, _folder, _names: sparse.csr_array(rows),
    "pandas": lambda rows, _folder, names: frame(rows, names),
    "polars": lambda rows, _folder, names: pl.DataFrame(rows, schema=list(names)),
    "npy": on_disk(lambda rows, path, _names: np.save(path, rows), ".npy"),
    "npy, columns first": on_disk(lambda rows, path, _names: np.save(path, np.asfortranarray(rows)), ".npy"),
    "npz, packed": on_disk(lambda rows, path, names: np.savez_compressed(path, x=rows, names=list(names)), ".npz"),
    "hdf5": on_disk(write_hdf5, ".h5"),
    "zarr": on_disk(write_zarr, ".zarr"),
    "h5ad, sparse": on_disk(write_h5ad, ".h5ad"),
    "10x h5": on_disk(write_cell_ranger, ".h5"),
    "loom": on_disk(write_loom, ".loom"),
    "MATLAB 7.3": on_disk(write_matlab, ".mat"),
    "cube": on_disk(lambda rows, path, _names: np.save(path, rows[:, None]), ".npy", cube=True),
    "csv": on_disk(lambda rows, path, names: frame(rows, names).to_csv(path, index=False), ".csv"),
    "csv, packed": on_disk(lambda rows, path, names: frame(rows, names).to_csv(path, index=False), ".csv.gz"),
    "csv, bz2": on_disk(lambda rows, path, names: frame(rows, names).to_csv(path, index=False), ".csv.bz2"),
    "csv, zst": on_disk(write_zst, ".csv.zst"),
    "csv, zip": on_disk(lambda rows, path, names: frame(rows, names).to_csv(path, index=False), ".csv.zip"),
    "xlsx": on_disk(write_xlsx, ".xlsx"),
    "parquet": on_disk(lambda rows, path, names: frame(rows, names).to_parquet(path, row_group_size=999), ".parquet"),
    "parquet, several": on_disk(write_folder, ""),
    "feather": on_disk(lambda rows, path, names: frame(rows, names).to_feather(path, chunksize=999), ".feather"),
    "Table": lambda rows, _folder, names: arrow(rows, names),
    "RecordBatch": lambda rows, _folder, names: arrow(rows, names).combine_chunks().to_batches()[0],
    "RecordBatchReader": lambda rows, _folder, names: standout.read(arrow(rows, names).to_reader(max_chunksize=700)),
    "LazyFrame": streamed(lambda table: pl.from_arrow(table).lazy()),
    "duckdb": streamed(duckdb_relation),
    "ibis": streamed(ibis_table),
    "Hugging Face": streamed(hugging_face_dataset),
    "modin": modin_frame,
    "DataArray": data_array,
    "array API": lambda rows, _folder, _names: strict_tensor(rows, "CPU_DEVICE"),
    "array API, other device": lambda rows, _folder, _names: strict_tensor(rows, "device1"),
    "dask array": dask_array,
    "dask frame": dask_frame,
    "AnnData": lambda rows, _folder, names: cells(rows, names),
    "AnnData, backed": backed_cells,
    "AnnData, Dask-backed": dask_cells,
    "Spark": spark_frame,
    "MNE Raw": mne_raw,
}
# The kinds as a user would look for them, and what the tests below show of each.
SHOWS = {
    "array": ("NumPy array", "accepted", "groups"),
    "memory map": ("NumPy memory map", "accepted", "groups"),
    "CSR": ("SciPy sparse matrix", "accepted", "groups"),
    "pandas": ("pandas DataFrame", "accepted", "names", "groups"),
    "polars": ("polars DataFrame", "accepted", "names", "groups"),
    "npy": ("npy", "accepted", "groups", "out of core"),
    "npz, packed": ("npz", "accepted", "names", "groups", "out of core"),
    "hdf5": ("HDF5", "accepted", "names", "groups", "out of core"),
    "zarr": ("Zarr", "accepted", "names", "groups", "out of core"),
    "h5ad, sparse": ("h5ad", "accepted", "names", "groups", "out of core"),
    "csv": ("csv", "accepted", "names", "groups", "out of core"),
    "csv, packed": ("csv.gz", "accepted", "names", "groups", "out of core"),
    "parquet": ("parquet", "accepted", "names", "groups", "out of core"),
    "parquet, several": ("directory of tables", "accepted", "names", "groups", "out of core"),
    "feather": ("feather, arrow", "accepted", "names", "groups", "out of core"),
    "Table": ("pyarrow Table", "accepted", "names", "groups"),
    "RecordBatch": ("pyarrow RecordBatch", "accepted", "names", "groups"),
    "RecordBatchReader": ("pyarrow RecordBatchReader", "accepted", "names", "groups"),
    "LazyFrame": ("polars LazyFrame", "accepted", "names", "groups"),
    "duckdb": ("DuckDB relation", "accepted", "names", "groups"),
    "ibis": ("Ibis table", "accepted", "names", "groups"),
    "Hugging Face": ("Hugging Face Dataset", "accepted", "names", "groups"),
    "modin": ("Modin DataFrame", "accepted", "names", "groups"),
    "DataArray": ("xarray DataArray", "accepted", "names", "groups"),
    "dask array": ("Dask array", "accepted", "groups", "lazy"),
    "dask frame": ("Dask DataFrame", "accepted", "names", "lazy"),
    "Spark": ("Spark DataFrame", "accepted", "names", "lazy"),
}


def parameters(*capabilities):
    """Return all kinds; each is marked with those of the capabilities that ``SHOWS`` lists for it."""
    found = []
    for name in SOURCES:
        kind, *shown = SHOWS.get(name, (name,))
        # One process holds the cluster that several tests share; old releases leave sockets to the garbage collector.
        spark = [pytest.mark.xdist_group("spark"), pytest.mark.filterwarnings("ignore::ResourceWarning")]
        marks = spark if name == "Spark" else []
        if chosen := [what for what in capabilities if what in shown]:
            marks.append(pytest.mark.shows(kind, *chosen))
        found.append(pytest.param(name, marks=marks))
    return found


def each_kind_shows(*capabilities):
    return pytest.mark.parametrize("make", parameters(*capabilities), indirect=True)


def computed(scores):
    """Return scores as an array, wherever they are."""
    return scores.toPandas().to_numpy() if hasattr(scores, "toPandas") else as_numpy(scores)


def is_lazy(data):
    return not standout.read(data).is_local


def needs_arrays(data):
    """Skip a kind whose rows an array of weights cannot be cut to."""
    if is_spark(data):
        pytest.skip("rows of a Spark frame have no order: weights and groups are columns there, see test_spark.py")
    if standout.read(data).is_local is False and standout.read(data).n_rows is None:
        pytest.skip("the number of rows of a Dask partition is unknown: see test_dask.py for weights")


def is_spark(data):
    return type(data).__module__.startswith("pyspark")


@pytest.fixture(params=parameters())
def make(request, tmp_path):
    """Return a function that makes a source of rows."""
    return lambda rows, names=NAMES: SOURCES[request.param](rows, tmp_path, names)


@pytest.fixture(scope="module")
def data():
    """More rows than the 4,096 that one block holds."""
    target, background = whole_numbers(4_500, 5_000)
    return target + 0.25, background


@each_kind_shows("accepted", "out of core")
def test_the_components_are_those_of_the_arrays(data, make):
    model = DPCA(3).fit(make(data[0]), background=make(data[1]))
    plain = DPCA(3).fit(data[0], background=data[1])
    np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(model.mean_, plain.mean_, rtol=1e-12)
    covariance = [np.cov(rows.T, ddof=0) for rows in data]
    np.testing.assert_allclose(model.ratios_, linalg.eigh(*covariance, eigvals_only=True)[::-1][:3], rtol=1e-10)


def test_a_mean_a_hundred_million_times_the_sd_costs_no_source_a_digit_more_than_the_arrays(data, make):
    target, background = ((rows - rows.mean(axis=0)) / rows.std(axis=0) + 1e8 for rows in data)
    model = DPCA(3).fit(make(target), background=make(background))
    plain = DPCA(3).fit(target, background=background)
    np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(model.ratios_, plain.ratios_, rtol=1e-12)


@each_kind_shows("groups")
def test_the_components_are_those_of_the_arrays_with_weights_and_groups(data, make):
    rng = np.random.default_rng(0)
    weights, groups = rng.integers(0, 3, size=4_500), rng.integers(0, 40, size=4_500)
    given = {"sample_weight": weights, "groups": groups, "background_groups": np.arange(len(data[1])) // 9}
    needs_arrays(make(data[0][:999]))
    model = DPCA(3).fit(make(data[0]), background=make(data[1]), **given)
    plain = DPCA(3).fit(data[0], background=data[1], **given)
    np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-10, atol=1e-10)
    if model._sums is not None and not standout.read(make(data[0][:999])).rereadable:
        target = Moments.of(data[0], weights=weights, groups=groups)
        plain = DPCA(3).fit(target, background=Moments.of(data[1], groups=given["background_groups"]))  # counts groups
    np.testing.assert_allclose([model.noise_edge_, model.p_value_], [plain.noise_edge_, plain.p_value_], rtol=1e-9)


@each_kind_shows("lazy")
def test_the_scores_are_those_of_the_arrays(data, make):
    model, plain = (DPCA(2).fit(kind(data[0]), background=kind(data[1])) for kind in (make, np.asarray))
    rows = make(data[0])
    scores = model.transform(rows)
    assert is_lazy(scores) == is_lazy(rows)
    scores = computed(scores)
    np.testing.assert_allclose(scores, plain.transform(data[0]), rtol=1e-10, atol=1e-9)
    found = model.score(make(data[0]), background=make(data[1]))
    assert found == pytest.approx(plain.score(data[0], background=data[1]), rel=1e-10)


def spoilt(rows, value, column=2):
    bad = rows.copy()
    bad[[10, 4_300], column] = value
    return bad


BAD = {
    "NaN": (np.nan, NonFiniteError, "2 NaN and 0 inf values in 1 of 5 features: {} (2)"),
    "inf": (np.inf, NonFiniteError, "0 NaN and 2 inf values in 1 of 5 features: {} (2)"),
    "overflow": (1e200, InputError, "their squares overflow (largest 1e+200, in 1 features: {})"),
}


# test_spark.py has the same for Spark, with the other dataset in memory.
@pytest.mark.parametrize("make", [name for name in SOURCES if name != "Spark"], indirect=True)
@pytest.mark.parametrize("bad", BAD)
def test_bad_values_are_reported_by_feature_and_count(data, make, bad, refused):
    value, kind, message = BAD[bad]
    target = make(spoilt(data[0], value))
    # A source without names calls a feature by its place.
    name = "c" if standout.read(target).names is not None else "2"
    expected = message.format(repr(name) if bad == "overflow" and name == "c" else name)
    refused(lambda: DPCA().fit(target, background=make(data[1])), "target", expected, kind=kind)
    refused(lambda: DPCA().fit(make(data[1]), background=target), "background", expected, kind=kind)


def test_values_whose_squares_underflow_are_an_error(data, make, refused):
    scale = np.array([1, 1, 1e-200, 1, 1])
    refused(lambda: DPCA().fit(make(data[0] * scale), background=make(data[1])), "target", "squares underflow")


def test_bad_values_are_an_error_when_scores_are_computed(data, make, refused):
    model = DPCA(2).fit(make(data[0]), background=make(data[1]))
    scores = model.transform(make(spoilt(data[0], np.nan))) if is_lazy(make(data[0][:999])) else None
    if scores is not None:  # raised when the rows are read, for the rows that are present
        with pytest.raises(Exception, match=r"[12] NaN and 0 inf"):
            computed(scores)
        return
    refused(lambda: model.transform(make(spoilt(data[0], np.nan))), "2 NaN and 0 inf", kind=NonFiniteError)


def test_other_features_in_the_background_are_refused(data, make, refused):
    few = make(np.ascontiguousarray(data[1][:, :4]), NAMES[:4])
    refused(lambda: DPCA().fit(make(data[0]), background=few), "background", kind=FeatureError)
    model = DPCA(2).fit(make(data[0]), background=make(data[1]))
    with pytest.raises(ValueError, match=r"X: |X has 4 features|feature names should match"):
        computed(model.transform(few))


@each_kind_shows("names")
def test_features_are_matched_by_name_where_there_are_names(data, make):
    other = make(np.ascontiguousarray(data[1][:, ::-1]), NAMES[::-1])
    target = make(data[0])
    if standout.read(target).names is None:
        pytest.skip("this kind of source has no names")
    model = DPCA(2).fit(target, background=other)
    plain = DPCA(2).fit(data[0], background=data[1])
    np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-10, atol=1e-10)


def test_weights_that_do_not_fit_are_refused(data, make, refused):
    weights = np.ones(4_499)
    needs_arrays(make(data[0][:999]))
    refused(lambda: DPCA().fit(make(data[0]), background=make(data[1]), sample_weight=weights), "weights", "4499")
