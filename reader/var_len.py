"""Rows that differ in length, concatenated: `Ragged`, `Text` and `Binary`."""

from collections.abc import Iterator
from typing import Any, Generic, Self, SupportsIndex, TypeVar, overload

import numpy as np

from fieldslab.reader.buffers import Pool
from fieldslab.reader.rows import check_index
from fieldslab.schemas.errors import DamagedArray, UsageError
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
    valid
        Of lists inside lists, bool[rows], False where a list is null; None where none is. Which
        rows of a batch are null, `Batch.valid` tells.
    """

    __slots__ = ("name", "offsets", "valid", "values")

    def __init__(
        self,
        values: Any,
        offsets: np.ndarray,
        name: str = "",
        valid: np.ndarray | None = None,
    ) -> None:
        self.values = values
        self.offsets = offsets
        self.name = name
        self.valid = valid

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
    def __getitem__(self, row: SupportsIndex) -> Any: ...
    @overload
    def __getitem__(self, row: slice) -> Self: ...
    def __getitem__(self, row: SupportsIndex | slice) -> Any:
        """One row, or neighbouring rows `[a:b]` that share `values`. Raises RowOutOfRange.

        None for a list that is null, of those inside lists.
        """
        if isinstance(row, slice):
            return self._slice_rows(row)
        row = check_index(row, len(self))
        if self.valid is not None and not self.valid[row]:
            return None
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

        Raises UsageError if `length` is negative or `fill` does not fit the dtype, and for lists
        of lists: `values.to_padded()` pads those inside.
        """
        if isinstance(self.values, VarLenValues):
            raise UsageError(
                "lists of lists cannot be padded to one array",
                field=self.name,
                found=repr(self),
                hint="Write batch[name].values.to_padded(), which pads the lists inside.",
            )
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
        valid = None if self.valid is None else self.valid[start : max(start, stop)]
        return type(self)(self.values[first : offsets[-1]], offsets - first, self.name, valid)

    def keep_rows(self, kept: np.ndarray) -> Self:
        """Copy the rows where `kept`, bool[rows], is true."""
        valid = None if self.valid is None else self.valid[kept]
        values = keep_elements(self.values, np.repeat(kept, self.lengths))
        offsets = np.concatenate([[0], np.cumsum(self.lengths[kept])])
        return type(self)(values, offsets, self.name, valid)

    def empty_rows(self, emptied: np.ndarray) -> Self:
        """Copy the rows; those where `emptied`, bool[rows], is true have no elements."""
        lengths = self.lengths
        values = keep_elements(self.values, np.repeat(~emptied, lengths))
        offsets = np.concatenate([[0], np.cumsum(np.where(emptied, 0, lengths))])
        return type(self)(values, offsets, self.name, self.valid)

    def __repr__(self) -> str:
        if isinstance(self.values, VarLenValues):
            return f"{type(self).__name__}({len(self)} rows of {self.values!r})"
        shape = "".join(f", {length}" for length in self.values.shape[1:])
        return f"{type(self).__name__}({len(self)} rows, {self.values.dtype}[*{shape}])"


class Ragged(VarLenValues[Any]):
    """Arrays that differ in length along axis 0.

    Of a nested field, `values` is the `Ragged`, `Text` or `Binary` of all lists inside the lists,
    and a row is a part of it.
    """

    __slots__ = ()

    def tolist(self) -> list[Any]:
        """Return the rows as lists of Python numbers; lists inside them that are null as None."""
        return [None if row is None else row.tolist() for row in self]

    def _get_item(self, row: int, values: Any) -> Any:
        return values


class Text(VarLenValues[str]):
    """Strings, as UTF-8 in `values` (uint8)."""

    __slots__ = ()

    def tolist(self) -> list[str | None]:
        """Return the rows as strings; inside lists, None for those that are null."""
        return list(self)

    def _get_item(self, row: int, values: np.ndarray) -> str:
        try:
            return str(values.data, "utf-8")
        except UnicodeDecodeError as error:
            raise make_utf8_error(self.name, error, row=f"{row} of the batch") from error


class Binary(VarLenValues[bytes]):
    """Byte strings, such as encoded images."""

    __slots__ = ()

    def tolist(self) -> list[bytes | None]:
        """Return the rows as bytes; inside lists, None for those that are null."""
        return list(self)

    def _get_item(self, row: int, values: np.ndarray) -> bytes:
        return values.tobytes()


def keep_elements(values: Any, kept: np.ndarray) -> Any:
    """Copy the elements where `kept`, bool[elements], is true: of an array, or lists."""
    return values.keep_rows(kept) if isinstance(values, VarLenValues) else values[kept]


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


VAR_LEN_CLASSES: dict[str, type[Ragged] | type[Text] | type[Binary]] = {
    "ragged": Ragged,
    "text": Text,
    "binary": Binary,
    "image": Binary,
}
"""What holds the rows of a field of variable length, by kind."""


def hold_rows(field: Field, values: np.ndarray, offsets: np.ndarray) -> Ragged | Text | Binary:
    """Hold rows of variable length: of a nested field, the elements of each row without lists."""
    return VAR_LEN_CLASSES[field.inner or field.kind](values, offsets, field.name)
