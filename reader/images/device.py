"""Views of decoded pictures on whatever device they are, with torch."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.nn.functional import interpolate


@contextmanager
def chosen(number: int | None) -> Iterator[tuple[torch.device, int]]:
    """Work on a GPU by its number, -1 for the current one, or on the processor for None.

    Yields the device and the address of its current stream.
    """
    if number is None:
        yield torch.device("cpu"), 0
        return
    with torch.cuda.device(number):
        where = torch.device("cuda", torch.cuda.current_device())
        yield where, torch.cuda.current_stream().cuda_stream


def zeros(shape: tuple[int, ...], dtype: torch.dtype, where: torch.device) -> torch.Tensor:
    """What is written to."""
    return torch.zeros(shape, dtype=dtype, device=where)


def tensor_of(picture: Any, where: torch.device) -> torch.Tensor:
    """A picture that nvImageCodec decoded there, in place: it has DLPack on GPUs alone."""
    if where.type == "cpu":
        return torch.from_numpy(np.asarray(picture))
    return torch.utils.dlpack.from_dlpack(picture)


def by_channel(values: np.ndarray, where: torch.device) -> torch.Tensor:
    """float32[3] as a tensor that multiplies (3, height, width)."""
    return torch.from_numpy(values).to(where)[:, None, None]


def views_of(
    pixels: torch.Tensor,
    boxes: np.ndarray,
    flips: np.ndarray,
    scale: torch.Tensor,
    bias: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Crop, resize, flip and scale a picture, each view into its place.

    The filter is the one of `finish`: antialiased bilinear, within a grey level of Pillow's.

    Parameters
    ----------
    pixels
        uint8 (height, width, 3).
    boxes, flips
        int32[views, 4] of top, left, height and width, and bool[views].
    scale, bias
        As `by_channel` gives them: `scale * value + bias` is stored.
    out
        (views, 3, height, width) on the same device: floats, or uint8 for the nearest whole value.
    """
    for view, (top, left, height, width) in enumerate(boxes.tolist()):
        cut = pixels[top : top + height, left : left + width].permute(2, 0, 1)[None].float()
        size = (out.shape[-2], out.shape[-1])
        resized = interpolate(cut, size, mode="bilinear", antialias=True, align_corners=False)[0]
        if flips[view]:
            resized = resized.flip(-1)
        values = torch.addcmul(bias, resized, scale)
        out[view] = values.round().clamp(0, 255) if out.dtype == torch.uint8 else values
