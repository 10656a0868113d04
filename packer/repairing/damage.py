"""Which blocks of a folder are damaged, and what its digest table should be."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fieldslab.packer.check.block_check import CHUNK
from fieldslab.packer.check.digests import compute_digests
from fieldslab.packer.check.foldercheck import find_unexpected_files
from fieldslab.packer.check.sampling import Run
from fieldslab.packer.check.threads import MapInThreads
from fieldslab.schemas import layout
from fieldslab.schemas.access import Folder
from fieldslab.schemas.arrays import HEADER, make_array_header
from fieldslab.schemas.digest import BLOCK, BlockDigest
from fieldslab.schemas.errors import DamagedArray, RemoteUnreadable, Unreadable
from fieldslab.schemas.files import OpenFolder, read_bytes, read_exactly
from fieldslab.schemas.layout import ArrayFile
from fieldslab.schemas.mapping import allocate_aligned

WRONG_HEADER = "wrong header"


@dataclass
class FileScan:
    """One array file: what is wrong with it as a file, if anything, and with its blocks.

    Attributes
    ----------
    digests, readable
        Of each block, its digest, (blocks,), and whether it could be read, bool[blocks].
    damaged
        Blocks that are not what the digest table says, bool[blocks]; those that may not be, while
        the table is not known.
    lost
        Blocks that are there and cannot be read, as the disk fails: bool[blocks].
    """

    file: ArrayFile
    problem: str | None
    digests: np.ndarray
    readable: np.ndarray
    lost: np.ndarray
    damaged: np.ndarray

    @property
    def is_whole(self) -> bool:
        """Whether nothing is wrong with it."""
        return self.problem is None and not self.damaged.any()


@dataclass
class FolderScan:
    """One folder.

    Attributes
    ----------
    table
        What the digest table should be, (blocks,), as its root in the manifest proves; None
        where the files do not tell.
    table_problem
        What is wrong with `digests.npy`; None where nothing is.
    extra
        Paths of files that do not belong there.
    """

    folder: Folder
    files: list[FileScan]
    table: np.ndarray | None
    table_problem: str | None
    extra: list[str]

    @property
    def is_whole(self) -> bool:
        """Whether nothing is wrong with it, but perhaps files that do not belong there."""
        return self.table_problem is None and all(scan.is_whole for scan in self.files)

    def accept_table(self, table: np.ndarray) -> None:
        """Take a table whose root is right for the truth."""
        self.table = table
        for scan in self.files:
            scan.damaged = ~scan.readable | (scan.digests != self.get_digests(scan.file))

    def get_digests(self, file: ArrayFile) -> np.ndarray:
        """Return what the table, which must be known, says of a file: (blocks,)."""
        assert self.table is not None
        return self.table[file.first_block : file.first_block + file.blocks]


def scan_folder(folder: Folder, run: MapInThreads) -> FolderScan:
    """Read all blocks of a folder. Raises NotASlab for links, and SlabReplaced."""
    problem, table, extra = None, None, list[str]()
    stored = folder.digest.make_zeros(0)
    try:
        with folder.open() as opened:
            names = {file.name for file in folder.files} | {layout.DIGESTS}
            extra = list(find_unexpected_files(opened, names))
            stored = _read_stored_table(folder, opened)
            files = list(run(lambda file: _scan_file(folder.digest, opened, file), folder.files))
    except (DamagedArray, Unreadable) as error:
        files = [_make_missing(folder.digest, file, error.problem) for file in folder.files]
    try:
        table = folder.read_digests()
        folder.accept_digests(table)
    except (DamagedArray, Unreadable) as error:
        problem, table = error.problem, None
    scan = FolderScan(folder, files, None, problem, extra)
    if table is not None:
        scan.accept_table(table)
        return scan
    computed = folder.digest.join_tables(file.digests for file in files)
    readable = all(file.readable.all() for file in files)
    if readable and folder.digest.compute_root(computed) == folder.root:
        scan.accept_table(computed)
        return scan
    for file in files:
        blocks = slice(file.file.first_block, file.file.first_block + file.file.blocks)
        expected = folder.digest.make_zeros(file.file.blocks)
        expected[: len(stored[blocks])] = stored[blocks]
        file.damaged = ~file.readable | (file.digests != expected)
    return scan


def find_runs(flags: np.ndarray) -> Iterator[Run]:
    """Find the runs of blocks that are flagged: bool[blocks]."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def read_blocks(
    fd: int, path: Path, file: ArrayFile, first: int, stop: int, chunk: int = CHUNK
) -> Iterator[tuple[int, np.ndarray]]:
    """Read a run of blocks in chunks; yield the first block of each, and its bytes: uint8[size].

    What cannot be read is left out.
    """
    for start in range(first, stop, chunk // BLOCK):
        end = min(start + chunk // BLOCK, stop)
        try:
            yield start, _read(fd, path, file, start, end)
        except RemoteUnreadable:
            raise
        except Unreadable:
            for block in range(start, end):
                with suppress(Unreadable):
                    yield block, _read(fd, path, file, block, block + 1)


def count_blocks_there(file: ArrayFile, size: int) -> int:
    """Count the whole blocks that a file of `size` bytes can hold of an array."""
    if size >= HEADER + file.data_bytes:
        return file.blocks
    return max(size - HEADER, 0) // BLOCK


def _read(fd: int, path: Path, file: ArrayFile, first: int, stop: int) -> np.ndarray:
    start, end = first * BLOCK, min(stop * BLOCK, file.data_bytes)
    data = allocate_aligned(end - start)
    read_exactly(fd, memoryview(data.data), HEADER + start, path, file.field.name)
    return data


def _scan_file(digest: BlockDigest, opened: OpenFolder, file: ArrayFile) -> FileScan:
    scan = _make_missing(digest, file, None)
    try:
        with opened.open_file(file.name, DamagedArray, file.field.name) as (fd, size):
            path = opened.path / file.name
            blocks = count_blocks_there(file, size)
            scan.lost[:blocks] = True
            for first, data in read_blocks(fd, path, file, 0, blocks):
                digests = compute_digests(digest, data)
                run = slice(first, first + len(digests))
                scan.digests[run], scan.readable[run], scan.lost[run] = digests, True, False
            scan.problem = _check_header(fd, size, path, file)
    except (DamagedArray, Unreadable) as error:
        scan.problem = error.problem
    scan.damaged = ~scan.readable
    return scan


def _check_header(fd: int, size: int, path: Path, file: ArrayFile) -> str | None:
    """Return what is wrong with the size or the header of an array file."""
    if size != HEADER + file.data_bytes:
        return f"wrong size: {size} bytes instead of {HEADER + file.data_bytes}"
    if bytes(read_bytes(fd, HEADER, 0, path)) != make_array_header(file.dtype, file.shape):
        return WRONG_HEADER
    return None


def _make_missing(digest: BlockDigest, file: ArrayFile, problem: str | None) -> FileScan:
    """Make the scan of a file of which nothing could be read."""
    nothing = np.zeros(file.blocks, bool)
    digests = digest.make_zeros(file.blocks)
    return FileScan(file, problem, digests, nothing, nothing.copy(), ~nothing)


def _read_stored_table(folder: Folder, opened: OpenFolder) -> np.ndarray:
    """Read what there is of a digest table, whatever became of it: (up to all blocks,)."""
    digest, blocks = folder.digest, layout.count_total_blocks(folder.files)
    with (
        suppress(DamagedArray, Unreadable),
        opened.open_file(layout.DIGESTS, DamagedArray) as (fd, size),
    ):
        count = min(max(size - HEADER, 0) // digest.dtype.itemsize, blocks)
        path = opened.path / layout.DIGESTS
        return digest.view_table(bytes(read_bytes(fd, digest.count_bytes(count), HEADER, path)))
    return digest.make_zeros(0)
