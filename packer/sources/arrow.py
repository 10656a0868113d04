"""Arrow in memory: what has `__arrow_c_stream__`, iterables of batches, HuggingFace datasets."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import pyarrow as pa

from fieldslab.packer.convert.dense import decoded_bytes
from fieldslab.packer.source import (
    SAMPLE_BYTES,
    SAMPLE_ROWS,
    Unit,
    check_names,
    unique_names,
)
from fieldslab.schemas.errors import (
    FieldslabError,
    SourceInconsistent,
    UsageError,
    source_unreadable,
)

MOST_ROWS = 65_536
"""Rows of a batch at most."""
HUGGINGFACE_ROWS = 1000
"""Rows that a HuggingFace dataset is asked for at a time."""


class ArrowSource:
    """A stream of record batches, read once. See `fieldslab.packer.source.Source`."""

    name = "arrow"
    rereadable = False

    def __init__(self, given: Any) -> None:
        """Take a table, reader, dataframe, dataset, or any iterable of record batches or tables.

        Raises UsageError for anything else.
        """
        with _reading():
            self._batches, self._schema = _start(given)
            check_names(self._schema)
        names = unique_names(self._schema.names)
        fields = [f.with_name(name) for f, name in zip(self._schema, names, strict=True)]
        self.schema = pa.schema(fields, self._schema.metadata)
        self.units: Sequence[Unit] = [Unit("the stream", None, None, None, _promised(given))]
        self.attributes: dict[str, Any] = {}
        self._head: list[pa.RecordBatch] = []

    @staticmethod
    def accepts(paths: list[str]) -> bool:
        """No path is an object in memory."""
        return False

    def read(self, unit: Unit, columns: list[int], batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """What is left of the stream, cut into batches near `batch_bytes`."""
        while (batch := self._head.pop(0) if self._head else self._next()) is not None:
            chosen = batch.select(columns)
            size = sum(decoded_bytes(array) for array in chosen.columns)
            rows = min(MOST_ROWS, max(1, batch_bytes * chosen.num_rows // max(size, 1)))
            for start in range(0, chosen.num_rows, rows):
                yield chosen.slice(start, rows)

    def sample(self, columns: list[int]) -> list[pa.RecordBatch]:
        """The first rows; the batches that they come from stay to be read."""
        rows = sum(batch.num_rows for batch in self._head)
        size = sum(batch.nbytes for batch in self._head)
        while columns and rows < 3 * SAMPLE_ROWS and size < SAMPLE_BYTES:
            batch = self._next()
            if batch is None:
                break
            self._head.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
        return [batch.select(columns).slice(0, 3 * SAMPLE_ROWS) for batch in self._head]

    def null_count(self, path: tuple[int, ...]) -> int | None:
        """Unknown before the stream is read."""
        return None

    def column_bytes(self, path: tuple[int, ...]) -> int | None:
        """Unknown before the stream is read."""
        return None

    def check(self, columns: list[int]) -> None:
        """Batches are checked one by one as they come."""

    def fingerprint(self) -> list[dict[str, Any]]:
        """A stream has none: it cannot be read again."""
        return []

    def _next(self) -> pa.RecordBatch | None:
        with _reading():
            batch = next(self._batches, None)
            if isinstance(batch, pa.RecordBatch) and batch.num_rows:
                batch.validate(full=True)
        if batch is None or _columns(batch) == _columns(self._schema):
            return batch
        raise SourceInconsistent(
            "a batch differs from the first one", expected=_columns(self._schema),
            found=_columns(batch),
        )  # fmt: skip


@contextmanager
def _reading() -> Iterator[None]:
    """Turn what pyarrow raises on bad data into a named error."""
    try:
        yield
    except FieldslabError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        text = " ".join(str(error).split()).rstrip(".")
        raise source_unreadable(error, f"the stream is damaged or broke off: {text}") from error


def _start(given: Any) -> tuple[Iterator[pa.RecordBatch], pa.Schema]:
    if hasattr(given, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(given)
        return iter(reader), reader.schema
    if isinstance(given, pa.RecordBatchFileReader):
        return (given.get_batch(at) for at in range(given.num_record_batches)), given.schema
    if hasattr(given, "with_format") and hasattr(given, "iter"):
        given = given.with_format("arrow").iter(HUGGINGFACE_ROWS)
    if not isinstance(given, Iterable):
        raise UsageError(
            "cannot be packed", found=type(given).__name__,
            expected="paths, an object with __arrow_c_stream__, or record batches",
        )  # fmt: skip
    batches = _batches_of(given)
    first = next(batches, None)
    if not isinstance(first, pa.RecordBatch):
        hint = "Make a table of it: pyarrow.table(columns), or pyarrow.Table.from_pylist(rows)."
        if first is None:
            hint = "An empty stream needs a schema: give a pyarrow.RecordBatchReader."
        raise UsageError(
            "not an iterable of pyarrow.RecordBatch or Table", found=type(first).__name__, hint=hint
        )
    return chain([first], batches), first.schema


def _promised(given: Any) -> int | None:
    """The rows that an object says it has; None where it does not tell."""
    rows = getattr(given, "num_rows", None)
    return rows if isinstance(rows, int) else None


def _batches_of(items: Iterable[Any]) -> Iterator[Any]:
    """Record batches one by one; tables are taken apart."""
    for item in items:
        if isinstance(item, pa.Table):
            yield from item.to_batches() or [pa.RecordBatch.from_pylist([], item.schema)]
        else:
            yield item


def _columns(given: Any) -> str:
    """Names and types of a schema or batch; of anything else, what it is."""
    schema = given.schema if isinstance(given, pa.RecordBatch) else given
    if not isinstance(schema, pa.Schema):
        return type(given).__name__
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
