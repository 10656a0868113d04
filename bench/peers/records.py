"""Rows as single records, for formats that store bytes and leave the rest to the user.

A record is the sizes of its fields as int64, then their bytes. Reading one costs two
microseconds or so, less than the protocol buffers that such formats are used with.
"""

from typing import Any

import numpy as np

from fieldslab.bench.peers.source import Row, Workload


def encode(row: Row) -> bytes:
    """Encode one row as bytes."""
    parts = [value if isinstance(value, bytes) else value.tobytes() for value in row.values()]
    return b"".join([np.array([len(part) for part in parts], np.int64).tobytes(), *parts])


class RecordReader:
    """Reads records back into rows of arrays and bytes, which are views of the record."""

    def __init__(self, source: Workload) -> None:
        columns = source.columns.values()
        self.fields = [(column.name, column.kind, column.values.dtype) for column in columns]

    def __call__(self, record: Any) -> Row:
        """One row."""
        view = memoryview(record)
        end = 8 * len(self.fields)
        row: Row = {}
        for (name, kind, dtype), size in zip(self.fields, view[:end].cast("q"), strict=True):
            part = view[end : end + size]
            row[name] = part if kind == "bytes" else np.frombuffer(part, dtype)
            end += size
        return row
