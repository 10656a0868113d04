"""`(pixels - mean) / std`: the last step of an image."""

from typing import Any

import numpy as np

from fieldslab.reader.images.step import Step
from fieldslab.reader.transforms.standardize import convert_mean_and_std
from fieldslab.reader.transforms.transform import convert_dtype
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.renamed import refuse_renamed_parameters

IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)
"""Of red, green and blue in 0..255."""

_DTYPES = ("float32", "float16", "bfloat16", "uint8")


class Normalize(Step):
    """`(pixels - mean) / std`, as floats: a step for images.

    As in ::

        decode = {"image": [RandomResizedCrop(224), Normalize()]}

    A field of numbers is scaled by a transform instead: see `Standardize`.

    Parameters
    ----------
    mean, std
        In grey levels from 0 to 255: one number, or three for red, green and blue. The mean and
        standard deviation of ImageNet if not given.
    dtype
        "float32", "float16", "bfloat16" or "uint8". Arrays hold bfloat16 as uint16. uint8 keeps
        the grey levels and takes no `mean` and `std`.

    Raises
    ------
    UsageError
        The numbers are not finite, `std` has a 0, they look like values of 0 to 1, or images
        cannot have this dtype.
    """

    parameters = ("mean", "std", "dtype")

    @refuse_renamed_parameters
    def __init__(self, mean: Any = None, std: Any = None, dtype: Any = np.float32) -> None:
        if isinstance(mean, str):
            hint = "To scale a field of numbers, write Standardize(field, mean, std)."
            raise UsageError("`mean` must be one number, or three", found=repr(mean), hint=hint)
        bfloat16 = str(dtype).removeprefix("torch.") == "bfloat16"
        self.dtype: Any = "bfloat16" if bfloat16 else convert_dtype(dtype)  # numpy has no bfloat16
        if str(self.dtype) not in _DTYPES:
            raise UsageError(
                "images cannot have this dtype", expected=" or ".join(_DTYPES), found=self.dtype
            )
        is_uint8 = self.dtype == "uint8"
        if is_uint8 and (mean is not None or std is not None):
            raise UsageError("uint8 keeps grey levels and takes no `mean` and `std`")
        mean = (0.0 if is_uint8 else IMAGENET_MEAN) if mean is None else mean
        std = (1.0 if is_uint8 else IMAGENET_STD) if std is None else std
        self.mean, self.std = convert_mean_and_std(mean, std, np.dtype(np.float32))
        if self.mean.shape not in ((), (3,)) or self.std.shape not in ((), (3,)):
            raise UsageError("`mean` and `std` must be one number, or three", found=self.mean.shape)
        hint = "Multiply both by 255: grey levels go from 0 to 255."
        if not is_uint8 and self.std.max() < 1:
            raise UsageError("`std` is less than 1", found=self.std, hint=hint)
        if 0 < self.mean.max() < 1:
            raise UsageError("`mean` is between 0 and 1", found=self.mean, hint=hint)
