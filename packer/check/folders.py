"""One folder of a slab, a shard or `tables`: its arrays, read by ranges of items, not mapped.

A failing disk gives an error here, where a map would end the process.
"""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import numpy as np

from fieldslab.packer.check.holes import has_hole
from fieldslab.schemas import layout
from fieldslab.schemas.arrays import HEADER, open_array
from fieldslab.schemas.digest import BLOCK, digest_blocks, root
from fieldslab.schemas.errors import DamagedArray, FieldslabError
from fieldslab.schemas.fields import Role
from fieldslab.schemas.files import RESTORE, OpenFolder, read_exactly
from fieldslab.schemas.folder import SlabFiles
from fieldslab.schemas.layout import ArrayFile


class StoredArray:
    """One array file. A sequence of scalars, too, so that `bisect` finds a place in it."""

    def __init__(self, folder: "Folder", file: ArrayFile) -> None:
        """With the folder's digests, every block that is read is checked."""
        self.path = folder.path / file.name
        self.file = file
        self._folder = folder
        self._digests = folder.digests

    def __len__(self) -> int:
        return self.file.shape[0]

    def __getitem__(self, index: int) -> int:
        return int(self.read(index, index + 1)[0])

    def read(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Items `start` to `stop`: ndarray (stop - start, *shape).

        Raises DamagedArray where the file is not what the manifest says, and Unreadable.
        """
        file = self.file
        stop = len(self) if stop is None else stop
        first, last = start * file.item_bytes, stop * file.item_bytes
        base, end = first, last
        if self._digests is not None and first < last:
            base = first // BLOCK * BLOCK
            end = min(-(-last // BLOCK) * BLOCK, file.data_bytes)
        data = self._load(base, end)
        self._check(data, base)
        items = data[first - base : last - base].view(file.dtype)
        try:
            return items.reshape(stop - start, *file.shape[1:])
        except ValueError as error:
            raise self.damaged(f"no array can have the shape {file.shape}") from error

    def damaged(self, problem: str, offset: int | None = None) -> DamagedArray:
        """The error for this file."""
        name = self.file.field.name
        return DamagedArray(problem, file=self.path, field=name, offset=offset, hint=RESTORE)

    @contextmanager
    def opened(self) -> Iterator[int]:
        """A descriptor on the file, for a `with` block; its size and header were checked."""
        file = self.file
        with (
            self._folder.opened() as folder,
            open_array(folder, file.name, file.dtype, file.shape, file.field.name) as fd,
        ):
            yield fd

    def _load(self, base: int, end: int) -> np.ndarray:
        """Bytes `base` to `end` of the data; allocated after the file's size was checked."""
        with self.opened() as fd:
            data = np.empty(end - base, np.uint8)
            view = memoryview(data.data)
            read_exactly(fd, view, HEADER + base, self.path, self.file.field.name)
        return data

    def _check(self, data: np.ndarray, base: int) -> None:
        if self._digests is None or not len(data):
            return
        first = self.file.first_block + base // BLOCK
        found = digest_blocks(memoryview(data.data))
        wrong = np.flatnonzero(found != self._digests[first : first + len(found)])
        if len(wrong):
            offset = HEADER + base + int(wrong[0]) * BLOCK
            raise self.damaged("a block does not match its digest", offset)


class Folder:
    """A folder of arrays.

    `first_row` and `rows` are the rows of the slab that it holds: for `tables`, all of them.
    `digests` is the digest table once `load_digests` found it good, None before.
    """

    def __init__(
        self, slab: SlabFiles, name: str, files: list[ArrayFile], root: str, first_row: int,
        rows: int,
    ) -> None:  # fmt: skip
        self.path = slab.path / name
        self.files = files
        self.root = root
        self.first_row = first_row
        self.rows = rows
        self.digests: np.ndarray | None = None
        self._slab = slab
        self._name = name
        self._by_role = {(file.field.name, file.role): file for file in files}

    def opened(self) -> AbstractContextManager[OpenFolder]:
        """The folder, held open for a `with` block; the errors are those of `SlabFiles.folder`."""
        return self._slab.folder(self._name)

    def array(self, field: str, role: Role) -> StoredArray | None:
        """One array of a field; None where this folder does without, as `valid` without nulls."""
        file = self._by_role.get((field, role))
        return None if file is None else StoredArray(self, file)

    def require(self, field: str, role: Role) -> StoredArray:
        """One array of a field that its kind has in every folder."""
        return StoredArray(self, self._by_role[field, role])

    def load_digests(self) -> np.ndarray:
        """Read `digests.npy`: uint64[blocks]. Raises DamagedArray where file or root is wrong.

        Raises Unreadable, too, where the disk fails.
        """
        return self.accept_digests(self.read_digests())

    def accept_digests(self, table: np.ndarray) -> np.ndarray:
        """Check what is read by this table from now on. Raises DamagedArray for a wrong root."""
        found = root(table)
        if found != self.root:
            raise DamagedArray(
                "digest table is damaged", file=self.path / layout.DIGESTS,
                expected=self.root, found=found, hint=RESTORE,
            )  # fmt: skip
        self.digests = table
        return table

    def read_digests(self) -> np.ndarray:
        """The digest table as it stands in the file. Raises DamagedArray and Unreadable."""
        path, blocks = self.path / layout.DIGESTS, layout.total_blocks(self.files)
        with (
            self.opened() as folder,
            open_array(folder, layout.DIGESTS, np.dtype("<u8"), (blocks,)) as fd,
        ):
            # No block has the digest 0, and a hole may be larger than any memory.
            if has_hole(fd, HEADER, HEADER + 8 * blocks):
                raise DamagedArray(
                    "digest table is damaged: a part of it was never written", file=path,
                    hint=RESTORE,
                )  # fmt: skip
            data = np.empty(blocks, "<u8")
            read_exactly(fd, memoryview(data.view(np.uint8).data), HEADER, path)
        return data

    def rows_of(self, file: ArrayFile, start: int, stop: int) -> tuple[int, int] | None:
        """First and last row of the slab that bytes `start` to `stop` of an array belong to.

        All rows of the folder where that cannot be told; None where it holds no row.
        """
        if not self.rows:
            return None
        first, last = start // file.item_bytes, (stop - 1) // file.item_bytes
        if file.role in ("offsets", "points.offsets"):
            first, last = first - 1, min(last, self.rows - 1)
        elif file.role == "values" and self.array(file.field.name, "offsets") is not None:
            first, last = self._owners(file, "offsets", first, last)
        elif file.role == "points.values":
            first, last = self._owners(file, "points.offsets", first, last)
        elif file.role not in ("values", "lengths", "size", "codec", "valid"):  # serves all rows
            first, last = 0, self.rows - 1
        return self.first_row + max(first, 0), self.first_row + last

    def categories_of(self, file: ArrayFile, start: int, stop: int) -> tuple[int, int]:
        """First and last category that bytes `start` to `stop` of a category table belong to."""
        first, last = start // file.item_bytes, (stop - 1) // file.item_bytes
        if file.role == "categories.offsets":
            return max(first - 1, 0), last
        return self._owners(file, "categories.offsets", first, last)

    def _owners(self, file: ArrayFile, role: Role, first: int, last: int) -> tuple[int, int]:
        """Which rows or categories elements belong to, by a search in the offsets."""
        offsets = self.require(file.field.name, role)
        owners = len(offsets) - 1
        try:
            start = bisect_right(offsets, first) - 1
            stop = bisect_right(offsets, last) - 1
        except FieldslabError:
            return 0, owners - 1
        if not 0 <= start <= stop < owners:
            return 0, owners - 1
        return start, stop


def shard_folder(slab: SlabFiles, index: int, first_row: int) -> Folder:
    """Shard `index` of a slab, whose first row is `first_row`."""
    shard = slab.manifest.shards[index]
    files = layout.shard_files(slab.manifest, index)
    return Folder(slab, layout.shard_name(index), files, shard.root, first_row, shard.rows)


def table_folder(slab: SlabFiles) -> Folder | None:
    """The folder `tables`, where the slab has one."""
    manifest = slab.manifest
    if manifest.tables is None:
        return None
    files = layout.table_files(manifest)
    return Folder(slab, layout.TABLES, files, manifest.tables, 0, manifest.rows)


def all_folders(slab: SlabFiles) -> Iterator[Folder]:
    """`tables`, where there is one, then the shards."""
    tables = table_folder(slab)
    if tables is not None:
        yield tables
    first_row = 0
    for index, shard in enumerate(slab.manifest.shards):
        yield shard_folder(slab, index, first_row)
        first_row += shard.rows
