"""Rows in batches of about the same bytes, whatever rows hold."""

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

_BATCH_BYTES = 32 * 2**20
_FIRST_ROWS, _MOST_ROWS = 1 << 12, 1 << 16


class _Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


_Batch = TypeVar("_Batch", bound=_Sized)


def read_batches(read: Callable[[range], _Batch], total: int) -> Iterator[tuple[range, _Batch]]:
    """Read rows 0..total-1 in batches of about 32 MiB; yield the rows of each, and the batch.

    The size of one decides how many rows the next one has.
    """
    start, step = 0, _FIRST_ROWS
    while start < total:
        rows = range(start, min(start + step, total))
        batch = read(rows)
        yield rows, batch
        step = min(max(step * _BATCH_BYTES // max(batch.nbytes, 1), 1), 2 * step, _MOST_ROWS)
        start = rows.stop
