"""Slabs of the same photographs, packed in each way that an image can be stored."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fieldslab.packer import pack
from fieldslab.reader import Slab, open_slab

WAYS: dict[str, str | None] = {
    "jpeg": None,
    "small": "jpeg,short-side=256,quality=90",
    "yuv420": "yuv420",
    "rgb256": "rgb,long-side=256",
}
"""Name -> what `--image image:...` says; as they are where it says nothing."""


def build(files: Iterable[bytes], folder: Path) -> dict[str, Slab]:
    """Pack photographs in every way. Errors are those of `pack`."""
    source = folder / "photographs.parquet"
    pq.write_table(pa.table({"image": pa.array(files, pa.binary())}), source)
    slabs = {}
    for name, way in WAYS.items():
        image: Any = "image" if way is None else {"image": way}
        pack(source, folder / f"{name}.slab", image=image)
        slabs[name] = open_slab(folder / f"{name}.slab")
    return slabs


def stored_bytes(slab: Slab) -> int:
    """Sum the bytes of a slab's files."""
    return sum(file.stat().st_size for file in slab.path.rglob("*.npy"))


def encoded(slab: Slab) -> Iterator[bytes]:
    """Return the images of a slab as they are stored."""
    for row in range(len(slab)):
        yield slab[row]["image"]
