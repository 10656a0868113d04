"""How a slab is cut into shards, as `export` notes it in a file, so that `pack` cuts it again."""

from itertools import accumulate

import msgspec

SHARDS_KEY = b"fieldslab.shards"
"""Where it stands in the metadata of a Parquet file."""


class ShardRows(msgspec.Struct, frozen=True):
    """Rows of each shard, and the `shard_size` that the slab was packed with, if it is known."""

    rows: list[int]
    shard_size: int | None = None

    @property
    def ends(self) -> list[int]:
        """Where each shard ends."""
        return list(accumulate(self.rows))

    def fits(self, shard_size: int, usual: int, total: int, most: int) -> bool:
        """Whether rows are cut so, where a `shard_size` is asked for and `usual` is the default."""
        return (
            shard_size in (usual, self.shard_size)
            and sum(self.rows) == total
            and min(self.rows, default=0) > 0
            and len(self.rows) <= most
        )


def encode_shards(shards: ShardRows) -> bytes:
    """Encode it for the metadata of a file."""
    return msgspec.json.encode(shards)


def decode_shards(data: bytes | None) -> ShardRows | None:
    """Decode what a file says; None where it says nothing, or something else."""
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=ShardRows)
    except msgspec.DecodeError:
        return None
