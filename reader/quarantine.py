"""Damaged rows, and slabs that are read on without them: `open_slab(on_damage=...)`."""

from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, Protocol

import numpy as np

from fieldslab.reader import forks
from fieldslab.reader.batch import Batch, Failure, Padding
from fieldslab.reader.buffers import Allocator
from fieldslab.reader.copying import RowLocations
from fieldslab.reader.gather import GatheredFields
from fieldslab.reader.rows import ShardDirectory
from fieldslab.reader.stored.field import StoredField
from fieldslab.reader.var_len import VarLenValues
from fieldslab.schemas.access import Folder
from fieldslab.schemas.errors import DamagedArray, RemoteUnreadable, Unreadable, UsageError
from fieldslab.schemas.fields import Field
from fieldslab.schemas.manifest import Manifest
from fieldslab.schemas.notices import warn
from fieldslab.schemas.optiontext import mark_option

POLICIES = ("raise", "skip", "fill")
_CANDIDATES = 1024
"""Rows that are tried as what stands for damaged ones, where a batch has no other."""

Masks = Mapping[str, np.ndarray]
"""Which rows are damaged, by name of the field: bool[n]."""


class Moved(NamedTuple):
    """Fields with damaged rows that are filled: which rows, and places to read in their stead.

    A field is read at these places, and then `blank_rows` empties the rows.
    """

    damaged: Masks
    places: Mapping[str, RowLocations]

    def select(self, keep: np.ndarray) -> "Moved":
        """Select the rows where `keep`, bool[n], is true."""
        places = {
            name: RowLocations(each.shards[keep], each.in_shard[keep])
            for name, each in self.places.items()
        }
        return Moved({name: mask[keep] for name, mask in self.damaged.items()}, places)

    def gather(
        self,
        gather: Callable[..., GatheredFields],
        fields: Sequence[StoredField],
        places: RowLocations,
        memory: Allocator,
        batches_in_turn: int = 1,
        paddings: Mapping[str, Padding] | None = None,
    ) -> GatheredFields:
        """Gather fields, each at its places: `gather` is `gather_fields` with its pool."""
        if not self.places:
            return gather(fields, places, memory, batches_in_turn, paddings)
        result = GatheredFields({}, {}, {})
        for stored in fields:
            name = stored.field.name
            some = {name: paddings[name]} if paddings and name in paddings else None
            part = gather([stored], self.places.get(name, places), memory, batches_in_turn, some)
            result.values.update(part.values)
            result.valid.update(part.valid)
            result.sizes.update(part.sizes)
        return result


NOTHING = Moved({}, {})
"""Where nothing is damaged, as far as is known."""


class StoredSlab(Protocol):
    """What is asked of a `Storage`."""

    manifest: Manifest
    directory: ShardDirectory
    fields: Mapping[str, Field]

    @property
    def path(self) -> Path:
        """See `Storage`."""

    def get_folder(self, shard: int) -> Folder:
        """See `Storage`."""


class _DamagedRows(NamedTuple):
    """Ranges of rows, ascending and apart: first rows and last rows, int64[n], and reasons."""

    firsts: np.ndarray
    lasts: np.ndarray
    reasons: tuple[str, ...]

    def find(self, rows: np.ndarray) -> np.ndarray:
        """Return the range that each row is in: int64[n], -1 for none."""
        if not len(self.firsts):
            return np.full(len(rows), -1)
        index = np.searchsorted(self.firsts, rows, side="right") - 1
        return np.where((index >= 0) & (rows <= self.lasts[index]), index, -1)

    def count_rows(self) -> int:
        """Count the rows."""
        return int((self.lasts - self.firsts + 1).sum())

    def add(self, first: int, last: int, reason: str) -> "_DamagedRows":
        """Return these ranges and one more."""
        is_separate = (self.lasts < first) | (self.firsts > last)
        first, last = (
            min([first, *self.firsts[~is_separate]]),
            max([last, *self.lasts[~is_separate]]),
        )
        place = int(np.count_nonzero(self.firsts[is_separate] < first))
        reasons = [text for text, outside in zip(self.reasons, is_separate, strict=True) if outside]
        reasons.insert(place, reason)
        return _DamagedRows(
            np.insert(self.firsts[is_separate], place, first),
            np.insert(self.lasts[is_separate], place, last),
            tuple(reasons),
        )


