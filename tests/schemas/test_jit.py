"""What kernels can do that numba alone cannot."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.jit import (
    clear,
    foreign,
    kernel,
    load_u8,
    record_maker,
    record_type,
    tuple_type,
    types,
    zero_record,
)
from fieldslab.schemas.numbaimport import numba

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


TRIPLE = np.dtype([("total", np.int64), ("parts", np.int64, 3)], align=True)
_new_triple = record_maker(TRIPLE)


class Pair(NamedTuple):
    """An array and a number."""

    values: Any
    factor: Any


@kernel(types.void(record_type(TRIPLE), types.int64))
def put_parts(triple: Any, first: int) -> None:
    """Fill in three parts and their sum."""
    for i in range(3):
        triple.parts[i] = first + i
        triple.total += first + i


@kernel(types.int64(types.int64))
def add_records(count: int) -> int:
    """Sum of a record that is cleared and filled again, and of one that stays as it was made."""
    triple, untouched = _new_triple(), _new_triple()
    for first in range(count):
        clear(triple)
        put_parts(triple, first)
    return triple.total + triple.parts[2] + untouched.total + untouched.parts[0]


@kernel(types.int64(tuple_type(Pair, types.int64[::1], types.int64)))
def add_scaled(pair: Pair) -> int:
    """The sum of the values, times the factor."""
    return pair.values.sum() * pair.factor


def test_kernels_share_records() -> None:
    """What one kernel writes, its caller sees, in Python too; records of kernels begin as 0."""
    triple = zero_record(TRIPLE)
    put_parts(triple, 5)
    assert (triple.total, triple.parts.tolist()) == (18, [5, 6, 7])
    assert add_records(1) == 0 + 1 + 2 + 2
    assert add_records(4) == 3 + 4 + 5 + 5


def test_kernels_take_named_tuples() -> None:
    """With arrays in them, of just the types that the signature says."""
    assert add_scaled(Pair(np.arange(4), 3)) == 18
    with pytest.raises(TypeError):
        add_scaled(Pair(np.arange(4.0), 3))


_COMPILE = """if True:
    import logging, sys
    if len(sys.argv) > 1:
        logging.basicConfig(filename=sys.argv[1])
    from fieldslab.schemas import jit
    for signature in ("int64(int64)", "float64(float64)"):
        jit.kernel(signature)(lambda x: x + 1)
"""


def test_compiling_is_announced_once(tmp_path: Path) -> None:
    """Whoever waits for kernels learns why, in a log as well; once for all processes of a job."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    shell = 'for number in 1 2; do "$0" -c "$1" & done; wait'
    command = ["sh", "-c", shell, sys.executable, _COMPILE]
    log = tmp_path / "stderr.log"
    with log.open("w") as file:
        subprocess.run(command, stderr=file, env=environment, start_new_session=True, check=True)
    assert log.read_text().count("compiling for this processor") == 1
    assert str(tmp_path) in log.read_text()


def test_compiling_is_announced_where_programs_log(tmp_path: Path) -> None:
    """A program that logs to a file finds it there, and stderr stays as it was."""
    environment = os.environ | {"NUMBA_CACHE_DIR": "", "XDG_CACHE_HOME": "", "HOME": "."}
    log = tmp_path / "program.log"
    command = [sys.executable, "-c", _COMPILE, str(log)]
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert log.read_text().count("compiling for this processor") == 1
    assert "set NUMBA_CACHE_DIR" in log.read_text()
    assert done.stderr == b""


def test_kernels_need_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where numba is told not to compile, the error names the variable that says so."""
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    with pytest.raises(UsageError, match="NUMBA_DISABLE_JIT"):
        kernel("int64(int64)")(lambda value: value)
