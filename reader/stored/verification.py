"""Comparing many blocks with their digests in one call, without the interpreter lock; a kernel."""

from typing import Any

from llvmlite import ir

from fieldslab.schemas.digest import BLOCK
from fieldslab.schemas.jit import intrinsic, kernel, load_u64, make_foreign_call, types
from fieldslab.schemas.mapping import POPULATE_READ
from fieldslab.schemas.xxh3 import SHORTEST, emit_digest

_MOST = 64
"""Blocks that are read in at a time: 4 MiB."""

_call = make_foreign_call("int32(int64, uint64, int32)")


def _define_digest(_: Any, address: Any, size: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return emit_digest(builder, *arguments)

    return types.uint64(types.int64, types.int64), emit


def _define_set_bits(_: Any, address: Any, bits: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8)
        place = builder.inttoptr(arguments[0], ir.PointerType(byte))
        builder.atomic_rmw("or", place, builder.trunc(arguments[1], byte), "monotonic")
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


_digest: Any = intrinsic(_define_digest)
_set_bits: Any = intrinsic(_define_set_bits)
"""_set_bits(address, bits): set bits of a byte, whatever other threads do to its other bits."""


@kernel(
    "int64(int64[::1], int64, int64[::1], int64[::1], int64[::1], int64[::1], int64, int64, int64)"
)
def verify_and_mark_blocks(
    blocks: Any,
    position: int,
    firsts: Any,
    addresses: Any,
    sizes: Any,
    tables: Any,
    marks: int,
    madvise: int,
    page: int,
) -> int:
    """Verify blocks from `blocks[position]` on and mark them; return where it stopped.

    That is len(blocks), or the position of a block that the caller has to look at: it differs from
    its digest, cannot be read in, is too short for this kernel, or its shard has no table yet.

    Parameters
    ----------
    blocks
        Indexes of blocks over all shards, ascending, none twice.
    firsts, addresses, sizes, tables
        By shard: the index of its first block; where its data begins, and its bytes; where the
        digest of its first block stands (0: not known yet, or no XXH3). int64[shards]
    marks
        The address of `VerifiedBlocks.table`.
    madvise, page
        See `mapping.get_populate_call`.
    """
    low, high = 0, len(firsts) - 1
    while position < len(blocks) and low < high:
        middle = (low + high + 1) >> 1
        if firsts[middle] <= blocks[position]:
            low = middle
        else:
            high = middle - 1
    shard = low
    ready = position
    while position < len(blocks):
        block = blocks[position]
        while shard + 1 < len(firsts) and firsts[shard + 1] <= block:
            shard += 1
        begin = (block - firsts[shard]) * BLOCK
        size = min(BLOCK, sizes[shard] - begin)
        table = tables[shard]  # once: it becomes 0 when the array is unmapped
        if table == 0 or size < SHORTEST:
            return position
        if madvise != 0 and position >= ready:
            ready = position + 1
            end = begin + size
            while (
                ready < len(blocks)
                and ready < position + _MOST
                and blocks[ready] == blocks[ready - 1] + 1
                and end < sizes[shard]
            ):
                end = min(end + BLOCK, sizes[shard])
                ready += 1
            start = (addresses[shard] + begin) & -page
            if _call(madvise, (start, addresses[shard] + end - start, POPULATE_READ)) != 0:
                return position
        computed = _digest(addresses[shard] + begin, size)
        if computed != load_u64(table + 8 * (block - firsts[shard])):
            return position
        _set_bits(marks + (block >> 3), 1 << (block & 7))
        position += 1
    return position
