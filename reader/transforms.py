"""What is done to batches on the way to the training step.

A transform takes a batch and returns the fields that it makes or replaces. Those here write into
recycled memory when a `Loader` calls them. Threads call one transform at once, so it keeps
nothing from one batch to the next.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Any, Literal

import numpy as np

from fieldslab.reader.batch import Batch, Packed, Ragged, Values, unknown_field
from fieldslab.reader.buffers import Memory
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import Field


class _Fresh:
    """Memory that is not recycled."""

    def empty(self, key: Hashable, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        return np.empty(shape, dtype)


FRESH = _Fresh()


class Transform(ABC):
    """Base of the transforms here. Any function of a batch will do instead."""

    field: str

    @abstractmethod
    def __call__(self, batch: Batch, memory: Memory = FRESH) -> dict[str, Values]:
        """The fields that are made or replaced, by name; large arrays come from `memory`."""

    def check(self, fields: dict[str, Field | None]) -> None:
        """Raise UsageError if the fields cannot be transformed; note in `fields` what changes.

        None stands for a field that an earlier transform made.
        """
        if self.field not in fields:
            raise unknown_field(self.field, fields)
        field = fields[self.field]
        if field is not None and (reason := self.impossible(field)):
            raise UsageError(f"{type(self).__name__}: {reason}", field=self.field)
        for name in self.makes():
            fields[name] = None

    def impossible(self, field: Field) -> str | None:
        """Why a field cannot be transformed, or None."""
        return None

    def makes(self) -> list[str]:
        """Names of the fields that are made or replaced."""
        return [self.field]


class Cast(Transform):
    """The values in another dtype, converted as `numpy.ndarray.astype` does.

    Fixed fields (rows, *shape) and ragged ones keep their shape.
    """

    def __init__(self, field: str, dtype: Any) -> None:
        self.field = field
        self.dtype = np.dtype(dtype)

    def __call__(self, batch: Batch, memory: Memory = FRESH) -> dict[str, Values]:
        """See `Transform`."""
        values = _numbers(batch, self.field)
        out = memory.empty(self.field, values.shape, self.dtype)
        np.copyto(out, values, casting="unsafe")
        return {self.field: _like(batch[self.field], out)}

    def impossible(self, field: Field) -> str | None:
        """See `Transform`."""
        return _no_numbers(field)


class Normalize(Transform):
    """`(values - mean) / std`, as floats.

    Parameters
    ----------
    mean, std
        Numbers, or arrays that broadcast against one row: (3,) for pixels (height, width, 3),
        (3, 1, 1) for (3, height, width). No deviation may be 0.
    dtype
        Of the result, float32 if not given. It is computed in this, or float32 for float16.
    """

    def __init__(self, field: str, mean: Any, std: Any, dtype: Any = np.float32) -> None:
        self.field = field
        self.dtype = np.dtype(dtype)
        if self.dtype.kind != "f":
            raise UsageError("Normalize makes floats", field=field, found=self.dtype)
        self._inner = np.result_type(self.dtype, np.float32)
        self.mean = np.asarray(mean, self._inner)
        self.std = np.asarray(std, self._inner)
        if not (np.isfinite(self.mean).all() and np.isfinite(self.std).all() and self.std.all()):
            raise UsageError("`mean` and `std` are finite, and no deviation is 0", field=field)

    def __call__(self, batch: Batch, memory: Memory = FRESH) -> dict[str, Values]:
        """See `Transform`."""
        values = _numbers(batch, self.field)
        inner = memory.empty(self.field, values.shape, self._inner)
        np.subtract(values, self.mean, out=inner, dtype=self._inner)
        np.divide(inner, self.std, out=inner)
        if self._inner == self.dtype:
            return {self.field: _like(batch[self.field], inner)}
        out = memory.empty(self.field, values.shape, self.dtype)
        np.copyto(out, inner, casting="same_kind")
        return {self.field: _like(batch[self.field], out)}

    def impossible(self, field: Field) -> str | None:
        """See `Transform`."""
        if field.view.kind not in "biuf":
            return f"cannot normalize {field.view}"
        return _no_numbers(field)


class Pad(Transform):
    """Rows of different lengths, as one array (rows, length, *shape) of the same dtype.

    Parameters
    ----------
    length
        Elements of each row: those of the longest in the batch if not given. Longer rows are cut.
    fill
        What stands where a row has no elements.
    side
        "right" fills behind the elements, and cuts there; "left" does both in front.
    mask
        Name of one more field, bool (rows, length): True where there are elements. None for none.
    """

    def __init__(
        self,
        field: str,
        length: int | None = None,
        fill: Any = 0,
        side: Literal["right", "left"] = "right",
        mask: str | None = None,
    ) -> None:
        if side not in ("right", "left"):
            raise UsageError("no such side", expected='"right" or "left"', found=side)
        self.field = field
        self.length = _length(length)
        self.fill = fill
        self.side = side
        self.mask = mask

    def __call__(self, batch: Batch, memory: Memory = FRESH) -> dict[str, Values]:
        """See `Transform`."""
        packed = batch[self.field]
        if not isinstance(packed, Packed):
            raise UsageError("only rows of different lengths are padded", field=self.field)
        lengths = packed.lengths
        length = int(lengths.max(initial=0)) if self.length is None else self.length
        counts = np.minimum(lengths, length)
        left = self.side == "left"
        starts = packed.offsets[1:] - counts if left else packed.offsets[:-1]
        made: dict[str, Values] = {
            self.field: _padded(packed.values, starts, counts, length, self.fill, left, memory)
        }
        if self.mask is not None:
            columns = np.arange(length)
            mask = memory.empty(self.mask, (len(counts), length), np.dtype(np.bool_))
            if left:
                np.greater_equal(columns, length - counts[:, None], out=mask)
            else:
                np.less(columns, counts[:, None], out=mask)
            made[self.mask] = mask
        return made

    def impossible(self, field: Field) -> str | None:
        """See `Transform`."""
        if not field.variable:
            return "only rows of different lengths are padded"
        return _no_room(self.fill, field.view)

    def makes(self) -> list[str]:
        """See `Transform`."""
        return [self.field] if self.mask is None else [self.field, self.mask]


class Shift(Transform):
    """Inputs and targets of a language model: each token is asked for the next one.

    A row of n tokens, ragged or fixed (tokens,), has n - 1 such pairs. Made are, (rows, length)
    each, or (length, rows) with layout "LB":

    - `inputs`: the tokens but the last, filled up with `pad`;
    - `targets`: the tokens but the first, filled up with `ignore`;
    - `mask`: bool, True where there is a pair.

    Parameters
    ----------
    length
        Pairs of each row: those of the longest in the batch if not given. Longer rows are cut.
    pad, ignore
        What stands where there is no pair; `ignore` is as `pad` if not given.
    layout
        "BL" for (rows, length), "LB" for (length, rows), both in C order.
    dtype
        Of inputs and targets: as stored if not given. The loss functions of torch want int64.
    inputs, targets, mask
        Names of the fields made; `field` itself stays.
    """

    def __init__(
        self,
        field: str,
        length: int | None = None,
        *,
        pad: int = 0,
        ignore: int | None = None,
        layout: Literal["BL", "LB"] = "BL",
        dtype: Any = None,
        inputs: str = "inputs",
        targets: str = "targets",
        mask: str = "mask",
    ) -> None:
        if layout not in ("BL", "LB"):
            raise UsageError("no such layout", expected='"BL" or "LB"', found=layout)
        self.field = field
        self.length = _length(length)
        self.pad = pad
        self.ignore = pad if ignore is None else ignore
        self.layout = layout
        self.dtype = None if dtype is None else np.dtype(dtype)
        self.names = inputs, targets, mask

    def __call__(self, batch: Batch, memory: Memory = FRESH) -> dict[str, Values]:
        """See `Transform`."""
        tokens = batch[self.field]
        if isinstance(tokens, Ragged):
            values, offsets = tokens.values, tokens.offsets
        elif isinstance(tokens, np.ndarray) and tokens.ndim == 2:
            values, offsets = tokens.reshape(-1), np.arange(len(tokens) + 1) * tokens.shape[1]
        else:
            raise UsageError("Shift: tokens are ragged, or fixed (tokens,)", field=self.field)
        if self.dtype is not None and self.dtype != values.dtype:
            wide = memory.empty(self.field, values.shape, self.dtype)
            np.copyto(wide, values, casting="same_kind")
            values = wide
        pairs = np.maximum(np.diff(offsets) - 1, 0)
        length = int(pairs.max(initial=0)) if self.length is None else self.length
        counts = np.minimum(pairs, length)
        inputs, targets, mask = self.names
        starts = offsets[:-1]
        first = _padded(values, starts, counts, length, self.pad, False, memory)
        # A row without a pair has no next token: its start may lie behind the last one.
        behind = np.where(counts > 0, starts + 1, 0)
        second = _padded(values, behind, counts, length, self.ignore, False, memory)
        there = memory.empty(mask, (len(counts), length), np.dtype(np.bool_))
        np.less(np.arange(length), counts[:, None], out=there)
        made = {inputs: first, targets: second, mask: there}
        if self.layout == "LB":
            return {name: _turned(array, memory) for name, array in made.items()}
        return dict(made)

    def impossible(self, field: Field) -> str | None:
        """See `Transform`."""
        shape = () if field.kind == "ragged" else field.shape[1:]
        if field.kind not in ("ragged", "fixed") or shape or field.view.kind not in "iu":
            return "tokens are integers, ragged or fixed (tokens,)"
        if field.kind == "fixed" and not field.shape:
            return "tokens are ragged, or fixed (tokens,)"
        if field.kind == "ragged" and field.shape:
            return "tokens are single integers"
        dtype = self.dtype or field.view
        return _no_numbers(field) or _no_room(self.pad, dtype) or _no_room(self.ignore, dtype)

    def makes(self) -> list[str]:
        """See `Transform`."""
        return list(self.names)


class Lambda(Transform):
    """A function of one field's values, whose result takes their place.

    Only functions that have a place in a module can be pickled, for loaders in other processes.
    """

    def __init__(self, field: str, function: Callable[[Any], Any]) -> None:
        self.field = field
        self.function = function

    def __call__(self, batch: Batch, memory: Memory = FRESH) -> dict[str, Values]:
        """See `Transform`."""
        return {self.field: self.function(batch[self.field])}


def _numbers(batch: Batch, name: str) -> np.ndarray:
    """Values of a fixed or ragged field, as one array."""
    values = batch[name]
    if isinstance(values, Ragged):
        return values.values
    if not isinstance(values, np.ndarray):
        raise UsageError("this field has no numbers", field=name, found=type(values).__name__)
    return values


def _like(values: Values, out: np.ndarray) -> Values:
    """`out` in the form of `values`."""
    return Ragged(out, values.offsets, values.name) if isinstance(values, Ragged) else out


def _padded(
    values: np.ndarray,
    starts: np.ndarray,
    counts: np.ndarray,
    length: int,
    fill: Any,
    left: bool,
    memory: Memory,
) -> np.ndarray:
    from fieldslab.reader.padding import pad

    values = np.ascontiguousarray(values)
    out = memory.empty(None, (len(starts), length, *values.shape[1:]), values.dtype)
    blank = np.full((length, *values.shape[1:]), fill, values.dtype)
    pad(values, np.ascontiguousarray(starts), counts, blank, left, out)
    return out


def _turned(array: np.ndarray, memory: Memory) -> np.ndarray:
    out = memory.empty(None, array.shape[::-1], array.dtype)
    np.copyto(out, array.T)
    return out


def _length(length: int | None) -> int | None:
    if length is not None and length < 0:
        raise UsageError("a length cannot be negative", found=length)
    return length


def _no_numbers(field: Field) -> str | None:
    if field.kind in ("text", "binary", "image"):
        return f"a {field.kind} field has no numbers"
    if field.logical is not None and field.logical.type == "bfloat16":
        return 'bfloat16 is stored as its bits: convert it after output="torch"'
    return None


def _no_room(number: Any, dtype: np.dtype[Any]) -> str | None:
    """Why a number cannot stand among values of a dtype, or None."""
    try:
        fits = dtype.kind not in "iub" or bool(np.array(number, dtype) == number)
        np.array(number, dtype)
    except (OverflowError, TypeError, ValueError):
        fits = False
    return None if fits else f"{number!r} is no {dtype}"
