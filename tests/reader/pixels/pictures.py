"""Real photographs as arrays, and `write_view` called on them."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import skimage.data
from PIL import Image

from fieldslab.reader.pixels import finish, store
from fieldslab.schemas.jit import make_zero_record
from fieldslab.schemas.mapping import get_address

ONE, ZERO = np.ones(3, np.float32), np.zeros(3, np.float32)
FORMS = {
    store.UINT8: np.uint8,
    store.FLOAT32: np.float32,
    store.FLOAT16: np.float16,
    store.BFLOAT16: np.uint16,
}


@cache
def photograph(height: int = 512, width: int = 512) -> np.ndarray:
    """A photograph, cut to size from its middle."""
    pixels = skimage.data.astronaut()  # type: ignore[no-untyped-call]
    top, left = (512 - height) // 2, (512 - width) // 2
    return np.ascontiguousarray(pixels[top : top + height, left : left + width])


def rgb_picture(pixels: np.ndarray) -> Any:
    """Describe interleaved pixels, uint8[height, width, 3], to `write_view`."""
    picture = make_zero_record(finish.PICTURE)
    picture.kind = finish.RGB
    picture.planes[0] = get_address(pixels)
    picture.stride = pixels.strides[0]
    return picture


def ycc_picture(planes: Sequence[np.ndarray], across: int, down: int) -> Any:
    """Describe planes of Y, Cb and Cr to `write_view`."""
    picture = make_zero_record(finish.PICTURE)
    picture.kind = finish.YCC
    picture.planes[:] = [get_address(plane) for plane in planes]
    picture.stride, picture.chroma_stride = planes[0].strides[0], planes[1].strides[0]
    picture.across, picture.down = across, down
    return picture


def finished(
    picture: Any,
    box: tuple[int, int, int, int],
    size: tuple[int, int],
    *,
    form: int = store.UINT8,
    first: bool = False,
    flip: bool = False,
    scale: np.ndarray = ONE,
    bias: np.ndarray = ZERO,
) -> np.ndarray:
    """One view as an array; the memory on both sides of it must come back untouched."""
    shape = (3, *size) if first else (*size, 3)
    dtype = np.dtype(FORMS[form])
    guarded = np.full(64 + 3 * size[0] * size[1] * dtype.itemsize + 64, 0xA5, np.uint8)
    out = guarded[64:-64].view(dtype).reshape(shape)
    work = np.empty(finish.count_work_bytes(box[2], box[3], *size) + 64, np.uint8)
    work[-64:] = 0x5A
    output = store.describe_output(out, first, scale, bias)
    finish.write_view(picture, finish.Box(*box), flip, output, 0, get_address(work))
    assert (guarded[:64] == 0xA5).all()
    assert (guarded[-64:] == 0xA5).all()
    assert (work[-64:] == 0x5A).all()
    return out


def resized(
    pixels: np.ndarray, box: tuple[int, int, int, int], size: tuple[int, int]
) -> np.ndarray:
    """What Pillow makes of it."""
    top, left, height, width = box
    crop = Image.fromarray(pixels).crop((left, top, left + width, top + height))
    return np.asarray(crop.resize((size[1], size[0]), Image.Resampling.BILINEAR))


def psnr(image: np.ndarray, other: np.ndarray) -> float:
    """Peak signal to noise, dB, of values in 0..255."""
    error = np.square(image.astype(float) - other).mean()
    return float(10 * np.log10(255**2 / max(error, 1e-9)))
