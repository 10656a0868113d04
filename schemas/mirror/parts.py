"""Which requests are made to a store, and in which order: the urgent first, nothing twice."""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from fieldslab.schemas.digest import BLOCK
from fieldslab.schemas.mirror.blockmap import BlockMap, Unit
from fieldslab.schemas.mirror.messages import DamagedBlock
from fieldslab.schemas.mirror.pace import Pace
from fieldslab.schemas.mirror.presence import Presence

_MOST_BLOCKS = 2 * 2**20 // BLOCK
"""Blocks of one request, at most."""
_MOST_REQUESTS = 64
"""Requests to the store at a time; fewer for prefetches."""
_MOST_AHEAD, _MOST_ASIDE = 48, 8
"""The same of prefetches: usually, and while other requests are waited for."""
_DEMANDED, _PREFETCHED, _NOT_QUEUED = range(3)


class Dropped(Exception):
    """Nobody waited for it."""


class Part:
    """Neighbouring blocks of one unit that are fetched together.

    Attributes
    ----------
    unit, start, stop
        The unit, and the positions of its first block and behind its last one.
    asked
        The positions that were asked for, without what is fetched around them.
    again
        Whether blocks that carry marks are fetched, too.
    share
        How much of what lies around is needed later, from 0 to 1.
    ahead
        Whether it is a prefetch.
    done
        Ends when all blocks are there, or with an error.
    """

    def __init__(self, unit: Unit, start: int, stop: int, again: bool, share: float) -> None:
        self.unit = unit
        self.start = start
        self.stop = stop
        self.asked = start, stop
        self.again = again
        self.share = share
        self.started = False
        self.priority = _NOT_QUEUED
        self.absorbed: list[Part] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.done.add_done_callback(ignore_error)

    @property
    def ahead(self) -> bool:
        """See the class."""
        return self.priority == _PREFETCHED


