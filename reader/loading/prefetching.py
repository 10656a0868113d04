"""Having blocks of coming batches fetched into a mirror before they are needed."""

import threading
from collections.abc import Container, Sequence
from contextlib import suppress
from queue import SimpleQueue

import numpy as np

from fieldslab.reader.absent import find_direct_blocks, find_value_blocks, list_arrays
from fieldslab.reader.loading.epoch_plan import EpochPlan
from fieldslab.reader.loading.next_uses import NextUses, make_next_uses
from fieldslab.reader.loading.readahead import ReadAhead
from fieldslab.reader.orders.near import AttachedNear
from fieldslab.reader.orders.order import Order
from fieldslab.reader.slab import Slab
from fieldslab.reader.stored.evictions import Evictions
from fieldslab.reader.stored.field import StoredField
from fieldslab.reader.stored.mirrors import Mirrors
from fieldslab.reader.stored.sizes import count_stored_bytes
from fieldslab.schemas.cancelling import Cancelled, set_cancelled
from fieldslab.schemas.digest import BLOCK, count_blocks
from fieldslab.schemas.errors import FieldslabError

_LEAST_AHEAD, _MOST_AHEAD = 64 * 2**20, 2**30
"""Bytes of batches that are asked for ahead: more where batches had to wait."""
_MOST_BATCHES = 1024
_FIRST, _FIRST_RUN = 32 * 2**20, 2**21
"""Bytes of values that are fetched while offsets are, of an epoch of all rows; least of a shard."""


