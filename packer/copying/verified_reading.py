"""The files of a slab as pieces of bytes, each compared with its digests before it is handed on."""

import asyncio
from collections import deque
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from threading import Event, Thread

import numpy as np

from fieldslab.schemas.access import ArrayReader, Folder
from fieldslab.schemas.arrays import HEADER, make_array_header
from fieldslab.schemas.digest import BLOCK
from fieldslab.schemas.errors import DamagedArray
from fieldslab.schemas.files import RemoteDescriptor, read_exactly
from fieldslab.schemas.mapping import allocate_aligned

_PIECE = 4 << 20
"""Bytes that are read at a time: whole blocks."""
_AT_ONCE = 4
"""Pieces of an array on another machine that are asked for at a time."""
_ATTEMPTS = 3
"""How often bytes of another machine are read: some are damaged on their way."""


class VerifiedReader:
    """Reads the files of a slab for a copy, for a `with` block, in any thread."""

    def __init__(self) -> None:
        self._cancelled = Event()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="fieldslab-read", daemon=True)

    def __enter__(self) -> "VerifiedReader":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()
        asyncio.run_coroutine_threadsafe(_wait_for_tasks(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cancel(self) -> None:
        """End all reading at once, by CancelledError in the threads that read."""
        self._cancelled.set()
        self._loop.call_soon_threadsafe(_cancel_tasks, self._loop)

    def read_array(self, reader: ArrayReader) -> Iterator[memoryview]:
        """Yield the bytes of an array file, header first.

        Raises DamagedArray where a block does not match its digest, and what `open_array` raises.
        """
        file = reader.file
        with reader.open() as fd:
            yield memoryview(make_array_header(file.dtype, file.shape))
            if isinstance(fd, RemoteDescriptor):
                yield from self._read_ahead(reader, fd)
                return
            for start in range(0, file.data_bytes, _PIECE):
                data = allocate_aligned(min(_PIECE, file.data_bytes - start))
                view = memoryview(data.data)
                read_exactly(fd, view, HEADER + start, reader.path, file.field.name)
                reader.check_blocks(start // BLOCK, data)
                self._check_cancelled()
                yield view

    def read_digest_table(self, folder: Folder) -> Iterator[memoryview]:
        """Yield the bytes of a digest table, header first. Raises DamagedArray."""
        table = folder.load_digests()
        yield memoryview(make_array_header(*folder.digest.describe_file(len(table))))
        yield memoryview(table.view(np.uint8).data)

    def _read_ahead(self, reader: ArrayReader, fd: RemoteDescriptor) -> Iterator[memoryview]:
        requests: deque[tuple[int, Future[memoryview]]] = deque()
        for start in range(0, reader.file.data_bytes, _PIECE):
            requests.append((start, self._request(reader, fd, start)))
            if len(requests) == _AT_ONCE:
                yield self._take(reader, fd, *requests.popleft())
        while requests:
            yield self._take(reader, fd, *requests.popleft())

    def _request(
        self, reader: ArrayReader, fd: RemoteDescriptor, start: int
    ) -> "Future[memoryview]":
        self._check_cancelled()
        stop = min(start + _PIECE, reader.file.data_bytes)
        return asyncio.run_coroutine_threadsafe(
            fd.read_range(HEADER + start, HEADER + stop), self._loop
        )

    def _take(
        self, reader: ArrayReader, fd: RemoteDescriptor, start: int, request: "Future[memoryview]"
    ) -> memoryview:
        """Wait for a piece, and ask for it again if a block does not match."""
        for attempt in range(1, _ATTEMPTS + 1):
            view = request.result()
            try:
                reader.check_blocks(start // BLOCK, np.frombuffer(view, np.uint8))
                break
            except DamagedArray:
                if attempt == _ATTEMPTS:
                    raise
                request = self._request(reader, fd, start)
        return view

    def _check_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise CancelledError


def _cancel_tasks(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()


async def _wait_for_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*tasks, return_exceptions=True)