_NONE = _DamagedRows(np.empty(0, np.int64), np.empty(0, np.int64), ())


class Quarantine:
    """The damaged rows of a slab that this process knows. Any thread may use it.

    Attributes
    ----------
    policy
        "skip" or "fill".
    limit
        The share of rows that may be damaged.
    found
        How often damage was found that was not known.
    """

    def __init__(self, policy: str, limit: float) -> None:
        self.policy = policy
        self.limit = limit
        self.found = 0
        self._by_field: dict[str, _DamagedRows] = {}
        self._all = _NONE
        self.after_fork()
        forks.register_for_forks(self)

    def after_fork(self) -> None:
        """Start with a new lock in a forked child."""
        self._lock = Lock()

    def renew(self) -> "Quarantine":
        """Make one that knows no damaged rows yet."""
        return Quarantine(self.policy, self.limit)

    def find_damaged(self, rows: np.ndarray, names: Sequence[str]) -> Masks:
        """Find damaged rows among some, int64[n], by name of the field; only fields with any."""
        by_field = {name: self._by_field[name] for name in names if name in self._by_field}
        masks = {name: damaged.find(rows) >= 0 for name, damaged in by_field.items()}
        return {name: mask for name, mask in masks.items() if mask.any()}

    def list_failures(
        self, rows: np.ndarray, numbers: np.ndarray, damaged: Masks
    ) -> tuple[Failure, ...]:
        """List what `Batch.failures` says: `numbers` are those of the view, int64[n]."""
        failures = []
        for name, mask in damaged.items():
            ranges = self._by_field[name]
            places = np.flatnonzero(mask)
            for place, index in zip(places.tolist(), ranges.find(rows[places]), strict=True):
                failures.append(Failure(name, int(numbers[place]), ranges.reasons[index]))
        return tuple(failures)

    def find_good_rows(self, count: int) -> np.ndarray:
        """Find some of `count` rows that are not known to be damaged: int64[n]."""
        rows = np.unique(np.linspace(0, count - 1, _CANDIDATES).astype(np.int64))
        return rows[self._all.find(rows) < 0] if len(self._all.firsts) else rows

    def note(
        self, error: DamagedArray | Unreadable, storage: StoredSlab, shards: np.ndarray
    ) -> None:
        """Remember the rows that an error is about.

        `shards` are those that were read: int64[n]. Raises the error where the rows are unknown, or
        too many.
        """
        bounds = None if isinstance(error, RemoteUnreadable) else _find_rows(error, storage, shards)
        if bounds is None:
            raise error
        field, total = error.context.get("field"), storage.manifest.rows
        with self._lock:
            for name in storage.fields if field is None else [field]:
                ranges = self._by_field.get(name, _NONE)
                added = self._by_field[name] = ranges.add(*bounds, error.problem)
                self.found += added.count_rows() > ranges.count_rows()
            count_before = self._all.count_rows()
            self._all = self._all.add(*bounds, error.problem)
            count = self._all.count_rows()
        if count > self.limit * total:
            error.add_hint(
                f"{count:,} of {total:,} rows are damaged, as far as is known: more than "
                f"{mark_option('max_damaged', self.limit)} allows."
            )
            raise error
        if count > count_before:
            action = "left out of batches" if self.policy == "skip" else "filled"
            warn(f"rows {bounds[0]}..{bounds[1]} are {action}: {error.statement}")


def make_quarantine(on_damage: str, max_damaged: float) -> Quarantine | None:
    """Make what `open_slab` is asked for; None to raise. Raises UsageError."""
    if on_damage not in POLICIES:
        raise UsageError(
            f"unknown {mark_option('on_damage')}",
            expected='"raise", "skip" or "fill"',
            found=on_damage,
        )
    if isinstance(max_damaged, bool) or not isinstance(max_damaged, int | float):
        raise UsageError(f"{mark_option('max_damaged')} must be a number", found=repr(max_damaged))
    if not 0 <= max_damaged <= 1:
        raise UsageError(
            f"{mark_option('max_damaged')} is a share of the rows",
            expected="0 to 1",
            found=max_damaged,
        )
    return None if on_damage == "raise" else Quarantine(on_damage, float(max_damaged))


