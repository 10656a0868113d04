"""Fetching the blocks of a mirror from a store: together, each once, verified, the urgent first."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial
from itertools import count

import numpy as np

from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.digest import BLOCK, compute_root, digest
from fieldslab.schemas.errors import DamagedArray, FieldslabError
from fieldslab.schemas.mirror.blockmap import GRANULE, BlockMap, Unit
from fieldslab.schemas.mirror.messages import DamagedBlock
from fieldslab.schemas.mirror.names import make_cache_error
from fieldslab.schemas.mirror.positions import join_positions
from fieldslab.schemas.mirror.remote_slab import RemoteSlab
from fieldslab.schemas.mirror.room import MirrorFiles, Room

PART = 2 * 2**20 // BLOCK
"""Blocks that one request to the store asks for, at most."""
ATTEMPTS = 3
"""So often a block is fetched until it matches its digest."""
_LANES = 64
"""Requests to the store at a time."""
_SMALL = 256 * 1024
"""Less is compared and written where it arrives: a thread would take longer to wake."""
_DEMANDED, _PREFETCHED, _NOT_QUEUED = range(3)
_LARGE = 16 * 2**20
"""Tables of more bytes are compared with the size of the object before memory is taken."""
_TABLES = 512
_DIGEST = np.dtype("<u8")


class _Dropped(Exception):
    """Nobody waited for it."""


class _Part:
    """Neighbouring blocks of one unit, fetched by one request."""

    def __init__(self, unit: Unit, start: int, stop: int, again: bool) -> None:
        self.unit = unit
        self.start = start
        self.stop = stop
        self.again = again
        self.started = False
        self.priority = _NOT_QUEUED
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Fetcher:
    """Fetches blocks of one slab into its mirror; it belongs to an event loop."""

    def __init__(self, slab: RemoteSlab, files: MirrorFiles, room: Room) -> None:
        self._slab = slab
        self._files = files
        self._room = room
        self._blocks: BlockMap = files.blocks
        self._presence = files.presence
        self._pending: dict[int, _Part] = {}
        self._units: Counter[int] = Counter()
        self._locked: Counter[int] = Counter()
        self._tables: dict[int, asyncio.Task[np.ndarray]] = {}
        self._queue: asyncio.PriorityQueue[tuple[int, int, _Part]] = asyncio.PriorityQueue()
        self._order = count()
        self._lanes = [asyncio.create_task(self._run_lane()) for _ in range(_LANES)]

    async def fetch(self, ranges: Iterable[tuple[int, int]], demand: bool, again: bool) -> None:
        """Have the blocks at these positions there.

        Raises
        ------
        DamagedBlock
            A block does not match its digest, however often it is fetched.
        SlabChanged
            Another slab lies in the store by now.
        RemoteUnreadable, AccessDenied, NoSpace, UsageError
            As the store and the cache directory raise them.
        """
        parts = self._find_parts(ranges, again)
        priority = _DEMANDED if demand else _PREFETCHED
        for part in parts:
            if not part.started and priority < part.priority:
                part.priority = priority
                self._queue.put_nowait((priority, next(self._order), part))
        # All of them end before the first error is raised: nothing goes on unseen.
        units = {part.unit.number for part in parts} if demand else set()
        self._units.update(units)  # what one request needs is there all at once
        try:
            outcomes = await asyncio.gather(
                *(asyncio.shield(part.done) for part in parts), return_exceptions=True
            )
        finally:
            self._units.subtract(units)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def cancel_prefetch(self) -> None:
        """Forget what nobody waits for, unless it is on its way."""
        for part in set(self._pending.values()):
            if not part.started and part.priority != _DEMANDED:
                part.started = True
                part.done.set_exception(_Dropped())
                self._forget(part)

    def is_held(self, content: str, unit: int) -> bool:
        """Whether a unit is part of what is being fetched."""
        return content == self._files.content and self._units[unit] > 0

    @property
    def idle(self) -> bool:
        """Whether nothing is being fetched."""
        return not self._pending

    def close(self) -> None:
        """Fetch no more."""
        for task in (*self._lanes, *self._tables.values()):
            task.cancel()

    def _find_parts(self, ranges: Iterable[tuple[int, int]], again: bool) -> list[_Part]:
        """The parts that fetch what is absent: those under way already, and new ones."""
        parts = dict[int, _Part]()
        for start, stop in ranges:
            run = start
            for position in range(start, stop):
                part = self._pending.get(position)
                if part is None and not again and self._presence.is_present(position):
                    part = None
                elif part is None:
                    continue
                self._add_parts(parts, run, position, again)
                run = position + 1
                if part is not None:
                    parts[id(part)] = part
            self._add_parts(parts, run, stop, again)
        return list(parts.values())

    def _add_parts(self, parts: dict[int, _Part], start: int, stop: int, again: bool) -> None:
        """Make parts of neighbouring positions, each within one unit."""
        while start < stop:
            index = int(self._blocks.find_units(np.array([start]))[0])
            first = self._blocks.get_first_position(index)
            end = min(stop, first + int(self._blocks.blocks[index]), start + PART)
            if end <= start:  # no block has this position
                return
            part = _Part(self._blocks.get_unit(index), start, end, again)
            part.done.add_done_callback(_ignore_error)
            for position in range(start, end):
                self._pending[position] = part
            parts[id(part)] = part
            start = end

    async def _run_lane(self) -> None:
        while True:
            _, _, part = await self._queue.get()
            if part.started:
                continue
            part.started = True
            try:
                await self._fetch_part(part)
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # noqa: BLE001 - whoever waits for the part hears of it
                part.done.set_exception(error)
            else:
                part.done.set_result(None)
            finally:
                self._forget(part)

    def _forget(self, part: _Part) -> None:
        for position in range(part.start, part.stop):
            if self._pending.get(position) is part:
                del self._pending[position]

    async def _fetch_part(self, part: _Part) -> None:
        unit = part.unit
        if unit.file is None:
            if part.again:
                self._tables.pop(unit.folder, None)
            await self._load_table(unit, part.again)
            return
        table = await self._load_table(self._find_table_unit(unit), again=False)
        begin, end = part.start // GRANULE, -(-part.stop // GRANULE)
        await self._lock(begin, end)
        try:
            for start, stop in self._list_absent_runs(part):
                first = start - self._blocks.get_first_position(unit.number)
                expected = table[unit.file.first_block + first :][: stop - start]
                await self._fetch_run(unit, start, first, expected, part.again)
        finally:
            self._unlock(begin, end)

    def _list_absent_runs(self, part: _Part) -> list[tuple[int, int]]:
        """What of a part no other process has fetched meanwhile."""
        if part.again:
            self._presence.clear_marks(part.start, part.stop)
            return [(part.start, part.stop)]
        absent = [
            position
            for position in range(part.start, part.stop)
            if not self._presence.is_present(position)
        ]
        return list(join_positions(np.array(absent, np.int64)))

    async def _fetch_run(
        self, unit: Unit, start: int, first: int, expected: np.ndarray, again: bool
    ) -> None:
        """Fetch neighbouring blocks, compare them, write them, mark them."""
        assert unit.file is not None
        begin, end = first * BLOCK, min((first + len(expected)) * BLOCK, unit.file.data_bytes)
        reserved = 0 if again else len(expected) * BLOCK
        if not self._room.try_reserve(reserved):
            await asyncio.to_thread(self._room.reserve, reserved, self.is_held)
        try:
            key = f"{unit.folder_name}/{unit.file_name}"
            for attempt in range(ATTEMPTS):
                data = await self._slab.read(key, HEADER + begin, HEADER + end)
                accept = partial(self._accept_blocks, unit, first, data, expected)
                wrong = accept() if len(data) <= _SMALL else await asyncio.to_thread(accept)
                if wrong is None:
                    self._presence.set_marks(start, start + len(expected))
                    self._presence.uses[unit.number] = time.time()
                    reserved = 0
                    return
                if attempt + 1 < ATTEMPTS:
                    await asyncio.sleep(0.05 * 4**attempt)
            await self._slab.check_content()
            assert wrong is not None
            block, computed = wrong
            raise DamagedBlock(
                start + block,
                DamagedArray(
                    "a block does not match its digest, however often it is fetched",
                    file=self._slab.locate(key),
                    field=unit.file.field.name,
                    offset=HEADER + begin + block * BLOCK,
                    attempts=ATTEMPTS,
                    expected=f"{int(expected[block]):016x}",
                    found=f"{computed:016x}",
                    hint="Copy the slab there again.",
                ),
            )
        finally:
            if reserved:
                await asyncio.to_thread(self._room.release, reserved)

    async def _load_table(self, unit: Unit, again: bool) -> np.ndarray:
        """The digest table of a folder, whose unit this is: from the mirror, or fetched."""
        task = self._tables.get(unit.folder)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            while len(self._tables) >= _TABLES:
                self._tables.pop(next(iter(self._tables)))
            task = asyncio.create_task(self._fetch_table(unit, again))
            self._tables[unit.folder] = task
        return await asyncio.shield(task)

    async def _fetch_table(self, unit: Unit, again: bool) -> np.ndarray:
        position = self._blocks.get_first_position(unit.number)
        size = _DIGEST.itemsize * self._blocks.count_digests(unit.folder)
        root = self._blocks.get_root(unit.folder)
        await asyncio.to_thread(self._files.sparse.prepare_folder, unit.folder, unit.folder_name)
        begin = position // GRANULE
        await self._lock(begin, begin + 1)
        try:
            if not again and self._presence.is_present(position):
                table = await asyncio.to_thread(self._read_table, unit, size)
                if compute_root(table) == root:
                    return table
            self._presence.clear_marks(position, position + 1)
            key = f"{unit.folder_name}/{unit.file_name}"
            for attempt in range(ATTEMPTS):
                if size > _LARGE:
                    await self._slab.check_size(key, HEADER + size)
                data = await self._slab.read(key, HEADER, HEADER + size)
                if len(data) == size:
                    table = np.frombuffer(data, _DIGEST)
                    if compute_root(table) == root:
                        await asyncio.to_thread(self._write, unit, 0, data)
                        self._presence.set_marks(position, position + 1)
                        return table
                if attempt + 1 < ATTEMPTS:
                    await asyncio.sleep(0.05 * 4**attempt)
            await self._slab.check_content()
            raise DamagedArray(
                "digest table is damaged, however often it is fetched",
                file=self._slab.locate(key),
                row=self._blocks.describe_rows(unit.folder),
                attempts=ATTEMPTS,
                expected=root,
                hint="Copy the slab there again.",
            )
        finally:
            self._unlock(begin, begin + 1)

    def _find_table_unit(self, unit: Unit) -> Unit:
        return self._blocks.get_unit(self._blocks.find_unit(unit.folder, None))

    def _accept_blocks(
        self, unit: Unit, first: int, data: memoryview, expected: np.ndarray
    ) -> tuple[int, int] | None:
        """Write blocks if all are right; otherwise return the first that is not, and its digest."""
        for index, value in enumerate(expected.tolist()):
            computed = digest(data[index * BLOCK : (index + 1) * BLOCK])
            if computed != value:
                return index, computed
        self._write(unit, first, data)
        return None

    def _read_table(self, unit: Unit, size: int) -> np.ndarray:
        with self._files.sparse.open_file(unit) as fd:
            data = _pread_all(fd, size)
        return np.frombuffer(data, _DIGEST, len(data) // _DIGEST.itemsize)

    def _write(self, unit: Unit, first: int, data: memoryview) -> None:
        try:
            with self._files.sparse.open_file(unit) as fd:
                self._files.sparse.write_blocks(fd, first, data)
        except OSError as error:
            if isinstance(error, FieldslabError):
                raise
            raise make_cache_error(error, self._files.sparse.path) from error

    async def _lock(self, begin: int, end: int) -> None:
        """Take the right to fetch granules, and wait while other processes have it."""
        pause = 0.001
        for granule in range(begin, end):
            while not self._locked[granule] and not self._presence.lock_bytes(granule, 1):
                await asyncio.sleep(pause)
                pause = min(2 * pause, 0.02)
            self._locked[granule] += 1

    def _unlock(self, begin: int, end: int) -> None:
        for granule in range(begin, end):
            self._locked[granule] -= 1
            if not self._locked[granule]:
                del self._locked[granule]
                self._presence.unlock_bytes(granule, 1)


def _pread_all(fd: int, size: int) -> bytes:
    parts = []
    offset = HEADER
    while offset < HEADER + size:
        data = os.pread(fd, HEADER + size - offset, offset)
        if not data:
            break
        parts.append(data)
        offset += len(data)
    return b"".join(parts)


def _ignore_error(future: "asyncio.Future[None]") -> None:
    if not future.cancelled():
        future.exception()
