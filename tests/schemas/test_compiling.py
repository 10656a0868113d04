"""What the object files of kernels may and may not be."""

import importlib.util
import platform
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.forking import start_python

from fieldslab.schemas import kernelcache
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


_COMPILE = """
import sys
from fieldslab.reader.images.boxes import _draw_random_boxes  # makes an array
sys.stdout.buffer.write(_draw_random_boxes.compile("boxes"))
"""


@pytest.mark.parametrize(
    ("target", "head"),
    [
        ("generic aarch64-unknown-linux-gnu", b"\x7fELF\x02\x01\x01" + bytes(9) + b"\1\0\xb7\0"),
        ("apple-m1 arm64-apple-darwin", b"\xcf\xfa\xed\xfe\x0c\0\0\1"),
        ("x86-64-v3 x86_64-unknown-linux-gnu", b"\x7fELF\x02\x01\x01" + bytes(9) + b"\1\0\x3e\0"),
    ],
)
def test_other_machines_are_compiled_for(target: str, head: bytes) -> None:
    """Wheels for every machine can be built on any: the object file is of its kind."""
    program = start_python("-c", _COMPILE, FIELDSLAB_TARGET=target)
    program.finish()
    assert program.output.read_bytes().startswith(head)


def test_wheels_bring_levels_that_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders of machine code in wheels are named as the processor that reads them is."""
    spec = importlib.util.spec_from_file_location(
        "hatch_build", Path(__file__).parents[2] / "hatch_build.py"
    )
    assert spec is not None
    assert spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    for machine, (_, _, levels) in build.MACHINES.items():
        system, _, processor = machine.partition("-")
        if processor == "x86_64":
            assert set(levels) == {f"{system}-{level}" for level in kernelcache.LEVELS}
        else:
            monkeypatch.setattr(sys, "platform", system)
            monkeypatch.setattr(platform, "machine", lambda processor=processor: processor)
            assert list(levels) == kernelcache.find_processor_levels.__wrapped__()
