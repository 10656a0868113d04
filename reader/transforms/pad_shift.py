"""Transforms of rows that differ in length: padded, and shifted for language models."""

from typing import Any, Literal

import numpy as np

from fieldslab.reader.batch import Batch, Padding, Values
from fieldslab.reader.buffers import Allocator
from fieldslab.reader.rows import check_integer
from fieldslab.reader.transforms.transform import (
    FRESH,
    Transform,
    convert_dtype,
    explain_not_numeric,
)
from fieldslab.reader.var_len import Ragged, VarLenValues, explain_dtype_misfit
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import Field


class Pad(Transform):
    """Rows of different lengths, as one array (rows, length, *shape) of the same dtype.

    Parameters
    ----------
    length
        Elements in each padded row. Default: the length of the longest row in the batch. Longer
        rows are cut.
    fill
        Value of the padding. It must fit the field's dtype.
    side
        "right" pads and cuts at the end of a row, "left" at its beginning.
    mask
        Name of an additional field, bool (rows, length): True where there are elements. None
        for no mask.
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
            raise UsageError("unknown `side`", expected='"right" or "left"', found=side)
        self.field = field
        self.length = _check_length(length)
        self.fill = fill
        self.side = side
        self.mask = mask

    @property
    def padding(self) -> Padding | None:
        """The same for a gather, which then writes no row twice; None without a length."""
        if self.length is None:  # each batch has another one, but batches are gathered together
            return None
        return Padding(self.length, self.fill, self.side == "left", self.mask)

    def __call__(self, batch: Batch, memory: Allocator = FRESH) -> dict[str, Values]:
        """See `Transform`."""
        packed = batch[self.field]
        if not isinstance(packed, VarLenValues):
            raise UsageError("Pad: the field has no rows of different lengths", field=self.field)
        # Imported late: this compiles kernels that only padding needs.
        from fieldslab.reader.padding import make_padding_mask, pad_packed_rows

        left = self.side == "left"
        values, offsets = packed.values, packed.offsets
        padded = pad_packed_rows(values, offsets, self.length, self.fill, memory, left)
        if self.mask is None:
            return {self.field: padded}
        mask = make_padding_mask(packed.lengths, padded.shape[1], left, memory, self.mask)
        return {self.field: padded, self.mask: mask}

    def explain_misfit(self, field: Field) -> str | None:
        """See `Transform`."""
        if not field.variable or field.kind == "nested":
            return "the field has no rows of different lengths of plain elements"
        return explain_dtype_misfit(self.fill, field.view)

    def list_outputs(self) -> list[str]:
        """See `Transform`."""
        return [self.field] if self.mask is None else [self.field, self.mask]


class Shift(Transform):
    """Inputs and targets of a language model: each token is asked for the next one.

    A row of n tokens, ragged or fixed (tokens,), has n - 1 such pairs. The results have shape
    (rows, length), or (length, rows) with layout "LB":

    - `inputs`: all tokens but the last, padded with `pad`;
    - `targets`: all tokens but the first, padded with `ignore`;
    - `mask`: bool, True where there is a pair.

    Parameters
    ----------
    length
        Pairs in each row. Default: those of the longest row in the batch. Longer rows are cut.
    pad, ignore
        Values where there is no pair. `ignore` defaults to `pad`.
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
            raise UsageError("unknown `layout`", expected='"BL" or "LB"', found=layout)
        self.field = field
        self.length = _check_length(length)
        self.pad = pad
        self.ignore = pad if ignore is None else ignore
        self.layout = layout
        self.dtype = None if dtype is None else convert_dtype(dtype)
        self.names = inputs, targets, mask

    def __call__(self, batch: Batch, memory: Allocator = FRESH) -> dict[str, Values]:
        """See `Transform`."""
        tokens = batch[self.field]
        if isinstance(tokens, Ragged):
            values, offsets = tokens.values, tokens.offsets
        elif isinstance(tokens, np.ndarray) and tokens.ndim == 2:
            values, offsets = tokens.reshape(-1), np.arange(len(tokens) + 1) * tokens.shape[1]
        else:
            raise UsageError(
                "Shift: tokens must be ragged, or fixed with shape (tokens,)", field=self.field
            )
        if self.dtype is not None and self.dtype != values.dtype:
            wide = memory.allocate_array(self.field, values.shape, self.dtype)
            np.copyto(wide, values, casting="same_kind")
            values = wide
        pairs = np.maximum(np.diff(offsets) - 1, 0)
        length = int(pairs.max(initial=0)) if self.length is None else self.length
        counts = np.minimum(pairs, length)
        inputs, targets, mask = self.names
        starts = offsets[:-1]
        first = _pad_values(values, starts, counts, length, self.pad, memory)
        # A row without a pair has no next token: its start may lie behind the last one.
        behind = np.where(counts > 0, starts + 1, 0)
        second = _pad_values(values, behind, counts, length, self.ignore, memory)
        is_target = memory.allocate_array(mask, (len(counts), length), np.dtype(np.bool_))
        np.less(np.arange(length), counts[:, None], out=is_target)
        columns = {inputs: first, targets: second, mask: is_target}
        if self.layout == "LB":
            return {name: _transpose(array, memory) for name, array in columns.items()}
        return dict(columns)

    def explain_misfit(self, field: Field) -> str | None:
        """See `Transform`."""
        shape = () if field.kind == "ragged" else field.shape[1:]
        if field.kind not in ("ragged", "fixed") or shape or field.view.kind not in "iu":
            return "tokens are integers, ragged or fixed (tokens,)"
        if field.kind == "fixed" and not field.shape:
            return "tokens are ragged, or fixed (tokens,)"
        if field.kind == "ragged" and field.shape:
            return "tokens are single integers"
        dtype = self.dtype or field.view
        return (
            explain_not_numeric(field)
            or explain_dtype_misfit(self.pad, dtype)
            or explain_dtype_misfit(self.ignore, dtype)
        )

    def list_outputs(self) -> list[str]:
        """See `Transform`."""
        return list(self.names)


def _pad_values(*arguments: Any) -> np.ndarray:
    """See `pad_rows`."""
    from fieldslab.reader.padding import pad_rows  # compiles a kernel that only padding needs

    return pad_rows(*arguments)


def _transpose(array: np.ndarray, memory: Allocator) -> np.ndarray:
    out = memory.allocate_array(None, array.shape[::-1], array.dtype)
    np.copyto(out, array.T)
    return out


def _check_length(length: int | None) -> int | None:
    return None if length is None else check_integer("length", length, least=0)
