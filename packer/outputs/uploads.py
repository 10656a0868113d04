"""Objects of a store that are there as they were sent.

After an upload the store is asked for the size of the object and for its ETag. S3 and most others
compute it from the bytes that they received: the MD5, or of an upload in parts the MD5 of the MD5s
of the parts. If it is that of what was sent, the object is right. Otherwise, as with encryption by
a key of the user, or on Azure, the object is read back and compared.
"""

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event

from fieldslab.schemas.errors import OutputError
from fieldslab.schemas.stores.slab_objects import join_key
from fieldslab.schemas.stores.store import PART, Data, ObjectInfo, Store

_FILES = 2
"""Files that are uploaded at a time, each in parts."""
_ATTEMPTS = 3
"""How often an object is uploaded: some are damaged on their way."""
_DAMAGED = 400
"""Status of a store that notices that itself: BadDigest, IncompleteBody, EntityTooSmall."""


def upload_folder(
    store: Store, name: str, folder: Path, cancelled: Event | None = None
) -> dict[str, str]:
    """Upload the files of a folder, verified; returns the version of each object by file name.

    Raises what `upload` raises, and CancelledError soon after `cancelled` is set.
    """
    cancelled = cancelled or Event()
    with ThreadPoolExecutor(_FILES, "fieldslab-upload") as threads:
        uploads = {
            path.name: threads.submit(
                upload,
                store,
                join_key(name, path.name),
                path.stat().st_size,
                partial(_read_file, path, cancelled),
            )
            for path in sorted(folder.iterdir())
        }
        try:
            return {file: get_version(upload.result()) for file, upload in uploads.items()}
        except BaseException:
            cancelled.set()
            for upload_ in uploads.values():
                upload_.cancel()
            raise


def get_version(info: ObjectInfo) -> str:
    """Return the version of an object without quotes, which lists of some stores leave out."""
    return (info.version or "").removeprefix("W/").strip('"')


def upload(
    store: Store, key: str, size: int, read_pieces: Callable[[], Iterator[Data]]
) -> ObjectInfo:
    """Upload an object of `size` bytes, and have the store say that it is right.

    `read_pieces` is called for each attempt. Raises what `Store.write` and `Store.read` raise, and
    OutputError where the store keeps other bytes than were sent.
    """
    for _ in range(_ATTEMPTS):
        digests = _PartDigests()
        pieces = digests.add_pieces(read_pieces())
        try:
            store.write(key, b"".join(pieces) if size <= PART else pieces)
        except OutputError as error:
            if error.context.get("status") != _DAMAGED:
                raise
            continue
        info = store.get_info(key)
        if info.size == size and (
            get_version(info) in digests.list_etags() or digests.match(store, key)
        ):
            return info
    raise OutputError(
        "the store does not keep the bytes that are sent",
        file=store.locate(key),
        attempts=_ATTEMPTS,
        hint="Look at the network and at the server, then run the same command again.",
    )


class _PartDigests:
    """The MD5 of each part of an object that is sent in pieces of any size."""

    def __init__(self) -> None:
        self._parts: list[hashlib._Hash] = []
        self._room = 0

    def add_pieces(self, pieces: Iterator[Data]) -> Iterator[Data]:
        """Yield the same pieces."""
        for piece in pieces:
            view = memoryview(piece)
            while len(view):
                if not self._room:
                    self._parts.append(hashlib.md5(usedforsecurity=False))
                    self._room = PART
                self._parts[-1].update(view[: self._room])
                size = min(len(view), self._room)
                self._room -= size
                view = view[size:]
            yield piece

    def list_etags(self) -> list[str]:
        """List the ETags that S3 gives the object: sent at once, or in parts."""
        parts = [part.digest() for part in self._parts]
        joined = hashlib.md5(b"".join(parts), usedforsecurity=False).hexdigest()
        etags = [f"{joined}-{len(parts)}"]
        return [*etags, parts[0].hex()] if len(parts) == 1 else etags

    def match(self, store: Store, key: str) -> bool:
        """Read the object back, and compare it."""
        size = len(self._parts) * PART - self._room
        for number, part in enumerate(self._parts):
            data = store.read(key, number * PART, min(size, (number + 1) * PART))
            if hashlib.md5(data, usedforsecurity=False).digest() != part.digest():
                return False
        return True


def _read_file(path: Path, cancelled: Event) -> Iterator[bytes]:
    """Yield a file in pieces of the size of parts."""
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(PART):
            if cancelled.is_set():
                raise CancelledError
            yield piece
