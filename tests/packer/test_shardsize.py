"""The size of shards, for any amount of data."""

from fieldslab.packer.shardsize import (
    MAX_MAPS,
    MAX_SHARD_ENTRIES,
    USUAL_SHARDS,
    choose_shard_bytes,
    compute_most_shards,
)
from fieldslab.schemas.fields import Field, make_file_stem
from fieldslab.schemas.manifest import Provenance, Shard, create_manifest, encode_manifest

GIB = 2**30


def make_fields(count: int) -> list[Field]:
    """Fields of numbers."""
    names = [f"n{index}" for index in range(count)]
    return [
        Field(name=name, stem=make_file_stem(index, name), kind="fixed", dtype="int64", shape=())
        for index, name in enumerate(names)
    ]


def test_shards_are_as_large_as_wanted() -> None:
    """Up to a thousand shards, nothing but the wanted size counts."""
    for total in (0, 1, GIB, USUAL_SHARDS * GIB):
        assert choose_shard_bytes(total, GIB, make_fields(3)) == GIB


def test_shards_grow_before_they_become_many() -> None:
    """Of more data, shards grow to twice the size; then there are more; then they grow again."""
    fields = make_fields(3)
    assert choose_shard_bytes(1500 * GIB, GIB, fields) == -(-1500 * GIB // USUAL_SHARDS)
    for shards in (USUAL_SHARDS, 2000, compute_most_shards(fields)):
        assert choose_shard_bytes(2 * shards * GIB, GIB, fields) == 2 * GIB
    assert choose_shard_bytes(10**8 * GIB, GIB, fields) > 2 * GIB


def test_the_limits_hold() -> None:
    """Neither maps nor the manifest's entries of shards exceed their limits."""
    for count in (1, 2, 10, 100, 1000, 100_000):
        fields = make_fields(count)
        most = compute_most_shards(fields)
        assert most == 1 or most * 2 * count <= MAX_MAPS
    fields = make_fields(1)
    most = compute_most_shards(fields)
    shard = Shard(rows=10**9, elements=(), nulls=(), root="0" * 64)
    manifest = create_manifest(
        Provenance(tool="test", time="2025-01-01T00:00:00+00:00", plan="0" * 64),
        rows=10**9 * most,
        fields=tuple(fields),
        shards=(shard,) * most,
    )
    assert len(encode_manifest(manifest)) < MAX_SHARD_ENTRIES + 10_000