def read_around_damage(
    quarantine: Quarantine,
    storage: StoredSlab,
    names: Sequence[str],
    rows: np.ndarray,
    numbers: np.ndarray,
    places: RowLocations,
    visits: Any,
    read: Callable[[np.ndarray, RowLocations, Any, Moved], Batch],
) -> Batch:
    """Read a batch without what is damaged, which its `failures` name.

    Parameters
    ----------
    rows, numbers, places
        Rows of the slab, and of the view, int64[n]; and where they lie.
    visits
        What tells visits apart, or None.
    read
        read(numbers, places, visits, moved).

    Raises what `read` raises where it is not about rows, or about too many.
    """
    while True:
        found, damaged = quarantine.found, quarantine.find_damaged(rows, names)
        try:
            if not damaged:
                return read(numbers, places, visits, NOTHING)
            is_damaged = np.logical_or.reduce(list(damaged.values()))
            if quarantine.policy == "skip":
                good_visits = None if visits is None else np.asarray(visits)[~is_damaged]
                good_places = RowLocations(places.shards[~is_damaged], places.in_shard[~is_damaged])
                batch = read(numbers[~is_damaged], good_places, good_visits, NOTHING)
            else:
                moved = {
                    name: _substitute(places, mask, quarantine, storage)
                    for name, mask in damaged.items()
                }
                batch = read(numbers, places, visits, Moved(damaged, moved))
        except (DamagedArray, Unreadable) as error:
            quarantine.note(error, storage, places.shards)
            if quarantine.found == found:
                raise  # all that it is about was left out already
            continue
        batch.failures = *quarantine.list_failures(rows, numbers, damaged), *batch.failures
        return batch


def blank_rows(
    batch: Batch,
    damaged: Masks,
    fields: Mapping[str, Field],
    decoded: Container[str],
    paddings: Mapping[str, Padding] | None = None,
) -> None:
    """Put zeros, or nothing, into damaged rows of a batch; nulls where a field may have them.

    Fields that are `decoded` are filled already.
    """
    for name, mask in damaged.items():
        if name in decoded:
            continue
        values = batch[name]
        if isinstance(values, VarLenValues):
            filled: Any = values.empty_rows(mask)
            batch.replace(name, filled)
        else:
            padding = (paddings or {}).get(name)
            values[mask] = -1 if fields[name].kind == "categorical" else 0
            if padding is not None:
                values[mask] = padding.fill
                if padding.mask is not None:
                    batch[padding.mask][mask] = False
        for arrays in (batch.valid, batch.sizes):
            if name in arrays:
                arrays[name][mask] = 0


def _substitute(
    places: RowLocations, damaged: np.ndarray, quarantine: Quarantine, storage: StoredSlab
) -> RowLocations:
    """Put other places where rows are damaged: those of rows that are not, as far as is known."""
    if not damaged.all():
        first = int(np.argmin(damaged))
        shard, place = places.shards[first], places.in_shard[first]
    else:
        good_rows = quarantine.find_good_rows(storage.manifest.rows)
        if not len(good_rows):
            raise DamagedArray("all rows are damaged", file=storage.path)
        shard, place = storage.directory.find_shard(int(good_rows[0]))
    return RowLocations(
        np.where(damaged, shard, places.shards), np.where(damaged, place, places.in_shard)
    )


def _find_rows(
    error: DamagedArray | Unreadable, storage: StoredSlab, shards: np.ndarray
) -> tuple[int, int] | None:
    """Find the first and the last row that an error is about; None where it is not about rows."""
    row = error.context.get("row")
    if row is not None:
        start, _, end = str(row).partition("..")
        return int(start), int(end or start)
    folder = Path(error.context["file"]).parent if "file" in error.context else None
    for shard in np.unique(shards).tolist():
        if storage.get_folder(shard).path == folder:
            starts = storage.directory.starts
            last = starts[shard + 1] if shard + 1 < len(starts) else storage.manifest.rows
            return int(starts[shard]), int(last) - 1
    return None
