"""Reading what may be evicted from mirrors meanwhile: again, until nothing was."""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from fieldslab.reader.stored.array import StoredArray
from fieldslab.reader.stored.field import StoredField
from fieldslab.reader.stored.mirrors import MirroredShards, Mirrors, find_mirrored_units
from fieldslab.schemas.errors import FieldslabError, UsageError
from fieldslab.schemas.optiontext import mark_option

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
    """What this process knows of what was evicted from the mirrors of a slab."""

    def __init__(self, mirrors: Mirrors, fields: Mapping[str, StoredField]) -> None:
        """`fields` has, at any time, those whose blocks may be marked as verified."""
        self._parts = [_MirrorEvictions(part, fields) for part in mirrors.parts]
        self._limit = mirrors.limit
        self._noted = 0.0

    def read(
        self, fields: Sequence[StoredField], shards: np.ndarray, read: Callable[[], _Result]
    ) -> _Result:
        """Return what `read` returns, which reads these fields in these shards, and copies.

        It is called again where something of them was evicted meanwhile, whether it raised an
        error or not. Raises what it raises, and UsageError where that never ends.
        """
        for _ in range(_ATTEMPTS):
            snapshots = [part.forget_evicted() for part in self._parts]
            self._note_use_at_times(fields, shards)
            try:
                result = read()
            except UsageError:
                raise
            except FieldslabError:
                if not self._was_evicted(snapshots, fields, shards):
                    raise
            else:
                if not self._was_evicted(snapshots, fields, shards):
                    return result
        raise UsageError(
            f"{mark_option('cache_limit')} is less than what all processes need that share the "
            "cache: they evict what others are about to read",
            file=self._parts[0].mirror.origin.cache,
            found=self._limit,
            hint="Raise it, or start fewer processes.",
        )

    def read_whole(self, key: Hashable, read: Callable[[], _Result]) -> _Result | None:
        """Return what `read` returns if all that `key` names is there and verified; else None.

        None, too, where something was evicted meanwhile, or where it is time to note what is used.
        Raises what `read` raises.
        """
        # Between two batches nothing of this is in the processor's caches: so little is done.
        snapshots = [part.snapshot for part in self._parts]
        for part, snapshot in zip(self._parts, snapshots, strict=True):
            if key not in snapshot.whole or part.counter[0] != snapshot.evictions:
                return None
        if time.monotonic() > self._noted + _PAUSE:
            return None
        try:
            result = read()
        except FieldslabError:
            if self._are_current(snapshots):
                raise
            return None
        return result if self._are_current(snapshots) else None

    def _are_current(self, snapshots: Sequence[_Snapshot]) -> bool:
        for part, snapshot in zip(self._parts, snapshots, strict=True):
            if part.counter[0] != snapshot.evictions:
                return False
        return True

    def note_whole(self, key: Hashable, arrays: Sequence[StoredArray]) -> None:
        """Let `key` stand for some arrays, if they are all there and verified."""
        for part in self._parts:
            part.note_whole(key, arrays)

    def pin(self, fields: Sequence[StoredField], shards: np.ndarray) -> None:
        """Keep fields in some shards from being evicted as long as the slab is open."""
        for part in self._parts:
            part.mirror.pin_units(part.find_units(fields, shards))

    def note_use(self, fields: Sequence[StoredField], shards: np.ndarray) -> None:
        """Say that fields in some shards are needed, so that they are not evicted first."""
        for part in self._parts:
            part.mirror.note_use(part.find_units(fields, shards))

    def note_next_use(
        self, fields: Sequence[StoredField], shards: np.ndarray, seconds: np.ndarray
    ) -> None:
        """Say in how many seconds fields in shards are needed next: int64[n] and float64[n]."""
        order = np.argsort(shards)
        for part in self._parts:
            part.note_next_use(fields, shards[order], time.time() + seconds[order])

    def _note_use_at_times(self, fields: Sequence[StoredField], shards: np.ndarray) -> None:
        now = time.monotonic()
        if now > self._noted + _PAUSE:
            self._noted = now
            self.note_use(fields, shards)

    def _was_evicted(
        self, snapshots: Sequence[_Snapshot], fields: Sequence[StoredField], shards: np.ndarray
    ) -> bool:
        return any(
            part.was_evicted(snapshot, fields, shards)
            for part, snapshot in zip(self._parts, snapshots, strict=True)
        )


class _MirrorEvictions:
    """What this process knows of what was evicted from one mirror."""

    def __init__(self, part: MirroredShards, fields: Mapping[str, StoredField]) -> None:
        self.mirror = part.mirror
        self.counter = part.mirror.presence.counter
        self._part = part
        self._fields = fields
        self.snapshot = self._take_snapshot()

    def note_whole(self, key: Hashable, arrays: Sequence[StoredArray]) -> None:
        with self.mirror.lock:  # keeps records of evictions meanwhile
            if all(array.marks is None or array.marks.complete for array in arrays):
                self.snapshot.whole.add(key)

    def forget_evicted(self) -> _Snapshot:
        """Take marks from blocks that were evicted."""
        if self.counter[0] == self.snapshot.evictions:
            return self.snapshot
        with self.mirror.lock:  # no marks are set meanwhile
            snapshot = self._take_snapshot()
            units = np.flatnonzero(snapshot.generations != self.snapshot.generations)
            for field in list(self._fields.values()):
                for array in field.arrays.values():
                    array.forget_units(self.mirror, units)
            self.snapshot = snapshot
            return snapshot

    def was_evicted(
        self, snapshot: _Snapshot, fields: Sequence[StoredField], shards: np.ndarray
    ) -> bool:
        presence = self.mirror.presence
        if self.counter[0] == snapshot.evictions:
            return False
        units = self.find_units(fields, shards)
        return bool((presence.generations[units] != snapshot.generations[units]).any())

    def note_next_use(
        self, fields: Sequence[StoredField], shards: np.ndarray, when: np.ndarray
    ) -> None:
        """Say when fields in ascending shards are needed next."""
        units = self.find_units(fields, shards)
        some = when[(shards >= self._part.first) & (shards < self._part.last)]
        self.mirror.note_use(units, some.repeat(len(units) // max(len(some), 1)))

    def find_units(self, fields: Sequence[StoredField], shards: np.ndarray) -> np.ndarray:
        """Find the units of fields in some shards of the slab that the mirror has: int64[n]."""
        arrays = [(field.field.name, role) for field in fields for role in field.arrays]
        return find_mirrored_units(self._part, arrays, shards)

    def _take_snapshot(self) -> _Snapshot:
        presence = self.mirror.presence
        return _Snapshot(self.counter[0], presence.generations.copy(), set())  # in this order
