"""A batch: the values of chosen rows, field by field."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from fieldslab.reader.buffers import ReusedMemory
from fieldslab.reader.image_values import Pictures, Views
from fieldslab.reader.var_len import Binary, Ragged, Text, VarLenValues
from fieldslab.schemas.errors import UnknownField, UsageError
from fieldslab.schemas.fields import Field

Values = np.ndarray | Ragged | Text | Binary | Pictures | Views


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
    fields are `Ragged`, text is `Text`, binary and image fields are `Binary`, nested fields are
    `Ragged` of one of these. The steps of an image field decide what its decoded images are: see
    `ImageSteps`.

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
        expected, found = (
            [_describe_layout(field) for field in some] for some in (fields, self.fields)
        )
        if expected != found:
            different = [name for name in expected if name not in found] or expected
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
    listed = ", ".join(map(repr, list(names)[:20])) + (", ..." if len(names) > 20 else "")
    return UnknownField(f"no field {name!r}", hint=f"The fields are: {listed or 'none'}.")


def _describe_values(values: Values) -> str:
    if isinstance(values, np.ndarray):
        return f"{values.dtype}{list(values.shape[1:]) or ''}"
    inner = getattr(values, "values", None)
    of = f" of {type(inner).__name__}" if isinstance(inner, VarLenValues) else ""
    return f"{type(values).__name__}{of}"


def _describe_layout(field: Field) -> str:
    """Describe what must agree for two fields to be gathered into the same memory."""
    null = " or null" if field.nullable else ""
    kind = f"{field.kind} {field.inner}" if field.inner else field.kind
    return f"{field.name!r}: {kind} {field.view}{list(field.shape) or ''}{null}"
