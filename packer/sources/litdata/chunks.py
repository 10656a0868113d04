"""A chunk file: a count, a table of offsets, the items, and what may stand behind them.

litdata writes two layouts that are read here, with every bound checked and many rows at a time:
items of serialised leaves, and items of no bytes with one Arrow file behind them for all.
Files are read and not mapped, so that one cut off meanwhile is an error and not a signal.
"""

import io
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import zstandard

from fieldslab.packer.sources.litdata.items import RowBytes
from fieldslab.packer.sources.litdata.stream_index import Chunk
from fieldslab.packer.sources.path_lookup import name_disk_errors
from fieldslab.schemas.errors import SourceUnreadable, make_unreadable_source_error
from fieldslab.schemas.files import close_quietly

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

_FRAMES = b"LDFZ"
_FOOTER = b"LDARW01\0"
_FOOTER_END = 12  # length of the Arrow part, and the magic
_ARROW_FILE = b"ARROW1"
_COPY = 1 << 20
_RESTORE = "Restore the chunk from a copy, or run litdata.optimize again."


class ChunkFile:
    """An open chunk; a context manager. `label` names it in messages, `first_row` its first row."""

    def __init__(self, path: str, chunk: Chunk, label: str, first_row: int) -> None:
        """Open the file. Raises SourceUnreadable where that fails."""
        self.path, self.chunk, self.label, self.first_row = path, chunk, label, first_row
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self.size = os.fstat(self._fd).st_size
        except OSError as error:
            raise make_unreadable_source_error(
                error, f"cannot be opened: {error.strerror}", file=label
            ) from error

    def __enter__(self) -> "ChunkFile":
        return self

    def __exit__(self, *_: object) -> None:
        close_quietly(self._fd)

    def read(self, offset: int, size: int) -> np.ndarray:
        """Read exactly these bytes: uint8[size]. Raises SourceUnreadable if they are missing."""
        if offset + size > self.size:
            self.refuse_damaged(
                "cut off",
                offset=offset,
                expected=f"{offset + size} bytes",
                found=f"{self.size} bytes",
            )
        data = np.empty(size, np.uint8)
        view, position = memoryview(data.data), offset
        while view:
            try:
                count = os.preadv(self._fd, [view], position)
            except OSError as error:
                raise SourceUnreadable(
                    f"cannot be read: {error.strerror}", file=self.label, offset=position
                ) from error
            if not count:
                self.refuse_damaged("cut off while it was read", offset=position)
            view, position = view[count:], position + count
        return data

    def refuse_damaged(self, problem: str, row: int | None = None, **context: Any) -> NoReturn:
        """Raise SourceUnreadable for this chunk; `row` counts from its first."""
        if row is not None:
            context["row"] = self.first_row + row
        raise SourceUnreadable(
            f"damaged chunk: {problem}", file=self.label, hint=_RESTORE, **context
        )

    @property
    def has_zstd_frames(self) -> bool:
        """Whether zstd frames stand in the file. litdata leaves tuples and lists unframed."""
        return self.size >= 8 and self.read(0, 8).tobytes().startswith(_FRAMES)

    def read_item_offsets(self) -> np.ndarray:
        """Read the offsets of the items, from the start of the file: int64[rows + 1], checked."""
        rows = self.chunk.rows
        (count,) = self.read(0, 4).view("<u4").tolist()
        if count != rows:
            self.refuse_damaged(
                "the number of items differs from the index", expected=rows, found=count
            )
        table = self.read(4, 4 * (rows + 1)).view("<u4").astype(np.int64)
        if table[0] != 4 * (rows + 2):
            self.refuse_damaged(
                "items do not start after the table",
                offset=4,
                expected=4 * (rows + 2),
                found=int(table[0]),
            )
        falling = np.flatnonzero(np.diff(table) < 0)
        if len(falling):
            row = int(falling[0])
            self.refuse_damaged("offsets decrease", row, offset=4 * (row + 2))
        if table[-1] > self.size:
            row = int(np.searchsorted(table, self.size, side="right")) - 1
            self.refuse_damaged(
                "cut off", row, expected=f"{table[-1]} bytes", found=f"{self.size} bytes"
            )
        return table

    def read_items(self, batch_bytes: int) -> Iterator[tuple[int, RowBytes]]:
        """Read the items, about `batch_bytes` at a time, each piece with its first row."""
        table = self.read_item_offsets()
        rows, row = self.chunk.rows, 0
        while row < rows:
            stop = int(np.searchsorted(table, table[row] + batch_bytes, side="right")) - 1
            stop = min(max(stop, row + 1), rows)
            start, end = int(table[row]), int(table[stop])
            starts = table[row:stop] - start
            yield (
                row,
                RowBytes(self.read(start, end - start), starts, np.diff(table[row : stop + 1])),
            )
            row = stop

    def read_blocks(self, size: int, batch_bytes: int) -> Iterator[tuple[int, RowBytes]]:
        """Read all items joined and cut into blocks of `size` bytes; the rest is left out."""
        table = self.read_item_offsets()
        first, rows = int(table[0]), int(table[-1] - table[0]) // size
        step = max(1, batch_bytes // size)
        for row in range(0, rows, step):
            count = min(step, rows - row)
            data = self.read(first + row * size, count * size)
            yield row, RowBytes(data, np.arange(count) * size, np.full(count, size))

    def find_arrow_part(self) -> tuple[int, int] | None:
        """Find start and length of the Arrow part; None if the items hold the rows."""
        table = self.read_item_offsets()
        if table[0] != table[-1] or not self.chunk.rows:
            return None
        end = self.size - _FOOTER_END
        if end < table[-1]:
            return None
        tail = self.read(end, _FOOTER_END)
        (length,) = tail[:4].view("<u4").tolist()
        if tail[4:].tobytes() != _FOOTER:
            return None
        if not 0 < length <= end - table[-1]:
            self.refuse_damaged("the Arrow part is longer than the file", offset=end, found=length)
        return end - length, length

    def read_arrow_batches(
        self, columns: list[str] | None
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Read schema and batches of the Arrow part: the named columns, all for None."""
        part = self.find_arrow_part()
        assert part is not None
        try:
            schema, reader = self._open_arrow(part, None)
            if columns is not None:
                chosen = [index for index, name in enumerate(schema.names) if name in columns]
                _, reader = self._open_arrow(part, chosen)
        except (pa.ArrowException, OSError) as error:
            self.refuse_damaged(f"its Arrow part: {_join_error_lines(error)}", offset=part[0])
        return schema, self._read_checked_batches(reader)

    def _open_arrow(self, part: tuple[int, int], fields: list[int] | None) -> tuple[pa.Schema, Any]:
        source = pa.PythonFile(_PartFile(self, *part), mode="r")
        options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
        is_file = self.read(part[0], min(part[1], 6)).tobytes() == _ARROW_FILE
        reader = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source, options=options)
        return reader.schema, reader

    def _read_checked_batches(self, reader: Any) -> Iterator[pa.RecordBatch]:
        row = number = 0
        while True:
            try:
                if hasattr(reader, "get_batch"):
                    if number == reader.num_record_batches:
                        break
                    batch = reader.get_batch(number)
                else:
                    batch = reader.read_next_batch()
                batch.validate(full=True)
            except StopIteration:
                break
            except (pa.ArrowException, OSError) as error:
                self.refuse_damaged(f"its Arrow part: {_join_error_lines(error)}", row)
            yield batch
            row, number = row + batch.num_rows, number + 1
        if row != self.chunk.rows:
            self.refuse_damaged(
                "the number of rows differs from the index", expected=self.chunk.rows, found=row
            )


class _PartFile(io.RawIOBase):
    """A part of a chunk as a file of its own."""

    def __init__(self, file: ChunkFile, start: int, size: int) -> None:
        self._file, self._start, self._size, self._position = file, start, size, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> Any:
        left = max(self._size - self._position, 0)
        size = left if size < 0 else min(size, left)
        data = self._file.read(self._start + self._position, size)
        self._position += size
        return memoryview(data.data)


def is_zstd(path: str) -> bool:
    """Tell by its first bytes whether a file is one zstd frame. Raises SourceUnreadable."""
    with name_disk_errors(), open(path, "rb") as file:
        return file.read(4) == ZSTD_MAGIC


def inflate_chunk(path: str, chunk: Chunk, label: str, folder: str) -> str:
    """Inflate a chunk that is one zstd frame into a file in `folder`; returns its path.

    Raises SourceUnreadable where the frame is damaged, or states a size that is not the chunk's.
    """
    target = Path(folder) / "inflated"
    most = chunk.bytes + 4 * (chunk.rows + 2)  # some versions counted the items alone
    try:
        with open(path, "rb") as source, open(target, "xb") as out:
            stated = zstandard.frame_content_size(source.read(18))
            if not chunk.bytes <= stated <= most:
                raise SourceUnreadable(
                    "damaged chunk: its zstd frame has another size than the index says",
                    file=label,
                    expected=f"{chunk.bytes} bytes",
                    hint=_RESTORE,
                    found="no size" if stated < 0 else f"{stated} bytes",
                )
            source.seek(0)
            left = stated
            reader = zstandard.ZstdDecompressor().stream_reader(source)
            while piece := reader.read(min(_COPY, left + 1)):
                left -= len(piece)
                if left < 0:
                    break
                out.write(piece)
    except (zstandard.ZstdError, OSError) as error:
        raise SourceUnreadable(
            f"cannot be decompressed: {_join_error_lines(error)}",
            file=label,
            hint=f"{_RESTORE} Decompressed chunks need space in {tempfile.gettempdir()} (TMPDIR).",
        ) from error
    if left:
        raise SourceUnreadable(
            "damaged chunk: its zstd frame is cut off",
            file=label,
            expected=f"{stated} bytes",
            found=f"{stated - left} bytes",
            hint=_RESTORE,
        )
    return str(target)


def _join_error_lines(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".")
