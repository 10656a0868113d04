"""Fetching the blocks of a mirror from a store: together, each once, verified, the urgent first."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial

import numpy as np

from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.digest import BLOCK, DigestValue
from fieldslab.schemas.errors import DamagedArray
from fieldslab.schemas.mirror.blockmap import GRANULE, BlockMap, Unit
from fieldslab.schemas.mirror.messages import DamagedBlock
from fieldslab.schemas.mirror.pace import Pace
from fieldslab.schemas.mirror.parts import Part, Parts, ignore_error
from fieldslab.schemas.mirror.remote_slab import RemoteSlab
from fieldslab.schemas.mirror.room import MirrorFiles, Room

ATTEMPTS = 3
"""So often a block is fetched until it matches its digest."""
_SMALL = 256 * 1024
"""Less is compared and written where it arrives: a thread would take longer to wake."""
_LARGE = 16 * 2**20
"""Tables of more bytes are compared with the size of the object before memory is taken."""
_TABLES = 512


class Fetcher:
    """Fetches blocks of one slab into its mirror; it belongs to an event loop."""

    def __init__(self, slab: RemoteSlab, files: MirrorFiles, room: Room) -> None:
        self._slab = slab
        self._files = files
        self._room = room
        self._blocks: BlockMap = files.blocks
        self._digest = files.blocks.digest
        self._presence = files.presence
        self._pace = Pace(int(self._blocks.blocks.sum()))
        self._parts = Parts(self._blocks, self._presence, self._pace, self._fetch_part)
        self._units: Counter[int] = Counter()
        self._locked: Counter[int] = Counter()
        self._tables: dict[int, asyncio.Task[np.ndarray]] = {}

    async def fetch(
        self, ranges: Iterable[tuple[int, int]], demand: bool, again: bool, share: float
    ) -> None:
        """Fetch the blocks at these positions, unless they are present.

        For a prefetch, `share` is how much of the data around is needed later, from 0 to 1.

        Raises
        ------
        DamagedBlock
            A block does not match its digest, however often it is fetched.
        SlabChanged
            Another slab lies in the store by now.
        RemoteUnreadable, AccessDenied, NoSpace, UsageError
            As the store and the cache directory raise them.
        """
        parts = self._parts.add(ranges, demand, again, share)
        # All of them end before the first error is raised: nothing goes on unseen.
        units = {part.unit.number for part in parts} if demand else set()
        self._units.update(units)  # what one request needs is there all at once
        try:
            if parts:
                await asyncio.wait([part.done for part in parts])
        finally:
            self._units.subtract(units)
        for part in parts:
            part.done.result()

    def cancel_prefetch(self) -> None:
        """Drop requests that nothing waits for, unless they are being fetched."""
        self._parts.cancel_prefetch()

    def is_held(self, content: str, unit: int) -> bool:
        """Tell whether a unit is part of what is being fetched."""
        return content == self._files.content and self._units[unit] > 0

    @property
    def idle(self) -> bool:
        """Whether nothing is being fetched."""
        return self._parts.idle

    def close(self) -> None:
        """Fetch no more."""
        self._parts.close()
        for task in self._tables.values():
            task.cancel()

    async def _fetch_part(self, part: Part) -> None:
        unit = part.unit
        if unit.file is None:
            if part.again:
                self._tables.pop(unit.folder, None)
            await asyncio.shield(self._load_table(unit, part.again))
            return
        table = self._load_table(self._find_table_unit(unit))
        begin, end = part.start // GRANULE, -(-part.stop // GRANULE)
        await self._lock(begin, end)
        try:
            for start, stop in self._list_absent_runs(part):
                await self._fetch_run(part, start, stop, table)
        finally:
            self._unlock(begin, end)

    def _list_absent_runs(self, part: Part) -> list[tuple[int, int]]:
        """What of a part no other process has fetched meanwhile."""
        if part.again:
            self._presence.clear_marks(part.start, part.stop)
            return [(part.start, part.stop)]
        return self._presence.list_absent_runs(part.start, part.stop)

    async def _fetch_run(
        self, part: Part, start: int, stop: int, table: "asyncio.Task[np.ndarray]"
    ) -> None:
        """Fetch neighbouring blocks of a part, compare them, write them, mark them.

        Their digests, in `table`, may still be on their way.
        """
        unit, count = part.unit, stop - start
        assert unit.file is not None
        first = start - self._blocks.get_first_position(unit.number)
        begin, end = first * BLOCK, min((first + count) * BLOCK, unit.file.data_bytes)
        reserved = 0 if part.again else count * BLOCK
        if not self._room.try_reserve(reserved):
            await asyncio.to_thread(self._room.reserve, reserved, self.is_held)
        try:
            key = f"{unit.folder_name}/{unit.file_name}"
            for attempt in range(ATTEMPTS):
                data = await self._slab.read(key, HEADER + begin, HEADER + end)
                if part.share:
                    self._pace.note(end - begin, self._parts.full)
                digests = await asyncio.shield(table)
                expected = digests[unit.file.first_block + first :][:count]
                accept = partial(self._accept_blocks, unit, first, data, expected)
                wrong = accept() if len(data) <= _SMALL else await asyncio.to_thread(accept)
                if wrong is None:
                    self._presence.set_marks(start, stop)
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
                    expected=self._digest.format(expected[block].item()),
                    found=self._digest.format(computed),
                    hint="Copy the slab there again.",
                ),
            )
        finally:
            if reserved:
                await asyncio.to_thread(self._room.release, reserved)

    def _load_table(self, unit: Unit, again: bool = False) -> "asyncio.Task[np.ndarray]":
        """Begin to load the digest table of a folder, whose unit this is, unless it was begun.

        It comes from the mirror, or is fetched. Shield the task: others wait for it, too.
        """
        task = self._tables.get(unit.folder)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            while len(self._tables) >= _TABLES:
                self._tables.pop(next(iter(self._tables)))
            task = asyncio.create_task(self._fetch_table(unit, again))
            task.add_done_callback(ignore_error)
            self._tables[unit.folder] = task
        return task

    async def _fetch_table(self, unit: Unit, again: bool) -> np.ndarray:
        position = self._blocks.get_first_position(unit.number)
        size = self._blocks.count_digest_bytes(unit.folder)
        root = self._blocks.get_root(unit.folder)
        await asyncio.to_thread(self._files.sparse.prepare_folder, unit.folder, unit.folder_name)
        begin = position // GRANULE
        await self._lock(begin, begin + 1)
        try:
            if not again and self._presence.is_present(position):
                table = await asyncio.to_thread(self._read_table, unit, size)
                if self._digest.compute_root(table) == root:
                    return table
            self._presence.clear_marks(position, position + 1)
            key = f"{unit.folder_name}/{unit.file_name}"
            for attempt in range(ATTEMPTS):
                if size > _LARGE:
                    await self._slab.check_size(key, HEADER + size)
                data = await self._slab.read(key, HEADER, HEADER + size)
                if len(data) == size:
                    table = self._digest.view_table(data)
                    if self._digest.compute_root(table) == root:
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
    ) -> tuple[int, DigestValue] | None:
        """Write blocks if all are right; otherwise return the first that is not, and its digest."""
        for index, value in enumerate(expected.tolist()):
            computed = self._digest.compute(data[index * BLOCK : (index + 1) * BLOCK])
            if computed != value:
                return index, computed
        self._write(unit, first, data)
        return None

    def _read_table(self, unit: Unit, size: int) -> np.ndarray:
        data = self._files.sparse.read_bytes(unit, HEADER, size)
        width = self._digest.dtype.itemsize
        return self._digest.view_table(data[: len(data) // width * width])

    def _write(self, unit: Unit, first: int, data: memoryview) -> None:
        with self._files.sparse.open_file(unit) as fd:
            self._files.sparse.write_blocks(fd, first, data)

    async def _lock(self, begin: int, end: int) -> None:
        """Take the right to fetch granules, and wait while other processes have it."""
        if not any(map(self._locked.get, range(begin, end))) and self._presence.lock_bytes(
            begin, end - begin
        ):
            self._locked.update(range(begin, end))
            return
        pause = 0.001
        for granule in range(begin, end):
            while not self._locked[granule] and not self._presence.lock_bytes(granule, 1):
                await asyncio.sleep(pause)
                pause = min(2 * pause, 0.02)
            self._locked[granule] += 1

    def _unlock(self, begin: int, end: int) -> None:
        alone = all(self._locked[granule] == 1 for granule in range(begin, end))
        for granule in range(begin, end):
            self._locked[granule] -= 1
            if not self._locked[granule]:
                del self._locked[granule]
                if not alone:
                    self._presence.unlock_bytes(granule, 1)
        if alone:
            self._presence.unlock_bytes(begin, end - begin)
