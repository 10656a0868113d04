"""What kernels can do that numba alone cannot."""

import ctypes
import os
import pty
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fieldslab.schemas.jit import foreign, kernel, load_u8

_LIBRARY = ctypes.CDLL(None)
_ldexp = foreign("float64(float64, int32)")
_strlen = foreign("int64(int64)")
_div = foreign("int64(int32, int32)")


def address_of(name: str) -> int:
    """Where a function of the C library is."""
    return ctypes.cast(getattr(_LIBRARY, name), ctypes.c_void_p).value or 0


@kernel("float64(int64, float64, int64)")
def power(function: int, value: float, exponent: int) -> float:
    """Calls ldexp; the exponent becomes an int on the way."""
    return _ldexp(function, (value, exponent))


@kernel("int64(int64, int64)")
def length(function: int, text: int) -> int:
    """Calls strlen."""
    return _strlen(function, (text,))


@kernel("int64(int64, int64, int64)")
def divided(function: int, one: int, other: int) -> int:
    """Calls div, which returns a struct of two ints."""
    return _div(function, (one, other))


def test_functions_are_called_by_address() -> None:
    """Arguments are cast to what the signature says; small structs are whole registers."""
    text = np.frombuffer(b"as long as this\0", np.uint8)
    assert power(address_of("ldexp"), 3.0, -2) == 0.75
    assert length(address_of("strlen"), text.ctypes.data) == 15
    both = divided(address_of("div"), 17, 5)
    assert (both & 0xFFFFFFFF, both >> 32) == (3, 2)


@kernel("int64(int64)")
def byte(address: int) -> int:
    """One byte."""
    return load_u8(address)


def test_bytes_have_no_sign() -> None:
    """A byte is 0..255."""
    values = np.array([0, 127, 128, 255], np.uint8)
    assert [byte(values.ctypes.data + at) for at in range(4)] == [0, 127, 128, 255]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_is_told_of_compiling(terminal: bool, tmp_path: Path) -> None:
    """Who waits for kernels learns why, once; a pipe gets nothing, nor does a later start."""
    code = """if True:
        from fieldslab.schemas import jit
        jit.PATIENCE = 0.01
        for number in range(2):
            jit.kernel("int64(int64)")(lambda x: x + 1)
    """
    ours, theirs = pty.openpty() if terminal else os.pipe()
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], stderr=theirs, env=environment, check=True)
    os.write(theirs, b"end")
    said = b""
    while not said.endswith(b"end"):
        said += os.read(ours, 4096)
    os.close(ours)
    os.close(theirs)
    assert said.count(b"compiling for this processor") == terminal
    assert terminal or said == b"end"
