"""How many bytes the values of fields have."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fieldslab.reader.slab import Slab


def stored_bytes(slab: "Slab", names: Sequence[str]) -> int:
    """Bytes of the values of fields, before compression; of a view, its share of the slab's."""
    total = sum(_field_bytes(slab, name) for name in names)
    return total * len(slab) // max(slab.manifest.rows, 1)


def _field_bytes(slab: "Slab", name: str) -> int:
    field = slab.fields[name]
    if field.compression is not None:
        return field.compression.decoded
    if not field.variable:
        return slab.manifest.rows * field.item_bytes
    at = [one.name for one in slab.manifest.fields if one.stored.variable].index(name)
    return sum(shard.elements[at] for shard in slab.manifest.shards) * field.item_bytes
