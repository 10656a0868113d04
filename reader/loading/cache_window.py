"""Orders for slabs that are larger than the cache of this machine.

With a `cache_limit` below the bytes of the fields, rows in random order would be fetched again and
again: each epoch many times what it uses. `Near` reads a few shards at a time.
"""

import os
from collections.abc import Sequence

from fieldslab.reader.loading.epoch_plan import find_rank_and_size
from fieldslab.reader.orders.near import Near
from fieldslab.reader.orders.order import Order, Sequential, Shuffled
from fieldslab.reader.slab import Slab
from fieldslab.reader.stored.sizes import count_stored_bytes
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.notices import warn
from fieldslab.schemas.optiontext import mark_option

_KEPT = 2
"""Windows that are in the cache at a time: the one that is read, and the next one."""


def choose_order(
    slab: Slab,
    fields: Sequence[str],
    order: Order | None,
    rank: int | None = None,
    world_size: int | None = None,
) -> Order:
    """Choose an order if none is given: `Shuffled`, or `Near` where the cache has too little room.

    Parameters
    ----------
    rank, world_size
        Those of the loader: see `find_rank_and_size`.

    Warns
    -----
    FieldslabWarning
        `Near` was chosen; or an order was given that reads all over the slab.

    Raises
    ------
    UsageError
        The cache has no room for a window of `Near`.
    """
    limit = slab.storage.cache_limit
    if limit is None:
        return Shuffled(0) if order is None else order
    total = count_stored_bytes(slab.manifest, map(slab.fields.__getitem__, fields), len(slab))
    if total <= limit:
        return Shuffled(0) if order is None else order
    shard_rows = max(shard.rows for shard in slab.manifest.shards)
    shard_bytes = max(total * shard_rows // max(len(slab), 1), 1)
    machines = _count_machines(find_rank_and_size(rank, world_size)[1])
    if order is None:
        window = max(limit // shard_bytes // _KEPT - 1, 1)
        order = Near(machines, window, chosen=True)
        warn(
            f"{mark_option('cache_limit')} is {limit:,} bytes, and these fields of {slab.path} "
            f"have {total:,}: rows come in the order {order!r}"
        )
    if isinstance(order, Near):
        groups = -(-order.groups // machines)
        needed = _KEPT * groups * (order.window + 1) * shard_bytes
        if needed > limit:
            raise UsageError(
                f"{mark_option('cache_limit')} is less than two windows of shards take, which "
                f"{order!r} reads",
                file=slab.path,
                expected=f"at least {needed:,} bytes for these fields",
                found=f"{limit:,} bytes",
                hint="Raise the limit, or make smaller shards with repack."
                if order.window == 1
                else "Raise the limit, or give a smaller window.",
            )
    elif not isinstance(order, Sequential):
        warn(
            f"{mark_option('cache_limit')} is {limit:,} bytes, and these fields of {slab.path} "
            f"have {total:,}: with {order!r}, blocks are fetched again and again. Near fetches "
            "each once an epoch."
        )
    return order


def _count_machines(world_size: int) -> int:
    """Count the machines of a job, as torchrun tells: LOCAL_WORLD_SIZE ranks run on each."""
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(world_size // int(local), 1) if local.isdecimal() and int(local) else world_size
