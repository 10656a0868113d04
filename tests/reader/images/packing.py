"""Slabs of images, packed from bytes."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image
from tests.jpegs import encode, photograph

from fieldslab.packer import pack
from fieldslab.reader import Slab, open_slab


def pack_images(folder: Path, rows: Sequence[bytes | None], **options: Any) -> Slab:
    """A slab with the fields `image` and `row`."""
    table = pa.table({"image": pa.array(rows, pa.binary()), "row": np.arange(len(rows))})
    path = folder / f"{len(list(folder.iterdir()))}.slab"
    pack(table, path, **({"image": "image"} | options))
    return open_slab(path)


def photographs(count: int, height: int = 90, width: int = 130) -> list[bytes]:
    """Different JPEG images of one size."""
    return [encode(photograph(height, width, number), quality=90) for number in range(count)]


def save(pixels: np.ndarray, codec: str, **options: Any) -> bytes:
    """Encode an array by Pillow."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, codec, **options)
    return stream.getvalue()
