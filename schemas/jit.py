"""How kernels are compiled: the one decorator, and the intrinsics that touch memory by address.

A kernel has exactly one signature, compiled when its module is imported and kept in numba's
cache. It runs without the interpreter lock and on one thread: threads are made in Python.
"""

import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils, sigutils
from numba.extending import intrinsic

_Function = TypeVar("_Function", bound=Callable[..., Any])

_njit: Any = numba.njit
_intrinsic: Any = intrinsic
_unpack_tuple: Any = cgutils.unpack_tuple
_normalize_signature: Any = sigutils.normalize_signature
_OPTIONS = {"nogil": True, "boundscheck": False, "error_model": "numpy", "no_cfunc_wrapper": True}
PATIENCE = 1.0
"""Seconds of compiling after which a terminal is told of it: for images it takes twenty."""
_waited = 0.0
_POINTER = ir.PointerType(ir.IntType(8))
_I16, _I32, _I64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)


def kernel(signature: str) -> Callable[[_Function], _Function]:
    """Compile a function for one signature, in numba's words, as it is defined."""

    def compiled(function: _Function) -> _Function:
        started = time.perf_counter()
        try:
            result: _Function = _njit(signature, cache=True, **_OPTIONS)(function)
        except RuntimeError:  # no folder that numba could write its cache to
            result = _njit(signature, cache=False, **_OPTIONS)(function)
        _tell(time.perf_counter() - started)
        return result

    return compiled


def _tell(seconds: float) -> None:
    """Say once, and on a terminal alone, why a first batch takes so long."""
    global _waited
    before, _waited = _waited, _waited + seconds
    if before < PATIENCE <= _waited and sys.stderr.isatty():
        sys.stderr.write("fieldslab: compiling for this processor; it is kept in numba's cache\n")


def inlined(function: _Function) -> _Function:
    """Mark a part of kernels: it becomes part of each kernel that calls it."""
    result: _Function = _njit(function, forceinline=True, **_OPTIONS)
    return result


def _memcpy(_: Any, target: Any, source: Any, size: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        copy = builder.module.declare_intrinsic("llvm.memcpy", [_POINTER, _POINTER, _I64])
        to, start, count = arguments
        pointers = builder.inttoptr(to, _POINTER), builder.inttoptr(start, _POINTER)
        builder.call(copy, [*pointers, count, ir.Constant(ir.IntType(1), 0)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), build


def _prefetch(_: Any, address: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        shape = ir.FunctionType(ir.VoidType(), [_POINTER, _I32, _I32, _I32])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [_POINTER], shape)
        read, keep, data = _I32(0), _I32(3), _I32(1)
        builder.call(fetch, [builder.inttoptr(arguments[0], _POINTER), read, keep, data])
        return context.get_dummy_value()

    return types.void(types.int64), build


def _load_u64(_: Any, address: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], ir.PointerType(_I64)), align=8)

    return types.uint64(types.int64), build


def _load_u8(_: Any, address: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.zext(builder.load(builder.inttoptr(arguments[0], _POINTER)), _I64)

    return types.int64(types.int64), build


def _load_u16(_: Any, address: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.PointerType(_I16))
        return builder.zext(builder.load(pointer, align=2), _I64)

    return types.int64(types.int64), build


def _store_u16(_: Any, address: Any, number: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.PointerType(_I16))
        builder.store(builder.trunc(arguments[1], _I16), pointer, align=2)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), build


def _load_big_u64(_: Any, address: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bswap(
            builder.load(builder.inttoptr(arguments[0], ir.PointerType(_I64)), align=1)
        )

    return types.uint64(types.int64), build


def foreign(signature: str) -> Callable[[int, tuple[Any, ...]], Any]:
    """A way to call C functions of this signature from kernels, by their address.

    Parameters
    ----------
    signature
        In numba's words, with int64 for pointers and for structs of two ints, the first of them
        in the low half; one of four ints is two int64 (as x86-64 and arm64 pass them).

    Returns
    -------
    call(address, arguments): an address of no such function crashes the process.
    """
    parameters, result = _normalize_signature(signature)

    def typed(_: Any, address: Any, arguments: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            shape = [context.get_value_type(parameter) for parameter in parameters]
            function = ir.FunctionType(context.get_value_type(result), shape)
            target = builder.inttoptr(values[0], ir.PointerType(function))
            given = [
                context.cast(builder, value, found, wanted)
                for value, found, wanted in zip(
                    _unpack_tuple(builder, values[1]), arguments.types, parameters, strict=True
                )
            ]
            return builder.call(target, given)

        return result(types.int64, arguments), build

    called: Callable[[int, tuple[Any, ...]], Any] = _intrinsic(typed)
    return called


memcpy: Callable[[int, int, int], None] = _intrinsic(_memcpy)
"""memcpy(target, source, size): addresses and bytes, as int64; a constant size is inlined."""
prefetch: Callable[[int], None] = _intrinsic(_prefetch)
"""prefetch(address): ask for the cache line there; any address is safe."""
load_u64: Callable[[int], Any] = _intrinsic(_load_u64)
"""load_u64(address) -> uint64: `address` is a multiple of 8."""
load_u8: Callable[[int], int] = _intrinsic(_load_u8)
"""load_u8(address) -> int64 in 0..255."""
load_u16: Callable[[int], int] = _intrinsic(_load_u16)
"""load_u16(address) -> int64 in 0..65535: `address` is a multiple of 2."""
store_u16: Callable[[int, int], None] = _intrinsic(_store_u16)
"""store_u16(address, number): the low 16 bits of an int64; `address` is a multiple of 2."""
load_big_u64: Callable[[int], Any] = _intrinsic(_load_big_u64)
"""load_big_u64(address) -> uint64: eight bytes at any address, the first the highest."""
