"""`--ragged`: rows of one padded length are stored without their padding, and can be padded again.

What is cut off is checked bit by bit: `Ragged.to_padded(length, fill)` gives back exactly what
the source holds. `length` and `fill` stand in the field's attribute `fieldslab.padding`.
"""

from dataclasses import dataclass
from math import isfinite, isnan, prod
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from fieldslab.packer.convert.dense import decode_layout, view_numbers
from fieldslab.packer.convert.fillers import parse_filler
from fieldslab.packer.convert.misfit import Misfit
from fieldslab.packer.options import Ragged
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import Field
from fieldslab.schemas.optiontext import mark_option

ATTRIBUTE = "fieldslab.padding"


@dataclass(frozen=True)
class Padding:
    """How the rows of a field are padded in the source.

    Attributes
    ----------
    padded
        The field as the source has it: fixed, of shape (length, *shape).
    fill
        What stands behind the real part: a scalar of the field's dtype.
    lengths
        Path to the column that says how long the real part is; None where the padding tells.
    """

    padded: Field
    fill: np.generic
    lengths: tuple[int, ...] | None

    @property
    def length(self) -> int:
        """Elements of a padded row."""
        return self.padded.shape[0]

    @property
    def stored(self) -> Field:
        """The field as it is stored: ragged."""
        attribute = {ATTRIBUTE: {"length": self.length, "fill": _number_to_json(self.fill)}}
        return msgspec.structs.replace(
            self.padded,
            kind="ragged",
            shape=self.padded.shape[1:],
            attributes=self.padded.attributes | attribute,
        )


def make_padding(
    field: Field, request: Ragged, column: str, lengths: tuple[int, ...] | None
) -> Padding:
    """Make a padding. Raises UsageError if the field has no rows of arrays, or no such value."""
    if field.kind != "fixed" or not field.shape:
        raise UsageError(
            f"{mark_option('ragged')}: its rows are not arrays of one length",
            field=column,
            found=f"{field.kind} {field.dtype}{list(field.shape)}",
        )
    scalar = msgspec.structs.replace(field, shape=())
    fill = parse_filler(scalar, request.fill, column, "ragged")
    if not isinstance(fill, np.generic):
        raise UsageError(f"{mark_option('ragged')}: its elements are not numbers", field=column)
    return Padding(field, field.storage.type(fill), lengths)


def cut_padding(
    padding: Padding, values: np.ndarray, stated: pa.Array | None
) -> tuple[np.ndarray, np.ndarray]:
    """Cut the padding off rows.

    Parameters
    ----------
    values
        (rows, length, *shape), as in the source.
    stated
        Lengths of the rows: integers; None where the padding tells.

    Returns
    -------
    (elements, *shape) and int64[rows] lengths.

    Raises Misfit where padding would not come back as it was.
    """
    real_lengths = _find_unpadded_lengths(values, padding.fill)
    if stated is None:
        _check_nan(padding, values, real_lengths)
        lengths = real_lengths
    else:
        lengths = _read_stated_lengths(padding, stated)
        if (real_lengths > lengths).any():
            row = int(np.argmax(real_lengths > lengths))
            padded = values[row, lengths[row] :].reshape(-1)
            differing = _view_as_bits(padded, padding.fill) != _repeat_bits(
                padding.fill, len(padded)
            )
            first = differing.reshape(len(padded), -1).any(axis=1).argmax()
            raise Misfit(
                f"after its length of {lengths[row]} there is something other than padding",
                expected=padding.fill,
                found=padded[first],
                hint="Name another column with len=, or what it is padded with: pad=VALUE.",
            )
    inside = np.arange(padding.length) < lengths[:, None]
    return values[inside], lengths


def _find_unpadded_lengths(values: np.ndarray, fill: np.generic) -> np.ndarray:
    """Count the elements of each row up to the last that is not all padding: int64[rows]."""
    rows, length, item = len(values), values.shape[1], prod(values.shape[2:])
    if not values.size:
        return np.zeros(rows, np.int64)
    bits = _view_as_bits(values, fill).reshape(rows, -1)
    differs = bits != _repeat_bits(fill, length * item)
    trailing_fill = differs[:, ::-1].argmax(axis=1)
    end = np.where(differs.any(axis=1), bits.shape[1] - trailing_fill, 0)
    return -(-end // (bits.shape[1] // length))  # an element that is begun counts


def _view_as_bits(values: np.ndarray, fill: np.generic) -> np.ndarray:
    """View numbers as unsigned integers, so that -0.0 is not 0.0 and NaN equals itself."""
    return np.ascontiguousarray(values).view(_choose_unsigned_dtype(fill))


def _repeat_bits(fill: np.generic, count: int) -> np.ndarray:
    """Repeat the padding `count` times as bits: one scalar if it is one integer."""
    bits = np.array([fill]).view(_choose_unsigned_dtype(fill))
    return bits if len(bits) == 1 else np.tile(bits, count)


def _choose_unsigned_dtype(fill: np.generic) -> str:
    return f"u{min(fill.itemsize, 8)}"


def _read_stated_lengths(padding: Padding, stated: pa.Array) -> np.ndarray:
    array = decode_layout(stated)
    if array.null_count:
        raise Misfit("its length is null", hint="Choose another column with len=.")
    lengths = view_numbers(array, np.dtype(array.type.to_pandas_dtype()))
    out_of_range = (lengths < 0) | (lengths > padding.length)
    if out_of_range.any():
        raise Misfit(
            "its length is out of range",
            expected=f"0..{padding.length}",
            found=int(lengths[out_of_range.argmax()]),
            hint="Choose another column with len=.",
        )
    return lengths.astype(np.int64)


def _check_nan(padding: Padding, values: np.ndarray, lengths: np.ndarray) -> None:
    """There are many NaNs: a row that ends in another one than `fill` would not be cut."""
    if values.dtype.kind not in "fc" or not np.isnan(padding.fill) or not values.size:
        return
    last = values[np.arange(len(values)), np.maximum(lengths - 1, 0)].reshape(len(values), -1)
    has_other_nan = np.isnan(last).all(axis=1) & (lengths > 0)
    if has_other_nan.any():
        bits = last[has_other_nan.argmax(), :1].tobytes()[::-1].hex()
        raise Misfit(
            "it is padded with a NaN that has other bits",
            expected=np.array([padding.fill]).tobytes()[::-1].hex(),
            found=bits,
            hint=f"{mark_option('ragged', 'len=LENGTHS', column='COLUMN')} cannot restore it "
            "either: keep the column fixed.",
        )


def _number_to_json(fill: np.generic) -> Any:
    """Return a number for JSON; NaN and infinities as text for `float`, complex as [re, im]."""
    value = fill.item()
    if isinstance(value, complex):
        return [_number_to_json(np.float64(value.real)), _number_to_json(np.float64(value.imag))]
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else str(value)
    return value
