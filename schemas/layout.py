"""Which files a slab consists of, and the exact size and shape of each."""

from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from fieldslab.schemas.digest import count_blocks
from fieldslab.schemas.fields import ArraySpec, Field, Role
from fieldslab.schemas.manifest import COUNTS, Manifest

DIGESTS = "digests.npy"
TABLES = "tables"


class ArrayFile(NamedTuple):
    """One array of a folder: its file, its shape, and where its digests stand."""

    field: Field
    spec: ArraySpec
    name: str
    shape: tuple[int, ...]
    first_block: int

    @property
    def role(self) -> Role:
        """What the array is to its field."""
        return self.spec.role

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of its items."""
        return self.spec.dtype

    @property
    def item_bytes(self) -> int:
        """Bytes of one item along axis 0."""
        return self.spec.item_bytes

    @property
    def data_bytes(self) -> int:
        """Bytes of data, without the header."""
        return self.item_bytes * self.shape[0]

    @property
    def blocks(self) -> int:
        """Blocks of data, each under one digest."""
        return count_blocks(self.data_bytes)


def name_shard(index: int) -> str:
    """Return the folder name of a shard."""
    return f"shard-{index:05d}"


def name_file(field: Field, role: Role) -> str:
    """Return the file name of one array of a field."""
    return f"{field.stem}.{role}.npy"


def list_shard_files(manifest: Manifest, index: int) -> list[ArrayFile]:
    """List the arrays of one shard, in manifest order, without `digests.npy`."""
    shard = manifest.shards[index]
    nulls = iter(shard.nulls)
    counts = {per: iter(getattr(shard, member)) for per, member in COUNTS.items()}
    files: list[ArrayFile] = []
    for field, specs in manifest.arrays:
        has_nulls = field.nullable and next(nulls) > 0
        for spec in specs:
            items = next(counts[spec.per]) if spec.per in counts else shard.rows
            if spec.role != "valid" or has_nulls:
                _append_array_file(files, field, spec, items + (spec.per == "row+1"))
    return files


def count_shard_items(manifest: Manifest) -> dict[tuple[str, Role], np.ndarray]:
    """Count the items of each array in every shard, int64[shards], by name of field and role.

    Of `valid`, shards without nulls have none. Arrays may share memory: do not write to them.
    """
    counts = manifest.counts
    columns = {
        "row": repeat(counts.rows),
        "row+1": repeat(counts.rows + 1),
        "element": iter(counts.elements.T),
        "point": iter(counts.points.T),
    }
    nulls = iter(counts.nulls.T)
    items: dict[tuple[str, Role], np.ndarray] = {}
    for field, specs in manifest.arrays:
        for spec in specs:
            column = next(columns[spec.per], counts.rows)  # without shards, tables have no columns
            if spec.role == "valid":
                column = np.where(next(nulls, counts.rows) > 0, column, 0)
            items[field.name, spec.role] = column
    return items


def list_table_files(manifest: Manifest) -> list[ArrayFile]:
    """List the arrays of the folder `tables`, which serve the whole slab."""
    files: list[ArrayFile] = []
    for field in manifest.fields:
        for spec, items in field.list_arrays_in_tables():
            _append_array_file(files, field, spec, items)
    return files


def count_total_blocks(files: list[ArrayFile]) -> int:
    """Count the blocks of `files`: the length of their `digests.npy`."""
    return files[-1].first_block + files[-1].blocks if files else 0


def _append_array_file(files: list[ArrayFile], field: Field, spec: ArraySpec, items: int) -> None:
    name, shape = name_file(field, spec.role), (items, *spec.shape)
    files.append(ArrayFile(field, spec, name, shape, count_total_blocks(files)))
