"""The files of a slab as pieces of bytes, each compared with its digests before it is handed on."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

import numpy as np

from fieldslab.schemas.access import ArrayReader, Folder
from fieldslab.schemas.arrays import HEADER, make_array_header
from fieldslab.schemas.digest import BLOCK
from fieldslab.schemas.errors import DamagedArray
from fieldslab.schemas.files import RemoteDescriptor, read_exactly
from fieldslab.schemas.mapping import allocate_aligned

PIECE = 4 << 20
"""Bytes that are read at a time: whole blocks."""
_AHEAD = 2
"""Pieces of an array on another machine that are read ahead: each takes a round trip."""
_ATTEMPTS = 3
"""How often bytes of another machine are read: some are damaged on their way."""


class Cancelled(Exception):
    """Raised where bytes are read after the copy was given up."""


class VerifiedReader:
    """Reads the files of a slab for a copy, for a `with` block.

    Attributes
    ----------
    cancelled
        Set to have all reading end soon, by Cancelled.
    """

    def __init__(self) -> None:
        self.cancelled = Event()
        self._threads = ThreadPoolExecutor(16, thread_name_prefix="fieldslab-read")

    def __enter__(self) -> "VerifiedReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.cancelled.set()
        self._threads.shutdown(cancel_futures=True)

    def read_array(self, reader: ArrayReader) -> Iterator[memoryview]:
        """Yield the bytes of an array file, header first.

        Raises DamagedArray where a block does not match its digest, and what `open_array` raises.
        """
        file = reader.file
        with reader.open() as fd:
            yield memoryview(make_array_header(file.dtype, file.shape))
            starts = iter(range(0, file.data_bytes, PIECE))
            if not isinstance(fd, RemoteDescriptor):
                yield from (self._read_piece(reader, fd, start) for start in starts)
                return
            pieces: deque[Future[memoryview]] = deque()
            for start in starts:
                pieces.append(self._threads.submit(self._read_piece, reader, fd, start))
                if len(pieces) > _AHEAD:
                    yield pieces.popleft().result()
            while pieces:
                yield pieces.popleft().result()

    def read_digest_table(self, folder: Folder) -> Iterator[memoryview]:
        """Yield the bytes of a digest table, header first. Raises DamagedArray."""
        table = folder.load_digests()
        yield memoryview(make_array_header(np.dtype("<u8"), table.shape))
        yield memoryview(table.view(np.uint8).data)

    def _read_piece(self, reader: ArrayReader, fd: int, start: int) -> memoryview:
        stop = min(start + PIECE, reader.file.data_bytes)
        data = allocate_aligned(stop - start)
        attempts = _ATTEMPTS if isinstance(fd, RemoteDescriptor) else 1
        while True:
            if self.cancelled.is_set():
                raise Cancelled
            field = reader.file.field.name
            read_exactly(fd, memoryview(data.data), HEADER + start, reader.path, field)
            attempts -= 1
            try:
                reader.check_blocks(start // BLOCK, data)
                return memoryview(data.data)
            except DamagedArray:
                if not attempts:
                    raise
