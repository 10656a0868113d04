"""Files that become objects of a store, and are there as they were sent.

After an upload the store is asked for the size of the object and for its ETag. S3 and most others
compute it from the bytes that they received: the MD5, or of an upload in parts the MD5 of the MD5s
of the parts. If it is that of the file, the object is right, and nothing is sent again. Otherwise,
as with encryption by a key of the user, or on Azure, the object is read back and compared.
"""

import hashlib
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from threading import Event

from fieldslab.schemas.errors import OutputError
from fieldslab.schemas.stores.slab_objects import join_key
from fieldslab.schemas.stores.store import PART, ObjectInfo, Store

_FILES = 2
"""Files that are uploaded at a time, each in parts."""
_ATTEMPTS = 3
"""How often a file is uploaded: some are damaged on their way."""
_DAMAGED = 400
"""Status of a store that notices that itself: BadDigest, IncompleteBody, EntityTooSmall."""


def upload_folder(store: Store, name: str, folder: Path) -> dict[str, str]:
    """Upload the files of a folder, verified; returns the version of each object by file name.

    Raises what `Store.write` and `Store.read` raise, and OutputError where the store keeps other
    bytes than were sent.
    """
    cancelled = Event()
    with ThreadPoolExecutor(_FILES, "fieldslab-upload") as threads:
        uploads = {
            path.name: threads.submit(_upload, store, join_key(name, path.name), path, cancelled)
            for path in sorted(folder.iterdir())
        }
        try:
            return {file: get_version(upload.result()) for file, upload in uploads.items()}
        except BaseException:
            cancelled.set()
            for upload in uploads.values():
                upload.cancel()
            raise


def get_version(info: ObjectInfo) -> str:
    """Return the version of an object without quotes, which lists of some stores leave out."""
    return (info.version or "").removeprefix("W/").strip('"')


def _upload(store: Store, key: str, path: Path, cancelled: Event) -> ObjectInfo:
    size = path.stat().st_size
    for _ in range(_ATTEMPTS):
        digests: list[bytes] = []
        pieces = _read_pieces(path, digests, cancelled)
        try:
            store.write(key, next(pieces, b"") if size <= PART else pieces)
        except OutputError as error:
            if error.context.get("status") != _DAMAGED:
                raise
            continue
        info = store.get_info(key)
        if info.size == size and (
            get_version(info) in _list_etags(digests) or _is_same(store, key, path, cancelled)
        ):
            return info
    raise OutputError(
        "the store does not keep the bytes that are sent",
        file=store.locate(key),
        attempts=_ATTEMPTS,
        hint="Look at the network and at the server, then run the same command again.",
    )


def _read_pieces(path: Path, digests: list[bytes], cancelled: Event) -> Iterator[bytes]:
    """Yield a file in pieces of the size of parts, and collect the MD5 of each."""
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(PART):
            if cancelled.is_set():
                raise CancelledError
            digests.append(hashlib.md5(piece, usedforsecurity=False).digest())
            yield piece


def _list_etags(digests: list[bytes]) -> list[str]:
    """List the ETags that S3 gives an object: sent at once, or in parts."""
    joined = hashlib.md5(b"".join(digests), usedforsecurity=False).hexdigest()
    etags = [f"{joined}-{len(digests)}"]
    return [*etags, digests[0].hex()] if len(digests) == 1 else etags


def _is_same(store: Store, key: str, path: Path, cancelled: Event) -> bool:
    """Read an object back, and compare it with the file."""
    start = 0
    for piece in _read_pieces(path, [], cancelled):
        if store.read(key, start, start + len(piece)) != piece:
            return False
        start += len(piece)
    return True
