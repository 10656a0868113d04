"""XXH3-64 in the instructions of LLVM: digests of memory by address, for kernels.

Written from the specification of xxHash, for seed 0, the default secret and more than 240 bytes
(https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md, "for large inputs"); shorter inputs
have other algorithms and stay with the library. The eight accumulators are one of LLVM's vectors,
which every processor has in one width or another: numba does not reliably turn loops into them.
Fetching ahead, 256 bytes to 4 KiB, made it slower on data in memory and no faster in caches.

"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir

SHORTEST = 241
"""Bytes of the shortest input for `emit_digest`."""

_STRIPE = 64
_ROUND = 16 * _STRIPE
_PRIME32_1, _PRIME32_2, _PRIME32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_PRIME64_1, _PRIME64_2 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F
_PRIME64_3, _PRIME64_4 = 0x165667B19E3779F9, 0x85EBCA77C2B2AE63
_PRIME64_5, _PRIME_MX1 = 0x27D4EB2F165667C5, 0x165667919E3779F9
_START = [
    _PRIME32_3,
    _PRIME64_1,
    _PRIME64_2,
    _PRIME64_3,
    _PRIME64_4,
    _PRIME32_2,
    _PRIME64_5,
    _PRIME32_1,
]
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_I8, _I32, _I64, _I128 = (ir.IntType(bits) for bits in (8, 32, 64, 128))
_LANES = ir.VectorType(_I64, 8)
_NEIGHBOURS = ir.Constant(ir.VectorType(_I32, 8), [1, 0, 3, 2, 5, 4, 7, 6])


def emit_digest(b: Any, address: Any, size: Any) -> Any:
    """Write the instructions that digest `size` bytes, SHORTEST or more, at any address.

    `b` is llvmlite's builder; `address`, `size` and the digest are its values, of 64 bits each.
    """
    last = b.sub(size, _I64(1))
    rounds = b.udiv(last, _I64(_ROUND))
    stripes = b.udiv(b.urem(last, _I64(_ROUND)), _I64(_STRIPE))
    table = _emit_secret_table(b)

    def emit_stripes(sums: Any, begin: Any, count: Any) -> Any:
        def emit_stripe(sums: Any, index: Any) -> Any:
            data = _emit_load(b, b.add(begin, b.mul(index, _I64(_STRIPE))))
            return _emit_accumulate(
                b, sums, data, _emit_load(b, b.add(table, b.mul(index, _I64(8))))
            )

        return emit_loop(b, count, sums, emit_stripe)

    def emit_round(sums: Any, index: Any) -> Any:
        begin = b.add(address, b.mul(index, _I64(_ROUND)))
        return _emit_scramble(b, emit_stripes(sums, begin, _I64(_ROUND // _STRIPE)))

    sums = emit_loop(b, rounds, ir.Constant(_LANES, _START), emit_round)
    sums = emit_stripes(sums, b.add(address, b.mul(rounds, _I64(_ROUND))), stripes)
    ending = _emit_load(b, b.add(address, b.sub(size, _I64(_STRIPE))))
    sums = _emit_accumulate(b, sums, ending, _make_secret_vector(len(_SECRET) - 71))
    return _emit_merge(b, sums, b.mul(size, _I64(_PRIME64_1)))


def _emit_accumulate(b: Any, sums: Any, data: Any, secret: Any) -> Any:
    value = b.xor(data, secret)
    product = b.mul(
        b.and_(value, _make_constant_vector(0xFFFFFFFF)), b.lshr(value, _make_constant_vector(32))
    )
    neighbours = b.shuffle_vector(data, data, _NEIGHBOURS)
    return b.add(sums, b.add(product, neighbours))


def _emit_scramble(b: Any, sums: Any) -> Any:
    mixed = b.xor(
        b.xor(sums, b.lshr(sums, _make_constant_vector(47))), _make_secret_vector(len(_SECRET) - 64)
    )
    return b.mul(mixed, _make_constant_vector(_PRIME32_1))


def _emit_merge(b: Any, sums: Any, result: Any) -> Any:
    mixed = b.xor(sums, _make_secret_vector(11))
    lanes = [b.zext(b.extract_element(mixed, _I32(lane)), _I128) for lane in range(8)]
    for left, right in zip(lanes[::2], lanes[1::2], strict=True):
        product = b.mul(left, right)
        high = b.trunc(b.lshr(product, _I128(64)), _I64)
        result = b.add(result, b.xor(b.trunc(product, _I64), high))
    result = b.mul(b.xor(result, b.lshr(result, _I64(37))), _I64(_PRIME_MX1))
    return b.xor(result, b.lshr(result, _I64(32)))


def emit_loop(b: Any, count: Any, state: Any, step: Callable[[Any, Any], Any]) -> Any:
    """Write a loop: `state` after `count` steps, each of which makes a new one of it and a number.

    The numbers go from 0 to `count` - 1, of 64 bits.
    """
    before = b.block
    head, body, done = (b.append_basic_block(name) for name in ("head", "body", "done"))
    b.branch(head)
    b.position_at_end(head)
    index, current = b.phi(_I64), b.phi(state.type)
    index.add_incoming(_I64(0), before)
    current.add_incoming(state, before)
    b.cbranch(b.icmp_unsigned("<", index, count), body, done)
    b.position_at_end(body)
    current.add_incoming(step(current, index), b.block)
    index.add_incoming(b.add(index, _I64(1)), b.block)
    b.branch(head)
    b.position_at_end(done)
    return current


def _emit_secret_table(b: Any) -> Any:
    """Emit the secret as a constant, and return its address."""
    kind = ir.ArrayType(_I8, len(_SECRET))
    table = ir.GlobalVariable(b.module, kind, b.module.get_unique_name("xxh3.secret"))
    table.linkage, table.global_constant = "internal", True
    table.initializer = ir.Constant(kind, bytearray(_SECRET))
    return b.ptrtoint(table, _I64)


def _make_secret_vector(offset: int) -> Any:
    """Make a vector of 64 bytes of the secret."""
    words = range(offset, offset + _STRIPE, 8)
    return ir.Constant(
        _LANES, [int.from_bytes(_SECRET[start : start + 8], "little") for start in words]
    )


def _make_constant_vector(number: int) -> Any:
    return ir.Constant(_LANES, [number] * 8)


def _emit_load(b: Any, address: Any) -> Any:
    return b.load(b.inttoptr(address, ir.PointerType(_LANES)), align=1)
