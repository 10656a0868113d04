"""Threads that index photographs, piece by piece, while earlier pieces are written."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from fieldslab.packer.convert.batch import SourceBatch
from fieldslab.packer.convert.categories import CategoryIndex
from fieldslab.packer.convert.columns import convert_field
from fieldslab.packer.convert.fieldplan import ConvertedRows, FieldPlan

PIECE_BYTES = 2 * 1024 * 1024
MOST_THREADS = 8
"""More would wait for the one that writes."""


class IndexingThreads:
    """Converts image fields that get an index in threads, and other fields when asked to.

    The kernels run without the interpreter lock. Other fields take little time, or need a lock or
    the order of rows: Pillow, categories.
    """

    def __init__(self, plans: Sequence[FieldPlan], threads: int) -> None:
        """Start threads if there is work for more than one."""
        self._plans = [
            plan
            for plan in plans
            if plan.field.index is not None
            and plan.options.image_as is None
            and not plan.skips_damaged_images
        ]
        self._threads = min(threads, MOST_THREADS) if self._plans else 1
        self._pool = ThreadPoolExecutor(self._threads, "fieldslab-index")
        self._begun: dict[tuple[str, int], Future[ConvertedRows]] = {}

    def split_batches(self, batches: Iterable[SourceBatch]) -> Iterator[SourceBatch]:
        """Yield the same rows in smaller batches, some of which are converted ahead."""
        if self._threads == 1:
            yield from batches
            return
        waiting: deque[SourceBatch] = deque()
        for batch in batches:
            rows = max(1, len(batch) * PIECE_BYTES // max(batch.rows.nbytes, 1))
            for start in range(0, len(batch), rows):
                piece = batch.slice(start, min(rows, len(batch) - start))
                for plan in self._plans:
                    future = self._pool.submit(convert_field, plan, piece)
                    self._begun[plan.field.name, piece.first_row] = future
                waiting.append(piece)
                if len(waiting) > 2 * self._threads:
                    yield waiting.popleft()
        yield from waiting

    def convert(
        self, plan: FieldPlan, batch: SourceBatch, categories: CategoryIndex | None
    ) -> ConvertedRows:
        """Convert the rows of a batch to the arrays of one field; errors are `convert_field`'s."""
        begun = self._begun.pop((plan.field.name, batch.first_row), None)
        return convert_field(plan, batch, categories) if begun is None else begun.result()

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(cancel_futures=True)
