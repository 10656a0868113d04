"""Folders of arrays: how arrays are read or mapped, and what they must digest to.

All that is stored is reached through `ArrayReader.opened`. `read` gives an error where the disk
fails; `map` shares memory between processes, and callers `populate` it before they touch it.
"""

import mmap
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fieldslab.schemas import layout
from fieldslab.schemas.arrays import HEADER, map_array, open_array, populate_array
from fieldslab.schemas.digest import BLOCK, BLOCK_DIGESTS, count_blocks, split_blocks
from fieldslab.schemas.errors import DamagedArray, DamagedManifest, FieldslabError
from fieldslab.schemas.fields import Field, Role
from fieldslab.schemas.files import RESTORE, OpenFolder, make_unreadable_error, read_exactly
from fieldslab.schemas.folder import SlabFiles
from fieldslab.schemas.holes import has_hole
from fieldslab.schemas.layout import ArrayFile
from fieldslab.schemas.mapping import allocate_aligned, get_address, populate_pages

if TYPE_CHECKING:
    from fieldslab.schemas.mirror.mirror import Mirror

_Read = TypeVar("_Read")


class Folder:
    """A folder of arrays, a shard or `tables`.

    Attributes
    ----------
    files, root
        Its arrays, in file order, and what the manifest says of their digests.
    digest
        The kind of digests.
    first_row, rows
        The rows of the slab that it holds: for `tables`, all of them.
    """

    def __init__(
        self,
        slab: SlabFiles,
        name: str,
        files: list[ArrayFile],
        root: str,
        first_row: int,
        rows: int,
        mapped: bool = False,
    ) -> None:
        """With `mapped`, the digest table is mapped: processes share it, and its address stays."""
        self.files = files
        self.root = root
        self.digest = BLOCK_DIGESTS[slab.manifest.digest]
        self.first_row = first_row
        self.rows = rows
        self._slab = slab
        self._name = name
        self._mapped = mapped
        self._by_role = {(file.field.name, file.role): file for file in files}
        self._tables: list[np.ndarray] = []

    @cached_property
    def path(self) -> Path:
        """Where it was when the slab was opened, for messages."""
        return self._slab.path / self._name

    @property
    def mirror(self) -> "Mirror | None":
        """What the slab is read through, if it lies elsewhere."""
        return self._slab.mirror

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self._name

    @property
    def holds_rows(self) -> bool:
        """Whether it is a shard: `tables` serves the rows of all shards."""
        return self._name != layout.TABLES

    @property
    def digests(self) -> np.ndarray | None:
        """The digest table, (blocks,); None before it was loaded, when nothing is checked."""
        return self._tables[0] if self._tables else None

    def open(self) -> AbstractContextManager[OpenFolder]:
        """Open the folder for a `with` block. Raises the errors of `SlabFiles.open_folder`."""
        return self._slab.open_folder(self._name)

    def get_array(self, field: Field, role: Role) -> "ArrayReader | None":
        """Return one array of a field; None if this folder lacks it, as `valid` without nulls."""
        file = self._by_role.get((field.name, role))
        return None if file is None else ArrayReader(self, file)

    def get_required_array(self, field: Field, role: Role) -> "ArrayReader":
        """Return an array that every folder has for fields of this kind."""
        return ArrayReader(self, self._by_role[field.name, role])

    def load_digests(self) -> np.ndarray:
        """Return the digest table, (blocks,); the first call reads it.

        Raises DamagedArray where the file or its root is wrong, and what `open_array` raises.
        """
        if not self._tables:
            self.read_verified(None, 0, 1, self._load_digests)
        # Threads may each load it: the first to come stays, since kernels know its address.
        return self._tables[0]

    def read_verified(
        self, file: ArrayFile | None, first: int, last: int, read: Callable[[], _Read]
    ) -> _Read:
        """Return what `read` returns, which reads and verifies blocks `first` up to `last`.

        In a mirror they are there first, and fetched again where `read` raises DamagedArray. `file`
        is None for the digest table, which counts as one block.
        """
        if self.mirror is None:
            return read()
        return self.mirror.verify(self.mirror.find_positions(self._name, file, first, last), read)

    def accept_digests(self, table: np.ndarray) -> None:
        """Check what is read by this table from now on. Raises DamagedArray for a wrong root."""
        computed = self.digest.compute_root(table)
        if computed != self.root:
            raise DamagedArray(
                "digest table is damaged",
                file=self.path / layout.DIGESTS,
                expected=self.root,
                found=computed,
                hint=RESTORE,
            )
        self._tables.append(table)

    def read_digests(self) -> np.ndarray:
        """Read the digest table from its file. Raises DamagedArray and Unreadable."""
        path, blocks = self.path / layout.DIGESTS, layout.count_total_blocks(self.files)
        dtype, shape = self.digest.describe_file(blocks)
        size = self.digest.count_bytes(blocks)
        with self.open() as folder, open_array(folder, layout.DIGESTS, dtype, shape) as fd:
            # No block has the digest 0, and a hole may be larger than any memory.
            if has_hole(fd, HEADER, HEADER + size):
                raise DamagedArray(
                    "digest table is damaged: a part of it was never written",
                    file=path,
                    hint=RESTORE,
                )
            if self._mapped and size > mmap.PAGESIZE:  # less is not worth one of the few maps
                table = map_array(folder, layout.DIGESTS, dtype, shape)
                populate_array(table, path)
                return self.digest.view_table(table)
            table = self.digest.view_table(_read_bytes(fd, 0, size, path))
            return table.copy() if self._mapped else table  # kept: without room for alignment

    def _load_digests(self) -> None:
        self.accept_digests(self.read_digests())

    def find_rows(self, file: ArrayFile, start: int, stop: int) -> tuple[int, int] | None:
        """Find the first and last row of the slab that own bytes `start` to `stop` of an array.

        All rows of the folder where that cannot be told; None where it holds no row.
        """
        if not self.rows:
            return None
        first, last = start // file.item_bytes, (stop - 1) // file.item_bytes
        if file.spec.per == "table":  # serves all rows
            first, last = 0, self.rows - 1
        elif file.spec.per == "row+1":
            first, last = first - 1, min(last, self.rows - 1)
        elif file.spec.by is not None:
            first, last = self._find_owners(file, file.spec.by, first, last)
        return self.first_row + max(first, 0), self.first_row + last

    def find_categories(self, file: ArrayFile, start: int, stop: int) -> tuple[int, int]:
        """Find the first and last category that own bytes `start` to `stop` of a category table."""
        first, last = start // file.item_bytes, (stop - 1) // file.item_bytes
        if file.spec.by is None:
            return max(first - 1, 0), last
        return self._find_owners(file, file.spec.by, first, last)

    def _find_owners(self, file: ArrayFile, role: Role, first: int, last: int) -> tuple[int, int]:
        """Search the offsets for the rows or categories that own some elements."""
        offsets = self.get_required_array(file.field, role)
        owners = len(offsets) - 1
        try:
            start = bisect_right(offsets, first) - 1
            stop = bisect_right(offsets, last) - 1
        except FieldslabError:
            return 0, owners - 1
        if not 0 <= start <= stop < owners:
            return 0, owners - 1
        return start, stop


