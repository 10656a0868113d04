"""Reading what may be evicted from a mirror meanwhile: again, until nothing was."""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from fieldslab.reader.stored.array import StoredArray
from fieldslab.reader.stored.field import StoredField
from fieldslab.schemas.errors import FieldslabError, UsageError
from fieldslab.schemas.optiontext import mark_option

if TYPE_CHECKING:
    from fieldslab.schemas.mirror.mirror import Mirror

_Result = TypeVar("_Result")

_ATTEMPTS = 50
_PAUSE = 0.05
"""Seconds between notes of what is used, which decide what is evicted first."""


class _Snapshot(NamedTuple):
    """How often anything, and each unit, int32[units], had been evicted at some moment.

    `whole` names what was all there, and verified, with nothing evicted since.
    """

    evictions: int
    generations: np.ndarray
    whole: set[Hashable]


class Evictions:
    """What this process knows of what was evicted from a mirror."""

    def __init__(self, mirror: "Mirror", fields: Mapping[str, StoredField]) -> None:
        """`fields` has, at any time, those whose blocks may be marked as verified."""
        self._mirror = mirror
        self._fields = fields
        self._snapshot = self._take_snapshot()
        self._noted = 0.0

    def read(
        self, fields: Sequence[StoredField], shards: np.ndarray, read: Callable[[], _Result]
    ) -> _Result:
        """Return what `read` returns, which reads these fields in these shards, and copies.

        It is called again where something of them was evicted meanwhile, whether it raised an
        error or not. Raises what it raises, and UsageError where that never ends.
        """
        for _ in range(_ATTEMPTS):
            snapshot = self._forget_evicted()
            self._note_use_at_times(fields, shards)
            try:
                result = read()
            except UsageError:
                raise
            except FieldslabError:
                if not self._was_evicted(snapshot, fields, shards):
                    raise
            else:
                if not self._was_evicted(snapshot, fields, shards):
                    return result
        raise UsageError(
            f"{mark_option('cache_limit')} is less than what all processes need that share the "
            "cache: they evict what others are about to read",
            file=self._mirror.origin.cache,
            found=self._mirror.origin.limit,
            hint="Raise it, or start fewer processes.",
        )

    def are_whole(self, key: Hashable) -> bool:
        """Tell whether all that `key` names is known to be present and verified; see `note_whole`.

        Then nothing needs to be fetched before it is read.
        """
        snapshot = self._snapshot
        return key in snapshot.whole and self._mirror.presence.evictions == snapshot.evictions

    def note_whole(self, key: Hashable, arrays: Sequence[StoredArray]) -> None:
        """Let `key` stand for some arrays, if they are all there and verified."""
        with self._mirror.lock:  # keeps records of evictions meanwhile
            if all(array.marks is None or array.marks.complete for array in arrays):
                self._snapshot.whole.add(key)

    def pin(self, fields: Sequence[StoredField], shards: np.ndarray) -> None:
        """Keep fields in some shards from being evicted as long as the slab is open."""
        self._mirror.pin_units(self._find_units(fields, shards))

    def note_use(self, fields: Sequence[StoredField], shards: np.ndarray) -> None:
        """Say that fields in some shards are needed, so that they are not evicted first."""
        self._mirror.note_use(self._find_units(fields, shards))

    def _note_use_at_times(self, fields: Sequence[StoredField], shards: np.ndarray) -> None:
        now = time.monotonic()
        if now > self._noted + _PAUSE:
            self._noted = now
            self.note_use(fields, shards)

    def _take_snapshot(self) -> _Snapshot:
        presence = self._mirror.presence
        return _Snapshot(presence.evictions, presence.generations.copy(), set())  # in this order

    def _forget_evicted(self) -> _Snapshot:
        """Take marks from blocks that were evicted."""
        if self._mirror.presence.evictions == self._snapshot.evictions:
            return self._snapshot
        with self._mirror.lock:  # no marks are set meanwhile
            snapshot = self._take_snapshot()
            units = np.flatnonzero(snapshot.generations != self._snapshot.generations)
            for field in list(self._fields.values()):
                for array in field.arrays.values():
                    array.forget_units(units)
            self._snapshot = snapshot
            return snapshot

    def _was_evicted(
        self, snapshot: _Snapshot, fields: Sequence[StoredField], shards: np.ndarray
    ) -> bool:
        presence = self._mirror.presence
        if presence.evictions == snapshot.evictions:
            return False
        units = self._find_units(fields, shards)
        return bool((presence.generations[units] != snapshot.generations[units]).any())

    def _find_units(self, fields: Sequence[StoredField], shards: np.ndarray) -> np.ndarray:
        blocks = self._mirror.blocks
        columns = [
            blocks.find_column(field.field.name, role) for field in fields for role in field.arrays
        ]
        some = np.unique(shards)[:, np.newaxis] * blocks.width + np.array(columns, np.int64)
        return some.reshape(-1)
