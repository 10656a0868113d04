"""Arrow in memory: whatever has `__arrow_c_stream__`, and iterables of record batches."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from fieldslab.packer.source import SAMPLE_ROWS, Unit
from fieldslab.schemas.errors import SourceInconsistent, SourceUnreadable, UsageError


class ArrowSource:
    """A stream of record batches, read once. See `fieldslab.packer.source.Source`."""

    name = "arrow"
    rereadable = False

    def __init__(self, given: Any) -> None:
        """Take a table, reader, dataframe or any iterable of record batches.

        Raises UsageError for anything else.
        """
        self._batches = self._start(given)
        fields = list(self.schema)
        names = [field.name for field in fields]
        if len(set(names)) < len(names):
            raise SourceInconsistent(
                "two columns share a name", field=next(n for n in names if names.count(n) > 1)
            )
        self.units: Sequence[Unit] = [Unit("the stream", None, None, None)]
        self.attributes: dict[str, Any] = {}
        self._head: list[pa.RecordBatch] = []

    @staticmethod
    def accepts(paths: list[str]) -> bool:
        """No path is an object in memory."""
        return False

    def _start(self, given: Any) -> Iterator[pa.RecordBatch]:
        if hasattr(given, "__arrow_c_stream__"):
            reader = pa.RecordBatchReader.from_stream(given)
            self.schema = reader.schema
            return iter(reader)
        if not isinstance(given, Iterable):
            raise UsageError(
                "cannot be packed",
                found=type(given).__name__,
                expected="paths, an object with __arrow_c_stream__, or record batches",
            )
        batches = iter(given)
        first = next(batches, None)
        if not isinstance(first, pa.RecordBatch):
            raise UsageError(
                "not an iterable of pyarrow.RecordBatch", found=type(first).__name__,
                hint="An empty stream needs a schema: give a pyarrow.RecordBatchReader.",
            )  # fmt: skip
        self.schema = first.schema
        return chain([first], batches)

    def read(self, unit: Unit, columns: list[int], batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """What is left of the stream, cut into batches near `batch_bytes`."""
        while (batch := self._head.pop(0) if self._head else self._next()) is not None:
            chosen = batch.select(columns)
            rows = max(1, batch_bytes * chosen.num_rows // max(chosen.get_total_buffer_size(), 1))
            for start in range(0, chosen.num_rows, rows):
                yield chosen.slice(start, rows)

    def sample(self, column: int) -> list[pa.Array]:
        """The first values of the first batch, which stays to be read."""
        while not self._head or not self._head[-1].num_rows:
            batch = self._next()
            if batch is None:
                return []
            self._head.append(batch)
        return [self._head[-1].column(column).slice(0, 3 * SAMPLE_ROWS)]

    def null_count(self, path: tuple[int, ...]) -> int | None:
        """Unknown before the stream is read."""
        return None

    def column_bytes(self, column: int) -> int | None:
        """Unknown before the stream is read."""
        return None

    def check(self, columns: list[int]) -> None:
        """Batches are checked one by one as they come."""

    def fingerprint(self) -> list[dict[str, Any]]:
        """A stream has none: it cannot be read again."""
        return []

    def _next(self) -> pa.RecordBatch | None:
        try:
            batch = next(self._batches, None)
        except pa.ArrowException as error:
            raise SourceUnreadable(f"the stream broke off: {error}") from error
        if batch is not None and not batch.schema.equals(self.schema):
            raise SourceInconsistent(
                "a batch differs from the first one",
                expected=_types(self.schema),
                found=_types(batch.schema),
            )
        if batch is not None:
            try:
                batch.validate(full=True)
            except pa.ArrowInvalid as error:
                raise SourceUnreadable(f"invalid record batch: {error}") from error
        return batch


def _types(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
