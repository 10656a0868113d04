"""How a batch is made: rows from the order, gathered, transformed, converted."""

import threading
from collections.abc import Mapping, Sequence

import numpy as np

from fieldslab.reader import forks
from fieldslab.reader.batch import Batch
from fieldslab.reader.images.steps import ImageSteps
from fieldslab.reader.loading.chain import Chain
from fieldslab.reader.loading.epoch_plan import EpochPlan
from fieldslab.reader.loading.readahead import ReadAhead
from fieldslab.reader.loading.stats import PreparedBatch, Stopwatch
from fieldslab.reader.orders.order import Order
from fieldslab.reader.rows import as_rows
from fieldslab.reader.slab import Slab, read_batch

STRETCH = 4096
"""Positions whose rows are computed at once: for one small batch, it takes as long as to gather."""


class Preparation:
    """Makes the batches of an epoch by their number; any number of threads may call it at once."""

    def __init__(
        self,
        slab: Slab,
        order: Order,
        epoch: int,
        plan: EpochPlan,
        fields: Sequence[str],
        chain: Chain,
        read_ahead: ReadAhead | None,
        ahead: int,
        decode: Mapping[str, ImageSteps] | None = None,
        live: int = 1,
    ) -> None:
        """See `Loader` for what these are; `read_ahead` goes `ahead` batches before.

        `live` batches may be made before the consumer reads one.
        """
        self._slab = slab
        self._order = order
        self._epoch = epoch
        self._plan = plan
        self._fields = fields
        self._decode = decode or {}
        self._chain = chain
        self._read_ahead = read_ahead
        self._ahead = ahead
        self._live = 1 if chain else live  # what a transform reads next stays in the caches
        self._asked = 0
        self._stretch = 0, np.empty(0, np.int64)  # a first position, and the rows from there on
        self._lock = threading.Lock()
        forks.register(self)

    def __call__(self, index: int) -> PreparedBatch:
        """Make a batch. Errors carry a note that says which."""
        watch = Stopwatch()
        try:
            return self._make(index, watch)
        except Exception as error:
            error.add_note(f"in batch {index} of epoch {self._epoch}: {self._where(index)}")
            raise

    def after_fork(self) -> None:
        """See `forks`."""
        self._lock = threading.Lock()

    def _make(self, index: int, watch: Stopwatch) -> PreparedBatch:
        if self._read_ahead is not None:
            self._ask(index, self._read_ahead)
            watch.lap("read ahead")
        rows = self._rows(index)
        watch.lap("order")
        batch = self._gather(rows, index, watch)
        size = batch.nbytes
        result = self._chain(batch, self._epoch, watch.lap)
        return PreparedBatch(result, len(result.rows), size, watch.stages, len(result.failures))

    def _gather(self, rows: np.ndarray, index: int, watch: Stopwatch) -> Batch:
        slab, pool = self._slab, self._slab.storage.pool
        visits = self._visits(index) if self._decode or self._chain.draws else None
        numbers, names = as_rows(rows, len(slab)), self._fields
        return read_batch(
            slab, numbers, names, pool, self._decode, self._epoch, visits, watch.lap, self._live
        )

    def _rows(self, index: int) -> np.ndarray:
        parts = [self._part(part.start, part.stop) for part in self._plan.share(index)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _visits(self, index: int) -> np.ndarray:
        """What tells the visits of a row apart, for a batch: int64[n]; see `Order.visits`."""
        parts = [
            # Rows that fill up the last step were visited before in this epoch.
            self._order.visits(self._epoch, part.start, part.stop, len(self._slab))
            + part.lap * self._plan.length
            for part in self._plan.share(index)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _part(self, start: int, stop: int) -> np.ndarray:
        """The rows at some positions; what lies between the shares of one rank is not computed."""
        first, rows = self._stretch
        if not first <= start <= stop <= first + len(rows):
            end = stop
            if self._plan.world_size == 1:
                end = max(stop, min(start + STRETCH, self._plan.length))
            first, rows = start, self._order.rows(self._epoch, start, end, len(self._slab))
            self._stretch = first, rows  # at once: other threads read it meanwhile
        return rows[start - first : stop - first].copy()

    def _ask(self, index: int, read_ahead: ReadAhead) -> None:
        """Ask for the pages of this batch and the coming ones, each once."""
        with self._lock:
            begin, end = self._asked, min(index + 1 + self._ahead, self._plan.batches)
            self._asked = max(begin, end)
        for coming in range(begin, end):
            if not read_ahead.rests():
                read_ahead.will_need(self._rows(coming))

    def _where(self, index: int) -> str:
        parts = ", ".join(f"{part.start}..{part.stop - 1}" for part in self._plan.share(index))
        return f"positions {parts} of {self._order!r}"