class MirrorReadAhead(ReadAhead):
    """Asks for the rows of batches of a slab that lies elsewhere. Any thread may call it.

    A thread of its own does the asking: it has to wait for offsets before it knows which blocks of
    values come next. The thread ends when nobody holds this object.
    """

    def __init__(
        self,
        slab: Slab,
        fields: Sequence[str],
        mirrors: Mirrors,
        decoded: Container[str],
        batch_rows: int,
        share: float,
        next_uses: NextUses | None,
    ) -> None:
        """`share` is how much of the rows this machine visits in an epoch, from 0 to 1.

        With `next_uses`, a small cache hears of what is needed next.
        """
        super().__init__(slab, fields)
        self._batch_rows = batch_rows
        self._asking = _Asking(slab, fields, mirrors, decoded, share, next_uses)
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def find_distance(self, ahead: int) -> int:
        """Return for how many batches ahead rows are to be requested, `ahead` at least."""
        return min(max(ahead, self._asking.rows // self._batch_rows), _MOST_BATCHES)

    def should_skip_batch(self) -> bool:
        """Tell whether the next batch needs no look: here, each does."""
        return False

    def request_pages(self, rows: np.ndarray) -> None:
        """Ask for the blocks of rows that are absent; errors are left to gather."""
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=_ask, args=(self._asking,), name="fieldslab-prefetch", daemon=True
                )
                self._thread.start()
        self._asking.queue.put(rows)

    def __del__(self) -> None:
        self._asking.stop()


class _Asking:
    """What the thread works on; it does not hold the object that started it."""

    def __init__(
        self,
        slab: Slab,
        fields: Sequence[str],
        mirrors: Mirrors,
        decoded: Container[str],
        share: float,
        next_uses: NextUses | None,
    ) -> None:
        self.queue: SimpleQueue[np.ndarray | None] = SimpleQueue()
        self.stopped = False
        limit = mirrors.limit
        self._most = _MOST_AHEAD if limit is None else max(min(limit // 4, _MOST_AHEAD), 2**20)
        self.budget = min(_LEAST_AHEAD, self._most)
        self.slab = slab
        self.names = fields
        chosen = [slab.fields[name] for name in fields]
        self._row_bytes = max(count_stored_bytes(slab.manifest, chosen, 1), 1)
        self._mirrors = mirrors
        self._decoded = decoded
        self._share = share
        self._next_uses = next_uses
        self._requested = np.zeros(mirrors.mark_bytes, np.uint8)
        self._began = False
        self._outstanding = 0
        self._changed = threading.Condition()
        self._waits = mirrors.waits

    @property
    def rows(self) -> int:
        """Rows that are asked for ahead."""
        return self.budget // self._row_bytes

    def stop(self) -> None:
        """Have the thread end, and the helper forget what it has not begun to fetch."""
        self.stopped = True
        self.queue.put(None)
        if self._changed.acquire(blocking=False):  # the collector may call this anywhere
            self._changed.notify_all()
            self._changed.release()
        self._mirrors.cancel_prefetch()

    def request(self, rows: np.ndarray, pages: ReadAhead) -> None:
        """Ask for what rows need: first what tells the rest, and wait for it."""
        storage = self.slab.storage
        fields = [storage.load_field(name) for name in self.names]
        locations = storage.locate_rows(self.slab.view, np.ascontiguousarray(rows))
        self._widen()
        absent = self._find_absent(find_direct_blocks(fields, locations, self._decoded))
        if any(field.offsets is not None for field in fields):
            arrived = threading.Event()
            if self._mirrors.prefetch(absent, self._share, arrived.set):
                self._fetch_first(fields, locations.shards)
                while not (arrived.wait(0.1) or self.stopped):
                    pass
        else:
            self._prefetch(absent)
        if storage.evictions is not None:
            storage.evictions.note_use(fields, locations.shards)
            self._note_next_uses(fields, len(rows), storage.evictions)
        values = find_value_blocks(fields, locations, self._decoded, storage.pool)
        if not self._prefetch(self._find_absent(values)):
            pages.request_pages(rows)

    def _fetch_first(self, fields: Sequence[StoredField], shards: np.ndarray) -> None:
        """Use the network while offsets are on their way: for values that are needed anyway."""
        if self._began or self._share < 1:
            return
        self._began = True
        array = max((field.values for field in fields), key=lambda values: int(values.sizes.sum()))
        if array.mirrored is None or array.marks is None:
            return
        size = min(_FIRST, self._most // 4)
        some = np.unique(shards)[: max(size // _FIRST_RUN, 1)]
        counts = np.minimum(count_blocks(array.sizes[some]), size // len(some) // BLOCK)
        runs = [
            np.arange(first, first + count)
            for first, count in zip(array.marks.firsts[some], counts, strict=True)
        ]
        positions = array.mirrored.find_positions(np.concatenate(runs))
        # It does not count as asked for ahead: the next request must not wait for it.
        self._mirrors.prefetch(self._find_absent(positions), self._share, lambda: None)

    def _note_next_uses(
        self, fields: Sequence[StoredField], rows: int, evictions: Evictions
    ) -> None:
        """Say when shards are needed next, where the order turns to other ones."""
        if self._next_uses is not None:
            next_uses = self._next_uses.advance(rows, self.rows)
            if next_uses is not None:
                evictions.note_next_use(fields, *next_uses)

    def _widen(self) -> None:
        """Go further ahead if batches had to wait meanwhile."""
        if self._mirrors.waits > self._waits:
            self._waits = self._mirrors.waits
            self.budget = min(2 * self.budget, self._most)

    def _find_absent(self, positions: np.ndarray) -> np.ndarray:
        """Positions of blocks that were not asked for yet, and are not there."""
        bits = np.uint8(1) << (positions & 7).astype(np.uint8)
        positions = positions[self._requested[positions >> 3] & bits == 0]
        bits = np.uint8(1) << (positions & 7).astype(np.uint8)
        np.bitwise_or.at(self._requested, positions >> 3, bits)
        return positions[~self._mirrors.are_present(positions)]

    def _prefetch(self, positions: np.ndarray) -> bool:
        """Ask for blocks, but for no more than the budget at a time; False for none."""
        size = len(positions) * BLOCK
        if not size:
            return False
        with self._changed:
            while not self.stopped and self._outstanding >= self.budget:
                self._changed.wait(0.5)
            self._outstanding += size

        def done() -> None:
            with self._changed:
                self._outstanding -= size
                self._changed.notify()

        if self.stopped or not self._mirrors.prefetch(positions, self._share, done):
            done()
        return True


def _ask(asking: _Asking) -> None:
    set_cancelled(lambda: asking.stopped)
    pages = ReadAhead(asking.slab, asking.names)
    while (rows := asking.queue.get()) is not None and not asking.stopped:
        with suppress(FieldslabError, Cancelled):
            asking.request(rows, pages)


def make_read_ahead(
    slab: Slab,
    fields: Sequence[str],
    decoded: Container[str],
    order: Order,
    plan: EpochPlan,
    epoch: int,
) -> ReadAhead:
    """Make what asks for the rows of coming batches, of a slab wherever it lies.

    `order` is attached to the slab; fields that are `decoded` become images.
    """
    mirrors = slab.storage.mirrors
    if mirrors is None:
        return ReadAhead(slab, fields)
    arrays = list_arrays([slab.storage.load_field(name) for name in fields], decoded)
    if all(array.mirrored is not None and array.mirrored.is_whole() for array in arrays):
        return ReadAhead(slab, fields)
    span = 1 if order.windows is None else order.windows.span
    share = min(order.length(len(slab)) * span / max(slab.manifest.rows, 1), 1.0)
    chosen, limit = [slab.fields[name] for name in fields], mirrors.limit
    is_small = limit is not None and limit < count_stored_bytes(
        slab.manifest, chosen, slab.manifest.rows
    )
    next_uses = make_next_uses(slab, order, plan, epoch) if is_small else None
    if not isinstance(order, AttachedNear):
        # Any row may come next: what is fetched around it waits in the cache, if there is room.
        share = 0.0 if is_small else share / plan.world_size
    batch_rows = plan.batch_size * span
    return MirrorReadAhead(slab, fields, mirrors, decoded, batch_rows, share, next_uses)
