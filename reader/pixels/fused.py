"""Views of stored pixels on a GPU: one kernel of Triton for all views of a batch.

Crop, antialiased resize, flip, colours and numbers are those of `write_view`, within a grey level.
Without a GPU, Triton's interpreter runs the kernel on tensors of the processor: set
TRITON_INTERPRET=1 before this module is imported.
"""

from collections.abc import Callable
from threading import Lock
from typing import Any

import torch

from fieldslab.reader.pixels.records import RECORD_LENGTH
from fieldslab.schemas.errors import MissingLibrary

try:
    import triton
    import triton.language as tl
except ImportError as error:
    hint = "Install it: pip install 'triton>=3.7'."
    raise MissingLibrary("stored images on a GPU need Triton", hint=hint) from error

_jit: Callable[[Callable[..., Any]], Any] = triton.jit
_BLOCK = 16, 64
"""Rows and columns of a view that one program of the kernel writes."""
_INTERPRETED_BLOCK = 64, 64
"""The same in the interpreter, which takes as long for few as for many."""
_ROWS, _COLUMNS = tl.constexpr(32), tl.constexpr(32)
"""Samples that are weighed at once."""
_lock = Lock()  # Triton compiles at the first call, and does not expect several threads


@_jit
def _weigh_pixels(
    pixel: tl.tensor, centre: tl.tensor, scale: tl.tensor, length: tl.tensor
) -> tl.tensor:
    """Weights of pixels, counted from the box, in windows around centres; not yet divided."""
    distance = tl.abs(pixel.to(tl.float32) + 0.5 - centre) / tl.maximum(scale, 1.0)
    return tl.where((pixel >= 0) & (pixel < length), tl.maximum(1.0 - distance, 0.0), 0.0)


@_jit
def _weigh_samples(
    sample: tl.tensor,
    offset: tl.tensor,
    centre: tl.tensor,
    scale: tl.tensor,
    length: tl.tensor,
    halved: tl.tensor,
) -> tl.tensor:
    """The same of samples; halved ones are blown up to pixels with weights 3/4 and 1/4."""
    if halved:
        pixel = 2 * sample - offset
        near = _weigh_pixels(pixel, centre, scale, length)
        near += _weigh_pixels(pixel + 1, centre, scale, length)
        far = _weigh_pixels(pixel - 1, centre, scale, length)
        far += _weigh_pixels(pixel + 2, centre, scale, length)
        weight = 0.75 * near + 0.25 * far
    else:
        weight = _weigh_pixels(sample - offset, centre, scale, length)
    return weight


@_jit
def _find_pixels(begin: tl.tensor, end: tl.tensor, scale: tl.tensor, length: tl.tensor) -> tl.tuple:
    """First pixel and end of those that outputs begin..end-1 are made of."""
    support = tl.maximum(scale, 1.0)
    first = tl.maximum((begin.to(tl.float32) + 0.5) * scale - support, 0.0).to(tl.int32)
    last = ((end.to(tl.float32) - 0.5) * scale + support).to(tl.int32)
    return first, tl.minimum(last + 1, length)


@_jit
def _find_samples(
    first: tl.tensor, end: tl.tensor, offset: tl.tensor, halved: tl.tensor
) -> tl.tuple:
    """First sample and end of those that have a part in pixels first..end-1 of the box."""
    if halved:
        first, end = (first + offset - 1) >> 1, ((end + offset) >> 1) + 1
    else:
        first, end = first + offset, end + offset
    return first, end


@_jit
def _sum_weights(
    first: tl.tensor, end: tl.tensor, centre: tl.tensor, scale: tl.tensor, length: tl.tensor
) -> tl.tensor:
    total = tl.zeros_like(centre)
    for begin in range(first, end, _COLUMNS):
        pixel = begin + tl.arange(0, _COLUMNS)
        total += tl.sum(_weigh_pixels(pixel[None, :], centre[:, None], scale, length), 1)
    return total


