"""Which file systems lie behind a network."""

import ctypes
import os
import sys
from functools import cache
from typing import Any

from fieldslab.schemas.system import load_libc

_NAMES = {
    0x6969: "NFS",
    0x517B: "SMB",
    0xFE534D42: "SMB",
    0xFF534D42: "SMB",
    0x65735546: "FUSE",
    0x01021997: "9p",
    0x0BD00BD0: "Lustre",
    0x47504653: "GPFS",
    0x00C36400: "Ceph",
    0x5346414F: "AFS",
    0x19830326: "BeeGFS",
    0xAAD7AAEA: "PanFS",
}
"""By the number that Linux has for a type. What FUSE holds may be local, but is as slow."""
_STATFS_BYTES = 256


def find_network_file_system(path: str) -> str | None:
    """Return the type of the file system that a path is on, if it lies behind a network.

    None for others, and where the system does not tell.
    """
    libc = _load_libc()
    if libc is None or not sys.platform.startswith("linux"):
        return None
    answer = ctypes.create_string_buffer(_STATFS_BYTES)
    if libc.statfs(os.fsencode(path), answer) != 0:
        return None
    return name_file_system(int.from_bytes(answer.raw[:8], sys.byteorder))


@cache
def _load_libc() -> Any:
    return load_libc()


def name_file_system(number: int) -> str | None:
    """Return the name of a type of file systems behind a network, by its number in Linux."""
    return _NAMES.get(number & 0xFFFFFFFF)
