"""`(values - mean) / std`: of a field of numbers, or as the last step of an image."""

from typing import Any

import numpy as np

from fieldslab.reader.batch import Batch, Values
from fieldslab.reader.buffers import Memory
from fieldslab.reader.transforms.transform import (
    FRESH,
    Transform,
    as_dtype,
    like,
    no_numbers,
    numbers,
)
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import Field

IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)
"""Of red, green and blue in 0..255."""

_IMAGE_DTYPES = ("float32", "float16", "bfloat16", "uint8")


class Normalize(Transform):
    """`(values - mean) / std`, as floats: a transform of a field, or a step for images.

    As either of ::

        transforms = [Normalize("energy", 21.5, 3.0)]
        decode = {"image": [RandomResizedCrop(224), Normalize()]}

    Parameters
    ----------
    field
        The field to transform; none for a step.
    mean, std
        Numbers, or arrays that broadcast against one row: (3,) for pixels (height, width, 3),
        (3, 1, 1) for (3, height, width). No deviation may be 0. For images, of one channel or of
        three, in grey levels from 0 to 255; those of ImageNet if not given.
    dtype
        Of the result, float32 if not given. It is computed in this, or float32 for float16.
        Images may also be "bfloat16", which arrays hold as uint16; "uint8" keeps their grey
        levels, without `mean` and `std`.
    """

    def __init__(
        self, field: str | None = None, mean: Any = None, std: Any = None, dtype: Any = np.float32
    ) -> None:
        self.dtype: Any = _dtype(dtype)
        if field is None:
            plain = self.dtype == "uint8"
            if plain and (mean is not None or std is not None):
                raise UsageError("uint8 holds grey levels: it takes no `mean` and `std`")
            mean = (0.0 if plain else IMAGENET_MEAN) if mean is None else mean
            std = (1.0 if plain else IMAGENET_STD) if std is None else std
        elif mean is None or std is None:
            raise UsageError("Normalize needs `mean` and `std`", field=field)
        elif not isinstance(self.dtype, np.dtype) or self.dtype.kind != "f":
            raise UsageError("Normalize makes floats", field=field, found=self.dtype)
        self.field = field or ""
        floats = isinstance(self.dtype, np.dtype) and self.dtype.kind == "f"
        self._inner = np.result_type(self.dtype if floats else np.float32, np.float32)
        try:
            self.mean = np.asarray(mean, self._inner)
            self.std = np.asarray(std, self._inner)
        except (TypeError, ValueError):
            raise UsageError("`mean` and `std` are numbers", found=(mean, std)) from None
        if not (np.isfinite(self.mean).all() and np.isfinite(self.std).all() and self.std.all()):
            raise UsageError("`mean` and `std` are finite, and no deviation is 0", field=field)

    def __call__(self, batch: Batch, memory: Memory = FRESH) -> dict[str, Values]:
        """See `Transform`."""
        values = numbers(batch, self.field)
        inner = memory.empty(self.field, values.shape, self._inner)
        np.subtract(values, self.mean, out=inner, dtype=self._inner)
        np.divide(inner, self.std, out=inner)
        if self._inner == self.dtype:
            return {self.field: like(batch[self.field], inner)}
        out = memory.empty(self.field, values.shape, self.dtype)
        np.copyto(out, inner, casting="same_kind")
        return {self.field: like(batch[self.field], out)}

    def check(self, fields: dict[str, Field | None]) -> None:
        """See `Transform`."""
        if not self.field:
            hint = "Write Normalize(field, mean, std), or put it behind the steps of an image."
            raise UsageError("as a transform, Normalize needs a field", hint=hint)
        super().check(fields)

    def check_steps(self) -> None:
        """Raise UsageError if this cannot be a step for images."""
        if self.field:
            raise UsageError("as a step, Normalize takes no field", found=self.field)
        if str(self.dtype) not in _IMAGE_DTYPES:
            raise UsageError(
                "no dtype for images", expected=" or ".join(_IMAGE_DTYPES), found=self.dtype
            )
        if self.mean.shape not in ((), (3,)) or self.std.shape not in ((), (3,)):
            raise UsageError("`mean` and `std` are one number, or three", found=self.mean.shape)
        hint = "Multiply both by 255: they are of grey levels from 0 to 255."
        if str(self.dtype) != "uint8" and self.std.max() < 1:
            raise UsageError("the deviation is below one grey level", found=self.std, hint=hint)
        if 0 < self.mean.max() < 1:
            raise UsageError("the mean is below one grey level", found=self.mean, hint=hint)

    def impossible(self, field: Field) -> str | None:
        """See `Transform`."""
        if field.view.kind not in "biuf":
            return f"cannot normalize {field.view}"
        return no_numbers(field)

    def __repr__(self) -> str:
        field = [repr(self.field)] if self.field else []
        given = [f"mean={self.mean.tolist()}", f"std={self.std.tolist()}", f"dtype={self.dtype}"]
        return f"Normalize({', '.join(field + given)})"


def _dtype(dtype: Any) -> Any:
    """A numpy dtype, or "bfloat16", which numpy does not know."""
    if str(dtype).removeprefix("torch.") == "bfloat16":
        return "bfloat16"
    return as_dtype(dtype)
