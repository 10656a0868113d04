"""How a mirror that is whole becomes a slab."""

import ctypes
import os
import secrets
from contextlib import suppress

from fieldslab.schemas.manifest import MANIFEST
from fieldslab.schemas.mirror.cache import CacheDirectory
from fieldslab.schemas.mirror.names import name_cache_errors
from fieldslab.schemas.mirror.room import MirrorFiles

_libc = ctypes.CDLL(None, use_errno=True)


def publish_manifest(cache: CacheDirectory, files: MirrorFiles) -> None:
    """Put the manifest into a mirror if it is whole; from then on it is a slab.

    Everything else reaches the disk before. Raises NoSpace, OutputDenied, OutputError.
    """
    directory, path = files.sparse.directory.fd, files.sparse.path / MANIFEST
    with suppress(FileNotFoundError):
        os.stat(MANIFEST, dir_fd=directory, follow_symlinks=False)
        return
    if not files.is_whole():
        return
    with name_cache_errors(path):
        unfinished = files.side / f"{MANIFEST}.{secrets.token_hex(4)}"
        unfinished.write_bytes((files.side / MANIFEST).read_bytes())
        if hasattr(_libc, "syncfs"):
            _libc.syncfs(directory)
        else:
            os.sync()
        with cache.lock_room():  # prevents evictions meanwhile
            if files.is_whole():
                os.rename(unfinished, MANIFEST, dst_dir_fd=directory)
                return
        unfinished.unlink()