class ArrayReader:
    """Reads one array file; also a sequence of scalars, so that `bisect` can search it."""

    def __init__(self, folder: Folder, file: ArrayFile) -> None:
        self.folder = folder
        self.file = file

    @property
    def path(self) -> Path:
        """Where it was when the slab was opened, for messages."""
        return self.folder.path / self.file.name

    def __len__(self) -> int:
        return self.file.shape[0]

    def __getitem__(self, index: int) -> int:
        return int(self.read(index, index + 1)[0])

    @contextmanager
    def open(self) -> Iterator[int]:
        """Open the file for a `with` block, after a check of its size and header."""
        file = self.file
        with (
            self.folder.open() as folder,
            open_array(folder, file.name, file.dtype, file.shape, file.field.name) as fd,
        ):
            yield fd

    def read(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Read items `start` to `stop`: ndarray (stop - start, *shape).

        The blocks under them are checked if the folder's digests were loaded.

        Raises
        ------
        DamagedArray
            The file is not what the manifest says, or a block not what its digest says.
        DamagedManifest
            The shape is beyond what an array can have.
        SlabReplaced, NotASlab, Unreadable
            The slab was packed again since; a link is in the way; the disk fails.
        """
        file, checked = self.file, self.folder.digests is not None
        if self.folder.mirror is not None and not checked:
            checked = self.folder.load_digests() is not None
        stop = len(self) if stop is None else stop
        first, last = start * file.item_bytes, stop * file.item_bytes
        base, end = first, last
        if checked and first < last:
            base = first // BLOCK * BLOCK
            end = min(-(-last // BLOCK) * BLOCK, file.data_bytes)
        blocks = base // BLOCK, count_blocks(end)
        read = partial(self._read_blocks, base, end, checked)
        data = self.folder.read_verified(file, *blocks, read)
        items = data[first - base : last - base].view(file.dtype)
        try:
            return items.reshape(stop - start, *file.shape[1:])
        except ValueError as error:
            raise self._make_shape_error() from error

    def map(self) -> np.ndarray:
        """Map all of it read-only: shape and dtype are those of the file. Nothing is checked.

        Raises what `read` raises, and FieldslabError where the system refuses another map.
        """
        file = self.file
        try:
            with self.folder.open() as folder:
                return map_array(folder, file.name, file.dtype, file.shape, file.field.name)
        except ValueError as error:
            raise self._make_shape_error() from error

    def populate(self, data: np.ndarray, block: int) -> None:
        """Read a part of the map into memory before it is touched: a failing touch kills us.

        Raises DamagedArray where the file was cut off, Unreadable where the disk fails.
        """
        try:
            if data.nbytes:
                populate_pages(get_address(data), data.nbytes)
        except OSError as error:
            with self.open():  # tells if the file was cut off
                pass
            start = block * BLOCK
            rows = self.folder.find_rows(self.file, start, start + data.nbytes)
            raise make_unreadable_error(
                error,
                self.path,
                field=self.file.field.name,
                offset=HEADER + start,
                row=None if rows is None else f"{rows[0]}..{rows[1]}",
            ) from error

    def load_digests(self) -> np.ndarray:
        """Return the expected digests of its blocks, (blocks,). Raises DamagedArray."""
        table, first = self.folder.load_digests(), self.file.first_block
        return table[first : first + self.file.blocks]

    def check_blocks(self, first: int, data: np.ndarray) -> None:
        """Compare whole blocks, uint8[size], from block `first` on, with their digests.

        Raises DamagedArray, with the rows that the block belongs to.
        """
        digests, kind = self.load_digests(), self.folder.digest
        for index, block in enumerate(split_blocks(data.data), first):
            expected, computed = digests[index].item(), kind.compute(block)
            if computed != expected:
                start = index * BLOCK
                rows = self.folder.find_rows(self.file, start, start + len(block))
                raise self.make_damaged_error(
                    "a block does not match its digest",
                    row=None if rows is None else f"{rows[0]}..{rows[1]}",
                    offset=HEADER + start,
                    expected=kind.format(expected),
                    found=kind.format(computed),
                )

    def make_damaged_error(self, problem: str, **context: Any) -> DamagedArray:
        """Make the DamagedArray error for this file."""
        return DamagedArray(
            problem, file=self.path, field=self.file.field.name, **context, hint=RESTORE
        )

    def make_damaged_offsets_error(
        self, index: int, start: int, stop: int, limit: int
    ) -> DamagedArray:
        """Make the error for offsets `index` and `index + 1`, which hold `start` and `stop`."""
        return self.make_damaged_error(
            "offsets are damaged",
            row=self.folder.first_row + index,
            offset=HEADER + self.file.item_bytes * index,
            expected=f"rising numbers up to {limit}",
            found=f"{start}, {stop}",
        )

    def _read_blocks(self, start: int, stop: int, checked: bool) -> np.ndarray:
        """Bytes `start` to `stop`, whole blocks if they are checked: uint8[size]."""
        with self.open() as fd:  # memory is taken after the file's size was checked
            data = _read_bytes(fd, start, stop, self.path, self.file.field.name)
        if checked:
            self.check_blocks(start // BLOCK, data)
        return data

    def _make_shape_error(self) -> DamagedManifest:
        return DamagedManifest(
            "no array can have this shape",
            file=self.path,
            field=self.file.field.name,
            found=self.file.shape,
        )


def find_shard_folder(slab: SlabFiles, index: int, first_row: int, mapped: bool = False) -> Folder:
    """Return the folder of shard `index`, whose first row is `first_row`."""
    shard = slab.manifest.shards[index]
    files = layout.list_shard_files(slab.manifest, index)
    name = layout.name_shard(index)
    return Folder(slab, name, files, shard.root, first_row, shard.rows, mapped)


def find_table_folder(slab: SlabFiles, mapped: bool = False, first_row: int = 0) -> Folder | None:
    """Return the folder `tables` if the slab, whose first row is `first_row`, has one."""
    manifest = slab.manifest
    if manifest.tables is None:
        return None
    files = layout.list_table_files(manifest)
    return Folder(slab, layout.TABLES, files, manifest.tables, first_row, manifest.rows, mapped)


def iterate_folders(slab: SlabFiles) -> Iterator[Folder]:
    """Yield the folder `tables`, if there is one, then the folder of each shard."""
    tables = find_table_folder(slab)
    if tables is not None:
        yield tables
    first_row = 0
    for index, shard in enumerate(slab.manifest.shards):
        yield find_shard_folder(slab, index, first_row)
        first_row += shard.rows


def _read_bytes(fd: int, start: int, stop: int, path: Path, field: str | None = None) -> np.ndarray:
    """Read bytes `start` to `stop` of an array's data: uint8[size]. Raises Unreadable."""
    data = allocate_aligned(stop - start)
    read_exactly(fd, memoryview(data.data), HEADER + start, path, field)
    return data
