"""Asking the system for pages before they are needed.

A page that is not in memory stops the thread that touches it until the disk has answered, one
page after the other. Asked beforehand (WILLNEED), the system reads all rows of the coming
batches at the same time. Its own guess, that what lies behind a page is needed next, is wrong for
rows in random order and is turned off (RANDOM).
"""

import mmap
import os
from collections.abc import Sequence

import numpy as np

from fieldslab.reader.buffers import Pool
from fieldslab.reader.copying import RowLocations
from fieldslab.reader.gather import locate_elements
from fieldslab.reader.loading import paging
from fieldslab.reader.slab import Slab
from fieldslab.reader.stored.field import StoredField
from fieldslab.reader.stored.maps import map_keeper
from fieldslab.schemas.digest import BLOCK
from fieldslab.schemas.errors import FieldslabError
from fieldslab.schemas.system import CAN_ADVISE_PAGES

_SAMPLES = 16
"""So many rows of a batch are looked at; if all are in memory, the system is asked for nothing.

All their pages are: where blocks are verified, a row's first page may be there for its neighbour.
"""
_WORTH = 16 * 1024
"""Where the system does not tell what is in memory, rows of fewer bytes are never asked for."""
_LONGEST_PAUSE = 16
"""After batches that were in memory, so many of the next ones are not even looked at."""


class ReadAhead:
    """Asks for the rows of batches of some fields of a slab. Any thread may call it."""

    def __init__(self, slab: Slab, fields: Sequence[str]) -> None:
        self._slab = slab
        storage = slab.storage
        self._fields = [_Field(storage.load_field(name), storage.pool) for name in fields]
        self._pause = self._skip = 0  # threads may lose a count here: nothing depends on it

    def advise_random_access(self) -> None:
        """Tell the system that rows come in no order."""
        for field in self._fields:
            field.advise_random_access()

    def find_distance(self, ahead: int) -> int:
        """Return for how many batches ahead rows are to be requested."""
        return ahead

    def should_skip_batch(self) -> bool:
        """Return True if the next batch need not be checked, since the last ones were in memory."""
        self._skip -= 1
        return self._skip >= 0 or not CAN_ADVISE_PAGES

    def request_pages(self, rows: np.ndarray) -> None:
        """Ask for the values of rows, where they are not in memory; errors are left to gather."""
        try:
            some = self._locate_rows(rows[:: max(len(rows) // _SAMPLES, 1)])
            missing = [field for field in self._fields if not field.is_resident(some)]
            if missing:
                locations = self._locate_rows(rows)
                for field in missing:
                    field.request_pages(locations)
        except FieldslabError:
            return
        self._pause = 0 if missing else min(2 * self._pause + 1, _LONGEST_PAUSE)
        self._skip = self._pause

    def _locate_rows(self, rows: np.ndarray) -> RowLocations:
        return self._slab.storage.locate_rows(self._slab.view, np.ascontiguousarray(rows))


class _Field:
    """The values of one field."""

    def __init__(self, stored: StoredField, pool: Pool) -> None:
        self._stored = stored
        self._values = stored.values
        self._pool = pool
        # The system says which pages are in memory, but not of files that others own. Mirrors are
        # ours; their paths are for messages, and name what is mirrored.
        shards = np.flatnonzero(self._values.present)
        self._told = self._values.mirrored is not None or all(
            os.access(self._values.get_path(int(shard)), os.W_OK) for shard in shards[:1]
        )

    def advise_random_access(self) -> None:
        self._values.advise_random_access()

    def is_resident(self, locations: RowLocations) -> bool:
        with map_keeper.hold():
            begins, ends = self._find_ranges(locations)
            if self._told:
                return paging.are_resident(begins, ends, mmap.PAGESIZE)
        # Asking for short rows costs more than reading them from memory.
        return int((ends - begins).sum()) < _WORTH * len(begins)

    def request_pages(self, locations: RowLocations) -> None:
        step = min(self._values.rows_at_once, max(len(locations.shards), 1))
        for start in range(0, len(locations.shards), step):
            with map_keeper.hold():
                begins, ends = self._find_ranges(locations.select(slice(start, start + step)))
                order = np.argsort(begins)
                paging.advise_ranges(begins[order], ends[order], mmap.PAGESIZE, paging.WILLNEED)

    def _find_ranges(self, locations: RowLocations) -> tuple[np.ndarray, np.ndarray]:
        """Addresses between which the rows lie, without those that are empty: int64 each."""
        item, marks = self._values.item_bytes, self._values.marks
        if self._stored.offsets is None:
            begins, ends = locations.in_shard * item, (locations.in_shard + 1) * item
        else:
            rows = locate_elements(self._stored, locations, self._pool, self._pool)
            begins, ends = rows.starts * item, (rows.starts + rows.counts) * item
        if marks is not None and not marks.complete:  # blocks are read whole, to be verified
            begins = begins // BLOCK * BLOCK
            ends = np.minimum(-(-ends // BLOCK) * BLOCK, self._values.sizes[locations.shards])
        self._values.map_shards(locations.shards)
        some = begins < ends
        bases = self._values.addresses[locations.shards][some]
        return bases + begins[some], bases + ends[some]
