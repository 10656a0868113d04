"""XXH3 of blocks without the interpreter lock, by machine code that is made when it is needed.

The xxhash library is called block by block, with the lock. This is made by LLVM alone, in 0.05 s:
to import numba, and load a kernel of it, takes ten times as long.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import binding, ir

from fieldslab.schemas.digest import BLOCK, XXH3, count_blocks
from fieldslab.schemas.mapping import get_pread
from fieldslab.schemas.xxh3 import emit_digest, emit_loop

_binding: Any = binding
_I32, _I64 = ir.IntType(32), ir.IntType(64)


def digest_blocks(data: np.ndarray) -> np.ndarray:
    """Digest uint8[size] block by block: uint64[count_blocks(size)]. The first call compiles."""
    whole = len(data) // BLOCK
    digests = np.empty(count_blocks(len(data)), np.uint64)
    digest_pieces(data, BLOCK, digests[:whole])
    if whole < len(digests):
        digests[whole] = XXH3.compute(data[whole * BLOCK :].data)
    return digests


def digest_file_blocks(fd: int, offset: int, buffer: np.ndarray, out: np.ndarray) -> int:
    """Read whole blocks of a file from `offset` on and digest them into `out`, uint64[blocks].

    `buffer`, uint8 of whole blocks, is read into again and again: small enough, it stays in the
    processor's cache. Returns how many blocks were digested: fewer where a read fails or is short.
    """
    step = len(buffer) // BLOCK
    _, read, _ = _compile_functions()
    return read(get_pread(), fd, offset, buffer.ctypes.data, step, out.ctypes.data, len(out))


def digest_pieces(data: np.ndarray, size: int, out: np.ndarray) -> None:
    """Digest uint8 data in pieces of `size` bytes, xxh3.SHORTEST or more, into uint64[pieces]."""
    assert len(data) >= size * len(out)
    call, _, _ = _compile_functions()
    call(data.ctypes.data, size, out.ctypes.data, len(out))


@cache
def _compile_functions() -> tuple[Callable[..., None], Callable[..., int], Any]:
    """Compile both functions of this module; return them and the owner of their code."""
    _binding.initialize_native_target()
    _binding.initialize_native_asmprinter()
    machine = _binding.Target.from_default_triple().create_target_machine(
        cpu=_binding.get_host_cpu_name(),
        features=_list_cpu_features(),
        opt=3,
        codemodel="jitdefault",
        jit=True,
    )
    owner = _binding.create_mcjit_compiler(_binding.parse_assembly(str(_build_module())), machine)
    owner.finalize_object()
    # Functions of CFUNCTYPE free the lock.
    digest_type = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)
    read_type = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 7)
    return (
        digest_type(owner.get_function_address("digest_pieces")),
        read_type(owner.get_function_address("digest_file_blocks")),
        owner,
    )


def _list_cpu_features() -> str:
    try:
        features: str = _binding.get_host_cpu_features().flatten()
    except RuntimeError:  # LLVM does not know how to ask here; it goes by the processor's name
        return ""
    return features


def _build_module() -> Any:
    module = ir.Module()
    digest_pieces = _emit_digest_pieces(module)
    _emit_digest_file_blocks(module, digest_pieces)
    return module


def _emit_digest_pieces(module: Any) -> Any:
    """Write `digest_pieces(address, size, out, count)`."""
    kind = ir.FunctionType(ir.VoidType(), [_I64] * 4)
    function = ir.Function(module, kind, "digest_pieces")
    address, size, out, count = function.args
    b = ir.IRBuilder(function.append_basic_block())

    def emit_step(place: Any, index: Any) -> Any:
        computed = emit_digest(b, b.add(address, b.mul(index, size)), size)
        b.store(computed, b.inttoptr(place, ir.PointerType(_I64)))
        return b.add(place, _I64(8))

    emit_loop(b, count, out, emit_step)
    b.ret_void()
    return function


def _emit_digest_file_blocks(module: Any, digest_pieces: Any) -> None:
    """Emit `digest_file_blocks(pread, fd, offset, buffer, step, out, blocks)`.

    It writes the digests of blocks of a file to `out`, and returns how many blocks were done. It
    reads `step` blocks at a time; stops at the first read that is not whole.
    """
    function = ir.Function(module, ir.FunctionType(_I64, [_I64] * 7), "digest_file_blocks")
    pread, fd, offset, buffer, most, out, blocks = function.args
    entry, head, read, digests, end = (
        function.append_basic_block(name) for name in ("entry", "head", "read", "digests", "end")
    )
    b = ir.IRBuilder(entry)
    call = b.inttoptr(pread, ir.PointerType(ir.FunctionType(_I64, [_I32, _I64, _I64, _I64])))
    b.branch(head)
    b.position_at_end(head)
    done = b.phi(_I64)
    done.add_incoming(_I64(0), entry)
    left = b.sub(blocks, done)
    b.cbranch(b.icmp_signed(">", left, _I64(0)), read, end)
    b.position_at_end(read)
    count = b.select(b.icmp_signed("<", left, most), left, most)
    size = b.mul(count, _I64(BLOCK))
    start = b.add(offset, b.mul(done, _I64(BLOCK)))
    got = b.call(call, [b.trunc(fd, _I32), buffer, size, start])
    b.cbranch(b.icmp_signed("==", got, size), digests, end)
    b.position_at_end(digests)
    b.call(digest_pieces, [buffer, _I64(BLOCK), b.add(out, b.mul(done, _I64(8))), count])
    done.add_incoming(b.add(done, count), digests)
    b.branch(head)
    b.position_at_end(end)
    b.ret(done)