class Parts:
    """All parts that are to be fetched, or are on their way; it belongs to an event loop."""

    def __init__(
        self,
        blocks: BlockMap,
        presence: Presence,
        pace: Pace,
        fetch: Callable[[Part], Awaitable[None]],
    ) -> None:
        """`fetch` fetches a part."""
        self._blocks = blocks
        self._presence = presence
        self._pace = pace
        self._fetch = fetch
        self._pending: dict[int, Part] = {}
        self._queues: tuple[deque[Part], deque[Part]] = deque(), deque()
        self._running: dict[asyncio.Task[None], Part] = {}

    @property
    def idle(self) -> bool:
        """Whether nothing is to be fetched."""
        return not self._pending

    @property
    def full(self) -> bool:
        """Whether prefetches have to wait."""
        return bool(self._queues[_PREFETCHED])

    def add(
        self, ranges: Iterable[tuple[int, int]], demand: bool, again: bool, share: float
    ) -> list[Part]:
        """Return the parts that bring blocks here: those under way already, and new ones."""
        parts = dict[int, Part]()
        for start, stop in ranges:
            run = start
            for position in range(start, stop):
                part = self._pending.get(position)
                if part is None and (again or not self._presence.is_present(position)):
                    continue
                self._create_parts(parts, run, position, again, share)
                run = position + 1
                if part is not None:
                    parts[id(part)] = part
            self._create_parts(parts, run, stop, again, share)
        priority = _DEMANDED if demand else _PREFETCHED
        for part in parts.values():
            if not part.started and priority < part.priority:
                part.priority = priority
                self._queues[priority].append(part)
        self._start_parts()
        return list(parts.values())

    def cancel_prefetch(self) -> None:
        """Drop requests that nothing waits for, unless they are being fetched."""
        for part in set(self._pending.values()):
            if not part.started and part.ahead:
                part.started = True
                part.done.set_exception(Dropped())
                self._forget(part)

    def close(self) -> None:
        """Fetch no more."""
        for queue in self._queues:
            queue.clear()
        for task in self._running:
            task.cancel()

    def _create_parts(
        self, parts: dict[int, Part], start: int, stop: int, again: bool, share: float
    ) -> None:
        """Create parts of neighbouring positions, each within one unit."""
        while start < stop:
            number = self._blocks.find_unit_at(start)
            _, last = self._find_ends(number)
            end = min(stop, last, start + _MOST_BLOCKS)
            if end <= start:  # no block has this position
                return
            part = Part(self._blocks.get_unit(number), start, end, again, share)
            for position in range(start, end):
                self._pending[position] = part
            parts[id(part)] = part
            start = end

    def _find_ends(self, unit: int) -> tuple[int, int]:
        first = self._blocks.get_first_position(unit)
        return first, first + int(self._blocks.blocks[unit])

    def _start_parts(self) -> None:
        """Begin to fetch what comes next, as many parts as may be on their way."""
        counts = Counter(part.priority for part in self._running.values())
        for priority, queue in enumerate(self._queues):
            most = _MOST_REQUESTS
            if priority == _PREFETCHED:
                most = _MOST_ASIDE if counts[_DEMANDED] else _MOST_AHEAD
            while queue and len(self._running) < _MOST_REQUESTS and counts[priority] < most:
                part = queue.popleft()
                if not part.started:
                    part.started = True
                    counts[priority] += 1
                    self._extend(part)
                    task = asyncio.create_task(self._run(part))
                    self._running[task] = part
                    task.add_done_callback(self._end)

    def _extend(self, part: Part) -> None:
        """Add what lies around a part, as far as the pace allows and it is needed later."""
        extent = round(self._pace.extent * part.share)
        if extent > 1:
            first, last = self._find_ends(part.unit.number)
            low = first + (part.start - first) // extent * extent
            high = min(first - (first - part.stop) // extent * extent, last)
            while part.start > low and self._take(part, part.start - 1):
                pass
            while part.stop < high and self._take(part, part.stop):
                pass

    def _take(self, part: Part, position: int) -> bool:
        """Add a block beside a part to it, or the waiting part that it belongs to."""
        other = self._pending.get(position)
        if other is None:
            start, stop = position, position + 1
            if self._presence.is_present(position):
                return False
        elif other.started or other.again:
            return False
        else:
            start, stop = other.start, other.stop
            other.started = True
            part.absorbed.append(other)
        for block in range(start, stop):
            self._pending[block] = part
        part.start, part.stop = min(part.start, start), max(part.stop, stop)
        return True

    async def _run(self, part: Part) -> None:
        error: BaseException | None = None
        try:
            await self._fetch(part)
        except asyncio.CancelledError:
            raise
        except BaseException as caught:  # noqa: BLE001 - whoever waits for the part hears of it
            error = caught
        self._forget(part)
        if isinstance(error, DamagedBlock) and (part.start, part.stop) != part.asked:
            self._fetch_apart(part)  # the damage may lie where nobody reads
            return
        for each in (part, *part.absorbed):
            if error is None:
                each.done.set_result(None)
            else:
                each.done.set_exception(error)

    def _fetch_apart(self, part: Part) -> None:
        """Queue again what was fetched together, each by itself and with nothing around it."""
        for each in (part, *part.absorbed):
            each.start, each.stop = each.asked
            each.share, each.started, each.absorbed = 0.0, False, []
            self._pending.update(dict.fromkeys(range(each.start, each.stop), each))
            self._queues[each.priority].append(each)

    def _end(self, task: "asyncio.Task[None]") -> None:
        del self._running[task]
        self._start_parts()

    def _forget(self, part: Part) -> None:
        for position in range(part.start, part.stop):
            if self._pending.get(position) is part:
                del self._pending[position]


def ignore_error(future: "asyncio.Future[Any]") -> None:
    """Have nobody told of an error that nobody waited for."""
    if not future.cancelled():
        future.exception()
