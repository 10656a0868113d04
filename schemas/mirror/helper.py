"""The helper process: it fetches blocks into mirrors, for one process that reads them.

The libraries of stores have threads of their own, which a fork does not survive; here they are out
of the way. It serves one connection and ends with it.
"""

import asyncio
import gc
import os
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np

from fieldslab.schemas.errors import FieldslabError, SlabChanged
from fieldslab.schemas.manifest import Manifest
from fieldslab.schemas.mirror.blockmap import BlockMap
from fieldslab.schemas.mirror.cache import CacheDirectory
from fieldslab.schemas.mirror.fetching import Fetcher
from fieldslab.schemas.mirror.finishing import publish_manifest
from fieldslab.schemas.mirror.messages import (
    LENGTH,
    Attach,
    Cancel,
    DamagedBlock,
    Detach,
    Fetch,
    Open,
    Reply,
    decode_request,
    encode_error,
    encode_frame,
)
from fieldslab.schemas.mirror.remote_slab import RemoteSlab
from fieldslab.schemas.mirror.room import MirrorFiles, Room
from fieldslab.schemas.stores.slab_objects import read_manifest
from fieldslab.schemas.stores.store import Store, open_store

_THREADS = 64
_PATIENCE = 0.5
_WATCH = 0.25
"""Seconds between looks at whether the parent lives, and at whether mirrors are whole."""
_COLLECT = 50_000
"""Objects between two runs of the collector: it would look at all requests under way, often."""


class Session:
    """A slab that is read: its store, and its mirror once there is one."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.content = b""
        self.fetcher: Fetcher | None = None
        self.files: MirrorFiles | None = None
        self.cache: CacheDirectory | None = None
        self.changed = False
        self.manifest: Manifest | None = None

    def load_manifest(self) -> bytes:
        """Read the manifest, once; raises what `read_manifest` raises."""
        if not self.content:
            self.manifest, self.content = read_manifest(self.store)
        return self.content

    def attach(self, request: Attach) -> None:
        """Open the mirror. Raises SlabChanged, and what a cache directory raises."""
        self.load_manifest()
        manifest = self.manifest
        assert manifest is not None
        if manifest.id != request.content:
            raise SlabChanged(
                "another slab is there since it was opened",
                file=self.store.url,
                expected=request.content,
                found=manifest.id,
                hint="Open it again.",
            )
        self.cache = CacheDirectory(
            Path(request.cache), shared=request.shared, temporary=request.temporary
        )
        self.files = MirrorFiles(self.cache.path, manifest.id, BlockMap(manifest))
        self.room = Room(self.cache, request.limit)

    def start(self) -> None:
        """Begin to fetch; for the event loop's thread."""
        assert self.manifest is not None
        assert self.files is not None
        self.fetcher = Fetcher(RemoteSlab(self.store, self.manifest), self.files, self.room)

    def finish(self) -> None:
        """Make a slab of the mirror if it is whole."""
        if self.files is not None and self.cache is not None:
            self.changed = False
            publish_manifest(self.cache, self.files)

    def is_temporary(self) -> bool:
        """Tell whether the cache is deleted after its last user."""
        return self.cache is not None and self.cache.temporary

    def close(self, patience: float = 0.0) -> None:
        """Let go of everything; see `CacheDirectory.close`."""
        if self.fetcher is not None:
            self.fetcher.close()
            self.room.close()
        if self.files is not None:
            self.files.close()
        if self.cache is not None:
            self.cache.close(patience)