@_jit
def _resize_plane(
    plane: tl.tensor,
    where: tl.tensor,
    step: tl.tensor,
    y_axis: tl.tuple,
    x_axis: tl.tuple,
    halved: tl.tensor,
) -> tl.tensor:
    """Weigh samples of a plane: a product of matrices along rows, and one along columns.

    `where` is the part of the record from STRIDE or CHROMA_STRIDE on. Of each axis there are first
    pixel, end, centres of windows, scale, and length of the box.
    """
    y_first, y_end, y_centre, y_scale, height = y_axis
    x_first, x_end, x_centre, x_scale, width = x_axis
    stride = tl.load(where)
    y_offset, rows = tl.load(where + 1).to(tl.int32), tl.load(where + 2).to(tl.int32)
    x_offset, columns = tl.load(where + 3).to(tl.int32), tl.load(where + 4).to(tl.int32)
    y_first, y_end = _find_samples(y_first, y_end, y_offset, halved)
    x_first, x_end = _find_samples(x_first, x_end, x_offset, halved)
    total = tl.zeros((y_centre.shape[0], x_centre.shape[0]), tl.float32)
    for y in range(y_first, y_end, _ROWS):
        row = y + tl.arange(0, _ROWS)
        line = plane + tl.minimum(tl.maximum(row, 0), rows - 1).to(tl.int64) * stride
        lines = tl.zeros((_ROWS, x_centre.shape[0]), tl.float32)
        for x in range(x_first, x_end, _COLUMNS):
            column = x + tl.arange(0, _COLUMNS)
            place = step * tl.minimum(tl.maximum(column, 0), columns - 1)
            used = (row < y_end)[:, None] & (column < x_end)[None, :]
            samples = tl.load(line[:, None] + place[None, :], mask=used, other=0)
            weights = _weigh_samples(
                column[:, None], x_offset, x_centre[None, :], x_scale, width, halved
            )
            lines = tl.dot(samples.to(tl.float32), weights, lines, input_precision="tf32x3")
        weights = _weigh_samples(row[None, :], y_offset, y_centre[:, None], y_scale, height, halved)
        total = tl.dot(weights, lines, total, input_precision="tf32x3")
    return total


@_jit
def _write_views(
    pixels: tl.tensor,
    records: tl.tensor,
    out: tl.tensor,
    height: tl.tensor,
    width: tl.tensor,
    red_scale: tl.tensor,
    green_scale: tl.tensor,
    blue_scale: tl.tensor,
    red_bias: tl.tensor,
    green_bias: tl.tensor,
    blue_bias: tl.tensor,
    fill: tl.tensor,
    record_length: tl.constexpr,
    channels_first: tl.constexpr,
    rounded: tl.constexpr,
    block_height: tl.constexpr,
    block_width: tl.constexpr,
) -> None:
    """Write a block of a view; see `write_views`."""
    view = tl.program_id(0).to(tl.int64)
    y_begin = tl.program_id(1) * block_height
    x_begin = tl.program_id(2) * block_width
    y_out, x_out = y_begin + tl.arange(0, block_height), x_begin + tl.arange(0, block_width)

    record = records + view * record_length  # in the order of `records`
    kind = tl.load(record)
    box_height = tl.load(record + 14).to(tl.int32)
    box_width = tl.load(record + 15).to(tl.int32)
    flip = tl.load(record + 16)

    x_source, x_end = x_out, x_begin + block_width
    if flip != 0:
        x_source = width - 1 - x_out
        x_begin, x_end = width - x_end, width - x_begin
    y_scale, x_scale = box_height.to(tl.float32) / height, box_width.to(tl.float32) / width
    y_centre = (y_out.to(tl.float32) + 0.5) * y_scale
    x_centre = (x_source.to(tl.float32) + 0.5) * x_scale
    y_first, y_end = _find_pixels(y_begin, y_begin + block_height, y_scale, box_height)
    x_first, x_end = _find_pixels(x_begin, x_end, x_scale, box_width)
    y_axis = y_first, y_end, y_centre, y_scale, box_height
    x_axis = x_first, x_end, x_centre, x_scale, box_width

    y_total = _sum_weights(y_first, y_end, y_centre, y_scale, box_height)
    x_total = _sum_weights(x_first, x_end, x_centre, x_scale, box_width)
    total = y_total[:, None] * x_total[None, :]
    total = tl.where(total > 0, total, 1.0)  # no picture, or beside the view
    first = tl.zeros((block_height, block_width), tl.float32)
    second, third = first, first
    for number in range(3):
        plane = pixels + tl.load(record + 1 + number)
        halved = (kind == 2) & (number > 0)
        where = record + tl.where(halved, 9, 4)
        step = tl.where(kind == 1, 3, 1)
        resized = _resize_plane(plane, where, step, y_axis, x_axis, halved) / total
        first = tl.where(number == 0, resized, first)
        second = tl.where(number == 1, resized, second)
        third = tl.where(number == 2, resized, third)
    red, green, blue = first, second, third
    if kind == 2:
        cb, cr = second - 128.0, third - 128.0
        red = first + 1.402 * cr
        green = first - 0.344136 * cb - 0.714136 * cr
        blue = first + 1.772 * cb
    red = tl.where(kind == 0, fill, tl.minimum(tl.maximum(red, 0.0), 255.0))
    green = tl.where(kind == 0, fill, tl.minimum(tl.maximum(green, 0.0), 255.0))
    blue = tl.where(kind == 0, fill, tl.minimum(tl.maximum(blue, 0.0), 255.0))
    red = red * red_scale + red_bias
    green = green * green_scale + green_bias
    blue = blue * blue_scale + blue_bias
    if rounded:
        red, green, blue = red + 0.5, green + 0.5, blue + 0.5

    inside = (y_out < height)[:, None] & (x_out < width)[None, :]
    place = y_out[:, None] * width + x_out[None, :]
    place = out + view * 3 * height * width + (place if channels_first else 3 * place)
    step = height * width if channels_first else 1
    tl.store(place, red.to(out.dtype.element_ty), mask=inside)
    tl.store(place + step, green.to(out.dtype.element_ty), mask=inside)
    tl.store(place + 2 * step, blue.to(out.dtype.element_ty), mask=inside)


