"""Views of decoded pictures on whatever device they are, with torch."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.nn.functional import interpolate

from fieldslab.schemas.errors import UsageError


@contextmanager
def use_device(number: int | None) -> Iterator[tuple[torch.device, int]]:
    """Work on a GPU by its number, -1 for the current one, or on the processor for None.

    Yields the device and the address of its current stream, on which all work is done: nvJPEG's
    hardware decoder does not wait for what a stream still has to do (torchcodec's issue 1634).
    """
    if number is None:
        yield torch.device("cpu"), 0
        return
    with torch.cuda.device(number):
        where = torch.device("cuda", torch.cuda.current_device())
        stream = torch.cuda.current_stream()
        stream.synchronize()
        yield where, stream.cuda_stream


def parse_device_number(name: str) -> int | None:
    """Parse torch's name of a device: GPU number, -1 for the current GPU, None for the CPU.

    Raises UsageError where there is no such device, or it is of another kind.
    """
    try:
        where = torch.device(name)
    except RuntimeError as error:
        raise UsageError("torch has no such device", found=name) from error
    if where.type == "cpu":
        return None
    count = torch.cuda.device_count() if where.type == "cuda" else 0
    if (where.index or 0) >= count:
        expected = '"cpu"' if count == 0 else f'"cpu", "cuda" or "cuda:0" to "cuda:{count - 1}"'
        raise UsageError("this device cannot be used", expected=expected, found=name)
    return where.index if ":" in name else -1


def make_zeros(shape: tuple[int, ...], dtype: str, name: str) -> torch.Tensor:
    """Allocate zeros on a device; device and dtype are given by name."""
    return torch.zeros(shape, dtype=getattr(torch, dtype), device=name)


def scatter_rows(out: torch.Tensor, rows: np.ndarray, values: np.ndarray) -> None:
    """Copy values of rows (int64[k]) from the host; uint16 are bfloat16."""
    tensor = torch.from_numpy(values)
    if tensor.dtype == torch.uint16:
        tensor = tensor.view(torch.bfloat16)
    out[torch.from_numpy(rows).to(out.device)] = tensor.to(out.device)


def select_rows(tensor: torch.Tensor, keep: np.ndarray) -> torch.Tensor:
    """Select the rows where `keep` (bool[rows]) is true."""
    return tensor[torch.from_numpy(keep).to(tensor.device)]


def view_as_tensor(picture: Any, where: torch.device) -> torch.Tensor:
    """View a picture that nvImageCodec decoded as a tensor, in place; only GPUs have DLPack."""
    if where.type == "cpu":
        return torch.from_numpy(np.asarray(picture))
    return torch.utils.dlpack.from_dlpack(picture)


def make_channel_tensor(values: np.ndarray, where: torch.device) -> torch.Tensor:
    """Make a tensor of float32[3] that multiplies (3, height, width)."""
    return torch.from_numpy(values).to(where)[:, None, None]


def make_views(
    pixels: torch.Tensor,
    boxes: np.ndarray,
    flips: np.ndarray,
    scale: torch.Tensor,
    bias: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Crop, resize, flip and scale a picture, each view into its place.

    The filter is the one of `write_view`: antialiased bilinear, within a grey level of Pillow's.

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
