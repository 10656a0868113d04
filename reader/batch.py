"""A batch: the values of chosen rows, field by field."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, Self, SupportsIndex, TypeVar, overload

import numpy as np

from fieldslab.reader.buffers import Pool, ReusedMemory
from fieldslab.reader.image_values import Pictures, Views
from fieldslab.reader.rows import check_index
from fieldslab.schemas.errors import DamagedArray, UnknownField, UsageError
from fieldslab.schemas.fields import Field

_Item = TypeVar("_Item")
_PADDED = Pool()
"""Where padded rows go: touching fresh memory takes longer than padding."""


class VarLenValues(Generic[_Item]):
    """Values of rows that differ in length, concatenated: base of `Ragged`, `Text` and `Binary`.

    Attributes
    ----------
    values
        All elements of all rows: (elements, *shape).
    offsets
        Row i is `values[offsets[i]:offsets[i + 1]]`: int64[rows + 1], beginning with 0.
    name
        Name of the field, for messages.
    """

    __slots__ = ("name", "offsets", "values")

    def __init__(self, values: np.ndarray, offsets: np.ndarray, name: str = "") -> None:
        self.values = values
        self.offsets = offsets
        self.name = name

    @property
    def lengths(self) -> np.ndarray:
        """Elements of each row: int64[rows]."""
        return np.diff(self.offsets)

    @property
    def nbytes(self) -> int:
        """Bytes of `values`."""
        return self.values.nbytes

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, row: SupportsIndex) -> _Item: ...
    @overload
    def __getitem__(self, row: slice) -> Self: ...
    def __getitem__(self, row: SupportsIndex | slice) -> _Item | Self:
        """One row, or neighbouring rows `[a:b]` that share `values`. Raises RowOutOfRange."""
        if isinstance(row, slice):
            return self._slice_rows(row)
        row = check_index(row, len(self))
        return self._get_item(row, self.values[self.offsets[row] : self.offsets[row + 1]])

    def __iter__(self) -> Iterator[_Item]:
        return (self[row] for row in range(len(self)))

    def to_padded(self, length: int | None = None, fill: Any = 0) -> np.ndarray:
        """Copy into an array (rows, length, *shape), with `fill` at the end of shorter rows.

        Parameters
        ----------
        length
            Elements in each padded row. Default: the length of the longest row. Longer rows are
            cut.

        Raises UsageError if `length` is negative or `fill` does not fit the dtype.
        """
        if problem := explain_dtype_misfit(fill, self.values.dtype):
            raise UsageError("`fill` does not fit the dtype", field=self.name, found=problem)
        if length is not None and length < 0:
            raise UsageError("a length cannot be negative", found=length)
        # Imported late: this compiles kernels that only padding needs.
        from fieldslab.reader.padding import pad_packed_rows

        return pad_packed_rows(self.values, self.offsets, length, fill, _PADDED)

    def _get_item(self, row: int, values: np.ndarray) -> _Item:
        raise NotImplementedError

    def _slice_rows(self, rows: slice) -> Self:
        start, stop, step = rows.indices(len(self))
        if step != 1:
            raise UsageError("rows of different lengths can only be sliced with step 1", found=step)
        offsets = self.offsets[start : max(start, stop) + 1]
        first = offsets[0]
        return type(self)(self.values[first : offsets[-1]], offsets - first, self.name)

    def __repr__(self) -> str:
        shape = "".join(f", {length}" for length in self.values.shape[1:])
        return f"{type(self).__name__}({len(self)} rows, {self.values.dtype}[*{shape}])"


class Ragged(VarLenValues[np.ndarray]):
    """Arrays that differ in length along axis 0."""

    __slots__ = ()

    def tolist(self) -> list[Any]:
        """Return the rows as lists of Python numbers."""
        return [row.tolist() for row in self]

    def _get_item(self, row: int, values: np.ndarray) -> np.ndarray:
        return values


class Text(VarLenValues[str]):
    """Strings, as UTF-8 in `values` (uint8)."""

    __slots__ = ()

    def tolist(self) -> list[str]:
        """Return the rows as strings."""
        return list(self)

    def _get_item(self, row: int, values: np.ndarray) -> str:
        try:
            return str(values.data, "utf-8")
        except UnicodeDecodeError as error:
            raise make_utf8_error(self.name, error, row=f"{row} of the batch") from error


class Binary(VarLenValues[bytes]):
    """Byte strings, such as encoded images."""

    __slots__ = ()

    def tolist(self) -> list[bytes]:
        """Return the rows as bytes."""
        return list(self)

    def _get_item(self, row: int, values: np.ndarray) -> bytes:
        return values.tobytes()


def make_utf8_error(name: str, error: UnicodeDecodeError, **where: Any) -> DamagedArray:
    """Make the error for text that is not UTF-8."""
    return DamagedArray(
        "text is not UTF-8",
        field=name,
        **where,
        expected="UTF-8",
        found=f"byte {error.object[error.start]:#04x} at {error.start}",
        hint="Verify the slab; restore it from a copy, or pack it again.",
    )


def explain_dtype_misfit(number: Any, dtype: np.dtype[Any]) -> str | None:
    """Say why a number, or an array of them, does not fit a dtype; None if it does."""
    if type(number) is int and number == 0:  # what most pad with, on each batch
        return None
    try:
        converted = np.array(number, dtype)
        fits = dtype.kind not in "iub" or bool(np.all(converted == number))
    except (OverflowError, TypeError, ValueError):
        fits = False
    return None if fits else f"{number!r} is no {dtype}"


Values = np.ndarray | Ragged | Text | Binary | Pictures | Views

VAR_LEN_CLASSES: dict[str, type[Ragged] | type[Text] | type[Binary]] = {
    "ragged": Ragged,
    "text": Text,
    "binary": Binary,
    "image": Binary,
}
"""What holds the rows of a field of variable length, by kind."""


class Padding(NamedTuple):
    """How rows of variable length become rows of one length; see the transform `Pad`."""

    length: int
    fill: Any
    left: bool
    mask: str | None


class Failure(NamedTuple):
    """An image that could not be decoded, or a damaged value: its field, row and why.

    The row is as in `Batch.rows`, if it was not left out.
    """

    field: str
    row: int
    reason: str


class Batch(Mapping[str, Any]):
    """Values of chosen rows: a mapping from field name to array.

    Fixed and categorical fields are ndarrays (rows, *shape), the latter of codes (int32); ragged
    fields are `Ragged`, text is `Text`, binary and image fields are `Binary`. The steps of an image
    field decide what its decoded images are: see `ImageSteps`.

    Attributes
    ----------
    rows
        The rows gathered, in order, counted from 0: int64[rows].
    valid
        Validity of each field that may have nulls, by name: bool[rows], False for null.
    sizes
        Height and width of stored images in pixels, by name of the field: uint32[rows, 2].
    failures
        Images that could not be decoded, and values that are damaged. They were filled, or left
        out with their rows.
    visits
        Numbers that tell visits of a row in an epoch apart: int64[rows], 0 for a row that comes
        once. None where nothing is random. See `Order.visits`.
    """

    def __init__(
        self,
        rows: np.ndarray,
        columns: dict[str, Values],
        valid: dict[str, np.ndarray],
        sizes: dict[str, np.ndarray],
        failures: tuple[Failure, ...] = (),
        visits: np.ndarray | None = None,
    ) -> None:
        self._columns = columns
        self.rows = rows
        self.valid: Mapping[str, np.ndarray] = valid
        self.sizes: Mapping[str, np.ndarray] = sizes
        self.failures = failures
        self.visits = visits

    def __getitem__(self, name: str) -> Any:
        try:
            return self._columns[name]
        except KeyError:
            raise make_unknown_field_error(name, self._columns) from None

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __eq__(self, other: object) -> bool:
        """A batch equals itself alone: arrays have no single answer."""
        return self is other

    __hash__ = object.__hash__

    def replace(self, name: str, values: Values) -> None:
        """Put other values in the place of a field's, before anybody has the batch."""
        self._columns[name] = values

    @property
    def nbytes(self) -> int:
        """Bytes of all values."""
        return sum([values.nbytes for values in self._columns.values()])

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}: {_describe_values(values)}" for name, values in self.items())
        return f"Batch({len(self.rows)} rows; {fields})"

    def _repr_html_(self) -> str:
        from fieldslab.reader.notebook import format_batch

        return format_batch(self, self.rows, self.valid, self.sizes)


