"""A slab on disk: its manifest and its digest tables, checked as they are read."""

import errno
import os
import re
import stat
from pathlib import Path

import numpy as np

from fieldslab.schemas import layout
from fieldslab.schemas.arrays import map_array
from fieldslab.schemas.digest import root
from fieldslab.schemas.errors import (
    DamagedArray,
    DamagedManifest,
    IncompleteSlab,
    NotASlab,
    UsageError,
)
from fieldslab.schemas.manifest import MANIFEST, MAX_BYTES, Manifest, decode

JOURNAL = "journal.jsonl"

_RESTORE = "Restore the file from a copy, or pack the slab again."


_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_SHORTENED_URL = re.compile(r"(?!file:)([A-Za-z][A-Za-z0-9+.-]+):/(?!/)")


def is_url(path: str | Path) -> bool:
    """Whether a path names a place elsewhere, as `s3://bucket/x` does; `C:/x` does not."""
    return _URL.match(str(path)) is not None


def url_text(url: object) -> str:
    """A URL as it was written, also where it became a `Path`, which keeps one slash of two."""
    text = str(url)
    scheme = _SHORTENED_URL.match(text)
    return text if scheme is None else f"{scheme[1]}://{text[scheme.end() :]}"


def slab_path(given: object) -> Path:
    """The path of a slab to read, from what a caller gives.

    Raises UsageError where that is no path, NotASlab where it is a URL.
    """
    if not isinstance(given, str | os.PathLike) or not os.fspath(given):
        raise UsageError(
            "a slab is named by its path",
            expected='a path, such as "train.slab"',
            found=repr(given),
        )
    if is_url(os.fspath(given)) and not os.path.exists(given):
        raise NotASlab(
            "remote slabs are not supported yet: slabs are read from directories, not from URLs",
            file=url_text(given),
            hint="Copy the slab to a directory of this machine, or mount what holds it.",
        )
    return Path(given)


def partial_path(slab: Path) -> Path:
    """Where a slab is built before it is complete: beside it, on the same file system."""
    return slab.with_name(slab.name + ".partial")


def load_manifest(slab: str | Path) -> Manifest:
    """Read and validate the manifest of a slab.

    Raises
    ------
    NotASlab, IncompleteSlab, UnsupportedVersion, DamagedManifest
        As their names say; the message says what to do.
    """
    slab = slab_path(slab)
    path = slab / MANIFEST
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            raise _absent(slab) from error
        if error.errno == errno.ELOOP:
            raise DamagedManifest("links are not followed", file=path, hint=_RESTORE) from error
        raise NotASlab(f"cannot be read: {error.strerror}", file=path) from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise DamagedManifest("is not a regular file", file=path, hint=_RESTORE)
        with open(fd, "rb", closefd=False) as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise NotASlab(f"cannot be read: {error.strerror}", file=path) from error
    finally:
        os.close(fd)
    return decode(data, path)


def load_digests(folder: Path, files: list[layout.ArrayFile], expected_root: str) -> np.ndarray:
    """Map a folder's `digests.npy` (uint64[blocks]) and check it against the manifest's root.

    Raises DamagedArray where the file or its root is wrong.
    """
    path = folder / layout.DIGESTS
    if folder.is_symlink():
        raise DamagedArray("links are not followed", file=folder, hint=_RESTORE)
    digests = map_array(path, np.dtype("<u8"), (layout.total_blocks(files),))
    found = root(digests)
    if found != expected_root:
        raise DamagedArray(
            "digest table is damaged",
            file=path,
            expected=expected_root,
            found=found,
            hint=_RESTORE,
        )
    return digests


def _absent(slab: Path) -> NotASlab:
    """Which error a path without a manifest deserves."""
    if slab.is_dir():
        if (slab / JOURNAL).exists() or (slab / layout.shard_name(0)).is_dir():
            return IncompleteSlab(
                "no manifest.json: the slab was not finished, or not copied whole",
                file=slab,
                hint="Run the `fieldslab pack` command again, or copy the directory again.",
            )
        return NotASlab(
            "is a directory without manifest.json",
            file=slab,
            hint="Give the directory that `fieldslab pack -o` wrote.",
        )
    if slab.exists():
        return NotASlab(
            "is a file, not a slab directory",
            file=slab,
            hint="Give the directory that `fieldslab pack -o` wrote.",
        )
    if partial_path(slab).is_dir():
        return IncompleteSlab(
            "packing was cut off",
            file=slab,
            hint=(
                f"Run the same `fieldslab pack` command again: it goes on from "
                f"{partial_path(slab).name}."
            ),
        )
    return NotASlab("does not exist", file=slab, hint="Check the path, or pack the slab first.")
