"""Which files a slab consists of, and the exact size and shape of each."""

from typing import Any, NamedTuple

import numpy as np

from fieldslab.schemas.digest import block_count
from fieldslab.schemas.fields import Field, Role
from fieldslab.schemas.manifest import Manifest

DIGESTS = "digests.npy"
TABLES = "tables"


class ArrayFile(NamedTuple):
    """One array of a folder: its file, its shape, and where its digests stand."""

    field: Field
    role: Role
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    first_block: int

    @property
    def item_bytes(self) -> int:
        """Bytes of one item along axis 0."""
        return self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=object))

    @property
    def data_bytes(self) -> int:
        """Bytes of data, without the header."""
        return self.item_bytes * self.shape[0]

    @property
    def blocks(self) -> int:
        """Blocks of data, each under one digest."""
        return block_count(self.data_bytes)


def shard_name(index: int) -> str:
    """Folder of a shard."""
    return f"shard-{index:05d}"


def file_name(field: Field, role: Role) -> str:
    """File of one array of a field."""
    return f"{field.stem}.{role}.npy"


def shard_files(manifest: Manifest, index: int) -> list[ArrayFile]:
    """The arrays of one shard, in manifest order; `digests.npy` stands beside them."""
    shard = manifest.shards[index]
    elements, nulls, points = iter(shard.elements), iter(shard.nulls), iter(shard.points)
    files: list[ArrayFile] = []
    for field in manifest.fields:
        counts = {"row": shard.rows, "row+1": shard.rows + 1}
        if field.stored.variable:
            counts["element"] = next(elements)
        if field.index is not None:
            counts["point"] = next(points)
        has_nulls = field.nullable and next(nulls) > 0
        for spec in field.arrays():
            if spec.role != "valid" or has_nulls:
                shape = (counts[spec.per], *spec.shape)
                _append(files, field, spec.role, spec.dtype, shape)
    return files


def table_files(manifest: Manifest) -> list[ArrayFile]:
    """The arrays of the folder `tables`, which serve the whole slab."""
    files: list[ArrayFile] = []
    for field in manifest.fields:
        if field.table is not None:
            size, count = field.table.bytes, field.table.count
            _append(files, field, "categories.values", np.dtype("u1"), (size,))
            _append(files, field, "categories.offsets", np.dtype("<u8"), (count + 1,))
        if field.compression is not None and field.compression.dictionary:
            shape = (field.compression.dictionary,)
            _append(files, field, "dictionary", np.dtype("u1"), shape)
    return files


def total_blocks(files: list[ArrayFile]) -> int:
    """Length of the `digests.npy` that belongs to `files`."""
    return files[-1].first_block + files[-1].blocks if files else 0


def _append(
    files: list[ArrayFile], field: Field, role: Role, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> None:
    name = file_name(field, role)
    files.append(ArrayFile(field, role, name, dtype, shape, total_blocks(files)))