def write_views(
    pixels: torch.Tensor,
    records: torch.Tensor,
    out: torch.Tensor,
    channels_first: bool,
    scale: list[float],
    bias: list[float],
    fill: float,
) -> None:
    """Crop, resize, flip and scale stored pixels, all views at once, on the current stream.

    Parameters
    ----------
    pixels
        The planes of all views: uint8[bytes].
    records
        int64[views, RECORD_LENGTH], as `records` has them.
    out
        Contiguous (views, height, width, 3), or (views, 3, height, width) if `channels_first`:
        uint8, float32, float16 or bfloat16. All three tensors are on one device.
    scale, bias
        By channel: `scale * value + bias` is stored, of values in 0..255. For uint8, 1 and 0.
    fill
        Grey level of views of kind NOTHING.
    """
    height, width = out.shape[-2:] if channels_first else out.shape[-3:-1]
    block_height, block_width = _INTERPRETED_BLOCK if is_interpreted() else _BLOCK
    grid = len(out), triton.cdiv(height, block_height), triton.cdiv(width, block_width)
    if not out.numel():
        return
    with _lock:
        _write_views[grid](
            *(pixels, records, out, height, width, *scale, *bias, float(fill)),
            record_length=RECORD_LENGTH,
            channels_first=channels_first,
            rounded=out.dtype == torch.uint8,
            block_height=block_height,
            block_width=block_width,
            enable_fp_fusion=True,
        )


def is_interpreted() -> bool:
    """Tell whether Triton's interpreter runs the kernel, on tensors of the processor."""
    return not isinstance(_write_views, triton.JITFunction)


def compile_for(capability: int, dtype: str, channels_first: bool) -> dict[str, Any]:
    """Compile the kernel for GPUs of a compute capability, such as 90, without one.

    `dtype` is Triton's name of what is stored: "u8", "fp32", "fp16" or "bf16". Returns what
    Triton makes by name: "ttir", "ttgir", "llir" and "ptx" as text, "cubin" as bytes.
    """
    types = {"pixels": "*u8", "records": "*i64", "out": f"*{dtype}", "height": "i32"}
    types |= {"width": "i32"}
    block_height, block_width = _BLOCK
    values = {
        "record_length": RECORD_LENGTH,
        "channels_first": channels_first,
        "rounded": dtype == "u8",
        "block_height": block_height,
        "block_width": block_width,
    }
    names = _write_views.arg_names
    source = triton.compiler.ASTSource(
        _write_views,
        {name: "constexpr" if name in values else types.get(name, "fp32") for name in names},
        {(names.index(name),): value for name, value in values.items()},
    )
    target = triton.backends.compiler.GPUTarget("cuda", capability, 32)
    return dict(triton.compile(source, target=target, options={"enable_fp_fusion": True}).asm)