def split_batch(batch: Batch, sizes: Iterable[int]) -> Iterator[Batch]:
    """Cut a batch into batches of equal numbers of rows, over the same memory."""
    columns: list[tuple[str, Any]] = list(batch._columns.items())
    valid, pixels = list(batch.valid.items()), list(batch.sizes.items())
    start = 0
    for size in sizes:
        part = slice(start, start + size)
        yield Batch(
            batch.rows[part],
            {name: values[part] for name, values in columns},
            {name: each[part] for name, each in valid} if valid else {},
            {name: each[part] for name, each in pixels} if pixels else {},
        )
        start += size


class Buffers(Batch):
    """A batch that `gather` overwrites: what `Slab.buffers` returns, for `out=`.

    Attributes
    ----------
    fields
        The fields that it can hold.
    room
        Number of rows that it can hold.
    memory
        The memory of its values.
    """

    def __init__(self, fields: tuple[Field, ...], room: int, memory: ReusedMemory) -> None:
        super().__init__(np.empty(0, np.int64), {}, {}, {})
        self.fields = fields
        self.room = room
        self.memory = memory

    def check(self, fields: tuple[Field, ...], rows: int) -> None:
        """Raise UsageError unless a batch of `rows` rows of these fields fits."""
        if rows > self.room:
            raise UsageError(
                "`out` is too small for these rows", expected=f"up to {self.room}", found=rows
            )
        if fields == self.fields:
            return
        wanted, present = (
            [_describe_layout(field) for field in some] for some in (fields, self.fields)
        )
        if wanted != present:
            different = [name for name in wanted if name not in present] or wanted
            raise UsageError(
                "`out` was made for other fields",
                expected="; ".join(different),
                hint="Make it with slab.buffers(batch_size, fields) of the same fields.",
            )

    def fill(self, batch: Batch) -> None:
        """Take over the content of `batch`."""
        self._columns = batch._columns
        self.rows, self.valid, self.sizes = batch.rows, batch.valid, batch.sizes
        self.failures, self.visits = batch.failures, batch.visits


def make_unknown_field_error(name: object, names: Mapping[str, Any]) -> UnknownField:
    """Make the error for an unknown field; it lists the known ones."""
    known = ", ".join(map(repr, list(names)[:20])) + (", ..." if len(names) > 20 else "")
    return UnknownField(f"no field {name!r}", hint=f"The fields are: {known or 'none'}.")


def _describe_values(values: Values) -> str:
    if isinstance(values, np.ndarray):
        return f"{values.dtype}{list(values.shape[1:]) or ''}"
    return type(values).__name__


def _describe_layout(field: Field) -> str:
    """Describe what must agree for two fields to be gathered into the same memory."""
    null = " or null" if field.nullable else ""
    return f"{field.name!r}: {field.kind} {field.view}{list(field.shape) or ''}{null}"
