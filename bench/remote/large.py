"""A slab of 10 TB, of which only the manifest is there: what opening it takes."""

from pathlib import Path

from msgspec import structs

from fieldslab.schemas.folder import load_manifest
from fieldslab.schemas.manifest import MANIFEST, create_manifest, encode_manifest

SHARDS, SHARD_BYTES = 10_000, 2**30


def write_large_manifest(local: Path, folder: Path) -> None:
    """Write the manifest of a slab like `local` in 10,000 shards of 1 GiB."""
    manifest = load_manifest(local)
    shard = manifest.shards[0]
    times = max(SHARD_BYTES // max(sum(shard.elements), 1), 1)
    large = structs.replace(
        shard,
        rows=shard.rows * times,
        elements=tuple(count * times for count in shard.elements),
        points=tuple(count * times for count in shard.points),
    )
    members = {name: getattr(manifest, name) for name in ("fields", "tables", "attributes")}
    shards = (large,) * SHARDS
    content = create_manifest(manifest.made, rows=large.rows * SHARDS, shards=shards, **members)
    folder.mkdir()
    (folder / MANIFEST).write_bytes(encode_manifest(content))
