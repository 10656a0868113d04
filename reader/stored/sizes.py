"""The size of the values of fields, in bytes."""

from collections.abc import Iterable

from fieldslab.schemas.fields import Field
from fieldslab.schemas.manifest import Manifest


def count_stored_bytes(manifest: Manifest, fields: Iterable[Field], rows: int) -> int:
    """Estimate the bytes of fields in `rows` average rows, before compression."""
    total = sum(_count_field_bytes(manifest, field) for field in fields)
    return total * rows // max(manifest.rows, 1)


def _count_field_bytes(manifest: Manifest, field: Field) -> int:
    if field.compression is not None:
        return field.compression.decoded
    if not field.variable:
        return manifest.rows * field.item_bytes
    place = [each.name for each in manifest.fields if each.stored.variable].index(field.name)
    return sum(shard.elements[place] for shard in manifest.shards) * field.item_bytes
