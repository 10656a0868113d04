"""Asking the system for pages before they are needed.

A page that is not in memory stops the thread that touches it until the disk has answered, one
page after the other. Asked beforehand (WILLNEED), the system reads all rows of the coming
batches at the same time. Its own guess, that what lies behind a page is needed next, is wrong for
rows in random order and is turned off (RANDOM).
"""

import mmap
import os
from typing import TYPE_CHECKING

import numpy as np

from fieldslab.schemas.digest import BLOCK
from fieldslab.schemas.errors import FieldslabError

if TYPE_CHECKING:
    from fieldslab.reader.array import StoredArray
    from fieldslab.reader.slab import Slab

_SAMPLES = 16
"""So many rows of a batch are looked at; if all are in memory, the system is asked for nothing."""


class Adviser:
    """Asks for the rows of batches of some fields of a slab."""

    def __init__(self, slab: "Slab", fields: list[str]) -> None:
        storage = slab._storage
        self._storage = storage
        self._view = slab._view
        self._stored = [storage.field(name) for name in fields]
        self._sizes = {
            stored.field.name: np.array(
                [0 if array is None else array.nbytes for array in stored.values.arrays], np.int64
            )
            for stored in self._stored
        }

    def expect_random(self) -> None:
        """Tell the system that rows come in no order."""
        from fieldslab.reader import paging

        for stored in self._stored:
            starts = stored.values.addresses[stored.values.present]
            ends = starts + self._sizes[stored.field.name][stored.values.present]
            paging.advise(starts, ends, mmap.PAGESIZE, paging.RANDOM)

    def will_need(self, rows: np.ndarray) -> None:
        """Ask for the values of rows, where they are not in memory; errors are left to gather."""
        try:
            self._will_need(rows)
        except FieldslabError:
            return

    def _will_need(self, rows: np.ndarray) -> None:
        from fieldslab.reader import paging
        from fieldslab.reader.gather import _spans, place

        pool = self._storage.pool
        at = place(self._storage.directory, self._view, rows, pool)
        for stored in self._stored:
            values, item = stored.values, stored.values.item_bytes
            if stored.offsets is None:
                begins, ends = at.places * item, (at.places + 1) * item
            else:
                spans = _spans(stored, at, pool, pool)
                begins, ends = spans.starts * item, (spans.starts + spans.counts) * item
            if values.marks is not None and not values.marks.complete:
                # Blocks that are not verified yet are read as wholes.
                sizes = self._sizes[stored.field.name][at.shards]
                begins = begins // BLOCK * BLOCK
                ends = np.minimum(-(-ends // BLOCK) * BLOCK, sizes)
            bases = values.addresses[at.shards]
            begins, ends = (bases + begins)[begins < ends], (bases + ends)[begins < ends]
            step = max(len(begins) // _SAMPLES, 1)
            if _is_told(values) and paging.resident(begins[::step].copy(), mmap.PAGESIZE):
                continue
            by_place = np.argsort(begins)
            paging.advise(begins[by_place], ends[by_place], mmap.PAGESIZE, paging.WILLNEED)


def _is_told(values: "StoredArray") -> bool:
    """Whether the system tells this user which pages are in memory: not of files of others."""
    shards = np.flatnonzero(values.present)
    return len(shards) > 0 and os.access(values.path(int(shards[0])), os.W_OK)
