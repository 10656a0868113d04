"""The helper process: it fetches blocks into mirrors, for one process that reads them.

The libraries of stores have threads of their own, which a fork does not survive; here they are out
of the way. It serves one connection and ends with it.

What fetches is imported while the manifest is on its way, so import little here.
"""

import asyncio
import gc
import os
import socket
import sys
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from fieldslab.schemas.errors import DamagedManifest, FieldslabError
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
from fieldslab.schemas.stores.store import Store, open_store

if TYPE_CHECKING:
    from fieldslab.schemas.mirror.session import Session

_THREADS = 64
_PATIENCE = 0.5
_WATCH = 0.25
"""Seconds between looks at whether the parent lives, and at whether mirrors are whole."""
_SWITCH, _USUAL_SWITCH = 0.0005, sys.getswitchinterval()
"""Seconds until who waits for the interpreter gets it: while modules are imported, and later."""
_COLLECT_AFTER = 0.1
"""Seconds after a slab was closed, until what it was made of is collected."""
_COLLECT = 50_000
"""Objects between two runs of the collector: it would look at all requests under way, often."""


class Helper:
    """Serves one connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._opened: dict[int, tuple[Store, bytes]] = {}
        self._sessions: dict[int, Session] = {}
        self._tasks = set[asyncio.Task[object]]()

    def receive(self, frame: bytes) -> None:
        """Begin what a request asks for."""
        request = decode_request(frame)
        if isinstance(request, Detach):
            self._opened.pop(request.slab, None)
            session = self._sessions.pop(request.slab, None)
            if session is not None:
                session.close()
                # What it mapped is part of cycles: files that are deleted would stay.
                asyncio.get_running_loop().call_later(_COLLECT_AFTER, gc.collect)
            return
        if isinstance(request, Cancel):
            session = self._sessions.get(request.slab)
            if session is not None:
                session.fetcher.cancel_prefetch()
            return
        self._start(self._answer(request))

    def close(self) -> None:
        """Let go of all slabs: a cache in memory is removed with its last user."""
        sessions = sorted(self._sessions.values(), key=lambda session: session.temporary)
        for position, session in enumerate(sessions, 1):
            # Only the last one waits: the others would wait for those after them.
            session.close(_PATIENCE if position == len(sessions) else 0.0)

    async def finish_mirrors(self) -> None:
        """Make slabs of the mirrors that are whole."""
        for session in list(self._sessions.values()):
            if session.fetcher.idle and session.changed:
                with suppress(FieldslabError, OSError):  # a cache that was removed is no error here
                    await asyncio.to_thread(session.finish)

    def _start(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

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
            return await self._open(request)
        if isinstance(request, Attach):
            await self._attach(request)
        else:
            await self._sessions[request.slab].fetch(request)
        return b""

    async def _open(self, request: Open) -> bytes:
        os.environ.update(request.environment)
        store = await asyncio.to_thread(open_store, request.place, request.options)
        self._start(asyncio.to_thread(_load_session_class))
        content = await asyncio.to_thread(_read_object, store, request)
        self._opened[request.slab] = store, content
        return content

    async def _attach(self, request: Attach) -> None:
        opened = self._opened[request.slab]
        session = await asyncio.to_thread(_create_session, *opened, request)
        session.start()
        if self._opened.get(request.slab) is opened:
            self._sessions[request.slab] = session
        else:  # nobody reads it any more
            session.close()


def _read_object(store: Store, request: Open) -> bytes:
    if request.most is None:
        return bytes(store.read(request.key))
    content = store.read_small(request.key, request.most)
    if content is None:
        raise DamagedManifest(
            "is too large", file=store.locate(request.key), expected=f"at most {request.most} bytes"
        )
    return bytes(content)


def _create_session(store: Store, content: bytes, request: Attach) -> "Session":
    return _load_session_class()(store, content, request)


@cache  # to freeze sessions would keep them
def _load_session_class() -> "type[Session]":
    from fieldslab.schemas.mirror.session import Session  # numpy, and much of fieldslab

    sys.setswitchinterval(_USUAL_SWITCH)
    gc.freeze()
    return Session


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
    sys.setswitchinterval(_SWITCH)
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
