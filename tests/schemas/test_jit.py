"""What kernels can do that numba alone cannot."""

import ctypes
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.forking import start_python

from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.jit import (
    _get_compiler,
    clear,
    kernel,
    load_u8,
    make_foreign_call,
    make_record_maker,
    make_record_type,
    make_tuple_type,
    make_zero_record,
    types,
)
from fieldslab.schemas.numbaimport import numba

_LIBRARY = ctypes.CDLL(None)
_ldexp = make_foreign_call("float64(float64, int32)")
_strlen = make_foreign_call("int64(int64)")
_div = make_foreign_call("int64(int32, int32)")


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
def divided(function: int, dividend: int, divisor: int) -> int:
    """Calls div, which returns a struct of two ints."""
    return _div(function, (dividend, divisor))


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
    assert [byte(values.ctypes.data + index) for index in range(4)] == [0, 127, 128, 255]


TRIPLE = np.dtype([("total", np.int64), ("parts", np.int64, 3)], align=True)
_new_triple = make_record_maker(TRIPLE)


class Pair(NamedTuple):
    """An array and a number."""

    values: Any
    factor: Any


@kernel(types.void(make_record_type(TRIPLE), types.int64))
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


@kernel(types.int64(make_tuple_type(Pair, types.int64[::1], types.int64)))
def add_scaled(pair: Pair) -> int:
    """The sum of the values, times the factor."""
    return pair.values.sum() * pair.factor


def test_kernels_share_records() -> None:
    """What one kernel writes, its caller sees, in Python too; records of kernels begin as 0."""
    triple = make_zero_record(TRIPLE)
    put_parts(triple, 5)
    assert (triple.total, triple.parts.tolist()) == (18, [5, 6, 7])
    assert add_records(1) == 0 + 1 + 2 + 2
    assert add_records(4) == 3 + 4 + 5 + 5


def test_kernels_take_named_tuples() -> None:
    """With arrays in them, of just the types that the signature says."""
    assert add_scaled(Pair(np.arange(4), 3)) == 18
    with pytest.raises(TypeError):
        add_scaled(Pair(np.arange(4.0), 3))


@kernel(types.void(types.int64[::1]))
def negate(values: Any) -> None:
    """Negate numbers in place."""
    for i in range(len(values)):
        values[i] = -values[i]


@kernel(types.Tuple((types.boolean, types.float64, types.uint64))(types.int32[:, ::1]))
def describe(table: Any) -> Any:
    """Whether a table has rows, its mean, and its last number."""
    total = 0.0
    for i in range(len(table)):
        for j in range(table.shape[1]):
            total += table[i, j]
    return len(table) > 0, total / table.size, np.uint64(table[-1, -1])


def test_arguments_are_of_the_types_that_the_signature_says() -> None:
    """Others are refused, and nothing is written: dtype, rank, order, number, read-only arrays."""
    values = np.arange(6)
    negate(values)
    assert values.tolist() == [0, -1, -2, -3, -4, -5]
    read_only = np.arange(6)
    read_only.setflags(write=False)
    wrong = values.astype(np.float64), values.astype(">i8"), values.astype(np.uint64)
    for value in (*wrong, values.reshape(2, 3), values[::2], read_only, 3, None):
        with pytest.raises((TypeError, ValueError)):
            negate(value)
    with pytest.raises(TypeError):
        negate()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        byte(1.5)  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        byte(2**63)
    assert read_only.tolist() == [0, 1, 2, 3, 4, 5]


def test_arguments_may_have_any_name_of_their_type() -> None:
    """int64 is int64, however its buffer says so: as "l", "q", or "<q" with the order of bytes."""
    letters = set()
    for dtype in (np.dtype("l"), np.dtype("q"), np.dtype("i8").newbyteorder("<")):
        values = np.arange(3, dtype=dtype)
        letters.add(values.data.format)
        negate(values)
        assert values.tolist() == [0, -1, -2]
    assert letters == {"l", "q", "<q"}


def test_kernels_return_tuples_and_nothing() -> None:
    """Numbers are Python's."""
    table = np.array([[1, 2], [3, 4]], np.int32)
    assert describe(table) == (True, 2.5, 4)
    assert negate(np.arange(2)) is None


@kernel("int64(int64)")
def halve(value: int) -> int:
    """Half of a signed number."""
    return value >> 1


@kernel("int64(int32, uint8)")
def halve_both(first: int, second: int) -> int:
    """Calls a kernel with numbers of other types, once each."""
    unsigned: Any = np.uint32(first)
    return halve(unsigned) + halve(second)


def test_kernels_cast_what_other_kernels_pass() -> None:
    """A kernel has one signature, whoever calls it, and can still be called by Python."""
    assert halve_both(-2, 200) == (2**32 - 2) // 2 + 100
    assert halve(-4) == -2
    assert len(halve.dispatcher.overloads) == 1  # type: ignore[attr-defined]


@kernel("int64(int64, int64)")
def add_through_an_array(count: int, step: int) -> int:
    """Sum of 0, step, ... in memory that the kernel asks for."""
    numbers = np.empty(count, np.int64)
    for i in range(count):
        numbers[i] = i * step
    return numbers.sum()


def test_arrays_of_kernels_live_until_they_return() -> None:
    """Memory comes from Python's heap and goes back; where there is none, MemoryError."""
    assert add_through_an_array(3, 2) == 6
    tracemalloc.start()
    assert [add_through_an_array(1000, step) for step in range(50)][-1] == 999 * 1000 // 2 * 49
    assert tracemalloc.get_traced_memory()[0] < 50_000
    tracemalloc.stop()
    with pytest.raises(MemoryError):
        add_through_an_array(2**58, 1)


def test_machine_code_that_is_kept_needs_no_numba(tmp_path: Path) -> None:
    """Importing numba takes longer than everything else of a first batch."""
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from loop import double
print(double(4), "numba" in sys.modules)
"""
    (tmp_path / "loop.py").write_text(
        "from fieldslab.schemas.jit import kernel\n"
        '@kernel("int64(int64)")\n'
        "def double(value):\n    return 2 * value\n"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", code]
    printed = [subprocess.check_output(command, env=environment, text=True) for _ in range(2)]
    assert printed == ["8 True\n", "8 False\n"]


_COMPILE = """if True:
    import logging, sys
    if len(sys.argv) > 1:
        logging.basicConfig(filename=sys.argv[1])
    from fieldslab.schemas import jit
    for signature in ("int64(int64)", "float64(float64)"):
        jit.kernel(signature)(lambda x: x + 1)(1)
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
    environment = {"NUMBA_CACHE_DIR": "", "XDG_CACHE_HOME": "", "HOME": "."}
    log = tmp_path / "program.log"
    program = start_python("-c", _COMPILE, log, **environment)
    program.finish()
    assert log.read_text().count("compiling for this processor") == 1
    assert "set NUMBA_CACHE_DIR" in log.read_text()
    assert "fieldslab" not in program.errors.read_text()


def test_kernels_need_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where numba is told not to compile, the error names the variable that says so."""
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    increased: Any = kernel("int64(int64)")(lambda value: value + 1)
    _get_compiler.cache_clear()
    with pytest.raises(UsageError, match="NUMBA_DISABLE_JIT"):
        increased(1)
