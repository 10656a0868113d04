"""How a batch is made: rows from the order, gathered, transformed, converted."""

import threading
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from fieldslab.reader import forks
from fieldslab.reader.batch import Batch, split_batch
from fieldslab.reader.images.steps import ImageSteps
from fieldslab.reader.loading.chain import TransformChain
from fieldslab.reader.loading.epoch_plan import EpochPlan, compute_rank_rows
from fieldslab.reader.loading.readahead import ReadAhead
from fieldslab.reader.loading.stats import PreparedBatch, Stopwatch
from fieldslab.reader.orders.order import Order
from fieldslab.reader.reading import read_batch
from fieldslab.reader.rows import check_rows
from fieldslab.reader.slab import Slab
from fieldslab.reader.stored.sizes import count_stored_bytes
from fieldslab.schemas.errors import DamagedArray

STRETCH = 4096
"""Positions whose rows are computed at once: for one small batch, it takes as long as to gather."""

KEPT = 4
"""Stretches that are kept: those of threads side by side, and those that are read ahead."""


class Preparation:
    """Makes the batches of an epoch by their number; any number of threads may call it at once."""

    def __init__(
        self,
        slab: Slab,
        order: Order,
        epoch: int,
        plan: EpochPlan,
        fields: Sequence[str],
        chain: TransformChain,
        read_ahead: ReadAhead | None,
        ahead: int,
        decode: Mapping[str, ImageSteps] | None = None,
        batches_in_turn: int = 1,
    ) -> None:
        """See `Loader` for what these are; `read_ahead` goes `ahead` batches before.

        `batches_in_turn` batches may be made before the consumer reads one.
        """
        self._slab = slab
        self._order = order
        self._epoch = epoch
        self._plan = plan
        self._fields = fields
        self._decode = decode or {}
        if self._decode and order.windows is not None:
            from fieldslab.reader.images.decoded_windows import check_window_steps  # kernels

            check_window_steps(self._decode)
        self._chain = chain
        self._read_ahead = read_ahead
        self._ahead = ahead
        self._batches_in_turn = (
            1 if chain else batches_in_turn
        )  # what a transform reads next stays in the caches
        self._asked = 0
        self._stretches: tuple[tuple[int, np.ndarray], ...] = ()  # their numbers and rows
        self._lock = threading.Lock()
        forks.register_for_forks(self)

    def __call__(self, index: int) -> PreparedBatch:
        """Make a batch. Errors carry a note that says which."""
        watch = Stopwatch()
        try:
            return self._make_batch(index, watch)
        except Exception as error:
            error.add_note(
                f"in batch {index} of epoch {self._epoch}: {self._describe_positions(index)}"
            )
            raise

    def after_fork(self) -> None:
        """See `forks`."""
        self._lock = threading.Lock()

    @property
    def takes_groups(self) -> bool:
        """Whether batches may be made together.

        Not where a function of the user may take long for each, or where batches are sent to a
        device, which happens one by one.
        """
        windows = self._order.windows
        if windows is not None and not windows.is_regular(self._fields):
            return False
        return not (self._decode or self._chain.calls_functions or self._chain.sends)

    @property
    def batch_count(self) -> int:
        """Number of batches of the epoch."""
        return self._plan.batch_count

    @property
    def batch_bytes(self) -> int:
        """Estimate of the bytes of a batch."""
        windows, size = self._order.windows, self._plan.batch_size
        if windows is not None:
            return windows.count_bytes(self._fields, size)
        fields = [self._slab.fields[name] for name in self._fields]
        return count_stored_bytes(self._slab.manifest, fields, size)

    def make_batches(self, indexes: range) -> list[PreparedBatch]:
        """Make neighbouring batches, whose rows are gathered at once into the same memory."""
        watch = Stopwatch()
        if self._read_ahead is not None:
            self._request_pages(indexes[-1], self._read_ahead)
            watch.record_stage("read ahead")
        rows, sizes = self._compute_neighbouring_rows(indexes)
        watch.record_stage("order")
        together = self._gather_batch(rows, watch)
        if together.failures:  # rows may be missing: batches are made one by one then
            raise DamagedArray(together.failures[0].reason)
        batches = split_batch(together, sizes)
        self._compare_files_at_end(indexes[-1])
        stages: dict[str, float] = {}  # of each batch the same: its part of the group's
        results = []
        for batch in batches:
            counts = self._order.count_tokens(batch.rows)
            size = batch.nbytes
            result = self._chain(batch, self._epoch, watch.record_stage)
            results.append(PreparedBatch(result, len(batch.rows), size, stages, 0, *counts))
        stages |= {stage: seconds / len(indexes) for stage, seconds in watch.stages.items()}
        return results

    def _make_batch(self, index: int, watch: Stopwatch) -> PreparedBatch:
        if self._read_ahead is not None:
            self._request_pages(index, self._read_ahead)
            watch.record_stage("read ahead")
        rows = self._compute_rows(index)
        watch.record_stage("order")
        visits = self._compute_visits(index) if self._decode or self._chain.draws else None
        batch = self._gather_batch(rows, watch, visits)
        self._compare_files_at_end(index)
        size = batch.nbytes
        result = self._chain(batch, self._epoch, watch.record_stage)
        counts = self._order.count_tokens(rows)
        return PreparedBatch(
            result, len(result.rows), size, watch.stages, len(result.failures), *counts
        )

    def _gather_batch(
        self, rows: np.ndarray, watch: Stopwatch, visits: np.ndarray | None = None
    ) -> Batch:
        slab, chain = self._slab, self._chain
        memory = slab.storage.pool if chain.has_transforms else chain.memory
        numbers, names = check_rows(rows, len(slab)), self._fields
        windows = self._order.windows
        if windows is not None:
            drawing = visits, self._decode, self._epoch
            batch = windows.read(numbers, names, memory, self._batches_in_turn, *drawing)
            watch.record_stage("gather")
            return batch
        return read_batch(
            slab.storage,
            slab.view,
            numbers,
            names,
            memory,
            self._decode,
            self._epoch,
            visits,
            watch.record_stage,
            self._batches_in_turn,
            chain.paddings,
        )

    def _compare_files_at_end(self, index: int) -> None:
        """Raise SlabChanged where files were written during the epoch; during it, reads look."""
        if index == self._plan.batch_count - 1:
            self._slab.storage.changes.compare_files()

    def _compute_rows(self, index: int) -> np.ndarray:
        plan = self._plan
        if plan.world_size > 1:
            return compute_rank_rows(self._order, self._epoch, plan, index, len(self._slab))
        (positions,) = plan.find_rank_positions(index)
        return self._compute_rows_between(positions.start, positions.stop)

    def _compute_neighbouring_rows(self, indexes: range) -> tuple[np.ndarray, list[int]]:
        """Compute the rows of neighbouring batches, concatenated, and the length of each."""
        plan = self._plan
        if plan.world_size == 1:
            ends = [plan.find_position_after(index - 1) for index in (*indexes, indexes.stop)]
            sizes = [stop - start for start, stop in pairwise(ends)]
            return self._compute_rows_between(ends[0], ends[-1]), sizes
        parts = [self._compute_rows(index) for index in indexes]
        return np.concatenate(parts), [len(part) for part in parts]

    def _compute_visits(self, index: int) -> np.ndarray:
        """What tells the visits of a row apart, for a batch: int64[n]; see `Order.visits`."""
        parts = [
            # Rows that fill up the last step were visited before in this epoch.
            self._order.visits(self._epoch, part.start, part.stop, len(self._slab))[:: part.step]
            + part.lap * self._plan.length
            for part in self._plan.find_rank_positions(index)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _compute_rows_between(self, start: int, stop: int) -> np.ndarray:
        """The rows at some positions, all of which are of this one rank."""
        plan = self._plan
        size = max(STRETCH // plan.positions_per_step, 1) * plan.positions_per_step
        first, last = (start - plan.start) // size, (stop - 1 - plan.start) // size
        rows = [self._compute_stretch_rows(number, size) for number in range(first, last + 1)]
        begin = plan.start + first * size
        together = rows[0] if first == last else np.concatenate(rows)
        return together[start - begin : stop - begin].copy()

    def _compute_stretch_rows(self, number: int, size: int) -> np.ndarray:
        for other, rows in self._stretches:
            if other == number:
                return rows
        plan = self._plan
        start = plan.start + number * size
        stop = min(start + size, plan.length)
        rows = self._order.rows(self._epoch, start, stop, len(self._slab))
        self._stretches = (number, rows), *self._stretches[: KEPT - 1]  # at once: threads read it
        return rows

    def _request_pages(self, index: int, read_ahead: ReadAhead) -> None:
        """Ask for the pages of this batch and the coming ones, each once."""
        ahead = read_ahead.find_distance(self._ahead)
        with self._lock:
            begin, end = self._asked, min(index + 1 + ahead, self._plan.batch_count)
            self._asked = max(begin, end)
        if begin < end and not read_ahead.should_skip_batch():
            rows, _ = self._compute_neighbouring_rows(range(begin, end))
            windows = self._order.windows
            read_ahead.request_pages(rows if windows is None else windows.list_rows(rows))

    def _describe_positions(self, index: int) -> str:
        parts = ", ".join(
            f"{part.start}..{part.stop - 1}" for part in self._plan.find_rank_positions(index)
        )
        return f"positions {parts} of {self._order!r}"