class Helper:
    """Serves one connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._sessions: dict[int, Session] = {}
        self._tasks = set[asyncio.Task[None]]()

    def receive(self, frame: bytes) -> None:
        """Begin what a request asks for."""
        request = decode_request(frame)
        if isinstance(request, Detach):
            session = self._sessions.pop(request.slab, None)
            if session is not None:
                session.close()
            return
        if isinstance(request, Cancel):
            session = self._sessions.get(request.slab)
            if session is not None and session.fetcher is not None:
                session.fetcher.cancel_prefetch()
            return
        task = asyncio.create_task(self._answer(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Let go of all slabs: a cache in memory is removed with its last user."""
        sessions = sorted(self._sessions.values(), key=Session.is_temporary)
        for position, session in enumerate(sessions, 1):
            # Only the last one waits: the others would wait for those after them.
            session.close(_PATIENCE if position == len(sessions) else 0.0)

    async def finish_mirrors(self) -> None:
        """Make slabs of the mirrors that are whole."""
        for session in list(self._sessions.values()):
            if session.fetcher is not None and session.fetcher.idle and session.changed:
                with suppress(FieldslabError, OSError):  # a cache that was removed is no error here
                    await asyncio.to_thread(session.finish)

    async def _answer(self, request: Open | Attach | Fetch) -> None:
        try:
            content = await self._do(request)
        except DamagedBlock as damage:
            answer = encode_frame(encode_error(request.request, damage.error, damage.position))
        except Exception as error:  # noqa: BLE001 - whoever asked is told
            answer = encode_frame(encode_error(request.request, error))
        else:
            answer = encode_frame(Reply(request.request, content))
        self._writer.write(answer)

    async def _do(self, request: Open | Attach | Fetch) -> bytes:
        if isinstance(request, Open):
            os.environ.update(request.environment)
            store = await asyncio.to_thread(open_store, request.place, request.options)
            self._sessions[request.slab] = session = Session(store)
            if request.key:
                return bytes(await asyncio.to_thread(store.read, request.key))
            return await asyncio.to_thread(session.load_manifest)
        session = self._sessions[request.slab]
        if isinstance(request, Attach):
            await asyncio.to_thread(session.attach, request)
            session.start()
            return b""
        assert session.fetcher is not None
        ranges = np.frombuffer(request.ranges, np.int64).reshape(-1, 2)
        runs = [(start, stop) for start, stop in ranges.tolist()]
        session.changed = True
        await session.fetcher.fetch(runs, request.demand, request.again, request.share)
        return b""


async def _serve(connection: socket.socket, parent: int) -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(_THREADS, thread_name_prefix="fetch"))
    reader, writer = await asyncio.open_connection(sock=connection, limit=2**20)
    helper = Helper(writer)
    tasks = [asyncio.create_task(_watch(parent, helper)), asyncio.create_task(_finish(helper))]
    with suppress(asyncio.IncompleteReadError, OSError):
        while True:
            (size,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
            helper.receive(await reader.readexactly(size))
    for task in tasks:
        task.cancel()
    helper.close()


async def _watch(parent: int, helper: Helper) -> None:
    """End with the parent, even if something that it forked keeps the connection open."""
    while os.getppid() == parent:
        await asyncio.sleep(_WATCH)
    with suppress(Exception):  # the end of the connection may be seen later than this
        helper.close()
    os._exit(0)


async def _finish(helper: Helper) -> None:
    """Make slabs of mirrors, but spend little of the time on looking for whole ones."""
    while True:
        started = time.monotonic()
        await helper.finish_mirrors()
        await asyncio.sleep(max(_WATCH, min(10 * (time.monotonic() - started), 5)))


def main(descriptor: int, parent: int) -> None:
    """Serve until the other end of the connection closes."""
    gc.freeze()
    gc.set_threshold(_COLLECT)
    connection = socket.socket(fileno=descriptor)
    connection.setblocking(False)
    try:
        asyncio.run(_serve_and_exit(connection, parent))
    except BaseException as error:  # noqa: BLE001 - nobody else would hear of it
        sys.stderr.write(f"the helper process failed: {error!r}\n")
        os._exit(1)


async def _serve_and_exit(connection: socket.socket, parent: int) -> None:
    await _serve(connection, parent)
    os._exit(0)  # at once: threads may wait for a network
