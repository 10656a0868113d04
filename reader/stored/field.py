"""One field of an open slab: its arrays over all shards, and how one of its rows is read."""

import copy
import math
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fieldslab.reader.conversion import Conversion, make_conversion
from fieldslab.reader.stored.array import StoredArray
from fieldslab.reader.stored.field_frames import FieldFrames
from fieldslab.reader.stored.shards import Shards
from fieldslab.reader.var_len import Text, make_utf8_error
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.errors import DamagedArray, DamagedManifest
from fieldslab.schemas.fields import Field, Role
from fieldslab.schemas.inner_lists import find_inner_lists
from fieldslab.schemas.stored_tables import load_categories

MOST_ROW_BYTES = 2**40
"""No row or element may be larger, not even in lengths beside a 0."""


_INT32 = np.dtype(np.int32)


@cache
def _load_translation() -> Any:
    from fieldslab.reader.kernels import translate_codes  # numba: gathers have it

    return translate_codes


class StoredField:
    """A field, mapped in every shard.

    Attributes
    ----------
    field
        What the manifest says of it.
    dtype
        Dtype of its values as they are handed out.
    arrays
        Its arrays, by role.
    values, offsets, size, points, point_offsets, lists, list_offsets, codec, valid
        The same; None for those that it does without. `point_offsets` tells which of the index
        points, uint16[points, 5], are an image's; `codec` holds the codes of single rows.
        `lists` has the elements of each list inside the lists of a nested field, int32[lists],
        `list_offsets` tells which of them are a row's.
    frames, lengths
        Of a compressed field: what decompresses its rows, and the elements of each row.
    conversion
        What makes values of another dtype of those that are stored; None where they stay.
    """

    conversion: Conversion | None = None

    def __init__(self, field: Field, shards: Shards) -> None:
        """Prepare all arrays of the field: they are mapped when they are touched."""
        _check_row_size(field)
        self.field = field
        self.dtype = field.view
        self._shards = shards
        self.arrays = arrays = dict[Role, StoredArray]()
        for spec in field.list_arrays():
            read_dtype = (
                self.dtype if spec.role == "values" and field.compression is None else spec.dtype
            )
            arrays[spec.role] = StoredArray(spec, read_dtype, field, shards)
        self.values = arrays["values"]
        self.offsets = arrays.get("offsets")
        self.lengths = arrays.get("lengths")
        self.size = arrays.get("size")
        self.points = arrays.get("points.values")
        self.point_offsets = arrays.get("points.offsets")
        self.lists = arrays.get("lists.values")
        self.list_offsets = arrays.get("lists.offsets")
        self.codec = arrays.get("codec")
        self.codecs = shards.members.find_codecs(field.name) if field.coded else None
        self.codes = shards.members.codes.get(field.name)
        self.valid = arrays.get("valid")
        self.frames: FieldFrames | None = None
        if field.compression is not None:
            self.frames = FieldFrames(field, shards)
        other_arrays = self.valid, self.offsets, self.frames, self.codes
        self._as_stored = other_arrays.count(None) == 4 and field.kind != "categorical"

    def cast(self, dtype: str) -> "StoredField":
        """Return the field over the same arrays, with values in a dtype of `check_cast`."""
        other = copy.copy(self)
        other.conversion = make_conversion(self.field, dtype)
        other.dtype = other.conversion.dtype
        other._as_stored = False
        return other

    def read_row(self, shard: int, place: int) -> Any:
        """Read the value of one row; None if it is null. Arrays are copies.

        Raises DamagedArray where a digest, an offset or UTF-8 is wrong.
        """
        if self._as_stored:
            stored = self.values
            stored.verify_items(shard, place, place + 1)
            value = stored[shard][place]
            return value.copy() if self.field.shape else value
        if not self._is_valid(shard, place):
            return None
        if self.offsets is not None:
            start, stop = self.read_element_range(shard, place)
            self.values.verify_items(shard, start, stop)
            values = self.values[shard][start:stop]
            if self.frames is not None:
                values = self._decompress_row(self.frames, values, shard, place)
                if not self.field.variable:
                    return (
                        values[0] if self.conversion is None else self.conversion.convert(values[0])
                    )
            return self._convert_variable_row(values, shard, place)
        self.values.verify_items(shard, place, place + 1)
        value = self.values[shard][place]
        if self.codes is not None:
            codes = np.array([value])
            self.translate_codes(codes, np.array([shard]), np.array([place]))
            value = codes[0]
        if self.field.kind == "categorical":
            return self._get_category(int(value), shard, place)
        if self.conversion is not None:
            return self.conversion.convert(value)
        return value.copy() if self.field.shape else value

    @cached_property
    def categories(self) -> Sequence[str] | Text:
        """What the codes of a categorical field stand for; from its table, if it has one."""
        names = self._shards.members.categories.get(self.field.name)
        if names is not None:
            return names
        tables = self._shards.load_tables(0) if self.field.table is not None else None
        if tables is None:
            return self.field.categories or ()
        stored = self._shards.members.get_field(0, self.field.name)
        assert stored is not None
        ends, text = load_categories(stored, tables)
        return Text(text, ends.astype(np.int64), self.field.name)

    def read_element_range(self, shard: int, place: int) -> tuple[int, int]:
        """Read the first element and end of a variable-length row. Raises DamagedArray."""
        assert self.offsets is not None
        return _read_range(self.offsets, self.values, shard, place)

    def read_offsets(self, shard: int, first: int, last: int) -> np.ndarray:
        """Read the offsets of rows `first` up to `last`: int64, checked. Raises DamagedArray."""
        assert self.offsets is not None
        self.offsets.verify_items(shard, first, last + 1)
        offsets = self.offsets[shard][first : last + 1].copy()
        limit = len(self.values[shard])
        wrong = (offsets[:-1] > offsets[1:]) | (offsets[1:] > limit)
        if wrong.any():
            raise self.offsets.make_damaged_offsets_error(
                shard, first + int(np.argmax(wrong)), limit
            )
        return offsets.astype(np.int64)

    def _is_valid(self, shard: int, place: int) -> bool:
        if self.valid is None or not self.valid.present[shard]:
            return True
        self.valid.verify_items(shard, place, place + 1)
        return bool(self.valid[shard][place])

    def _decompress_row(
        self, frames: FieldFrames, frame: np.ndarray, shard: int, place: int
    ) -> np.ndarray:
        """Decompress the row of one frame: (elements, *shape), or (1, *shape)."""
        counts = None
        if self.lengths is not None:
            self.lengths.verify_items(shard, place, place + 1)
            counts = self.lengths[shard][place : place + 1]
        return frames.read_row(frame, counts, shard).view(self.field.view)

    def _convert_variable_row(self, values: np.ndarray, shard: int, place: int) -> Any:
        if self.conversion is not None:
            return self.conversion.convert(values)
        if self.lists is not None:
            return self._split_lists(values, shard, place)
        return self._convert_elements(values, shard, place)

    def _convert_elements(self, values: np.ndarray, shard: int, place: int) -> Any:
        kind = self.field.inner or self.field.kind
        if kind == "ragged":
            return values.copy()
        if kind != "text":
            return values.tobytes()
        try:
            return str(values.data, "utf-8")
        except UnicodeDecodeError as error:
            where = {
                "file": self.values.get_path(shard),
                "row": self._compute_slab_row(shard, place),
            }
            raise make_utf8_error(self.field.name, error, **where) from error

    def _split_lists(self, values: np.ndarray, shard: int, place: int) -> list[Any]:
        """Split the elements of a row: an array, str, bytes or None for each list inside it."""
        lengths = self._read_list_lengths(shard, place)
        ends = np.array([[0, len(lengths)], [0, len(values)]])
        inner = find_inner_lists(lengths, *ends)
        if inner.wrong_row is not None:
            raise self.make_lists_error(shard, place)
        valid = np.ones(len(lengths), bool) if inner.valid is None else inner.valid
        cuts = zip(inner.offsets[:-1].tolist(), inner.offsets[1:].tolist(), valid, strict=True)
        return [
            self._convert_elements(values[start:stop], shard, place) if is_valid else None
            for start, stop, is_valid in cuts
        ]

    def _read_list_lengths(self, shard: int, place: int) -> np.ndarray:
        assert self.lists is not None
        assert self.list_offsets is not None
        start, stop = _read_range(self.list_offsets, self.lists, shard, place)
        self.lists.verify_items(shard, start, stop)
        return self.lists[shard][start:stop]

    def make_lists_error(self, shard: int, place: int) -> DamagedArray:
        """Make the error for lists that do not have as many elements as their row."""
        assert self.lists is not None
        assert self.list_offsets is not None
        start, stop = _read_range(self.list_offsets, self.lists, shard, place)
        first, last = self.read_element_range(shard, place)
        lengths = self.lists[shard][start:stop].astype(np.int64)
        return self.lists.get_reader(shard).make_damaged_error(
            "lists inside a list do not have as many elements as their row",
            row=self._compute_slab_row(shard, place),
            offset=HEADER + self.lists.item_bytes * start,
            expected=f"lengths from -1 on, {last - first} together",
            found=f"{lengths[:8].tolist()}, {int(lengths.sum())} together",
        )

    def translate_codes(self, values: np.ndarray, shards: np.ndarray, places: np.ndarray) -> None:
        """Replace codes as slabs store them by those of all slabs: any integers[n], in place.

        `shards` and `places` say where they lie. Raises DamagedArray.
        """
        if self.codes is not None:
            if len(values) > 1 and values.dtype == _INT32:
                wrong = _load_translation()(values, shards, *self.codes)
            else:
                wrong = self.codes.translate(values, shards)
            if wrong >= 0:
                shard, place = int(shards[wrong]), int(places[wrong])
                count = int(self.codes.counts[shard])
                raise self._make_code_error(int(values[wrong]), count, shard, place)

    def _get_category(self, code: int, shard: int, place: int) -> str:
        if 0 <= code < len(self.categories):
            return self.categories[code]
        raise self._make_code_error(code, len(self.categories), shard, place)

    def _make_code_error(self, code: int, count: int, shard: int, place: int) -> DamagedArray:
        return self.values.get_reader(shard).make_damaged_error(
            "a code has no category",
            row=self._compute_slab_row(shard, place),
            offset=HEADER + self.values.item_bytes * place,
            expected=f"0..{count - 1}",
            found=code,
        )

    def _compute_slab_row(self, shard: int, place: int) -> int:
        return int(self._shards.first_rows[shard]) + place


def _read_range(ends: StoredArray, items: StoredArray, shard: int, place: int) -> tuple[int, int]:
    """Read the first item and end of a row whose items `ends` divides. Raises DamagedArray."""
    ends.verify_items(shard, place, place + 2)
    offsets, limit = ends[shard], len(items[shard])
    start, stop = int(offsets[place]), int(offsets[place + 1])
    if not start <= stop <= limit:
        raise ends.make_damaged_offsets_error(shard, place, limit)
    return start, stop


def _check_row_size(field: Field) -> None:
    size = math.prod(max(length, 1) for length in field.shape) * field.storage.itemsize
    if size > MOST_ROW_BYTES:
        raise DamagedManifest(
            "shape is too large",
            file=Path("manifest.json"),
            field=field.name,
            expected=f"at most {MOST_ROW_BYTES} bytes",
            found=field.shape,
        )
