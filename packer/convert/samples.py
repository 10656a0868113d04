"""A few values of a column, for what its type alone does not tell."""

from functools import cache

import pyarrow as pa

from fieldslab.packer.convert.batch import SourceBatch, index_columns
from fieldslab.packer.convert.dense import decode_layout, is_bytes
from fieldslab.packer.convert.infer import Sample
from fieldslab.packer.convert.leaves import Leaf, make_unknown_field_error
from fieldslab.packer.convert.shapes import find_list_sizes
from fieldslab.packer.source import Source

SAMPLED_AT_ONCE = 64
"""Columns that are sampled together: more would cost memory, fewer time."""

MOST_SAMPLES = 16
"""A source is sampled so often at most: each time may cost it as much as it has columns."""


def make_sampler(source: Source, leaves: dict[str, Leaf], chosen: list[Leaf]) -> Sample:
    """Make a function that samples a column, nulls left out; it reads many columns at once."""
    chosen = [leaf for leaf in chosen if leaf.hint.refusal is None]
    shapes = [leaf.options.tensor.shape_from for leaf in chosen if leaf.options.tensor]
    sampled = {leaf.path[0] for leaf in chosen if _needs_sample(leaf)}
    sampled |= {leaves[name].path[0] for name in shapes if name in leaves}
    columns = sorted(sampled)
    at_once = max(SAMPLED_AT_ONCE, -(-len(columns) // MOST_SAMPLES))
    groups = {column: index // at_once for index, column in enumerate(columns)}

    @cache
    def read_group(group: int) -> list[SourceBatch]:
        together = columns[group * at_once : (group + 1) * at_once]
        positions = index_columns(together)
        return [SourceBatch(batch, positions) for batch in source.sample(together)]

    def read_sample(name: str) -> list[pa.Array]:
        if name not in leaves:
            raise make_unknown_field_error("tensor", name, leaves)
        path = leaves[name].path
        arrays = [batch.get_column(path) for batch in read_group(groups[path[0]])]
        return [decode_layout(array).drop_null() for array in arrays]

    return read_sample


def _needs_sample(leaf: Leaf) -> bool:
    """Return True if the type is not enough: bytes may be images, nested lists rectangular."""
    sizes, element = find_list_sizes(leaf.type)
    return None in sizes[1:] or (not sizes and is_bytes(element))
