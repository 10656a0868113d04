"""Files that are there whole or not at all, also after a power cut."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from io import BufferedRandom
from pathlib import Path

from fieldslab.schemas.files import sync_directory
from fieldslab.schemas.system import HAS_LOCKS, lock_exclusive, try_lock_exclusive

_TOKEN_BYTES = 4


@contextmanager
def replace_file(path: Path) -> Iterator[BufferedRandom]:
    """Open a file beside `path` for a `with` block, and put it in its place when the block ends.

    What was written is then on the disk, and so is its name. Where the block raises, `path` is as
    it was. Files that killed processes left beside it are removed. Raises OSError.
    """
    _remove_stale_drafts(path)
    file, draft = _open_draft(path)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if HAS_LOCKS:
                draft.replace(path)  # while it is locked
        if not HAS_LOCKS:
            draft.replace(path)  # Windows renames no open file
    except BaseException:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def _open_draft(path: Path) -> tuple[BufferedRandom, Path]:
    """Create a file beside `path`, locked where there are locks, so that it is not stale."""
    while True:
        draft = path.with_name(f".{path.name}.{secrets.token_hex(_TOKEN_BYTES)}.new")
        file = open(draft, "xb+")  # noqa: SIM115
        with suppress(OSError):
            lock_exclusive(file.fileno())
        if draft.exists():
            return file, draft
        file.close()  # another process took it for a stale one before it was locked


def _remove_stale_drafts(path: Path) -> None:
    """Remove drafts that no process holds; none where there are no locks."""
    token = "[0-9a-f]" * (2 * _TOKEN_BYTES)
    for draft in path.parent.glob(f".{escape(path.name)}.{token}.new"):
        with suppress(OSError), open(draft, "rb") as file:
            if try_lock_exclusive(file.fileno()):
                draft.unlink()
