"""How large shards become: as asked for, and larger where there would be too many of them."""

from collections.abc import Sequence

from fieldslab.schemas.fields import Field

USUAL_SHARDS = 1024
"""Where there would be more, shards grow first, up to twice the size asked for."""
MAX_SHARDS = 100_000
"""Their folders have five digits."""
MAX_MAPS = 32_768
"""Shards times arrays stay below half of Linux's usual limit of maps in a process."""
MAX_SHARD_ENTRIES = 4 * 2**20
"""Bytes of the manifest that shards take: it is read as a whole by whoever opens the slab."""

_ENTRY_BYTES, _COUNT_BYTES = 130, 14


def choose_shard_bytes(total: int, shard_size: int, fields: Sequence[Field]) -> int:
    """Choose the target size of shards, which depends on nothing but these three.

    Parameters
    ----------
    total
        Bytes of all rows.
    shard_size
        The size that the user asks for.
    fields
        The fields of the slab: the more arrays, the fewer shards.
    """
    grown = min(-(-total // USUAL_SHARDS), 2 * shard_size)
    return max(shard_size, grown, -(-total // compute_most_shards(fields)))


def compute_most_shards(fields: Sequence[Field]) -> int:
    """Compute how many shards a slab of these fields may have."""
    arrays = sum(len(field.list_arrays()) + 1 for field in fields)
    entry_bytes = _ENTRY_BYTES + _COUNT_BYTES * arrays  # at most a count for each array
    return max(1, min(MAX_SHARDS, MAX_MAPS // max(arrays, 1), MAX_SHARD_ENTRIES // entry_bytes))
