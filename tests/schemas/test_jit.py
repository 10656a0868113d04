"""What kernels can do that numba alone cannot."""

import ctypes

import numpy as np

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
