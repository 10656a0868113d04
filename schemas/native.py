"""Digests of blocks without the interpreter lock, by machine code that is made when it is needed.

The xxhash library holds the lock over a block of 64 KiB. This is made by LLVM alone, in 0.05 s:
to import numba, and load a kernel of it, takes ten times as long.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import binding, ir

from fieldslab.schemas.digest import BLOCK, count_blocks, digest
from fieldslab.schemas.xxh3 import write_digest, write_loop

_binding: Any = binding
_I64 = ir.IntType(64)


def digest_blocks(data: np.ndarray) -> np.ndarray:
    """Digest uint8[size] block by block: uint64[count_blocks(size)]. The first call compiles."""
    whole = len(data) // BLOCK
    digests = np.empty(count_blocks(len(data)), np.uint64)
    digest_each(data, BLOCK, digests[:whole])
    if whole < len(digests):
        digests[whole] = digest(data[whole * BLOCK :].data)
    return digests


def digest_each(data: np.ndarray, size: int, out: np.ndarray) -> None:
    """Digest uint8 data in pieces of `size` bytes, xxh3.SHORTEST or more, into uint64[pieces]."""
    assert len(data) >= size * len(out)
    call, _ = _compiled()
    call(data.ctypes.data, size, out.ctypes.data, len(out))


@cache
def _compiled() -> tuple[Callable[[int, int, int, int], None], Any]:
    """The function (address, size, out, count), and the owner of its code."""
    _binding.initialize_native_target()
    _binding.initialize_native_asmprinter()
    machine = _binding.Target.from_default_triple().create_target_machine(
        cpu=_binding.get_host_cpu_name(),
        features=_features(),
        opt=3,
        codemodel="jitdefault",
        jit=True,
    )
    owner = _binding.create_mcjit_compiler(_binding.parse_assembly(str(_module())), machine)
    owner.finalize_object()
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)  # which frees the lock
    return function(owner.get_function_address("digest_each")), owner


def _features() -> str:
    try:
        features: str = _binding.get_host_cpu_features().flatten()
    except RuntimeError:  # LLVM does not know how to ask here; it goes by the processor's name
        return ""
    return features


def _module() -> Any:
    module = ir.Module()
    kind = ir.FunctionType(ir.VoidType(), [_I64] * 4)
    function = ir.Function(module, kind, "digest_each")
    address, size, out, count = function.args
    b = ir.IRBuilder(function.append_basic_block())

    def step(place: Any, index: Any) -> Any:
        computed = write_digest(b, b.add(address, b.mul(index, size)), size)
        b.store(computed, b.inttoptr(place, ir.PointerType(_I64)))
        return b.add(place, _I64(8))

    write_loop(b, count, out, step)
    b.ret_void()
    return module
