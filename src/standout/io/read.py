"""Read a dataset: choose the source for an object in memory, a path, or a collection on a cluster."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from glob import has_magic, iglob
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
from scipy import sparse

from standout.errors import ColumnError, InputError, StandoutWarning, did_you_mean, listed, warn_user
from standout.io import memory
from standout.io.checkpoint import FileStamp
from standout.io.memory import NUMBERS, FrameSource, SparseSource, as_numpy, checked_table, is_tensor
from standout.io.missing import handle_missing
from standout.io.options import Coded, Options, RowFilter, as_text, choose
from standout.io.source import ArraySource, RowSource, RowView, Source, import_extra, readable
from standout.io.stream import Layout, SparseInMemory, Stream, TableInMemory

# Suffix → (module, function). Tables are read from one file or from many with the same columns.
_TABLES = {
    **dict.fromkeys((".csv", ".tsv", ".txt"), ("csv", "open_csv")),
    **dict.fromkeys((".parquet", ".pq"), ("tables", "open_parquet")),
    **dict.fromkeys((".feather", ".arrow"), ("tables", "open_feather")),
    **dict.fromkeys((".xlsx", ".xlsm"), ("spreadsheet", "open_excel")),
}
_MATRICES = {
    ".npy": ("arrays", "open_npy"),
    ".npz": ("arrays", "open_npz"),
    **dict.fromkeys((".h5", ".hdf5"), ("arrays", "open_hdf5")),
    ".h5ad": ("h5ad", "open_h5ad"),
    ".zarr": ("arrays", "open_zarr"),
    ".mtx": ("arrays", "open_mtx"),
    ".loom": ("arrays", "open_hdf5"),
    ".mat": ("matlab", "open_mat"),
    ".gct": ("genomics", "open_gct"),
    ".bed": ("genomics", "open_bed"),
}
_CUBES = (".npy", ".npz", ".h5", ".hdf5", ".zarr", ".mat")  # may hold three-dimensional arrays
SUFFIXES = (*_TABLES, *_MATRICES)
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")
_SHEETS = (".xls", ".xlsb", ".ods", ".numbers")  # spreadsheets that are not read
_EXTRAS = {"h5ad": "anndata", "spreadsheet": "excel"}  # the extra that a module needs, if it is not io
_CLUSTERS = ("dask", "spark")
_TABULAR = ("columns", "__arrow_c_stream__", "__dataframe__")  # a table has one of these
_PATH = (str, bytes, os.PathLike)
# Kind of data, by the package and name of its type, or by the package alone, so that no package is imported for it.
_KINDS = {
    ("dask", ""): "dask", ("pyspark", ""): "spark", ("anndata", "AnnData"): "anndata", ("mne", "Evoked"): "evoked",
    ("mne", ""): "recording", ("xarray", "DataArray"): "xarray", ("xarray", "Dataset"): "xarray",
    ("pyarrow", "RecordBatch"): "table", ("pyarrow", "Dataset"): "stream", ("polars", "LazyFrame"): "stream",
    ("narwhals", "LazyFrame"): "stream", ("duckdb", "DuckDBPyRelation"): "stream", ("ibis", "Table"): "stream",
    ("datasets", "Dataset"): "stream", ("datasets", "IterableDataset"): "stream",
}  # fmt: skip
# Kind of data → (module, function, extra).
_ADAPTERS = {
    "dask": ("distributed.dask", "open_collection", "dask"),
    "spark": ("distributed.spark", "open_collection", "spark"),
    "anndata": ("io.h5ad", "from_anndata", "anndata"),
    **dict.fromkeys(("recording", "evoked"), ("mne", "open_recording", "mne")),
    "stream": ("io.arrow", "open_foreign", "io"),
}


def read(
    data: Any,
    *,
    role: str = "data",
    missing: str | None = None,
    columns: str | Iterable[str] | None = None,
    drop: str | Iterable[str] | None = None,
    label: str | None = None,
    groups: str | None = None,
    groups_match: str | None = None,
    ids: str | None = None,
    where: Mapping[str, Any] | None = None,
    key: str | None = None,
    header: int | None = None,
    encoding: str | None = None,
    censored: str | None = None,
    transpose: bool = False,
    cube: bool = False,
    memory: str | float = "256MB",
    checkpoint: str | os.PathLike[str] | None = None,
) -> Source:
    """Open data as a source of row blocks.

    Parameters
    ----------
    data : path, array-like, tensor, data frame, AnnData, sparse matrix or Source, of shape (n_rows, n_features)
        The rows. Named columns (of pandas, polars, xarray, Arrow streams) are matched by name. MNE recordings, and
        arrays of shape (n_epochs, n_channels, n_times), give one row for each point in time and one group for each
        epoch: see :func:`standout.mne.read`. Dask arrays and data frames and Spark DataFrames stay on the cluster:
        their workers compute the moments. Tensors (PyTorch, CuPy, JAX) stay on their device, which computes moments and
        scores. Polars LazyFrames, DuckDB relations, Ibis tables, Hugging Face datasets and other Arrow streams are read
        like files: in memory if they fit into ``memory``, otherwise in blocks, where a query runs again for every pass.
        A path is a file (npy, npz, csv, tsv, txt, xlsx, parquet, feather, arrow, h5, zarr, h5ad, mtx, loom, mat, gct,
        bed; text may be compressed with gz, bz2, xz, zst or zip), a directory of tables or of Cell Ranger, a pattern
        such as ``"runs/*.parquet"``, a sheet or array in a file such as ``"book.xlsx::Controls"``, or ``"-"`` for
        standard input. Files, sparse matrices and memory maps are read in blocks and never densified as a whole. In
        files and streams, non-numeric columns are not used as features. Samples become rows also in formats that store
        them as columns (10x Genomics, loom, gct, bed).
    role : str
        Name of the data in messages.
    missing : "auto", "drop_rows", "drop_features" or "mean", optional
        How to handle missing values. "auto" draws them from a Gaussian model of the observed values, the same for
        target and background, which keeps p-values valid if values are missing at random. "drop_rows" and
        "drop_features" drop rows or features with missing values. "mean" imputes the mean of the dataset, which
        shrinks variances and makes p-values too small. By default missing values raise an error.
    columns, drop : str or list of str, optional
        Columns to use as features, and columns to ignore; names, or patterns such as ``"*_N"``, in which ``*``
        matches anything and ``?`` one character. By default every numeric column is a feature.
    label, groups, ids : str, optional
        Columns that describe rows: the label to colour by, the independent unit (subject), the name of the row.
    groups_match : str, optional
        Regular expression for the part of the groups column that identifies the subject: ``"^[^_]+"`` maps 309_1
        and 309_2 to one subject, 309.
    where : dict, optional
        Rows to keep: column to one value or several, for instance ``{"class": ["t-SC-m", "t-SC-s"]}``.
    key : str, optional
        The array inside a file that holds several (npz, h5, zarr, mat), a layer of h5ad or loom, a feature type or
        genome of Cell Ranger, or a sheet of a spreadsheet. A path such as ``"book.xlsx::Controls"`` has the same
        meaning, and takes precedence.
    header : int, optional
        The line of a text file, or row of a spreadsheet, that has the column names, counted from 1. By default the
        first that is neither empty nor a comment (a line that begins with ``#``).
    encoding : str, optional
        Encoding of a text file, for instance ``"cp1252"`` or ``"latin-1"``. By default UTF-8, or UTF-16 if there is a
        byte-order mark.
    censored : "missing", optional
        How to handle values beyond a detection limit in numeric columns of text files and spreadsheets (``<0.5``,
        ``>1000``, ``<LOD``, ND, BDL). "missing" reads them as missing values, which ``missing`` then handles; they are
        not missing at random. By default they raise an error that counts them by column.
    transpose : bool, default=False
        Whether the table has features in rows and samples in columns, as gene tables often have. Row ids (the ``ids``
        column, the first column of text, or the index of a data frame) become feature names, column names become row
        ids. The table must fit into ``memory``. ``columns`` then names features, ``drop`` features or samples;
        ``label``, ``groups`` and ``where`` are not possible.
    cube : bool, default=False
        Whether the array in the file (npy, npz, h5, zarr, mat) has three dimensions, height × width × bands. Pixels are
        rows, numbered row by row in ``row_ids``; bands are features. Images of the same height and width in the same
        file describe pixels, for instance ``label="truth"`` or ``where={"mask": 1}``.
    memory : str or int, default="256MB"
        Files and streams whose numbers need no more memory than this are kept in memory, so that every solver can read
        them repeatedly. Larger ones are read in blocks, some of them ahead, within the same limit (at least 64 MB, plus
        what an array format must decompress at once). The sums, features × features, are not included.
    checkpoint : path, optional
        For long fits of files that are not kept in memory: the sums so far are periodically written to this file (at
        intervals that cost at most 2 % of the time). A fit that was killed resumes from the checkpoint when it is
        restarted, with bit-identical results. A completed checkpoint is kept and reused as long as files, options and
        weights are the same; each dataset needs a separate checkpoint. It is not used, with a warning, for a file that
        fits into ``memory``, for rows selected by ``background_label``, and if the solver works on rows (more features
        than rows, ``solver="matrix_free"``).

    Returns
    -------
    Source
        The rows, in blocks, with ``names``, ``labels``, ``groups`` and ``row_ids`` if available.

    See Also
    --------
    standout.Source : The result, and the base class for other kinds of data.
    standout.Moments : Count, mean and scatter of the rows.
    standout.find_replicates : Check whether rows need ``groups``.

    Examples
    --------
    >>> import standout
    >>> source = standout.read([[1, 2], [3, 4], [5, 6]])
    >>> source.n_rows, source.n_features
    (3, 2)
    >>> [block.shape for block in source.blocks(2)]
    [(2, 2), (1, 2)]
    """
    options = Options.of(
        missing=missing, columns=columns, drop=drop, label=label, groups=groups, groups_match=groups_match, ids=ids,
        where=where, key=key, header=header, encoding=encoding, censored=censored, transpose=transpose, cube=cube,
        memory=memory, checkpoint=checkpoint,
    )  # fmt: skip
    if cube and not isinstance(data, _PATH):
        problem = f"`cube` is for files, and this is a {type(data).__name__}"
        raise InputError(f"{role}: {problem}. Reshape it to pixels × bands: array.reshape(-1, array.shape[-1]).")
    for name in [*(["checkpoint"] if checkpoint is not None else []), *options.for_text]:
        if not isinstance(data, _PATH):
            problem = f"`{name}` is for files, and this is a {type(data).__name__}"
            raise InputError(f"{role}: {problem}. Give the path of a file, or leave `{name}` out.")
    source = _open_transposed(data, role, options) if transpose else open_data(data, role, options)
    return source if missing is None else handle_missing(source, missing, role)


def open_data(data: Any, role: str, options: Options | None = None) -> Source:
    """Return the source of a dataset."""
    if options is None and type(data) is np.ndarray and data.ndim == 2:  # the common case
        return ArraySource(checked_table(data, role))
    options = Options.of() if options is None else options
    plain = replace(options, transpose=False)
    kind = kind_of(data)
    if kind == "path":
        return open_path(data, options, role)
    if kind == "source" and plain.is_default:
        return cast(Source, data)
    if kind in _CLUSTERS:
        _check_cluster_options(data, options, role)
    if kind in _ADAPTERS:
        module, function, extra = _ADAPTERS[kind]
        opened: Source = getattr(import_extra(f"standout.{module}", role, extra), function)(data, options, role)
        return opened
    if kind in ("frame", "table", "xarray"):
        return _open_frame(data if kind == "frame" else _to_frame(data, kind, options, role), options, role)
    if not replace(plain, missing=None).is_default:
        problem = f"columns are chosen by name, and {type(data).__name__} has no column names"
        raise InputError(f"{role}: {problem}. Give a data frame or a file, or choose the columns first.")
    if callable(getattr(type(data), "blocks", None)) and hasattr(data, "n_features") and not isinstance(data, Source):
        problem = f"{type(data).__name__} has blocks, but is not a source"
        raise InputError(f"{role}: {problem}. Derive it from standout.Source.")
    if is_tensor(data):
        from standout.io.tensors import open_tensor

        if plain.is_default:
            return open_tensor(data, role)
        data = as_numpy(data)
    if isinstance(data, Mapping) and not isinstance(getattr(data, "shape", None), tuple):
        problem = f"a dict of datasets, {listed([str(name) for name in data])}, is not one dataset"
        raise InputError(f"{role}: {problem}. Give one of them; only the background can be several.")
    table = checked_table(data, role)
    if plain.is_default:
        return SparseSource(table) if sparse.issparse(table) else ArraySource(table)
    if sparse.issparse(table):
        raise InputError(f"{role}: `missing` does not support sparse matrices. Give an array, or fill in the values.")
    return TableInMemory(Layout(Path(role), None, table.shape[1]), table, {})


def _open_transposed(data: Any, role: str, options: Options) -> Source:
    """Return the source of a table whose columns are rows; names in ``drop`` that are not columns are features."""
    chosen = Options(columns=options.columns)
    options = replace(options, columns=None)
    while True:
        try:
            source = open_data(data, role, options)
            break
        except ColumnError as error:
            if error.argument != "drop" or error.column in chosen.drop:
                raise
            chosen = replace(chosen, drop=(*chosen.drop, error.column))
            options = replace(options, drop=tuple(name for name in options.drop if name != error.column))
    if isinstance(source, Stream) or not isinstance(source, RowSource):
        problem = "`transpose=True` needs the whole table in memory"
        raise InputError(f"{role}: {problem}. Give more `memory`, or transpose the data first.")
    path = getattr(source, "path", Path(role))
    ids = [] if source.row_ids is None else [as_text(item) for item in source.row_ids.tolist()]
    duplicates = [name for name, count in Counter(ids).items() if count > 1 or name is None]
    if duplicates:
        rule = "with `transpose=True` row ids become feature names"
        problem = f"{len(duplicates)} of them are missing or not distinct: {listed(duplicates)}"
        raise InputError(f"{role}: {rule}, and {problem}. Make them distinct, or name another column in `ids`.")
    names = tuple(str(name) for name in ids)
    if not chosen.is_default:
        position = {name: i for i, name in enumerate(names)}
        names = choose(names, position, chosen, role).features
        source = RowView(source, np.array([position[name] for name in names]))
    about = {} if source.names is None else {"column": np.array(source.names, dtype=object)}
    n_features = source.n_rows or 0
    layout = Layout(path, names or None, n_features, tuple(about), Options(ids="column" if about else None))
    matrix = source.sparse()
    if matrix is not None:
        return SparseInMemory(layout, matrix.T.tocsr(), about)
    return TableInMemory(layout, np.ascontiguousarray(source.rows(0, n_features).T), about)


def kind_of(data: Any) -> str:
    """Return the kind of a dataset, which decides how it is opened: a value of ``_KINDS``, or one of those below."""
    if isinstance(data, np.ndarray):
        return "recording" if data.ndim == 3 else "array"
    if isinstance(data, list | tuple):
        return "recording" if data and kind_of(data[0]) in ("evoked", "recording") else "array"
    if isinstance(data, (*_PATH, Source)):
        return "source" if isinstance(data, Source) else "path"
    bases = [(base.__module__.split(".")[0].removeprefix("_"), base.__name__) for base in type(data).__mro__]
    keys = (*bases, *((package, "") for package, _ in bases))
    kind = next((_KINDS[key] for key in keys if key in _KINDS), None)
    if kind == "xarray" and hasattr(type(data), "dtype") and not (data.ndim == 2 and data.dims[1] in data.coords):
        return "array"  # a DataArray whose columns have no names
    if kind is not None or not any(hasattr(type(data), name) for name in _TABULAR):
        return kind or "array"
    from narwhals.stable.v2 import dependencies

    if hasattr(type(data), "columns") and dependencies.is_into_dataframe(data):
        return "frame"
    if hasattr(type(data), "__arrow_c_stream__") and not dependencies.is_into_series(data):
        return "stream"
    return "table" if hasattr(type(data), "__dataframe__") else "array"


def is_on_cluster(data: Any) -> bool:
    """Return whether data is a Dask or Spark collection."""
    return kind_of(data) in _CLUSTERS


def is_array_like(data: Any) -> bool:
    """Return whether data is in memory in a form supported by the validation of scikit-learn."""
    return kind_of(data) in ("array", "frame")


def is_dataset(item: Any) -> bool:
    """Return whether an item of a list is a dataset, as opposed to a row; an Evoked is a part of one, like a row."""
    kind = kind_of(item)
    if kind != "array":
        return kind != "evoked"
    if hasattr(item, "shape"):
        return isinstance(item.shape, tuple) and len(item.shape) in (2, 3)  # a dict of tables has a dict of shapes
    return isinstance(item, list | tuple) and len(item) > 0 and np.ndim(item[0]) == 1


def open_path(given: str | bytes | os.PathLike[Any], options: Options, role: str) -> Source:
    """Return the source of a file, a directory of tables, or a pattern such as ``runs/*.parquet``."""
    text, key = split_key(given)
    options = options if key is None else replace(options, key=key)
    path = Path(text).expanduser()
    where = f"{role}: {path}"
    if text == "-":
        if options.checkpoint is not None:
            problem = "standard input cannot be read again after a restart, so that `checkpoint` is of no use"
            raise InputError(f"{role}: {problem}. Give a file, or leave `checkpoint` out.")
        paths: tuple[Path, ...] = (import_extra("standout.io.text", role).standard_input(role),)
        path = Path("standard input")
    else:
        with readable(where, "a file"):
            paths = _files(path, where)
    kinds = sorted({_suffix(path) for path in paths})
    unknown = [kind for kind in kinds if kind not in SUFFIXES]
    if unknown:
        remedy = f"Use one of {', '.join(SUFFIXES)} (text may be compressed: {', '.join(_COMPRESSED)})."
        remedy = "Convert it to .xlsx or .csv." if unknown[0] in _SHEETS else remedy
        raise InputError(f"{where}: unsupported file type {unknown[0]!r}. {remedy}")
    if len(kinds) > 1:
        raise InputError(f"{where}: files of several types ({', '.join(kinds)}). Give files of one type.")
    if len(paths) > 1 and kinds[0] in _MATRICES:
        rule = f"Only tables ({', '.join(_TABLES)}) are read as one dataset"
        raise InputError(f"{where}: {len(paths)} {kinds[0]} files. {rule}: give one file.")
    if options.cube and kinds[0] not in _CUBES:
        raise InputError(f"{where}: `cube` is for {', '.join(_CUBES)} files. Leave `cube` out, or give such a file.")
    stamp = FileStamp.of(paths, where)
    module, function = (_TABLES | _MATRICES)[kinds[0]]
    if options.for_text and module not in ("csv", "spreadsheet"):
        problem = f"`{options.for_text[0]}` is for text files and spreadsheets, not for {kinds[0]} files"
        raise InputError(f"{where}: {problem}. Leave it out.")
    if key is not None and module in ("csv", "tables"):
        raise InputError(f"{where}: {kinds[0]} files hold a single table. Leave '::{key}' out.")
    package = import_extra(f"standout.io.{module}", where, _EXTRAS.get(module, "io"))
    arguments = (paths, path) if kinds[0] in _TABLES else paths
    source: Source = getattr(package, function)(*arguments, options, role)
    if isinstance(source, Stream):
        source.layout = replace(source.layout, files=stamp)
        if source.checkpoint is not None:
            source.checkpoint.load(source.checkpoint.fingerprint(), None, role)  # raises before any row is read
    elif options.checkpoint is not None:
        problem = f"the checkpoint {options.checkpoint} is not used: the data fit into `memory` and are kept there"
        warn_user(f"{role}: {problem}. Leave `checkpoint` out, or give less `memory`.", StandoutWarning)
    return source


def split_key(given: str | bytes | os.PathLike[Any]) -> tuple[str, str | None]:
    """Return a path, and the sheet or array that is named after it, as in ``book.xlsx::Controls``.

    Examples
    --------
    >>> split_key("book.xlsx::Controls"), split_key("book.xlsx")
    (('book.xlsx', 'Controls'), ('book.xlsx', None))
    """
    text = os.fsdecode(given)
    path, _, key = text.rpartition("::")
    return (path, key) if path and key and not os.path.exists(os.path.expanduser(text)) else (text, None)


def has_names(given: str | os.PathLike[Any]) -> bool:
    """Return whether files of this type always have column names."""
    text = split_key(given)[0]
    path = Path(text).expanduser()
    is_directory = path.is_dir() and path.suffix != ".zarr"
    return text == "-" or is_directory or _suffix(path) in (*_TABLES, ".h5ad", ".gct", ".bed")


def _files(path: Path, where: str) -> tuple[Path, ...]:
    """Return the files that match the path, sorted by name; of a directory of Cell Ranger, its matrix."""
    if path.is_dir() and path.suffix != ".zarr":
        matrices = sorted(p for p in path.rglob("*matrix.mtx*") if p.is_file() and _suffix(p) == ".mtx")
        if len(matrices) > 1:
            shown = listed([str(p.relative_to(path)) for p in matrices])
            raise InputError(f"{where}: this directory holds {len(matrices)} matrices: {shown}. Give one of them.")
        if matrices:
            return tuple(matrices)
        found = sorted(p for p in path.rglob("*") if p.is_file() and _suffix(p) in _TABLES and p.name[0] not in "._~")
        if not found:
            raise InputError(f"{where}: this directory holds no tables. Give one with {listed(tuple(_TABLES))} files.")
        return tuple(found)
    if path.exists():
        if not (path.is_file() or path.is_dir()):
            raise InputError(f"{where}: this is a device or a named pipe. Give a file, or `-` for standard input.")
        return (path,)
    if has_magic(str(path)):
        matched = sorted(Path(name) for name in iglob(str(path), recursive=True))
        if matched:
            return tuple(matched)
        raise InputError(f"{where}: no file matches this pattern. Check the path.")
    hint = f" The directory {str(path.parent)!r} does not exist either."
    if path.parent.is_dir():
        hint = did_you_mean(path.name, [file.name for file in path.parent.iterdir()])
    if where.startswith("background") and not path.suffix:
        hint += " If it is a label, name its column in `where`."
    raise InputError(f"{where}: there is no such file.{hint} Check the path.")


def _suffix(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if len(suffixes) > 1 and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _check_cluster_options(data: Any, options: Options, role: str) -> None:
    if options.where or options.missing or options.key or options.groups_match or options.transpose:
        rule = "`where`, `missing`, `key`, `groups_match` and `transpose` are not for data on a cluster"
        remedy = f"Choose rows and fill in missing values in the {type(data).__name__} first."
        raise InputError(f"{role}: {rule}. {remedy}")


def _open_frame(frame: Any, options: Options, role: str) -> Source:
    """Return the source of a data frame (any that narwhals supports)."""
    if options.is_default:
        whole = FrameSource(frame, role)
        if 0 in (whole.n_rows, whole.n_features):
            checked_table(np.empty((whole.n_rows, whole.n_features)), role)
        return whole
    import narwhals.stable.v2 as nw

    given = list(getattr(frame, "column_names", None) or frame.columns)  # pyarrow's ``columns`` are the data
    memory.check_names(given, role)
    table = nw.from_native(frame, eager_only=True)
    names = [str(name) for name in given]  # column names may be numbers
    position = {name: i for i, name in enumerate(names)}
    types = dict(zip(names, table.schema.values(), strict=True))
    numeric = set(map(str, memory.numeric_columns(table)))
    chosen = choose(names, numeric, options, role)
    metadata = {
        name: Coded.of(table[:, position[name]].to_list(), types[name].is_numeric() or types[name] == nw.Boolean)
        for name in chosen.aside
    }
    row_filter = RowFilter(options.where, role)
    mask = row_filter.mask(metadata)
    row_filter.check()
    numbers = FrameSource(table[:, [position[name] for name in chosen.features]], role).rows(0, table.shape[0])
    if len(numbers) == 0:
        raise InputError(f"{role}: it has no rows. Give a table with rows.")
    kept = slice(None) if mask is None else mask
    feature_names = chosen.features if isinstance(given[0], str) else None
    described = replace(options, ids=chosen.ids)
    layout = Layout(Path(role), feature_names, len(chosen.features), chosen.aside, described)
    texts = {column: values.texts(mask) for column, values in metadata.items()}
    source = TableInMemory(layout, numbers[kept], texts)
    source.index = [replace(one, values=one.values[kept]) for one in memory.index_columns(frame)]
    if source.row_ids is None and len(source.index) == 1:
        source.row_ids = source.index[0].values
    return source


def _to_frame(table: Any, kind: str, options: Options, role: str) -> Any:
    """Return a table in memory as a frame that narwhals reads; of xarray with the row coordinates that options name."""
    if kind != "xarray":
        arrow = import_extra("pyarrow", role)
        try:
            whole = isinstance(table, arrow.RecordBatch)
            return arrow.table(table) if whole else import_module("pyarrow.interchange").from_dataframe(table)
        except Exception as error:
            problem = f"{type(table).__name__} is not a table of columns ({error})"
            raise InputError(f"{role}: {problem}. Give a table.") from error
    if hasattr(type(table), "dtype"):  # a DataArray
        frame, rows = table.to_pandas(), table.dims[:1]
    else:
        dimensions = {variable.dims for variable in table.values()}
        if len(dimensions) != 1 or len(rows := dimensions.pop()) != 1:
            rule = "the variables of an xarray Dataset must have one dimension, the same for all: its rows"
            raise InputError(f"{role}: {rule}. Give such variables, or one DataArray of rows and features.")
        frame = table.reset_coords(drop=True).to_dataframe()
    named = {name: table.coords[name] for name in options.roles if name in table.coords and name not in frame}
    return frame.assign(**{name: values.to_numpy() for name, values in named.items() if values.dims == rows})


def read_scores(scores: Any, n_components: int) -> Any:
    """Return scores as a numpy array, a dask array if they are on a cluster, or the source of a tensor."""
    if is_tensor(scores) and len(scores.shape) == 2 and scores.shape[1] == n_components:
        from standout.io.tensors import TensorSource

        return TensorSource(scores, "scores")
    if not is_on_cluster(scores):
        scores = as_numpy(scores)
    # Check the type: a delayed object has every attribute.
    elif hasattr(type(scores), "to_dask_array"):
        scores = scores.to_dask_array()
    elif not hasattr(type(scores), "chunks"):
        remedy = "Give a dask array, or bring the scores into memory first: toPandas().to_numpy() of Spark."
        raise InputError(f"scores: a {type(scores).__name__} on a cluster is not supported. {remedy}")
    if scores.ndim != 2 or scores.shape[1] != n_components or scores.dtype.kind not in NUMBERS:
        found = f"values of type {scores.dtype} and shape {scores.shape} do not fit {n_components} components"
        raise InputError(f"scores: {found}. Give one column of numbers for each component.")
    return scores


def as_precise(values: Any, rows: Any) -> Any:
    """Return computed values as float32 if they were computed from rows of float32, otherwise as they are.

    Sums and products are float64 in any case.

    Examples
    --------
    >>> as_precise(np.ones(1), np.ones((2, 1), dtype=np.float32)).dtype
    dtype('float32')
    """
    # Of a data frame, one for each column; rows that are streamed are float64.
    types = getattr(getattr(rows, "schema", None), "types", None)  # of pyarrow
    if types is None and kind_of(rows) != "stream":
        types = getattr(rows, "dtypes", None)
    if types is None or isinstance(rows, np.ndarray):
        complete = isinstance(rows, ArraySource) and not rows.is_incomplete  # filled rows are float64
        types = [getattr(rows.array if complete else rows, "dtype", None)]
    elif callable(types):
        return values
    single = len(types) > 0 and all(str(kind).lower() in ("float32", "float") for kind in types)
    return values.astype(np.float32) if single and hasattr(values, "astype") else values
