"""Which bit of a mirror's marks stands for which block.

A unit is one array of one shard, or the digest table of a folder, which counts as one block. Units
come in the order of the manifest, shard by shard, the digest table behind the arrays, and `tables`
behind the shards. Each begins with a byte of its own: a byte is the marks of up to 8 neighbouring
blocks of one array. A position is the number of a bit.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fieldslab.schemas import layout
from fieldslab.schemas.digest import BLOCK, BLOCK_DIGESTS
from fieldslab.schemas.errors import DamagedManifest
from fieldslab.schemas.fields import Role
from fieldslab.schemas.layout import ArrayFile
from fieldslab.schemas.manifest import COUNTS, MANIFEST, Manifest

GRANULE = 8
"""Blocks of one array under one byte of marks: what one process fetches at a time."""
MOST_BYTES = 2**48
"""Larger slabs are refused: their marks, whose room is taken at once, would be 512 MiB."""


class Unit(NamedTuple):
    """An array of a folder, or its digest table if `file` is None.

    `folder` is the number of the shard; that of `tables` is the number of shards.
    """

    number: int
    folder: int
    folder_name: str
    file: ArrayFile | None

    @property
    def file_name(self) -> str:
        """Name of the file in the folder."""
        return layout.DIGESTS if self.file is None else self.file.name


class BlockMap:
    """The units of a slab, and where the marks of their blocks stand.

    Attributes
    ----------
    shards
        Number of shards.
    width
        Units of each shard: its arrays, whether or not it has them all, and its digest table.
    digest
        The kind of digests.
    blocks
        Blocks of each unit: int64[units].
    first_bytes
        Where the marks of each unit begin, and the end of the last: int64[units + 1].
    """

    def __init__(self, manifest: Manifest) -> None:
        """Raise DamagedManifest where the slab is too large to be mirrored."""
        self._manifest = manifest
        self.digest = BLOCK_DIGESTS[manifest.digest]
        arrays = [(field.name, spec) for field, specs in manifest.arrays for spec in specs]
        self._columns = {(name, spec.role): column for column, (name, spec) in enumerate(arrays)}
        self.shards = len(manifest.shards)
        self.width = len(arrays) + 1
        sizes = _compute_array_sizes(manifest)
        self._tables = layout.list_table_files(manifest)
        table_sizes = [file.data_bytes for file in self._tables]
        total = float(sizes.astype(np.float64).sum()) + sum(table_sizes)
        if total > MOST_BYTES:
            raise DamagedManifest(
                "the slab is too large to be mirrored",
                file=MANIFEST,
                expected=f"at most {MOST_BYTES:,} bytes",
                found=f"{total:,.0f} bytes",
            )
        blocks = np.ones((self.shards, self.width), np.int64)
        blocks[:, :-1] = -(-sizes // BLOCK)
        tables = [-(-size // BLOCK) for size in table_sizes]
        folder_table = [1] if manifest.tables is not None else []
        self.blocks = np.concatenate(
            [blocks.reshape(-1), np.array([*tables, *folder_table], np.int64)]
        )
        self.first_bytes = np.zeros(len(self.blocks) + 1, np.int64)
        np.cumsum(-(-self.blocks // GRANULE), out=self.first_bytes[1:])
        self._list_files = lru_cache(256)(self._list_folder_files)

    @property
    def units(self) -> int:
        """Number of units."""
        return len(self.blocks)

    @property
    def mark_bytes(self) -> int:
        """Bytes of all marks."""
        return int(self.first_bytes[-1])

    def find_column(self, field: str, role: Role) -> int:
        """Return which of the units of each shard is this array."""
        return self._columns[field, role]

    def find_unit(self, folder: int, file: ArrayFile | None) -> int:
        """Return the index of a unit; `file` is None for the digest table."""
        if folder < self.shards:
            column = (
                self.width - 1 if file is None else self.find_column(file.field.name, file.role)
            )
            return folder * self.width + column
        place = len(self._tables)
        if file is not None:
            place = [other.name for other in self._tables].index(file.name)
        return self.shards * self.width + place

    def find_first_positions(self, column: int) -> np.ndarray:
        """Return the position of the first block of an array in each shard: int64[shards]."""
        return self.first_bytes[: self.shards * self.width].reshape(-1, self.width)[:, column] * 8

    def get_first_position(self, unit: int) -> int:
        """Return the position of the first block of a unit."""
        return int(self.first_bytes[unit]) * 8

    def find_units(self, positions: np.ndarray) -> np.ndarray:
        """Return the unit of each position: int64[n] in and out."""
        return np.searchsorted(self.first_bytes, positions >> 3, side="right") - 1

    def find_unit_at(self, position: int) -> int:
        """Return the unit of one position."""
        return int(self.first_bytes.searchsorted(position >> 3, side="right")) - 1

    def get_unit(self, index: int) -> Unit:
        """Return a unit by its index."""
        folder = min(index // self.width, self.shards)
        column = index - folder * self.width
        if folder < self.shards:
            if column == self.width - 1:
                return Unit(index, folder, layout.name_shard(folder), None)
            file = self._list_files(folder)[column]
            return Unit(index, folder, layout.name_shard(folder), file)
        table = self._tables[column] if column < len(self._tables) else None
        return Unit(index, folder, layout.TABLES, table)

    def find_folder(self, name: str) -> int:
        """Return the number of a folder of the slab, by its name."""
        return self.shards if name == layout.TABLES else int(name.rpartition("-")[2])

    def list_folder_files(self, folder: int) -> list[ArrayFile]:
        """Return the arrays of a folder, without the digest table."""
        if folder == self.shards:
            return self._tables
        return layout.list_shard_files(self._manifest, folder)

    def get_root(self, folder: int) -> str:
        """Return what the manifest says of the digest table of a folder."""
        if folder == self.shards:
            return self._manifest.tables or ""
        return self._manifest.shards[folder].root

    def find_digest_units(self) -> np.ndarray:
        """Return the indexes of the units that are digest tables: int64[folders]."""
        units = np.arange(1, self.shards + 1) * self.width - 1
        last = [self.units - 1] if self._manifest.tables is not None else []
        return np.concatenate([units, np.array(last, np.int64)])

    def describe_rows(self, folder: int) -> str:
        """Return the first and the last row of the slab that a folder serves, for messages."""
        shards = self._manifest.shards
        first = sum(shard.rows for shard in shards[:folder]) if folder < self.shards else 0
        rows = shards[folder].rows if folder < self.shards else self._manifest.rows
        return f"{first}..{first + rows - 1}"

    def count_digest_bytes(self, folder: int) -> int:
        """Count the data bytes of the digest table of a folder."""
        return self.digest.count_bytes(self._count_digests(folder))

    def describe_table(self, folder: int) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """Return the dtype and shape of the digest table of a folder, as its file has it."""
        return self.digest.describe_file(self._count_digests(folder))

    def _count_digests(self, folder: int) -> int:
        return layout.count_total_blocks(self.list_folder_files(folder))

    def _list_folder_files(self, shard: int) -> dict[int, ArrayFile]:
        files = layout.list_shard_files(self._manifest, shard)
        return {self.find_column(file.field.name, file.role): file for file in files}


def _compute_array_sizes(manifest: Manifest) -> np.ndarray:
    """Return the bytes of each array of each shard: int64[shards, arrays]; 0 for those absent."""
    rows, counts = manifest.counts.rows, manifest.counts._asdict()
    nulls = iter(counts["nulls"].T)
    columns_by_kind = {per: iter(counts[member].T) for per, member in COUNTS.items()}
    columns = []
    for field, specs in manifest.arrays if len(rows) else ():
        has_nulls = next(nulls) > 0 if field.nullable else None
        for spec in specs:
            items = next(columns_by_kind[spec.per]) if spec.per in columns_by_kind else rows
            size = (items + (spec.per == "row+1")) * spec.item_bytes
            columns.append(size * has_nulls if spec.role == "valid" else size)
    width = sum(len(specs) for _, specs in manifest.arrays)
    return np.array(columns, np.int64).reshape(width, len(rows)).T
