"""One field of an open slab: its arrays over all shards, and how one of its rows is read."""

import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fieldslab.reader.batch import Text, not_utf8
from fieldslab.reader.stored.array import StoredArray
from fieldslab.reader.stored.folder import Folder
from fieldslab.reader.stored.tables import load_categories, load_dictionary
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.errors import DamagedArray, DamagedManifest
from fieldslab.schemas.fields import Field, Role
from fieldslab.schemas.frames import FrameReader

MOST_ROW_BYTES = 2**40
"""No row or element may be larger, not even in lengths beside a 0."""

_OFFSETS = np.dtype("<u8")
_RESTORE = "Restore the file from a copy, or pack the slab again."


class StoredField:
    """A field, mapped in every shard.

    Attributes
    ----------
    field
        What the manifest says of it.
    dtype
        Dtype of its values as they are handed out.
    values, offsets, size, points, codec, valid
        Its arrays; None for those that it does without. `points.offsets` tells which of the index
        points, uint16[points, 5], are an image's; `codec` holds the codes of single rows.
    elements
        How many elements each shard holds, for kinds of variable length: uint64[shards].
    frames, lengths
        Of a compressed field: what decompresses its rows, and the elements of each row.
    """

    def __init__(
        self, field: Field, folders: Sequence[Folder], tables: Folder | None, verify: bool
    ) -> None:
        """Map all arrays of the field; the errors are those of `Folder.map`."""
        _check_shape(field)
        self.field = field
        self.dtype = field.view
        self._folders = folders
        self._tables = tables
        self._verify = verify
        self.valid = self._array("valid", np.dtype(np.bool_)) if field.nullable else None
        self.size = self._array("size", np.dtype("<u4")) if field.kind == "image" else None
        self.codec = self._array("codec", np.dtype("u1")) if field.coded else None
        self.points: Elements | None = None
        if field.index is not None:
            ends = self._array("points.offsets", _OFFSETS)
            item = np.dtype("<u2")
            self.points = Elements(ends, field, "points.values", item, folders, verify)
        self.offsets: StoredArray | None = None
        self.lengths: StoredArray | None = None
        self.frames: FrameReader | None = None
        if field.compression is not None:
            self.frames = FrameReader(field.name, self._dictionary())
            self.lengths = self._array("lengths", np.dtype("<u8")) if field.variable else None
        if field.stored.variable:
            self.offsets = self._array("offsets", _OFFSETS)
            dtype = self.dtype if self.frames is None else np.dtype("u1")
            self.values: StoredArray = Elements(
                self.offsets, field, "values", dtype, folders, verify
            )
        else:
            self.values = self._array("values", self.dtype)
        counts = [0 if array is None else len(array) for array in self.values.arrays]
        self.elements = np.array(counts, np.uint64)

    def row(self, shard: int, place: int) -> Any:
        """Value of one row; None if it is null. Arrays are copies.

        Raises DamagedArray where a digest, an offset or UTF-8 is wrong.
        """
        if not self._is_valid(shard, place):
            return None
        if self.offsets is not None:
            start, stop = self.span(shard, place)
            self.values.verify_items(shard, start, stop)
            values = self.values[shard][start:stop]
            if self.frames is not None:
                values = self._decompressed(self.frames, values, shard, place)
                if not self.field.variable:
                    return values[0]
            return self._variable(values, shard, place)
        self.values.verify_items(shard, place, place + 1)
        value = self.values[shard][place]
        if self.field.kind == "categorical":
            return self._category(int(value), shard, place)
        return value.copy() if self.field.shape else value

    @cached_property
    def categories(self) -> Sequence[str] | Text:
        """What the codes of a categorical field stand for; from its table, if it has one."""
        if self._tables is None or self.field.table is None:
            return self.field.categories or ()
        return load_categories(self.field, self._tables, self._verify)

    def span(self, shard: int, place: int) -> tuple[int, int]:
        """First element and end of a variable-length row. Raises DamagedArray."""
        assert self.offsets is not None
        self.offsets.verify_items(shard, place, place + 2)
        offsets = self.offsets[shard]
        start, stop = int(offsets[place]), int(offsets[place + 1])
        if not start <= stop <= len(self.values[shard]):
            raise self._damaged_offsets(shard, place, start, stop)
        return start, stop

    def spans(self, shard: int, first: int, last: int) -> np.ndarray:
        """Offsets of rows `first` up to `last`: int64, checked. Raises DamagedArray."""
        assert self.offsets is not None
        self.offsets.verify_items(shard, first, last + 1)
        offsets = self.offsets[shard][first : last + 1].copy()
        limit = len(self.values[shard])
        wrong = (offsets[:-1] > offsets[1:]) | (offsets[1:] > limit)
        if wrong.any():
            at = int(np.argmax(wrong))
            start, stop = int(offsets[at]), int(offsets[at + 1])
            raise self._damaged_offsets(shard, first + at, start, stop)
        return offsets.astype(np.int64)

    def damaged_row(self, shard: int, place: int) -> DamagedArray:
        """Error for a row whose offsets a kernel refused."""
        assert self.offsets is not None
        start, stop = self.offsets[shard][place : place + 2].tolist()
        return self._damaged_offsets(shard, place, start, stop)

    def damaged_points(self, shard: int, place: int) -> DamagedArray:
        """Error for an image whose offsets into the index points a kernel refused."""
        assert self.points is not None
        return DamagedArray(
            "offsets are damaged",
            file=self.points.offsets.path(shard),
            field=self.field.name,
            row=self._row(shard, place),
            offset=HEADER + _OFFSETS.itemsize * place,
            hint=_RESTORE,
        )

    def _is_valid(self, shard: int, place: int) -> bool:
        if self.valid is None or not self.valid.present[shard]:
            return True
        self.valid.verify_items(shard, place, place + 1)
        return bool(self.valid[shard][place])

    def _decompressed(
        self, frames: FrameReader, frame: np.ndarray, shard: int, place: int
    ) -> np.ndarray:
        """The row in one frame: (elements, *shape), or (1, *shape)."""
        counts = None
        if self.lengths is not None:
            self.lengths.verify_items(shard, place, place + 1)
            counts = self.lengths[shard][place : place + 1]
        offsets = np.array([0, len(frame)])
        sizes = frames.sizes(offsets, counts, self.field.item_bytes)
        out = np.empty(int(sizes[0]), np.uint8)
        frames.read(frame, offsets, sizes, out)
        count = 1 if counts is None else int(counts[0])
        return out.view(self.dtype).reshape(count, *self.field.shape)

    def _dictionary(self) -> bytes | None:
        """The trained dictionary of a compressed field."""
        if self._tables is None or not self.field.has_tables:
            return None
        return load_dictionary(self.field, self._tables, self._verify)

    def _variable(self, values: np.ndarray, shard: int, place: int) -> Any:
        if self.field.kind == "ragged":
            return values.copy()
        if self.field.kind != "text":
            return values.tobytes()
        try:
            return str(values.data, "utf-8")
        except UnicodeDecodeError as error:
            where = {"file": self.values.path(shard), "row": self._row(shard, place)}
            raise not_utf8(self.field.name, error, **where) from error

    def _category(self, code: int, shard: int, place: int) -> str:
        if 0 <= code < len(self.categories):
            return self.categories[code]
        raise DamagedArray(
            "a code has no category",
            file=self.values.path(shard),
            field=self.field.name,
            row=self._row(shard, place),
            offset=HEADER + self.values.item_bytes * place,
            expected=f"0..{len(self.categories) - 1}",
            found=code,
            hint=_RESTORE,
        )

    def _array(self, role: Role, dtype: np.dtype[Any]) -> StoredArray:
        return StoredArray(self.field, role, dtype, self._folders, self._verify)

    def _row(self, shard: int, place: int) -> int:
        return self._folders[shard].first_row + place

    def _damaged_offsets(self, shard: int, place: int, start: int, stop: int) -> DamagedArray:
        assert self.offsets is not None
        return DamagedArray(
            "offsets are damaged",
            file=self.offsets.path(shard),
            field=self.field.name,
            row=self._row(shard, place),
            offset=HEADER + _OFFSETS.itemsize * place,
            expected=f"rising numbers up to {len(self.values[shard])}",
            found=f"{start}, {stop}",
            hint=_RESTORE,
        )


class Elements(StoredArray):
    """What rows have different numbers of: which rows lie in a block, only `offsets` can tell."""

    def __init__(
        self,
        offsets: StoredArray,
        field: Field,
        role: Role,
        dtype: np.dtype[Any],
        folders: Sequence[Folder],
        verify: bool,
    ) -> None:
        super().__init__(field, role, dtype, folders, verify)
        self.offsets = offsets
        counts = [0 if array is None else len(array) for array in self.arrays]
        self.elements = np.array(counts, np.uint64)

    def suspects(self, shard: int, begin: int, end: int) -> tuple[int, int]:
        """As in `StoredArray`, by a search in the offsets."""
        elements = super().suspects(shard, begin, end)
        first, last = np.searchsorted(self.offsets[shard], elements, side="right") - 1
        return int(first), int(last)


def _check_shape(field: Field) -> None:
    size = math.prod(max(length, 1) for length in field.shape) * field.storage.itemsize
    if size > MOST_ROW_BYTES:
        raise DamagedManifest(
            "shape is too large",
            file=Path("manifest.json"),
            field=field.name,
            expected=f"at most {MOST_ROW_BYTES} bytes",
            found=field.shape,
        )
