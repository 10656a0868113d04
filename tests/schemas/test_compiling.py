"""What the object files of kernels may and may not be."""

import platform
import struct
from collections.abc import Iterator

import numpy as np
import pytest

from fieldslab.schemas.jit import Kernel, kernel

_SECTION = struct.Struct("<IIQQQQIIQQ")
_RELOCATION = struct.Struct("<QQq")
_RELA = 4
_TABLE = np.arange(100.0)
_ANYWHERE = {1, 24}
"""R_X86_64_64 and R_X86_64_PC64; most others reach 2 GiB."""


@kernel("float64(int64)")
def look_up(index: int) -> float:
    """Read a constant array, and call the C library."""
    return np.sin(_TABLE[index])


def read_relocations(code: bytes) -> Iterator[int]:
    """The type of each relocation of an ELF file for x86-64."""
    (table,) = struct.unpack_from("<Q", code, 40)
    size, count = struct.unpack_from("<HH", code, 58)
    for index in range(count):
        _, kind, _, _, start, length, *_ = _SECTION.unpack_from(code, table + index * size)
        if kind == _RELA:
            for _, info, _ in _RELOCATION.iter_unpack(code[start : start + length]):
                yield info & 0xFFFFFFFF


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="relocations of x86-64")
def test_machine_code_may_lie_anywhere() -> None:
    """Code reaches its constants and the C library at any distance: programs reserve terabytes.

    LLVM would end the process that loads code and constants further apart than code can reach.
    """
    assert isinstance(look_up, Kernel)
    relocations = set(read_relocations(look_up.compile("anywhere")))
    assert relocations
    assert relocations <= _ANYWHERE
