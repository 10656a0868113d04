"""Small slabs of each kind of field, which are forged."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from tests.golden.make import FOLDER, IMAGES, PHOTOS
from tests.jpegs import encode, photograph
from tests.kinds import make_table

from fieldslab.packer import pack

_ROWS = 6
_GOLDEN = ("enum", "dictionary", "compressed", "pixels", "indexed")
_GROUPS = {
    "numbers": ["int16", "bool or null", "float or null", "zone"],
    "text": ["text", "text or null", "json"],
    "binary": ["binary", "bytes or null", "uuid"],
    "categories": ["category", "ordered or null", "label"],
    "tensors": ["matrix", "vector or null", "bools", "moments"],
    "ragged": ["ragged", "ragged or null", "ragged pairs"],
    "lists": ["lists of text", "lists of text or null", "lists or null", "lists of bytes"],
}


def make_slabs(folder: Path) -> dict[str, Path]:
    """Pack or copy small slabs into `folder`: their paths by name."""
    table = make_table(_ROWS)
    for name, columns in _GROUPS.items():
        pack(table.select(columns), folder / f"{name}.slab", nulls={"*": "mask"}, shard_size=150)
    compressed = table.select(["text or null", "ragged", "matrix", "binary", "lists of text"])
    pack(compressed, folder / "frames.slab", nulls={"*": "mask"}, compress="*", shard_size=400)
    strangers = table.select(["int16", "text or null", "category", "lists of text"])
    pack(strangers, folder / "sha256.slab", nulls={"*": "mask"}, digest="sha256", shard_size=150)
    names = pa.array([f"name {number}" for number in range(1100)])
    codes = pa.array(np.arange(_ROWS) * 180)
    pack(pa.table({"many": pa.DictionaryArray.from_arrays(codes, names)}), folder / "many.slab")
    photos = [PHOTOS["420.jpeg"], PHOTOS["grey.png"], encode(photograph(40, 56, 1))]
    pack(
        pa.table({"i": photos, "j": [*IMAGES.values()][:3], "k": pa.array(range(3))}),
        folder / "images.slab",
        image={"i": None, "j": None},
        jpeg_index=8,
    )
    pack(pa.table({"p": photos}), folder / "stored.slab", image={"p": "yuv420,fraction=0.5"})
    for name in _GOLDEN:
        shutil.copytree(FOLDER / f"{name}.slab", folder / f"golden-{name}.slab")
    return dict(_list_slabs(folder))


def _list_slabs(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.glob("*.slab")):
        yield path.stem, path
