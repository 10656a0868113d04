"""Fields: what a named column of a slab holds, and the arrays it is stored in."""

import math
import re
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np

from fieldslab.schemas.images import CODECS

Kind = Literal["fixed", "ragged", "text", "binary", "image", "categorical", "nested"]
InnerKind = Literal["ragged", "text", "binary"]
DtypeName = Literal[
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
Role = Literal[
    "values",
    "offsets",
    "lengths",
    "size",
    "points.values",
    "points.offsets",
    "lists.values",
    "lists.offsets",
    "codec",
    "valid",
    "categories.values",
    "categories.offsets",
    "dictionary",
]
Unit = Literal["D", "s", "ms", "us", "ns"]

MAX_COUNT = 2**48
"""No count in a manifest may be larger: products of a few of them still fit in memory as ints."""
MAX_INLINE_CATEGORIES = 1024
MAX_INLINE_BYTES = 64 * 1024
"""More categories, or longer ones, are stored as arrays, not in the manifest."""

SPARSE_ATTRIBUTE = "fieldslab.sparse"
"""The attribute of the indices and values of a sparse matrix: {"columns": n}."""

MAX_EVERY = 8192
"""MCUs from one index point to the next, at most: a row of MCUs in a JPEG is no longer."""
POINT_ITEMS = 5
"""Numbers of an index point: its bit position in two, and three DC predictors."""

MAX_INNER = 2**31 - 1
"""Elements of a list inside a list, at most."""

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
Every = Annotated[int, msgspec.Meta(ge=0, le=MAX_EVERY)]
Shape = Annotated[tuple[Count, ...], msgspec.Meta(max_length=30)]
Stem = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{2,6}-[a-z0-9_]{1,40}\Z")]

VARIABLE_KINDS = ("ragged", "text", "binary", "image", "nested")


class Logical(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the stored numbers stand for; storage and gathers do not depend on it.

    `timestamp` and `duration` carry a unit (and a time zone) and are gathered as numpy
    datetime64 and timedelta64. `date` counts days and `time` counts units since midnight.
    `class_label` and `enum` name integers: `names[k]` stands for `codes[k]`, or for `k`.
    """

    type: Literal[
        "timestamp",
        "duration",
        "date",
        "time",
        "bfloat16",
        "uuid",
        "bytes",
        "json",
        "class_label",
        "enum",
        "audio",
    ]
    unit: Unit | None = None
    timezone: str | None = None
    names: tuple[str, ...] | None = None
    codes: tuple[int, ...] | None = None

    def find_contradiction(self, dtype: str) -> str | None:
        """Say why these members contradict each other or the dtype; None if they do not."""
        if self.type in ("timestamp", "duration") and dtype != "int64":
            return f"a {self.type} is stored as int64, not as {dtype}"
        if self.type == "bfloat16" and dtype != "uint16":
            return f"bfloat16 is stored as uint16, not as {dtype}"
        if self.type in ("timestamp", "duration", "date", "time") and self.unit is None:
            return f"a {self.type} needs a `unit`"
        if self.codes is not None and len(self.names or ()) != len(self.codes):
            return "`names` and `codes` differ in length"
        return None


class CategoryTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Size of a category table that is stored as arrays in the folder `tables`."""

    count: Count
    bytes: Count


class Compression(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True
):
    """How the rows of a field are compressed: each row is a frame of its own.

    `decoded` is the bytes of all rows before compression, `dictionary` the bytes of the trained
    dictionary that stands in the folder `tables`, 0 where there is none.
    """

    codec: Literal["zstd"]
    decoded: Count
    dictionary: Count = 0


class ArraySpec(NamedTuple):
    """One array of a field, in a shard or, with `per` "table", in the folder `tables`.

    `shape` is that of one item, `per` what there is an item for. Where rows have different numbers
    of items, `by` is the role of the offsets that divide them. Items lie within `limits`, both ends
    included. Of nested fields, a "point" is a list inside a list.
    """

    role: Role
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    per: Literal["row", "row+1", "element", "point", "table"]
    by: Role | None = None
    limits: tuple[int, int] | None = None

    @property
    def item_bytes(self) -> int:
        """Bytes of one item along axis 0."""
        return self.dtype.itemsize * math.prod(self.shape)


_U1, _U2, _U4, _U8, _I4 = (np.dtype(name) for name in ("u1", "<u2", "<u4", "<u8", "<i4"))
VALID = ArraySpec("valid", np.dtype("bool"), (), "row", limits=(0, 1))


class Field(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True
):
    """A named column.

    `dtype` and `shape` are those of one row (`fixed`, `categorical`) or of one element along
    axis 0 (`ragged`; for `text`, `binary` and `image` one byte). `stem` starts its file names.
    A row of a `nested` field is a list of rows as those of a field of the kind `inner`.
    Of images, `index` is the MCUs from one index point to the next (0 for one point a row of
    MCUs), None without an index; `coded` fields have an array of codes, one for each row.
    """

    name: str
    stem: Stem
    kind: Kind
    dtype: DtypeName = "uint8"
    shape: Shape = ()
    nullable: bool = False
    inner: InnerKind | None = None
    codec: str | None = None
    index: Every | None = None
    coded: bool = False
    logical: Logical | None = None
    categories: tuple[str, ...] | None = None
    table: CategoryTable | None = None
    compression: Compression | None = None
    attributes: dict[str, Any] = {}

    @property
    def variable(self) -> bool:
        """Whether rows differ in length, so that the field has offsets."""
        return self.kind in VARIABLE_KINDS

    @property
    def category_count(self) -> int:
        """Categories of a categorical field."""
        return len(self.categories or ()) if self.table is None else self.table.count

    @property
    def stored(self) -> "Field":
        """The field as its `values` and `offsets` hold it: a compressed one as binary frames."""
        if self.compression is None:
            return self
        return Field(name=self.name, stem=self.stem, kind="binary", nullable=self.nullable)

    @property
    def storage(self) -> np.dtype[Any]:
        """Little-endian dtype of `values` on disk."""
        return np.dtype(self.dtype).newbyteorder("<")

    @property
    def view(self) -> np.dtype[Any]:
        """Dtype that a gather returns: `storage`, or datetime64 and timedelta64 of that width."""
        if self.logical is not None and self.dtype == "int64" and self.logical.unit != "D":
            if self.logical.type == "timestamp":
                return np.dtype(f"<M8[{self.logical.unit}]")
            if self.logical.type == "duration":
                return np.dtype(f"<m8[{self.logical.unit}]")
        return self.storage

    @property
    def item_bytes(self) -> int:
        """Bytes of one row (fixed) or of one element (variable)."""
        size = self.storage.itemsize
        for length in self.shape:
            size *= length
        return size

    @property
    def widest_item(self) -> int:
        """As `item_bytes`, but a 0 in the shape counts as 1: numpy refuses arrays by this."""
        return self.storage.itemsize * math.prod(max(length, 1) for length in self.shape)

    def list_arrays(self) -> tuple[ArraySpec, ...]:
        """List the arrays of this field in every shard, in file order; `valid` only with nulls."""
        stored, limits = self.stored, None
        if self.kind == "categorical":
            limits = -1, self.category_count - 1
        elif stored.dtype == "bool":
            limits = 0, 1
        if not stored.variable:
            specs = [ArraySpec("values", stored.storage, stored.shape, "row", limits=limits)]
        else:
            specs = [
                ArraySpec("values", stored.storage, stored.shape, "element", "offsets", limits),
                ArraySpec("offsets", _U8, (), "row+1"),
            ]
        if self.compression is not None and self.variable:
            specs.append(ArraySpec("lengths", _U8, (), "row"))
        if self.kind == "image":
            specs.append(ArraySpec("size", _U4, (2,), "row"))
        if self.index is not None:
            specs.append(ArraySpec("points.values", _U2, (POINT_ITEMS,), "point", "points.offsets"))
            specs.append(ArraySpec("points.offsets", _U8, (), "row+1"))
        if self.kind == "nested":
            most = -1, MAX_INNER
            specs.append(ArraySpec("lists.values", _I4, (), "point", "lists.offsets", most))
            specs.append(ArraySpec("lists.offsets", _U8, (), "row+1"))
        if self.coded:
            specs.append(ArraySpec("codec", _U1, (), "row", limits=(0, len(CODECS) - 1)))
        if self.nullable:
            specs.append(VALID)
        return tuple(specs)

    def list_arrays_in_tables(self) -> tuple[tuple[ArraySpec, int], ...]:
        """List the arrays of this field in the folder `tables`, each with its number of items."""
        specs: list[tuple[ArraySpec, int]] = []
        if self.table is not None:
            values = ArraySpec("categories.values", _U1, (), "table", "categories.offsets")
            specs.append((values, self.table.bytes))
            offsets = ArraySpec("categories.offsets", _U8, (), "table")
            specs.append((offsets, self.table.count + 1))
        if self.compression is not None and self.compression.dictionary:
            dictionary = ArraySpec("dictionary", _U1, (), "table")
            specs.append((dictionary, self.compression.dictionary))
        return tuple(specs)

    def find_contradiction(self) -> str | None:
        """Say why these members contradict each other; None if they do not."""
        byte_wise = (self.inner or self.kind) in ("text", "binary", "image")
        if byte_wise and (self.dtype != "uint8" or self.shape):
            return f"kind {self.kind} is stored as bytes, not as {self.dtype}{list(self.shape)}"
        if self.kind == "categorical":
            if self.dtype != "int32" or self.shape:
                return "categorical codes are int32 scalars"
            if (self.categories is None) == (self.table is None):
                return "categorical needs either `categories` or `table`"
        elif self.categories is not None or self.table is not None:
            return f"kind {self.kind} has no categories"
        if self.categories is not None and len(set(self.categories)) < len(self.categories):
            return "a category comes twice"
        if (self.inner is not None) != (self.kind == "nested"):
            return "`inner` belongs to nested fields"
        if self.compression is not None and self.kind in ("image", "categorical"):
            return f"kind {self.kind} is not compressed"
        if (self.codec is not None) != (self.kind == "image"):
            return "`codec` belongs to images"
        if (self.index is not None or self.coded) and self.kind != "image":
            return "`index` and `coded` belong to images"
        return None if self.logical is None else self.logical.find_contradiction(self.dtype)

    def describe(self) -> str:
        """Describe a row of this field for people: `float32[16]`, `text, or null`."""
        shape = "[" + ", ".join(map(str, self.shape)) + "]" if self.shape else ""
        categories = self.table.count if self.table else len(self.categories or ())
        inner = f"{self.view}{shape} lists" if self.inner == "ragged" else self.inner
        words = {
            "fixed": f"{self.view}{shape}",
            "ragged": f"ragged {self.view}{shape}",
            "image": f"image ({self.codec})",
            "nested": f"lists of {inner}",
            "categorical": f"categorical, {categories:,} categories",
        }
        null = ", or null" if self.nullable else ""
        return f"{words.get(self.kind, self.kind)}{null}"


def make_file_stem(ordinal: int, name: str) -> str:
    """Start of a field's file names: its ordinal and its name in safe characters."""
    slug = re.sub(r"[^a-z0-9]+", "_", name.lower())[:40].strip("_")
    return f"{ordinal:02d}-{slug or 'field'}"
