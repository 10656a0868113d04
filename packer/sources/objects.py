"""Objects of Python and of other libraries that are no Arrow streams, as Arrow streams.

No library is imported here: a caller that passes one of its objects has imported it.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from fieldslab.packer.source import ColumnHint
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import DtypeName

ROWS_AT_ONCE = 1000
"""Rows that a dataset or a HuggingFace dataset is asked for at a time."""

_COMPLEX: dict[str, DtypeName] = {"complex64": "complex64", "complex128": "complex128"}


class BatchStream(NamedTuple):
    """Batches of one schema; `rows` are those that the object promises, None if it does not."""

    batches: Iterator[Any]
    schema: pa.Schema
    rows: int | None = None
    hints: Mapping[int, ColumnHint] = {}


def open_object(data: Any) -> BatchStream | None:
    """Open a dataset, a lazy frame, columns or rows as a stream; None for any other object.

    Raises
    ------
    UsageError
        Several datasets in one, a row that is not a dict, or values that cannot become a column.
    """
    if isinstance(data, Mapping):
        return _open_columns(data)
    if isinstance(data, list | tuple) and data and isinstance(data[0], Mapping):
        return _open_rows(data)
    datasets = sys.modules.get("pyarrow.dataset")
    if datasets is not None and isinstance(data, datasets.Dataset):
        scanner = data.scanner(batch_size=ROWS_AT_ONCE, batch_readahead=4, fragment_readahead=1)
        reader = scanner.to_reader()
        return BatchStream(iter(reader), reader.schema, _count_dataset_rows(data))
    if datasets is not None and isinstance(data, datasets.Scanner):
        reader = data.to_reader()
        return BatchStream(iter(reader), reader.schema)
    if type(data).__module__.partition(".")[0] == "polars" and hasattr(data, "collect_schema"):
        return _open_lazy_frame(data)
    if type(data).__module__.startswith("ray.data") and hasattr(data, "iter_batches"):
        return _open_ray_dataset(data)
    return None


def _count_dataset_rows(dataset: Any) -> int | None:
    """Return the rows that a dataset's metadata promises, if that costs no reading."""
    if getattr(dataset, "_scan_options", None):  # it has a filter
        return None
    kind = getattr(getattr(dataset, "format", None), "default_extname", "")
    lance = type(dataset).__module__.partition(".")[0] == "lance"
    return int(dataset.count_rows()) if lance or kind == "parquet" else None


def _open_lazy_frame(frame: Any) -> BatchStream:
    """Open a lazy frame of Polars, which is computed piece by piece."""
    schema = pa.RecordBatchReader.from_stream(frame.head(0).collect()).schema
    if hasattr(frame, "collect_batches"):
        pieces = frame.collect_batches(maintain_order=True)
    else:
        pieces = iter([frame.collect()])
    return BatchStream((batch for piece in pieces for batch in _read_batches(piece)), schema)


def _open_ray_dataset(dataset: Any) -> BatchStream:
    """Open a dataset of Ray, which is computed block by block, in the order of its blocks."""
    tables = _read_ray_tables(dataset)
    first = next(tables, None)
    if first is None:
        schema = getattr(dataset.schema(), "base_schema", None)
        schema = schema if isinstance(schema, pa.Schema) else pa.schema([])
        return BatchStream(iter(()), schema, 0)
    batches = (batch for table in chain([first], tables) for batch in table.to_batches())
    return BatchStream(batches, first.schema)


def _read_ray_tables(dataset: Any) -> Iterator[pa.Table]:
    """Yield blocks in their order; by default, Ray gives those first that are computed first."""
    options = dataset.context.execution_options
    before, options.preserve_order = options.preserve_order, True
    try:
        yield from dataset.iter_batches(batch_size=None, batch_format="pyarrow")
    finally:
        options.preserve_order = before


def _read_batches(piece: Any) -> Iterator[pa.RecordBatch]:
    yield from pa.RecordBatchReader.from_stream(piece)


def _open_rows(rows: Sequence[Mapping[Any, Any]]) -> BatchStream:
    """Rows, each a dict; a name that a row lacks is null in that row."""
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise UsageError(
                "not a row",
                row=number,
                expected="a dict",
                found=type(row).__name__,
                hint="Pass one dict for each row, with the values by column name.",
            )
    names = dict.fromkeys(name for row in rows for name in row)
    return _open_columns({name: [row.get(name) for row in rows] for name in names})


