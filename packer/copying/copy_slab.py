"""Copy: a slab from a directory or a URL to another, whole or not at all."""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

from fieldslab.packer.check.findings import VerifyProgress
from fieldslab.packer.copying.destinations import (
    Destination,
    DirectoryDestination,
    StoreDestination,
)
from fieldslab.packer.copying.signature_copy import add_signature, find_copied_signature
from fieldslab.packer.copying.verified_reading import VerifiedReader
from fieldslab.packer.outputs.directory_check import was_cleanup_interrupted
from fieldslab.packer.slabsize import count_bytes
from fieldslab.packer.unions.source_slabs import refuse_union
from fieldslab.schemas import layout
from fieldslab.schemas.access import ArrayReader, Folder, iterate_folders
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.errors import FieldslabError, OutputExists, UsageError
from fieldslab.schemas.folder import SlabFiles, check_pinned, check_slab_path
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.signatures import read_manifest_bytes
from fieldslab.schemas.stores.slab_objects import (
    find_slab_path,
    is_remote,
    open_slab_anywhere,
)
from fieldslab.schemas.stores.store import open_store

THREADS = 6
"""Files that are copied at a time."""


@dataclass(frozen=True)
class CopyResult:
    """What `copy_slab` did.

    Attributes
    ----------
    source, destination
        The places, as for messages.
    id
        The `id` of the slab.
    bytes
        Bytes of all files of the slab.
    copied_bytes
        Bytes that were copied now; the others were there already.
    seconds
        How long it took.
    signed
        Whether the source has a signature, which was copied, too.
    """

    source: str
    destination: str
    id: str
    bytes: int
    copied_bytes: int
    seconds: float
    signed: bool

    def as_dict(self) -> dict[str, Any]:
        """Return the result as JSON-ready values."""
        return vars(self) | {"seconds": round(self.seconds, 3)}


def copy_slab(
    source: str | Path,
    destination: str | Path,
    *,
    force: bool = False,
    follow_links: bool = False,
    source_options: Mapping[str, Any] | None = None,
    destination_options: Mapping[str, Any] | None = None,
    id: str | None = None,
    progress: VerifyProgress | None = None,
) -> CopyResult:
    """Copy a slab. Every block is compared with its digest on the way; the manifest comes last.

    A signature is copied, too, and not checked: `fieldslab verify --public-key` does that.

    A copy that was cut off goes on from what is there when it is started again. It never looks
    like a slab before it is whole. A copy that is there already is not copied again.

    Parameters
    ----------
    source, destination
        The slab's directory or URL, and the directory or URL that the copy shall have.
    force
        Replace another slab at `destination`: in a directory only.
    follow_links
        Follow links in the source, as in the caches of Hugging Face and DVC. The copy has none.
    source_options, destination_options
        `storage_options` for URLs: see `fieldslab.schemas.stores.store.open_store`.
    id
        The `id` that the slab must have, or its first 16 digits or more.
    progress
        Called with the rows and bytes that were copied since the last call.

    Raises
    ------
    SlabChanged
        The source has another `id` than the one that was asked for.
    NotASlab, IncompleteSlab, DamagedManifest, DamagedArray, Unreadable, SlabReplaced
        The source is no slab, is damaged, or cannot be read.
    RemoteUnreadable, AccessDenied, MissingLibrary
        A store fails, refuses, or needs a library.
    OutputExists
        Something else is at the destination.
    NoSpace, OutputDenied, OutputError, Busy
        The destination cannot be written, or another process writes there.
    UsageError
        `force` for a store: its readers would see parts of both slabs. The source lists many.
    """
    started = time.monotonic()
    refuse_union(source, "one slab is copied at a time, and this lists many")
    remote = is_remote(destination)
    if remote and force:
        raise UsageError(
            f"{mark_option('force', True)} is for directories: a store cannot replace a slab at "
            "once, and its readers would see parts of both",
            file=find_slab_path(destination),
            hint="Copy to another URL, or delete that slab first.",
        )
    with ExitStack() as stack:
        files = stack.enter_context(
            open_slab_anywhere(source, follow_links=follow_links, storage_options=source_options)
        )
        check_pinned(id, files.manifest.id, files.path)
        total = count_bytes(files)
        counter = CopyCounter(progress)
        signature = find_copied_signature(files)
        if not remote and _is_there(files, check_slab_path(destination)):
            if signature is not None:
                add_signature(check_slab_path(destination), files, signature)
            _remove_leftovers(files, check_slab_path(destination))
        else:
            place: Destination
            if remote:
                place = StoreDestination(
                    open_store(destination, destination_options), files.manifest
                )
            else:
                path = check_slab_path(destination)
                place = DirectoryDestination(path, files.manifest, total, force=force)
            stack.enter_context(place)
            copy_folders(files, place, counter)
            place.publish(read_manifest_bytes(files), signature)
    return CopyResult(
        str(files.path),
        str(find_slab_path(destination)),
        files.manifest.id,
        total,
        counter.bytes,
        time.monotonic() - started,
        signature is not None,
    )


