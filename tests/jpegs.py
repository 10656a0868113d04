"""JPEG images of every kind, encoded by Pillow from real photographs."""

import io
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from PIL import Image

PHOTOS = Path(__file__).parents[1] / "examples" / "photos.parquet"
SAMPLINGS = ("grey", "4:4:4", "4:2:2", "4:4:0", "4:2:0")


@cache
def _photos() -> list[np.ndarray]:
    images = pq.read_table(PHOTOS, columns=["image"])["image"].to_pylist()
    return [np.asarray(Image.open(io.BytesIO(image)).convert("RGB")) for image in images[:16]]


def photograph(height: int, width: int, number: int = 0) -> np.ndarray:
    """uint8[height, width, 3], a real photograph brought to this size."""
    photos = _photos()
    picture = Image.fromarray(photos[number % len(photos)])
    return np.asarray(picture.resize((width, height), Image.Resampling.LANCZOS))


def encode(pixels: np.ndarray, sampling: str = "4:2:0", **options: Any) -> bytes:
    """A JPEG of uint8[height, width, 3]; options as `PIL.Image.Image.save` takes them."""
    if sampling == "4:4:0":
        return _encode_440(pixels, **options)
    image = Image.fromarray(pixels)
    if sampling == "grey":
        return _save(image.convert("L"), **options)
    return _save(image, subsampling=sampling, **options)


def _save(image: Image.Image, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "jpeg", **options)
    return stream.getvalue()


def _encode_440(pixels: np.ndarray, **options: Any) -> bytes:
    """Pillow writes no 4:4:0: a 4:2:2 image with the same blocks, and another frame header.

    An MCU of 4:4:0 has its two luma blocks one above the other, and the chroma of both.
    """
    height, width = pixels.shape[:2]
    down, across = -(-height // 16), -(-width // 8)
    pad = ((0, 16 * down - height), (0, 8 * across - width), (0, 0))
    full = np.asarray(Image.fromarray(np.pad(pixels, pad, "edge")).convert("YCbCr"))
    luma = full[..., 0].reshape(down, 2, 8, across, 8).transpose(0, 2, 3, 1, 4)
    chroma = full[..., 1:].astype(np.uint16)
    chroma = ((chroma[::2] + chroma[1::2] + 1) // 2).astype(np.uint8)
    planes = [luma.reshape(8 * down, 16 * across, 1), chroma.repeat(2, axis=1)]
    image = Image.fromarray(np.concatenate(planes, axis=2), "YCbCr")
    return with_frame(_save(image, subsampling="4:2:2", **options), height, width, 0x12)


def frame_header(data: bytes) -> int:
    """Where the frame header's marker stands."""
    offset = 2
    while data[offset + 1] & 0xF0 != 0xC0 or data[offset + 1] in (0xC4, 0xC8, 0xCC):
        offset += 2 + int.from_bytes(data[offset + 2 : offset + 4], "big")
    return offset


def with_frame(
    data: bytes, height: int, width: int, sampling: int | None = None, marker: int | None = None
) -> bytes:
    """The image with another size in its frame header, and other sampling or another marker."""
    offset = frame_header(data)
    changed = bytearray(data)
    changed[offset + 5 : offset + 9] = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    if sampling is not None:
        changed[offset + 11] = sampling
    if marker is not None:
        changed[offset + 1] = marker
    return bytes(changed)


def in_scans(pixels: np.ndarray, **options: Any) -> bytes:
    """A 4:4:4 image that has one scan for each component."""
    planes = Image.fromarray(pixels).convert("YCbCr").split()
    parts = [_save(plane, **options) for plane in planes]
    offset = frame_header(parts[0])
    size = 2 + int.from_bytes(parts[0][offset + 2 : offset + 4], "big")
    frame = bytearray(parts[0][offset : offset + 10] + b"\1\x11\0\2\x11\0\3\x11\0")
    frame[3], frame[9] = 17, 3
    scans = [part[part.rindex(b"\xff\xda") : -2] for part in parts]
    scans = [scan[:5] + bytes([i + 1]) + scan[6:] for i, scan in enumerate(scans)]
    rest = parts[0][offset + size : parts[0].rindex(b"\xff\xda")]
    return parts[0][:offset] + bytes(frame) + rest + b"".join(scans) + b"\xff\xd9"


Make = Callable[[np.ndarray], bytes]


def _framed(encoded: str = "4:2:0", **frame: int) -> Make:
    """Makes images with another frame header, of the same size unless that is given."""

    def make(pixels: np.ndarray) -> bytes:
        size = {"height": pixels.shape[0], "width": pixels.shape[1]}
        return with_frame(encode(pixels, encoded), **(size | frame))

    return make


UNUSUAL: dict[str, Make] = {
    "progressive": lambda pixels: encode(pixels, progressive=True),
    "of one scan a component": in_scans,
    "RGB": lambda pixels: encode(pixels, "4:4:4", keep_rgb=True),
    "CMYK": lambda pixels: _save(Image.fromarray(pixels).convert("CMYK")),
    "4:1:1": _framed("4:2:2", sampling=0x41),
    "of height 0": _framed(height=0),
    "lossless": _framed(marker=0xC3),
    "arithmetic": _framed(marker=0xC9),
}
"""Kind of image that is left to complete decoders -> how to make one of pixels."""
