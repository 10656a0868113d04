"""Which blocks rows need that this process has not verified: to have them fetched together.

Where rows have different lengths, only their offsets tell which blocks of values they need. So
there are two steps, each with one request for all fields.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from typing import TypeVar

import numpy as np

from fieldslab.reader.buffers import Pool
from fieldslab.reader.copying import RowLocations, find_unmarked_blocks
from fieldslab.reader.gather import locate_elements, locate_list_ranges, locate_point_ranges
from fieldslab.reader.slab_storage import Storage
from fieldslab.reader.stored.array import StoredArray
from fieldslab.reader.stored.field import StoredField

_Result = TypeVar("_Result")

_COUNTS = {"row": np.ones(1, np.int64), "row+1": np.full(1, 2, np.int64)}
"""Items of an array that each row needs."""
_OF_IMAGES = ("codec", "points.offsets", "points.values")
_NONE = np.empty(0, np.int64)


def read_mirrored_rows(
    storage: Storage,
    names: Sequence[str],
    locations: RowLocations,
    decoded: Sequence[str],
    read: Callable[[], _Result],
) -> _Result:
    """Return what `read` returns, which copies rows of some fields, once they are all there.

    Those `decoded` become images. Raises what `read` and `Mirrors.require` raise, and DamagedArray.
    """
    mirrors, evictions, pool = storage.mirrors, storage.evictions, storage.pool
    assert mirrors is not None
    assert evictions is not None
    key = *names, "", *decoded
    whole = evictions.read_whole(key, read)
    if whole is not None:
        return whole
    fields = [storage.load_field(name) for name in names]

    def fetch_and_read() -> _Result:
        mirrors.require(find_direct_blocks(fields, locations, decoded))
        mirrors.require(find_value_blocks(fields, locations, decoded, pool))
        return read()

    result = evictions.read(fields, locations.shards, fetch_and_read)
    evictions.note_whole(key, list_arrays(fields, decoded))
    return result


def read_mirrored_elements(
    storage: Storage,
    field: StoredField,
    locations: RowLocations,
    counts: np.ndarray,
    part_bytes: int,
    read: Callable[[], _Result],
) -> _Result:
    """Return what `read` returns, which copies elements of a field, once they are all there.

    `counts` of them, int64[n], from each of `locations` on, with `part_bytes` each. Raises what
    `read` and `Mirrors.require` raise.
    """
    mirrors, evictions = storage.mirrors, storage.evictions
    assert mirrors is not None
    assert evictions is not None

    def fetch_and_read() -> _Result:
        mirrors.require(_join([*_find_positions(field.values, locations, counts, part_bytes)]))
        return read()

    return evictions.read([field], locations.shards, fetch_and_read)


def list_arrays(fields: Sequence[StoredField], decoded: Container[str]) -> list[StoredArray]:
    """List the arrays that are read of some fields: what belongs to images if they are decoded."""
    return [
        array
        for field in fields
        for role, array in field.arrays.items()
        if role not in _OF_IMAGES or field.field.name in decoded
    ]


def find_direct_blocks(
    fields: Sequence[StoredField], locations: RowLocations, decoded: Container[str]
) -> np.ndarray:
    """Find the blocks that row numbers alone tell: positions in the marks of mirrors, int64[n].

    Those are all blocks but those of values, lists and index points, behind offsets.
    """
    parts: list[np.ndarray] = []
    for array in list_arrays(fields, decoded):
        if array.spec.per in _COUNTS:
            parts += _find_positions(array, locations, _COUNTS[array.spec.per])
    return _join(parts)


def find_value_blocks(
    fields: Sequence[StoredField], locations: RowLocations, decoded: Container[str], pool: Pool
) -> np.ndarray:
    """Find the blocks that offsets tell, which are there by now: positions, int64[n].

    Raises DamagedArray.
    """
    parts: list[np.ndarray] = []
    for field in fields:
        if field.offsets is not None:
            rows = locate_elements(field, locations, pool, pool)
            places = RowLocations(locations.shards, rows.starts)
            parts += _find_positions(field.values, places, rows.counts)
        if field.lists is not None:
            rows = locate_list_ranges(field, locations, pool, pool)
            places = RowLocations(locations.shards, rows.starts)
            parts += _find_positions(field.lists, places, rows.counts)
        if field.points is not None and field.field.name in decoded:
            rows = locate_point_ranges(field, locations, pool)
            places = RowLocations(locations.shards, rows.starts)
            parts += _find_positions(field.points, places, rows.counts)
    return _join(parts)


def _find_positions(
    array: StoredArray, locations: RowLocations, counts: np.ndarray, part_bytes: int | None = None
) -> Iterator[np.ndarray]:
    if array.mirrored is None or (array.marks is not None and array.marks.complete):
        return
    if not array.present.all():
        stored = np.flatnonzero(array.present[locations.shards])
        locations = RowLocations(locations.shards[stored], locations.in_shard[stored])
        counts = counts[stored] if len(counts) > 1 else counts
    blocks = find_unmarked_blocks(array, locations, counts, part_bytes)
    if len(blocks):
        yield array.mirrored.find_positions(blocks)


def _join(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.unique(np.concatenate(parts)) if parts else _NONE