class CopyCounter:
    """Counts what is copied in several threads."""

    def __init__(self, progress: VerifyProgress | None) -> None:
        self.bytes = 0
        self._progress = progress
        self._lock = Lock()

    def count_pieces(self, pieces: Iterator[memoryview]) -> Iterator[memoryview]:
        """Yield the same pieces; each is counted when the next is asked for."""
        for piece in pieces:
            yield piece
            self.add(len(piece), copied=True)

    def add(self, size: int, *, copied: bool, rows: int = 0) -> None:
        """Count bytes, which were copied or are there already, and rows."""
        with self._lock:
            self.bytes += size if copied else 0
            if self._progress is not None:
                self._progress(rows, size)


def copy_folders(
    files: SlabFiles, place: Destination, counter: CopyCounter, *, with_tables: bool = True
) -> None:
    """Copy the files of all folders, a few at a time; folders are finished in order."""
    with VerifiedReader() as reader, ThreadPoolExecutor(THREADS, "fieldslab-copy") as threads:
        running: deque[tuple[Folder | None, Future[None] | None]] = deque()
        try:
            for folder in iterate_folders(files):
                if not (folder.holds_rows or with_tables):
                    continue
                for work in _list_work(folder, place, reader, counter):
                    running.append((None, threads.submit(work)))
                    _wait(running, place, counter, 2 * THREADS)
                running.append((folder, None))
            _wait(running, place, counter, 0)
        except BaseException:
            reader.cancel()
            for _, future in running:
                if future is not None:
                    future.cancel()
            raise


def _wait(
    running: deque[tuple[Folder | None, Future[None] | None]],
    place: Destination,
    counter: CopyCounter,
    most: int,
) -> None:
    """Wait until so many files at most are being copied, and finish folders that are complete."""
    while len(running) > most:
        folder, future = running.popleft()
        if future is not None:
            future.result()
        if folder is not None:
            place.finish_folder(folder)
            counter.add(0, copied=False, rows=folder.rows if folder.holds_rows else 0)


def _list_work(
    folder: Folder, place: Destination, reader: VerifiedReader, counter: CopyCounter
) -> Iterator[Any]:
    """Yield a function for each file of a folder that is to be copied."""
    name = folder.path.name
    arrays = {file.name: ArrayReader(folder, file) for file in folder.files}
    sizes = {file: HEADER + array.file.data_bytes for file, array in arrays.items()}
    blocks = layout.count_total_blocks(folder.files)
    sizes[layout.DIGESTS] = HEADER + folder.digest.count_bytes(blocks)
    lock = Lock()

    def copy(file: str, size: int) -> None:
        with lock:  # all others wait for the first, instead of reading it as well
            folder.load_digests()
        array = arrays.get(file)
        attempts = count()

        def read_pieces() -> Iterator[memoryview]:
            pieces = reader.read_digest_table(folder) if array is None else reader.read_array(array)
            return pieces if next(attempts) else counter.count_pieces(pieces)

        place.write_file(name, file, size, read_pieces)

    for file, size in sizes.items():
        if place.has_file(name, file, size):
            counter.add(size, copied=False)
        else:
            yield partial(copy, file, size)


def _is_there(files: SlabFiles, out: Path) -> bool:
    """Return True for a directory that holds this slab, with files of the right sizes."""
    try:
        with open_slab_anywhere(out) as copy:
            if copy.manifest.id != files.manifest.id:
                return False
            for folder in iterate_folders(copy):
                with folder.open() as opened:
                    for file in folder.files:
                        if opened.find_size(file.name) != HEADER + file.data_bytes:
                            return False
                folder.load_digests()
    except FieldslabError:
        return False
    return True


def _remove_leftovers(files: SlabFiles, out: Path) -> None:
    """Remove what a run left that was killed after it had put the copy in its place."""
    if was_cleanup_interrupted(out):
        with suppress(OutputExists), DirectoryDestination(out, files.manifest, 0, force=False):
            pass