def _open_columns(columns: Mapping[Any, Any]) -> BatchStream:
    """Open columns by name: numpy arrays of any shape, and whatever Arrow accepts."""
    splits = [name for name, value in columns.items() if _is_table(value)]
    if splits:
        raise UsageError(
            "the dataset has several splits; pack one at a time",
            expected="one split",
            found=", ".join(map(str, splits)),
            hint=f"Choose a split: pack(dataset[{splits[0]!r}], ...).",
        )
    arrays: dict[str, Any] = {}
    hints: dict[int, ColumnHint] = {}
    for index, (name, value) in enumerate(columns.items()):
        if not isinstance(name, str):
            raise UsageError("a column name is not text", found=repr(name))
        arrays[name], dtype = _convert_column(name, value)
        if dtype is not None:
            hints[index] = ColumnHint(dtype=dtype, why=dtype)
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        shown = [f"{name}: {length:,}" for name, length in list(lengths.items())[:20]]
        raise UsageError("the columns have different numbers of rows", found=", ".join(shown))
    table = pa.table(arrays)
    return BatchStream(iter(table.to_batches()), table.schema, table.num_rows, hints)


def _is_table(value: Any) -> bool:
    """Return True if a value is a dataset or a frame, not a column."""
    if isinstance(value, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return True
    frame = hasattr(value, "columns") and hasattr(value, "__arrow_c_stream__")
    return frame or (hasattr(value, "with_format") and hasattr(value, "iter"))


def _convert_column(name: str, value: Any) -> tuple[Any, DtypeName | None]:
    """Convert values to an Arrow array; name their dtype if Arrow has no such type."""
    if isinstance(value, list | tuple) and value and isinstance(value[0], np.ndarray):
        value = _stack_arrays(value)
    elif hasattr(value, "__array__") and not _is_arrow(value) and not _is_numpy(value):
        value = np.asarray(value)
    if isinstance(value, str | bytes) or not hasattr(value, "__len__"):
        raise UsageError("not a column of values", field=name, found=type(value).__name__)
    try:
        return _convert_numpy(value) if _is_numpy(value) else (_convert_to_arrow(value), None)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        text = " ".join(str(error).split()).rstrip(".")
        raise UsageError(
            f"cannot make a column from these values: {text}",
            field=name,
            found=str(getattr(value, "dtype", type(value).__name__)),
            hint="Make a table of them yourself: pyarrow.table(columns).",
        ) from error


def _is_numpy(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _is_arrow(value: Any) -> bool:
    return isinstance(value, pa.Array) or hasattr(value, "__arrow_c_stream__")


def _convert_to_arrow(value: Any) -> Any:
    if isinstance(value, pa.Array | pa.ChunkedArray):
        return value
    if hasattr(value, "__arrow_c_stream__"):
        return pa.chunked_array(value)
    return pa.array(value)


def _stack_arrays(values: Sequence[Any]) -> Any:
    """Stack arrays of one dtype and shape; return any others unchanged."""
    first = values[0]
    same = all(
        isinstance(value, np.ndarray) and value.shape == first.shape and value.dtype == first.dtype
        for value in values
    )
    return np.stack(values) if same else values


def _convert_numpy(values: np.ndarray) -> tuple[pa.Array, DtypeName | None]:
    """Convert an array of numpy: its first axis is the rows, the others are a shape."""
    if values.ndim == 0:
        raise ValueError("a single value has no rows")
    if 0 in values.shape[1:]:
        raise ValueError("an axis after that of the rows has length 0")
    masked = isinstance(values, np.ma.MaskedArray)
    if masked and values.ndim > 1:
        raise ValueError("a masked array with several axes cannot keep its mask")
    if values.dtype.byteorder == ">":
        values = values.astype(values.dtype.newbyteorder("="))
    dtype = _COMPLEX.get(values.dtype.name)
    if values.ndim == 1 and (masked or dtype is None):
        return pa.array(values), None
    flat = np.ascontiguousarray(values).reshape(-1)
    if dtype is not None:
        kind = pa.binary(flat.itemsize)
        array = pa.Array.from_buffers(kind, len(flat), [None, pa.py_buffer(flat)])
    else:
        array = pa.array(flat)
    for size in reversed(values.shape[1:]):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    return array, dtype
