"""Columns that are read one run after the other, put side by side again."""

import errno
import mmap
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO

import pyarrow as pa

from fieldslab.schemas.errors import NoSpace


def join_streams(streams: list[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Join streams of the same rows to batches with the columns of all.

    The streams are read one by one into temporary files, which have no names and so vanish with
    the process. Raises NoSpace where there is no room for them.
    """
    with ExitStack() as open_files:
        files = []
        for stream in streams:
            files.append(open_files.enter_context(tempfile.TemporaryFile()))
            _write_stream(stream, files[-1])
        yield from _align_batches([_read_stream(file) for file in files])


def _write_stream(stream: Iterator[pa.RecordBatch], file: IO[bytes]) -> None:
    writer = None
    for batch in stream:
        try:
            if writer is None:
                writer = pa.ipc.new_stream(pa.PythonFile(file, mode="w"), batch.schema)
            writer.write_batch(batch)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise NoSpace(
                "no space left for temporary files",
                file=tempfile.gettempdir(),
                hint="Name another directory in the environment variable TMPDIR.",
            ) from error
    if writer is not None:
        writer.close()
    file.flush()


def _read_stream(file: IO[bytes]) -> Iterator[pa.RecordBatch]:
    if not file.tell():
        return iter(())  # a stream without rows
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return iter(pa.ipc.open_stream(pa.py_buffer(mapped)))


def _align_batches(streams: list[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Cut the batches of all streams at the same rows, up to the end of the shortest."""
    heads = [head for stream in streams if (head := next(stream, None)) is not None]
    if len(heads) < len(streams):
        return
    while True:
        rows = min(head.num_rows for head in heads)
        arrays = [array for head in heads for array in head.slice(0, rows).columns]
        names = [name for head in heads for name in head.schema.names]
        yield pa.RecordBatch.from_arrays(arrays, names=names)
        rest = [head.slice(rows) for head in heads]
        heads = []
        for head, stream in zip(rest, streams, strict=True):
            following = head if head.num_rows else next(stream, None)
            if following is None:
                return
            heads.append(following)
