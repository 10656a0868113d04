"""One field of a slab or view, as a sequence."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, SupportsIndex, TypeVar

import numpy as np

from fieldslab.reader.batch import Values
from fieldslab.reader.rows import Rows, check_index, check_rows
from fieldslab.reader.slab_storage import Storage
from fieldslab.reader.stored.field import StoredField
from fieldslab.reader.var_len import VAR_LEN_CLASSES
from fieldslab.reader.views import View
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import Field, Kind

_Result = TypeVar("_Result")


class Column:
    """The values of one field, row by row.

    `column[7]` is what `slab[7]` has under that name. `column[100:200]` and `column[[4, 2]]` are
    what a gather gives: an array, `Ragged`, `Text` or `Binary`. A slice within one shard shares the
    mapped file and is read-only; any other is a copy. Slices do not tell which rows are null: see
    `Batch.valid`.
    """

    def __init__(self, storage: Storage, stored: StoredField, view: View) -> None:
        """Not for callers: use `slab[name]`."""
        self._storage = storage
        self._stored = stored
        self._view = view

    @property
    def field(self) -> Field:
        """The field as the manifest describes it."""
        return self._stored.field

    @property
    def kind(self) -> Kind:
        """Kind of the field."""
        return self.field.kind

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the values: int32 codes for categories, uint8 for text and bytes."""
        return self._stored.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row, or of one element where rows differ in length."""
        return self.field.shape

    def __len__(self) -> int:
        return len(self._view)

    def __getitem__(self, rows: SupportsIndex | slice | Rows) -> Any:
        """One row, a slice of rows, or the rows numbered by an array, list or range.

        Raises
        ------
        RowOutOfRange, UsageError
            As `Slab.gather` does.
        DamagedArray
            The slab's files are not what pack wrote.
        """
        if isinstance(rows, slice):
            return self._read_slice(self._view[rows])
        if isinstance(rows, range | list | tuple) or np.ndim(rows) > 0:  # type: ignore[arg-type]
            return self._gather_rows(self._view, rows)  # type: ignore[arg-type]
        row = self._view[check_index(rows, len(self))]  # type: ignore[arg-type]
        shard, place = self._storage.directory.find_shard(row)
        return self._read(shard, lambda: self._stored.read_row(shard, place))

    def row_bytes(self, row: SupportsIndex) -> int:
        """Return the bytes of one row as it is stored, found without reading its values."""
        shard, place = self._storage.directory.find_shard(self._view[check_index(row, len(self))])
        item = self.dtype.itemsize * math.prod(self.shape)
        if not self.field.stored.variable:
            return item
        read_offsets = partial(self._stored.read_offsets, shard, place, place + 1)
        start, stop = self._read(shard, read_offsets).tolist()
        return (stop - start) * (1 if self._stored.frames is not None else item)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """All rows as one array (rows, *shape). Raises UsageError where lengths differ."""
        values = self[:]
        if not isinstance(values, np.ndarray):
            raise UsageError(
                "rows of different lengths do not form one array",
                field=self.field.name,
                hint="Write column[a:b], which has `values` and `offsets`.",
            )
        array = np.array(values, dtype, copy=copy)
        self._storage.changes.check()  # what is copied must not have come from a lost page
        return array

    def _read_slice(self, rows: View) -> Values:
        """Read rows of the slab: in place if one shard holds them, else gathered."""
        shared = self.find_in_place(rows)
        return self._gather_rows(rows, range(len(rows))) if shared is None else shared

    def find_in_place(self, rows: View) -> Values | None:
        """Find rows of the slab in the mapped file, verified; None where they must be copied.

        The result is read-only, and keeps the file mapped. Raises DamagedArray.
        """
        if not rows or not isinstance(rows, range):
            return None
        directory = self._storage.directory
        shard, first = directory.find_shard(rows[0])
        other, last = directory.find_shard(rows[-1])
        in_pieces = shard != other or (self.field.variable and rows.step != 1)
        in_pieces |= self._stored.lists is not None
        in_pieces |= self._storage.evictions is not None  # what may be evicted is not handed out
        stored = self._stored
        self._storage.changes.check()
        if in_pieces or stored.frames or stored.conversion or stored.codes:
            return None
        values = self._stored.values
        if not self.field.variable:
            low, high = min(first, last), max(first, last)
            values.verify_items(shard, low, high + 1)
            part = values[shard][low : high + 1]
            return part[:: rows.step] if first <= last else part[::-1][:: -rows.step]
        offsets = self._stored.read_offsets(shard, first, last + 1)
        start, stop = int(offsets[0]), int(offsets[-1])
        values.verify_items(shard, start, stop)
        packed = VAR_LEN_CLASSES[self.kind]
        return packed(values[shard][start:stop], offsets - start, self.field.name)

    def find_valid_in_place(self, rows: range) -> np.ndarray | None:
        """Find which rows of one shard are not null: bool[n], read-only; None where all are.

        The rows are some that `find_in_place` finds, one after the other. Raises DamagedArray.
        """
        shard, first = self._storage.directory.find_shard(rows[0])
        valid = self._stored.valid
        if valid is None or not valid.present[shard]:
            return None
        valid.verify_items(shard, first, first + len(rows))
        return valid[shard][first : first + len(rows)]

    def _gather_rows(self, view: View, rows: Rows) -> Values:
        storage = self._storage
        locations = storage.locate_rows(view, check_rows(rows, len(view)))
        gather = partial(storage.gather, [self._stored], locations, storage.pool, 1)
        return self._read(locations.shards, gather).values[self.field.name]

    def _read(self, shards: np.ndarray | int, read: Callable[[], _Result]) -> _Result:
        return self._storage.read([self.field.name], np.atleast_1d(shards), read)

    def __repr__(self) -> str:
        shape = list(self.shape) or ""
        return f"Column({self.field.name!r}, {len(self):,} rows, {self.kind} {self.dtype}{shape})"
