"""Arrow in memory: what has `__arrow_c_stream__`, iterables of batches, HuggingFace datasets."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import pyarrow as pa

from fieldslab.packer.column_names import check_utf8_names, make_names_unique
from fieldslab.packer.source import SAMPLE_BYTES, SAMPLE_ROWS, Source, Unit
from fieldslab.packer.sources.batches import cut_batch, describe_exception
from fieldslab.packer.sources.objects import ROWS_AT_ONCE, BatchStream, open_object
from fieldslab.schemas.errors import (
    FieldslabError,
    SourceInconsistent,
    SourceUnreadable,
    UsageError,
    make_unreadable_source_error,
)


class ArrowSource(Source):
    """A stream of record batches, read once."""

    name = "arrow"

    def __init__(self, data: Any) -> None:
        """Take a table, reader, dataframe, dataset, columns, rows, or an iterable of batches.

        Raises UsageError for anything else, and SourceUnreadable for a stream that was read.
        """
        with _name_stream_errors():
            stream = _open_stream(data)
            self._batches, self._schema = stream.batches, stream.schema
            check_utf8_names(self._schema)
        names = make_names_unique(self._schema.names)
        fields = [f.with_name(name) for f, name in zip(self._schema, names, strict=True)]
        self.schema = pa.schema(fields, self._schema.metadata)
        self.hints = stream.hints
        self.units = [Unit("the stream", None, None, None, stream.rows)]
        self._rows_read = 0
        self._head: list[pa.RecordBatch] = []

    def read(self, unit: Unit, columns: list[int], batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Read the rest of the stream, in batches near `batch_bytes`."""
        while (batch := self._head.pop(0) if self._head else self._read_next()) is not None:
            chosen = batch.select(columns)
            self._rows_read += chosen.num_rows
            yield from cut_batch(chosen, batch_bytes)
        if not self._rows_read and unit.promised is None:
            self.endings = ("the stream had no rows; a stream can be read only once",)

    def sample(self, columns: list[int]) -> list[pa.RecordBatch]:
        """Read the first rows of the stream; their batches are kept to be packed."""
        rows = sum(batch.num_rows for batch in self._head)
        size = sum(batch.nbytes for batch in self._head)
        while columns and rows < 3 * SAMPLE_ROWS and size < SAMPLE_BYTES:
            batch = self._read_next()
            if batch is None:
                break
            self._head.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
        return [batch.select(columns).slice(0, 3 * SAMPLE_ROWS) for batch in self._head]

    def fingerprint(self) -> list[dict[str, Any]]:
        """Return an empty list: a stream cannot be read again."""
        return []

    def _read_next(self) -> pa.RecordBatch | None:
        with _name_stream_errors():
            batch = next(self._batches, None)
            if isinstance(batch, pa.RecordBatch) and batch.num_rows:
                batch.validate(full=True)
        if batch is None or _describe_columns(batch) == _describe_columns(self._schema):
            return batch
        raise SourceInconsistent(
            "a batch differs from the first one",
            expected=_describe_columns(self._schema),
            found=_describe_columns(batch),
        )


@contextmanager
def _name_stream_errors() -> Iterator[None]:
    """Turn what pyarrow raises on bad data, and others on a spent stream, into a named error."""
    try:
        yield
    except FieldslabError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        text = describe_exception(error)
        if "released" in text:
            raise _make_spent_error() from error
        raise make_unreadable_source_error(
            error, f"the stream is damaged or incomplete: {text}"
        ) from error


def _make_spent_error() -> SourceUnreadable:
    return SourceUnreadable(
        "the stream was read already",
        hint="A stream can be read only once: make a new one for each use, or pass a table.",
    )


def _open_stream(data: Any) -> BatchStream:
    if hasattr(data, "__arrow_c_stream__"):
        try:
            reader = pa.RecordBatchReader.from_stream(data)
        except RuntimeError as error:  # what nanoarrow raises
            if "released" not in str(error):
                raise
            raise _make_spent_error() from error
        rows = getattr(data, "num_rows", None)
        return BatchStream(iter(reader), reader.schema, rows if isinstance(rows, int) else None)
    if (stream := open_object(data)) is not None:
        return stream
    if isinstance(data, pa.RecordBatchFileReader):
        numbers = range(data.num_record_batches)
        return BatchStream((data.get_batch(index) for index in numbers), data.schema)
    rows = None
    if hasattr(data, "with_format") and hasattr(data, "iter"):
        rows = getattr(data, "num_rows", None)
        data = data.with_format("arrow").iter(ROWS_AT_ONCE)
    if not isinstance(data, Iterable):
        raise UsageError(
            "cannot be packed",
            found=type(data).__name__,
            expected="paths, an object with __arrow_c_stream__, record batches, columns or rows",
        )
    batches: Iterator[Any] = _split_into_batches(data)
    first = next(batches, None)
    if not isinstance(first, pa.RecordBatch):
        hint = "Pass a table: pyarrow.table(columns), or pyarrow.Table.from_pylist(rows)."
        if first is None:
            hint = "An empty stream needs a schema: pass a pyarrow.RecordBatchReader."
        raise UsageError(
            "not an iterable of pyarrow.RecordBatch or Table", found=type(first).__name__, hint=hint
        )
    return BatchStream(chain([first], batches), first.schema, rows)


def _split_into_batches(items: Iterable[Any]) -> Iterator[Any]:
    """Record batches one by one; tables are taken apart."""
    for item in items:
        if isinstance(item, pa.Table):
            yield from item.to_batches() or [pa.RecordBatch.from_pylist([], item.schema)]
        else:
            yield item


def _describe_columns(batch: Any) -> str:
    """Describe the names and types of a schema or batch, or the class of anything else."""
    schema = batch.schema if isinstance(batch, pa.RecordBatch) else batch
    if not isinstance(schema, pa.Schema):
        return type(batch).__name__
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
