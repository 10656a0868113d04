"""Scratch folders: each holds a shard on its way to a store, and goes with its process."""

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fieldslab.packer.write.directories import lock_directory, remove_path, try_lock
from fieldslab.schemas.errors import Busy, OutputDenied, UsageError
from fieldslab.schemas.files import close_quietly
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.write_errors import name_write_errors

_PREFIX = "fieldslab-scratch-"


def find_scratch(scratch: object) -> Path:
    """Return the directory that scratch folders are made in.

    Raises UsageError where it is no path, OutputDenied where it is no directory to write in.
    """
    if not isinstance(scratch, str | os.PathLike | None):
        raise UsageError(f"{mark_option('scratch')} must be a path", found=repr(scratch))
    folder = Path(tempfile.gettempdir() if scratch is None else os.path.abspath(scratch))
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
        raise OutputDenied(
            f"{mark_option('scratch')} is no directory that can be written to", file=folder
        )
    return folder


@contextmanager
def open_scratch_folder(scratch: Path) -> Iterator[Path]:
    """Make a new empty folder for a `with` block. Those that killed processes left go first."""
    with name_write_errors(scratch):
        _remove_abandoned(scratch)
        folder, lock = _make_locked(scratch)
        folder.chmod(0o700)
    try:
        yield folder
    finally:
        with suppress(OSError):
            remove_path(folder)
        close_quietly(lock)


def _make_locked(scratch: Path) -> tuple[Path, int]:
    while True:
        folder = scratch / f"{_PREFIX}{secrets.token_hex(4)}"
        with suppress(Busy):  # another process takes it for abandoned just now
            return folder, lock_directory(folder)


def _remove_abandoned(scratch: Path) -> None:
    """Remove the folders that nobody holds: the lock of a process ends with it."""
    for folder in scratch.glob(f"{_PREFIX}????????"):
        with suppress(OSError), try_lock(folder) as free:
            if free:
                remove_path(folder)
