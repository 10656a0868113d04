"""Which blocks rows need that this process has not verified: to have them fetched together.

Where rows have different lengths, only their offsets tell which blocks of values they need. So
there are two steps, each with one request for all fields.
"""

from collections.abc import Container, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fieldslab.reader.buffers import Pool
from fieldslab.reader.copying import RowLocations, find_unmarked_blocks
from fieldslab.reader.gather import locate_elements, locate_point_ranges
from fieldslab.reader.stored.array import StoredArray
from fieldslab.reader.stored.field import StoredField

if TYPE_CHECKING:
    from fieldslab.schemas.mirror.mirror import Mirror

_ONE = np.ones(1, np.int64)
_TWO = np.full(1, 2, np.int64)
_NONE = np.empty(0, np.int64)


def require_rows(
    mirror: "Mirror",
    fields: Sequence[StoredField],
    locations: RowLocations,
    decoded: Container[str],
    pool: Pool,
) -> None:
    """Have there what rows need of some fields, of which those `decoded` become images.

    Raises what `Mirror.require` raises, and DamagedArray.
    """
    if all(
        array.marks is None or array.marks.complete
        for field in fields
        for array in field.arrays.values()
    ):
        return
    mirror.require(find_direct_blocks(fields, locations, decoded))
    mirror.require(find_value_blocks(fields, locations, decoded, pool))


def find_direct_blocks(
    fields: Sequence[StoredField], locations: RowLocations, decoded: Container[str]
) -> np.ndarray:
    """Find the blocks that row numbers alone tell: their positions in the mirror's marks, int64[n].

    Those are all blocks but those of values, and of index points, behind offsets.
    """
    parts: list[np.ndarray] = []
    for field in fields:
        for spec in field.field.list_arrays():
            in_images = spec.role in ("codec", "points.offsets")
            if spec.per in ("row", "row+1") and (not in_images or field.field.name in decoded):
                counts = _TWO if spec.per == "row+1" else _ONE
                parts += _find_positions(field.arrays[spec.role], locations, counts)
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
        if field.points is not None and field.field.name in decoded:
            rows = locate_point_ranges(field, locations, pool)
            places = RowLocations(locations.shards, rows.starts)
            parts += _find_positions(field.points, places, rows.counts)
    return _join(parts)


def _find_positions(
    array: StoredArray, locations: RowLocations, counts: np.ndarray
) -> Iterator[np.ndarray]:
    if array.mirrored is None or (array.marks is not None and array.marks.complete):
        return
    if not array.present.all():
        stored = np.flatnonzero(array.present[locations.shards])
        locations = RowLocations(locations.shards[stored], locations.in_shard[stored])
    blocks = find_unmarked_blocks(array, locations, counts)
    if len(blocks):
        yield array.mirrored.find_positions(blocks)


def _join(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.unique(np.concatenate(parts)) if parts else _NONE
