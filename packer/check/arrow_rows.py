"""Rows of a slab as arrays of Arrow."""

import numpy as np
import pyarrow as pa

from fieldslab.packer.check.stored import StoredRows, StoredSlab
from fieldslab.schemas.arrow_arrays import ArrowMaker
from fieldslab.schemas.errors import DamagedArray
from fieldslab.schemas.fields import Field
from fieldslab.schemas.inner_lists import InnerLists, find_inner_lists


def read_column(slab: StoredSlab, field: Field, maker: ArrowMaker, rows: range) -> pa.Array:
    """Read some rows of a field. Raises what `StoredSlab.read` and `ArrowMaker.convert` raise."""
    stored = slab.read(field, rows.start, rows.stop)
    offsets = None
    if stored.lengths is not None:
        offsets = np.concatenate([[0], np.cumsum(stored.lengths)])
    if field.kind != "nested":
        return maker.convert(stored.values, offsets, stored.valid)
    inner, list_offsets = split_lists(field, stored)
    return maker.convert(stored.values, list_offsets, stored.valid, (inner.offsets, inner.valid))


def split_lists(field: Field, rows: StoredRows) -> tuple[InnerLists, np.ndarray]:
    """Split rows of a nested field into the lists inside them, with their offsets: int64[rows + 1].

    Raises DamagedArray where the lists do not have as many elements as their rows.
    """
    assert rows.lengths is not None
    counts = rows.other_arrays["lists.offsets"]
    ends = [np.concatenate([[0], np.cumsum(each)]) for each in (counts, rows.lengths)]
    lengths = rows.other_arrays["lists.values"]
    inner = find_inner_lists(lengths, *ends)
    if inner.wrong_row is not None:
        raise DamagedArray(
            "lists inside a list do not have as many elements as their row",
            field=field.name,
            hint="Verify the slab: fieldslab verify.",
        )
    return inner, ends[0]
