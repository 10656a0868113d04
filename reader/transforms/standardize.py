"""`(values - mean) / std` of a field of numbers."""

from typing import Any

import numpy as np

from fieldslab.reader.batch import Batch, Values
from fieldslab.reader.buffers import Allocator
from fieldslab.reader.transforms.transform import (
    FRESH,
    Transform,
    convert_dtype,
    explain_not_numeric,
    get_numbers,
    wrap_like,
)
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import Field


class Standardize(Transform):
    """`(values - mean) / std` of one field, as floats; shapes stay as they are.

    As in ::

        transforms = [Standardize("energy", mean=21.5, std=3.0)]

    Images are normalized by a step instead: see `Normalize`.

    Parameters
    ----------
    field
        A fixed or ragged field of integers, floats or booleans.
    mean, std
        Numbers, or arrays that broadcast against one row: (3,) for rows of shape
        (height, width, 3), (3, 1, 1) for (3, height, width). No value of `std` may be 0.
    dtype
        float16, float32 or float64: the dtype of the result. float16 is computed in float32.

    Raises
    ------
    UsageError
        `mean` or `std` is not finite, `std` has a 0, or `dtype` is no float.
    """

    def __init__(self, field: str, mean: Any, std: Any, dtype: Any = np.float32) -> None:
        self.field = field
        self.dtype = convert_dtype(dtype)
        if self.dtype.kind != "f":
            raise UsageError(
                "the dtype of Standardize must be a float", field=field, found=self.dtype
            )
        self._compute_dtype = np.result_type(self.dtype, np.float32)
        self.mean, self.std = convert_mean_and_std(mean, std, self._compute_dtype)

    def __call__(self, batch: Batch, memory: Allocator = FRESH) -> dict[str, Values]:
        """See `Transform`."""
        values = get_numbers(batch, self.field)
        scaled = memory.allocate_array(self.field, values.shape, self._compute_dtype)
        np.subtract(values, self.mean, out=scaled, dtype=self._compute_dtype)
        np.divide(scaled, self.std, out=scaled)
        if self._compute_dtype == self.dtype:
            return {self.field: wrap_like(batch[self.field], scaled)}
        out = memory.allocate_array(self.field, values.shape, self.dtype)
        np.copyto(out, scaled, casting="same_kind")
        return {self.field: wrap_like(batch[self.field], out)}

    def explain_misfit(self, field: Field) -> str | None:
        """See `Transform`."""
        if field.view.kind not in "biuf":
            return f"cannot standardize {field.view}"
        return explain_not_numeric(field)

    def __repr__(self) -> str:
        mean, std = self.mean.tolist(), self.std.tolist()
        return f"Standardize({self.field!r}, mean={mean}, std={std}, dtype={self.dtype})"


def convert_mean_and_std(
    mean: Any, std: Any, dtype: np.dtype[Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Convert both to arrays of `dtype`. Raises UsageError if not finite or `std` has a 0."""
    try:
        means, deviations = np.asarray(mean, dtype), np.asarray(std, dtype)
    except (TypeError, ValueError):
        raise UsageError("`mean` and `std` must be numbers", found=(mean, std)) from None
    if not (np.isfinite(means).all() and np.isfinite(deviations).all() and deviations.all()):
        raise UsageError(
            "`mean` and `std` must be finite, and `std` must not be 0", found=(mean, std)
        )
    return means, deviations
