"""Bringing a slab into the page cache, all of it or some fields and rows."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from fieldslab.reader.stored.array import StoredArray
from fieldslab.reader.stored.field import StoredField
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.files import make_unreadable_error, read_exactly
from fieldslab.schemas.mapping import (
    allocate_aligned,
    get_address,
    lock_pages,
    populate_pages,
    prefetch_pages,
)
from fieldslab.schemas.memory import count_available_bytes
from fieldslab.schemas.system import get_limit

STEP = 8 * 1024 * 1024
"""Bytes that one thread has read in at a time: their requests reach the disk together."""
_THREADS = 4

Span = tuple[int, int, int]
"""A shard, the first of its rows, and the row behind the last."""
Progress = Callable[[int], None]


class _Part(NamedTuple):
    """Bytes `start` to `stop` of the data of an array in a shard."""

    array: StoredArray
    shard: int
    start: int
    stop: int


def preload_rows(
    fields: Sequence[StoredField],
    spans: Sequence[Span],
    locked: bool,
    progress: Progress | None,
) -> int:
    """Have the system read rows in all arrays of some fields, and keep them if `locked`.

    Returns their bytes. Raises what `Slab.preload` raises.
    """
    parts = [part for field in fields for span in spans for part in _list_parts(field, *span)]
    total = sum(part.stop - part.start for part in parts)
    available = count_available_bytes()
    if total > available:
        raise UsageError(
            "the data does not fit in memory",
            expected=f"at most {available:,} bytes",
            found=f"{total:,} bytes",
            hint="Preload fewer `fields`, or a part of the rows: slab[:100_000].preload().",
        )
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="fieldslab-preload") as pool:
        try:
            for step_bytes in pool.map(_load_part, _split_into_steps(parts)):
                if progress is not None:
                    progress(step_bytes)
        finally:
            pool.shutdown(cancel_futures=True)
    if locked:
        for part in parts:
            _lock_part(part, total)
    return total


def _list_parts(field: StoredField, shard: int, first: int, last: int) -> Iterator[_Part]:
    """List the parts of each array of a field that hold rows `first` up to `last` of a shard."""
    for spec in field.field.list_arrays():
        array = field.arrays[spec.role]
        if not array.present[shard] or (array.absent is not None and array.absent[shard]):
            continue
        start, stop = first, last + (spec.per == "row+1")
        if spec.by is not None:
            start, stop = _read_element_range(field.arrays[spec.by], array, shard, first, last)
        if start < stop and array.item_bytes:
            yield _Part(array, shard, start * array.item_bytes, stop * array.item_bytes)


def _read_element_range(
    offsets: StoredArray, elements: StoredArray, shard: int, first: int, last: int
) -> tuple[int, int]:
    """The first element of rows `first` up to `last`, and the end of them. Raises DamagedArray."""
    for row in (first, last):
        offsets.verify_items(shard, row, row + 1)
    start, stop = int(offsets[shard][first]), int(offsets[shard][last])
    limit = len(elements[shard])
    if not start <= stop <= limit:
        raise offsets.make_damaged_offsets_error(shard, last - 1, limit)
    return start, stop


def _split_into_steps(parts: Sequence[_Part]) -> Iterator[_Part]:
    for part in parts:
        for start in range(part.start, part.stop, STEP):
            yield part._replace(start=start, stop=min(start + STEP, part.stop))


def _load_part(part: _Part) -> int:
    """Have a part read in; return its bytes. Raises DamagedArray and Unreadable."""
    array, shard, start, stop = part
    reader, size = array.get_reader(shard), stop - start
    mapped = array[shard]
    address = get_address(mapped) + start
    try:
        prefetch_pages(address, size)  # otherwise page by page, where rows were said to be random
        if populate_pages(address, size):
            return size
    except OSError as error:
        with reader.open():  # tells if the file was cut off
            pass
        field = reader.file.field.name
        raise make_unreadable_error(
            error, reader.path, field=field, offset=HEADER + start
        ) from error
    with reader.open() as fd:  # to read brings it into the page cache, too
        view = memoryview(allocate_aligned(size).data)
        read_exactly(fd, view, HEADER + start, reader.path, reader.file.field.name)
    return size


def _lock_part(part: _Part, total: int) -> None:
    """Keep a part in memory for as long as the slab is open. Raises UsageError."""
    part.array.pin_shards(np.array([part.shard]))
    address = get_address(part.array[part.shard]) + part.start
    try:
        lock_pages(address, part.stop - part.start)
    except OSError as error:
        most, _ = get_limit("RLIMIT_MEMLOCK")
        allowed = "no limit" if most is None else f"at most {most:,} bytes"
        raise UsageError(
            f"memory cannot be locked: {os.strerror(error.errno or 0)}",
            file=part.array.get_path(part.shard),
            expected=allowed,
            found=f"{total:,} bytes",
            hint="Raise the limit `ulimit -l`, in KiB, or call preload without `lock`.",
        ) from error
